"""The optimum of a model, from noisy sums of clipped gradients and public rows.

Public rows are features of records, without labels. They stand for the records of the boards: if w
was the optimum, then the mean gradient at any other weights would follow from the rows, with its
clipping. `GradientFit` finds the weights that explain all observed gradients best, and a number
that tells how badly they do: the rows may be of another population.

A normal prior shrinks the weights. How much, and along which directions, the evidence decides
(Laplace's approximation; MacKay, Neural Computation 1992).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tern.wire import LINEAR, LOGISTIC
from ternhost.learn.models.losses import mean_labels
from ternhost.learn.models.optimisers import read_vectors
from ternhost.learn.one_answer.observations import Observation
from ternhost.learn.parameters import LARGEST_WEIGHT, Floats, reading_state

_TINY = 1e-12  # the least variance, or length
# The prior's standard deviation of the constant's weight, in those of other weights: it is hardly
# shrunk, since the share of a rare class shall not be.
_CONSTANT = 30.0
# Rows and model are never quite right: so large may the error of an expected gradient be, as a share
# of the observed one.
_MODEL_ERROR = 0.15
_LARGEST_RESIDUAL = 2.0  # of a record, as labels and their means are in [-1, 1]
_LEAST_SPREAD = 1e-3  # of the features' variance in a direction, in that of the largest one
# The variances of weights that are tried for a prior: powers of 10, from the largest to the least.
_LARGEST_POWER, _LEAST_POWER = 2, -3
_MANY_WEIGHTS = 200  # beyond this number fewer priors are compared, to save time
_STEPS = 2  # Gauss-Newton steps for each prior, which begin at the fit by the one before
_STEP = 0.9  # each goes so much of the way at most
_HALVED = 4  # how many lengths of a step are tried, each half as long as the one before
# Rows are of another population if the misfit is larger than the first number, and chi-squared is
# more standard deviations beyond its mean than the second one. The first gradient alone shows only
# the grossest error.
_MISFIT, _DEVIATIONS = 1.35, 2.5
_FIRST_MISFIT, _FIRST_DEVIATIONS = 3.0, 6.0
# The radii that are tried: those that leave so large a share of the length of all gradients together.
_KEPT = (0.8, 0.9, 0.95, 0.98, 0.995)
_LEAST_RADIUS = 0.05


@dataclass(frozen=True)
class _Answer:
    """An observed gradient, and the gradients of the rows at the weights where it was observed.

    - observed: the gradient, with its weights and its clipping
    - factors: what a row x is multiplied by in its own gradient. For classifiers there is a number
      for each class, and for each label that the row may have (n x classes x labels). For linear
      regression it is the score, from which the mean label is still to be subtracted (n x 1 x 1).
    """

    observed: Observation
    factors: Floats


@dataclass(frozen=True)
class _Basis:
    """A kind of prior: weights are matrix @ u, and all values of u have the same variance.

    - matrix: B (d x d), where d is the number of all weights
    - inverse: that of `matrix`
    """

    matrix: Floats
    inverse: Floats

    @classmethod
    def of(cls, matrix: Floats, classes: int) -> "_Basis":
        """Return the basis in which the weights of each class have this matrix (d x d)."""
        of_all_classes = np.asarray(np.kron(np.eye(classes), matrix), np.float64)
        return cls(of_all_classes, np.asarray(np.linalg.inv(of_all_classes), np.float64))

    def penalty(self, weights: Floats, variance: float) -> float:
        """Return |u|**2 / variance, which is how improbable weights are by the prior."""
        return float(np.square(self.inverse @ weights).sum()) / variance


@dataclass(frozen=True)
class _Candidate:
    """The weights that explain the answers best under one prior."""

    weights: Floats
    evidence: float  # the logarithm of the prior's likelihood, up to a constant
    chi_squared: float  # of what the weights leave unexplained
    parameters: float  # how many the answers determine, rather than the prior


class GradientFit:
    """What is known of the optimum of a model: noisy mean gradients at several weights.

    `add` an observed gradient, then `fit`.
    """

    def __init__(self, model: int, rows: Floats, classes: int = 1, records: int = 0) -> None:
        """Begin without any gradient, at weights of 0.

        model: LINEAR, LOGISTIC or SOFTMAX_GRADIENT.
        rows: features of records that stand for the boards' (n x features), the constant 1 first.
        classes: the number of classes that have weights of their own; 1 except for softmax.
        records: how many records the boards have, about; 0: so many that they are the population.
        """
        self.model = model
        self.classes = classes
        self.weights: Floats = np.zeros(classes * rows.shape[1])
        # How badly the fit explains the gradients: chi-squared for each degree of freedom, which is
        # about 1 if only noise is left.
        self.misfit = 1.0
        self.rows_suit: bool = True  # whether they are of the boards' population, as far as known
        # How clearly the gradients show more than noise beside the constant, in standard deviations.
        # Only if they do can they show that the rows are of another population.
        self.clarity = 0.0
        self._rows = rows
        # A mean over rows differs from one over records by the chance of both samples. Its variance
        # is that of a single row times this number.
        self._variance_of_means = 1 / len(rows)
        if records:
            self._variance_of_means += 1 / records
        self._norms: Floats = np.linalg.norm(rows, axis=1)  # n
        self._answers: list[_Answer] = []
        self._bases = self._kinds_of_priors()
        # In how many directions the rows lie. It is d if they vary by as much in all directions.
        moments = np.linalg.eigvalsh(rows.T @ rows)
        self._directions = float(moments.sum() ** 2 / np.square(moments).sum())

    def add(self, observed: Observation) -> None:
        """Add a mean gradient. Its `radius` is the norm to which each record's was clipped."""
        self._answers.append(_Answer(observed, self._factors(observed)))

    # The prior

    def _kinds_of_priors(self) -> list[_Basis]:
        """Return the kinds of priors among which the evidence decides.

        In all of them a score is that of a record at the means of the features, plus what the
        features contribute by their differences from the means. In the first kind all weights are
        alike. In the second kind the contributions are alike, of all directions in which features
        vary; it is left out if there are many weights.
        """
        features = self._rows.shape[1]
        means = self._rows.mean(axis=0)
        centred = np.eye(features)
        centred[0, 1:] = -means[1:]
        centred[0, 0] = _CONSTANT
        matrices = [centred]
        if len(self.weights) <= _MANY_WEIGHTS and features > 1:
            covariance = np.atleast_2d(np.cov(self._rows[:, 1:], rowvar=False))
            spreads, directions = np.linalg.eigh(covariance)
            spreads = np.maximum(spreads, max(_LEAST_SPREAD * spreads.max(), _TINY))
            whitening = np.eye(features)
            whitening[1:, 1:] = directions / np.sqrt(spreads / spreads.mean()) @ directions.T
            matrices.append(centred @ whitening)
        return [_Basis.of(matrix, self.classes) for matrix in matrices]

    def _variances(self) -> Floats:
        """Return the variances of u that are tried for a kind of prior, from the largest down."""
        step = 0.5  # of the powers of 10
        if len(self.weights) > _MANY_WEIGHTS:
            step = 1.0
        powers = np.arange(_LARGEST_POWER, _LEAST_POWER - 0.1, -step)  # with the last one
        return np.asarray(10.0**powers)

    # What the rows let one expect

    def _means(self, weights: Floats) -> Floats:
        """Return the mean label that a model predicts for each row (n x classes)."""
        return mean_labels(self.model, self._rows @ weights.reshape(self.classes, -1).T)

    def _label_probabilities(self, weights: Floats) -> Floats:
        """Return the probability of each label, for each row (n x labels). Not for regression."""
        means = self._means(weights)
        if self.model == LOGISTIC:
            return np.hstack([1 - means, means])
        return means

    def _unclipped(self, weights: Floats) -> Floats:
        """Return the factors of the rows in their gradients (n x classes x labels), as of `_Answer`.

        They are those of gradients that are not clipped: the mean label minus the label.
        """
        means = self._means(weights)
        if self.model == LOGISTIC:
            return np.stack([means, means - 1], axis=2)
        return np.asarray(means[:, :, None] - np.eye(self.classes))

    def _lengths(self, factors: Floats) -> Floats:
        """Return the norm of the gradient of each row with each label (n x labels)."""
        return np.asarray(np.linalg.norm(factors, axis=1) * self._norms[:, None])

    def _factors(self, observed: Observation) -> Floats:
        """Return the `factors` of an `_Answer`: at the weights of a question, and with its clipping."""
        if self.model == LINEAR:
            return self._means(observed.weights)[:, :, None]
        factors = self._unclipped(observed.weights)
        if observed.radius is not None:
            lengths = np.maximum(self._lengths(factors), _TINY)
            factors = factors * np.minimum(1, observed.radius / lengths)[:, None]
        return factors

    def _expected(self, answer: _Answer, weights: Floats) -> tuple[Floats, float]:
        """Return the gradient that is expected if the optimum is at some weights, and its variance.

        The variance, of each value, is that of the noise, of the small numbers of rows and records,
        and of the model's error.
        """
        if self.model == LINEAR:
            factors = answer.factors[:, :, 0] - self._means(weights)
        else:
            factors = np.einsum("njc,nc->nj", answer.factors, self._label_probabilities(weights))
        gradient = (factors.T @ self._rows / len(self._rows)).ravel()
        # Neither variance may grow with the weights: then too large ones would explain everything.
        bounded = np.clip(factors, -_LARGEST_RESIDUAL, _LARGEST_RESIDUAL)
        squared_lengths = np.square(bounded).sum(axis=1) * np.square(self._norms)
        of_rows = squared_lengths.mean() / len(gradient) * self._variance_of_means
        mean_square = np.square(answer.observed.gradient).mean() - answer.observed.variance
        of_model = _MODEL_ERROR**2 * max(float(mean_square), 0.0)
        variance = answer.observed.variance + of_rows + of_model
        return gradient, max(float(variance), _TINY)

    def _hessian(self, answer: _Answer, weights: Floats) -> Floats:
        """Return the negated derivative of the expected gradient by the optimum (d x d).

        weights: the optimum, near which the expected gradient is linearised (d).
        """
        rows = self._rows
        features = rows.shape[1]
        if self.model == LINEAR:
            return np.asarray(rows.T @ rows / len(rows))
        means = self._means(weights)
        # The derivative of each label's probability by the score of each class: n x labels x classes.
        if self.model == LOGISTIC:
            slope = means * (1 - means)
            by_score = np.stack([-slope, slope], axis=1)
        else:
            by_score = means[:, :, None] * (np.eye(self.classes) - means[:, None, :])
        curvatures = -np.einsum("njc,nck->njk", answer.factors, by_score)
        blocks = np.empty((self.classes, features, self.classes, features))
        for i in range(self.classes):
            for j in range(self.classes):
                blocks[i, :, j] = (rows * curvatures[:, i, j, None]).T @ rows / len(rows)
        return blocks.reshape(self.classes * features, self.classes * features)

    def _chi_squared(self, weights: Floats) -> float:
        """Return how badly these weights explain all answers, in squared standard deviations."""
        chi_squared = 0.0
        for answer in self._answers:
            gradient, variance = self._expected(answer, weights)
            chi_squared += float(np.square(gradient - answer.observed.gradient).sum()) / variance
        return chi_squared

    # The fit

    def fit(self) -> None:
        """Fit the weights to all gradients so far; find whether the rows suit.

        The weights are a mean over all priors, weighted by their evidence. Sets `weights`, `misfit`,
        `rows_suit` and `clarity`.
        """
        if not self._answers:
            return
        candidates = []
        for basis in self._bases:
            candidates += self._path(basis)
        best = max(candidates, key=lambda candidate: candidate.evidence)
        evidences = np.array([candidate.evidence for candidate in candidates])
        shares = np.exp(evidences - best.evidence)
        shares /= shares.sum()
        self.weights = shares @ np.array([candidate.weights for candidate in candidates])
        self._judge_rows(best)
        # The fit that the answers shape the least has little but the constant.
        most_shrunk = min(candidates, key=lambda candidate: candidate.parameters)
        freedom = len(self.weights) * len(self._answers)
        self.clarity = (most_shrunk.chi_squared - freedom) / math.sqrt(2 * freedom)

    def _path(self, basis: _Basis) -> list[_Candidate]:
        """Return the fits under the priors of a kind, one for each variance, each near the last."""
        candidates = []
        weights = self.weights
        for variance in self._variances():
            eigenvalues = np.zeros(len(weights))  # of the precision of u; set by each step
            for _ in range(_STEPS):
                precision, target = self._system(weights, basis)
                eigenvalues, directions = np.linalg.eigh(precision)
                eigenvalues = np.maximum(eigenvalues, 0)  # rounding may have made some negative
                solution = directions @ (directions.T @ target / (eigenvalues + 1 / variance))
                moved = self._moved(weights, basis.matrix @ solution, basis, variance)
                if moved is None:
                    break
                weights = moved
            chi_squared = self._chi_squared(weights)
            penalty = basis.penalty(weights, variance)
            log_determinant = float(np.log1p(eigenvalues * variance).sum())
            candidate = _Candidate(
                weights=weights,
                evidence=-(chi_squared + penalty + log_determinant) / 2,
                chi_squared=chi_squared,
                parameters=float((eigenvalues / (eigenvalues + 1 / variance)).sum()),
            )
            candidates.append(candidate)
        return candidates

    def _system(self, weights: Floats, basis: _Basis) -> tuple[Floats, Floats]:
        """Return the normal equations A u = b of all answers, linearised near some weights.

        The weights of the model are B u, with the matrix B of the basis. An observed gradient g is
        about g0 - H B (u - u0), up to noise of a variance v, where H is the Hessian, and g0 is the
        gradient that would be expected if the optimum was at `weights`, B u0. So:

        - A = sum of (H B)^T H B / v (d x d)
        - b = sum of (H B)^T (H B u0 + g0 - g) / v (d)
        """
        size = len(weights)
        precision, target = np.zeros((size, size)), np.zeros(size)
        for answer in self._answers:
            hessian = self._hessian(answer, weights) @ basis.matrix
            gradient, variance = self._expected(answer, weights)
            right_side = hessian @ (basis.inverse @ weights) + gradient - answer.observed.gradient
            precision += hessian.T @ hessian / variance
            target += hessian.T @ right_side / variance
        return precision, target

    def _moved(
        self, weights: Floats, solution: Floats, basis: _Basis, variance: float
    ) -> Floats | None:
        """Return weights on the way to a solution that explain the answers better, or None.

        Far from the optimum a whole step may lead too far; then it is halved.

        weights: where the way begins. solution: where it leads to. basis, variance: of the prior.
        """

        def badness(candidate: Floats) -> float:
            return self._chi_squared(candidate) + basis.penalty(candidate, variance)

        before = badness(weights)
        share_of_way = _STEP
        for _ in range(_HALVED):
            moved = weights + share_of_way * (solution - weights)
            moved = np.clip(moved, -LARGEST_WEIGHT, LARGEST_WEIGHT)
            if badness(moved) < before:
                return np.asarray(moved)
            share_of_way /= 2
        return None

    def _judge_rows(self, best: _Candidate) -> None:
        """Find whether the rows suit: whether the best fit explains the answers up to noise.

        Sets `misfit` and `rows_suit`.
        """
        size = len(self.weights)
        freedom = max(size * len(self._answers) - best.parameters, 1.0)
        self.misfit = best.chi_squared / freedom
        most, deviations = _MISFIT, _DEVIATIONS
        if len(self._answers) == 1:
            most, deviations = _FIRST_MISFIT, _FIRST_DEVIATIONS

        # Chi-squared has the mean `freedom`, and of noise alone the variance 2 * freedom. The errors
        # of few rows are in few directions, and all answers share them.
        of_noise, of_rows = 0.0, 0.0
        for answer in self._answers:
            _, variance = self._expected(answer, best.weights)
            noise_share = answer.observed.variance / variance
            of_noise += size * noise_share**2
            of_rows += size * (1 - noise_share)
        deviation = math.sqrt(2 * (of_noise + of_rows**2 / (self.classes * self._directions)))
        excess = best.chi_squared - freedom
        self.rows_suit = self.misfit <= most or excess <= deviations * deviation

    # Questions

    def next_radius(self, noise: float) -> float:
        """Return the norm to which gradients at the fit are to be clipped next, as the rows show it.

        A larger radius needs more noise. A smaller one clips more, so that more depends on the rows,
        which are few. Among those that keep a share of _KEPT of the length of all gradients together,
        the one is chosen with the least variance over the square of the share. Gradients of a rare
        class make up half of that length, so that they cannot be clipped away.

        noise: the standard deviation of a value of the mean gradient, divided by the radius.
        """
        factors = self._unclipped(self.weights)
        probabilities = self._label_probabilities(self.weights)
        lengths = self._lengths(factors)
        best_radius, least_variance = 0.0, math.inf
        for kept in _KEPT:
            radius = max(_radius_that_keeps(kept, lengths, probabilities), _LEAST_RADIUS)
            shrinkage = np.minimum(1, radius / np.maximum(lengths, _TINY))
            expected = np.einsum("njc,nc->nj", factors, shrinkage * probabilities)
            squared_lengths = np.square(expected).sum(axis=1) * np.square(self._norms)
            of_rows = float(squared_lengths.mean()) / len(self.weights) / len(self._rows)
            variance = ((noise * radius) ** 2 + of_rows) / kept**2
            if variance < least_variance:
                best_radius, least_variance = radius, variance
        return best_radius

    def gradient_norm(self) -> float:
        """Return the root mean square of the norm of a record's gradient at the fit, by the rows."""
        lengths = self._lengths(self._unclipped(self.weights))
        probabilities = self._label_probabilities(self.weights)
        return math.sqrt(float((probabilities * np.square(lengths)).sum(axis=1).mean()))

    # State

    def state(self) -> dict[str, Any]:
        """Return all that changes during a run, as an object for JSON; `restore` reads it back."""
        return {
            "weights": self.weights.tolist(),
            "seen": [answer.observed.state() for answer in self._answers],
            "misfit": self.misfit,
            "suit": self.rows_suit,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a stored `state()`. Raises UsageError if it is not one of such a model."""
        (self.weights,) = read_vectors(state, len(self.weights), "weights")
        with reading_state("learning from gradients"):
            self.misfit, self.rows_suit = float(state["misfit"]), bool(state["suit"])
            self._answers = []
            for observed in state["seen"]:
                self.add(Observation.of_state(observed))


def _radius_that_keeps(share: float, lengths: Floats, probabilities: Floats) -> float:
    """Return the norm to which gradients can be clipped so that a share of their length is left.

    It is the least of their lengths for which that holds.

    lengths: of the gradients of each row with each label (n x labels). probabilities: of the labels.
    """
    order = lengths.ravel().argsort()
    # Each length is tried as the radius; gradients count by the probabilities of their labels.
    radii, counts = lengths.ravel()[order], probabilities.ravel()[order]
    length_of_unclipped = np.cumsum(counts * radii)
    number_of_clipped = counts.sum() - np.cumsum(counts)
    length_left = length_of_unclipped + number_of_clipped * radii
    position = int(np.searchsorted(length_left, share * length_left[-1]))
    return float(radii[min(position, len(radii) - 1)])
