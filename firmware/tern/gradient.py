"""Gradients of small linear models, in integers, as in shared_specs/arithmetic.md.

With z = w.x, the losses are (z - y)**2 / 2 (LINEAR), log(1 + exp(-y z)) (LOGISTIC) and
max(0, 1 - y z) (SVM). The gradient of a record is r x, its residual r (the derivative of the loss
by z) times its features x. A record is d features and its label y, Q1.14, in an array('h'); a
parameter of the model is a mantissa m times 2**exponent. Coordinates of the linear model and the
SVM are within 2**-13 of the exact value; those of the logistic model, whose table of residuals is
interpolated, are within 2**-9.

No number overflows, whatever int16 values the arrays hold (features outside Q1.14 included), with
d <= 128 and up to 65,536 records, more than a client has (its number of records is a uint16).
`fine` is how many bits a product is finer than 2**-14, and z, y and r are in units of 2**-14:

  A mantissa is m = 256 a + b with -128 <= a <= 127 and 0 <= b <= 255, and the two sums of products
    are kept apart: |sum a x| <= 128 * 2**7 * 2**15 = 2**29;  |sum b x| <= 128 * 255 * 2**15 <
    2**30.
  The high part with the carry of the low one is at most 2**29 + 2**22, and z is that shifted right
    by at least 4: |z| < 2**26.
  |r| is limited to (2047 >> fine) * 2**14 by residual(). For fine = 0, |z| <= 1024 and |y| <= 1,
    this changes no valid result.
  r = 2**14 u + v with |u| <= 2047 >> fine and 0 <= v < 2**14: |u x| << fine <= 2047 * 2**15, and
    |v x| < 2**29.
  One record adds at most 2**fine |r| 2 <= 2047 * 2**15 to an accumulator, 32 records less than
    2**31 - 2**19.
  After each 32 records the accumulator keeps its lowest 12 bits, less than 2**12, so that it has
    room for 32 more. The rest, at most 2**19, is carried: after 65,536 records, which are carried
    at most 2,048 times, to at most 2**30.
  With n records, carried and kept part are put together again with a limit. It is n 2**14 or less,
    so at most 2**30, and the limited total is at most 2**30 + 2**14.
"""

from array import array

from tern import compat
from tern.compat import const, micropython, ptr16, ptr32
from tern.fill import erase
from tern.residual import SIGMOID, residual
from tern.sampler import sample
from tern.wire import LINEAR, MAX_BATCH, MAX_DIMENSION, MAX_EXPONENT, MIN_EXPONENT, SVM

MAX_FINE = const(10)  # bits that the products of a round are finer than 2**-14, at most

# The slots of a job, an array('i') with the parameters of add_record(). The first two get the sums
# of dot().
_MODEL = const(2)  # LINEAR, LOGISTIC or SVM
_EXPONENT = const(3)
_FEATURES = const(4)  # d
_FINE = const(5)  # bits that products are finer than 2**-14
_SLOTS = const(6)

# A viper ptr16 loads an unsigned number, in which a negative int16 v appears as v + 65536, while an
# array('h') of CPython gives v. (v + 32768 & 65535) - 32768 is the int16 on both.


@micropython.viper
def dot(row: ptr16, start: int, params: ptr16, sums: ptr32, d: int):
    """Sum up the products of parameters and features, in two parts that do not overflow.

    With mantissas m_j = 256 a_j + b_j and features x_j = row[start + j], j < d, sums[0] gets the
    sum of a_j x_j, and sums[1] the sum of b_j x_j. So 256 sums[0] + sums[1] is the sum of m_j x_j.
    """
    high = 0
    low = 0
    while d:
        d -= 1
        mantissa = ((params[d] + 32768) & 65535) - 32768
        x = ((row[start + d] + 32768) & 65535) - 32768
        high += (mantissa >> 8) * x
        low += (mantissa & 255) * x
    sums[0] = high
    d = 1  # see compat: no constant index
    sums[d] = low


@micropython.viper
def accumulate(row: ptr16, start: int, residual: int, totals: ptr32, d: int, fine: int):
    """Add residual * x to the totals: totals[j] += residual * row[start + j], j < d.

    Both factors are Q1.14; the product is rounded to a multiple of 2**-(14 + fine). Since the whole
    product would not fit 32 bits, the residual is split: with residual = 2**14 whole + part, the
    product is whole * x, exactly, plus part * x / 2**14, rounded.
    """
    whole = residual >> 14
    part = residual & 16383
    shift = 14 - fine
    half = 1 << (shift - 1)  # to round to nearest
    while d:
        d -= 1
        x = ((row[start + d] + 32768) & 65535) - 32768
        totals[d] = totals[d] + (whole * x << fine) + ((part * x + half) >> shift)


@micropython.viper
def add_record(row, params, totals, parameters):
    """Add the gradient of a record to the totals: its residual times its features.

    row: array('h') with d features and the label. params: array('h') of d mantissas. parameters:
    the job, whose slots are described at _MODEL.
    """
    job = ptr32(parameters)
    d = job[_FEATURES]
    dot(row, 0, params, parameters, d)
    label = ((ptr16(row)[d] + 32768) & 65535) - 32768
    factor = int(residual(parameters, label, SIGMOID))
    if factor:
        accumulate(row, 0, factor, totals, d, job[_FINE])


@micropython.viper
def carry(totals: ptr32, carried: ptr32, d: int):
    """Carry all but the lowest 12 bits of totals[j], j < d: add totals[j] >> 12 to carried[j].

    The sum 2**12 carried[j] + totals[j] stays the same.
    """
    j = 0
    while j < d:
        total = totals[j]
        carried[j] = carried[j] + (total >> 12)
        totals[j] = total & 4095
        j += 1


@micropython.viper
def gather(totals: ptr32, carried: ptr32, d: int, limit: int):
    """Add to totals[j], j < d, what was carried, which is 2**12 carried[j].

    The totals have been carried just now. A sum within -limit .. limit is exact; any other becomes
    one beyond the same end, but not far.
    """
    most = (limit >> 12) + 2
    j = 0
    while j < d:
        value = carried[j]
        if value > most:
            value = most
        elif value + most < 0:
            value = 0 - most
        totals[j] = totals[j] + (value << 12)
        j += 1


@micropython.viper
def mean(totals: ptr32, n: int, out: ptr16, d: int, up: int):
    """Write the mean of n records: out[j] = totals[j] * 2**up / n, j < d.

    It is rounded to nearest and clipped to -1 .. 1, which is -16384 .. 16384 in Q1.14.
    """
    half = n >> 1
    limit = n << 14 - up  # a larger total gives a mean beyond 1
    while d:
        d -= 1
        value = totals[d]
        # Limit before the shift, so that it does not overflow: it gives at most n 2**14.
        if value > limit:
            value = limit
        elif value + limit < 0:
            value = 0 - limit
        value = ((value << up) + half) // n
        if value > 16384:
            value = 16384
        elif value < -16384:
            value = -16384
        out[d] = value


def turn(round_number, n, count):
    """Return the index of the first record of a round's batch of n out of `count` records.

    Batches follow each other, round by round, and begin again after the last record. The first
    remainder changes nothing, but keeps the product small.
    """
    return (round_number - 1) % count * n % count


def batch_size(batch, count):
    """Return how many of its `count` records a client uses for a round with this batch (0: all)."""
    if batch == 0 or batch > count:
        return count
    return batch


class Gradient:
    """The mean gradient of a batch of records: reset(), add() each record, then finish().

    d: the number of features, 1 .. 128, the constant included. values: how many numbers the
    gradient has, d; in softmax.Batch classes x d. count: records so far. totals: the sums of their
    gradients, an array('i'), without what was carried after each 32 records. Only __init__
    allocates.
    """

    def __init__(self, d, classes=1, many=False):
        """Allocate the totals. Raises ValueError.

        classes: above 1 for softmax.Batch. many: whether a batch may have more than 32 records.
        """
        if not 1 <= d <= MAX_DIMENSION:
            raise ValueError("d must be 1..128")
        self.d = d
        self.values = classes * d
        self._params = None
        self._job = array("i", bytes(4 * _SLOTS))
        self._job[_FEATURES] = d
        self.totals = array("i", bytes(4 * self.values))
        self._carried = array("i", bytes(4 * self.values)) if many else None
        self.reset()

    def reset(self, range_=0):
        """Begin a new batch, whose mean is to be multiplied by 2**range_ (0 .. 12).

        Up to 10 of these bits make the sums finer (job[_FINE]); the rest is shifted at the
        end (`_up`).
        """
        fine = range_
        if fine > MAX_FINE:
            fine = MAX_FINE
        self._job[_FINE] = fine
        self._up = range_ - fine
        self.clear()

    def clear(self):
        """Begin a new batch with the range of the last one."""
        self.count = 0
        self._full = MAX_BATCH  # the number of records at which the totals are to be carried
        erase(self.totals, 4 * self.values)

    def _carry(self):
        """Carry the totals, so that they have room for 32 more records.

        Raises ValueError if the batch may not have more.
        """
        if not self._carried:
            raise ValueError("too many records in a batch")
        if self._full == MAX_BATCH:  # what was carried so far is of an earlier batch
            erase(self._carried, 4 * self.values)
        compat.feed()  # the watchdog: there may be many records
        carry(self.totals, self._carried, self.values)
        self._full += MAX_BATCH

    def use(self, model, params, exponent):
        """Take the model whose gradient add_row() adds up. Its bounds are not checked.

        model: LINEAR, LOGISTIC or SVM. params: array('h') of d mantissas; exponent: -30 .. -12, by
        which a mantissa m stands for m 2**exponent.
        """
        self._params = params
        job = self._job
        job[_MODEL] = model
        job[_EXPONENT] = exponent

    def add_row(self, row):
        """Add the gradient of a record to that of the batch. Raises ValueError for too many.

        row: array('h') with the d features, then the label.
        """
        count = self.count
        if count >= self._full:
            self._carry()
        add_record(row, self._params, self.totals, self._job)
        self.count = count + 1

    def put(self, row):
        """Add the gradient of a record as add_row() does, but neither count nor carry it."""
        add_record(row, self._params, self.totals, self._job)

    def add(self, model, params, exponent, row):
        """Add the gradient of a record: use() the model, and add_row() the record.

        Raises ValueError, before anything is added, for values out of bounds or too many records.
        """
        if not LINEAR <= model <= SVM:
            raise ValueError("unknown model")
        if not MIN_EXPONENT <= exponent <= MAX_EXPONENT:
            raise ValueError("exponent must be -30..-12")
        if len(params) != self.d or len(row) <= self.d:
            raise ValueError("lengths do not fit d")
        self.use(model, params, exponent)
        self.add_row(row)

    def finish(self, out):
        """Write the mean gradient, scaled and clipped to [-1, 1], into out (array('h'), Q1.14).

        It ends the batch. Raises ValueError without records.
        """
        count = self.count
        values = self.values
        if not count:
            raise ValueError("no records")
        if len(out) < values:
            raise ValueError("lengths do not fit d")
        if count > MAX_BATCH:
            self._carry()
            gather(self.totals, self._carried, values, count << 14 - self._up)
        mean(self.totals, count, out, values, self._up)


class Answerer:
    """Computes what a client reports to a ROUND (a request) for a gradient.

    Each kind of model has a class of this name, in its module.
    """

    def __init__(self, request):
        """request: the frames.Round, whose fields change from round to round.

        draw: the function that turns values into symbols. result: what the last values() or steps()
        has computed, array('h').
        """
        self._request = request
        self.draw = sample
        self._gradient = None
        self._changes = -1  # of the request whose model the gradient has; -1: of none
        self.result = None

    def room(self, d):
        """Allocate what a gradient of d features needs."""
        self._gradient = None  # until there was memory for all
        self._row = array("h", bytes(2 * d + 2))
        self.result = array("h", bytes(2 * d))
        self._gradient = Gradient(d, many=True)

    def cost(self, card):
        """Return the price of a report in micro-epsilon: each value costs the card's epsilon."""
        return self._request.k * card.epsilon

    def values(self, client, records, _):
        """Return the mean gradient of the batch whose turn it is (array('h'), Q1.14).

        client: the storage.Clients, which knows where its records begin. records: where they are
        read from. The card, which other answerers need, is not used.
        """
        index = self._begin(client)
        end = index + self._batch
        while index < end:  # beyond the last record it begins anew
            records.read(client.start + index % client.records, self._row)
            self._gradient.add_row(self._row)
            index += 1
        self._gradient.finish(self.result)
        return self.result

    def steps(self, client, records):
        """Compute `result` as values() does, but yield after each record.

        So a program can do other work in between.
        """
        first = self._begin(client)
        for index in range(first, first + self._batch):
            records.read(client.start + index % client.records, self._row)
            self._gradient.add_row(self._row)
            yield
        self._gradient.finish(self.result)

    def _take_model(self, request):
        """Begin the gradient of another request: make room, if it needs any, and take its model."""
        gradient = self._gradient
        if gradient is None or gradient.d != request.d:
            self.room(request.d)
            gradient = self._gradient
        gradient.reset(request.range)
        gradient.use(request.model, request.parameters, request.exponent)

    def _begin(self, client):
        """Begin the gradient of a round's batch; return the index of its first record."""
        request = self._request
        if request.changes != self._changes:
            self._take_model(request)
            self._changes = request.changes
        else:
            self._gradient.clear()
        count = client.records
        self._batch = batch = batch_size(request.batch, count)
        return turn(request.round, batch, count)


def by_steps(answerer, client, records, _):
    """Run all steps() of an answerer, and return its result: the method values() of such a class.

    Gradients have a values() of their own, since a generator leaves garbage on the heap. The card
    is not used.
    """
    for _ in answerer.steps(client, records):
        pass
    return answerer.result
