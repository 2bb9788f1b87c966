"""Training by rounds: one optimiser step in each round, and when to stop.

Source: Zhao et al., IEEE IoT J. 8, 2021, Algorithm 1. It stops when two successive models are close
enough to each other, or when no client is left: see `TrainingPlan.tolerance` and `rounds`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tern.wire import MAX_DIMENSION, MAX_VALUES, SOFTMAX_GRADIENT
from ternhost.errors import UsageError
from ternhost.learn.models.optimisers import OPTIMISERS, Noise, Optimiser
from ternhost.learn.parameters import MODELS, Floats, Parameters, quantise, reading_state
from ternhost.options import require

# Why a run stopped.
ROUNDS = "rounds"  # all planned rounds are done
CONVERGED = "converged"  # the parameters no longer move
CLOSE = "close"  # the last round moved the model by no more than the user's tolerance
QUORUM = "quorum"  # too many rounds in a row without a report


@dataclass(frozen=True)
class TrainingPlan:
    """The plan of a run. Raises UsageError for one that no run can follow."""

    model: int
    dimension: int  # the number of weights, over all classes
    rounds: int | None  # None: no end
    expected: float  # reports of each coordinate in a full round
    learning_rate: float  # where devices report values on the whole of [-1, 1]
    regularisation: float = 1e-4
    tolerance: float = 0.0  # a round that moves no weight by more ends the run; 0: none does
    least_gradient: float = 1e-4  # a gradient below this in every coordinate counts as none
    patience: int | None = 5  # rounds without a gradient that end the run
    failures: int | None = 3  # rounds in a row without a report that end the run
    optimiser: str = "averaging"
    noise: Noise | None = None  # from which the learning rate follows; None: it was named

    def __post_init__(self) -> None:
        """Raise UsageError for settings that no run can follow."""
        require(self.model in MODELS.values(), "model", f"one of {MODELS}", self.model)
        most_weights = MAX_DIMENSION
        if self.model == SOFTMAX_GRADIENT:
            most_weights = MAX_VALUES
        if not 1 <= self.dimension <= most_weights:
            raise UsageError(
                f"devices compute models of 1 to {most_weights:,} weights, not of {self.dimension:,}"
            )
        require(self.rounds is None or self.rounds >= 1, "rounds", "1 or more", self.rounds)
        if not 0 < self.expected < math.inf:
            raise UsageError(
                f"a round must bring more than 0 reports of a coordinate, not {self.expected:g}"
            )
        in_order = 0 < self.learning_rate < math.inf
        require(in_order, "rate", "above 0", self.learning_rate)
        in_order = 0 <= self.regularisation < math.inf
        require(in_order, "regularisation", "0 or more", self.regularisation)
        in_order = 0 <= self.tolerance < math.inf
        require(in_order, "tolerance", "0 or more", self.tolerance)

    def rate(self, tau: float, curvature_share: float = 1.0) -> float:
        """Return the learning rate of a round: the less noise, the larger it is.

        A rate that the user named is the same in all rounds.

        tau: devices clip their values to +-tau, to which the noise is proportional.
        curvature_share: the share of the loss's curvature that is left in spite of clipping.
        """
        if self.noise is None:
            return self.learning_rate
        noise = replace(
            self.noise, variance=self.noise.variance * tau**2, curvature_share=curvature_share
        )
        return OPTIMISERS.named(self.optimiser).automatic_rate(noise)


@dataclass(frozen=True)
class RoundReports:
    """The reports that a full round brings."""

    devices: float
    k: int  # coordinates in a report
    variance: float  # of a reported value whose input is 0


@dataclass(frozen=True)
class StepSettings:
    """How each round moves the model."""

    learning_rate: float | None = None  # None: it follows from the noise
    regularisation: float = 1e-4
    optimiser: str = "averaging"
    horizon: int | None = None  # rounds that the learning rate is chosen for; None: all
    classes: int = 1  # that share the coordinates
    tolerance: float = 0.0  # as of TrainingPlan


DEFAULT_SETTINGS = StepSettings()


def plan(
    model: int,
    dimension: int,
    reports: RoundReports,
    rounds: int | None,
    settings: StepSettings = DEFAULT_SETTINGS,
    *,
    gives_up: bool = True,
) -> TrainingPlan:
    """Plan the training of a model: its learning rate, and when the run stops.

    model: the number of the model whose gradients devices report (wire.md).
    dimension: the number of its weights, over all classes.
    reports: those of a full round.
    rounds: how many there are; None if the run has no end.
    settings: how a round moves the model.
    gives_up: whether the run stops early if there is no gradient, or if nobody reports. It does
        stop at the tolerance of the settings.
    Raises UsageError for a plan that no run can follow.
    """
    _check_reports(reports, dimension)
    expected = reports.devices * reports.k / dimension  # reports of each coordinate in a round
    noise = None
    learning_rate = settings.learning_rate
    if learning_rate is None:
        noise = Noise(
            model=model,
            dimension=dimension // settings.classes,
            rounds=settings.horizon or rounds or 1,
            variance=reports.variance / expected,
        )
        learning_rate = OPTIMISERS.named(settings.optimiser).automatic_rate(noise)

    # With noise, an estimate of 0 is no sign of a gradient of 0, so it does not end the run.
    least_gradient = TrainingPlan.least_gradient
    if reports.variance:
        least_gradient = 0.0
    patience, failures = None, None  # the run never gives up
    if rounds is not None and gives_up:
        patience, failures = TrainingPlan.patience, TrainingPlan.failures
    return TrainingPlan(
        model=model,
        dimension=dimension,
        rounds=rounds,
        expected=expected,
        # How a round moves the model.
        learning_rate=learning_rate,
        noise=noise,
        optimiser=settings.optimiser,
        regularisation=settings.regularisation,
        # When the run stops early.
        tolerance=settings.tolerance,
        least_gradient=least_gradient,
        patience=patience,
        failures=failures,
    )


def _check_reports(reports: RoundReports, dimension: int) -> None:
    """Raise UsageError for reports that cannot train a model of `dimension` weights."""
    require(1 <= reports.devices < math.inf, "group", "1 or more", reports.devices)
    must = f"1 to {dimension}, the number of coordinates"
    require(1 <= reports.k <= dimension, "k", must, reports.k)
    if not 0 <= reports.variance < math.inf:
        raise UsageError(
            f"a reported value must have a variance of 0 or more, not {reports.variance:g}"
        )


class Trainer:
    """The training of a model, round by round.

    Until `stopped` says why there are no more rounds, ask the devices `question()`, estimate the
    mean of their gradients, and `update()` the model with it.
    """

    def __init__(self, plan: TrainingPlan) -> None:
        """Begin at weights of 0, before the first round of the plan."""
        self.plan = plan
        self.optimiser: Optimiser = OPTIMISERS.named(plan.optimiser)(plan.dimension)
        self.round = 0  # rounds that have ended
        self.stopped: str | None = None
        self.rate = plan.learning_rate  # of the last round
        self._still = 0  # rounds in a row that hardly moved the model
        self._failed = 0  # rounds in a row without a report

    @property
    def weights(self) -> Floats:
        """The weights at which devices compute the next gradient (d)."""
        return self.optimiser.weights

    @property
    def model(self) -> Floats:
        """The model so far (d), quantised as devices would get it."""
        return quantise(self.optimiser.model).values

    def question(self) -> Parameters:
        """The parameters to send in the next round."""
        return quantise(self.optimiser.weights)

    def begin_at(self, weights: Floats) -> None:
        """Begin the training at these weights (d) instead of 0."""
        self.optimiser.begin_at(weights)

    def update(
        self,
        mean: npt.ArrayLike,
        reports: npt.ArrayLike,
        tau: float = 1,
        curvature_share: float = 1,
    ) -> None:
        """End a round: move the model along the mean gradient, and decide whether the run stops.

        Every report moves the model equally: half of the expected reports make half a step.

        mean: the mean gradient (d). Where nobody reported it may be anything, nan included.
        reports: the number of reports of each coordinate (d), or one number for all.
        tau: devices clipped their values to +-tau.
        curvature_share: the share of the loss's curvature that is left in spite of clipping.
        Raises ValueError for arrays of other shapes, a mean that is not finite, or a run that has
        stopped.
        """
        self._require_running()
        counts = np.asarray(reports, np.float64)
        gradient = np.asarray(mean, np.float64)
        self._require_shapes(gradient, counts)
        gradient = np.where(counts > 0, gradient, 0.0)
        if not np.isfinite(gradient).all():
            raise ValueError("the gradient is not finite")

        before = self.weights
        model_before = self.optimiser.model
        plan = self.plan
        share_of_step = counts / plan.expected
        direction = gradient * share_of_step + plan.regularisation * before
        self.rate = plan.rate(tau, curvature_share)
        self.optimiser.step(direction, self.rate)

        # The run may end early after several rounds that hardly moved the weights.
        moved = float(np.abs(self.weights - before).max())
        if moved < plan.least_gradient * self.rate:
            self._still += 1
        else:
            self._still = 0
        # Or after one that hardly moved the model. With noise, the weights move in every round; the
        # model, which is their average, moves less and less.
        model_moved = float(np.abs(self.optimiser.model - model_before).max())
        is_close = plan.tolerance > 0 and model_moved <= plan.tolerance
        self._failed = 0
        self._end_round(is_close)

    def _require_shapes(self, gradient: Floats, counts: Floats) -> None:
        """Raise ValueError unless there is a value for each weight (`counts` may be one number)."""
        has_shapes = gradient.shape == self.weights.shape and counts.shape in (gradient.shape, ())
        if not has_shapes:
            shapes = f"{gradient.shape} and {counts.shape}"
            raise ValueError(
                f"mean and reports need {self.plan.dimension} coordinates, not shapes {shapes}"
            )

    def fail(self) -> None:
        """End a round that brought no report: the model stays as it is.

        A round with even one report is an `update` instead, since each report is unbiased. Raises
        ValueError if the run has stopped.
        """
        self._require_running()
        self._failed += 1
        self._end_round(is_close=False)

    def _require_running(self) -> None:
        if self.stopped:
            raise ValueError(f"training has stopped ({self.stopped}): its learner must be done")

    def _end_round(self, is_close: bool) -> None:
        """Count the round, and set `stopped` to the reason if the run ends here.

        The plan says how many failed rounds in a row end a run (failures), how many that hardly
        moved the weights (patience), and how many rounds there are; None: that ends no run.

        is_close: whether the round has moved the model by no more than the plan's tolerance.
        """
        self.round += 1
        plan = self.plan
        nobody_reports = plan.failures is not None and self._failed >= plan.failures
        is_still = plan.patience is not None and self._still >= plan.patience
        has_no_more_rounds = plan.rounds is not None and self.round >= plan.rounds
        if nobody_reports:
            self.stopped = QUORUM
        elif is_still:
            self.stopped = CONVERGED
        elif is_close:
            self.stopped = CLOSE
        elif has_no_more_rounds:
            self.stopped = ROUNDS

    def state(self) -> dict[str, Any]:
        """Return all that changes during a run, as an object for JSON; `restore` reads it back."""
        return {
            "round": self.round,
            "stopped": self.stopped,
            "still": self._still,
            "failed": self._failed,
            "optimiser": self.optimiser.state(),
            "rate": self.rate,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a stored `state()`. Raises UsageError if it is not one of this model."""
        with reading_state("training"):
            self.optimiser.restore(state["optimiser"])
            self.round = int(state["round"])
            self.stopped = state["stopped"]
            self._still = int(state["still"])
            self._failed = int(state["failed"])
            self.rate = float(state["rate"])
        # The run may have been given more rounds since it stopped after the last one.
        has_more_rounds = self.plan.rounds is None or self.plan.rounds > self.round
        if self.stopped == ROUNDS and has_more_rounds:
            self.stopped = None
