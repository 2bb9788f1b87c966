"""The parts of a report that `tern bench latency` times on a board. It returns raw times; the host takes medians."""

import gc
import math
import os
import random
import struct
from array import array

from tern import frames, host_frames, wire
from tern.card import certify, decode
from tern.compat import const, ticks_diff
from tern.gradient import Gradient
from tern.ledger import MAX_BUDGET, Ledger, create
from tern.sampler import sample
from tern.shapes import LAPLACE, MIXTURE, TABLE
from tern.storage import CLIENT, CLIENTS, LEDGERS, MAGIC, RECORDS, RECORDS_HEADER, ledger_name

_COORDINATES = const(128)
_D = const(28)
_SINGLES = const(256)
_KEY = bytes(32)


def run(case, repeats, card_bytes, client, clock, mark):
    """Run one of CASES; return (units of each run, list of ticks of `clock`). Spends none of the clients' budget.

    mark: called with True when a run begins, and with False when it ends.
    Raises FrameError where the case needs another card, CardError, EntropyError, LedgerError.
    """
    units, work, before = CASES[case](card_bytes, client)
    times = []
    for i in range(repeats + 1):
        before()
        gc.collect()
        for j in range(_SINGLES):  # room is looked for behind the last single block: as after some reports
            _ = (j,)
        mark(True)
        start = clock()
        work()
        end = clock()
        mark(False)
        if i:  # the first is to warm up
            times.append(ticks_diff(end, start))
    return units, times


def _nothing():
    pass


def _inputs():
    return array("h", (256 * i - 16384 for i in range(_COORDINATES)))


def _sample(card_bytes, client):
    card = decode(card_bytes)
    xs = _inputs()
    out = array("H", (0 for _ in range(_COORDINATES)))

    def work():
        for _ in range(8):
            sample(card, client.entropy, xs, out, _COORDINATES)

    return 8 * _COORDINATES, work, _nothing


def _plain(card_bytes, client):
    card = decode(card_bytes)
    if card.shape in (LAPLACE, MIXTURE):
        raise frames.FrameError(wire.ERR_CARD, "no plain version")
    e = math.exp(card.epsilon / 1e6)
    perturb = _piecewise(e) if card.shape != TABLE else _three_outputs(e) if card.knot_bits else _duchi(e)
    xs = [x / 16384 for x in _inputs()]
    out = [0.0] * _COORDINATES

    def work():
        for i in range(_COORDINATES):
            out[i] = perturb(xs[i])

    return _COORDINATES, work, _nothing


def _duchi(e):
    # Duchi, Jordan, Wainwright, 2018
    c = (e + 1) / (e - 1)
    uniform = random.random

    def perturb(x):
        return c if uniform() < 0.5 + x / (2 * c) else -c

    return perturb


def _three_outputs(e):
    # Zhao et al., 2021, with the corrected formulas
    low, high = 0.0, e / (e + 2)
    if e < 5.53113:
        for _ in range(24):
            a = (low + high) / 2
            slope = e**3 + 4 * e * e - 7 * e
            if 2 * a**3 - (e * e + 4 * e + 5) * a * a - slope * a + 2 * e**3 - 4 * e * e > 0:
                low = a
            else:
                high = a
    a = high
    c = e * (e + 1) / ((e - 1) * (e - a))
    h = (1 - a) / 2
    more = (e - a) / (e + 1) - h
    less = h - (e - a) / (e + 1) / e
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


class _Bench:
    """A board of one client with a budget of its own, in a directory of its own, with the real board's entropy."""

    def __init__(self, client):
        self.directory = client.board.directory + "/bench"
        self.in_place = client.board.in_place
        self._entropy = client.entropy

    def generator(self):
        return self._entropy

    def provision(self, cost):
        for path in (self.directory, self.directory + "/" + LEDGERS):
            try:
                os.mkdir(path)
            except OSError:
                pass
        with open(self.directory + "/" + CLIENTS, "wb") as file:
            file.write(struct.pack(CLIENT, 1, _KEY, cost, MAX_BUDGET, 0, 1, 0))
        with open(self.directory + "/" + RECORDS, "wb") as file:
            file.write(struct.pack(RECORDS_HEADER, MAGIC, _D, 1))
            file.write(array("h", range(16384, 16384 - 1000 * (_D + 1), -1000)))
        self.renew()

    def renew(self):
        path = self.directory + "/" + ledger_name(1)
        try:
            os.remove(path)
        except OSError:
            pass
        create(path, MAX_BUDGET)


def _report(card_bytes, client):
    Client = type(client)
    bench = _Bench(client)
    cost = decode(card_bytes).epsilon
    bench.provision(cost)
    timed = Client(bench)
    frame = bytearray(wire.MAX_FRAME)
    parameters = array("h", range(-14, 14))
    number = n = 0

    def before():
        nonlocal timed, number, n
        if (number + 1) * cost > MAX_BUDGET:
            bench.renew()
            timed = Client(bench)
            number = 0
        number += 1
        n = host_frames.encode_round(frame, _KEY, 1, number, wire.LOGISTIC, parameters, card_bytes, 1, -14)

    def work():
        timed.answer(memoryview(frame)[:n])
        if timed.reply[0] != wire.REPORT:
            raise frames.FrameError(timed.reply[9], "bench round refused")

    return 1, work, before


def _entropy(card_bytes, client):
    entropy = client.entropy

    def work():
        for _ in range(4):
            entropy.discard()
            entropy.refill()

    work()
    return 4 * (entropy.cursor[1] - entropy.cursor[0]), work, _nothing


def _gradient(card_bytes, client):
    gradient = Gradient(_D)
    parameters = array("h", range(-14, 14))
    row = array("h", range(_D + 1))
    out = array("h", range(_D))

    def work():
        for _ in range(8):
            gradient.reset()
            gradient.add(wire.LOGISTIC, parameters, -14, row)
            gradient.finish(out)

    return 8 * _D, work, _nothing


def _ledger(card_bytes, client):
    bench = _Bench(client)
    bench.provision(1)
    ledger = Ledger(bench.in_place)
    ledger.load(bench.directory + "/" + ledger_name(1))
    report = bytes(18)
    return 1, lambda: ledger.pay(ledger.round + 1, bytes(32), 1, report), _nothing


def _certify(card_bytes, client):
    return 1, lambda: certify(decode(card_bytes)), _nothing


CASES = {
    "sample": _sample,  # draw symbols of the card, entropy included; unit: a coordinate
    "plain": _plain,  # the card's mechanism in floats with random.random(); unit: a coordinate
    "report": _report,  # a whole report, d = 28, k = 1, logistic, from frame to frame; unit: a report
    "entropy": _entropy,  # unit: a byte of the generator
    "gradient": _gradient,  # of one record, d = 28; unit: a coordinate
    "ledger": _ledger,  # unit: a durable write
    "certify": _certify,  # decode and certify the card; unit: a card
}
