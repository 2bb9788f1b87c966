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
