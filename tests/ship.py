"""Make the shipped cards and their manifest, in shared_specs/cards; --fresh also designs those that
exist already.

.venv/bin/python tests/ship.py
"""

import itertools
import json
import sys

from tern import card as cards
from tern.card import LAPLACE, CardError
from ternhost.privacy import certify
from ternhost.privacy.base import MICRO
from ternhost.privacy.cards import decode, describe, fraction
from ternhost.privacy.mechanisms import REGISTRY, shipped

# Mechanisms of the papers, with their default number of levels or another one, and tern's own; the
# epsilons of each.
_PAPERS = (
    "three-outputs",
    "duchi",
    "laplace",
    "pm",
    "pm-sub",
    "pm-sub 15",
    "pm-opt",
    "hm",
    "hm-tp",
    "3r",
    "rr3",
    "pdpm",
    "lhp",
    "grr",
)
_PAPERS_AT = tuple(MICRO * n // 2 for n in (1, 2, 3, 4, 5, 6, 8, 10, 12))
_OPTIMAL_LEVELS = (4, 8, 16)
_OPTIMAL_AT = tuple(MICRO * n // 4 for n in range(2, 25))


def wanted():
    """(mechanism, epsilon, levels) of every card that is shipped."""
    for paper, epsilon in itertools.product(_PAPERS, _PAPERS_AT):
        name, _, levels = paper.partition(" ")
        yield name, epsilon, int(levels) if levels else None
    for levels, epsilon in itertools.product(_OPTIMAL_LEVELS, _OPTIMAL_AT):
        yield "optimal", epsilon, levels


def ship(
    directory, *, fresh=False, only=lambda name, epsilon, levels: True, progress=lambda name: None
):
    """Write every shipped card and the manifest to `directory`; return how many.

    Those there stay, unless `fresh`.
    """
    directory.mkdir(parents=True, exist_ok=True)
    entries = []
    for name, epsilon, levels in (card for card in wanted() if only(*card)):
        file = (
            directory / f"{name}{'' if levels is None else f'-{levels}'}-{epsilon / MICRO:g}.card"
        )
        if fresh or not _is_good(file, epsilon):
            progress(file.name)
            # The record's own design: `mechanisms.design` would take the shipped card itself.
            file.write_bytes(REGISTRY.named(name).design(epsilon, levels).card)
        entries.append(_entry(name, epsilon, levels, file))
    text = json.dumps({"cards": entries}, indent=1)
    (directory / shipped.MANIFEST).write_text(text + "\n")
    return len(entries)


def _is_good(file, epsilon):
    try:
        return bool(cards.certify(cards.decode(file.read_bytes()), epsilon))
    except (OSError, CardError):
        return False


def _entry(name, epsilon, levels, file):
    card = decode(file.read_bytes(), str(file))
    worth = describe(card)
    exact = None if card.shape == LAPLACE else certify.moments(card).worst_variance()[0]
    return {
        "file": file.name,
        "mechanism": name,
        "levels": worth["levels"] if levels is None else levels,
        "epsilon": epsilon / MICRO,
        "epsilon_micro": epsilon,
        "epsilon_certified": worth["epsilon_certified"],
        "worst_case_variance": worth["worst_case_variance"],
        "worst_case_variance_exact": None if exact is None else fraction(exact),
        "variance_at_zero": worth["variance_at_zero"],
        "card_bytes": worth["card_bytes"],
        "card_hash": worth["card_hash"],
    }


if __name__ == "__main__":
    print(ship(shipped.directory(), fresh="--fresh" in sys.argv, progress=print), "cards")
