"""A report about the whole vector (shared_specs/cards.md, projection): one of 2 N directions, a
near one likelier.

PrivUnit (Bhowmick et al. 2018) with the codewords of RRSC (Isik et al., NeurIPS 2023): a random
rotation of the N unit vectors and their negatives. The certificate is a ratio of two integers,
whatever the vector. Leaves on values that are private have no branch on them, and none allocates.
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
    """The body of a card of shape 7: N = 2**n directions and their negatives; k have the weight a,
    all others b.
    """

    def __init__(self, data, _=None):
        """Raises ValueError."""
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
        """Return whether a report keeps `epsilon` micro-epsilon."""
        return self.a << EXP_BITS <= exp_lower(epsilon) * self.b


@micropython.viper
def norm(values: ptr16, d: int) -> int:
    """Return the l2 norm of Q1.14 values[:d], d <= 128, in units of 2**-11, rounded down."""
    total = 0
    j = 0
    while j < d:
        a = ((values[j] + 32768) & 65535) - 32768
        sign = a >> 31
        a = ((a ^ sign) - sign + 4) >> 3
        total += a * a
        j += 1
    root = 0
    bit = 1 << 14
    while bit:
        a = root + bit
        root += bit * (1 + ((total - a * a) >> 31))
        bit >>= 1
    return root


@micropython.viper
def spread(values: ptr16, d: int, out: ptr32, n: int):
    """out[:n] = values[:d], then zeros."""
    nothing = 0
    j = 0
    while j < d:
        out[j] = ((values[j] + 32768) & 65535) - 32768
        j += 1
    while j < n:
        out[j] = nothing
        j += 1


def signs_of(question, size):
    """Return the 3 N signs, a bit each, of the rotation for the digest of a question; size: N."""
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
        """Return the price of a report in micro-epsilon.

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
        """Compute `result`. Yields after each record."""
        if hasattr(self._answerer, "steps"):
            yield from self._answerer.steps(client, records)
            self.result = self._answerer.result
        else:
            self.values(client, records, None)

    def values(self, client, records, card):
        """Return the values (array('h'), Q1.14)."""
        self.result = self._answerer.values(client, records, card)
        return self.result

    def draw(self, card, stream, _, out, k):
        """Draw the symbol for the last gradient into out[0].

        After EntropyError it does not count.
        """
        out[0] = 0
        card = card.body
        turned = self._turned(card.radius, stream)
        u = self._uniform(stream, card.total)
        k = card.k
        # No branch here either: whether the direction is one of the k likelier ones tells more than
        # its symbol.
        rest = u - k * card.a
        likely = rest >> 31  # -1 or 0
        rest = (rest & ~likely) // card.b
        far = rest - k
        near = far >> 31  # the opposite of one of the k
        rest ^= (rest ^ k + (far >> 1)) & ~near
        rank = rest ^ (rest ^ u // card.a) & likely
        turned ^= (far ^ (far ^ 1) & near) & ~likely & 1
        opposite = card.size & 0 - turned  # a product by 0 is found 3 cycles sooner
        out[0] = self._find(card.size, rank, card.top) ^ opposite

    def _turned(self, radius, stream):
        # A direction has no length: its sign is right with the probability (1 + |x| / R) / 2, or 1
        # beyond R.
        size = norm(self.result, self._request.values)
        return radius + size - 1 - self._uniform(stream, 2 * radius) >> 31 & 1

    def _find(self, size, rank, top):
        vector = self._vector
        if len(vector) != size:
            self._vector = vector = array("i", bytes(4 * size))
        spread(self.result, self._request.values, vector, size)
        rotate(vector, signs_of(self.question, size), size)
        return find(vector, size, rank, top)

    def _uniform(self, stream, n):
        job = self._job
        cursor = stream.cursor
        while True:
            job[0] = cursor[0]
            job[1] = cursor[1]
            u = uniform(stream.pool, job, n)
            if job[0] <= job[1]:
                cursor[0] = job[0]
                return u
            stream.refill()
