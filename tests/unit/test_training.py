"""Training by rounds: the step of a round, when training stops, its state, and the plan of a run."""

from dataclasses import replace

import numpy as np
import pytest

from tern import wire
from ternhost.learn.models import training
from ternhost.learn.models.training import Trainer, TrainingPlan
from ternhost.learn.parameters import LARGEST_WEIGHT, quantise


def settings(**changes):
    return replace(
        TrainingPlan(wire.LOGISTIC, 3, rounds=10, expected=100, learning_rate=0.5), **changes
    )


# One step


def test_a_step_descends_the_gradient_in_proportion_to_reports():
    trainer = Trainer(settings(regularisation=0.0))
    trainer.update([0.5, -0.5, np.nan], [100, 50, 0])
    assert trainer.weights.tolist() == [-0.25, 0.125, 0]
    assert trainer.model.tolist() == pytest.approx([-0.25, 0.125, 0])
    assert (trainer.round, trainer.stopped) == (1, None)


# Stopping


def test_training_stops_after_the_last_round():
    """A training of three rounds stops after three updates. A further round, ended or failed,
    raises an error and moves no weight.
    """
    trainer = Trainer(settings(rounds=3))
    for _ in range(3):
        assert trainer.stopped is None
        trainer.update([1, 1, 1], 100)
    assert trainer.stopped == training.ROUNDS

    before = trainer.weights.tolist()
    for end_round in (lambda: trainer.update([1, 1, 1], 100), trainer.fail):
        with pytest.raises(ValueError, match=r"training has stopped \(rounds\)"):
            end_round()
    assert (trainer.round, trainer.weights.tolist()) == (3, before)


def test_training_stops_when_the_weights_no_longer_move():
    """Training has converged once two updates in succession (patience) hardly move the weights. One
    small update does not suffice, and a large one begins the count anew.
    """
    trainer = Trainer(settings(patience=2))
    # Gradients, each the mean of 100 reports.
    trainer.update([1e-5, 0, 0], 100)
    trainer.update([1, 0, 0], 100)
    trainer.update([1e-5, 0, 0], 100)
    assert trainer.stopped is None
    trainer.update([-1e-5, 0, 0], 100)
    assert trainer.stopped == training.CONVERGED


def test_training_stops_after_a_round_that_moves_the_model_by_no_more_than_the_tolerance():
    trainer = Trainer(settings(tolerance=0.1, regularisation=0.0))
    trainer.update([0.5, 0, 0], 100)  # moves it by 0.25, at the learning rate of 0.5
    assert trainer.stopped is None
    trainer.update([0.1, -0.1, 0], 100)
    assert (trainer.stopped, trainer.round) == (training.CLOSE, 2)


def test_the_tolerance_is_about_the_model_which_averages_the_weights():
    """The second weights count 4 / 5. So the model moves by 4 / 5 of what the weights do."""
    trainer = Trainer(settings(tolerance=0.1, regularisation=0.0))
    trainer.update([0.5, 0, 0], 100)
    trainer.update([0.24, 0, 0], 100)  # 0.12 of the weights, 0.096 of the model
    assert trainer.stopped == training.CLOSE


def test_a_round_without_a_report_is_not_close():
    trainer = Trainer(settings(tolerance=1.0))
    trainer.fail()
    assert trainer.stopped is None


def test_without_a_tolerance_a_model_that_stays_ends_no_run():
    trainer = Trainer(settings(patience=None, regularisation=0.0))
    for _ in range(9):
        trainer.update([0, 0, 0], 100)
    assert trainer.stopped is None


def test_a_training_that_goes_on_from_its_state_stops_at_the_same_tolerance():
    plan = settings(tolerance=0.1, regularisation=0.0)
    before = Trainer(plan)
    before.update([0.5, 0, 0], 100)
    after = Trainer(plan)
    after.restore(before.state())
    after.update([0.1, -0.1, 0], 100)
    assert after.stopped == training.CLOSE


def test_a_training_that_was_close_does_not_go_on_with_more_rounds():
    before = Trainer(settings(tolerance=1.0))
    before.update([0.5, 0, 0], 100)
    after = Trainer(settings(tolerance=1.0, rounds=20))
    after.restore(before.state())
    assert after.stopped == training.CLOSE


def test_training_stops_after_consecutive_failures():
    """A round fails if too few devices answer. Two failures in succession (failures=2) end the
    training; one before and one after a round that succeeds do not.
    """
    trainer = Trainer(settings(failures=2, regularisation=0.0))
    trainer.fail()
    trainer.update([1, 0, 0], 100)
    trainer.fail()
    assert trainer.stopped is None
    trainer.fail()
    assert trainer.stopped == training.QUORUM
    assert trainer.round == 4
    assert trainer.weights.tolist() == [-0.5, 0, 0], "moved once, by the learning rate of 0.5"


# Parameters of a question


def test_weights_of_any_size_fit_with_full_precision():
    """Devices get weights as 16-bit integers (mantissas) with one common exponent. For weights from
    1e-9 to 100, the exponent is such that the integers neither overflow nor lose digits.
    """
    rng = np.random.default_rng(1)
    for size in 10.0 ** rng.uniform(-9, 2, 2000):
        parameters = quantise(rng.uniform(-size, size, 5))
        largest = max(abs(m) for m in parameters.mantissas)
        assert largest <= 32767
        assert -30 <= parameters.exponent <= -12
        # The largest mantissa uses at least half the range, unless the exponent is the smallest.
        assert largest >= 16383 or parameters.exponent == -30
        assert np.abs(parameters.values).max() <= LARGEST_WEIGHT
