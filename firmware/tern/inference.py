"""Inference results under exact noise: a linear softmax classifier in integers, as in
shared_specs/arithmetic.md.

A client reports all class probabilities under discrete Laplace noise, or its label by randomised
response.

Sensitivity. Probabilities are rounded *down* to the card's grid, so that they add up to at most 1,
and two such vectors differ by at most 2 in L1 norm, whatever the records and parameters. A laplace
card is certified for that change: it keeps its epsilon for the whole vector. With up to 16 classes
a probability is within 2**-11 before that rounding.
"""

from array import array

from tern.compat import const
from tern.frames import FrameError
from tern.gradient import dot
from tern.sampler import sample, sample_categories
from tern.shapes import LAPLACE, WINDOW
from tern.wire import ERR_CARD, MAX_DIMENSION, MAX_EXPONENT, MIN_EXPONENT

# The tables of exp_minus(), two bytes for each entry. First 2**15 exp(-i), rounded, for i = 0 ..
# 11; from 12 on the exponential counts as 0.
_WHOLE = b"\x00\x80\x17\x2f\x53\x11\x5f\x06\x58\x02\xdd\x00\x51\x00\x1e\x00\x0b\x00\x04\x00\x01\x00\x01\x00"
# Then 2**14 exp(-i / 64), rounded, for i = 0 .. 64.
_PART = (
    b"\x00\x40\x02\x3f\x08\x3e\x12\x3d\x1f\x3c\x31\x3b\x46\x3a\x5f\x39\x7b\x38"
    b"\x9b\x37\xbe\x36\xe5\x35\x0f\x35\x3c\x34\x6d\x33\xa1\x32\xd8\x31\x12\x31"
    b"\x4f\x30\x90\x2f\xd3\x2e\x19\x2e\x62\x2d\xae\x2c\xfd\x2b\x4e\x2b\xa2\x2a"
    b"\xf9\x29\x52\x29\xae\x28\x0d\x28\x6e\x27\xd1\x26\x37\x26\xa0\x25\x0a\x25"
    b"\x77\x24\xe7\x23\x58\x23\xcc\x22\x42\x22\xba\x21\x34\x21\xb0\x20\x2e\x20"
    b"\xaf\x1f\x31\x1f\xb5\x1e\x3b\x1e\xc3\x1d\x4d\x1d\xd9\x1c\x66\x1c\xf6\x1b"
    b"\x87\x1b\x19\x1b\xae\x1a\x44\x1a\xdc\x19\x75\x19\x10\x19\xad\x18\x4b\x18"
    b"\xea\x17\x8b\x17"
)
_BEYOND = const(12 * 16384)


def exp_minus(t):
    """Return exp(-t) for t >= 0 in 2**-14 units; the result is in 2**-15 units.

    It is the product of two tables: of the whole part of t, and of its fraction, which is
    interpolated.
    """
    if t >= _BEYOND:
        return 0
    # The whole part of t is t >> 14, and its entry begins at twice that byte.
    at = t >> 13 & ~1
    whole = _WHOLE[at] | _WHOLE[at + 1] << 8
    # 1/64 is 2**8 units: (t >> 8) & 63 is the entry, and t & 255 the rest, for the interpolation.
    at = t >> 7 & 126
    part = _PART[at] | _PART[at + 1] << 8
    decrease = part - (_PART[at + 2] | _PART[at + 3] << 8)
    part -= decrease * (t & 255) + 128 >> 8  # 128 rounds to nearest
    return whole * part + 8192 >> 14  # below 2**30; from units of 2**-29 to 2**-15


class Classifier:
    """A linear softmax classifier of f features and c classes; only __init__ allocates."""

    def __init__(self, parameters, exponent, classes):
        """parameters, exponent: as of use(); classes: c, 2..128. Raises ValueError."""
        features = len(parameters) // classes if classes > 0 else 0
        if not 2 <= classes <= MAX_DIMENSION or not 1 <= features <= MAX_DIMENSION:
            raise ValueError("classes or features out of bounds")
        self.classes = classes
        self.features = features
        self.use(parameters, exponent)
        self._sums = array("i", (0, 0))
        self._z = array("i", (0 for _ in range(classes)))

    def use(self, parameters, exponent):
        """Use other parameters: c x f mantissas m (array('h')), which stand for m 2**exponent.

        The array is not copied: its numbers count as they are when probabilities are computed.
        exponent: -30 .. -12. Raises ValueError if they do not fit.
        """
        if (
            len(parameters) != self.classes * self.features
            or not MIN_EXPONENT <= exponent <= MAX_EXPONENT
        ):
            raise ValueError("parameters or exponent do not fit")
        self._parameters = parameters
        self._shift = -8 - exponent

    def probabilities(self, row, out, grid_bits=14):
        """Write the class probabilities of a record into out[:c] (array('h'), Q1.14).

        row: array('h') of f features. The probabilities are multiples of 2**-grid_bits and add up
        to at most 1. Raises ValueError for lengths that do not fit.
        """
        if len(row) < self.features or len(out) < self.classes or not 0 <= grid_bits <= 14:
            raise ValueError("lengths do not fit")
        scores = self._z
        sums = self._sums
        shift = self._shift
        best = -(1 << 29)  # below any score
        # The score of a class is w.x, in units of 2**-14, rounded; see tern.residual.
        for i in range(self.classes):
            # dot() takes features and parameters the other way round, which changes no sum.
            dot(self._parameters, i * self.features, row, sums, self.features)
            scores[i] = sums[0] + (sums[1] >> 8) + (1 << shift - 1) >> shift
            best = max(best, scores[i])
        # Softmax: exp(score - best) / total, so that no exponential exceeds 1.
        total = 0
        for i in range(self.classes):
            scores[i] = exp_minus(best - scores[i])
            total += scores[i]
        # Round down to the grid: clear the bits below it.
        below_grid = (1 << 14 - grid_bits) - 1
        for i in range(self.classes):
            probability = (scores[i] << 14) // total
            out[i] = probability - (probability & below_grid)


class Answerer:
    """Computes what a client reports to a ROUND that asks for an inference result."""

    def __init__(self, request):
        """request: the frames.Round, whose fields change from round to round."""
        self._request = request
        self._row = array("h", (0 for _ in range(MAX_DIMENSION + 1)))
        self._probabilities = array("h", (0 for _ in range(MAX_DIMENSION)))

    def cost(self, card):
        """Return the price of a report: the card's epsilon once, for the label or the whole vector.

        Raises FrameError if the card does not fit.
        """
        request = self._request
        label = request.k == 1
        self.draw = sample_categories if label else sample
        if label:
            if card.shape != WINDOW or card.window != 1 or card.symbols != request.classes:
                raise FrameError(ERR_CARD, "a label needs a window of 1 over the classes")
        elif card.shape != LAPLACE:
            raise FrameError(ERR_CARD, "a probability vector needs a laplace card")
        return card.epsilon

    def values(self, client, records, card):
        """Return the class probabilities of the next record on the card's grid, or its label.

        The label is the first of the most probable classes.
        """
        request = self._request
        classifier = Classifier(request.parameters, request.exponent, request.classes)
        row = memoryview(self._row)[: request.d + 1]
        records.read(client.start + (request.round - 1) % client.records, row)
        probabilities = self._probabilities
        if request.k > 1:
            classifier.probabilities(self._row, probabilities, card.grid_bits)
            return probabilities
        classifier.probabilities(self._row, probabilities)
        label = 0
        for i in range(1, request.classes):
            if probabilities[i] > probabilities[label]:
                label = i
        probabilities[0] = label
        return probabilities
