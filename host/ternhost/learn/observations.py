"""What noisy mean gradients tell of the optimum, by public rows: features of records without
labels.

Let h be the mean of a label by a model. A gradient asked for at weights v has the mean E[(h(x v) -
h(x w)) x], with w the optimum and E over the population. Public rows stand for the population, so
that every answer is an equation of w, linear near the last fit. All equations are solved together,
with w shrunk by evidence.

Devices clip gradients. For a logistic model each row says what a clipped gradient is with either
label. So the clip is part of the equation, and leaves no bias if the model is right. Then the
smallest radius is best: at the model 0, where
|x| / 2 is at least DIRECTION because of the constant 1, devices tell the directions of their gradients.

Public rows of another population would ruin this. They are not `suited` where uncorrelated features
explain the first gradient with much more evidence, or where it has more than noise in directions in
which rows hardly vary. Then the model goes along that gradient. Without public rows, `made_up` ones
do.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tern.wire import LINEAR, LOGISTIC
from ternhost.learn.optimisers import read_vectors
from ternhost.learn.parameters import LARGEST_WEIGHT, Floats, reading_state
from ternhost.vectorised.projection import transform

DIRECTION = 0.5  # the radius at the model 0
SURE = 20.0  # `certain`, from which asking again at the fitted model is better
_FITS, _FIT = 6, 0.7  # Gauss-Newton steps of a fit, each so much of the way at most
_HALVED = 5  # how often a step may be halved
_VARIANCES = 10.0 ** np.arange(-4, 4, 0.25)  # of weights, among which the evidence chooses
_LENGTHS = np.linspace(1, 2.5, 16)  # of a model, in those of its fit
_WHOLE = 0.6  # of the gradients at a fitted model, the share that is not clipped
_DOUBT = 2.0  # logarithm of the odds against public rows from which they are left out
_STEEP = 10.0  # variance of weights, more than any population has
_LEAST = 1e-12  # variance
_MEAN = 0.9  # of |x|**2, the most that may be of the mean x


@dataclass(frozen=True)
class Observation:
    """A mean gradient, and how the devices were asked for it."""

    asked: Floats  # the weights
    gradient: Floats
    variance: float  # of the noise of each value
    radius: float | None = None  # the l2 norm to which a device clipped its gradient
    tau: float | None = None  # the size to which it clipped each value

    def clipped(self, gradients: Floats) -> Floats:
        """Gradients (n x values) as the devices clip them."""
        if self.tau is not None:
            gradients = np.clip(gradients, -self.tau, self.tau)
        if self.radius is not None:
            norms = np.linalg.norm(gradients, axis=1, keepdims=True)
            gradients = gradients * np.minimum(1, self.radius / np.maximum(norms, _LEAST))
        return gradients

    @property
    def how(self) -> tuple[float, float | None, float | None]:
        return self.variance, self.radius, self.tau

    def joined(self, other: "Observation") -> "Observation | None":
        """The answer of both, if the question was the same."""
        if self.how[1:] != other.how[1:] or not np.array_equal(self.asked, other.asked):
            return None
        share = self.variance / max(self.variance + other.variance, _LEAST)
        gradient = (1 - share) * self.gradient + share * other.gradient
        return replace(self, gradient=gradient, variance=(1 - share) * self.variance)


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
        self._seen: list[Observation] = []
        self.weights: Floats = np.zeros(classes * rows.shape[1])  # of the last fit (values)
        self.suited: bool = True  # the rows to the population, as far as known
        self._plain = self.weights  # of uncorrelated features
        self.misfit = (
            1.0  # chi-squared a direction in which rows do not vary: about 1 where they are right
        )

    @property
    def certain(self) -> float:
        """The square of the first gradient over what its noise alone has."""
        first = self._seen[0]
        return float(np.square(first.gradient).mean() / max(first.variance, _LEAST))

    @property
    def limited(self) -> float:
        """What the first mean gradient is unsure by as the rows are few, over what its noise makes
        it unsure by.
        """
        first = self._seen[0]
        return self._expected(first, self.weights)[1] / max(first.variance, _LEAST)

    def add(self, new: Observation) -> None:
        """Take an answer. A second one to the last question is joined to the first."""
        if self._seen and (both := self._seen[-1].joined(new)):
            self._seen[-1] = both
        else:
            self._seen.append(new)
        if len(self._seen) == 1:  # the first one is new, or better known
            self._judge()

    def fit(self) -> Floats:
        """The weights (values). Where the rows are not suited, they go along the first gradient."""
        for _ in range(_FITS):
            if not self.suited:
                self.weights = self.weights + _FIT * (self._plain - self.weights)
                continue
            to = shrink(*self._system(self.weights))
            # Far from the optimum, answers are not linear in the weights: a whole step may
            # overshoot.
            moves = _FIT / 2.0 ** np.arange(_HALVED)[:, None] * (to.mean - self.weights)
            there = np.clip(self.weights + moves, -LARGEST_WEIGHT, LARGEST_WEIGHT)
            left = [
                self._unexplained(each) + each @ each / to.variance
                for each in (self.weights, *there)
            ]
            self.weights = (self.weights, *there)[int(np.argmin(left))]
        return self.weights

    def lengthened(self) -> Floats:
        """The last fit, as long as explains the answers best, among _LENGTHS: shrinking makes
        models of classes that are told apart easily too short, which spoils their probabilities.
        Made-up rows know nothing of it.
        """
        if self._invented or not self.suited or not self.weights.any():
            return self.weights
        longer = [
            np.clip(times * self.weights, -LARGEST_WEIGHT, LARGEST_WEIGHT) for times in _LENGTHS
        ]
        return min(longer, key=self._unexplained)

    def _unexplained(self, weights: Floats) -> float:
        """The chi-squared of all answers, if these weights were the optimum."""
        total = 0.0
        for seen in self._seen:
            mean, error = self._expected(seen, weights)
            total += float(np.square(mean - seen.gradient).sum()) / max(
                seen.variance + error, _LEAST
            )
        return total

    def deviations(self) -> Floats:
        """The posterior standard deviation of each weight (values)."""
        return np.asarray(np.sqrt(np.diag(shrink(*self._system(self.weights)).covariance)))

    def question(self) -> tuple[Floats, float]:
        """The weights to ask at next, and the radius.

        The fitted model tells more than the model 0 if it is good enough; 60 % of the gradients are
        kept whole there.
        """
        if not self._seen or not self.suited or self.certain < SURE:
            return np.zeros_like(self.weights), DIRECTION
        means = self._means(self.weights)
        sizes = np.linalg.norm(self._rows, axis=1)[:, None] * np.hstack([means, 1 - means])
        chances = np.hstack([1 - means, means]).ravel()
        order = sizes.ravel().argsort()
        whole = chances[order].cumsum().searchsorted(_WHOLE * chances.sum())
        return self.weights, max(float(sizes.ravel()[order[whole]]), DIRECTION / 10)

    def promise(self, asked: Observation) -> float:
        """The expected squared error of scores from such an answer alone, whatever its gradient is:
        the less the better, among mechanisms and clips. Before it, scores have a variance of 4.
        """
        hessian, (_, error) = self._hessian(asked, asked.asked), self._expected(asked, asked.asked)
        scores = np.kron(np.eye(self.classes), self._rows.T @ self._rows / len(self._rows))
        known = (
            hessian.T @ hessian / (asked.variance + error)
            + np.eye(len(scores)) * np.trace(scores) / 4
        )
        return float(np.trace(np.linalg.solve(known, scores)))

    def _judge(self) -> None:
        """Compare the rows with uncorrelated features, by the first gradient."""
        first, classes, d = self._seen[0], self.classes, self._rows.shape[1]
        nothing = np.zeros_like(self.weights)
        hessian, (mean, _) = self._hessian(first, nothing), self._expected(first, nothing)
        target, variance = mean - first.gradient, max(first.variance, _LEAST)
        fitted = shrink(hessian.T @ hessian / variance, hessian.T @ target / variance).mean
        variance += self._expected(first, np.clip(fitted, -LARGEST_WEIGHT, LARGEST_WEIGHT))[1]
        average = np.einsum("iaja->ij", hessian.reshape(classes, d, classes, d)) / d
        uncorrelated = np.kron(average, np.eye(d))
        mine, other = (
            shrink(h.T @ h / variance, h.T @ target / variance) for h in (hessian, uncorrelated)
        )
        left, sizes, _ = np.linalg.svd(hessian)
        silent = np.square(sizes) * min(mine.variance, _STEEP) < variance
        beside = np.square(left.T[silent] @ target) / variance
        self.misfit = float(beside.mean()) if silent.any() else 1.0
        # The evidence of a larger variance there.
        excess = len(beside) / 2 * (self.misfit - 1 - math.log(max(self.misfit, 1.0)))
        odds = mine.evidence - other.evidence
        doubt = _DOUBT * (1 + self.certain / SURE)  # no rows explain clear answers fully
        self.suited = odds >= 0 if self._invented else min(odds, -excess) >= -doubt
        # The other's model goes along the gradient, and as far as the rows' curvature there lets
        # it.
        weights, curvature = other.mean, other.mean @ hessian @ other.mean
        self._plain = weights * (
            weights @ uncorrelated @ weights / curvature if curvature > 0 else 0.0
        )

    def _system(self, weights: Floats) -> tuple[Floats, Floats]:
        """Of all answers, linear near these weights: the precision matrix, and it times the
        solution.
        """
        precision, target = np.zeros((len(weights),) * 2), np.zeros_like(weights)
        for seen in self._seen:
            hessian, (mean, error) = self._hessian(seen, weights), self._expected(seen, weights)
            certain = 1 / max(seen.variance + error, _LEAST)
            precision += certain * hessian.T @ hessian
            target += certain * hessian.T @ (hessian @ weights + mean - seen.gradient)
        return precision, target

    def _gradients(self, seen: Observation) -> tuple[Floats, Floats]:
        """At the weights asked: each row's gradient where its mean labels are 0 (n x classes x
        features), and by how much it falls with each mean label (n x features).
        """
        before = self._means(seen.asked)
        if self.model == LOGISTIC:
            negative, positive = (seen.clipped(self._rows * (before - label)) for label in (0, 1))
            return negative[:, None], negative - positive
        return before[:, :, None] * self._rows[:, None], self._rows

    def _expected(self, seen: Observation, weights: Floats) -> tuple[Floats, float]:
        """If these weights were the optimum: the mean gradient (values), and the variance of it
        that the rows have as they are few.
        """
        asked, falls = self._gradients(seen)
        each = (asked - self._means(weights)[:, :, None] * falls[:, None]).reshape(
            len(self._rows), -1
        )
        return each.mean(axis=0), float(np.square(each).mean()) / len(each)

    def _hessian(self, seen: Observation, weights: Floats) -> Floats:
        """By how much `_expected`'s mean gradient falls with each weight (values x values)."""
        (n, d), classes = self._rows.shape, self.classes
        means, (_, falls) = self._means(weights), self._gradients(seen)
        blocks = np.empty((classes, d, classes, d))
        for i in range(classes):
            for j in range(classes):
                slopes = (
                    np.ones(n) if self.model == LINEAR else means[:, i] * ((i == j) - means[:, j])
                )
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

    def state(self) -> dict[str, Any]:
        """All that changes, for JSON; `restore` takes it back exactly."""
        seen = [[each.asked.tolist(), each.gradient.tolist(), *each.how] for each in self._seen]
        return {"weights": self.weights.tolist(), "seen": seen}

    def restore(self, state: Mapping[str, Any]) -> None:
        (self.weights,) = read_vectors(state, len(self.weights), "weights")
        with reading_state("learning from gradients"):
            self._seen = [
                Observation(np.array(w), np.array(g), *how) for w, g, *how in state["seen"]
            ]
            if self._seen:
                self._judge()


def made_up(features: int, direction: Floats | None = None) -> Floats:
    """Rows (n x features), spread evenly around their mean. direction: the mean of x / |x|, as far
    as known. Its first value is the mean of 1 / |x|, which gives the size of the rows. Without it,
    the features have uniform variance.
    """
    mean, square = np.eye(features)[0], 1 + (features - 1) / 3
    if direction is not None:
        first = min(max(float(direction[0]), features**-0.5), 1.0)
        square = first**-2
        rest = direction[1:] / first
        rest = rest * min(1.0, math.sqrt(max(_MEAN * square - 1, 0) / max(rest @ rest, _LEAST)))
        mean = np.concatenate([[1.0], rest])
    signs = transform(np.eye(1 << (features - 1).bit_length(), dtype=np.int32))
    spread = signs[:, :features].astype(np.float64)
    spread[:, 0] = 0
    return np.asarray(
        mean + spread * math.sqrt(max(square - mean @ mean, 0) / max(features - 1, 1))
    )


@dataclass(frozen=True)
class Posterior:
    """Of weights w ~ N(0, variance)."""

    mean: Floats
    covariance: Floats
    variance: float
    evidence: float  # but for a constant of the observations


def shrink(precision: Floats, target: Floats) -> Posterior:
    """Of w given observations of this precision matrix, which give target = precision w + noise of
    that covariance, at the variance of the largest evidence.
    """
    certain, directions = np.linalg.eigh(precision)
    certain = np.maximum(certain, 0)
    along = directions.T @ target
    shrunk = 1 / (certain + 1 / _VARIANCES[:, None])  # variances x directions
    evidence = 0.5 * (np.square(along) * shrunk - np.log1p(certain * _VARIANCES[:, None])).sum(
        axis=1
    )
    best = int(evidence.argmax())
    covariance = directions * shrunk[best] @ directions.T
    return Posterior(
        covariance @ target, covariance, float(_VARIANCES[best]), float(evidence[best])
    )
