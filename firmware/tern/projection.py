"""A report about a whole vector: one of 2 N directions, of which near ones are likelier.

See shared_specs/cards.md (projection). The mechanism is PrivUnit (Bhowmick et al. 2018) with the
codewords of RRSC (Isik et al., NeurIPS 2023): directions are the N unit vectors and their
negatives, after a random rotation. A report is private whatever the vector is: the certificate is
just a ratio of two integers. Functions on private values have no branch on them, so that the time
tells nothing; none allocates.
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

_BODY_AT = const(5)  # bytes of a card's header
_MOST_BITS = const(7)  # N <= 128
_MOST_TOTAL = const(1 << 20)  # of all weights: what a uniform draw covers in three bytes
_MOST_RADIUS = const(1 << 15)


class Projection:
    """The body of a projection card (shape 7), the table of integers that defines the mechanism.

    There are N = 2**n directions and their negatives, 2 N symbols. The k directions nearest to the
    vector are drawn with a weight of a each, all others with b. radius: R, the length to which the
    vector is clipped, in units of 2**-(11 + f), with the range f of the request. total: the sum of
    all weights.
    """

    def __init__(self, data, _=None):
        """Decode and check a card. Raises ValueError.

        data: the whole card, header included. _: unused; the class of another shape gets a function
        there that decodes inner cards.
        """
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
        # No coordinate of a rotated vector is larger: a vector of N values of at most 2**14 has a
        # length of at most 2**14 N**.5, and each of three transforms multiplies lengths by N**.5.
        self.top = 1 << 14 + 2 * n
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

    It has no branch on a value. Instead, v >> 31 is -1 for a negative v and 0 for others.
    """
    total = 0
    j = 0
    while j < d:
        value = ((values[j] + 32768) & 65535) - 32768  # the int16 again: a ptr16 loads unsigned
        sign = value >> 31
        # |value| / 8, rounded: at most 2**11 for a valid value, so that 128 squares are below 2**30
        value = ((value ^ sign) - sign + 4) >> 3
        total += value * value
        j += 1
    # The square root, bit by bit: a bit is kept (times 1, not 0) if the square stays at most total.
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
    """Return the 3 N signs, a bit each, of the rotation for a request.

    question: the digest of the request. size: N. A SHA-256 has 256 bits, enough for N = 64; for 128
    another one follows. The host computes the same signs.
    """
    digest = hashlib.sha256(question)
    digest.update(b"rotation")
    signs = digest.digest()
    return signs if size <= 64 else signs + hashlib.sha256(signs).digest()


class Answerer:
    """Computes what a client reports to a ROUND (a request) with a projection card, of shape 7.

    The vector is a gradient or another model's values, for which it has an answerer of that model.
    """

    question = b""  # the digest of the question under way: set by the client

    def __init__(self, request):
        """request: the frames.Round, whose fields change from round to round."""
        self._request = request
        self._job = array("i", (0, 0))  # of noise.uniform(): position in the pool, and its end
        self._gradients = Gradients(request)
        self._others = {}  # by model, what else computes values
        self.result = None  # of the last values() or steps()
        self._vector = array("i")

    def cost(self, card):
        """Return the price of a report, the card's micro-epsilon; choose what computes the vector.

        Raises FrameError: ERR_CARD if a projection does not fit the request, ERR_MODEL without the
        model's module.
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
        """Draw the symbol for the last vector into out[0]: the index of a direction, plus N for its
        negative.

        A uniform number u below the sum of all weights chooses a rank, where rank 0 is the
        direction nearest to the vector. With u < k a it is one of the k nearest, each with the
        weight a, and points the same way as the vector. Else it is one of all others, each with the
        weight b: the opposites of those k, or a direction of a later rank or its opposite.

        stream: the entropy Stream. The fourth and the last parameter, the places and the number of
        reported values, are those of other answerers. Raises EntropyError, after which the symbol
        does not count.
        """
        out[0] = 0
        out[0] = self._symbol(card.body, stream)

    @micropython.viper
    def _symbol(self, card, stream) -> int:
        """Return the symbol that draw() draws. card: the Projection."""
        # A viper function, since MicroPython would search the heap for room for the variables of
        # another one.
        turned = int(self._turned(card.radius, stream))
        draw = int(self._uniform(stream, card.total))
        k = int(card.k)
        likely_weight = int(card.a)
        other_weight = int(card.b)
        # With branches this would be (q is called `rest`, q - k `far`):
        #
        #     if u < k a:         rank = u // a
        #     else:
        #         q = (u - k a) // b
        #         if q < k:       rank = q; turn around once more
        #         else:           rank = k + (q - k) // 2; turn around once more if q - k is odd
        #
        # Here are none: whether the direction is one of the k likelier ones tells more than its
        # symbol, and the time would show it. Instead, masks are -1 (all bits) or 0, and x ^ (x ^ y)
        # & mask is y if the mask is -1, else x.
        # x ^ -1 is the complement of x.
        rest = draw - k * likely_weight
        likely = rest >> 31  # -1 if u < k a
        rest = (rest & (likely ^ -1)) // other_weight
        far = rest - k
        near = far >> 31  # -1 for the opposite of one of the k
        rest ^= (rest ^ k + (far >> 1)) & (near ^ -1)
        rank = rest ^ (rest ^ draw // likely_weight) & likely
        turned ^= (far ^ (far ^ 1) & near) & (likely ^ -1) & 1
        # N if it is turned around, else 0: the symbol of the opposite direction differs by that
        # bit.
        opposite = int(card.size) & 0 - turned
        return int(self._find(card.size, rank, card.top)) ^ opposite

    @micropython.viper
    def _turned(self, radius, stream) -> int:
        """Draw whether the vector is turned around, 1 or 0, so that its length counts in the mean.

        A direction has no length. So it keeps its sign only with the probability (1 + |x| / R) / 2,
        where R is `radius`, or with 1 if |x| is beyond R: the mean of the sign is then |x| / R.
        """
        size = int(norm(self.result, self._request.values))
        # u is uniform below 2 R. The result is 1 if R + |x| - 1 - u is negative, which is u >= R +
        # |x|.
        most = int(radius)
        return most + size - 1 - int(self._uniform(stream, most + most)) >> 31 & 1

    @micropython.viper
    def _find(self, size, rank, top) -> int:
        """Return the symbol of the direction of this rank: rotate the vector, then look for it.

        size: N. top: see rotation.find().
        """
        vector = self._vector
        if len(vector) != size:
            self._vector = vector = array("i", bytes(int(size) << 2))
        spread(self.result, self._request.values, vector, size)
        rotate(vector, signs_of(self.question, size), size)
        return int(find(vector, size, rank, top))

    @micropython.viper
    def _uniform(self, stream, n) -> int:
        """Draw an integer in 0 .. n - 1 from `stream`, all equally likely. Raises EntropyError.

        If the pool ends within the draw, it begins again after a refill.
        """
        parameters = self._job
        job = ptr32(parameters)
        cursor = ptr32(stream.cursor)
        while True:
            at = 0
            while at < 2:  # position and end
                job[at] = cursor[at]
                at += 1
            draw = int(uniform(stream.pool, parameters, n))
            if job[0] <= job[1]:
                break
            stream.refill()
        cursor[0] = job[0]
        return draw
