"""Records whose labels are all the same, or that are too few, are refused before a run begins."""

from pathlib import Path

import numpy as np
import pytest

from ternhost.errors import USAGE

pytestmark = pytest.mark.usefixtures("here")
COMMANDS = [
    "train fedsgd --reports 100 --fleet simulated:100",
    "train fedavg --reports 100 --fleet simulated:100",
    "train direct --public 50 --fleet simulated:50",
    "train fedsum --records 5 --fleet simulated:10",
    "infer --epsilon 4 --fleet simulated:20",
]


def table_with(*labels):
    """Write mine.csv: two features of 200 records, which have these labels in turn."""
    features = np.random.default_rng(1).uniform(-1, 1, (200, 2))
    lines = ["a,b,label"]
    for number, (first, second) in enumerate(features):
        lines.append(f"{first:.4f},{second:.4f},{labels[number % len(labels)]}")
    Path("mine.csv").write_text("\n".join(lines))


@pytest.mark.parametrize("label", ["1", "-1", "yes"])
@pytest.mark.parametrize("command", COMMANDS)
def test_records_of_one_class_teach_nothing(command, label, tern):
    table_with(label)
    tern(*command.split(), "--data", "mine.csv", "--no-report", code=USAGE)
    assert not Path("runs").exists()


@pytest.mark.parametrize("share", [".999", ".001"])
@pytest.mark.parametrize("command", COMMANDS)
def test_no_records_to_learn_from_or_to_judge_with_are_refused(command, share, tern):
    table_with("1", "-1")
    words = ["--data", "mine.csv", "--held-out", share, "--no-report"]
    tern(*command.split(), *words, code=USAGE)
    assert not Path("runs").exists()


def test_a_table_without_enough_records_for_the_boards_is_refused(tern):
    table_with("1", "-1")
    words = "train fedsum --records 5 --fleet simulated:1000 --data mine.csv"
    failed = tern(*words.split(), code=USAGE)
    assert "--records 0" not in failed.err
