"""Local training of a small linear model for FedAvg and PLDP-FL, in integers (shared_specs/arithmetic.md).

Sources: McMahan et al., AISTATS 2017 (FedAvg); Shen et al., Entropy 2023, 25, 485 (PLDP-FL, with its safe range tau).
Weights are in *fine* units of 2**(exponent - 8), the gradient in Q1.14; the learning rate is 2**-rate: a step is a
shift. No step overflows for exponents of -16..-12 and rates of 0..16: a gradient of at most 2**14 is shifted left by at
most 10, and fine weights are held to +-32767 * 256 < 2**23.
"""

from array import array

from tern import compat
from tern.compat import micropython, ptr16, ptr32
from tern.gradient import Answerer as Gradients
from tern.gradient import Gradient, batch_size, by_steps
from tern.wire import LOCAL, MAX_BATCH, MAX_EXPONENT, MAX_RATE, MAX_TAU, MIN_LOCAL_EXPONENT


@micropython.viper
def step(fine: ptr32, gradient: ptr16, params: ptr16, shift: int, d: int):
    """fine[j] -= gradient[j] * 2**shift (rounded), saturated; params[j] = fine[j] / 256, rounded to an int16."""
    j = 0
    while j < d:
        g = ((gradient[j] + 32768) & 65535) - 32768
        if shift >= 0:
            g <<= shift
        else:
            g = g + (1 << (0 - shift - 1)) >> (0 - shift)
        w = fine[j] - g
        if w > 8388352:
            w = 8388352
        elif w < -8388352:
            w = -8388352
        fine[j] = w
        params[j] = (w + 128) >> 8
        j += 1


@micropython.viper
def shares(fine: ptr32, start: ptr16, tau: int, out: ptr16, d: int):
    """out[j] = (fine[j] - 256 start[j]) / tau in Q1.14, rounded to nearest, clipped to [-1, 1]: by long division."""
    j = 0
    while j < d:
        moved = fine[j] - (((start[j] + 32768) & 65535) - 32768) * 256
        rest = moved
        if moved < 0:
            rest = 0 - moved
        q = 16384
        if rest < tau:
            q = 0
            i = 0
            while i < 14:
                rest <<= 1
                q <<= 1
                if rest >= tau:
                    rest -= tau
                    q += 1
                i += 1
            if rest << 1 >= tau:
                q += 1
        if moved < 0:
            q = 0 - q
        out[j] = q
        j += 1


class LocalTrainer:
    """Trains from a round's parameters, d features, 1..128, the constant included. No step allocates."""

    def __init__(self, d):
        self.d = d
        self._gradient = Gradient(d)
        self._mean = array("h", (0 for _ in range(d)))
        self._row = array("h", (0 for _ in range(d + 1)))
        self._start = array("h", (0 for _ in range(d)))
        self._params = array("h", (0 for _ in range(d)))
        self._fine = array("i", (0 for _ in range(d)))

    def steps(self, model, params, exponent, read, count, epochs, batch, rate):
        """Train for `epochs` over `count` records in batches of `batch` (0: all); yield after each record.

        params: array('h') of d mantissas; exponent: -16..-12; read(i, row) writes record i. Raises ValueError.
        """
        d = self.d
        size = batch or count
        if not 1 <= size <= MAX_BATCH or count < 1 or epochs < 1 or not 0 <= rate <= MAX_RATE:
            raise ValueError("records, epochs, batch or rate out of bounds")
        if not MIN_LOCAL_EXPONENT <= exponent <= MAX_EXPONENT or len(params) != d:
            raise ValueError("parameters or exponent do not fit")
        for j in range(d):
            self._start[j] = self._params[j] = params[j]
            self._fine[j] = params[j] * 256
        gradient = self._gradient
        shift = -6 - exponent - rate
        for _ in range(epochs):
            i = 0
            while i < count:
                gradient.reset()
                while i < count and gradient.count < size:
                    read(i, self._row)
                    gradient.add(model, self._params, exponent, self._row)
                    i += 1
                    yield
                gradient.finish(self._mean)
                step(self._fine, self._mean, self._params, shift, d)

    def report(self, tau, out):
        """Write how far each weight moved, as a share of `tau` (fine units, 1..2**23), into out (array('h'), Q1.14)."""
        if not 1 <= tau <= MAX_TAU or len(out) < self.d:
            raise ValueError("tau or lengths do not fit")
        shares(self._fine, self._start, tau, out, self.d)


class Answerer(Gradients):
    """Computes what a client reports to a ROUND that asks for local training."""

    _trainer = None

    values = by_steps

    def steps(self, client, records):
        """Train on all records of the client; `result` is how far each weight moved, as a share of tau (array('h'))."""
        request = self._request
        d = request.d
        if self._trainer is None or self._trainer.d != d:
            self.result = array("h", (0 for _ in range(d)))
            self._trainer = LocalTrainer(d)
        count = client.records

        def read(i, row):
            compat.feed()  # there may be many
            records.read(client.start + i, row)

        yield from self._trainer.steps(
            request.model - LOCAL, request.parameters, request.exponent, read, count, request.epochs,
            batch_size(request.batch, count), request.rate,
        )  # fmt: skip
        self._trainer.report(request.tau, self.result)
