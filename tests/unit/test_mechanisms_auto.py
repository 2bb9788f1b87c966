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
REFERENCE_BOUNDS = {1.0: 3.9905405, 2.0: 0.8653499, 3.0: 0.303943}


def test_auto_takes_the_best_mechanism_and_gives_the_reason():
    design = mechanisms.design("auto", "2", bits=2)
    card = design.decode()
    assert card.symbols <= 4
    assert worst_variance(card) <= min(
        worst(name, "2") for name in ("duchi", "three-outputs", "rr3", "3r")
    )
    assert "least worst-variance" in design.notes[0]
    assert "next best" in design.notes[1]


@pytest.mark.parametrize("entry", shipped.entries(), ids=lambda entry: entry["file"])
def test_a_shipped_card_is_certified_and_has_the_figures_of_the_manifest(entry):
    data = (shipped.directory() / entry["file"]).read_bytes()
    card = cards.decode(data)
    assert cards.card_hash(data).hex() == entry["card_hash"]
    assert entry["epsilon_certified"] <= entry["epsilon"]
    assert cards.certify(card, entry["epsilon_micro"])
    assert certify.bias(card) == 0
    if stated := entry["worst_case_variance_exact"]:
        assert certify.moments(card).worst_variance()[0] == Fraction(stated)


def test_a_shipped_card_that_was_changed_is_refused(tmp_path, monkeypatch):
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


@pytest.mark.parametrize("entry", OPTIMAL, ids=lambda entry: entry["file"])
def test_a_shipped_optimal_card_beats_published_mechanisms_and_is_near_the_lower_bound(entry):
    epsilon, levels = entry["epsilon"], entry["levels"]
    variance = entry["worst_case_variance"]
    if levels == 4:
        for name in ("duchi", "three-outputs", "rr3"):
            assert variance < worst(name, epsilon)
        for count, window in product((2, 3, 4), ("paper", "best")):
            assert variance < worst("pm-sub", epsilon, count, window=window)
    bound = REFERENCE_BOUNDS.get(epsilon)
    if bound is not None:
        assert bound < variance
        if levels == 16:
            assert variance < 1.015 * bound
