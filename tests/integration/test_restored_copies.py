"""A store that is restored from a copy while its fleet runs: what its boards have paid since counts
for life.
"""

import sqlite3
from contextlib import contextmanager

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
