"""An audit of sums through the firmware's client: how well reports tell whether a client has one
record more.

The statistic is the sum along that record's vector, thresholded. Clopper-Pearson bounds of both
rates, which hold together for all thresholds, bound epsilon at DELTA from below. What rho claims
there is epsilon_of(rho, DELTA).
"""

import math
import struct
from unittest import mock

import numpy as np
import pytest
import scratch
from small_board import ask, put_fleet, round_frame, symbols_of, write_files
from spec.cards import sum_card

from tern import ledger, storage, sums, wire
from tern.boards.emulated import Board
from tern.card import SUM
from tern.client import Client
from ternhost.privacy.sums import epsilon_of
from terntests.hil.audit import lower, upper

DELTA, CONFIDENCE, THRESHOLDS = 1e-3, 0.99, 60
pytestmark = pytest.mark.slow


class RoundsLast(sums.Answerer):
    """The wrong order: units are clipped on a grid 64 times as fine, and their sum is rounded to
    the card's.
    """

    def values(self, client, records, card):
        shape, norm, unit = self._sum, self._sum.norm, self._sum.unit
        self._sum = sums.Sum(
            sum_card(0, norm, unit, 64 * shape.radius, shape.reach, t=shape.t, c=shape.c, m=shape.m)
        )
        result = super().values(client, records, card)
        for j in range(len(self._sums) - 1):
            self._sums[j] = (self._sums[j] + 32) // 64
        self._sum = shape
        return result


def client_of(rows, answerer=None):
    """A client with these records, whose unit is a record."""
    folder = scratch.folder()
    write_files(
        folder, d=len(rows[0]) - 1, records=len(rows), measure=ledger.RHO, largest=ledger.MAX_BUDGET
    )
    with open(f"{folder}/{storage.RECORDS}", "r+b") as file:
        file.seek(storage.RECORDS_BYTES)
        file.write(struct.pack(f"<{len(rows) * len(rows[0])}h", *np.ravel(rows)))
    put_fleet(folder, ahead=storage.MAX_AHEAD, epoch=0, unit=1)
    client = Client(Board(folder))
    if answerer:
        with mock.patch.object(sums, "Answerer", answerer):
            wrong = client.report.answerers.of_shape(SUM)
        wrong.unit = 1
    return client


def reports(client, card, n, **question):
    """The sums of n reports in grid steps, with their noise.

    The budget is renewed: this is not one client's life.
    """
    values = question["d"] + 1
    out = np.zeros((n, values), int)
    for i in range(n):
        answer = ask(client, round_frame(1 + i, card, k=values, **question))
        if answer[0] == wire.ERROR:
            client.ledger.spent = 0
            answer = ask(client, round_frame(1 + i, card, k=values, **question))
        out[i] = symbols_of(answer, values, 256)
    return out - 128


def epsilon_lower(without, with_record, vector):
    """A lower bound of epsilon at DELTA, from the reports of two clients that differ by a record of
    this vector.
    """
    low, high = without @ vector, with_record @ vector
    draws = len(low)
    confidence = 1 - (1 - CONFIDENCE) / (4 * THRESHOLDS)  # of each of all bounds together
    best = 0.0
    for threshold in np.quantile(np.concatenate((low, high)), np.linspace(0, 1, THRESHOLDS)):
        in_high, in_low = int((high > threshold).sum()), int((low > threshold).sum())
        for likely, unlikely in ((in_high, in_low), (draws - in_low, draws - in_high)):
            p = lower(likely, draws, confidence)
            if p > DELTA:
                best = max(best, math.log((p - DELTA) / upper(unlikely, draws, confidence)))
    return best


def test_reports_tell_of_a_record_what_rho_claims_and_not_much_less():
    card = sum_card(1_000_000, 2, 1, 64, 1 << 14, 32, -32, t=64, c=40, bits=8, coarse=2)
    claim = epsilon_of(1_000_000, DELTA)
    record = (16384, 16384, 16384)  # whose gradient is clipped
    others = [(-3000, 5000, 100), (700, -9000, -400)]
    without, with_record = (
        reports(client_of(rows), card, 24_000, d=2, model=wire.LINEAR)
        for rows in (others, [record, *others])
    )
    vector = np.array([-45, -45, 32])  # of the clipped gradient, and of the tally
    assert claim / 3 < epsilon_lower(without, with_record, vector) < claim


@pytest.mark.parametrize("answerer", [None, RoundsLast])
def test_the_audit_finds_a_sum_that_is_rounded_last(answerer):
    """64 features of an eighth of a step each: together they have norm 1, and a sum of them has
    half steps.
    """
    card = sum_card(250_000, 2, 1, 1, 1 << 14, t=1, c=2, bits=8)
    claim = epsilon_of(250_000, DELTA)
    record = [2047] * 64 + [0]
    others = [[1750] * 64 + [0], *[[2047] * 64 + [0]] * 3]
    question = {"d": 64, "model": wire.VALUES, "exponent": 0, "shift": 1}
    without, with_record = (
        reports(client_of(rows, answerer), card, 1_000, **question)
        for rows in (others, [record, *others])
    )
    bound = epsilon_lower(without, with_record, np.array([1] * 64 + [0]))
    if answerer is RoundsLast:
        assert bound > 1.2 * claim
    else:
        assert bound < claim / 3
