"""Training: parameters as devices get them, the optimiser, its stop rules and its state, and how well it does."""

import json
from array import array
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from tern import card as cards
from tern import wire
from tern.gradient import Gradient
from ternhost import datasets, mechanisms
from ternhost.algorithms import training
from ternhost.algorithms.training import Settings, Trainer
from ternhost.datasets import CLASSIFICATION, REGRESSION, Dataset, held_out, to_fixed
from ternhost.errors import UsageError
from ternhost.mechanisms import certify

ONE = 16384
MODELS = list(training.MODELS.values())


def settings(**changes):
    return replace(Settings(wire.LOGISTIC, 3, rounds=10, expected=100, learning_rate=0.5), **changes)


class Devices:
    """What a fleet answers: k coordinates of each record's gradient, through the exact distribution of a card."""

    def __init__(self, mechanism, epsilon):
        self.card = cards.decode(mechanisms.design(mechanism, epsilon).card)
        self.steps = len(certify.knots(self.card)) - 1
        rows = [[float(p) for p in certify.at_knot(self.card, i)] for i in range(self.steps + 1)]
        self.cumulative = np.cumsum(rows, axis=1)[:, :-1]
        self.values = np.array([float(value) for value in certify.values(self.card)])
        self.variance = float(certify.moments(self.card).variance(Fraction(0)))

    def answer(self, model, features, labels, weights, k, rng):
        x, y = features / ONE, labels / ONE
        z = x @ weights
        if model == wire.LINEAR:
            residual = z - y
        elif model == wire.LOGISTIC:
            residual = -y / (1 + np.exp(y * z))
        else:
            residual = np.where(y * z < 1, -y, 0)
        chosen = np.argsort(rng.random(x.shape), axis=1)[:, :k]
        inputs = np.clip(np.take_along_axis(residual[:, None] * x, chosen, axis=1), -1, 1).ravel()
        at = (inputs + 1) * self.steps / 2
        knot = np.floor(at).astype(int)
        knot += rng.random(len(at)) < at - knot
        values = self.values[(rng.random(len(at))[:, None] > self.cumulative[knot]).sum(axis=1)]
        counts = np.bincount(chosen.ravel(), minlength=x.shape[1])
        with np.errstate(invalid="ignore"):
            return np.bincount(chosen.ravel(), values, x.shape[1]) / counts, counts


def train(dataset, devices, model, reports, group, seed, k=1):
    chosen = training.plan(
        model, dataset.dimension, reports=reports, group=group, k=k, variance=devices.variance
    )
    trainer = Trainer(chosen)
    rng = np.random.default_rng(seed)
    dealt = training.choose_groups(dataset, reports, group, seed)
    for positions in dealt:
        features, labels = dataset.features[positions], dataset.labels[positions]
        trainer.update(*devices.answer(model, features, labels, trainer.question().values, k, rng))
    assert trainer.stopped == training.ROUNDS
    return trainer, training.train_exactly(chosen, dataset, dealt)


@pytest.fixture(scope="module")
def flights():
    return datasets.flights()


def synthetic(task, n=20_000, d=8, seed=5):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, d))
    x[:, 0] = 1
    truth = rng.uniform(-0.5, 0.5, d)
    truth[0] /= 10
    z = x @ truth / np.abs(truth).sum()
    y = np.where(z > rng.logistic(0, 0.05, n), 1, -1) if task == CLASSIFICATION else z
    names = tuple(f"x{j}" for j in range(d))
    return Dataset("synthetic", task, names, to_fixed(x), to_fixed(y), held_out(n)), truth / np.abs(
        truth
    ).sum()


# Parameters


@pytest.mark.parametrize(
    ("weights", "exponent"),
    [
        ([0.0, 0.0], -30),
        ([8.0, -8.0], -12),
        ([1.0], -14),
        ([2.0**-16], -30),
        ([0.9999999], -14),
        ([0.99], -15),
    ],
)
def test_quantise_takes_the_finest_exponent_that_fits(weights, exponent):
    p = training.quantise(weights)
    assert p.exponent == exponent
    assert p.mantissas.typecode == "h"
    cut = np.clip(weights, -training.LARGEST_WEIGHT, training.LARGEST_WEIGHT)
    assert np.abs(p.values - cut).max() <= 2.0 ** (exponent - 1)


def test_quantise_any_size():
    rng = np.random.default_rng(1)
    for size in 10.0 ** rng.uniform(-9, 2, 2000):
        w = rng.uniform(-size, size, 5)
        p = training.quantise(w)
        largest = max(abs(m) for m in p.mantissas)
        assert largest <= 32767
        assert -30 <= p.exponent <= -12
        # Half the mantissas' range or more is in use, unless the exponent is at its end.
        assert largest >= 16383 or p.exponent == -30
        assert np.abs(p.values).max() <= training.LARGEST_WEIGHT


def test_quantise_refuses_nan():
    with pytest.raises(ValueError, match="finite"):
        training.quantise([0.0, np.nan])


# One step


def test_a_step_goes_down_the_gradient_and_weighs_by_reports():
    t = Trainer(settings(regularisation=0.0))
    t.update([0.5, -0.5, np.nan], [100, 50, 0])
    assert t.weights.tolist() == [-0.25, 0.125, 0]
    assert t.model.tolist() == pytest.approx([-0.25, 0.125, 0])
    assert (t.round, t.stopped) == (1, None)


def test_regularisation_pulls_to_zero():
    t = Trainer(settings(regularisation=0.1))
    t.weights[:] = 1
    t.update([0, 0, 0], 100)
    assert t.weights.tolist() == pytest.approx([0.95] * 3)


def test_weights_are_projected():
    t = Trainer(settings(learning_rate=1000.0))
    t.update([-1, 1, 0], 100)
    assert t.weights.tolist() == [training.LARGEST_WEIGHT, -training.LARGEST_WEIGHT, 0]
    assert list(t.question().mantissas) == [32767, -32767, 0]


def test_averaging_weighs_later_iterates_more():
    t = Trainer(settings(averaging=3.0, regularisation=0.0, learning_rate=1.0))
    iterates = []
    for step in range(6):
        t.update([-float(step), 0, 0], 100)
        iterates.append(t.weights[0])
    weight = np.ones(6)  # the recurrence, unrolled
    for i in range(6):
        share = 4 / (3 + i + 1)
        weight[:i] *= 1 - share
        weight[i] = share
    assert weight.sum() == pytest.approx(1)
    assert (np.diff(weight) > 0).all()
    assert t.average[0] == pytest.approx(weight @ iterates)


def test_a_gradient_of_another_size_or_not_finite_is_refused():
    t = Trainer(settings())
    for mean, reports in (
        ([0, 0], [1, 1]),
        ([0, 0, np.nan], [1, 1, 1]),
        ([0, 0, np.inf], 1),
        ([0, 0, 0], [1, 1]),
    ):
        with pytest.raises(ValueError, match=r"gradient|broadcast"):
            t.update(mean, reports)
    assert (t.round, t.weights.tolist()) == (0, [0, 0, 0])


# Stopping


def test_stops_when_the_rounds_are_used_up():
    t = Trainer(settings(rounds=3))
    for _ in range(3):
        assert t.stopped is None
        t.update([1, 1, 1], 100)
    assert t.stopped == training.ROUNDS
    with pytest.raises(ValueError, match="stopped"):
        t.update([1, 1, 1], 100)


def test_stops_when_nothing_moves():
    t = Trainer(settings(patience=2))
    t.update([1e-5, 0, 0], 100)
    t.update([1, 0, 0], 100)
    t.update([1e-5, 0, 0], 100)
    assert t.stopped is None
    t.update([-1e-5, 0, 0], 100)
    assert t.stopped == training.CONVERGED


def test_stops_after_failures_in_a_row():
    t = Trainer(settings(failures=2))
    t.fail()
    t.update([1, 0, 0], 100)
    t.fail()
    assert t.stopped is None
    t.fail()
    assert t.stopped == training.QUORUM
    assert (t.round, t.updates) == (4, 1)


# State


def test_a_resumed_run_is_the_same_run():
    rng = np.random.default_rng(2)
    steps = [(rng.normal(0, 1, 3), rng.integers(1, 100, 3)) for _ in range(10)]
    whole, part = Trainer(settings()), Trainer(settings())
    for i, step in enumerate(steps):
        whole.update(*step)
        part.update(*step)
        part = Trainer.restore(settings(), json.loads(json.dumps(part.state())))
        assert part.state() == whole.state(), i
    assert part.stopped == training.ROUNDS


@pytest.mark.parametrize("change", [{"weights": [0.0]}, {"average": "x"}, {"round": None}, "round"])
def test_a_bad_state_is_refused(change):
    state = Trainer(settings()).state()
    if isinstance(change, str):
        del state[change]
    else:
        state |= change
    with pytest.raises(UsageError, match="stored state"):
        Trainer.restore(settings(), state)


# Planning


def test_plan():
    s = training.plan(wire.LOGISTIC, 28, reports=20_000, group=1_500, k=2, variance=1.0)
    assert (s.rounds, s.expected) == (14, pytest.approx(1500 * 2 / 28))
    assert 0 < s.learning_rate < 4 / (0.25 * 28)
    assert training.plan(wire.SVM, 2, reports=9, group=9, k=1, variance=0, learning_rate=3).learning_rate == 3


@pytest.mark.parametrize(
    "change", [{"group": 0}, {"group": 101}, {"k": 0}, {"k": 29}, {"learning_rate": -1.0}]
)
def test_plans_that_make_no_sense(change):
    sizes = {"reports": 100, "group": 10, "k": 1, "variance": 1.0} | change
    with pytest.raises(UsageError):
        training.plan(wire.LOGISTIC, 28, **sizes)


def test_the_rate_falls_with_the_noise_and_does_not_overshoot():
    rates = [training.automatic_rate(wire.LOGISTIC, 28, 20, v) for v in (0, 1e-9, 0.01, 0.1, 1, 10)]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] == rates[1] == pytest.approx(16 / 28)
    # The same reports in other groups: the path is as long.
    one = training.plan(wire.LOGISTIC, 28, reports=20_000, group=2_000, k=1, variance=4.0)
    ten = training.plan(wire.LOGISTIC, 28, reports=20_000, group=200, k=1, variance=4.0)
    assert one.learning_rate * one.rounds == pytest.approx(ten.learning_rate * ten.rounds)


def test_groups_take_everyone_once():
    dealt = training.groups(range(100, 203), 10, seed=7)
    assert [len(g) for g in dealt] == [10] * 10 + [3]
    assert sorted(np.concatenate(dealt)) == list(range(100, 203))
    assert [g.tolist() for g in training.groups(range(100, 203), 10, seed=7)] == [g.tolist() for g in dealt]
    assert training.groups(range(100, 203), 10, seed=8)[0].tolist() != dealt[0].tolist()


def test_groups_take_no_held_out_record(flights):
    dealt = training.choose_groups(flights, 5000, 500, seed=3)
    taken = np.concatenate(dealt)
    assert len(set(taken.tolist())) == len(taken) == 5000
    assert not flights.held_out[taken].any()
    with pytest.raises(UsageError, match="294612 records") as caught:
        training.choose_groups(flights, 300_000, 500, seed=3)
    assert "294612" in caught.value.hint


# The gradient, the figures


@pytest.mark.parametrize("model", MODELS)
def test_exact_gradient_is_what_a_device_computes(model):
    dataset, _ = synthetic(REGRESSION if model == wire.LINEAR else CLASSIFICATION, n=200)
    rng = np.random.default_rng(3)
    parameters = training.quantise(rng.uniform(-4, 4, dataset.dimension))
    gradient = Gradient(dataset.dimension)
    out = array("h", bytes(2 * dataset.dimension))
    for i in range(200):
        gradient.reset()
        gradient.add(
            model, parameters.mantissas, parameters.exponent, array("h", dataset.records([i]).tobytes())
        )
        gradient.finish(out)
        want = training.exact_gradient(
            model, dataset.features[i : i + 1], dataset.labels[i : i + 1], parameters.values
        )
        assert np.abs(np.array(out) / ONE - want).max() <= 2**-9


def test_figures_by_hand():
    features = to_fixed([[1, 0.5], [1, -0.5], [1, 0.5], [1, -0.5]])
    labels = to_fixed([1, -1, -1, -1])
    marks = np.array([False, True, True, True])
    data = Dataset("four", CLASSIFICATION, ("constant", "x"), features, labels, marks)
    assert training.accuracy(data, np.array([0.0, 1.0])) == pytest.approx(2 / 3)
    assert training.majority(data) == training.baseline(data) == 0  # the one training record says 1
    assert training.squared_error(data, np.array([0.0, 1.0])) == pytest.approx((0.25 + 2.25 + 0.25) / 3)
    assert training.judge(data, np.array([0.0, 1.0])) == pytest.approx(2 / 3)


# How well it does


def test_twenty_thousand_flights_at_epsilon_two_with_every_seed(flights):
    devices = Devices("three-outputs", 2)
    reached = []
    for seed in range(20):
        private, exact = train(flights, devices, wire.LOGISTIC, 20_000, 1_000, seed)
        reached.append((training.accuracy(flights, private.model), training.accuracy(flights, exact.model)))
    assert training.majority(flights) == pytest.approx(0.763, abs=0.001)
    assert min(private for private, _ in reached) >= 0.89
    assert min(exact for _, exact in reached) >= 0.897


@pytest.mark.parametrize(("epsilon", "least"), [(1, 0.895), (2, 0.896)])
def test_all_flights_report_once(flights, epsilon, least):
    devices = Devices("three-outputs", epsilon)
    reports = len(flights.training)
    reached = [
        training.accuracy(flights, train(flights, devices, wire.LOGISTIC, reports, 5_000, seed)[0].model)
        for seed in range(5)
    ]
    assert np.mean(reached) >= least


@pytest.mark.parametrize(
    ("mechanism", "epsilon", "reports", "group", "k", "least"),
    [
        ("duchi", 1, 20_000, 1_000, 1, 0.88),
        ("pm-sub", 2, 20_000, 1_000, 1, 0.89),
        ("three-outputs", 0.5, 20_000, 1_000, 1, 0.88),
        ("three-outputs", 2, 20_000, 100, 1, 0.89),
        ("three-outputs", 2, 20_000, 20_000, 1, 0.89),
        ("three-outputs", 2, 2_000, 200, 1, 0.88),
        ("three-outputs", 1, 20_000, 1_000, 4, 0.89),  # each coordinate at 1: 4 altogether
    ],
)
def test_defaults_do_well_elsewhere_too(flights, mechanism, epsilon, reports, group, k, least):
    devices = Devices(mechanism, epsilon)
    for seed in range(3):
        private, _ = train(flights, devices, wire.LOGISTIC, reports, group, seed, k)
        assert training.accuracy(flights, private.model) >= least


@pytest.mark.parametrize("model", [wire.LOGISTIC, wire.SVM])
def test_synthetic_classification(model):
    dataset, truth = synthetic(CLASSIFICATION, n=60_000)
    best = training.accuracy(dataset, truth)
    private, exact = train(dataset, Devices("three-outputs", 2), model, 50_000, 2_500, seed=1)
    assert training.accuracy(dataset, exact.model) >= best - 0.02
    assert training.accuracy(dataset, private.model) >= best - 0.03


def test_synthetic_regression():
    dataset, _ = synthetic(REGRESSION, n=60_000)
    spread = float(np.var(dataset.labels[dataset.test] / ONE))
    private, exact = train(dataset, Devices("three-outputs", 2), wire.LINEAR, 50_000, 2_500, seed=1)
    assert training.judge(dataset, exact.model) <= 0.1 * spread
    assert training.judge(dataset, private.model) <= 0.2 * spread
    assert training.baseline(dataset) == pytest.approx(spread, rel=0.01)
