"""Softmax regression on emulated boards: each gives the gradient that its simulated twin gives, and a run learns."""

import numpy as np
import pytest
import rig
from simulating import ask

from tern import wire
from ternhost import datasets, vectorised
from ternhost.count.questions import Question
from ternhost.datasets import Holdings
from ternhost.learn.schedule import Terms
from ternhost.privacy.accounting import Policy
from ternhost.privacy.mechanisms import design
from ternhost.provision.boards import board_directories, provision_fleet
from ternhost.reach import fleet
from ternhost.reach.ports.driver import BoardsDriver
from ternhost.reach.simulated.driver import SimulatedDriver
from ternhost.store.store import Store

CLIENTS, CLASSES, D = 60, 3, 4
CERTAIN = design("duchi", 20).card  # never wrong at -1 and 1, where range 12 puts most gradients


@pytest.mark.parametrize(
    ("label", "kind"),
    [
        (0, "emulated:2"),
        (1, "emulated:2"),
        (2, "m33-emulated:1"),
        pytest.param(2, "pico-emulated:1", marks=pytest.mark.exhaustive),
    ],
)
def test_boards_and_their_twin_tell_the_same(tmp_path, label, kind):
    """All clients hold one record, so that a coordinate has one true sign, whoever happens to report it."""
    rng = np.random.default_rng(label)
    row = np.append(rng.integers(-16384, 16385, D), label).astype(np.int16)
    rows = np.tile(row, (CLIENTS, 1))
    directories = board_directories(tmp_path, int(kind[-1]))
    with Store(tmp_path / "store.sqlite") as store:
        provision_fleet(store, directories, rows, Policy(20_000_000, 900_000_000))
        boards = fleet.parse(kind).boards(directories, ("softmax",))
        with BoardsDriver(store, boards, Terms()) as driver:
            for number in (1, 2):
                weights = rng.integers(-9000, 9000, (CLASSES, D))
                question = Question(
                    wire.SOFTMAX_GRADIENT,
                    weights.reshape(-1).tolist(),
                    -12,
                    CERTAIN,
                    1,
                    classes=CLASSES,
                    range=12,
                )
                (gradient,) = vectorised.softmax_gradients(weights, -12, rows[:1], range_=12)
                certain = np.abs(gradient) == 16384
                assert certain.sum() > CLASSES * D / 2
                twin = SimulatedDriver(Holdings(rows, np.arange(CLIENTS)))
                for one in (driver, twin):
                    (cohort,) = ask(one, [(question, one.devices)], number).cohorts
                    reports = cohort.counts.sum(axis=1)
                    assert reports.sum() == CLIENTS
                    assert np.count_nonzero(reports) > CLASSES * D / 2
                    assert np.array_equal(
                        cohort.counts[certain, 1], np.where(gradient > 0, reports, 0)[certain]
                    )


@pytest.mark.slow
def test_a_run_on_boards_learns_the_classes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = datasets.load("digits", classes=True)
    options = {
        "dataset": "digits",
        "model": "softmax",
        "reports": 1600,
        "group": 100,
        "epsilon": "20",
        "k": 4,
    }
    result = rig.finish(fleet="emulated:2", **options)
    assert (result["reports"], result["d"], result["k"]) == (1600, 10 * data.dimension, 4)
    assert result["labels"] == [str(digit) for digit in range(10)]
    assert result["accuracy"] > result["accuracy_baseline"] + 0.1  # 0.34 to 0.54 on simulated clients
    assert result["accuracy_optimum"] > 0.95
