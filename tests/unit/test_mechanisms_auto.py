"""`auto`, Algorithm 5, shipped cards, and every mechanism through one command."""

from fractions import Fraction
from itertools import product

import pytest
import ship
from designing import worst, worst_variance

from tern import card as cards
from ternhost.errors import UsageError
from ternhost.privacy import certify, mechanisms
from ternhost.privacy.mechanisms import shipped

# Certified lower bounds of the worst variance, which another program computed.
LOWER_BOUNDS = {1.0: 3.9905405, 2.0: 0.8653499, 3.0: 0.303943}  # of a variance, by the epsilon


def test_auto_takes_the_best_mechanism_and_gives_the_reason():
    """`auto` compares all mechanisms that keep an epsilon (here 2) with reports of at most so many
    bits. It makes a card, the certified table from which devices draw their reports, of the one
    with the least variance in the worst case, and its notes say why.
    """
    design = mechanisms.design("auto", epsilon="2", levels=4)
    card = design.decode()

    assert card.symbols <= 4, "two bits"
    for name in ("duchi", "three-outputs", "rr3", "3r"):
        assert worst_variance(card) <= worst(name, "2")
    reason, comparison, *_ = design.notes
    assert "least worst-variance" in reason
    assert "next best" in comparison


@pytest.mark.parametrize("entry", shipped.entries(), ids=lambda entry: entry["file"])
def test_a_shipped_card_is_certified_and_has_the_figures_of_the_manifest(entry):
    """A card is the table from which devices draw their reports. tern brings ready-made ones, with
    a manifest: each keeps its epsilon (it is certified), has no bias and the stated hash and
    variance.
    """
    data = (shipped.directory() / entry["file"]).read_bytes()
    card = cards.decode(data)
    assert cards.card_hash(data).hex() == entry["card_hash"]
    assert entry["epsilon_certified"] <= entry["epsilon"]
    assert cards.certify(card, entry["epsilon_micro"])
    assert certify.bias(card) == 0
    if stated := entry["worst_case_variance_exact"]:
        assert certify.moments(card).worst_variance()[0] == Fraction(stated)


def test_a_shipped_card_that_was_changed_is_refused(tmp_path, monkeypatch):
    """tern brings ready-made cards (tables from which devices draw their reports) and their hashes.
    A card whose last byte was changed is refused; without a card for an epsilon, None is returned.
    """
    # As the package is made, but with the nine cards of one mechanism.
    assert ship.ship(tmp_path, only=lambda name, *_: name == "duchi") == 9
    monkeypatch.setattr(shipped, "directory", lambda: tmp_path)
    shipped._manifest.cache_clear()
    try:
        assert shipped.load("duchi", 2_000_000) == mechanisms.design("duchi", "2").card
        assert shipped.load("duchi", 2_000_001) is None

        path = tmp_path / "duchi-2.card"
        path.write_bytes(path.read_bytes()[:-1] + b"\x00")
        with pytest.raises(UsageError, match="changed"):
            shipped.load("duchi", 2_000_000)
    finally:
        shipped._manifest.cache_clear()


OPTIMAL = [entry for entry in shipped.entries() if entry["mechanism"] == "optimal"]
OPTIMAL_WITH_A_BOUND = [entry for entry in OPTIMAL if entry["epsilon"] in LOWER_BOUNDS]
OPTIMAL_OF_FOUR_LEVELS = [entry for entry in OPTIMAL if entry["levels"] == 4]


@pytest.mark.parametrize("entry", OPTIMAL_OF_FOUR_LEVELS, ids=lambda entry: entry["file"])
def test_a_shipped_optimal_card_of_four_levels_beats_published_mechanisms(entry):
    """The optimal card of an epsilon and a number of levels (values that a report may have) is
    found by optimisation. With four levels, its variance in the worst case is below that of each
    published mechanism of at most as many.
    """
    epsilon, variance = entry["epsilon"], entry["worst_case_variance"]
    for name in ("duchi", "three-outputs", "rr3"):
        assert variance < worst(name, epsilon)
    for levels, window in product((2, 3, 4), ("paper", "best")):
        assert variance < worst("pm-sub", epsilon, levels, window=window)


@pytest.mark.parametrize("entry", OPTIMAL_WITH_A_BOUND, ids=lambda entry: entry["file"])
def test_a_shipped_optimal_card_is_near_the_lower_bound(entry):
    """No mechanism of these epsilons has a smaller variance in the worst case than the bound. With
    16 levels (values that a report may have), the most of the shipped cards, the optimal card is
    within 1.5 percent of it.
    """
    variance, bound = entry["worst_case_variance"], LOWER_BOUNDS[entry["epsilon"]]
    assert bound < variance
    if entry["levels"] == 16:
        assert variance < 1.015 * bound
