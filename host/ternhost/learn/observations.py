"""Where the optimum is, by noisy mean gradients and public rows: features of records without labels.

Let h be the mean of a label by a model. A gradient asked for at weights v has the mean E[(h(x v) -
h(x w)) x], with w the optimum and E over the population. Public rows stand for the population, so
that every answer is an equation of w, linear near the last fit. All equations are solved together,
with w shrunk by evidence.

Devices clip gradients. For a logistic model each row determines what a clipped gradient is with
either label. So the clip is part of the equation, and leaves no bias if the model is right. Then
the smallest radius is best: at the model 0, where |x| / 2 is at least DIRECTION because of the
constant 1, devices report the directions of their gradients.

Public rows of another population would ruin this. They are not `suited` where uncorrelated features
explain the first gradient with much more evidence, or where it has more than noise in directions in
which rows hardly vary. Then the model goes along that gradient. Without public rows, `made_up` ones
do.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from tern.wire import LINEAR, LOGISTIC
from ternhost.learn.optimisers import read_vectors
from ternhost.learn.parameters import LARGEST_WEIGHT, Floats, reading_state
from ternhost.vectorised.projection import transform

DIRECTION = 0.5  # the radius at the model 0
SURE = 20.0  # `certain`, from which asking again at the fitted model is better
_STEPS = 6  # Gauss-Newton steps of a fit
_STEP = 0.7  # each goes so much of the way at most
_HALVED = 5  # how often a step may be halved
_VARIANCES = 10.0 ** np.arange(-4, 4, 0.25)  # of weights, among which the evidence chooses
_LENGTHS = np.linspace(1, 2.5, 16)  # of a model, in those of its fit
_WHOLE = 0.6  # of the gradients at a fitted model, the share that is not clipped
_DOUBT = 2.0  # logarithm of the odds against public rows from which they are left out
_STEEP = 10.0  # variance of weights, more than any population has
_TINY = 1e-12  # the least variance, or length
_MEAN = 0.9  # of |x|**2, the most that may be of the mean x


@dataclass(frozen=True)
class Observation:
    """A mean gradient, and how the devices were asked for it."""

    asked: Floats  # the weights (values)
    gradient: Floats  # (values)
    variance: float  # of the noise of each value
    radius: float | None = None  # the l2 norm to which a device clipped its gradient
    tau: float | None = None  # the size to which it clipped each value

    def clipped(self, gradients: Floats) -> Floats:
        """Gradients (n x values) as the devices clip them."""
        if self.tau is not None:
            gradients = np.clip(gradients, -self.tau, self.tau)
        if self.radius is not None:
            norms = np.linalg.norm(gradients, axis=1, keepdims=True)
            gradients = gradients * np.minimum(1, self.radius / np.maximum(norms, _TINY))
        return gradients

    def joined(self, other: "Observation") -> "Observation | None":
        """The mean of both, by inverse variance; None if they answer different questions."""
        same_clip = (self.radius, self.tau) == (other.radius, other.tau)
        if not same_clip or not np.array_equal(self.asked, other.asked):
            return None
        share = self.variance / max(self.variance + other.variance, _TINY)
        gradient = (1 - share) * self.gradient + share * other.gradient
        return replace(self, gradient=gradient, variance=(1 - share) * self.variance)


class Expected(NamedTuple):
    """An answer as a model expects it."""

    mean: Floats  # gradient (values)
    variance: float  # of each value of the mean, as the rows are few


class Observations:
    """All answers so far, and the weights that explain them.

    The first question must be at the model 0.
    """

    def __init__(
        self, model: int, rows: Floats, classes: int = 1, *, invented: bool = False
    ) -> None:
        """rows: public rows (n x features), the constant 1 first. invented: they are `made_up`."""
        self.model, self.classes, self._invented = model, classes, invented
        self._rows = rows
        self._answers: list[Observation] = []
        self.weights: Floats = np.zeros(classes * rows.shape[1])  # of the last fit (values)
        self.suited: bool = True  # the rows to the population, as far as known
        # Chi-squared for each direction in which rows do not vary: about 1 if they are right.
        self.misfit = 1.0
        self._uncorrelated_fit = self.weights  # the model by uncorrelated features

    @property
    def certain(self) -> float:
        """The square of the first gradient over what its noise alone has."""
        first = self._answers[0]
        return float(np.square(first.gradient).mean() / max(first.variance, _TINY))

    @property
    def limited(self) -> float:
        """The variance of the first expected gradient, as the rows are few, over that of its noise."""
        first = self._answers[0]
        return self._expected(first, self.weights).variance / max(first.variance, _TINY)

    def add(self, answer: Observation) -> None:
        """Take an answer. A second one to the last question is joined to the first."""
        joined = self._answers[-1].joined(answer) if self._answers else None
        if joined:
            self._answers[-1] = joined
        else:
            self._answers.append(answer)
        if len(self._answers) == 1:  # the first one is new, or better known
            self._judge()

    # The fit

    def fit(self) -> Floats:
        """Fit the weights (values); where the rows are not suited, they go along the first gradient."""
        for _ in range(_STEPS):
            if self.suited:
                self._step()
            else:
                self.weights = self.weights + _STEP * (self._uncorrelated_fit - self.weights)
        return self.weights

    def _step(self) -> None:
        """Make a Gauss-Newton step, as long as explains the answers best.

        Far from the optimum answers are not linear in the weights, so that a whole step may
        overshoot.
        """
        target = shrink(*self._system(self.weights))
        lengths = _STEP / 2.0 ** np.arange(_HALVED)[:, None]
        moved = self.weights + lengths * (target.mean - self.weights)
        candidates = [self.weights, *np.clip(moved, -LARGEST_WEIGHT, LARGEST_WEIGHT)]
        losses = []
        for weights in candidates:
            losses.append(self._unexplained(weights) + weights @ weights / target.variance)
        self.weights = candidates[int(np.argmin(losses))]

    def lengthened(self) -> Floats:
        """The last fit, as long as explains the answers best, among _LENGTHS.

        Shrinking makes models of classes that are easily told apart too short, which spoils their
        probabilities. Made-up rows show nothing of it.
        """
        if self._invented or not self.suited or not self.weights.any():
            return self.weights
        candidates = [
            np.clip(length * self.weights, -LARGEST_WEIGHT, LARGEST_WEIGHT) for length in _LENGTHS
        ]
        return min(candidates, key=self._unexplained)

    def deviations(self) -> Floats:
        """The posterior standard deviation of each weight (values)."""
        posterior = shrink(*self._system(self.weights))
        return np.asarray(np.sqrt(np.diag(posterior.covariance)))

    def _unexplained(self, weights: Floats) -> float:
        """The chi-squared of all answers, if these weights were the optimum."""
        total = 0.0
        for answer in self._answers:
            expected = self._expected(answer, weights)
            variance = max(answer.variance + expected.variance, _TINY)
            total += float(np.square(expected.mean - answer.gradient).sum()) / variance
        return total

    def _system(self, weights: Floats) -> tuple[Floats, Floats]:
        """All answers as linear equations near these weights.

        Returns the precision matrix (values x values), and the matrix times the solution (values).
        """
        precision = np.zeros((len(weights), len(weights)))
        target = np.zeros_like(weights)
        for answer in self._answers:
            hessian = self._hessian(answer, weights)
            expected = self._expected(answer, weights)
            weight = 1 / max(answer.variance + expected.variance, _TINY)
            precision += weight * hessian.T @ hessian
            target += weight * hessian.T @ (hessian @ weights + expected.mean - answer.gradient)
        return precision, target

    # Questions

    def question(self) -> tuple[Floats, float]:
        """The weights (values) to ask at next, and the radius.

        The fitted model tells more than the model 0 if it is good enough; 60 % of the gradients are
        kept whole there.
        """
        if not self._answers or not self.suited or self.certain < SURE:
            return np.zeros_like(self.weights), DIRECTION
        means = self._means(self.weights)
        lengths = np.linalg.norm(self._rows, axis=1)[:, None]
        # Of each row's gradient with label 1 and with label 0: its size and its chance.
        sizes = (lengths * np.hstack([means, 1 - means])).ravel()
        chances = np.hstack([1 - means, means]).ravel()
        order = sizes.argsort()
        whole = chances[order].cumsum().searchsorted(_WHOLE * chances.sum())
        return self.weights, max(float(sizes[order[whole]]), DIRECTION / 10)

    def promise(self, asked: Observation) -> float:
        """The expected squared error of scores after such an answer alone.

        It does not depend on the answer's gradient. The less, the better: it compares mechanisms
        and clips. Before the answer, scores have a variance of 4.
        """
        hessian = self._hessian(asked, asked.asked)
        expected = self._expected(asked, asked.asked)
        scores = np.kron(np.eye(self.classes), self._rows.T @ self._rows / len(self._rows))
        prior = np.eye(len(scores)) * np.trace(scores) / 4
        known = hessian.T @ hessian / (asked.variance + expected.variance) + prior
        return float(np.trace(np.linalg.solve(known, scores)))

    # The rows

    def _judge(self) -> None:
        """Compare the rows with uncorrelated features, by the first gradient."""
        first = self._answers[0]
        nothing = np.zeros_like(self.weights)
        hessian = self._hessian(first, nothing)
        target = self._expected(first, nothing).mean - first.gradient
        variance = max(first.variance, _TINY)
        fitted = _solution(hessian, target, variance).mean
        fitted = np.clip(fitted, -LARGEST_WEIGHT, LARGEST_WEIGHT)
        variance += self._expected(first, fitted).variance

        uncorrelated = self._uncorrelated(hessian)
        by_rows = _solution(hessian, target, variance)
        by_uncorrelated = _solution(uncorrelated, target, variance)

        # Directions in which the rows hardly vary: the gradient should have only noise there.
        left, sizes, _ = np.linalg.svd(hessian)
        silent = np.square(sizes) * min(by_rows.variance, _STEEP) < variance
        outside = np.square(left.T[silent] @ target) / variance
        self.misfit = float(outside.mean()) if silent.any() else 1.0
        # The evidence of a larger variance there.
        excess = len(outside) / 2 * (self.misfit - 1 - math.log(max(self.misfit, 1.0)))

        odds = by_rows.evidence - by_uncorrelated.evidence
        doubt = _DOUBT * (1 + self.certain / SURE)  # no rows explain clear answers fully
        if self._invented:
            self.suited = odds >= 0
        else:
            self.suited = min(odds, -excess) >= -doubt
        self._uncorrelated_fit = _along(by_uncorrelated.mean, uncorrelated, hessian)

    def _uncorrelated(self, hessian: Floats) -> Floats:
        """The Hessian of uncorrelated features with the same mean curvature."""
        classes, d = self.classes, self._rows.shape[1]
        average = np.einsum("iaja->ij", hessian.reshape(classes, d, classes, d)) / d
        return np.kron(average, np.eye(d))

    # What the rows expect

    def _gradients(self, asked: Observation) -> tuple[Floats, Floats]:
        """The rows' gradients at the weights asked, as functions of their mean labels.

        Returns each row's gradient where its mean labels are 0 (n x classes x features), and by how
        much it falls with each mean label (n x features).
        """
        before = self._means(asked.asked)
        if self.model == LOGISTIC:
            negative = asked.clipped(self._rows * (before - 0))
            positive = asked.clipped(self._rows * (before - 1))
            return negative[:, None], negative - positive
        return before[:, :, None] * self._rows[:, None], self._rows

    def _expected(self, asked: Observation, weights: Floats) -> Expected:
        """The answer to a question, if these weights were the optimum."""
        gradients, falls = self._gradients(asked)
        each = gradients - self._means(weights)[:, :, None] * falls[:, None]
        each = each.reshape(len(self._rows), -1)
        return Expected(each.mean(axis=0), float(np.square(each).mean()) / len(each))

    def _hessian(self, asked: Observation, weights: Floats) -> Floats:
        """By how much the expected mean gradient falls with each weight (values x values)."""
        n, d = self._rows.shape
        classes = self.classes
        means = self._means(weights)
        _, falls = self._gradients(asked)
        blocks = np.empty((classes, d, classes, d))
        for i in range(classes):
            for j in range(classes):
                if self.model == LINEAR:
                    slopes = np.ones(n)
                else:
                    slopes = means[:, i] * ((i == j) - means[:, j])
                blocks[i, :, j] = (falls * slopes[:, None]).T @ self._rows / n
        return blocks.reshape(classes * d, -1)

    def _means(self, weights: Floats) -> Floats:
        """The mean label of each row by a model (n x classes)."""
        z: Floats = self._rows @ weights.reshape(self.classes, -1).T
        if self.model == LINEAR:
            return z
        if self.model == LOGISTIC:
            return (1 + np.tanh(z / 2)) / 2
        each = np.exp(z - z.max(axis=1, keepdims=True))
        return np.asarray(each / each.sum(axis=1, keepdims=True))

    # State

    def state(self) -> dict[str, Any]:
        """All that changes, for JSON; `restore` takes it back exactly."""
        answers = []
        for answer in self._answers:
            asked, gradient = answer.asked.tolist(), answer.gradient.tolist()
            answers.append([asked, gradient, answer.variance, answer.radius, answer.tau])
        return {"weights": self.weights.tolist(), "seen": answers}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take back a `state()`. Raises UsageError for something else."""
        (self.weights,) = read_vectors(state, len(self.weights), "weights")
        with reading_state("learning from gradients"):
            self._answers = []
            for asked, gradient, *how in state["seen"]:
                self._answers.append(Observation(np.array(asked), np.array(gradient), *how))
            if self._answers:
                self._judge()


def _along(weights: Floats, uncorrelated: Floats, hessian: Floats) -> Floats:
    """Weights along a gradient, as far as the rows' curvature in that direction allows."""
    curvature = weights @ hessian @ weights
    if curvature <= 0:
        return weights * 0.0
    return np.asarray(weights * (weights @ uncorrelated @ weights / curvature))


def made_up(features: int, direction: Floats | None = None) -> Floats:
    """Rows (n x features), spread evenly around their mean.

    direction: the mean of x / |x| (features), as far as known. Its first value is the mean of 1 /
    |x|, which gives the size of the rows. Without it, the features have uniform variance.
    """
    mean = np.eye(features)[0]
    square = 1 + (features - 1) / 3  # of |x|
    if direction is not None:
        first = min(max(float(direction[0]), features**-0.5), 1.0)
        square = first**-2
        rest = direction[1:] / first
        most = math.sqrt(max(_MEAN * square - 1, 0) / max(rest @ rest, _TINY))
        mean = np.concatenate([[1.0], rest * min(1.0, most)])

    size = 1 << (features - 1).bit_length()
    signs = transform(np.eye(size, dtype=np.int32))
    spread = signs[:, :features].astype(np.float64)
    spread[:, 0] = 0
    deviation = math.sqrt(max(square - mean @ mean, 0) / max(features - 1, 1))
    return np.asarray(mean + spread * deviation)


@dataclass(frozen=True)
class Posterior:
    """The posterior of weights w ~ N(0, variance)."""

    mean: Floats
    covariance: Floats
    variance: float
    evidence: float  # its logarithm, up to a constant of the observations


def shrink(precision: Floats, target: Floats) -> Posterior:
    """The posterior of w, given observations of this precision matrix.

    They give target = precision w + noise of the covariance `precision`. The variance of the prior
    is the one of the largest evidence.
    """
    certain, directions = np.linalg.eigh(precision)
    certain = np.maximum(certain, 0)
    along = directions.T @ target
    shrunk = 1 / (certain + 1 / _VARIANCES[:, None])  # variances x directions
    volumes = np.log1p(certain * _VARIANCES[:, None])
    evidence = 0.5 * (np.square(along) * shrunk - volumes).sum(axis=1)
    best = int(evidence.argmax())
    covariance = directions * shrunk[best] @ directions.T
    return Posterior(
        mean=covariance @ target,
        covariance=covariance,
        variance=float(_VARIANCES[best]),
        evidence=float(evidence[best]),
    )


def _solution(hessian: Floats, target: Floats, variance: float) -> Posterior:
    """The posterior of w, given target = hessian w + noise of this variance in each value."""
    return shrink(hessian.T @ hessian / variance, hessian.T @ target / variance)
