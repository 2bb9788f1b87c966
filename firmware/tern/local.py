"""Local training of a small model for FedAvg and PLDP-FL, in integers (shared_specs/arithmetic.md).

Sources: McMahan et al., AISTATS 2017 (FedAvg); Shen et al., Entropy 2023, 25, 485 (PLDP-FL, with
its safe range tau, to which changes of weights are clipped).

A weight is a mantissa, an int16, times 2**exponent. While it is trained it is kept finer, in units
of 2**(exponent - 8), so 256 times the mantissa. The gradient is in Q1.14, and the learning rate is
2**-rate, so that a step of gradient descent is a shift. No step overflows for exponents of -16..-12
and rates of 0..16: a mean gradient of at most 2**14, whatever the model, is shifted left by at most
10, and fine weights are limited to +-32767 * 256 < 2**23. So the mantissas stay int16, for which
the sums of tern.gradient and the scores of tern.inference are proved.
"""

from array import array

from tern import compat, wire
from tern.compat import micropython, ptr16, ptr32
from tern.gradient import Answerer as Gradients
from tern.gradient import Gradient, batch_size, by_steps


@micropython.viper
def begin(source: ptr16, start: ptr16, params: ptr16, fine: ptr32, n: int):
    """Begin with the parameters: start[j] = params[j] = source[j], fine[j] = 256 source[j]."""
    j = 0
    while j < n:
        mantissa = ((source[j] + 32768) & 65535) - 32768
        start[j] = mantissa
        params[j] = mantissa
        fine[j] = mantissa * 256
        j += 1


@micropython.viper
def step(fine: ptr32, gradient: ptr16, params: ptr16, shift: int, n: int):
    """Take a step of gradient descent: fine[j] -= gradient[j] * 2**shift, rounded and saturated.

    Then params[j] = fine[j] / 256, rounded to an int16.
    """
    j = 0
    while j < n:
        change = ((gradient[j] + 32768) & 65535) - 32768
        if shift >= 0:
            change <<= shift
        else:
            # A shift right by -shift, with half of 2**-shift added to round to nearest.
            change = change + (1 << (0 - shift - 1)) >> (0 - shift)
        weight = fine[j] - change
        # +-32767 * 256, so that the mantissa stays an int16
        if weight > 8388352:
            weight = 8388352
        elif weight < -8388352:
            weight = -8388352
        fine[j] = weight
        params[j] = (weight + 128) >> 8
        j += 1


@micropython.viper
def shares(fine: ptr32, start: ptr16, tau: int, out: ptr16, n: int):
    """Write how far weights moved: out[j] = (fine[j] - 256 start[j]) / tau, clipped to [-1, 1].

    out: Q1.14, rounded to nearest. The size is divided bit by bit (long division), since 2**14
    times the difference would not fit 32 bits.
    """
    j = 0
    while j < n:
        moved = fine[j] - (((start[j] + 32768) & 65535) - 32768) * 256
        remainder = moved
        if moved < 0:
            remainder = 0 - moved
        quotient = 16384
        if remainder < tau:
            quotient = 0
            # 14 bits of the fraction, then one more to round. The remainder is below tau <= 2**23.
            i = 0
            while i < 14:
                remainder <<= 1
                quotient <<= 1
                if remainder >= tau:
                    remainder -= tau
                    quotient += 1
                i += 1
            if remainder << 1 >= tau:
                quotient += 1
        if moved < 0:
            quotient = 0 - quotient
        out[j] = quotient
        j += 1


def trained(model):
    """Return the model of gradients by which `model`, one of wire.TRAININGS, trains."""
    return wire.SOFTMAX_GRADIENT if model == wire.LOCAL_SOFTMAX else model - wire.LOCAL


class LocalTrainer:
    """Trains classes x d weights from a round's parameters; no step allocates.

    d: the number of features, 1 .. 128, the constant included. classes: 1 but for softmax
    regression. Raises ImportError without the module of softmax regression.
    """

    def __init__(self, d, classes=1):
        """Allocate everything that steps() needs.

        The arrays are: the mean gradient of a batch; the record that is read; the mantissas at the
        start and now; and the fine weights, which are 256 times as fine.
        """
        gradient = Gradient
        if classes > 1:
            from tern.softmax import Batch as gradient  # type: ignore[assignment]
        self.gradient = gradient(d, classes)
        n = classes * d
        self._mean = array("h", bytes(2 * n))
        self._row = array("h", bytes(2 * d + 2))
        self._start = array("h", bytes(2 * n))
        self._params = array("h", bytes(2 * n))
        self._fine = array("i", bytes(4 * n))

    def steps(self, model, params, exponent, read, count, epochs, batch, rate):
        """Train for `epochs` passes over all records; yields after each record.

        model: that of the gradients. params: classes x d mantissas (array('h')) to begin with;
        exponent: -16 .. -12. read: a function of i and an array, into which it writes record i.
        count: the number of records. batch: records between two steps of gradient descent, 0 for
        all. rate: the learning rate is 2**-rate. Raises ValueError.
        """
        gradient = self.gradient
        weights = gradient.values
        batch_records = batch or count
        if (
            not 1 <= batch_records <= wire.MAX_BATCH
            or count < 1
            or epochs < 1
            or not 0 <= rate <= wire.MAX_RATE
        ):
            raise ValueError("records, epochs, batch or rate out of bounds")
        if not wire.MIN_LOCAL_EXPONENT <= exponent <= wire.MAX_EXPONENT or len(params) != weights:
            raise ValueError("parameters or exponent do not fit")
        begin(params, self._start, self._params, self._fine, weights)
        gradient.use(model, self._params, exponent)
        # A gradient in units of 2**-14 becomes one of 2**(exponent - 8), times 2**-rate:
        # -14 - (exponent - 8) - rate.
        shift = -6 - exponent - rate
        for _ in range(epochs):
            index = 0
            while index < count:
                gradient.reset()
                while index < count and gradient.count < batch_records:
                    read(index, self._row)
                    gradient.add_row(self._row)
                    index += 1
                    yield
                gradient.finish(self._mean)
                step(self._fine, self._mean, self._params, shift, weights)

    def report(self, tau, out):
        """Write how far each weight moved, as a share of `tau`, into out (array('h'), Q1.14).

        tau: in fine units, 1 .. 2**23. Raises ValueError.
        """
        if not 1 <= tau <= wire.MAX_TAU or len(out) < self.gradient.values:
            raise ValueError("tau or lengths do not fit")
        shares(self._fine, self._start, tau, out, self.gradient.values)


class Answerer(Gradients):
    """Computes what a client reports to a ROUND that asks for local training."""

    values = by_steps

    def __init__(self, request):
        """request: the frames.Round.

        Raises ImportError where softmax regression is to be trained without its module.
        """
        super().__init__(request)
        self._trainer = None
        if request.model == wire.LOCAL_SOFTMAX:
            from tern.softmax import Batch  # noqa: F401, see LocalTrainer

    def steps(self, client, records):
        """Train on all records of the client; yields after each.

        `result` is then how far each weight moved, as a share of tau (array('h'), Q1.14).
        """
        request = self._request
        d = request.d
        classes = request.classes
        trainer = self._trainer
        if not trainer or trainer.gradient.d != d or trainer.gradient.values != classes * d:
            self._trainer = None  # until there was memory for all
            self.result = array("h", bytes(2 * classes * d))
            self._trainer = LocalTrainer(d, classes)
        count = client.records

        def read(i, row):
            """Read record i of the client into `row`."""
            compat.feed()  # the watchdog: there may be many records
            records.read(client.start + i, row)

        yield from self._trainer.steps(
            trained(request.model),
            request.parameters,
            request.exponent,
            read,
            count,
            request.epochs,
            min(batch_size(request.batch, count), wire.MAX_BATCH),
            request.rate,
        )
        self._trainer.report(request.tau, self.result)
