"""An extension of another package adds to runs, stores and reports; what needs it says so.

tests/outside/purpose.py is one: an option of runs, a table, a line, a result and a row of the
report.
"""

import runpy
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from ternhost import errors
from ternhost.errors import StorageError
from ternhost.extensions import EXTENSIONS, Export, Extension
from ternhost.options import option
from ternhost.run.observer import Observer
from ternhost.run.status import END
from ternhost.store.store import Store

FILE = Path(__file__).parents[1] / "outside" / "purpose.py"
FLEET = ["--fleet", "simulated:60", "--data", "iris", "--reports", "60"]
TRAIN = ["train", *FLEET, "--name", "mine", "--json"]
STORE = Path("runs/mine/store.sqlite")

pytestmark = pytest.mark.usefixtures("here", "undrawn")


@pytest.fixture
def purpose(here):
    """The extension, registered for one test."""
    found = runpy.run_path(str(FILE))["PURPOSE"]
    with EXTENSIONS.lent(found.name, found):
        yield found


def test_its_option_its_line_its_result_its_row_and_its_table_are_there(purpose, tern):
    printed = tern(*TRAIN, "--purpose", "science")
    assert printed.json["purpose"] == "science"
    assert "this run is for science" in printed.err
    assert "as the owner of the run put it" in Path("runs/mine/report.html").read_text()
    with Store(STORE, beside=True) as store:
        assert store.rows("SELECT text FROM purpose") == [("science",)]


def test_a_store_has_no_table_of_an_extension_that_was_not_used(purpose, tern):
    tern(*TRAIN)
    with Store(STORE, beside=True) as store:
        assert not store.has_tables_of(purpose)


def test_a_store_with_its_table_needs_it(tern, here):
    purpose = runpy.run_path(str(FILE))["PURPOSE"]
    with EXTENSIONS.lent("purpose", purpose):
        tern(*TRAIN, "--purpose", "science")
    with pytest.raises(StorageError, match="has data of purpose, which is not installed"):
        Store(STORE, beside=True)


def test_a_file_that_defines_one_is_enough(purpose, tern):
    with EXTENSIONS.lent("purpose", purpose):
        result = tern("--with", str(FILE), *TRAIN, "--purpose", "science").json
    assert result["purpose"] == "science"


def test_without_it_its_option_is_unknown(tern):
    tern(*TRAIN, "--purpose", "science", code=errors.USAGE)


@dataclass(frozen=True)
class TakesAName:
    store: str | None = option(None, "an option of an extension", metavar="X")


def test_an_extension_must_not_declare_an_option_that_all_runs_have(tern):
    class Taker(Extension):
        name = package = "taker"
        Options = TakesAName

    with EXTENSIONS.lent("taker", Taker()):
        refused = tern(*TRAIN, "--json", code=errors.USAGE).json
    assert "--store" in refused["error"]


class Diary(Observer):
    """Keeps what it is called with."""

    name = "diary"
    about = "keep a diary"
    entries: ClassVar = []

    def begin(self, run, warn):
        self.entries.append("begin")

    def update(self, status):
        self.entries.append(status.event)

    def end(self):
        self.entries.append("end of the run")

    @classmethod
    def forget(cls, run, warn):
        cls.entries.append("forgotten")


class Views(Extension):
    name = "views"
    observers = (Diary,)
    exports = (Export("sketch", "write a sketch", "sketch.txt", lambda: "a sketch"),)


@pytest.fixture
def views():
    """An extension with an observer and an export, for one test."""
    with EXTENSIONS.lent("views", Views()):
        yield


@pytest.mark.usefixtures("views")
def test_its_observer_follows_a_served_run_and_forgets_it_at_the_next_start(tern):
    """An observer is told what happens in a served run, if the user wants it (here with --diary),
    and else, at the start of a run, to forget what it has shown of earlier ones.
    """
    serve = ["serve", "--fleet", "simulated:60", "--data", "iris", "--store", "s.sqlite"]
    Diary.entries.clear()
    tern(*serve, "--rounds", "1", "--no-report", "--diary")
    assert Diary.entries[0] == "begin"
    assert Diary.entries[-2:] == [END, "end of the run"]

    Diary.entries.clear()
    tern(*serve, "--rounds", "2", "--no-report")
    assert Diary.entries == ["forgotten"]


@pytest.mark.usefixtures("views")
def test_its_file_is_written_by_watch(tern):
    assert tern("watch", "--sketch", "own.txt", "--json").json == {"sketch": "own.txt"}
    assert Path("own.txt").read_text() == "a sketch"
