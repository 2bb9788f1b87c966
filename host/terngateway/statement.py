"""What a privacy statement says about gateways, and what stands behind it."""

from collections.abc import Mapping
from typing import Any

from terngateway.planning import guarantees_of, unbounded_sites
from terngateway.tables import GatewayTables
from ternhost.extensions import StatementPart
from ternhost.reach import fleet
from ternhost.statement.evidence import Evidence, Key
from ternhost.statement.sentences import Sentence
from ternhost.store.store import Store

_COUNTS, _DRAWS = "gateway", "draws"  # keys of the evidence

EVIDENCE = {
    _COUNTS: Evidence(
        "Theorems 4 and 5: what the counts of a site tell of one of its devices, and the bound that a gateway keeps",
        (
            "docs/guides/accounting.md#behind-a-gateway",
            "shared_specs/gateways.md#toward-the-owner-of-the-server",
        ),
        ("tests/gateway/test_adversary.py", "tests/gateway/test_audit.py"),
    ),
    _DRAWS: Evidence(
        "groups that a gateway draws: how many of the devices in one may belong to the owner of the server",
        ("shared_specs/gateways.md#groups-that-a-gateway-draws",),
        ("tests/unit/test_groups.py", "tests/gateway/test_draws.py"),
    ),
}


def part(
    sites: Mapping[str, Mapping[str, Any]], honest: float, not_real: str = ""
) -> StatementPart:
    """Return what a privacy statement says about the counts of these sites.

    sites: the privacy loss through the counts of each, as from `planning.as_result`. honest: the
    share of their devices that the owner of the server does not control. not_real: a sentence that
    says that some devices are simulated or emulated; "" if none are.
    """
    against = [
        Sentence(
            "The gateway of a site sees each report of its devices. The numbers below hold against it, too.",
            (Key.HOST, Key.CARD),
        ),
        Sentence(
            "The owner of the server sees counts of reports for each site, in which a report hides among those of the "
            "others.",
            (_COUNTS,),
        ),
    ]

    # The evidence for what is said about single sites. Where all devices are honest, it does not
    # matter who has chosen them.
    evidence: tuple[str, ...] = (_COUNTS,)
    if honest < 1:
        evidence = (_COUNTS, _DRAWS)
    guarantees = guarantees_of(sites)
    for guarantee in guarantees:
        words = guarantee.words()
        sentence_start = words[0].upper() + words[1:]
        text = f"{sentence_start}, against {guarantee.against}."
        against.append(Sentence(text, evidence))
    for name in unbounded_sites(sites):
        text = f"The counts of {name} tell the owner of the server as much as single reports would."
        against.append(Sentence(text, evidence))
    if not sites:
        text = "Nothing better than the numbers below is proved of these counts so far."
        against.append(Sentence(text, (_COUNTS, Key.FACT)))
    return StatementPart(against, guarantees, not_real)


def reason_of_made_sites(store: Store) -> str:
    """Return a sentence on the sites whose devices are not real, or "" if all are.

    The gateways of such sites simulate their devices, or emulate boards.
    """
    names = []
    for gateway in GatewayTables(store).gateways():
        if _is_made(gateway.here.get("fleet")):
            names.append(gateway.name)
    if not names:
        return ""
    return (
        f"The devices of {', '.join(names)} are simulated or emulated by the gateway, which has all their data: nobody "
        "is protected there. This page says what the same run promises to devices that other people hold."
    )


def _is_made(word: str | None) -> bool:
    """Whether tern simulates or emulates the devices of this kind of fleet.

    word: the name of the kind, such as "simulated"; None if the gateway has not said it. Returns
    False for a kind that is unknown here.
    """
    if word is None or word not in fleet.KINDS:
        return False
    kind = fleet.KINDS[word]
    return kind.simulated or kind.provisions
