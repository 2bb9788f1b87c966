"""Training by rounds: one optimiser step in each round, and when to stop.

Source: Zhao et al., IEEE IoT J. 8, 2021, Algorithm 1.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tern.wire import MAX_DIMENSION, MAX_VALUES, SOFTMAX_GRADIENT
from ternhost.errors import UsageError
from ternhost.learn.optimisers import OPTIMISERS, Noise, Optimiser
from ternhost.learn.parameters import MODELS, Floats, Parameters, quantise, reading_state
from ternhost.options import require

# Why a run stopped.
ROUNDS = "rounds"  # all planned rounds are done
CONVERGED = "converged"  # the parameters no longer move
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
    tolerance: float = 1e-4  # a gradient below this in every coordinate counts as none
    patience: int | None = 5  # rounds without a gradient that end the run
    failures: int | None = 3  # rounds in a row without a report that end the run
    optimiser: str = "averaging"
    noise: Noise | None = None  # from which the learning rate follows; None: it was named

    def __post_init__(self) -> None:
        """Check each setting. Raises UsageError for one that no run can follow."""
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
        require(0 < self.learning_rate < math.inf, "learning_rate", "above 0", self.learning_rate)
        require(
            0 <= self.regularisation < math.inf, "regularisation", "0 or more", self.regularisation
        )

    def rate(self, tau: float, kept: float = 1.0) -> float:
        """Return the learning rate of a round: the less noise, the larger it is.

        tau: the size to which devices clip their values. kept: the share of the loss's curvature
        that clipping leaves, as in `Noise`. A rate that the user named is the same in all rounds.
        """
        if self.noise is None:
            return self.learning_rate
        noise = replace(self.noise, variance=self.noise.variance * tau**2, kept=kept)
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
    """Plan a run: how the model moves in each round, and when the run stops.

    model: the number of the model whose gradients devices report (wire.md). dimension: the number
    of its weights, over all classes. reports: of a full round. rounds: None if the run has no end.
    gives_up: whether the run stops early if the model no longer moves, or if nobody reports. Raises
    UsageError for a plan that no run can follow.
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

    # With noise, an estimate of 0 is no sign of a gradient of 0.
    tolerance = TrainingPlan.tolerance
    if reports.variance:
        tolerance = 0.0
    patience, failures = None, None
    if rounds is not None and gives_up:
        patience, failures = TrainingPlan.patience, TrainingPlan.failures
    return TrainingPlan(
        model=model,
        dimension=dimension,
        rounds=rounds,
        expected=expected,
        learning_rate=learning_rate,
        regularisation=settings.regularisation,
        tolerance=tolerance,
        patience=patience,
        failures=failures,
        optimiser=settings.optimiser,
        noise=noise,
    )


def _check_reports(reports: RoundReports, dimension: int) -> None:
    """Raise UsageError for reports that cannot teach a model of so many weights."""
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
        """Begin at these weights (d) instead of 0."""
        start = weights.tolist()
        self.optimiser.restore({**self.optimiser.state(), "weights": start, "average": start})

    def update(
        self, mean: npt.ArrayLike, reports: npt.ArrayLike, tau: float = 1, kept: float = 1
    ) -> None:
        """End a round: move the model along the mean gradient, and decide whether the run stops.

        mean: the mean gradient (d). reports: the number of reports of each coordinate (d, or one
        number for all). Every report moves the model equally: half of the expected reports make
        half a step. Where nobody reported, the mean may be anything, nan included. tau, kept: as in
        `TrainingPlan.rate`. Raises ValueError for arrays of other shapes, a mean that is not
        finite, or a run that has stopped.
        """
        self._require_running()
        counts = np.asarray(reports, np.float64)
        gradient = np.asarray(mean, np.float64)
        if gradient.shape != self.weights.shape or counts.shape not in (gradient.shape, ()):
            shapes = f"{gradient.shape} and {counts.shape}"
            raise ValueError(
                f"mean and reports need {self.plan.dimension} coordinates, not shapes {shapes}"
            )
        gradient = np.where(counts > 0, gradient, 0.0)
        if not np.isfinite(gradient).all():
            raise ValueError("the gradient is not finite")

        before = self.weights
        plan = self.plan
        direction = gradient * (counts / plan.expected) + plan.regularisation * before
        self.rate = plan.rate(tau, kept)
        self.optimiser.step(direction, self.rate)

        moved = float(np.abs(self.weights - before).max())
        if moved < plan.tolerance * self.rate:
            self._still += 1
        else:
            self._still = 0
        self._failed = 0
        self._end_round()

    def fail(self) -> None:
        """End a round that had no report: the model stays as it is.

        A round with any report is an `update`, since each report is unbiased. Raises ValueError if
        the run has stopped.
        """
        self._require_running()
        self._failed += 1
        self._end_round()

    def _require_running(self) -> None:
        if self.stopped:
            raise ValueError(f"training has stopped ({self.stopped}): its learner must be `done`")

    def _end_round(self) -> None:
        """Count the round, and set `stopped` if the plan ends here."""
        self.round += 1
        plan = self.plan
        if plan.failures is not None and self._failed >= plan.failures:
            self.stopped = QUORUM
        elif plan.patience is not None and self._still >= plan.patience:
            self.stopped = CONVERGED
        elif plan.rounds is not None and self.round >= plan.rounds:
            self.stopped = ROUNDS

    def state(self) -> dict[str, Any]:
        """All that changes in a run, for JSON; `restore` takes it back exactly."""
        return {
            "round": self.round,
            "stopped": self.stopped,
            "still": self._still,
            "failed": self._failed,
            "optimiser": self.optimiser.state(),
            "rate": self.rate,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take back a `state()`. Raises UsageError for that of another model, or anything else."""
        with reading_state("training"):
            self.optimiser.restore(state["optimiser"])
            self.round = int(state["round"])
            self.stopped = state["stopped"]
            self._still = int(state["still"])
            self._failed = int(state["failed"])
            self.rate = float(state["rate"])
        # A run that had done all of its rounds may have been given more.
        has_more_rounds = self.plan.rounds is None or self.plan.rounds > self.round
        if self.stopped == ROUNDS and has_more_rounds:
            self.stopped = None
