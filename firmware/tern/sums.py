"""Sums over units of a client's records, with exact noise.

A unit is what the report protects as a whole: a run of consecutive records, or all records of the
client. Each unit adds one vector to the sums. See shared_specs/arithmetic.md (Sums of units) and
cards.md (sum).

The order of the steps is what makes it private. The vector of a unit is clipped and rounded to a
grid, and the norm of the rounded vector is checked. Then the units are added, and each coordinate
of the sum gets its noise. Only then is the sum made coarser. All numbers are integers; no leaf (a
viper function that does the inner work) allocates.
"""

from array import array
from struct import calcsize, unpack_from

from tern import wire
from tern.compat import const, micropython, ptr16, ptr32
from tern.coordinates import gather
from tern.fill import erase
from tern.fixed import EXP_BITS, ONE, bin_of, exp_lower
from tern.frames import FrameError
from tern.gradient import MAX_FINE, Gradient, accumulate, by_steps
from tern.ledger import RHO
from tern.noise import draw_noise
from tern.shapes import SUM

BODY = "<BHHIhhIIIBB"  # norm, unit, R, r, tally of a clipped unit and of another, t, c, m, q, b

_BODY_AT = const(5)  # bytes of a card's header
_MILLION = const(1_000_000)
_MOST_RADIUS = const(4096)  # 65,535 units of this length stay below 2**28
_MOST_REACH = const(0x3FFFFFFF)  # 2**30 - 1: a small int of MicroPython
_MOST_SCALE = const(1 << 20)  # of t, and of t m: what a uniform draw covers in three bytes
_MOST_TOTAL = const(1 << 29)  # to which the totals of a unit are limited
# A record adds less than 2**26 to a total, so the first eight cannot exceed 2**29. From then on,
# totals are limited after each record.
_UNHELD = const(8)

# The slots of a state, an array('i') of 16, in which the leaves hand over numbers of a vector. Those
# that measure() sets; the letters are those of arithmetic.md (Clipping):
_SHIFT = const(0)  # s: values are divided by 2**s to have 14 bits; may be negative
_SIZE = const(1)  # the sum of the shifted absolute values; 0 for a vector of zeros
_ROOT = const(2)  # the square root of the sum of their squares, rounded up
_DOUBLED = const(3)  # h: how often that root was doubled to be more precise
# Those that fit() sets and scale() reads:
_FACTOR = const(4)  # p: a value is multiplied by p / 2**K
_DOWN = const(5)  # K
_HALF = const(6)  # 2**(K - 1) to round to nearest; 0 to round toward 0
# And those of the card:
_NORM = const(7)  # 1 or 2: which norm the vector has
_REACH = const(8)  # r
_PLAIN_FACTOR = const(9)  # p and K + s of a unit that is not clipped
_PLAIN_DOWN = const(10)
_UP = const(11)  # as far as R can be shifted up without exceeding 29 bits
_SHIFTED_RADIUS = const(12)  # R 2**_UP
_LIMIT = const(13)  # what scale() returns at most: R, or its square with norm 2
_KEPT = const(14)  # what a unit adds to the tally
_CLIPPED = const(15)  # what it adds if it was clipped
_SLOTS = const(16)


class Sum:
    """The body of a sum card (shape 6): how vectors are clipped, and which noise they get.

    A card is the certified table of integers that defines a mechanism. job: the parameters of
    noise.noise(), which tern.noise lists.
    """

    def __init__(self, data, _=None):
        """Decode the fields of a card, and check their bounds. Raises ValueError.

        data: the whole card, header included. _: unused; the class of another shape gets a function
        there that decodes inner cards.
        """
        if len(data) != _BODY_AT + calcsize(BODY):
            raise ValueError("wrong length")
        (
            self.norm,  # 1: the l1 norm, with Laplace noise; 2: the l2 norm, with Gaussian noise
            self.unit,  # records of a run that is protected as a whole; 0: all records
            self.radius,  # R: the largest norm of a unit's vector, in steps of the grid
            self.reach,  # r: the same norm before scaling, in units of the totals
            self.clipped,  # what a unit that was clipped adds to the tally, the last of the sums
            self.kept,  # what any other unit adds to it
            self.t,  # the scale of a Laplace variable, in grid steps
            self.c,  # with norm 2 the variance of the noise is c t / m; with norm 1 both are 0
            self.m,
            self.coarse,  # q: outputs have steps of 2**q grid steps
            self.bits,  # b: there are 2**b symbols
        ) = unpack_from(BODY, data, _BODY_AT)
        # The most that a unit can change the tally: the noise must hide that as well.
        self.tally = max(abs(self.clipped), abs(self.kept))
        if not (
            1 <= self.radius <= _MOST_RADIUS
            and 1 <= self.reach <= _MOST_REACH
            and self.tally <= _MOST_RADIUS
            and 1 <= self.t <= _MOST_SCALE
            and self.coarse <= 20  # an output stands for at most 2**20 grid steps
            and 2 <= self.bits <= 16  # a symbol is a uint16
        ):
            raise ValueError("radius, tally, scale or outputs out of bounds")
        wide = self.t * self.m
        most = _MOST_SCALE
        if self.norm == 2:
            # sigma**2 = c t / m, so the two bounds on c say t / 8 <= sigma <= 2 t. Otherwise hardly
            # any Laplace draw would become a Gaussian one, and a draw might not end. The sampler
            # draws uniformly below 2 c and below t m, each at most 2**20.
            if not (
                1 <= self.c <= most // 2 and self.c <= 4 * wide <= 256 * self.c and wide <= most
            ):
                raise ValueError("variance out of bounds")
        elif self.norm != 1 or self.c or self.m:
            raise ValueError("unknown norm")
        self.symbols = 1 << self.bits
        # As far as R can be shifted up without exceeding 29 bits.
        self.up = 29
        while self.radius >> 29 - self.up:
            self.up -= 1
        # The slots of noise.noise(): position in the pool, its end, t, 2 c, t m, m
        self.job = array("i", (0, 0, self.t, 2 * self.c, wide, self.m))

    def keeps(self, epsilon):
        """Return whether a unit loses at most `epsilon`: micro-epsilon with norm 1, micro-rho with
        norm 2.

        With R the largest norm of a vector, A the largest tally, and w vectors that change between
        two neighbouring data sets (cards.md):

            norm 1:  epsilon >= w (R + A) / t                   (Laplace noise of scale t)
            norm 2:  rho >= w**2 (R**2 + A**2) / (2 sigma**2)   (sigma**2 = c t / m)

        Both are multiplied out, so that only integers are compared.
        """
        # A run of records is there, or it is not: its vector appears or vanishes. A whole device
        # (unit 0) may hold other records instead: its vector is replaced by another one, which may
        # move the sum twice as far (ledger.md, Neighbours).
        vectors = 1 if self.unit else 2
        if self.norm == 1:
            return epsilon * self.t >= _MILLION * vectors * (self.radius + self.tally)
        moved = vectors**2 * (self.radius**2 + self.tally**2)  # the square of its length
        return 2 * epsilon * self.c * self.t >= _MILLION * self.m * moved

    def work_ms(self, request, bound):
        """Return an upper bound, in ms, on the time of a report's units and noise on a Pico.

        The constants were measured; the bound depends on public numbers alone. request: the
        frames.Round. bound: the most records of a client. A part of policy.work_ms().
        """
        # A run of `unit` records may begin anywhere, so that the first and the last may be cut: at
        # most two more than full ones. There are no more units than records.
        units = min(bound, (bound - 1) // self.unit + 2) if self.unit else 1
        # How many ms a Gaussian draw takes longer: more, the further sigma is from t; job[4] is t
        # m.
        slow = self.job[4] // (3 * self.c) + self.c // self.job[4] if self.c else 0
        return (units * (request.values + 64) >> 6) + request.k * slow

    def factor(self, size):
        """Return p and K + s of the factor p / 2**(K + s), which scales a vector of norm `size`.

        The scaled vector has at most the norm R, the card's radius: p / 2**(K + s) is R / size
        rounded down. p has at most 15 bits, so that its product with a value of 14 bits fits 30.
        See arithmetic.md (Clipping); n there is `size`, n' `leading_bits`, y `up` and l `length`.
        fit() does the same for a measured vector.
        """
        length = 0
        while size >> length:
            length += 1
        # The first 15 bits of size, rounded up, so that the factor is not too large.
        leading_bits = size << 15 - length if length <= 15 else (size >> length - 15) + 1
        return (self.radius << self.up) // leading_bits, self.up + length - 15


def rho(epsilon):
    """Return an upper bound, in micro-rho, on the zCDP of a report that is `epsilon`-LDP.

    epsilon: in micro-epsilon. The bound is epsilon (e**epsilon - 1) / (e**epsilon + 1), zCDP being
    zero-concentrated differential privacy; see ledger.md (Measure). The fraction grows with
    e**epsilon, so that an upper bound of that gives one of rho.
    """
    # exp_lower is less than a relative 2**-38 too small, in units of 2**-40; EXP_BITS - 3 is 37. So
    # a 2**37th more, rounded up, is an upper bound.
    upper = exp_lower(epsilon)
    upper += (upper >> EXP_BITS - 3) + 1
    one = 1 << EXP_BITS
    # The units of 2**-40 cancel, and rho is in millionths as epsilon is. -(-a // b) rounds up.
    return -(-epsilon * (upper - one) // (upper + one))


# Vectors of units. The state that some leaves share is described at _SHIFT.


@micropython.viper
def hold(totals: ptr32, n: int, limit: int):
    """Limit each of totals[:n] to -limit .. limit."""
    j = 0
    while j < n:
        value = totals[j]
        if value > limit:
            totals[j] = limit
        elif value + limit < 0:  # that is value < -limit: a leaf negates no variable
            totals[j] = 0 - limit
        j += 1


@micropython.viper
def measure(totals: ptr32, n: int, state: ptr32):
    """Measure the norms of the vector totals[:n], in 32 bits (arithmetic.md, Clipping, 1 and 2).

    Values are first shifted to 14 bits, a_j = totals[j] / 2**s rounded down, where s is such that
    the largest |a_j| is in 2**13 .. 2**14. Then state gets four numbers:

        state[_SHIFT]    s; negative where values were shifted up
        state[_SIZE]     the sum of |a_j|: the l1 norm of the shifted vector; 0 if all are 0
        state[_ROOT]     isqrt(4**h g) + 1, where g = sum(a_j**2) // 2**14 + 1
        state[_DOUBLED]  h

    The l2 norm of the shifted vector is at most 2**7 state[_ROOT] / 2**h.
    """
    # All bits of the absolute values: as many as the largest one has.
    bits = 0
    index = 0
    while index < n:
        value = totals[index]
        if value < 0:
            value = 0 - value
        bits |= value
        index += 1

    # The shift that gives the largest 14 bits: down by `shift` or up by `up`, of which one is 0.
    shift = 0
    up = 0
    while bits >> shift > 16383:
        shift += 1
    while bits and bits << up < 8192:
        up += 1

    # Squares have up to 28 bits. Their high and low 14 bits are added apart, so that a sum of 1024
    # of them fits 31 bits.
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
    high += (low >> 14) + 1  # g: the sum over 2**14, rounded up

    # The square root of g is taken bit by bit. A small g would lose precision by rounding, so it is
    # first multiplied by 4 until it has at least 26 bits: `index` times, here h.
    index = 0
    while high < 1 << 26:
        high <<= 2
        index += 1
    root = 0
    low = 1 << 13  # the bit under test; g < 2**28
    while low:
        value = root | low
        if value * value <= high:
            root = value
        low >>= 1

    # An index above 0 must be in a variable (see tern.compat).
    state[0] = shift - up
    at = 1
    state[at] = size
    at = 2
    state[at] = root + 1
    at = 3
    state[at] = index


@micropython.viper
def fit(state: ptr32) -> int:
    """Choose the factor for a measured vector; return 1 if the vector is to be clipped, else 0.

    state: see _SHIFT. Of it, _FACTOR, _DOWN and _HALF are set. A _DOWN of more than 30 says that
    the scaled vector is zero.
    """
    # An upper bound on the norm of the totals (N of arithmetic.md): `size` 2**power. It is that of
    # the values shifted to 14 bits, shifted back by s; with norm 2, the root is that of squares
    # over 2**14, so 2**7 too small, and was doubled h times.
    power = state[_SHIFT]
    size = state[_SIZE]
    down = 31 + power
    factor = 0
    clipped = 0
    if size:
        if state[_NORM] == 2:
            size = state[_ROOT]
            power += 7 - state[_DOUBLED]
        if power < 0:
            size = 0 - ((0 - size) >> (0 - power))  # rounds up
            power = 0
        factor = state[_PLAIN_FACTOR]
        down = state[_PLAIN_DOWN]
        if size > state[_REACH] >> power:
            clipped = 1
            bits = 0
            while size >> bits:
                bits += 1
            # The first 15 bits, rounded up; see Sum.factor().
            if bits <= 15:
                size <<= 15 - bits
            else:
                size >>= bits - 15
            if bits + power > 15:
                size += 1
            factor = state[_SHIFTED_RADIUS] // size
            down = state[_UP] + bits + power - 15
    down -= state[_SHIFT]  # scale() multiplies the values that are shifted already

    # An index above 0 must be in a variable (see tern.compat).
    at = _FACTOR
    state[at] = factor
    at = _DOWN
    state[at] = down
    # Half of 2**K, to round to nearest.
    at = _HALF
    if down <= 30:
        state[at] = 1 << down - 1
    return clipped


@micropython.viper
def scale(totals: ptr32, n: int, vector: ptr32, state: ptr32) -> int:
    """Write the scaled vector a_j p / 2**K into vector[:n], and return its norm.

    a_j is totals[j] / 2**s, of 14 bits. The result is rounded to nearest, or toward 0 where
    state[_HALF] is 0. It is returned with its l1 norm, the sum of |v_j|, where state[_NORM] is 1,
    else with the square of its l2 norm, the sum of v_j**2.

    state: see _SHIFT and the constants after it. p has at most 15 bits, so that a_j p, with half of
    2**K <= 2**30, fits 31 bits.
    """
    # Shift down by `shift`, or up by `up` where s is negative.
    shift = state[_SHIFT]
    up = 0
    if shift < 0:
        up = 0 - shift
        shift = 0
    factor = state[_FACTOR]
    down = state[_DOWN]
    half = state[_HALF]
    norm = state[_NORM]

    total = 0
    index = 0
    while index < n:
        product = ((totals[index] << up) >> shift) * factor
        if half or product >= 0:
            value = product + half >> down
        else:  # >> rounds down, so a negative product is shifted as a positive one
            value = 0 - ((0 - product) >> down)
        vector[index] = value
        if value < 0:
            value = 0 - value
        if norm == 2:
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
    """Adds up the gradients of a unit's records in `totals`.

    A source of vectors, as _Features is: put a record into `row`, and call add(row).
    """

    def __init__(self, request, _):
        """request: the frames.Round. _: the number of values, which only _Features needs."""
        self._request = request
        self.row = array("h", bytes(2 * request.d + 2))  # d features and a label
        gradient = Gradient
        if request.classes > 1:
            from tern.softmax import Batch as gradient  # type: ignore[assignment]
        self._gradient = gradient(request.d, request.classes)
        self.totals = self._gradient.totals
        # add(row) adds the gradient of a record to `totals`. A Gradient that counts refuses a 33rd
        # record, whose total might overflow; here hold() prevents that.
        self.add = self._gradient.put

    def begin(self):
        """Begin a report: take the range, by which gradients are scaled up, and the model."""
        request = self._request
        gradient = self._gradient
        gradient.reset(request.range)
        gradient.use(request.model, request.parameters, request.exponent)


class _Features:
    """Adds up the requested features of a unit's records, or counts their categories, in `totals`.

    A source of vectors, as _Gradients is: put a record into `row`, and call add(row).
    """

    def __init__(self, request, n):
        """request: the frames.Round. n: the number of values of a vector."""
        self._request = request
        self.row = array("h", bytes(2 * request.d + 2))  # d features and a label
        self._asked = array("h", bytes(2 * n))  # the requested features of a record
        self.totals = array("i", bytes(4 * n))

    def begin(self):
        """Begin a report: find the indices of the features that the request asks for."""
        self._places = array("H", [j for j in range(self._request.d) if self._request.asked[j]])

    def add(self, row):
        """Add a record to `totals`."""
        n = len(self._places)
        gather(row, self._places, n, self._asked)
        request = self._request
        if request.model == wire.VALUES:
            accumulate(self._asked, 0, ONE, self.totals, n, request.range)
            return
        # Each feature has a total for each class. The feature is the number of a class, or a number
        # in a bin of that number; one out of bounds counts as the first or the last. That class
        # gets 1.
        at = 0
        for i in range(n):
            category = self._asked[i]
            if request.exponent:
                category = bin_of(category, request.exponent)
            self.totals[at + max(0, min(category, request.classes - 1))] += ONE
            at += request.classes


class Answerer:
    """Computes what a client reports to a ROUND (a request) with a sum card, which has shape 6."""

    def __init__(self, request):
        """Answer requests of a client, one after the other.

        request: the frames.Round that the client reads each request into; its fields change.
        The client sets `unit`, the number of consecutive records that are protected together, and
        `bound`, the most records of a client (0: no bound).
        """
        self._request = request
        self.unit = self.bound = 0
        # What the arrays below were allocated for; a request of another kind needs new ones.
        self._of: "object" = None
        self.result = None  # the array of values to report

    def cost(self, card):
        """Return the price of a report, in micro-epsilon or micro-rho, which the card states.

        Raises FrameError if this board cannot answer the request: ERR_CARD for one that a sum does
        not fit, ERR_MODEL without the module, ERR_UNIT if the card protects other units than the
        board.
        """
        request = self._request
        model = request.model
        has_sum = model in wire.GRADIENTS or model in wire.COLLECTIONS
        if request.batch or request.range > MAX_FINE or not has_sum:
            raise FrameError(wire.ERR_CARD, "no sum of this model, batch or range")
        if model == wire.SOFTMAX_GRADIENT:
            try:
                # only to see that it is there: _Gradients imports it again
                from tern.softmax import Batch  # noqa: F401
            except ImportError:
                raise FrameError(wire.ERR_MODEL, "no module for this model here", model)
        self._sum = card.body
        if self._sum.unit and self._sum.unit != self.unit:
            raise FrameError(
                wire.ERR_UNIT, "neither the board's unit nor the whole device", self.unit
            )
        return card.epsilon

    def price(self, measure, cost, card):
        """Return the cost of a report with any card in the measure that a ledger counts.

        measure: EPSILON or RHO. cost: in micro-epsilon, or in micro-rho if the card has Gaussian
        noise. Raises FrameError (ERR_MEASURE) if the ledger counts epsilon and the card costs rho.
        """
        if card.shape == SUM and card.body.norm == 2:
            if measure != RHO:
                raise FrameError(wire.ERR_MEASURE, "costs rho, and the ledger counts epsilon")
        elif measure == RHO:
            # The quotient is the number of values that each cost the card's epsilon.
            cost = cost // card.epsilon * rho(card.epsilon)
        return cost

    values = by_steps

    def steps(self, client, records):
        """Compute the sums over the units of a client, in `_sums`; yields after each record.

        client: the storage.Clients, whose `start` and `records` say which records are its own.
        records: a storage.Records, or a recorder.Recorder. `result` is then 0 .. values - 1, the
        indices of the sums: draw() reads the sums at those that are chosen for the report.
        """
        request = self._request
        width = request.values - 1  # of a unit's vector; the last of the sums is the tally
        self._room(width)
        erase(self._sums, 4 * width + 4)
        source = self._source
        row = source.row
        totals = source.totals
        # MicroPython would look for these methods at each call.
        add = source.add
        end = self._end
        unit = self._sum.unit
        start = client.start
        count = client.records
        take = None
        # A recorder collects records while the program runs. It tells the place of each, by which
        # a record stays in the same unit for ever. Its `least` does not matter: a sum may be of no
        # records.
        if hasattr(records, "take"):
            take = records.take
            count = records.count
            start = max(0, count - (self.bound or count))
            count -= start
        else:
            read = records.read

        current_unit = -1
        records_in_unit = 0
        for place in range(count):
            if take:
                if not records.count:  # the program has just removed them
                    break
                place = take(start + place, row)
            else:
                read(start + place, row)
            unit_of_record = place // unit if unit else 0
            # The record could not be read; or it is of a unit that was already added, as may happen
            # when the program adds or removes records meanwhile. A unit counts only once.
            if place < 0 or unit_of_record < current_unit:
                continue
            if unit_of_record > current_unit and records_in_unit:
                end(width)
                records_in_unit = 0
            if not records_in_unit:
                erase(totals, 4 * width)
            current_unit = unit_of_record
            add(row)
            records_in_unit += 1
            if records_in_unit >= _UNHELD:
                hold(totals, width, _MOST_TOTAL)
            yield
        if records_in_unit:
            end(width)

    def _room(self, n):
        """Allocate what vectors of n values need, unless the last request was of the same kind."""
        request = self._request
        question = request.model, request.classes, request.d, n
        if question != self._of:
            self._of = None  # until there was memory for all
            source = _Features if request.model in wire.COLLECTIONS else _Gradients
            self._source = source(request, n)
            self._vector = array("i", bytes(4 * n))
            self._sums = array("i", bytes(4 * n + 4))
            self.result = array("h", range(n + 1))
            self._totals = self._source.totals
            self._state = array("i", bytes(4 * _SLOTS))  # see _SHIFT
            self._of = question
        card = self._sum
        state = self._state
        state[_NORM] = card.norm
        state[_REACH] = card.reach
        state[_PLAIN_FACTOR], state[_PLAIN_DOWN] = card.factor(card.reach)
        state[_UP] = card.up
        state[_SHIFTED_RADIUS] = card.radius << card.up
        state[_LIMIT] = card.radius**card.norm
        state[_KEPT] = card.kept
        state[_CLIPPED] = card.clipped
        self._source.begin()

    @micropython.viper
    def _end(self, n):
        """Add the vector of a complete unit to the sums: clip and round it, check its norm, add it.

        n: the number of values of a vector. The steps are those of arithmetic.md (Clipping).
        """
        # A viper function, since MicroPython would search the heap for room for the variables of
        # another one.
        totals = self._totals
        vector = self._vector
        vectors = self._sums
        parameters = self._state
        state = ptr32(parameters)
        measure(totals, n, parameters)
        is_clipped = int(fit(parameters))

        # A vector of zeros, or one that rounds to zeros (since a product is below 2**29), adds
        # nothing.
        if state[_DOWN] <= 30:
            total = int(scale(totals, n, vector, parameters))
            # Rounding to nearest made it too long: round toward 0 instead.
            if total > state[_LIMIT]:
                at = _HALF
                state[at] = 0
                total = int(scale(totals, n, vector, parameters))
            # Now it cannot be too long any more; privacy depends on it, so it is checked all the
            # same.
            if total <= state[_LIMIT]:
                add(vectors, n, vector)
        # The last sum is the tally of clipped and other units.
        tally = state[_KEPT]
        if is_clipped:
            tally = state[_CLIPPED]
        sums = ptr32(vectors)
        at = int(n)
        sums[at] = sums[at] + tally

    @micropython.viper
    def draw(self, card, stream, places, out, k: int):
        """Draw the symbols of k sums into out[:k]: add noise, then make them coarser, then clamp.

        places: indices of the sums to report. stream: the entropy Stream. With the noise Z, the
        symbol of a sum S is 2**(b - 1) + round((S + Z) / 2**q), clamped to 0 .. 2**b - 1. Raises
        EntropyError, after which no symbol counts.
        """
        # A viper function, for the same reason as _end().
        body = card.body
        job = body.job
        coarse = int(body.coarse)
        middle = int(body.symbols) >> 1
        half = 1 << coarse >> 1  # half of an output's step; 0 if q is 0
        sums = ptr32(self._sums)
        chosen = ptr16(places)
        symbols = ptr16(out)
        complete = False
        try:
            index = 0
            while index < k:
                value = sums[chosen[index]] + int(draw_noise(stream, job))
                value = (value + half >> coarse) + middle
                if value < 0:
                    value = 0
                elif value >= middle << 1:
                    value = (middle << 1) - 1
                symbols[index] = value
                index += 1
            complete = True
        finally:
            if not complete:
                index = k
                while index:
                    index -= 1
                    symbols[index] = 0
