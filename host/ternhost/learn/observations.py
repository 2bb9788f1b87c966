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
_LEAST_RADIUS = DIRECTION / 10  # at other models
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
        """Clip gradients (n x values) as the devices do: each value, or the whole vector."""
        if self.tau is not None:
            gradients = np.clip(gradients, -self.tau, self.tau)
        if self.radius is not None:
            norms = np.linalg.norm(gradients, axis=1, keepdims=True)
            gradients = gradients * np.minimum(1, self.radius / np.maximum(norms, _TINY))
        return gradients

    def joined(self, other: "Observation") -> "Observation | None":
        """Combine two observations by inverse variance; None if they answer different questions."""
        same_clip = (self.radius, self.tau) == (other.radius, other.tau)
        if not same_clip or not np.array_equal(self.asked, other.asked):
            return None
        other_weight = self.variance / max(self.variance + other.variance, _TINY)
        own_weight = 1 - other_weight
        gradient = own_weight * self.gradient + other_weight * other.gradient
        return replace(self, gradient=gradient, variance=own_weight * self.variance)


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
        """Begin without an answer.

        model: its number (wire.md). rows: public rows (n x features), the constant 1 first.
        classes: that have weights of their own. invented: the rows are `made_up`.
        """
        self.model = model
        self.classes = classes
        self._invented = invented
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
        """Take an answer; if it is to the same question as the last one, the two are combined."""
        joined = None
        if self._answers:
            joined = self._answers[-1].joined(answer)
        if joined:
            self._answers[-1] = joined
        else:
            self._answers.append(answer)
        if len(self._answers) == 1:  # the first one is new, or better known
            self._judge()

    # The fit

    def fit(self) -> Floats:
        """Fit the weights to all answers, and return them (values).

        If the rows do not suit the population, the weights go along the first gradient.
        """
        for _ in range(_STEPS):
            if self.suited:
                self._step()
            else:
                self.weights = self.weights + _STEP * (self._uncorrelated_fit - self.weights)
        return self.weights

    def _step(self) -> None:
        """Make a Gauss-Newton step of the length that explains the answers best, or none.

        Far from the optimum answers are not linear in the weights, so that a whole step may
        overshoot.
        """
        precision, target = self._system(self.weights)
        posterior = shrink(precision, target)
        lengths = _STEP / 2.0 ** np.arange(_HALVED)[:, None]
        moved = self.weights + lengths * (posterior.mean - self.weights)  # a row for each length
        candidates = [self.weights, *np.clip(moved, -LARGEST_WEIGHT, LARGEST_WEIGHT)]
        losses = []
        for weights in candidates:
            prior_loss = weights @ weights / posterior.variance
            losses.append(self._unexplained(weights) + prior_loss)
        self.weights = candidates[int(np.argmin(losses))]

    def lengthened(self) -> Floats:
        """Return the last fit, multiplied by the factor of _LENGTHS that explains the answers best.

        Shrinking makes models of classes that are easily told apart too short, which spoils their
        probabilities. Made-up rows show nothing of it.
        """
        if self._invented or not self.suited or not self.weights.any():
            return self.weights
        candidates = []
        for factor in _LENGTHS:
            candidates.append(np.clip(factor * self.weights, -LARGEST_WEIGHT, LARGEST_WEIGHT))
        return min(candidates, key=self._unexplained)

    def deviations(self) -> Floats:
        """The posterior standard deviation of each weight (values)."""
        precision, target = self._system(self.weights)
        posterior = shrink(precision, target)
        return np.asarray(np.sqrt(np.diag(posterior.covariance)))

    def _unexplained(self, weights: Floats) -> float:
        """Return the chi-squared of all answers, if these weights were the optimum."""
        chi_squared = 0.0
        for answer in self._answers:
            expected = self._expected(answer, weights)
            variance = max(answer.variance + expected.variance, _TINY)
            squared_error = float(np.square(expected.mean - answer.gradient).sum())
            chi_squared += squared_error / variance
        return chi_squared

    def _system(self, weights: Floats) -> tuple[Floats, Floats]:
        """Make linear equations of all answers, which hold near these weights.

        Returns the precision matrix (values x values), and the matrix times the solution (values).
        """
        precision = np.zeros((len(weights), len(weights)))
        target = np.zeros_like(weights)
        for answer in self._answers:
            hessian = self._hessian(answer, weights)
            expected = self._expected(answer, weights)
            answer_weight = 1 / max(answer.variance + expected.variance, _TINY)
            # Near `weights`, hessian @ w = hessian @ weights + expected.mean - gradient.
            right_side = hessian @ weights + expected.mean - answer.gradient
            precision += answer_weight * hessian.T @ hessian
            target += answer_weight * hessian.T @ right_side
        return precision, target

    # Questions

    def question(self) -> tuple[Floats, float]:
        """Choose the weights (values) at which to ask next, and the radius of clipping.

        The gradients at the fitted model tell more than those at the model 0 if the fit is good
        enough. There the radius keeps a share _WHOLE of the gradients unclipped.
        """
        if not self._answers or not self.suited or self.certain < SURE:
            return np.zeros_like(self.weights), DIRECTION
        means = self._means(self.weights)
        row_lengths = np.linalg.norm(self._rows, axis=1)[:, None]
        # Each row may have either label: the size of its gradient for label 0, then for label 1,
        # and the probability of that label.
        sizes = (row_lengths * np.hstack([means, 1 - means])).ravel()
        probabilities = np.hstack([1 - means, means]).ravel()
        # The radius is a quantile of the sizes.
        order = sizes.argsort()
        cumulated = probabilities[order].cumsum()
        quantile = cumulated.searchsorted(_WHOLE * probabilities.sum())
        return self.weights, max(float(sizes[order[quantile]]), _LEAST_RADIUS)

    def promise(self, asked: Observation) -> float:
        """Return the expected squared error of scores after a single answer to a question.

        It does not depend on the answer's gradient. The less, the better: it compares mechanisms
        and clips. Before the answer, scores have a variance of 4.
        """
        hessian = self._hessian(asked, asked.asked)
        expected = self._expected(asked, asked.asked)
        # The variance of scores is w.T @ second_moment @ w, for weights w of mean 0.
        second_moment = self._rows.T @ self._rows / len(self._rows)
        second_moments = np.kron(np.eye(self.classes), second_moment)
        prior_precision = np.eye(len(second_moments)) * np.trace(second_moments) / 4
        variance = asked.variance + expected.variance
        precision = hessian.T @ hessian / variance + prior_precision
        return float(np.trace(np.linalg.solve(precision, second_moments)))

    # The rows

    def _judge(self) -> None:
        """Decide by the first gradient whether the rows suit the population.

        The rows are compared with uncorrelated features of the same curvature: which of them
        explain the gradient with more evidence? Sets `suited` and `misfit`.
        """
        first = self._answers[0]
        zeros = np.zeros_like(self.weights)
        hessian = self._hessian(first, zeros)
        target = self._expected(first, zeros).mean - first.gradient
        variance = max(first.variance, _TINY)
        fitted = _solution(hessian, target, variance).mean
        fitted = np.clip(fitted, -LARGEST_WEIGHT, LARGEST_WEIGHT)
        variance += self._expected(first, fitted).variance

        uncorrelated = self._uncorrelated(hessian)
        by_rows = _solution(hessian, target, variance)
        by_uncorrelated = _solution(uncorrelated, target, variance)

        # Directions in which the rows hardly vary: the gradient should have only noise there.
        directions, curvatures, _ = np.linalg.svd(hessian)
        is_silent = np.square(curvatures) * min(by_rows.variance, _STEEP) < variance
        chi_squared = np.square(directions.T[is_silent] @ target) / variance
        self.misfit = 1.0
        if is_silent.any():
            self.misfit = float(chi_squared.mean())
        # The evidence of a larger variance there.
        excess = len(chi_squared) / 2 * (self.misfit - 1 - math.log(max(self.misfit, 1.0)))

        odds = by_rows.evidence - by_uncorrelated.evidence  # logarithm
        doubt = _DOUBT * (1 + self.certain / SURE)  # no rows explain clear answers fully
        if self._invented:
            self.suited = odds >= 0
        else:
            self.suited = min(odds, -excess) >= -doubt
        self._uncorrelated_fit = _along(by_uncorrelated.mean, uncorrelated, hessian)

    def _uncorrelated(self, hessian: Floats) -> Floats:
        """Return the Hessian of uncorrelated features with the same mean curvature."""
        classes, d = self.classes, self._rows.shape[1]
        by_class_and_feature = hessian.reshape(classes, d, classes, d)
        # For each pair of classes, the mean of the block's diagonal.
        mean_curvature = np.einsum("iaja->ij", by_class_and_feature) / d
        return np.kron(mean_curvature, np.eye(d))

    # What the rows expect

    def _gradients(self, asked: Observation) -> tuple[Floats, Floats]:
        """Express the rows' gradients, at the weights of a question, by their mean labels.

        Returns each row's gradient where its mean labels are 0 (n x classes x features), and by how
        much it falls with each mean label (n x features).
        """
        predicted = self._means(asked.asked)
        if self.model == LOGISTIC:
            # The clipped gradient of each row with label 0, and with label 1.
            negative = asked.clipped(self._rows * (predicted - 0))
            positive = asked.clipped(self._rows * (predicted - 1))
            return negative[:, None], negative - positive
        return predicted[:, :, None] * self._rows[:, None], self._rows

    def _expected(self, asked: Observation, weights: Floats) -> Expected:
        """Return the answer to a question that is expected if these weights are the optimum."""
        gradients, falls = self._gradients(asked)
        mean_labels = self._means(weights)
        of_rows = gradients - mean_labels[:, :, None] * falls[:, None]
        of_rows = of_rows.reshape(len(self._rows), -1)  # n x values
        variance_of_mean = float(np.square(of_rows).mean()) / len(of_rows)
        return Expected(of_rows.mean(axis=0), variance_of_mean)

    def _hessian(self, asked: Observation, weights: Floats) -> Floats:
        """Return by how much the expected mean gradient falls with each weight.

        The result (values x values) has a block of features x features for each pair of classes.
        """
        n, d = self._rows.shape
        classes = self.classes
        means = self._means(weights)
        _, falls = self._gradients(asked)
        blocks = np.empty((classes, d, classes, d))
        for i in range(classes):
            for j in range(classes):
                # The derivative of the mean label of class i by the score of class j, of each row.
                if self.model == LINEAR:
                    slopes = np.ones(n)
                else:
                    slopes = means[:, i] * ((i == j) - means[:, j])
                blocks[i, :, j] = (falls * slopes[:, None]).T @ self._rows / n
        return blocks.reshape(classes * d, -1)

    def _means(self, weights: Floats) -> Floats:
        """Return the mean label of each row by a model (n x classes): for classes, probabilities."""
        z: Floats = self._rows @ weights.reshape(self.classes, -1).T
        if self.model == LINEAR:
            return z
        if self.model == LOGISTIC:
            return (1 + np.tanh(z / 2)) / 2
        exponentials = np.exp(z - z.max(axis=1, keepdims=True))
        return np.asarray(exponentials / exponentials.sum(axis=1, keepdims=True))

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
            for asked, gradient, variance, radius, tau in state["seen"]:
                answer = Observation(np.array(asked), np.array(gradient), variance, radius, tau)
                self._answers.append(answer)
            if self._answers:
                self._judge()


def _along(weights: Floats, uncorrelated: Floats, hessian: Floats) -> Floats:
    """Scale weights so that they are as long as the rows' curvature in their direction allows.

    weights: fitted to a gradient with the Hessian of uncorrelated features. hessian: of the rows.
    """
    curvature = weights @ hessian @ weights
    if curvature <= 0:
        return weights * 0.0
    return np.asarray(weights * (weights @ uncorrelated @ weights / curvature))


def made_up(features: int, direction: Floats | None = None) -> Floats:
    """Make up rows (n x features) that are spread evenly around their mean.

    direction: the mean of x / |x| (features), as far as known. Its first value is the mean of 1 /
    |x|, which gives the size of the rows. Without it, the features have uniform variance.
    """
    mean = np.eye(features)[0]  # the constant 1, and 0 for all other features
    squared_norm = 1 + (features - 1) / 3  # the mean of |x|**2; 1/3 is that of a uniform feature
    if direction is not None:
        inverse_norm = min(max(float(direction[0]), features**-0.5), 1.0)
        squared_norm = inverse_norm**-2
        others = direction[1:] / inverse_norm
        most = math.sqrt(max(_MEAN * squared_norm - 1, 0) / max(others @ others, _TINY))
        mean = np.concatenate([[1.0], others * min(1.0, most)])

    # The columns of a Hadamard matrix are uncorrelated signs; the constant does not vary.
    size = 1 << (features - 1).bit_length()  # the next power of two
    signs = transform(np.eye(size, dtype=np.int32))
    spread = signs[:, :features].astype(np.float64)
    spread[:, 0] = 0
    variance = max(squared_norm - mean @ mean, 0) / max(features - 1, 1)
    return np.asarray(mean + spread * math.sqrt(variance))


@dataclass(frozen=True)
class Posterior:
    """The posterior of weights w ~ N(0, variance)."""

    mean: Floats
    covariance: Floats
    variance: float
    evidence: float  # its logarithm, up to a constant of the observations


def shrink(precision: Floats, target: Floats) -> Posterior:
    """Compute the posterior of weights w, whose prior is normal with mean 0.

    The observations are target = precision w + noise with the covariance `precision` (values x
    values). The variance of the prior is the one with the most evidence (empirical Bayes).
    """
    eigenvalues, directions = np.linalg.eigh(precision)
    eigenvalues = np.maximum(eigenvalues, 0)  # which rounding may have made negative
    along = directions.T @ target
    # The posterior variance of w along each eigenvector: prior variances x directions.
    posterior_variances = 1 / (eigenvalues + 1 / _VARIANCES[:, None])
    log_volumes = np.log1p(eigenvalues * _VARIANCES[:, None])
    evidence = 0.5 * (np.square(along) * posterior_variances - log_volumes).sum(axis=1)
    best = int(evidence.argmax())
    covariance = directions * posterior_variances[best] @ directions.T
    return Posterior(
        mean=covariance @ target,
        covariance=covariance,
        variance=float(_VARIANCES[best]),
        evidence=float(evidence[best]),
    )


def _solution(hessian: Floats, target: Floats, variance: float) -> Posterior:
    """Compute the posterior of w, given target = hessian w + noise of this variance."""
    return shrink(hessian.T @ hessian / variance, hessian.T @ target / variance)
