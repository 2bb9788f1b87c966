"""Training by rounds: a step of the optimiser a round, when to stop, its state, and the plan of a run."""

from dataclasses import replace

import numpy as np
import pytest

from tern import wire
from ternhost.errors import UsageError
from ternhost.learn import training
from ternhost.learn.optimisers import OPTIMISERS
from ternhost.learn.parameters import LARGEST_WEIGHT, quantise
from ternhost.learn.training import Trainer, TrainingPlan


def settings(**changes):
    return replace(TrainingPlan(wire.LOGISTIC, 3, rounds=10, expected=100, learning_rate=0.5), **changes)


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
    assert t.weights.tolist() == [LARGEST_WEIGHT, -LARGEST_WEIGHT, 0]
    assert list(t.question().mantissas) == [32767, -32767, 0]


@pytest.mark.parametrize(
    ("mean", "reports"),
    [
        ([0, 0], [1, 1]), ([0], [1, 1, 1]), (0.0, [1, 1, 1]), ([[0, 0, 0]], 1), ([0, 0, 0], [1, 1]),
        ([0, 0, 0], [1]), ([0, 0, 0], [[1, 1, 1]]),
    ],
)  # fmt: skip
def test_a_gradient_of_another_shape_is_refused(mean, reports):
    t = Trainer(settings())
    with pytest.raises(ValueError, match="mean and reports need 3 coordinates, not shapes"):
        t.update(mean, reports)
    assert (t.round, t.weights.tolist()) == (0, [0, 0, 0])


def test_a_gradient_that_is_not_finite_is_refused():
    t = Trainer(settings())
    for wrong in (np.nan, np.inf):
        with pytest.raises(ValueError, match="gradient"):
            t.update([0, 0, wrong], 1)
    assert (t.round, t.weights.tolist()) == (0, [0, 0, 0])


# Stopping


def test_stops_when_the_rounds_are_used_up():
    t = Trainer(settings(rounds=3))
    for _ in range(3):
        assert t.stopped is None
        t.update([1, 1, 1], 100)
    assert t.stopped == training.ROUNDS
    before = t.weights.tolist()
    for end_round in (lambda: t.update([1, 1, 1], 100), t.fail):
        with pytest.raises(ValueError, match=r"training has stopped \(rounds\)"):
            end_round()
    assert (t.round, t.weights.tolist()) == (3, before)


def test_stops_when_nothing_moves():
    t = Trainer(settings(patience=2))
    t.update([1e-5, 0, 0], 100)
    t.update([1, 0, 0], 100)
    t.update([1e-5, 0, 0], 100)
    assert t.stopped is None
    t.update([-1e-5, 0, 0], 100)
    assert t.stopped == training.CONVERGED


def test_stops_after_failures_in_a_row():
    t = Trainer(settings(failures=2, regularisation=0.0))
    t.fail()
    t.update([1, 0, 0], 100)
    t.fail()
    assert t.stopped is None
    t.fail()
    assert t.stopped == training.QUORUM
    assert (t.round, t.weights.tolist()) == (4, [-0.5, 0, 0])  # of the one update


def test_a_run_without_an_end_does_not_stop():
    chosen = training.plan(wire.LOGISTIC, 3, rounds=None, group=10, k=1, variance=1.0, horizon=50)
    t = Trainer(chosen)
    for _ in range(20):
        t.fail()
        t.update([0, 0, 0], 1)
    assert t.stopped is None
    fifty = training.plan(wire.LOGISTIC, 3, rounds=50, group=10, k=1, variance=1.0)
    assert chosen.learning_rate == fifty.learning_rate


def test_a_model_that_is_mostly_noise_moves_with_caution():
    own = training.plan(wire.LOGISTIC, 60, rounds=100, group=1000, k=1, variance=4.0)
    rng = np.random.default_rng(1)
    rates = {}
    for name, gradient in (("noise", 0.0), ("signal", -0.2)):
        t = Trainer(own)
        for _ in range(99):
            t.update(gradient + rng.normal(0, (4.0 / own.expected) ** 0.5, 60), own.expected)
        rates[name] = t.rate
    assert rates["signal"] == own.learning_rate
    assert rates["noise"] < 0.9 * own.learning_rate


# State


@pytest.mark.parametrize("change", [{"optimiser": {}}, {"optimiser": "x"}, {"round": None}, "round"])
def test_a_bad_state_is_refused(change):
    state = Trainer(settings()).state()
    if isinstance(change, str):
        del state[change]
    else:
        state |= change
    with pytest.raises(UsageError, match="stored state"):
        Trainer(settings()).restore(state)


@pytest.mark.parametrize("change", [{"weights": [0.0]}, {"average": "x"}, {"steps": None}, "steps"])
@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_a_bad_state_of_an_optimiser_is_refused(optimiser, change):
    own = settings(optimiser=optimiser)
    state = Trainer(own).state()
    if isinstance(change, str):
        del state["optimiser"][change]
    else:
        state["optimiser"] |= change
    with pytest.raises(UsageError, match="stored state"):
        Trainer(own).restore(state)


# Planning


def test_plan():
    s = training.plan(wire.LOGISTIC, 28, rounds=14, group=1_500, k=2, variance=1.0)
    assert (s.rounds, s.expected) == (14, pytest.approx(1500 * 2 / 28))
    assert 0 < s.rate(1.0) == s.learning_rate <= 4 / (0.25 * 28)
    assert s.rate(0.5) == min(2 * s.learning_rate, 4 / (0.25 * 28))
    assert training.plan(wire.SVM, 2, rounds=1, group=9, k=1, variance=0, learning_rate=3).learning_rate == 3


@pytest.mark.parametrize(
    "change",
    [
        {"learning_rate": -1.0}, {"learning_rate": 0.0}, {"learning_rate": np.nan}, {"regularisation": -1.0},
        {"optimiser": "none"}, {"rounds": 0}, {"group": 0}, {"group": np.nan}, {"group": np.inf}, {"k": 0},
        {"k": 29}, {"variance": -1.0}, {"variance": np.nan},
    ],
)  # fmt: skip
def test_plans_that_make_no_sense(change):
    sizes = {"rounds": 10, "group": 10, "k": 1, "variance": 1.0} | change
    with pytest.raises(UsageError):
        training.plan(wire.LOGISTIC, 28, **sizes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": 9}, "--model must be one of .*, not 9"),
        ({"dimension": 0}, f"1 to {wire.MAX_DIMENSION} weights, not of 0"),
        ({"dimension": wire.MAX_DIMENSION + 1}, f"1 to {wire.MAX_DIMENSION} weights, not of 129"),
        (
            {"model": wire.SOFTMAX_GRADIENT, "dimension": wire.MAX_VALUES + 1},
            "1 to 1,024 weights, not of 1,025",
        ),
        ({"rounds": 0}, "--rounds must be 1 or more, not 0"),
        ({"expected": 0.0}, "more than 0 reports of a coordinate, not 0"),
        ({"expected": np.nan}, "more than 0 reports of a coordinate, not nan"),
    ],
)
def test_plans_of_a_learner_that_make_no_sense(change, message):
    with pytest.raises(UsageError, match=message):
        settings(**change)
    settings(model=wire.SOFTMAX_GRADIENT, dimension=wire.MAX_VALUES)


def test_without_noise_a_still_model_has_converged_and_with_noise_it_has_not():
    assert training.plan(wire.LOGISTIC, 2, rounds=9, group=1, k=1, variance=0).tolerance > 0
    assert training.plan(wire.LOGISTIC, 2, rounds=9, group=1, k=1, variance=1).tolerance == 0


# Parameters of a question


@pytest.mark.parametrize(
    ("weights", "exponent"),
    [
        ([0.0, 0.0], -30), ([8.0, -8.0], -12), ([1.0], -14), ([2.0**-16], -30), ([0.9999999], -14),
        ([0.99], -15),
    ],
)  # fmt: skip
def test_the_finest_exponent_that_fits(weights, exponent):
    p = quantise(weights)
    assert p.exponent == exponent
    assert p.mantissas.typecode == "h"
    cut = np.clip(weights, -LARGEST_WEIGHT, LARGEST_WEIGHT)
    assert np.abs(p.values - cut).max() <= 2.0 ** (exponent - 1)


def test_any_size():
    rng = np.random.default_rng(1)
    for size in 10.0 ** rng.uniform(-9, 2, 2000):
        w = rng.uniform(-size, size, 5)
        p = quantise(w)
        largest = max(abs(m) for m in p.mantissas)
        assert largest <= 32767
        assert -30 <= p.exponent <= -12
        # Half the mantissas' range or more is in use, unless the exponent is at its end.
        assert largest >= 16383 or p.exponent == -30
        assert np.abs(p.values).max() <= LARGEST_WEIGHT


def test_nan_is_refused():
    with pytest.raises(ValueError, match="finite"):
        quantise([0.0, np.nan])
