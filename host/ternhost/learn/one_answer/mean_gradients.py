"""Where the optimum is, by noisy mean gradients of devices that each hold many records.

A device reports the mean gradient of all of its m records. Asked for at a model that predicts the
shares of the classes, it is short: it is the sampling noise of a mean, of a length that falls as
1 / sqrt(m), plus what there is to learn. So devices clip it to that length, and the noise of their
reports, which is in proportion, falls with it.

What the mean of the clipped vectors is expected to be follows from the optimum (`expected_gradients`).
This makes each answer an equation of the optimum, which is solved by Gauss-Newton steps.

The prior of the weights is normal. Nobody knows its scale, nor whether features that vary little have
larger weights. So several priors are weighted by their evidence (Hoeting et al., Statist. Sci. 14,
1999).

Where labels are numbers, the length of a gradient depends on their variance. If nobody knows it,
several variances are weighted by their evidence, too: answers that were clipped to different radii
agree on the weights only for the right one.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from tern.wire import LINEAR, LOGISTIC
from ternhost.learn.models.optimisers import read_vectors
from ternhost.learn.one_answer.expected_gradients import ExpectedGradients
from ternhost.learn.one_answer.observations import Observation
from ternhost.learn.parameters import LARGEST_WEIGHT, Floats, reading_state

# Gauss-Newton steps of a fit, and how much of the way each goes. Whole steps may overshoot where much
# is clipped. Three times as many steps made models neither better nor worse.
_STEPS, _STEP = 8, 0.7
# The priors of the weights: their scales, and the powers by which features that vary less have larger
# weights. With 0 all weights are alike, with 1 all features are equally important.
_SCALES = 10.0 ** np.arange(-4, 4.1, 0.5)
_POWERS = (0.0, 0.5, 1.0)
_LEAST_VARIANCE = 1e-3  # of a direction of features, as a share of the largest
# Of the constant's weight, where the shares of the classes are known: so wide that only these count.
_CONSTANT_VARIANCE = 25.0
# The same where they are not: two standard deviations cover shares from a twentieth to nineteen
# twentieths.
_UNKNOWN_CONSTANT_VARIANCE = 2.25
_UNKNOWN_MEAN_VARIANCE = 1 / 3  # of the mean of labels that are numbers: uniform in [-1, 1]
# Variances of labels that are numbers, where it is unknown. The largest is that of a uniform label.
_VARIANCES: tuple[float, ...] = tuple(4.0**-power / 3 for power in range(4))
_TINY = 1e-12  # the least squared length, or variance


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


class _Equations(NamedTuple):
    """Normal equations A z = b, with z the weights less those of the first question.

    With J the derivative of what is expected by the optimum, P the precision of the error, and r the
    residual at z = 0, A is the sum of J^T P J over all answers, b that of J^T P r, and `misfit` that
    of r^T P r - log det P.
    """

    precision: Floats  # A (d x d)
    target: Floats  # b (d)
    misfit: float


class _PriorShape(NamedTuple):
    """A normal prior of the weights at a scale of 1, which leaves those of the constant free."""

    precision: Floats  # (d x d)
    log_determinant: float  # of the precision of all weights but those of the constant


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
        self._weights_by_variance = np.tile(self._first, (len(self._variances), 1))
        self._prior_shapes = _prior_shapes(rows, self._classes)

        # What is known of the optimum so far, by all variances.
        self.weights: Floats = self._first  # of the last fit (d)
        self._expected = self._expectations(_geometric_mean(self._variances))
        self._covariance = self._first_covariance()  # of the weights (d x d)
        self.log_evidence = 0.0  # for the rows, by all answers; to be compared with other rows'

    def _expectations(self, label_variance: float) -> ExpectedGradients:
        """Return what gradients are expected to be, if labels that are numbers have this variance."""
        return ExpectedGradients(self.model, self._rows, self._classes, label_variance)

    # Questions

    def radius(self, weights: Floats, records: int) -> float:
        """Return the length to which devices shall clip their mean gradients at these weights.

        It is the root of their expected squared length, with what is not known of the optimum.

        records: how many a device holds.
        """
        moments = self._expected.moments(weights, self.weights)
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
            # The first model predicts the same for every row.
            slopes = np.diag(self._expected.slopes(self._expected.predicted(self._first)[:1])[0])
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
            expected = self._expectations(variance)
            weights = self._weights_by_variance[number]
            for _ in range(_STEPS):
                posterior = self._posterior(weights, expected)
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
            posteriors.append(self._posterior(weights, self._expectations(variance)))
        shares, self.log_evidence = _by_evidence([each.log_evidence for each in posteriors])
        self.weights = shares @ self._weights_by_variance
        covariances = np.array([posterior.covariance for posterior in posteriors])
        self._covariance = np.einsum("v,vij->ij", shares, covariances)
        self._expected = self._expectations(_geometric_mean(self._variances, shares))

    def deviations(self) -> Floats:
        """Return the standard deviation of each weight of the fit, given all answers (d)."""
        return np.asarray(np.sqrt(np.diag(self._covariance)))

    @property
    def mean_label(self) -> Floats:
        """The mean label that the model so far predicts for the rows (classes)."""
        return np.asarray(self._expected.predicted(self.weights).mean(axis=0))

    def _posterior(self, weights: Floats, expected: ExpectedGradients) -> _Posterior:
        """Return the posterior of the weights, less those of the first question.

        All answers are linearised near `weights`. Each prior has a posterior, weighted by its
        evidence. expected: what gradients are expected to be.
        """
        from scipy.linalg import eigh  # takes long to import

        precision, target, misfit = self._equations(weights, expected)
        known = precision + self._constant_precision()
        log_evidences, bases, variances = [], [], []
        for shape in self._prior_shapes:
            # In this basis known + shape is the identity, and both of them are diagonal.
            parts_of_shape, basis = eigh(shape.precision, known + shape.precision)
            _, log_volume_of_basis = np.linalg.slogdet(basis)
            for scale in _SCALES:
                # The posterior's covariance is the inverse of known + shape / scale.
                variance = 1 / (1 - parts_of_shape + parts_of_shape / scale)
                log_volume = 2 * log_volume_of_basis + float(np.log(variance).sum())
                prior_volume = shape.log_determinant - self._shrunk_values * math.log(scale)
                explained = float(variance @ np.square(target @ basis))
                log_evidences.append(0.5 * (explained + prior_volume + log_volume))
                bases.append(basis)
                variances.append(variance)

        shares, log_evidence = _by_evidence(log_evidences)
        covariance = np.zeros_like(precision)
        for share, basis, variance in zip(shares, bases, variances, strict=True):
            covariance += share * (basis * variance) @ basis.T
        return _Posterior(
            mean=covariance @ target,
            covariance=covariance,
            log_evidence=log_evidence - 0.5 * misfit,
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

    def _equations(self, weights: Floats, expected: ExpectedGradients) -> _Equations:
        """Return the normal equations of all answers, linearised near `weights`.

        expected: what gradients are expected to be.
        """
        precision = np.zeros((len(weights), len(weights)))
        target = np.zeros(len(weights))
        misfit = 0.0
        parts = []
        if self._labels.is_known:
            parts.append(self._equation_of_labels(weights, expected))
        for answer in self._answers:
            parts.append(self._equation_of_answer(answer, weights, expected))
        for part in parts:
            precision += part.precision
            target += part.target
            misfit += part.misfit
        return _Equations(precision, target, misfit)

    def _equation_of_labels(self, weights: Floats, expected: ExpectedGradients) -> _Equations:
        """Return the part of the equations that the known mean label makes.

        Parameters as of `_equations`.
        """
        assert self._labels.deviation is not None
        predicted = expected.predicted(weights)
        derivative = expected.mean_label_derivative(predicted)
        moved = weights - self._first
        residual = self._labels.mean - predicted.mean(axis=0) + derivative @ moved
        certainty = self._labels.deviation**-2
        return _Equations(
            precision=certainty * derivative.T @ derivative,
            target=certainty * derivative.T @ residual,
            misfit=certainty * float(residual @ residual),
        )

    def _equation_of_answer(
        self, answer: Answer, weights: Floats, expected: ExpectedGradients
    ) -> _Equations:
        """Return the part of the equations that an answer makes. The rest as of `_equations`."""
        observed = answer.observed
        clipped = expected.clipped_mean(observed, answer.records, weights)
        error = observed.variance * np.eye(len(weights)) + clipped.covariance
        precision_of_error = np.linalg.inv(error)
        moved = weights - self._first
        residual = observed.gradient - clipped.mean + clipped.derivative @ moved
        weighted_derivative = clipped.derivative.T @ precision_of_error
        _, log_volume = np.linalg.slogdet(error)
        return _Equations(
            precision=weighted_derivative @ clipped.derivative,
            target=weighted_derivative @ residual,
            misfit=float(residual @ precision_of_error @ residual) + float(log_volume),
        )

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


def _prior_shapes(rows: Floats, classes: int) -> list[_PriorShape]:
    """Return the priors of the weights at a scale of 1.

    In the direction of an eigenvector of the features' covariance, the precision is its eigenvalue,
    relative to the mean of all, to some power.

    rows: features that stand for the population, the constant first. classes: that have weights.
    """
    varying = rows[:, 1:]
    if not varying.shape[1]:  # the model has nothing but the constant
        return [_PriorShape(np.zeros((classes, classes)), 0.0)]
    covariance = np.atleast_2d(np.cov(varying.T))
    variances, directions = np.linalg.eigh(covariance)
    largest = max(float(variances.max()), _TINY)
    variances = np.maximum(variances, _LEAST_VARIANCE * largest)
    relative = variances / variances.mean()
    shapes = []
    for power in _POWERS:
        precisions = relative**power
        of_class = np.zeros((rows.shape[1], rows.shape[1]))
        of_class[1:, 1:] = directions * precisions @ directions.T
        log_determinant = classes * float(np.log(precisions).sum())
        precision = np.asarray(np.kron(np.eye(classes), of_class), np.float64)
        shapes.append(_PriorShape(precision, log_determinant))
    return shapes


def _by_evidence(log_evidences: Sequence[float]) -> tuple[Floats, float]:
    """Return the shares by which hypotheses count, which sum up to 1, and the log of their evidence.

    The evidence for all of them together is the mean, as each is equally likely beforehand.

    log_evidences: for each hypothesis.
    """
    largest = max(log_evidences)
    relative = np.exp(np.array(log_evidences) - largest)  # so that none overflows
    log_mean = largest + math.log(float(relative.mean()))
    return relative / relative.sum(), log_mean


def _geometric_mean(numbers: Sequence[float], shares: Floats | None = None) -> float:
    """Return the geometric mean of numbers, which may be 0 if there is just one.

    shares: their weights, which sum up to 1; None: all alike.
    """
    if len(numbers) == 1:
        return numbers[0]
    return math.exp(float(np.average(np.log(numbers), weights=shares)))
