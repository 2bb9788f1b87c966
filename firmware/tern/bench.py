"""The parts of a report that `tern bench latency` times on a board.

It returns raw times; the host takes medians.
"""

import gc
import math
import random
from array import array

from tern.card import decode
from tern.compat import const, ticks_diff
from tern.sampler import sample
from tern.shapes import TABLE, T

_COORDINATES = const(128)  # values that are drawn in one call
_SINGLES = const(256)  # blocks of the heap


def run(case, repeats, card_bytes, client, clock):
    """Time a piece of work; return (units of work in each run, list of the times of the runs).

    case: a name of CASES, which says what the work and its unit are. repeats: how many runs count.
    card_bytes: the card, the table of the privacy mechanism. client: the Client whose random bytes
    are used. clock: a function that returns ticks, in which the times are. Raises CardError and
    EntropyError.
    """
    units, work = CASES[case](decode(card_bytes), client)
    times = []
    for i in range(repeats + 1):
        gc.collect()
        # MicroPython looks for memory behind the last single block that it gave. So take some: the
        # heap is then as after some reports.
        for j in range(_SINGLES):
            _ = (j,)
        start = clock()
        work()
        end = clock()
        if i:  # the first is to warm up
            times.append(ticks_diff(end, start))
    return units, times


def _sample(card, client):
    """Draw symbols of the card eight times, entropy included; a unit is a coordinate."""
    inputs = array("h", range(-16384, 16384, 256))
    symbols = array("H", bytes(2 * _COORDINATES))

    def work():
        for _ in range(8):
            sample(card, client.entropy, inputs, symbols, _COORDINATES)

    return 8 * _COORDINATES, work


def _plain(card, client):
    """Draw outputs of the card's mechanism in floats, with random.random(); a unit is a coordinate.

    The textbook algorithm, for comparison: it keeps no exact privacy.
    """
    exp_epsilon = math.exp(card.epsilon / 1e6)
    perturb = (
        _piecewise(exp_epsilon)
        if card.shape != TABLE
        else _three_outputs(card)
        if card.knot_bits
        else _duchi(exp_epsilon)
    )
    inputs = [x / 16384 for x in range(-16384, 16384, 256)]
    outputs = [0.0] * _COORDINATES

    def work():
        for i in range(_COORDINATES):
            outputs[i] = perturb(inputs[i])

    return _COORDINATES, work


def _duchi(exp_epsilon):
    """Return Duchi's mechanism of two outputs, -c and c (Duchi, Jordan, Wainwright, 2018).

    exp_epsilon: e**epsilon. With c = (e**epsilon + 1) / (e**epsilon - 1), the output c has the
    probability 1/2 + x / (2 c), so that its mean is x.
    """
    c = (exp_epsilon + 1) / (exp_epsilon - 1)
    uniform = random.random

    def perturb(x):
        return c if uniform() < 0.5 + x / (2 * c) else -c

    return perturb


def _three_outputs(card):
    """Return a mechanism of the outputs -c, 0 and c (Zhao et al., 2021) with the card's numbers.

    The probability of each output is linear between the inputs 0 and 1, as in the card. At an input
    x, the output with the sign of x has the probability at_zero + gain |x|, and the opposite output
    has at_zero - loss |x|. With c = 1 / (gain + loss) the mean is x.
    """
    # A table card of 2**p + 1 knots, the middle one for x = 0, and two thresholds for each knot:
    # those of knot i are thresholds[2 i] and thresholds[2 i + 1], out of T.
    knot_of_zero = 1 << card.knot_bits - 1
    thresholds = card.thresholds
    at_zero = 1 - thresholds[2 * knot_of_zero + 1] / T
    gain = 1 - thresholds[4 * knot_of_zero + 1] / T - at_zero
    loss = at_zero - thresholds[4 * knot_of_zero] / T
    c = 1 / (gain + loss)
    uniform = random.random

    def perturb(x):
        size = abs(x)
        same = at_zero + gain * size
        draw = uniform()
        if draw < same:
            return c if x >= 0 else -c
        if draw < same + at_zero - loss * size:
            return -c if x >= 0 else c
        return 0.0

    return perturb


def _piecewise(exp_epsilon):
    """Return the piecewise mechanism PM-SUB (Zhao et al., 2021): outputs from -a to a.

    With the probability `inside` the output is uniform in an interval left .. right around a
    multiple of x, else uniform outside of it. exp_epsilon: e**epsilon.
    """
    t = exp_epsilon ** (1 / 3)
    a = (exp_epsilon + t) * (t + 1) / (t * (exp_epsilon - 1))
    scale = (exp_epsilon + t) / (t * (exp_epsilon - 1))
    inside = exp_epsilon / (t + exp_epsilon)
    uniform = random.random

    def perturb(x):
        left = scale * (x * t - 1)
        right = scale * (x * t + 1)
        if uniform() < inside:
            return left + (right - left) * uniform()
        # Uniform outside: draw from an interval that is shorter by the inner one, and leave that
        # out.
        output = -a + (2 * a - (right - left)) * uniform()
        return output if output < left else output + right - left

    return perturb


def _entropy(card, client):
    """Fill the pool of random bytes four times; a unit is a byte of the generator."""
    entropy = client.entropy

    def work():
        for _ in range(4):
            entropy.discard()
            entropy.refill()

    work()
    return 4 * (entropy.cursor[1] - entropy.cursor[0]), work


# The pieces of work: functions of a card and a client, which return the number of units and the
# function to time.
CASES = {
    "sample": _sample,  # draw symbols of the card, entropy included; unit: a coordinate
    "plain": _plain,  # the card's mechanism in floats with random.random(); unit: a coordinate
    "entropy": _entropy,  # unit: a byte of the generator
}
