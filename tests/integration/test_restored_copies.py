"""A store that is restored from a copy while its fleet runs: what its boards have paid since counts
for life.
"""

import sqlite3
from contextlib import contextmanager

import pytest
import rig
from harness.running_gateways import gateways

from ternhost.errors import RefusedError
from ternhost.run.status import Watcher
from ternhost.store.store import Store

EPSILON = "8"


class Heard(Watcher):
    """Keeps the warnings of a run."""

    def __init__(self):
        self.warnings = []
        super().__init__(warn=self.warnings.append)

    @property
    def unknown(self):
        """What it was told of payments that the store does not know."""
        return [text for text in self.warnings if "rounds that this store does not know" in text]


def copied(source, target):
    with sqlite3.connect(source) as store, sqlite3.connect(target) as copy:
        store.backup(copy)


@contextmanager
def restored(path, tmp_path):
    """What happens in this context is forgotten by the store at `path`."""
    copy = tmp_path / "copy.sqlite"
    copied(path, copy)
    yield
    copied(copy, path)


def life(result):
    return round(
        result["guarantees"][0]["life"]["bounds"]["pure"], 4
    )  # a card costs a little less than the epsilon asked for


def test_boards_on_a_broker_that_never_left_tell_what_they_have_paid(tmp_path, micropython):
    """Their hellos at the broker are from before all rounds."""
    with rig.OnBroker(tmp_path, micropython, 2, 4) as fleet:
        run = {
            "fleet": fleet.name,
            "store": fleet.path,
            "dataset": "iris",
            "reports": 4,
            "epsilon": EPSILON,
        }
        assert life(rig.finish(**run)) == 8
        with restored(fleet.path, tmp_path):
            assert life(rig.finish(**run)) == 16
        heard = Heard()
        result = rig.finish(**run, after_round=2, watcher=heard)
        (warning,) = heard.unknown
        assert (
            "one says epsilon 16 in its life, and the rounds of this store cost it 8 at most"
            in warning
        )
        assert (round(result["epsilon_before"], 4), life(result)) == (16, 24)


def test_boards_on_a_broker_that_cannot_pay_begin_no_run(tmp_path, micropython):
    with rig.OnBroker(tmp_path, micropython, 2, 4) as fleet:
        run = {
            "fleet": fleet.name,
            "store": fleet.path,
            "dataset": "iris",
            "rounds": 60,
            "epsilon": "16",
        }
        with pytest.raises(
            RefusedError, match="4 of the 4 devices whose budget is known cannot pay"
        ) as caught:
            rig.finish(**run)
        assert "ask for --rounds 56 or --epsilon 15" in caught.value.hint
        with Store(fleet.path) as store:
            assert not store.last_round()
            assert not store.runs()
        assert rig.finish(**{**run, "rounds": 56})["refusals"] == 0


def test_boards_at_gateways_tell_what_they_have_paid(tmp_path, micropython):
    runs = {"north": {"fleet": "emulated:1", "dataset": "iris", "clients": 4, "budget": "100"}}
    with gateways(tmp_path / "sites", runs):
        run = {
            "fleet": f"gateways:{tmp_path / 'sites'}",
            "dataset": "iris",
            "reports": 4,
            "epsilon": EPSILON,
        }
        path = tmp_path / "host.sqlite"
        assert life(rig.finish(**run, store=path)) == 8
        with restored(path, tmp_path):
            assert life(rig.finish(**run, store=path)) == 16
        heard = Heard()
        result = rig.finish(**run, store=path, watcher=heard)
        assert (
            "one says epsilon 16 in its life, and the rounds of this store cost it 8 at most"
            in heard.unknown[0]
        )
        assert life(result) == 24


def test_boards_at_gateways_that_cannot_pay_begin_no_run(tmp_path, micropython):
    runs = {"north": {"fleet": "emulated:1", "dataset": "iris", "clients": 4, "budget": "100"}}
    with gateways(tmp_path / "sites", runs):
        path = tmp_path / "host.sqlite"
        run = {
            "fleet": f"gateways:{tmp_path / 'sites'}",
            "dataset": "iris",
            "epsilon": EPSILON,
            "store": path,
        }
        with pytest.raises(
            RefusedError, match="4 of the 4 devices whose budget is known cannot pay"
        ) as caught:
            rig.finish(**run, rounds=13)
        assert "ask for --rounds 12 or --epsilon 7.69" in caught.value.hint
        assert rig.finish(**run, rounds=12)["refusals"] == 0
        with pytest.raises(RefusedError, match="they have epsilon 4 left"):
            rig.finish(**run, rounds=1)
