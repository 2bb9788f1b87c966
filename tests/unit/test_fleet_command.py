"""The options of `tern fleet emulate`, checked before a board is started."""

import pytest

from ternhost import datasets
from ternhost.errors import USAGE
from terntools.emulators import fleet_command


@pytest.fixture(autouse=True)
def without_interpreter(monkeypatch):
    """No board is started, so that MicroPython need not be there."""
    monkeypatch.setattr(fleet_command, "find_micropython", lambda: "micropython")


@pytest.mark.parametrize(
    ("words", "option"),
    [
        ("0", "N"),
        ("4 --clients 3", "--clients"),
        ("1 --clients 1000000", "--clients"),
        ("1 --records 0", "--records"),
        ("1 --data nonsense", "nonsense"),
        ("1 --data devices:29", "--data"),
        ("1 --budget none", "--budget"),
        ("1 --program missing.py", "missing.py"),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(here, tern, words, option):
    failed = tern("fleet", "emulate", *words.split(), code=USAGE)
    assert option in failed.err
    assert not (here / "runs").exists()


@pytest.mark.parametrize("words", ["--data wine", "--clients 2", "--records 2"])
def test_a_program_collects_its_own_records(here, tern, words):
    (here / "mine.py").write_text("")
    tern("fleet", "emulate", "1", "--program", "mine.py", *words.split(), code=USAGE)


def test_labels_of_several_classes_are_their_numbers():
    labels = datasets.held("iris").labels
    assert set(labels.tolist()) == {0, 1, 2}


def test_labels_of_two_classes_are_signs():
    labels = datasets.held("breast-cancer").labels
    assert set(labels.tolist()) == {-(2**14), 2**14}


# A table of the user's own

HOMES = {"B3": 9, "A1": 14, "C2": 12}  # records of each


class FleetOfNoBoards:
    """Takes the place of the emulated boards, and ends at once as by Ctrl-C."""

    ports = ("/dev/pts/7",)

    def __init__(self, *_, port_is_read):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def failed(self):
        raise KeyboardInterrupt


@pytest.fixture
def emulate(here, tern, monkeypatch):
    """Make the files of a fleet of my.csv, but start no board; return what the command prints."""
    monkeypatch.setattr(fleet_command, "EmulatedFleet", FleetOfNoBoards)
    lines = ["home,t,number,label"]
    for home, count in HOMES.items():
        lines += [f"{home},{moment},{moment},{moment % 2}" for moment in range(count)]
    (here / "my.csv").write_text("\n".join(lines) + "\n")
    (here / "my.toml").write_text(
        """label = "label"
        [columns.number]
        low = 0
        high = 20
        [columns.label]
        categories = ["0", "1"]
        """
    )

    def run(*words, **code):
        return tern("fleet", "emulate", *words, "--data", "my.csv", "--json", **code)

    return run


def test_the_printed_command_divides_the_table_alike(emulate):
    words = ("--by", "home", "--time", "t", "--held-out", "0.2")
    assert " ".join(words) in emulate("2", *words).json["command"]


def test_the_printed_command_has_the_bound_on_records(emulate):
    words = ("--by", "home", "--unit", "record", "--records", "5")
    assert "--records 5" in emulate("1", *words).json["command"]


def test_the_printed_command_says_that_devices_have_several_records(emulate):
    assert "--records 5" in emulate("1", "--by", "home", "--records", "5").json["command"]


def test_the_printed_command_may_spend_the_budget_of_the_boards(emulate):
    words = ("--by", "home", "--unit", "record", "--budget", "4", "--delta", "1e-5")
    assert "--run-epsilon 4 --delta 1e-5" in emulate("1", *words).json["command"]


def test_owners_are_named_in_the_order_of_their_devices(emulate):
    assert emulate("1", "--by", "home").json["owners"] == list(HOMES)


def test_boards_of_another_division_are_not_run_again(emulate):
    emulate("1", "--by", "home", "--dir", "boards")
    failed = emulate("1", "--by", "t", "--dir", "boards", code=USAGE)
    assert "--by" in failed.err


@pytest.mark.parametrize("words", [("4",), ("1", "--clients", "4")])
def test_there_are_no_more_boards_and_clients_than_owners(here, emulate, words):
    failed = emulate(*words, "--by", "home", code=USAGE)
    assert "3" in failed.err
    assert not (here / "runs").exists()


def test_a_table_without_owners_is_dealt_to_as_many_clients_as_there_are_records(emulate):
    ready = emulate("1", "--records", "10")
    assert ready.json["owners"] == []
    assert "--by" not in ready.json["command"]
