"""A report about the whole vector: one of 2 N directions, a near one likelier.

See shared_specs/cards.md (projection). PrivUnit (Bhowmick et al. 2018) with the codewords of RRSC
(Isik et al., NeurIPS 2023): a random rotation of the N unit vectors and their negatives. The
certificate is a ratio of two integers, whatever the vector. Leaves on values that are private have
no branch on them, and none allocates.
"""

import hashlib
from array import array
from struct import calcsize, unpack_from

from tern import wire
from tern.compat import const, micropython, ptr16, ptr32
from tern.fixed import EXP_BITS, exp_lower
from tern.frames import FrameError
from tern.gradient import Answerer as Gradients
from tern.noise import uniform
from tern.rotation import find, rotate

BODY = "<BBIIH"  # n, k, a, b, radius

_BODY_AT = const(5)
_MOST_BITS = const(7)
_MOST_TOTAL = const(1 << 20)
_MOST_RADIUS = const(1 << 15)


class Projection:
    """The body of a card of shape 7: N = 2**n directions and their negatives.

    The k directions nearest to the vector have the weight a, all others b.
    """

    def __init__(self, data, _=None):
        """data: the whole card. Raises ValueError."""
        if len(data) != _BODY_AT + calcsize(BODY):
            raise ValueError("wrong length")
        n, self.k, self.a, self.b, self.radius = unpack_from(BODY, data, _BODY_AT)
        if not (
            1 <= n <= _MOST_BITS
            and 1 <= self.k <= 1 << n
            and 1 <= self.b <= self.a <= _MOST_TOTAL
            and 1 <= self.radius <= _MOST_RADIUS
        ):
            raise ValueError("directions, weights or radius out of bounds")
        self.size = size = 1 << n
        self.top = 1 << 14 + 2 * n  # no coordinate of a rotated vector is larger
        self.symbols = 2 * size
        self.total = self.k * self.a + (2 * size - self.k) * self.b
        if self.total > _MOST_TOTAL:
            raise ValueError("weights out of bounds")

    def keeps(self, epsilon):
        """Return whether a report keeps `epsilon` micro-epsilon: a / b is at most exp(epsilon)."""
        return self.a << EXP_BITS <= exp_lower(epsilon) * self.b


@micropython.viper
def norm(values: ptr16, d: int) -> int:
    """Return the l2 norm of Q1.14 values[:d], d <= 128, in units of 2**-11, rounded down.

    Without a branch on a value: x >> 31 is -1 for a negative x, and else 0.
    """
    total = 0
    j = 0
    while j < d:
        value = ((values[j] + 32768) & 65535) - 32768
        sign = value >> 31
        value = ((value ^ sign) - sign + 4) >> 3
        total += value * value
        j += 1
    root = 0
    bit = 1 << 14
    while bit:
        value = root + bit
        root += bit * (1 + ((total - value * value) >> 31))
        bit >>= 1
    return root


@micropython.viper
def spread(values: ptr16, d: int, out: ptr32, n: int):
    """Copy values[:d] to out[:d], and fill out[d:n] with zeros."""
    nothing = 0
    j = 0
    while j < d:
        out[j] = ((values[j] + 32768) & 65535) - 32768
        j += 1
    while j < n:
        out[j] = nothing
        j += 1


def signs_of(question, size):
    """Return the 3 N signs, a bit each, of the rotation for a question; size: N.

    question: its digest.
    """
    digest = hashlib.sha256(question)
    digest.update(b"rotation")
    signs = digest.digest()
    return signs if size <= 64 else signs + hashlib.sha256(signs).digest()


class Answerer:
    """Computes what a client reports to a ROUND with a card of shape 7."""

    question = b""  # the digest of the question under way: set by the client

    def __init__(self, request):
        """request: the frames.Round, whose fields change from round to round."""
        self._request = request
        self._job = array("i", (0, 0))
        self._gradients = Gradients(request)
        self._others = {}  # by model, what else computes values
        self.result = None  # of the last values() or steps()
        self._vector = array("i")

    def cost(self, card):
        """Return the price of a report in micro-epsilon: the card's.

        Raises FrameError (ERR_CARD, ERR_MODEL).
        """
        request = self._request
        model = request.model
        if request.k > 1 or request.values > card.body.size or model not in wire.SCALED:
            raise FrameError(wire.ERR_CARD, "no projection of this model, k or size")
        self._answerer = self._gradients
        if model > wire.SVM:
            if model not in self._others:
                try:
                    if model == wire.VALUES:
                        from tern.collect import Answerer
                    else:
                        from tern.softmax import Answerer  # type: ignore[assignment]
                except ImportError:
                    raise FrameError(wire.ERR_MODEL, "no module for this model here", model)
                self._others[model] = Answerer(request)
            self._answerer = self._others[model]
        return card.epsilon

    def steps(self, client, records):
        """Compute `result`, the vector that is reported on; yields after each record."""
        if hasattr(self._answerer, "steps"):
            yield from self._answerer.steps(client, records)
            self.result = self._answerer.result
        else:
            self.values(client, records, None)

    def values(self, client, records, card):
        """Return the vector of which a direction is reported (array('h'), Q1.14)."""
        self.result = self._answerer.values(client, records, card)
        return self.result

    def draw(self, card, stream, _, out, k):
        """Draw the symbol for the last vector into out[0]: a direction, plus N for its negative.

        A uniform u below the sum of all weights chooses a rank: below k a, one of the k nearest
        directions, else one of the others. Directions are ranked by the size of their coordinate; a
        negative one is the opposite of that. Raises EntropyError, after which the symbol does not
        count.
        """
        out[0] = 0
        card = card.body
        turned = self._turned(card.radius, stream)
        draw = self._uniform(stream, card.total)
        k = card.k
        # No branch here either: whether the direction is one of the k likelier ones tells more than
        # its symbol.
        rest = draw - k * card.a
        likely = rest >> 31  # -1 or 0
        rest = (rest & ~likely) // card.b
        far = rest - k
        near = far >> 31  # the opposite of one of the k
        rest ^= (rest ^ k + (far >> 1)) & ~near
        rank = rest ^ (rest ^ draw // card.a) & likely
        turned ^= (far ^ (far ^ 1) & near) & ~likely & 1
        opposite = card.size & 0 - turned  # a product by 0 is found 3 cycles sooner
        out[0] = self._find(card.size, rank, card.top) ^ opposite

    def _turned(self, radius, stream):
        """Draw whether the vector is turned around: 1 or 0.

        A direction has no length, so its sign is right only with the probability (1 + |x| / R) / 2,
        where R is `radius`, or 1 beyond R.
        """
        size = norm(self.result, self._request.values)
        return radius + size - 1 - self._uniform(stream, 2 * radius) >> 31 & 1

    def _find(self, size, rank, top):
        """Return the symbol of the direction of this rank, as rotation.find()."""
        vector = self._vector
        if len(vector) != size:
            self._vector = vector = array("i", bytes(4 * size))
        spread(self.result, self._request.values, vector, size)
        rotate(vector, signs_of(self.question, size), size)
        return find(vector, size, rank, top)

    def _uniform(self, stream, n):
        """Draw an integer in 0 .. n - 1 from `stream`. Raises EntropyError."""
        job = self._job
        cursor = stream.cursor
        while True:
            job[0] = cursor[0]
            job[1] = cursor[1]
            draw = uniform(stream.pool, job, n)
            if job[0] <= job[1]:
                cursor[0] = job[0]
                return draw
            stream.refill()
