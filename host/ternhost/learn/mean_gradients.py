"""Where the optimum is, by noisy mean gradients of devices that each hold many records.

A device reports the mean gradient of all of its m records. Asked for at a model that predicts the
shares of the classes, it is short: it is the sampling noise of a mean, of a length that falls as
1 / sqrt(m), plus what there is to learn. So devices clip it to that length, and the noise of their
reports, which is in proportion, falls with it.

Such a mean is nearly normal. By a model with the weights w its moments follow from rows of features
that stand for the population, and so does the mean of the clipped vector. This makes each answer an
equation of w, which is solved by Gauss-Newton steps.

The prior of w is normal. Nobody knows its scale, nor whether features that vary little have larger
weights. So several priors are weighted by their evidence (Hoeting et al., Statist. Sci. 14, 1999).

Where labels are numbers, the length of a gradient depends on their variance. If nobody knows it,
several variances are weighted by their evidence, too: answers that were clipped to different radii
agree on the weights only for the right one.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, Self

import numpy as np

from tern.wire import LINEAR, LOGISTIC
from ternhost.learn.losses import mean_labels
from ternhost.learn.observations import Observation
from ternhost.learn.optimisers import read_vectors
from ternhost.learn.parameters import LARGEST_WEIGHT, Floats, reading_state

_STEPS = 8  # Gauss-Newton steps of a fit
_STEP = 0.7  # each goes so much of the way
_NORMAL_VECTORS = 128  # by which the mean of a clipped vector is computed, and their negatives
_SEED = 99  # of these vectors, which are the same for all devices and rounds
# The mean of so few records is not normal: it is that of drawn devices with so many records together.
_FEW_RECORDS = 32
_DRAWN_RECORDS = 1 << 15
# The priors of the weights: their scales, and the powers by which features that vary less have larger
# weights. With 0 all weights are alike, with 1 all features are equally important.
_SCALES = 10.0 ** np.arange(-4, 4.1, 0.5)
_POWERS = (0.0, 0.5, 1.0)
_LEAST_VARIANCE = 1e-3  # of a direction of features, as a share of the largest
_CONSTANT_VARIANCE = 25.0  # of the constant's weight, where the shares of the classes are known
# The same where they are not: it covers shares from a twentieth to nineteen twentieths.
_UNKNOWN_CONSTANT_VARIANCE = 2.25
_UNKNOWN_MEAN_VARIANCE = 1 / 3  # of the mean of labels that are numbers: uniform in [-1, 1]
# Variances of labels that are numbers, where it is unknown. The largest is that of a uniform label.
_VARIANCES: tuple[float, ...] = tuple(4.0**-power / 3 for power in range(4))
_LEAST_UNEXPLAINED = 0.05  # of the variance of labels that are numbers
_TINY = 1e-12  # the least length, or variance


@dataclass(frozen=True)
class LabelFacts:
    """What is known of the labels before a device has answered.

    - mean: the mean label of each class (classes): its share, or the mean of numbers
    - deviation: the standard deviation of that knowledge; None: `mean` is just a guess
    - variance: of a label that is a number, for linear regression; None: it is unknown
    """

    mean: Floats
    deviation: float | None
    variance: float | None = None

    @property
    def is_known(self) -> bool:
        """Whether the mean is more than a guess."""
        return self.deviation is not None

    def constants(self, model: int) -> Floats:
        """Return the weights of the constant that predict this mean (classes)."""
        if model == LINEAR:
            return self.mean
        if model == LOGISTIC:
            return np.log(self.mean / (1 - self.mean))
        logarithms = np.log(self.mean)
        centred: Floats = logarithms - logarithms.mean()
        return centred


@dataclass(frozen=True)
class Answer:
    """The mean of what devices reported on their mean gradients.

    observed: the mean of their clipped gradients, with noise. records: how many each device holds.
    """

    observed: Observation
    records: int

    @classmethod
    def of_state(cls, state: Sequence[Any]) -> Self:
        """Read back a `state()`. Raises ValueError or TypeError for something else."""
        observed, records = state
        return cls(Observation.of_state(observed), int(records))

    def state(self) -> list[Any]:
        """Return the answer for JSON."""
        return [self.observed.state(), self.records]


class _Moments(NamedTuple):
    """The gradient of a record, at a model that devices are asked about."""

    mean: Floats  # (d)
    covariance: Floats  # (d x d)
    curvature: Floats  # the negated derivative of the mean by the optimum (d x d)
    mean_by_row: Floats  # what the mean is the mean of (rows x d)


class _Clipped(NamedTuple):
    """The mean of clipped mean gradients."""

    mean: Floats  # (d)
    derivative: Floats  # by the optimum (d x d)
    covariance: Floats  # of the error of `mean` that is due to the small number of rows (d x d)


class _Posterior(NamedTuple):
    """The posterior of the difference of the weights from those of the first question."""

    mean: Floats  # (d)
    covariance: Floats  # (d x d)
    log_evidence: float  # up to a term that does not depend on the prior


class MeanGradients:
    """What is known of the optimum of a model: the mean gradients that devices have reported."""

    def __init__(self, model: int, rows: Floats, labels: LabelFacts) -> None:
        """Begin without any answer, at the model that predicts the mean label for every record.

        model: LINEAR, LOGISTIC or SOFTMAX_GRADIENT (wire.md).
        rows: features of records that stand for the population (n x features), the constant 1 first.
        labels: what is known of the labels; for softmax regression, of each class.
        """
        self.model = model
        self._rows = rows
        self._labels = labels
        self._classes: int = len(labels.mean)
        self._features: int = rows.shape[1]
        self._answers: list[Answer] = []
        first = np.zeros((self._classes, self._features))
        first[:, 0] = labels.constants(model)
        self._first = first.ravel()  # the weights of the first question (d)
        # Labels that are numbers may have one of several variances, each with a fit of its own.
        self._variances: tuple[float, ...] = (0.0,)
        if model == LINEAR:
            self._variances = _VARIANCES
            if labels.variance is not None:
                self._variances = (labels.variance,)
        self._variance = _geometric_mean(self._variances)  # as far as known
        self._weights_by_variance = np.tile(self._first, (len(self._variances), 1))
        self.weights: Floats = self._first  # of the last fit (d)
        self._prior_shapes = _prior_shapes(rows, self._classes)
        self._covariance = self._first_covariance()  # of the weights, as far as known (d x d)
        self.log_evidence = 0.0  # for the rows, by all answers; to be compared with other rows'

    # Questions

    def radius(self, weights: Floats, records: int) -> float:
        """Return the length to which devices shall clip their mean gradients at these weights.

        It is the root of their expected squared length, with what is not known of the optimum.

        records: how many a device holds.
        """
        moments = self._moments(weights, self.weights)
        curvature = moments.curvature
        unknown = float(np.trace(curvature @ self._covariance @ curvature.T))
        noise = float(np.trace(moments.covariance))  # of the gradient of one record
        systematic = float(moments.mean @ moments.mean)
        # After answers that tell hardly anything, the optimum may seem to be anywhere. But a mean is
        # no longer than the gradient of a single record, in the mean square.
        squared = min(noise / records + systematic + unknown, noise + systematic)
        return math.sqrt(max(squared, _TINY))

    def _first_covariance(self) -> Floats:
        """Return what is not known of the weights before any answer: those of the constant."""
        variance = self._unknown_constant_variance
        if self._labels.deviation is not None:
            slopes = np.diag(self._label_covariance(self._predicted(self._first)[:1])[0])
            if self.model == LINEAR:
                slopes = np.ones(1)
            # A small change of a weight changes the prediction by the slope.
            variance = float(np.square(self._labels.deviation / slopes).max())
        covariance = np.zeros((self._classes, self._features))
        covariance[:, 0] = variance
        return np.diag(covariance.ravel())

    # Answers

    def add(self, answer: Answer) -> None:
        """Add what devices have answered."""
        self._answers.append(answer)

    def fit(self) -> Floats:
        """Fit the weights to all answers so far, and return them (d)."""
        for number, variance in enumerate(self._variances):
            self._variance = variance
            weights = self._weights_by_variance[number]
            for _ in range(_STEPS):
                posterior = self._posterior(weights)
                target = self._first + posterior.mean
                moved = weights + _STEP * (target - weights)
                weights = np.clip(moved, -LARGEST_WEIGHT, LARGEST_WEIGHT)
            self._weights_by_variance[number] = weights
        self._settle()
        return self.weights

    def _settle(self) -> None:
        """Set the weights, what is known of them, and the evidence for the rows.

        They depend on the fits and the answers alone, so that a restored fit has the same.
        """
        posteriors = []
        for weights, variance in zip(self._weights_by_variance, self._variances, strict=True):
            self._variance = variance
            posteriors.append(self._posterior(weights))
        log_evidences = np.array([posterior.log_evidence for posterior in posteriors])
        self.log_evidence = float(log_evidences.max())
        shares = np.exp(log_evidences - self.log_evidence)
        self.log_evidence += math.log(float(shares.mean()))
        shares /= shares.sum()
        self.weights = shares @ self._weights_by_variance
        covariances = np.array([posterior.covariance for posterior in posteriors])
        self._covariance = np.einsum("v,vij->ij", shares, covariances)
        self._variance = _geometric_mean(self._variances, shares)

    def deviations(self) -> Floats:
        """Return the standard deviation of each weight of the fit, given all answers (d)."""
        return np.asarray(np.sqrt(np.diag(self._covariance)))

    @property
    def mean_label(self) -> Floats:
        """The mean label that the model so far predicts for the rows (classes)."""
        return np.asarray(self._predicted(self.weights).mean(axis=0))

    def _posterior(self, weights: Floats) -> _Posterior:
        """Return the posterior of the weights, less those of the first question.

        All answers are linearised near `weights`. Each prior has a posterior, weighted by its
        evidence.
        """
        from scipy.linalg import eigh  # takes long to import

        precision, target, chi_squared = self._equations(weights)
        known = precision + self._constant_precision()
        log_evidences, bases, variances = [], [], []
        for shape, log_determinant in self._prior_shapes:
            # In this basis known + shape is the identity, and both of them are diagonal.
            parts_of_shape, basis = eigh(shape, known + shape)
            _, log_volume_of_basis = np.linalg.slogdet(basis)
            for scale in _SCALES:
                # The posterior's covariance is the inverse of known + shape / scale.
                variance = 1 / (1 - parts_of_shape + parts_of_shape / scale)
                log_volume = 2 * log_volume_of_basis + float(np.log(variance).sum())
                prior_volume = log_determinant - self._shrunk_values * math.log(scale)
                explained = float(variance @ np.square(target @ basis))
                log_evidences.append(0.5 * (explained + prior_volume + log_volume))
                bases.append(basis)
                variances.append(variance)
        largest = max(log_evidences)
        shares = np.exp(np.array(log_evidences) - largest)
        mean_share = float(shares.mean())
        shares /= shares.sum()
        covariance = np.zeros_like(precision)
        for share, basis, variance in zip(shares, bases, variances, strict=True):
            covariance += share * (basis * variance) @ basis.T
        return _Posterior(
            mean=covariance @ target,
            covariance=covariance,
            log_evidence=largest + math.log(mean_share) - 0.5 * chi_squared,
        )

    @property
    def _shrunk_values(self) -> int:
        """The number of weights that the prior shrinks: all but those of the constant."""
        return self._classes * (self._features - 1)

    @property
    def _unknown_constant_variance(self) -> float:
        """The variance of the constant's weight, where nothing is known of the labels."""
        if self.model == LINEAR:
            return _UNKNOWN_MEAN_VARIANCE
        return _UNKNOWN_CONSTANT_VARIANCE

    def _constant_precision(self) -> Floats:
        """Return the precision that the prior gives the weights of the constant (d x d)."""
        variance = self._unknown_constant_variance
        if self._labels.is_known:
            variance = _CONSTANT_VARIANCE
        precision = np.zeros((self._classes, self._features))
        precision[:, 0] = 1 / variance
        return np.diag(precision.ravel())

    def _equations(self, weights: Floats) -> tuple[Floats, Floats, float]:
        """Return the normal equations of all answers, linearised near `weights`.

        They are A z = b, with z the weights less those of the first question. A and b sum up
        J^T P J and J^T P r over all answers, with the derivative J of what is expected by the
        optimum, the precision P of the error, and the residual r at z = 0. Also returns the sum of
        r^T P r - log det P.
        """
        values = len(weights)
        precision = np.zeros((values, values))
        target = np.zeros(values)
        chi_squared = 0.0
        moved = weights - self._first
        if self._labels.deviation is not None:
            predicted = self._predicted(weights)
            derivative = self._mean_label_derivative(predicted)
            residual = self._labels.mean - predicted.mean(axis=0) + derivative @ moved
            certainty = self._labels.deviation**-2
            precision += certainty * derivative.T @ derivative
            target += certainty * derivative.T @ residual
            chi_squared += certainty * float(residual @ residual)
        for answer in self._answers:
            observed = answer.observed
            expected = self._expected(answer, weights)
            error = observed.variance * np.eye(values) + expected.covariance
            precision_of_error = np.linalg.inv(error)
            residual = observed.gradient - expected.mean + expected.derivative @ moved
            weighted_derivative = expected.derivative.T @ precision_of_error
            precision += weighted_derivative @ expected.derivative
            target += weighted_derivative @ residual
            _, log_volume = np.linalg.slogdet(error)
            chi_squared += float(residual @ precision_of_error @ residual) + float(log_volume)
        return precision, target, chi_squared

    # What the rows expect

    def _expected(self, answer: Answer, weights: Floats) -> _Clipped:
        """Return the mean of what devices report if the optimum is at these weights.

        The mean gradient of m records is normal, with the mean of one record's gradient, and an m-th
        of its covariance. Its clipped mean is that of vectors which stand for this distribution.
        The mean of only a few records is not normal: if one label is rare, its gradients are long,
        and clipping shortens them more than those of the other label.
        """
        question = answer.observed
        assert question.radius is not None
        moments = self._moments(question.weights, weights)
        variances, directions = np.linalg.eigh(moments.covariance / answer.records)
        deviations = np.sqrt(np.maximum(variances, 0))
        vectors = moments.mean + (_normal_vectors(len(weights)) * deviations) @ directions.T
        lengths = np.maximum(np.linalg.norm(vectors, axis=1), _TINY)
        factors = np.minimum(1, question.radius / lengths)
        clipped = vectors * factors[:, None]
        mean = clipped.mean(axis=0)
        if self.model == LOGISTIC and answer.records <= _FEW_RECORDS:
            mean = moments.mean + self._shift_of_few(answer, weights)

        # A clipped vector moves only across its own direction.
        is_clipped = lengths > question.radius
        along = clipped * (is_clipped / lengths**2)[:, None]
        by_mean = factors.mean() * np.eye(len(weights)) - along.T @ vectors / len(vectors)

        spread = moments.mean_by_row - moments.mean
        row_count = len(self._rows)
        error_of_rows = spread.T @ spread / row_count**2
        return _Clipped(
            mean=mean,
            derivative=-by_mean @ moments.curvature,
            covariance=factors.mean() ** 2 * error_of_rows,
        )

    def _shift_of_few(self, answer: Answer, optimum: Floats) -> Floats:
        """Return how far clipping moves the mean gradient of devices with a few records each (d).

        It is the mean over drawn devices, whose records have the features of random rows, and random
        labels of two classes as the optimum gives them.
        """
        question = answer.observed
        assert question.radius is not None
        rng = np.random.default_rng(_SEED)
        shape = (_DRAWN_RECORDS // answer.records, answer.records)
        rows = rng.integers(0, len(self._rows), shape)
        labels = rng.random(shape) < self._predicted(optimum)[rows, 0]
        residuals = self._predicted(question.weights)[rows, 0] - labels
        vectors = np.einsum("dr,drf->df", residuals, self._rows[rows]) / answer.records
        shift: Floats = (question.clipped(vectors) - vectors).mean(axis=0)
        return shift

    def _moments(self, asked: Floats, optimum: Floats) -> _Moments:
        """Return the moments of a record's gradient at some weights, if the optimum is at others.

        The gradient is (prediction - label) x for each class. Its mean and its second moment follow
        from the mean and the covariance of the labels, which the optimum gives for each row.
        """
        expected_labels = self._predicted(optimum)
        residual = self._predicted(asked) - expected_labels  # n x classes
        label_covariance = self._label_covariance(expected_labels)
        second_of_residual = residual[:, :, None] * residual[:, None, :] + label_covariance
        slopes = label_covariance  # of logistic and softmax regression it is their derivative
        if self.model == LINEAR:
            slopes = np.ones_like(label_covariance)
        by_row = (residual[:, :, None] * self._rows[:, None, :]).reshape(len(residual), -1)
        mean = by_row.mean(axis=0)
        covariance = self._averaged(second_of_residual) - np.outer(mean, mean)
        return _Moments(mean, covariance, self._averaged(slopes), by_row)

    def _averaged(self, factors: Floats) -> Floats:
        """Return the mean over rows x of factors times x x^T (d x d), in blocks of classes.

        factors: for each row and each pair of classes (n x classes x classes).
        """
        rows, features = self._rows, self._features
        blocks = np.empty((self._classes, features, self._classes, features))
        for i in range(self._classes):
            for j in range(self._classes):
                blocks[i, :, j] = (rows * factors[:, i, j, None]).T @ rows / len(rows)
        return blocks.reshape(self._classes * features, self._classes * features)

    def _predicted(self, weights: Floats) -> Floats:
        """Return the mean label that a model predicts for each row (n x classes)."""
        return mean_labels(self.model, self._rows @ weights.reshape(self._classes, -1).T)

    def _label_covariance(self, means: Floats) -> Floats:
        """Return the covariance of the labels of each row (n x classes x classes).

        means: their means (n x classes).
        """
        if self.model == LINEAR:
            # Those of one row differ by what the model does not explain of their variance.
            unexplained = self._variance - float(means.var())
            unexplained = max(unexplained, _LEAST_UNEXPLAINED * self._variance)
            return np.full((len(means), 1, 1), unexplained)
        identity = np.eye(self._classes)
        covariance: Floats = means[:, :, None] * (identity - means[:, None, :])
        return covariance

    def _mean_label_derivative(self, predicted: Floats) -> Floats:
        """Return the derivative of the mean label by the weights (classes x d).

        predicted: the mean label of each row (n x classes).
        """
        slopes = self._label_covariance(predicted)
        if self.model == LINEAR:
            slopes = np.ones_like(slopes)
        blocks = np.einsum("nij,nf->ijf", slopes, self._rows) / len(self._rows)
        return np.asarray(blocks.reshape(self._classes, -1))

    # State

    def state(self) -> dict[str, Any]:
        """Return all that changes during a run, as an object for JSON; `restore` reads it back."""
        answers = [answer.state() for answer in self._answers]
        return {"weights": self._weights_by_variance.ravel().tolist(), "answers": answers}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a stored `state()`. Raises UsageError if it is not one of such a model."""
        (weights,) = read_vectors(state, self._weights_by_variance.size, "weights")
        with reading_state("learning from mean gradients"):
            self._answers = [Answer.of_state(stored) for stored in state["answers"]]
        self._weights_by_variance = weights.reshape(self._weights_by_variance.shape)
        if self._answers:
            self._settle()


@cache
def _normal_vectors(values: int) -> Floats:
    """Return vectors that stand for a standard normal distribution (n x values)."""
    drawn = np.random.default_rng(_SEED).normal(size=(_NORMAL_VECTORS, values))
    both = np.concatenate([drawn, -drawn])
    both.setflags(write=False)  # the result is cached
    return both


def _prior_shapes(rows: Floats, classes: int) -> list[tuple[Floats, float]]:
    """Return the precisions of the priors at a scale of 1 (d x d), with their log determinants.

    Weights of the constant have none; the determinant is that of all others. In the direction of an
    eigenvector of the features' covariance, the precision is its eigenvalue to some power.

    rows: features that stand for the population, the constant first. classes: that have weights.
    """
    varying = rows[:, 1:]
    if not varying.shape[1]:  # the model has nothing but the constant
        return [(np.zeros((classes, classes)), 0.0)]
    covariance = np.atleast_2d(np.cov(varying.T))
    variances, directions = np.linalg.eigh(covariance)
    largest = max(float(variances.max()), _TINY)
    variances = np.maximum(variances, _LEAST_VARIANCE * largest)
    relative = variances / variances.mean()
    shapes = []
    for power in _POWERS:
        precisions = relative**power
        shape = np.zeros(covariance.shape[0] + 1)
        of_class = np.diag(shape)
        of_class[1:, 1:] = directions * precisions @ directions.T
        log_determinant = classes * float(np.log(precisions).sum())
        shapes.append((np.kron(np.eye(classes), of_class), log_determinant))
    return shapes


def _geometric_mean(numbers: Sequence[float], shares: Floats | None = None) -> float:
    """Return the geometric mean of numbers, which may be 0 if there is just one.

    shares: their weights, which sum up to 1; None: all alike.
    """
    if len(numbers) == 1:
        return numbers[0]
    return math.exp(float(np.average(np.log(numbers), weights=shares)))
