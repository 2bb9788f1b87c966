"""What mean gradients of devices are expected to be, if the optimum of a model is known.

Each device holds many records, and clips the mean gradient of all of them to a radius. Such a mean
is nearly normal. Its moments follow from rows of features that stand for the population, and so does
the mean of the clipped vector.
"""

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np

from tern.wire import LINEAR, LOGISTIC
from ternhost.learn.models.losses import mean_labels
from ternhost.learn.one_answer.observations import Observation
from ternhost.learn.parameters import Floats

# Eight times as many made models neither better nor worse.
_NORMAL_VECTORS = 128  # by which the mean of a clipped vector is computed, and their negatives
_SEED = 99  # of these vectors, which are the same for all devices and rounds
# The mean of so few records is not normal: it is that of drawn devices with so many records together.
_FEW_RECORDS = 32
_DRAWN_RECORDS = 1 << 15
_LEAST_UNEXPLAINED = 0.05  # of the variance of labels that are numbers
_TINY = 1e-12  # the least length


class Moments(NamedTuple):
    """The gradient of a record, at a model that devices are asked about."""

    mean: Floats  # (d)
    covariance: Floats  # (d x d)
    curvature: Floats  # the negated derivative of the mean by the optimum (d x d)
    mean_by_row: Floats  # what the mean is the mean of (rows x d)


class ClippedMean(NamedTuple):
    """The mean of clipped mean gradients."""

    mean: Floats  # (d)
    derivative: Floats  # by the optimum (d x d)
    covariance: Floats  # of the error of `mean` that is due to the small number of rows (d x d)


@dataclass(frozen=True)
class ExpectedGradients:
    """What gradients are expected to be, by rows of features that stand for the population.

    - model: LINEAR, LOGISTIC or SOFTMAX_GRADIENT (wire.md)
    - rows: features of records (n x features), the constant 1 first
    - classes: that have weights of their own: 1 except in softmax regression
    - label_variance: of labels that are numbers; it has no effect on other models

    A model has d = classes x features weights.
    """

    model: int
    rows: Floats
    classes: int = 1
    label_variance: float = 0.0

    @property
    def features(self) -> int:
        """The number of features of a row, the constant among them."""
        return int(self.rows.shape[1])

    # Labels

    def predicted(self, weights: Floats) -> Floats:
        """Return the mean label that a model predicts for each row (n x classes)."""
        return mean_labels(self.model, self.rows @ weights.reshape(self.classes, -1).T)

    def _label_covariance(self, means: Floats) -> Floats:
        """Return the covariance of the labels of each row (n x classes x classes).

        means: their means (n x classes).
        """
        if self.model == LINEAR:
            # Those of one row differ by what the model does not explain of their variance.
            unexplained = self.label_variance - float(means.var())
            unexplained = max(unexplained, _LEAST_UNEXPLAINED * self.label_variance)
            return np.full((len(means), 1, 1), unexplained)
        identity = np.eye(self.classes)
        covariance: Floats = means[:, :, None] * (identity - means[:, None, :])
        return covariance

    def slopes(self, means: Floats) -> Floats:
        """Return the derivative of the mean labels by the scores of a row (n x classes x classes).

        means: the mean labels (n x classes).
        """
        if self.model == LINEAR:  # the mean label is the score
            return np.ones((len(means), 1, 1))
        return self._label_covariance(means)  # so it is for logistic and softmax regression

    def mean_label_derivative(self, predicted: Floats) -> Floats:
        """Return the derivative of the mean label by the weights (classes x d).

        predicted: the mean label of each row (n x classes).
        """
        blocks = np.einsum("nij,nf->ijf", self.slopes(predicted), self.rows) / len(self.rows)
        return np.asarray(blocks.reshape(self.classes, -1))

    # Gradients

    def moments(self, asked: Floats, optimum: Floats) -> Moments:
        """Return the moments of a record's gradient at some weights, if the optimum is at others.

        The gradient is (prediction - label) x for each class. Its mean and its second moment follow
        from the mean and the covariance of the labels, which the optimum gives for each row.
        """
        expected_labels = self.predicted(optimum)
        residual = self.predicted(asked) - expected_labels  # n x classes
        squared_residual = residual[:, :, None] * residual[:, None, :]
        second_of_residual = squared_residual + self._label_covariance(expected_labels)
        by_row = (residual[:, :, None] * self.rows[:, None, :]).reshape(len(residual), -1)
        mean = by_row.mean(axis=0)
        return Moments(
            mean=mean,
            covariance=self._averaged(second_of_residual) - np.outer(mean, mean),
            curvature=self._averaged(self.slopes(expected_labels)),
            mean_by_row=by_row,
        )

    def _averaged(self, factors: Floats) -> Floats:
        """Return the mean over rows x of factors times x x^T (d x d), in blocks of classes.

        factors: for each row and each pair of classes (n x classes x classes).
        """
        rows, features = self.rows, self.features
        blocks = np.empty((self.classes, features, self.classes, features))
        for i in range(self.classes):
            for j in range(self.classes):
                blocks[i, :, j] = (rows * factors[:, i, j, None]).T @ rows / len(rows)
        return blocks.reshape(self.classes * features, self.classes * features)

    def clipped_mean(self, question: Observation, records: int, optimum: Floats) -> ClippedMean:
        """Return the mean of what devices report if the optimum is at these weights.

        The mean gradient of m records is normal, with the mean of one record's gradient, and an m-th
        of its covariance. Its clipped mean is that of vectors which stand for this distribution.
        The mean of only a few records is not normal: if one label is rare, its gradients are long,
        and clipping shortens them more than those of the other label.

        question: at which weights devices are asked, and to which radius they clip. records: how many
        each of them holds.
        """
        assert question.radius is not None
        values = len(optimum)
        moments = self.moments(question.weights, optimum)
        variances, directions = np.linalg.eigh(moments.covariance / records)
        deviations = np.sqrt(np.maximum(variances, 0))
        vectors = moments.mean + (_normal_vectors(values) * deviations) @ directions.T
        lengths = np.maximum(np.linalg.norm(vectors, axis=1), _TINY)
        factors = np.minimum(1, question.radius / lengths)
        clipped = vectors * factors[:, None]
        mean = clipped.mean(axis=0)
        if self.model == LOGISTIC and records <= _FEW_RECORDS:
            mean = moments.mean + self._shift_of_few(question, records, optimum)

        # A clipped vector moves only across its own direction.
        is_clipped = lengths > question.radius
        along = clipped * (is_clipped / lengths**2)[:, None]
        by_unclipped_mean = factors.mean() * np.eye(values) - along.T @ vectors / len(vectors)

        spread = moments.mean_by_row - moments.mean
        row_count = len(self.rows)
        error_of_rows = spread.T @ spread / row_count**2
        return ClippedMean(
            mean=mean,
            derivative=-by_unclipped_mean @ moments.curvature,
            covariance=factors.mean() ** 2 * error_of_rows,
        )

    def _shift_of_few(self, question: Observation, records: int, optimum: Floats) -> Floats:
        """Return how far clipping moves the mean gradient of devices with a few records each (d).

        It is the mean over drawn devices, whose records have the features of random rows, and random
        labels of two classes as the optimum gives them. Parameters as of `clipped_mean`.
        """
        rng = np.random.default_rng(_SEED)
        shape = (_DRAWN_RECORDS // records, records)
        drawn = rng.integers(0, len(self.rows), shape)  # positions of rows
        labels = rng.random(shape) < self.predicted(optimum)[drawn, 0]
        residuals = self.predicted(question.weights)[drawn, 0] - labels
        vectors = np.einsum("dr,drf->df", residuals, self.rows[drawn]) / records
        shift: Floats = (question.clipped(vectors) - vectors).mean(axis=0)
        return shift


@cache
def _normal_vectors(values: int) -> Floats:
    """Return vectors that stand for a standard normal distribution (n x values)."""
    drawn = np.random.default_rng(_SEED).normal(size=(_NORMAL_VECTORS, values))
    both = np.concatenate([drawn, -drawn])
    both.setflags(write=False)  # the result is cached
    return both
