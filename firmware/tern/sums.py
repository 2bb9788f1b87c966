"""Sums over units of a client's records, with exact noise.

See shared_specs/arithmetic.md (Sums of units) and cards.md (sum). The order is privacy: the vector
of a unit is clipped and rounded to a grid, its norm is checked, the units are added, and each
coordinate gets its noise. Only then is it made coarser. All is in integers; no leaf allocates.
"""

from array import array
from struct import calcsize, unpack_from

from tern import wire
from tern.compat import const, micropython, ptr32
from tern.coordinates import gather
from tern.entropy import EntropyError
from tern.fixed import EXP_BITS, ONE, exp_lower
from tern.frames import FrameError
from tern.gradient import MAX_FINE, Gradient, accumulate, by_steps, clear
from tern.ledger import RHO
from tern.noise import noise
from tern.shapes import SUM

BODY = "<BHHIhhIIIBB"  # norm, unit, R, r, tally of a clipped unit and of another, t, c, m, q, b

_BODY_AT = const(5)
_MILLION = const(1_000_000)
_MOST_RADIUS = const(4096)
_MOST_REACH = const(0x3FFFFFFF)
_MOST_SCALE = const(1 << 20)
_MOST_TOTAL = const(1 << 29)
_UNHELD = const(8)  # so many records cannot exceed it

_SHIFT = const(0)  # indices of a state: see measure(),
_SIZE = const(1)
_ROOT = const(2)
_DOUBLED = const(3)
_FACTOR = const(4)  # and scale()
_DOWN = const(5)
_HALF = const(6)
_NORM = const(7)


class Sum:
    """The body of a card of shape 6.

    `job`: [position in the pool, its end, t, 2 c, t m, m], for noise().
    """

    def __init__(self, data, _=None):
        """data: a card of shape 6, whose fields are those of cards.md. Raises ValueError."""
        if len(data) != _BODY_AT + calcsize(BODY):
            raise ValueError("wrong length")
        (
            self.norm,
            self.unit,
            self.radius,
            self.reach,
            self.clipped,
            self.kept,
            self.t,
            self.c,
            self.m,
            self.coarse,
            self.bits,
        ) = unpack_from(BODY, data, _BODY_AT)
        self.tally = max(abs(self.clipped), abs(self.kept))
        if not (
            1 <= self.radius <= _MOST_RADIUS
            and 1 <= self.reach <= _MOST_REACH
            and self.tally <= _MOST_RADIUS
            and 1 <= self.t <= _MOST_SCALE
            and self.coarse <= 20
            and 2 <= self.bits <= 16
        ):
            raise ValueError("radius, tally, scale or outputs out of bounds")
        wide = self.t * self.m
        most = _MOST_SCALE
        if self.norm == 2:
            if not (
                1 <= self.c <= most // 2 and self.c <= 4 * wide <= 256 * self.c and wide <= most
            ):
                raise ValueError("variance out of bounds")
        elif self.norm != 1 or self.c or self.m:
            raise ValueError("unknown norm")
        self.symbols = 1 << self.bits
        self.job = array("i", (0, 0, self.t, 2 * self.c, wide, self.m))

    def keeps(self, epsilon):
        """Return whether a unit loses at most `epsilon`: micro-epsilon with norm 1, micro-rho with
        norm 2.

        A run of records is there, or it is not: its vector appears or vanishes. A whole device
        (unit 0) may hold other records instead: its vector is replaced by another one, which may
        move the sum twice as far (ledger.md, Neighbours).
        """
        vectors = 1 if self.unit else 2
        if self.norm == 1:
            return epsilon * self.t >= _MILLION * vectors * (self.radius + self.tally)
        moved = vectors**2 * (self.radius**2 + self.tally**2)  # the square of its length
        return 2 * epsilon * self.c * self.t >= _MILLION * self.m * moved

    def work_ms(self, request, bound):
        """Return an upper bound, in ms, on the time of a report's units and noise on a Pico.

        bound: records of a client. A part of policy.work_ms().
        """
        units = min(bound, (bound - 1) // self.unit + 2) if self.unit else 1
        # ms more than any draw
        slow = self.job[4] // (3 * self.c) + self.c // self.job[4] if self.c else 0
        return (units * (request.values + 64) >> 6) + request.k * slow

    def factor(self, size):
        """Return p and K + s of the factor p / 2**(K + s), which scales a vector of norm `size`.

        It has the card's radius then. See arithmetic.md (Clipping), with n = size.
        """
        length = 0
        while size >> length:
            length += 1
        leading_bits = size << 15 - length if length <= 15 else (size >> length - 15) + 1
        up = 29
        while self.radius >> 29 - up:
            up -= 1
        return (self.radius << up) // leading_bits, up + length - 15


def rho(epsilon):
    """Return what a report of `epsilon` (micro-epsilon) costs at most in zCDP, in micro-rho.

    Source: ledger.md, Measure: epsilon (e**epsilon - 1) / (e**epsilon + 1), with an upper bound of
    e**epsilon.
    """
    upper = exp_lower(epsilon)
    upper += (upper >> EXP_BITS - 3) + 1
    one = 1 << EXP_BITS
    return -(-epsilon * (upper - one) // (upper + one))


# Vectors of units. A state: an array('i') of 8.


@micropython.viper
def hold(totals: ptr32, n: int, limit: int):
    """Limit each of totals[:n] to -limit .. limit."""
    j = 0
    while j < n:
        value = totals[j]
        if value > limit:
            totals[j] = limit
        elif value + limit < 0:
            totals[j] = 0 - limit
        j += 1


@micropython.viper
def measure(totals: ptr32, n: int, state: ptr32):
    """Measure the norms of a vector totals[:n] (arithmetic.md, Clipping).

    state gets the numbers of that section: s, by which values are shifted to 14 bits, a_j =
    totals[j] / 2**s; the sum of |a_j|, 0 if all are; isqrt(g) + 1, where g is the sum of a_j**2 /
    2**14, rounded up and times 4**h; and h.
    """
    largest = 0
    index = 0
    while index < n:
        value = totals[index]
        if value < 0:
            value = 0 - value
        if value > largest:
            largest = value
        index += 1

    # the largest one gets 14 bits
    shift = 0
    up = 0
    while largest >> shift > 16383:
        shift += 1
    while largest and largest << up < 8192:
        up += 1

    size = 0
    high = 0
    low = 0
    index = 0
    while index < n:
        value = (totals[index] << up) >> shift
        if value < 0:
            value = 0 - value
        size += value
        value *= value
        high += value >> 14
        low += value & 16383
        index += 1
    high += (low >> 14) + 1

    # The square root of the sum of squares, bit by bit; before it is multiplied by 4 until it is
    # large enough, `index` times.
    index = 0
    while high < 1 << 26:
        high <<= 2
        index += 1
    root = 0
    low = 1 << 13
    while low:
        value = root | low
        if value * value <= high:
            root = value
        low >>= 1

    state[0] = shift - up
    at = 1
    state[at] = size
    at = 2
    state[at] = root + 1
    at = 3
    state[at] = index


@micropython.viper
def scale(totals: ptr32, n: int, vector: ptr32, state: ptr32) -> int:
    """Write the vector totals[:n], scaled by p / 2**(K + s), into `vector`; return its norm.

    The norm is the sum of squares, or of sizes where state[_NORM] is 1. state: see measure() and
    the indices; values are rounded to nearest, or toward 0 where state[_HALF] is 0.
    """
    shift = state[_SHIFT]
    up = 0
    if shift < 0:
        up = 0 - shift
        shift = 0
    factor = state[_FACTOR]
    down = state[_DOWN]
    half = state[_HALF]

    total = 0
    index = 0
    while index < n:
        product = ((totals[index] << up) >> shift) * factor
        if half or product >= 0:
            value = product + half >> down
        else:
            value = 0 - ((0 - product) >> down)
        vector[index] = value
        if value < 0:
            value = 0 - value
        if state[_NORM] == 2:
            value *= value
        total += value
        index += 1
    return total


@micropython.viper
def add(sums: ptr32, n: int, vector: ptr32):
    """Add a vector to the sums: sums[j] += vector[j], j < n."""
    j = 0
    while j < n:
        sums[j] = sums[j] + vector[j]
        j += 1


class _Gradients:
    """Adds up the gradients of records: of the one in `row` to `totals`, by add()."""

    def __init__(self, request, _):
        self._request = request
        self.row = array("h", bytes(2 * request.d + 2))
        gradient = Gradient
        if request.classes > 1:
            from tern.softmax import Batch as gradient  # type: ignore[assignment]
        self._gradient = gradient(request.d, request.classes)
        self.totals = self._gradient.totals

    def begin(self):
        self._gradient.reset(self._request.range)

    def add(self):
        request = self._request
        self._gradient.add(request.model, request.parameters, request.exponent, self.row)
        self._gradient.count = 0  # hold() allows for more than a batch


class _Features:
    """Adds up the requested features of records, or their categories, one-hot, as _Gradients."""

    def __init__(self, request, n):
        self._request = request
        self.row = array("h", bytes(2 * request.d + 2))
        self._asked = array("h", bytes(2 * n))
        self.totals = array("i", bytes(4 * n))

    def begin(self):
        self._places = array("H", [j for j in range(self._request.d) if self._request.asked[j]])

    def add(self):
        """Add the record in `row` to `totals`."""
        n = len(self._places)
        gather(self.row, self._places, n, self._asked)
        request = self._request
        if request.model == wire.VALUES:
            accumulate(self._asked, 0, ONE, self.totals, n, request.range)
            return
        at = 0
        for i in range(n):
            self.totals[at + max(0, min(self._asked[i], request.classes - 1))] += ONE
            at += request.classes


class Answerer:
    """Computes what a client reports to a ROUND with a card of shape 6."""

    def __init__(self, request):
        """request: the frames.Round.

        The client sets `unit`, that of the board, and `bound`, the most records of a client (0: no
        bound).
        """
        self._request = request
        self.unit = self.bound = 0
        self._of: "object" = None  # what the arrays are for
        self.result = None

    def cost(self, card):
        """Return the price of a report, micro-epsilon or micro-rho: the card's.

        Raises FrameError (ERR_CARD, ERR_MODEL, ERR_UNIT).
        """
        request = self._request
        model = request.model
        has_sum = model in wire.GRADIENTS or model in wire.COLLECTIONS
        if request.batch or request.range > MAX_FINE or not has_sum:
            raise FrameError(wire.ERR_CARD, "no sum of this model, batch or range")
        if model == wire.SOFTMAX_GRADIENT:
            try:
                from tern.softmax import Batch  # noqa: F401, see _Gradients
            except ImportError:
                raise FrameError(wire.ERR_MODEL, "no module for this model here", model)
        self._sum = card.body
        if self._sum.unit and self._sum.unit != self.unit:
            raise FrameError(
                wire.ERR_UNIT, "neither the board's unit nor the whole device", self.unit
            )
        return card.epsilon

    def price(self, measure, cost, card):
        """Return `cost`, of a report with any card, in the measure of a ledger.

        measure: EPSILON or RHO. Raises FrameError (ERR_MEASURE) where the ledger counts epsilon and
        the card costs rho.
        """
        if card.shape == SUM and card.body.norm == 2:
            if measure != RHO:
                raise FrameError(wire.ERR_MEASURE, "costs rho, and the ledger counts epsilon")
        elif measure == RHO:
            cost = cost // card.epsilon * rho(card.epsilon)
        return cost

    values = by_steps

    def steps(self, client, records):
        """Compute the sums over the units of a client; yields after each record.

        `result` is then the numbers 0 .. values - 1: draw() takes the sums of those that are
        chosen.
        """
        request = self._request
        width = request.values - 1
        self._room(width)
        clear(self._sums, width + 1)
        source = self._source
        row = source.row
        unit = self._sum.unit
        start = client.start
        count = client.records
        take = None
        if hasattr(records, "take"):  # a recorder, whose `least` means nothing here
            take = records.take
            count = records.count
            start = max(0, count - (self.bound or count))
            count -= start

        current_unit = -1
        records_in_unit = 0
        for place in range(count):
            if take:
                if not records.count:  # the program has just removed them
                    break
                place = take(start + place, row)
            else:
                records.read(start + place, row)
            unit_of_record = place // unit if unit else 0
            # It was not read; or its unit is complete, which counts once.
            if place < 0 or unit_of_record < current_unit:
                continue
            if unit_of_record > current_unit and records_in_unit:
                self._end(width)
                records_in_unit = 0
            if not records_in_unit:
                clear(source.totals, width)
            current_unit = unit_of_record
            source.add()
            records_in_unit += 1
            if records_in_unit >= _UNHELD:
                hold(source.totals, width, _MOST_TOTAL)
            yield
        if records_in_unit:
            self._end(width)

    def _room(self, n):
        """Allocate what a vector of n values needs, unless there is room for the same question."""
        request = self._request
        question = request.model, request.classes, request.d, n
        if question != self._of:
            self._of = None  # until there was memory for all
            source = _Features if request.model in wire.COLLECTIONS else _Gradients
            self._source = source(request, n)
            self._vector = array("i", bytes(4 * n))
            self._sums = array("i", bytes(4 * n + 4))
            self.result = array("h", range(n + 1))
            self._state = array("i", bytes(32))
            self._of = question
        self._state[_NORM] = self._sum.norm
        self._plain = self._sum.factor(self._sum.reach)  # of units that are not clipped
        self._source.begin()

    def _end(self, n):
        """Add the vector of a unit that is complete: clip it, check its norm, add it."""
        card = self._sum
        totals = self._source.totals
        vector = self._vector
        state = self._state
        measure(totals, n, state)
        shift = state[_SHIFT]
        size = state[_SIZE]
        # N of arithmetic.md, a bound on the norm: that of the shifted values, shifted back.
        if size and card.norm == 2:
            power = 7 - state[_DOUBLED] + shift
            size = state[_ROOT] << power if power >= 0 else -(-state[_ROOT] >> -power)
        elif size:
            size = size << shift if shift >= 0 else size >> -shift

        is_clipped = size > card.reach
        factor, down = card.factor(size) if is_clipped else self._plain
        down -= shift

        # A vector of zeros, or one that rounds to zeros, adds nothing.
        if size and down <= 30:
            state[_FACTOR] = factor
            state[_DOWN] = down
            limit = card.radius if card.norm == 1 else card.radius**2
            state[_HALF] = 1 << down - 1
            total = scale(totals, n, vector, state)
            # Rounding made it too long: round toward 0 instead.
            if total > limit:
                state[_HALF] = 0
                total = scale(totals, n, vector, state)
            if total <= limit:
                add(self._sums, n, vector)
        # The last sum is the tally of clipped and other units.
        self._sums[n] += card.clipped if is_clipped else card.kept

    def draw(self, card, stream, places, out, k):
        """Draw symbols for the sums at places[:k] into out[:k]: add noise, then make them coarser.

        Raises EntropyError, after which no symbol counts.
        """
        card = card.body
        job = card.job
        cursor = stream.cursor
        sums = self._sums
        half = 1 << card.coarse >> 1
        try:
            for i in range(k):
                while True:
                    job[0] = cursor[0]
                    job[1] = cursor[1]
                    noisy_sum = noise(stream.pool, job)
                    # Else the pool ended within the draw, which begins again after a refill.
                    if job[0] <= job[1]:
                        break
                    stream.refill()
                cursor[0] = job[0]
                noisy_sum = (sums[places[i]] + noisy_sum + half >> card.coarse) + (
                    card.symbols >> 1
                )
                out[i] = max(0, min(noisy_sum, card.symbols - 1))
        except EntropyError:
            for i in range(k):
                out[i] = 0
            raise
