"""Gradients of softmax regression (classes x features), in integers.

The loss of a record with the label y is -log p_y, where p_i is the probability of class i. The
gradient of class i is its residual, p_i - 1 for i = y and p_i for others, times the features; it is
added up as in tern.gradient. A residual is in Q1.14 and at most 1: a record adds at most
2**fine * 2**15 to an accumulator, 32 records with fine = 10 at most 2**30, less than there.
"""

from array import array

from tern.compat import const
from tern.gradient import Answerer as Gradients
from tern.gradient import Gradient, accumulate
from tern.inference import Classifier
from tern.wire import MAX_EXPONENT

_ONE = const(16384)
_FINE = const(5)  # the slot of a gradient's job with the bits that products are finer than 2**-14


class Batch(Gradient):
    """The mean gradient of a batch for classes x d weights, row by row: 2 .. 128 classes.

    Only __init__ allocates.
    """

    def __init__(self, d, classes, many=False):
        """Allocate the totals, with a view of the row of each class, and a classifier."""
        super().__init__(d, classes, many)
        self.classes = classes
        # It needs some weights now; add() gives it those of the request.
        self._classifier = Classifier(self.totals, MAX_EXPONENT, classes)
        self._probabilities = array("h", bytes(2 * classes))
        totals = memoryview(self.totals)
        self._rows = [totals[i : i + d] for i in range(0, self.values, d)]

    def use(self, _, params, exponent):
        """Take the weights whose gradient add_row() adds up.

        _: the model, which Gradient.use() needs. params: array('h') of classes x d mantissas, each
        of which stands for m 2**exponent; exponent: -30 .. -12.
        """
        self._classifier.use(params, exponent)

    def add_row(self, row):
        """Add the gradient of a record: d features in `row` (array('h')), then its class's number.

        Raises ValueError for too many records.
        """
        if self.count >= self._full:
            self._carry()
        self.put(row)
        self.count += 1

    def put(self, row):
        """Add the gradient of a record as add_row() does, but neither count nor carry it."""
        d = self.d
        probabilities = self._probabilities
        self._classifier.probabilities(row, probabilities)
        fine = self._job[_FINE]
        for i in range(self.classes):
            residual = probabilities[i] - (_ONE if row[d] == i else 0)
            accumulate(row, 0, residual, self._rows[i], d, fine)


class Answerer(Gradients):
    """Computes what a client reports to a ROUND that asks for a gradient of softmax regression."""

    def room(self, d):
        """Allocate what a gradient of d features needs, for the classes of the request."""
        classes = self._request.classes
        self._gradient = None  # until there was memory for all
        self._row = array("h", bytes(2 * d + 2))
        self.result = array("h", bytes(2 * classes * d))
        self._gradient = Batch(d, classes, many=True)

    def _take_model(self, request):
        """Take the model as gradients do, with new buffers if the number of classes changed."""
        if self._gradient and self._gradient.classes != request.classes:
            self._gradient = None
        super()._take_model(request)
