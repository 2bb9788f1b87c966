"""Emulated boards report the same gradients as their simulated twins, of every model and range; and
runs learn.
"""

import numpy as np
import pytest
import rig
from simulating import ask

from tern import wire
from tern.fixed import ONE
from ternhost import datasets, vectorised
from ternhost.count.questions import Question
from ternhost.datasets import Holdings
from ternhost.learn.schedule import Terms
from ternhost.privacy.accounting import Policy
from ternhost.privacy.mechanisms import design
from ternhost.reach import fleet
from ternhost.reach.ports.driver import BoardsDriver
from ternhost.reach.simulated.driver import SimulatedDriver
from ternhost.store.store import Store

CLIENTS = 60
CERTAIN = design("duchi", 20).card  # never wrong at -1 and 1
CLASSES, SOFTMAX_D = 3, 4
MODULES = ("local", "softmax")
NARROW, D = (1, 2, 3, 12), 6


def reports_of(tmp_path, kind, row, questions, more=()):
    """For each (question, its gradient) of `questions`, ask boards and then their twin; yield
    (certain, reports).

    certain: the coordinates whose gradient reaches an end of its range. reports: how often each
    coordinate was reported. All clients hold the record `row`, so that a coordinate has one true
    sign. Asserts that certain symbols are right.
    """
    rows = np.tile(row, (CLIENTS, 1))
    path, directories = rig.provision(
        tmp_path, rows, Policy(20_000_000, 900_000_000), int(kind[-1])
    )
    with Store(path) as store:
        boards = fleet.parse(kind).boards(directories, more)
        with BoardsDriver(store, boards, Terms()) as driver:
            twin = SimulatedDriver(Holdings(rows, np.arange(CLIENTS)))
            for number, (question, gradient) in enumerate(questions, 1):
                certain = np.abs(gradient) == ONE
                for answering in (driver, twin):
                    (cohort,) = ask(answering, [(question, answering.devices)], number).cohorts
                    reports = cohort.counts.sum(axis=1)
                    assert reports.sum() == CLIENTS
                    right = np.where(gradient > 0, reports, 0)
                    assert np.array_equal(cohort.counts[certain, 1], right[certain])
                    yield certain, reports


def cases(*kinds):
    """The first kind with the values 0 to 2, the second with 0; the others with --exhaustive only."""
    every = [(kind, value) for kind in kinds for value in range(3)]
    return [*every[:4], *(pytest.param(*case, marks=pytest.mark.exhaustive) for case in every[4:])]


KINDS = cases("emulated:2", "m33-emulated:1", "pico-emulated:1")
# One test on another machine is enough: its softmax gradients are those of
# tests/device/test_gradient.py.
KINDS_OF_CLASSES = [*KINDS[:3], pytest.param(*KINDS[3], marks=pytest.mark.exhaustive), *KINDS[4:]]


@pytest.mark.parametrize(("kind", "label"), KINDS_OF_CLASSES)
def test_boards_and_their_twin_report_the_same_gradients_of_classes(tmp_path, kind, label):
    rng = np.random.default_rng(label)
    row = np.append(rng.integers(-16384, 16385, SOFTMAX_D), label).astype(np.int16)
    questions = []
    for _ in range(2):
        weights = rng.integers(-9000, 9000, (CLASSES, SOFTMAX_D))
        flat = weights.reshape(-1).tolist()
        question = Question(wire.SOFTMAX_GRADIENT, flat, -12, CERTAIN, 1, classes=CLASSES, range=12)
        questions.append(
            (question, vectorised.softmax_gradients(weights, -12, row[None], range_=12)[0])
        )
    for certain, reports in reports_of(tmp_path, kind, row, questions, ("softmax",)):
        assert certain.sum() > CLASSES * SOFTMAX_D / 2
        assert np.count_nonzero(reports) > CLASSES * SOFTMAX_D / 2


@pytest.mark.parametrize(("kind", "label"), KINDS_OF_CLASSES)
def test_boards_and_their_twin_train_alike_on_classes(tmp_path, kind, label):
    rng = np.random.default_rng(label)
    row = np.append(rng.integers(-16384, 16385, SOFTMAX_D), label).astype(np.int16)
    questions = []
    for epochs, tau in ((1, 1), (3, 1 << 19)):
        weights = rng.integers(-900, 900, (CLASSES, SOFTMAX_D))
        values = wire.LOCAL_SOFTMAX, weights.reshape(-1).tolist(), -12, CERTAIN, 1
        question = Question(*values, local=(epochs, 0, tau), classes=CLASSES)
        record = row[None, None]
        moved = vectorised.train_locally(wire.SOFTMAX_GRADIENT, weights, -12, record, epochs, 0, 0)
        questions.append((question, vectorised.shares(moved, np.array([tau]))[0]))
    certain = [
        int(certain.sum()) for certain, _ in reports_of(tmp_path, kind, row, questions, MODULES)
    ]
    assert certain[0] == CLASSES * SOFTMAX_D > certain[2] > 0


@pytest.mark.parametrize(("kind", "index"), KINDS)
def test_boards_and_their_twin_scale_gradients_alike(tmp_path, kind, index):
    """The features differ by factors of 2, so that each range has another set of certain symbols."""
    model = (wire.LINEAR, wire.LOGISTIC, wire.SVM)[index]
    rng = np.random.default_rng(model)
    row = np.append([ONE >> j for j in range(D)], ONE).astype(np.int16)
    row[:D] *= rng.choice([-1, 1], D).astype(np.int16)
    questions = []
    for range_ in NARROW:
        weights = rng.integers(-300, 300, D)
        question = Question(model, weights.tolist(), -14, CERTAIN, 1, range=range_)
        questions.append(
            (question, vectorised.gradients(model, weights, -14, row[None], range_=range_)[0])
        )
    reached = [int(certain.sum()) for certain, _ in reports_of(tmp_path, kind, row, questions)][::2]
    assert reached == sorted(reached)
    assert reached[0] < reached[-1] == D


@pytest.mark.slow
def test_a_run_on_boards_learns_the_classes(here):
    data = datasets.load("digits", classes=True)
    options = {"dataset": "digits", "model": "softmax", "group": 100, "epsilon": "20", "k": 4}
    result = rig.finish(fleet="emulated:2", reports=1000, **options)
    assert (result["reports"], result["d"], result["k"]) == (1000, 10 * data.dimension, 4)
    assert result["labels"] == [str(digit) for digit in range(10)]
    assert (
        result["accuracy"] > result["accuracy_baseline"] + 0.1
    )  # 0.34 to 0.54 on simulated clients
    assert result["accuracy_optimum"] > 0.95


def test_a_run_on_boards_narrows_its_range(here):
    options = {"dataset": "synthetic-linear", "model": "linear", "epsilon": "8", "k": 1}
    result = rig.finish(fleet="emulated:2", reports=400, group=50, **options)
    taus = [entry["tau"] for entry in result["history"]]
    assert taus[0] == 0.5  # by priors, at this number of reports
    assert min(taus) < 0.5
    assert result["taus"] == {f"{tau:g}": taus.count(tau) for tau in taus}
    assert result["refusals"] == result["missing"] == 0
