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

_COORDINATES = const(128)
_SINGLES = const(256)


def run(case, repeats, card_bytes, client, clock):
    """Run one of CASES; return (units of each run, list of ticks of `clock`).

    Raises CardError and EntropyError.
    """
    units, work = CASES[case](decode(card_bytes), client)
    times = []
    for i in range(repeats + 1):
        gc.collect()
        for j in range(
            _SINGLES
        ):  # room is looked for behind the last single block: as after some reports
            _ = (j,)
        start = clock()
        work()
        end = clock()
        if i:  # the first is to warm up
            times.append(ticks_diff(end, start))
    return units, times


def _sample(card, client):
    xs = array("h", range(-16384, 16384, 256))
    out = array("H", bytes(2 * _COORDINATES))

    def work():
        for _ in range(8):
            sample(card, client.entropy, xs, out, _COORDINATES)

    return 8 * _COORDINATES, work


def _plain(card, client):
    e = math.exp(card.epsilon / 1e6)
    perturb = (
        _piecewise(e)
        if card.shape != TABLE
        else _three_outputs(card)
        if card.knot_bits
        else _duchi(e)
    )
    xs = [x / 16384 for x in range(-16384, 16384, 256)]
    out = [0.0] * _COORDINATES

    def work():
        for i in range(_COORDINATES):
            out[i] = perturb(xs[i])

    return _COORDINATES, work


def _duchi(e):
    # Duchi, Jordan, Wainwright, 2018
    c = (e + 1) / (e - 1)
    uniform = random.random

    def perturb(x):
        return c if uniform() < 0.5 + x / (2 * c) else -c

    return perturb


def _three_outputs(card):
    # Zhao et al., 2021: the probability of each output is linear between the inputs 0 and 1, as in
    # the card
    zero = 1 << card.knot_bits - 1
    thresholds = card.thresholds
    h = 1 - thresholds[2 * zero + 1] / T
    more = 1 - thresholds[4 * zero + 1] / T - h
    less = h - thresholds[4 * zero] / T
    c = 1 / (more + less)
    uniform = random.random

    def perturb(x):
        s = abs(x)
        same = h + more * s
        u = uniform()
        if u < same:
            return c if x >= 0 else -c
        if u < same + h - less * s:
            return -c if x >= 0 else c
        return 0.0

    return perturb


def _piecewise(e):
    # PM-SUB, Zhao et al., 2021
    t = e ** (1 / 3)
    a = (e + t) * (t + 1) / (t * (e - 1))
    scale = (e + t) / (t * (e - 1))
    inside = e / (t + e)
    uniform = random.random

    def perturb(x):
        left = scale * (x * t - 1)
        right = scale * (x * t + 1)
        if uniform() < inside:
            return left + (right - left) * uniform()
        v = -a + (2 * a - (right - left)) * uniform()
        return v if v < left else v + right - left

    return perturb


def _entropy(card, client):
    entropy = client.entropy

    def work():
        for _ in range(4):
            entropy.discard()
            entropy.refill()

    work()
    return 4 * (entropy.cursor[1] - entropy.cursor[0]), work


CASES = {
    "sample": _sample,  # draw symbols of the card, entropy included; unit: a coordinate
    "plain": _plain,  # the card's mechanism in floats with random.random(); unit: a coordinate
    "entropy": _entropy,  # unit: a byte of the generator
}
