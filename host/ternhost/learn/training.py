"""Training by rounds (Zhao et al., IEEE IoT J. 8, 2021, Algorithm 1): one optimiser step a round,
and when to stop.
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
    """A run, fixed before it starts.

    `expected` is the number of reports that a full round brings a coordinate. Raises UsageError for
    what no run can have.
    """

    model: int
    dimension: int
    rounds: int | None  # None: no end
    expected: float
    learning_rate: float  # where devices report on the whole of [-1, 1]
    regularisation: float = 1e-4
    tolerance: float = 1e-4  # a gradient below this in every coordinate counts as none
    patience: int | None = 5  # this many rounds without a gradient end the run
    failures: int | None = 3  # this many rounds in a row without a report end the run
    optimiser: str = "averaging"
    noise: Noise | None = None  # that the rate follows from; None where it was named

    def rate(self, tau: float, kept: float = 1.0) -> float:
        """The learning rate at range tau: the less noise, the larger. kept: see `Noise`."""
        if self.noise is None:
            return self.learning_rate
        noise = replace(self.noise, variance=self.noise.variance * tau**2, kept=kept)
        return OPTIMISERS.named(self.optimiser).automatic_rate(noise)

    def __post_init__(self) -> None:
        require(self.model in MODELS.values(), "model", f"one of {MODELS}", self.model)
        most = MAX_VALUES if self.model == SOFTMAX_GRADIENT else MAX_DIMENSION
        if not 1 <= self.dimension <= most:
            raise UsageError(
                f"devices compute models of 1 to {most:,} weights, not of {self.dimension:,}"
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


def plan(
    model: int,
    dimension: int,
    *,
    rounds: int | None,
    group: float,
    k: int,
    variance: float,
    horizon: int | None = None,
    learning_rate: float | None = None,
    regularisation: float = 1e-4,
    optimiser: str = "averaging",
    gives_up: bool = True,
    classes: int = 1,
) -> TrainingPlan:
    """The plan of `rounds` rounds (None: no end), each of `group` reports of k coordinates.

    Raises UsageError.

    variance: of one reported value at input 0. horizon: the rounds that the learning rate is chosen
    for (all). gives_up: stop early where the model stands still or nobody reports. classes: they
    share the coordinates.
    """
    require(1 <= group < math.inf, "group", "1 or more", group)
    require(1 <= k <= dimension, "k", f"1 to {dimension}, the number of coordinates", k)
    if not 0 <= variance < math.inf:
        raise UsageError(f"a reported value must have a variance of 0 or more, not {variance:g}")
    expected = group * k / dimension
    noise = None
    if learning_rate is None:
        noise = Noise(model, dimension // classes, horizon or rounds or 1, variance / expected)
        learning_rate = OPTIMISERS.named(optimiser).automatic_rate(noise)
    # With noise, an estimate of 0 is no sign of a gradient of 0.
    tolerance = 0.0 if variance else TrainingPlan.tolerance
    limits: dict[str, Any] = {} if rounds and gives_up else {"patience": None, "failures": None}
    return TrainingPlan(
        model,
        dimension,
        rounds,
        expected,
        learning_rate,
        regularisation,
        tolerance,
        optimiser=optimiser,
        noise=noise,
        **limits,
    )


class Trainer:
    """One run: ask `question()`, estimate the mean gradient of a group, `update()`, until `stopped`
    says why.
    """

    def __init__(self, plan: TrainingPlan) -> None:
        self.plan = plan
        self.optimiser: Optimiser = OPTIMISERS.named(plan.optimiser)(plan.dimension)
        self.round = 0  # rounds that have ended, with or without an update
        self.stopped: str | None = None
        self._still = 0
        self._failed = 0
        self.rate = plan.learning_rate  # of the last round

    @property
    def weights(self) -> Floats:
        """The weights at which devices compute the next gradient."""
        return self.optimiser.weights

    def question(self) -> Parameters:
        """The parameters to send in the next round."""
        return quantise(self.optimiser.weights)

    @property
    def model(self) -> Floats:
        """The model learnt so far, as quantised as devices would get it."""
        return quantise(self.optimiser.model).values

    def update(
        self, mean: npt.ArrayLike, reports: npt.ArrayLike, tau: float = 1, kept: float = 1
    ) -> None:
        """End a round with its mean gradient (d; anything, nan included, where nobody reported) and
        the reports of each coordinate (d, or one number for all). Every report moves the model
        equally: half of those expected make half a step. kept: see `Noise`. Raises ValueError for
        other shapes, a mean that is not finite, or a stopped run.
        """
        self._check_open()
        counts, gradient = np.asarray(reports, np.float64), np.asarray(mean, np.float64)
        if gradient.shape != self.weights.shape or counts.shape not in (gradient.shape, ()):
            shapes = f"{gradient.shape} and {counts.shape}"
            raise ValueError(
                f"mean and reports need {self.plan.dimension} coordinates, not shapes {shapes}"
            )
        gradient = np.where(counts > 0, gradient, 0.0)
        if not np.isfinite(gradient).all():
            raise ValueError("the gradient is not finite")
        plan = self.plan
        before = self.weights
        direction = gradient * (counts / plan.expected) + plan.regularisation * before
        rate = self.rate = plan.rate(tau, kept)
        self.optimiser.step(direction, rate)
        step = float(np.abs(self.weights - before).max())
        self._still = self._still + 1 if step < plan.tolerance * rate else 0
        self._failed = 0
        self._end_round()

    def fail(self) -> None:
        """End a round that had no report: the model stays as it is.

        Each one that came is unbiased, so few will do. Raises ValueError where the run has stopped.
        """
        self._check_open()
        self._failed += 1
        self._end_round()

    def _check_open(self) -> None:
        if self.stopped:
            raise ValueError(f"training has stopped ({self.stopped}): its learner must be `done`")

    def _end_round(self) -> None:
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
        rounds = {
            "round": self.round,
            "stopped": self.stopped,
            "still": self._still,
            "failed": self._failed,
        }
        return {**rounds, "optimiser": self.optimiser.state(), "rate": self.rate}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take back a `state()`.

        Raises UsageError for one of another dimension, or for something else.
        """
        with reading_state("training"):
            self.optimiser.restore(state["optimiser"])
            self.round, self.stopped = int(state["round"]), state["stopped"]
            self._still, self._failed = int(state["still"]), int(state["failed"])
            self.rate = float(state["rate"])
            if self.stopped == ROUNDS and (self.plan.rounds or self.round + 1) > self.round:
                self.stopped = None  # there are more by now
