"""Where the optimum is, by noisy mean gradients and public rows: features of records without
labels.

Let h be the mean of a label by a model. A gradient asked for at weights v has the mean E[(h(x v) -
h(x w)) x], with w the optimum and E over the population. Public rows stand for the population, so
that every answer is an equation of w, linear near the last fit. All equations are solved together,
with w shrunk by evidence.

Devices clip gradients. For a logistic model each row determines what a clipped gradient is with
either label. So the clip is part of the equation, and leaves no bias if the model is right. Then
the smallest radius is best: at the model 0, where |x| / 2 is at least DIRECTION because of the
constant 1, devices report the directions of their gradients.

Public rows of another population would ruin this. They do not suit (`rows_suit`) where uncorrelated
features explain the first gradient with much more evidence, or where it has more than noise in
directions in which rows hardly vary. Then the model goes along that gradient. Without public rows,
`made_up` ones do.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np

from tern.wire import LINEAR, LOGISTIC
from ternhost.learn.models.losses import mean_labels
from ternhost.learn.models.optimisers import read_vectors
from ternhost.learn.parameters import LARGEST_WEIGHT, Floats, reading_state

DIRECTION = 0.5  # the radius at the model 0
_LEAST_RADIUS = DIRECTION / 10  # at other models
SURE = 20.0  # `signal_to_noise`, from which asking again at the fitted model is better
_STEPS = 6  # Gauss-Newton steps of a fit
_STEP = 0.7  # each goes so much of the way at most
_HALVED = 5  # how often a step may be halved
_VARIANCES = 10.0 ** np.arange(-4, 4, 0.25)  # of weights, among which the evidence chooses
_LENGTHS = np.linspace(1, 2.5, 16)  # of a model, in those of its fit
_WHOLE = 0.6  # of the gradients at a fitted model, the share that is not clipped
_DOUBT = 2.0  # logarithm of the odds against public rows from which they are left out
_STEEP = 10.0  # variance of weights, more than any population has
_TINY = 1e-12  # the least variance, or length
# Learning rates of a descent, among which the best is found, as shares of the largest stable one.
_RATES = np.geomspace(0.003, 0.98, 25)
_FAR = 0.01  # of |mean x / |x||**2, at most 1: the `Distance` from which rows are others
_SIGNIFICANT = 3.0  # so many standard deviations a distance must be, too
_MEAN = 0.9  # of |x|**2, the most that may be of the mean x


@dataclass(frozen=True)
class Observation:
    """A noisy mean gradient over many devices, and the question that they answered with it.

    A gradient has a value for each of the d weights of the model (d = classes * features).
    """

    weights: Floats  # the model at which the devices computed their gradients (d)
    gradient: Floats  # the mean gradient, with noise (d)
    variance: float  # of the noise of each value
    radius: float | None = None  # the l2 norm to which a device clipped its gradient; None: none
    tau: float | None = None  # the absolute size to which it clipped each value; None: none

    @classmethod
    def of_state(cls, state: Sequence[Any]) -> Self:
        """Read back a `state()`. Raises ValueError or TypeError for something else."""
        weights, gradient, variance, radius, tau = state
        return cls(
            weights=np.array(weights, float),
            gradient=np.array(gradient, float),
            variance=float(variance),
            radius=radius,
            tau=tau,
        )

    def state(self) -> list[Any]:
        """Return the observation for JSON: its fields in their order."""
        weights, gradient = self.weights.tolist(), self.gradient.tolist()
        return [weights, gradient, self.variance, self.radius, self.tau]

    @property
    def clearness(self) -> float:
        """The mean square of the gradient over the variance of its noise."""
        return float(np.square(self.gradient).mean() / max(self.variance, _TINY))

    def clipped(self, gradients: Floats) -> Floats:
        """Clip gradients in the same way as the devices did: each value, or the whole vector.

        gradients: n x d, one gradient in a row. The result has the same shape.
        """
        if self.tau is not None:
            gradients = np.clip(gradients, -self.tau, self.tau)
        if self.radius is not None:
            norms = np.linalg.norm(gradients, axis=1, keepdims=True)
            shrinkage = np.minimum(1, self.radius / np.maximum(norms, _TINY))
            gradients = gradients * shrinkage
        return gradients

    def joined(self, other: Self) -> Self | None:
        """Combine two observations of the same mean gradient into one that is more precise.

        Both are weighted by their inverse variance. Returns None if they answer different
        questions, that is, if the devices computed gradients at other weights or clipped them in
        another way.
        """
        # A radius clips whole gradients, and tau each of their values.
        same_clip = (self.radius, self.tau) == (other.radius, other.tau)
        same_weights = np.array_equal(self.weights, other.weights)
        if not same_clip or not same_weights:
            return None
        # The share of `other` is (1 / other.variance) / (1 / self.variance + 1 / other.variance).
        other_share = self.variance / max(self.variance + other.variance, _TINY)
        own_share = 1 - other_share
        gradient = own_share * self.gradient + other_share * other.gradient
        # The variance of this mean is 1 / (1 / self.variance + 1 / other.variance).
        return replace(self, gradient=gradient, variance=own_share * self.variance)


class Distance(NamedTuple):
    """How far public rows are from the features of devices: in the mean of x / |x|, squared."""

    squared: float  # without the noise of the devices' reports, so that it may be below 0
    deviation: float  # of `squared` by that noise, if the rows are right

    @property
    def is_precise(self) -> bool:
        """Whether more reports about features would hardly show a smaller distance."""
        return _SIGNIFICANT * self.deviation <= 2 * _FAR

    @property
    def is_far(self) -> bool:
        """Whether the rows are probably of another population."""
        return self.squared > max(_FAR, _SIGNIFICANT * self.deviation)


def distance(rows: Floats, features: Observation) -> Distance:
    """Compare rows with the devices' features, by the mean of the directions x / |x|.

    As the constant 1 is among the features, the mean shows their size, too.

    rows: n x d, the constant first.
    features: the mean direction that devices have reported (d), with noise.
    """
    directions = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    difference = directions.mean(axis=0) - features.gradient
    noise = len(difference) * features.variance
    return Distance(
        squared=float(difference @ difference) - noise,
        deviation=features.variance * math.sqrt(2 * len(difference)),
    )


class Expected(NamedTuple):
    """The mean gradient that devices are expected to report if the optimum is at given weights."""

    mean: Floats  # the expected mean gradient (d)
    variance: float  # of each value of it: the error that is due to the small number of rows


class Observations:
    """What is known of the optimum of a model: mean gradients that devices have reported.

    Each is an observation, the noisy answer to a question: the mean gradient at these weights,
    please. The first question must be at weights of 0. Rows, features of public records, stand for
    those of the devices. `fit` finds the weights that explain all observations.
    """

    def __init__(
        self, model: int, rows: Floats, classes: int = 1, *, invented: bool = False
    ) -> None:
        """Begin without any observation, at weights of 0.

        An observation is a mean gradient that devices have reported.

        model: the number of the model: LINEAR, LOGISTIC or SOFTMAX_GRADIENT (wire.md).
        rows: features of records that stand for the population (n x features), the constant 1
            first.
        classes: the number of classes that have weights of their own; 1 except for softmax
            regression.
        invented: whether the rows are `made_up`, since no public rows are known.
        """
        self.model = model
        self.classes = classes
        self._invented = invented
        self._rows = rows
        self._answers: list[Observation] = []
        self.weights: Floats = np.zeros(classes * rows.shape[1])  # of the last fit (d)

        # Whether the rows are of the same population as the devices' records, as far as known.
        self.rows_suit: bool = True
        # Chi-squared of the first gradient, averaged over the directions in which rows hardly vary:
        # about 1 if the rows are right, as it has nothing but noise there.
        self.misfit = 1.0
        # The weights that the first gradient gives if features are taken to be uncorrelated.
        self._uncorrelated_fit = self.weights

    @property
    def signal_to_noise(self) -> float:
        """How clear the gradient at weights of 0 is: its mean square over its noise's variance."""
        return max(answer.clearness for answer in self._answers_at_zero)

    @property
    def rows_error_over_noise(self) -> float:
        """How far the small number of rows, and not the noise of the answers, limits the fit.

        It is a ratio of two variances of the gradient at weights of 0: that of what the rows let
        one expect, which is large if the rows are few, and that of the noise.
        """
        ratios = []
        for answer in self._answers_at_zero:
            variance_by_rows = self._expected(answer, self.weights).variance
            ratios.append(variance_by_rows / max(answer.variance, _TINY))
        return max(ratios)

    @property
    def _answers_at_zero(self) -> list[Observation]:
        """The observations at weights of 0; they differ in how devices clipped gradients."""
        return [answer for answer in self._answers if not answer.weights.any()]

    def add(self, answer: Observation) -> None:
        """Add an observation; it is merged with an earlier one that answers the same question.

        They do if devices took gradients at the same weights, and clipped them in the same way.
        """
        for number, earlier in enumerate(self._answers):
            joined = earlier.joined(answer)
            if joined:
                self._answers[number] = joined
                break
        else:
            number = len(self._answers)
            self._answers.append(answer)

        if number == 0:  # the first one shows whether the rows are of the devices' population
            self._judge_rows()

    # The fit

    def fit(self) -> Floats:
        """Fit the weights of the model to all mean gradients observed so far, and return them (d).

        The fit uses rows, features of public records that stand for those of the devices. If they
        are of another population, they are not used: then the weights approach those that the first
        gradient gives for uncorrelated features.
        """
        for _ in range(_STEPS):
            if self.rows_suit:
                self._step()
            else:
                self.weights = self.weights + _STEP * (self._uncorrelated_fit - self.weights)
        return self.weights

    def _step(self) -> None:
        """Move the weights a step closer to explaining all observed mean gradients (Gauss-Newton).

        The step leads towards the solution of linearised equations. Far from the optimum the
        gradients are not linear in the weights, so that a whole step may overshoot. So several
        shorter steps, and none at all, are compared by their penalised chi-squared, and the best is
        made.
        """
        precision, target = self._system(self.weights)
        posterior = shrink(precision, target)

        # Step lengths of 0.7, 0.35, 0.175 and so on, in a column: one row of `moved` for each of
        # them.
        lengths = _STEP / 2.0 ** np.arange(_HALVED)[:, None]
        moved = self.weights + lengths * (posterior.mean - self.weights)
        candidates = [self.weights, *np.clip(moved, -LARGEST_WEIGHT, LARGEST_WEIGHT)]

        losses = []
        for weights in candidates:
            # The penalty of the normal prior that `shrink` has chosen, |w|**2 / its variance.
            prior_loss = weights @ weights / posterior.variance
            losses.append(self._unexplained(weights) + prior_loss)
        self.weights = candidates[int(np.argmin(losses))]

    def lengthened(self) -> Floats:
        """Return the fitted weights, multiplied by the factor that explains the observations best.

        `fit` shrinks weights towards 0. For classes that are easily told apart this makes the
        weights too short, which spoils the predicted probabilities; a factor from 1 to 2.5 repairs
        that. Rows that are made up, or that do not suit the population, cannot show the right
        length: then the weights stay as they are.
        """
        if self._invented or not self.rows_suit or not self.weights.any():
            return self.weights
        candidates = []
        for factor in _LENGTHS:
            candidates.append(np.clip(factor * self.weights, -LARGEST_WEIGHT, LARGEST_WEIGHT))
        return min(candidates, key=self._unexplained)

    def deviations(self) -> Floats:
        """Return the standard deviation of each weight of the fit, given all observations (d)."""
        precision, target = self._system(self.weights)
        posterior = shrink(precision, target)
        return np.asarray(np.sqrt(np.diag(posterior.covariance)))

    def _unexplained(self, weights: Floats) -> float:
        """Return how badly these weights explain all observed mean gradients: their chi-squared.

        It is the sum over all observations of |expected - observed gradient|**2 / variance. The
        expected gradient is the one that devices would report if these weights were the optimum,
        and the variance is that of the noise plus that of the expectation.
        """
        chi_squared = 0.0
        for answer in self._answers:
            expected = self._expected(answer, weights)
            variance = max(answer.variance + expected.variance, _TINY)
            squared_error = float(np.square(expected.mean - answer.gradient).sum())
            chi_squared += squared_error / variance
        return chi_squared

    def _system(self, weights: Floats) -> tuple[Floats, Floats]:
        """Return linear equations A w = b that all observations make of the optimum w.

        Each observed gradient g is linearised near `weights`, w0. With its Hessian H, and the
        gradient g0 that would be expected if w0 were the optimum, g is about g0 - H (w - w0), up to
        noise of a variance v. So H w = H w0 + g0 - g. The normal equations add up all observations:
        - A = sum of H^T H / v (d x d);
        - b = sum of H^T (H w0 + g0 - g) / v (d).
        """
        precision = np.zeros((len(weights), len(weights)))
        target = np.zeros_like(weights)
        for answer in self._answers:
            hessian = self._hessian(answer, weights)
            expected = self._expected(answer, weights)
            inverse_variance = 1 / max(answer.variance + expected.variance, _TINY)
            right_side = hessian @ weights + expected.mean - answer.gradient
            precision += inverse_variance * hessian.T @ hessian
            target += inverse_variance * hessian.T @ right_side
        return precision, target

    # Questions

    def question(self, *, at_zero: bool = False) -> tuple[Floats, float]:
        """Choose at which weights devices compute gradients next, and to which norm they clip them.

        Gradients at the fitted model tell more than those at weights of 0, but only once the fit is
        good enough. At weights of 0 the norm is DIRECTION, at which nothing but their directions is
        left. At the fitted model the norm is such that a share _WHOLE of the gradients stays
        unclipped, as far as the rows, which stand for the devices' records, show it.

        at_zero: whether to ask at weights of 0 in any case.
        Returns the weights (d) and the l2 norm.
        """
        is_fit_usable = bool(self._answers) and self.rows_suit and self.signal_to_noise >= SURE
        if at_zero or not is_fit_usable:
            return np.zeros_like(self.weights), DIRECTION

        means = self._means(self.weights)
        row_norms = np.linalg.norm(self._rows, axis=1)[:, None]
        # Each row may have either label. With label 0 its gradient has the norm |x| * mean, with
        # label 1 |x| * (1 - mean); `means` are the probabilities of label 1.
        norms = (row_norms * np.hstack([means, 1 - means])).ravel()
        probabilities = np.hstack([1 - means, means]).ravel()
        # The radius is the _WHOLE quantile of these norms, weighted by their probabilities.
        order = norms.argsort()
        cumulated = probabilities[order].cumsum()
        quantile_index = cumulated.searchsorted(_WHOLE * probabilities.sum())
        radius = float(norms[order[quantile_index]])
        return self.weights, max(radius, _LEAST_RADIUS)

    def expected_error(self, question: Observation) -> float:
        """Return the squared error of a model's scores that is expected after one answer.

        It serves to compare ways to ask: the mechanism that adds the least noise, and the clipping
        that loses the least. Scores w.x of an unknown optimum w have a variance of 4 before the
        answer; the result is what is left of it.

        question: says how devices clip, and how large the noise is; its gradient is not used.
        """
        hessian = self._hessian(question, question.weights)
        expected = self._expected(question, question.weights)
        noise = question.variance + expected.variance

        # For weights w of mean 0, the variance of scores is w.T @ second_moments @ w, where
        # second_moments has the block X^T X / n for each class.
        second_moment = self._rows.T @ self._rows / len(self._rows)
        second_moments = np.kron(np.eye(self.classes), second_moment)
        # The prior of each weight has a variance such that the scores have a variance of 4.
        prior_precision = np.eye(len(second_moments)) * np.trace(second_moments) / 4
        posterior_precision = hessian.T @ hessian / noise + prior_precision
        return float(np.trace(np.linalg.solve(posterior_precision, second_moments)))

    def expected_error_of_descent(self, question: Observation, rounds: int) -> float:
        """Return the squared error of a model's scores that is expected after a gradient descent.

        Scores have a variance of 4 before it, as in `expected_error`. The loss is taken to be
        quadratic, with the Hessian at weights of 0, and the learning rate to be the best one.

        question: says how devices clip in each round, and how large the noise of the mean gradient
            of a round is; its gradient is not used.
        rounds: how many steps are made.
        """
        hessian = self._hessian(question, question.weights)
        second_moment = self._rows.T @ self._rows / len(self._rows)
        second_moments = np.kron(np.eye(self.classes), second_moment)
        identity = np.eye(len(second_moments))
        prior_covariance = identity * 4 / np.trace(second_moments)

        # With steps above 2 / the largest curvature, a descent moves away from the optimum.
        largest_curvature = float(np.abs(np.linalg.eigvals(hessian)).max())
        errors = []
        for rate in _RATES * 2 / max(largest_curvature, _TINY):
            # A step takes the difference from the optimum to (I - rate H) times itself, plus noise.
            step = identity - rate * hessian
            noise = rate**2 * question.variance * identity
            covariance = prior_covariance  # of the difference of the weights from the optimum
            for _ in range(rounds):
                covariance = step @ covariance @ step.T + noise
            errors.append(float(np.trace(second_moments @ covariance)))
        return min(errors)

    # The rows

    def _judge_rows(self) -> None:
        """Decide whether the rows, public features, are of the population of the devices.

        The first gradient shows it. Two hypotheses explain it: that the population's features are
        like the rows, or that its features are uncorrelated, with the same mean curvature of the
        loss. Rows do not suit if the second has much more evidence, or if the gradient is not 0 in
        directions in which rows hardly vary. Sets `rows_suit`, `misfit`, and the weights to use if
        the rows do not suit.
        """
        first = self._answers[0]
        zeros = np.zeros_like(self.weights)
        hessian = self._hessian(first, zeros)  # by the rows
        # The first gradient was asked for at weights of 0, so that hessian @ w = target up to
        # noise.
        target = self._expected(first, zeros).mean - first.gradient
        variance = max(first.variance, _TINY)
        # The error that few rows cause is added to the noise. It depends on the optimum, which a
        # first, rough fit is enough for.
        rough_fit = _solution(hessian, target, variance).mean
        rough_fit = np.clip(rough_fit, -LARGEST_WEIGHT, LARGEST_WEIGHT)
        variance += self._expected(first, rough_fit).variance

        uncorrelated = self._uncorrelated(hessian)
        by_rows = _solution(hessian, target, variance)
        by_uncorrelated = _solution(uncorrelated, target, variance)
        self._uncorrelated_fit = _along(by_uncorrelated.mean, uncorrelated, hessian)

        excess = self._excess(hessian, target, variance, by_rows.variance)
        log_odds = by_rows.evidence - by_uncorrelated.evidence  # for the rows
        # How much evidence against the rows is needed. Clear answers have little noise, and no rows
        # explain them fully: so more is needed.
        doubt = _DOUBT * (1 + first.clearness / SURE)
        if self._invented:  # made-up rows have no credit to begin with
            self.rows_suit = log_odds >= 0
        else:
            self.rows_suit = log_odds >= -doubt and excess <= doubt

    def _excess(
        self, hessian: Floats, target: Floats, variance: float, prior_variance: float
    ) -> float:
        """Return the evidence that a gradient is not 0 where rows (public features) hardly vary.

        If the rows are of the right population, it has only noise in these directions. The evidence
        is the gain in log-likelihood if the variance in these directions is fitted instead of
        known. Sets `misfit`.

        hessian, target: the two sides of the equation hessian @ w = target for weights w (d x d,
            and d).
        variance: the variance of the noise in each value of `target`.
        prior_variance: the variance that each weight has before the answer.
        """
        directions, curvatures, _ = np.linalg.svd(hessian)
        # An optimum w moves the gradient by hessian @ w. In the silent directions that is less than
        # its noise.
        signal_variance = np.square(curvatures) * min(prior_variance, _STEEP)
        is_silent = signal_variance < variance
        chi_squared = np.square(directions.T[is_silent] @ target) / variance
        self.misfit = 1.0  # its mean; 1 is expected of noise alone
        if is_silent.any():
            self.misfit = float(chi_squared.mean())

        # For n values of mean square r in standard deviations, fitting the variance gains n / 2 *
        # (r - 1 - log(r)) if r is above 1. Too small a variance is no sign against the rows.
        larger_misfit = max(self.misfit, 1.0)
        return len(chi_squared) / 2 * (self.misfit - 1 - math.log(larger_misfit))

    def _uncorrelated(self, hessian: Floats) -> Floats:
        """Return the Hessian that uncorrelated features of the same mean curvature would have.

        hessian: the Hessian of the rows. Both matrices (d x d) have a block of features x features
            for each pair of classes. Each block becomes the identity times the mean of its
            diagonal.
        """
        classes, features = self.classes, self._rows.shape[1]
        blocks = hessian.reshape(classes, features, classes, features)
        diagonal_sums = np.einsum("iaja->ij", blocks)  # of the block of classes i and j
        return np.kron(diagonal_sums / features, np.eye(features))

    # What the rows expect

    def _gradients(self, question: Observation) -> tuple[Floats, Floats]:
        """Return the clipped gradient of each row as a linear function of the row's label.

        For a mean label y (of each class) the gradient is at_zero - y * slope. It is taken at the
        weights of the question, and clipped as the question says. Without clipping, at_zero is the
        prediction times the row x, and slope is x.

        Returns at_zero (n x classes x features), the gradient for a mean label of 0, and slope (n x
        features), which all classes share.
        """
        predicted = self._means(question.weights)
        if self.model == LOGISTIC:
            # A record has the label 0 or 1, and its gradient (prediction - label) x is clipped.
            with_label_0 = question.clipped(self._rows * (predicted - 0))
            with_label_1 = question.clipped(self._rows * (predicted - 1))
            return with_label_0[:, None], with_label_0 - with_label_1
        return predicted[:, :, None] * self._rows[:, None], self._rows

    def _expected(self, question: Observation, weights: Floats) -> Expected:
        """Return the mean gradient that answers a question, if the optimum is at these weights.

        The optimum gives the mean label y of each row, and so its gradient at_zero - y * slope
        (`_gradients`), which is averaged over the rows.
        """
        at_zero, slope = self._gradients(question)
        mean_labels = self._means(weights)  # n x classes
        gradients = at_zero - mean_labels[:, :, None] * slope[:, None]  # n x classes x features
        gradients = gradients.reshape(len(self._rows), -1)  # n x d
        mean_square = float(np.square(gradients).mean())
        return Expected(mean=gradients.mean(axis=0), variance=mean_square / len(gradients))

    def _hessian(self, question: Observation, weights: Floats) -> Floats:
        """Return how the expected mean gradient depends on the optimum: its negated derivative.

        The result (d x d) has a block of features x features for each pair of classes i and j:

            F^T diag(s_ij) X / n

        X are the n rows, and F the slopes of their gradients (`_gradients`), which are X itself
        without clipping. s_ij is the derivative, for each row, of the mean label of class i by the
        score of class j.

        question: says where the gradient is taken, and how it is clipped.
        weights: the optimum, around which the mean gradient is linearised (d).
        """
        rows, classes = self._rows, self.classes
        row_count, features = rows.shape
        mean_labels = self._means(weights)
        _, slope = self._gradients(question)
        blocks = np.empty((classes, features, classes, features))
        for i in range(classes):
            for j in range(classes):
                if self.model == LINEAR:
                    derivative = np.ones(row_count)
                else:  # of softmax, which for one class is the logistic function: p_i (1[i = j] - p_j)
                    is_same = float(i == j)
                    derivative = mean_labels[:, i] * (is_same - mean_labels[:, j])
                blocks[i, :, j] = (slope * derivative[:, None]).T @ rows / row_count
        return blocks.reshape(classes * features, classes * features)

    def _means(self, weights: Floats) -> Floats:
        """Return the mean label that a model predicts for each row (n x classes)."""
        return mean_labels(self.model, self._rows @ weights.reshape(self.classes, -1).T)

    # State

    def state(self) -> dict[str, Any]:
        """Return all that changes during a run, as an object for JSON; `restore` reads it back."""
        observed = [answer.state() for answer in self._answers]
        return {"weights": self.weights.tolist(), "seen": observed}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a stored `state()`. Raises UsageError if it is not one of such a model.

        It has the weights and all observations; what follows from these is computed anew.
        """
        (self.weights,) = read_vectors(state, len(self.weights), "weights")
        with reading_state("learning from gradients"):
            self._answers = [Observation.of_state(observed) for observed in state["seen"]]
            if self._answers:
                self._judge_rows()


def _along(weights: Floats, uncorrelated: Floats, hessian: Floats) -> Floats:
    """Scale weights to the length that minimises the loss of the rows in their direction.

    A quadratic loss with the Hessian H and the linear term b is least at the multiple (w.b) / (w^T
    H w) of w, and for a fit to uncorrelated features b is about U w.

    weights: w, fitted to a gradient under the assumption that features are uncorrelated.
    uncorrelated: U, the Hessian that this assumption implies (d x d).
    hessian: H, that of the loss on the rows, features that stand for a population (d x d).
    """
    curvature = weights @ hessian @ weights
    if curvature <= 0:  # the rows do not vary in this direction
        return weights * 0.0
    factor = weights @ uncorrelated @ weights / curvature
    return np.asarray(weights * factor)


def made_up(features: int, direction: Floats | None = None) -> Floats:
    """Make up rows of features that stand for a population of which no public rows are known.

    They are spread evenly around their mean, without correlations. The result (n x features) has as
    many rows as the next power of two above the number of features.

    direction: the mean of x / |x| over the population (features), as far as known. Its first value
        is the mean of 1 / |x|, since the first feature is the constant 1; this gives the size of
        the rows. None: the other features have the mean 0 and the variance of uniform values on
        [-1, 1].
    """
    mean = np.eye(features)[0]  # the constant 1, and 0 for all other features
    squared_norm = 1 + (features - 1) / 3  # the mean of |x|**2; 1/3 is that of a uniform feature
    if direction is not None:
        least_inverse_norm = features**-0.5  # as |x|**2 is at most the number of features
        inverse_norm = min(max(float(direction[0]), least_inverse_norm), 1.0)
        squared_norm = inverse_norm**-2
        # The mean of the other features; it is shortened if it would leave no variance.
        other_means = direction[1:] / inverse_norm
        most_squared = max(_MEAN * squared_norm - 1, 0)
        most_factor = math.sqrt(most_squared / max(other_means @ other_means, _TINY))
        mean = np.concatenate([[1.0], other_means * min(1.0, most_factor)])

    # The columns of a Hadamard matrix are uncorrelated signs; the constant does not vary.
    size = 1 << (features - 1).bit_length()  # the next power of two
    from scipy import linalg  # takes long to import

    spread = linalg.hadamard(size)[:, :features].astype(np.float64)
    spread[:, 0] = 0
    # |x|**2 is that of the mean plus the variances of the features, which share what is left.
    variance = max(squared_norm - mean @ mean, 0) / max(features - 1, 1)
    return np.asarray(mean + spread * math.sqrt(variance))


@dataclass(frozen=True)
class Posterior:
    """The posterior distribution of weights whose prior is normal, with mean 0."""

    mean: Floats  # (d)
    covariance: Floats  # (d x d)
    variance: float  # that the prior gives to each weight
    evidence: float  # log-likelihood of the observations, up to a constant that depends on them


def shrink(precision: Floats, target: Floats) -> Posterior:
    """Solve noisy linear equations A w = b for weights w, which a normal prior shrinks towards 0.

    The noise of b has the covariance A, as the noise of normal equations has. The prior is w ~ N(0,
    v I), and v is the one of _VARIANCES with the most evidence (empirical Bayes). The posterior of
    w is normal, with
    - the covariance C = (A + I / v)^-1;
    - the mean C b;
    - the log evidence (b^T C b - log det(I + v A)) / 2.

    precision: A (d x d). target: b (d).
    """
    eigenvalues, directions = np.linalg.eigh(precision)
    eigenvalues = np.maximum(eigenvalues, 0)  # rounding may have made some negative
    target_by_direction = directions.T @ target

    # Along each eigenvector everything is a scalar. Arrays are prior variances x directions.
    prior_variances = _VARIANCES[:, None]
    posterior_variances = 1 / (eigenvalues + 1 / prior_variances)
    explained = np.square(target_by_direction) * posterior_variances  # b^T C b
    log_determinants = np.log1p(eigenvalues * prior_variances)
    evidence = 0.5 * (explained - log_determinants).sum(axis=1)

    best = int(evidence.argmax())
    covariance = directions * posterior_variances[best] @ directions.T
    return Posterior(
        mean=covariance @ target,
        covariance=covariance,
        variance=float(_VARIANCES[best]),
        evidence=float(evidence[best]),
    )


def _solution(hessian: Floats, target: Floats, variance: float) -> Posterior:
    """Return the posterior of weights w, given hessian @ w = target up to noise of this variance."""
    return shrink(hessian.T @ hessian / variance, hessian.T @ target / variance)
