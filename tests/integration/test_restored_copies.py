"""A store that is restored from a copy while its fleet runs: what its boards have paid since counts
for life.
"""

import sqlite3
from contextlib import contextmanager

import pytest
import rig

from ternhost.run.status import Watcher

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


def epsilon_for_life(result):
    """The epsilon of a device in its life, as the result of a run states it."""
    (guarantee, *_) = result["guarantees"]
    return guarantee["life"]["bounds"]["pure"]


def test_boards_on_a_broker_that_never_left_tell_what_they_have_paid(tmp_path, micropython):
    """Their hellos at the broker are from before all rounds. Each run costs epsilon 8."""
    with rig.OnBroker(tmp_path, micropython, boards=2, clients=4) as fleet:
        place = {"fleet": fleet.name, "store": fleet.path}
        run = {**place, "dataset": "iris", "reports": 4, "epsilon": EPSILON}
        first = rig.finish(**run)
        with restored(fleet.path, tmp_path):
            second = rig.finish(**run)  # which the store forgets
        heard = Heard()
        third = rig.finish(**run, after_round=2, watcher=heard)

    # A card costs a little less than the epsilon that is asked for.
    assert epsilon_for_life(first) == pytest.approx(8, abs=1e-4)
    assert epsilon_for_life(second) == pytest.approx(16, abs=1e-4)
    assert third["epsilon_before"] == pytest.approx(16, abs=1e-4)
    assert epsilon_for_life(third) == pytest.approx(24, abs=1e-4)
    (warning,) = heard.unknown
    assert "epsilon 16 in its life, and the rounds of this store cost it 8 at most" in warning
