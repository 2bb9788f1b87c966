"""Two neighbouring data sets, as ledger.md defines them, are told apart no better than the device
charges for.

For every kind of card a client answers the same question many times with each of two data sets.
From its reports alone comes a lower bound of the privacy loss: Clopper-Pearson bounds of both rates
of the best threshold, which hold together with 99 %. The bound is below what the ledger was
debited, and above a third of it where the worst pair is known.
"""

import math
import struct
from dataclasses import dataclass
from unittest import mock

import numpy as np
import pytest
import scratch
from designing import shipped_card
from small_board import ask, book_of, error_of, put_fleet, round_frame, symbols_of, write_files
from spec.cards import projection_card, sum_card

from tern import card as cards
from tern import ledger, storage, wire
from tern import sums as device_sums
from tern.boards.emulated import Board
from tern.client import Client
from ternhost.privacy import mechanisms, sums
from ternhost.privacy.base import MICRO
from ternhost.vectorised import projection as twin
from terntests.hil.audit import lower, upper

DRAWS, THRESHOLDS = 4000, 40
CONFIDENCE = 0.99
DELTA = 1e-2  # at which rho is compared
ONE, RADIUS = 16384, 16
LOW, HIGH = [-ONE, -ONE], [ONE, ONE]  # records of one feature and a label


@dataclass(frozen=True)
class Question:
    """What is asked of records of d features; `statistic` makes a number of the symbols of a
    report.
    """

    card: bytes
    model: int = wire.VALUES
    d: int = 1
    k: int = 1
    classes: int = 1
    unit: int = 0  # that the device protects
    exponent: int = 0
    local: tuple = (0, 0, 0)

    @property
    def symbols(self):
        return cards.decode(self.card).symbols


def client_of(records, unit=0, ahead=storage.MAX_AHEAD):
    """A client with these records (features, then the label), and its folder. ahead: reports it
    pays for at once.
    """
    folder = scratch.folder()
    d = len(records[0]) - 1 if records else 1
    write_files(folder, d=d, records=len(records), measure=ledger.RHO, largest=ledger.MAX_BUDGET)
    if records:
        with open(f"{folder}/{storage.RECORDS}", "r+b") as file:
            file.seek(storage.RECORDS_BYTES)
            file.write(struct.pack(f"<{len(records) * (d + 1)}h", *np.ravel(records)))
    put_fleet(folder, ahead=ahead, epoch=0, unit=unit)
    return Client(Board(folder)), folder


def asked(client, number, question):
    """The answer to a question."""
    fields = {
        "d": question.d,
        "k": question.k,
        "model": question.model,
        "classes": question.classes,
    }
    more = {"exponent": question.exponent, "local": question.local, "shift": 1}
    return ask(client, round_frame(number, question.card, **fields, **more))


def symbols_from(client, number, question):
    """The symbols of a report.

    A spent budget is renewed: this is not one client's life.
    """
    answer = asked(client, number, question)
    if answer[0] == wire.ERROR:
        client.ledger.spent = 0
        answer = asked(client, number, question)
    return symbols_of(answer, question.k, question.symbols)


def reports(records, question, draws=DRAWS, answerer=None):
    """The symbols of so many reports (draws x k); answerer: what sums units instead of tern.sums."""
    client, _ = client_of(records, question.unit)
    if answerer:
        with mock.patch.object(device_sums, "Answerer", answerer):
            client.report.answerers.of_shape(cards.SUM).unit = question.unit
    return np.array([symbols_from(client, 1 + i, question) for i in range(draws)])


def charge(records, question):
    """What one report costs by the ledger, micro-rho."""
    client, folder = client_of(records, question.unit, ahead=1)
    assert asked(client, 1, question)[0] == wire.REPORT
    client.close()
    return book_of(folder).spent


def loss(first, second, delta):
    """A lower bound of the privacy loss at delta, from a number of each report for both data sets."""
    first, second = first.astype(float), second.astype(float)
    draws = len(first)
    confidence = 1 - (1 - CONFIDENCE) / (8 * THRESHOLDS)  # of each of all bounds together
    thresholds = np.quantile(np.concatenate([first, second]), np.linspace(0, 1, THRESHOLDS))
    best = 0.0
    for threshold in np.unique(thresholds):
        in_first, in_second = int((first > threshold).sum()), int((second > threshold).sum())
        pairs = [(in_first, in_second), (draws - in_first, draws - in_second)]
        for likely, unlikely in pairs + [pair[::-1] for pair in pairs]:
            p = lower(likely, draws, confidence)
            if p > delta:
                ratio = (p - delta) / upper(unlikely, draws, confidence)
                best = max(best, math.log(ratio))
    return best


def sum_of(drawn, question):
    """The sum itself: the last symbol is the tally."""
    return drawn[:, 0] - question.symbols // 2


# Reports about the device: its data are replaced


def card_of(name, epsilon=1.0, **options):
    return mechanisms.design(name, epsilon_micro=round(epsilon * MICRO), **options).card


VALUES = {
    "table": card_of("three-outputs"),
    "window": card_of("pm-sub", levels=15),
    "laplace": card_of("laplace"),
    "mixture": shipped_card("hm-tp", 1).data,
    "hierarchy": shipped_card("lhp", 1).data,
}


@pytest.mark.parametrize("shape", VALUES)
def test_values_of_replaced_records_are_told_apart_as_well_as_the_card_says(shape):
    """A card, the certified table from which a device draws its report, states an epsilon. A client
    whose record is LOW and one whose record is HIGH each answer the same question 4,000 times: what
    their reports show of the privacy loss stays below that epsilon, and comes near it.
    """
    question = Question(VALUES[shape])
    card = cards.decode(question.card)
    epsilon = card.epsilon / MICRO

    # Each report has one symbol.
    of_low = reports([LOW], question)[:, 0]
    of_high = reports([HIGH], question)[:, 0]

    # An observer tests for "above a threshold", or for one of the first symbols.
    measured_loss = loss(of_low, of_high, delta=0.0)
    for symbol in range(min(card.symbols, 8)):
        loss_of_symbol = loss(of_low == symbol, of_high == symbol, delta=0.0)
        measured_loss = max(measured_loss, loss_of_symbol)

    assert measured_loss < epsilon
    if shape != "hierarchy":  # its worst pair are other inputs than LOW and HIGH
        assert measured_loss > epsilon / 3


DUCHI = card_of("duchi")
# At the model 0, the gradient of a record is minus or plus half of its feature. One epoch of local
# training moves the weight beyond tau, where it is cut off.
GRADIENT = Question(DUCHI, model=wire.LINEAR, exponent=-30)
CATEGORY = Question(card_of("grr", levels=4), model=wire.CATEGORIES)
BIN = Question(card_of("grr", levels=4), model=wire.CATEGORIES, exponent=2)  # of 2**2 bins
MOVE = Question(DUCHI, model=wire.LOCAL + wire.LINEAR, exponent=-14, local=(1, 0, 1))


@pytest.mark.parametrize(
    ("question", "record", "replaced"),
    [
        (GRADIENT, [ONE, -ONE], [ONE, ONE]),
        (CATEGORY, [0, 0], [3, 0]),
        (BIN, LOW, HIGH),
        (MOVE, [ONE, -ONE], [ONE, ONE]),
    ],
    ids=["gradient", "category", "bin of a number", "move of a weight"],
)
def test_answers_about_a_replaced_record_are_told_apart_as_well_as_the_card_says(
    question, record, replaced
):
    symbols = reports([record], question)
    symbols_of_replaced = reports([replaced], question)
    epsilon = 1  # of the card
    assert epsilon / 3 < loss(symbols, symbols_of_replaced, delta=0.0) < epsilon


# A card of epsilon 1 for 4 directions, one of which is likely: ln(2718 / 1000) is 0.9999.
PROJECTION_CARD = projection_card(epsilon=MICRO, n=2, k=1, a=2718, b=1000, radius=1)


def test_a_projection_of_replaced_records_is_told_apart_as_well_as_the_card_says():
    """A projection card reports one of many random directions, the likelier the closer it is to the
    client's vector. The two records are opposite vectors longer than its radius, the worst pair.
    The reader of a report knows the random rotation of the directions, so he takes the cosine
    between the reported direction and the vector.
    """
    question = Question(PROJECTION_CARD, d=4)
    vector = np.array([ONE, -ONE, ONE, ONE])
    unit_vector = vector / np.linalg.norm(vector)
    label = 0

    client, _ = client_of([[*vector, label]])
    replaced_client, _ = client_of([[*-vector, label]])
    cosines = cosines_of(client, question, unit_vector)
    replaced_cosines = cosines_of(replaced_client, question, unit_vector)

    epsilon = 1  # of the card
    assert epsilon / 3 < loss(cosines, replaced_cosines, delta=0.0) < epsilon


def cosines_of(client, question, direction):
    """The cosine of the direction of each report with this one."""
    card = cards.decode(question.card)
    cosines = np.zeros(DRAWS)
    for i in range(DRAWS):
        (symbol,) = symbols_from(client, 1 + i, question)
        signs = twin.signs(card, np.frombuffer(client.session.question, np.uint8)[None])
        reported = twin.decode(card, signs, np.array([symbol]), question.d)[0]
        cosines[i] = reported @ direction / np.linalg.norm(reported)
    return cosines


# Sums over runs of records: a run is there, or not


def sums_card(unit, norm, radius=RADIUS):
    """A card that costs epsilon 1, or rho 1/2, for neighbours of this unit."""
    vectors = 1 if unit else 2
    if norm == 1:
        return sum_card(MICRO, 1, unit, radius, ONE, t=vectors * radius, bits=12)
    return sum_card(
        MICRO // 2, 2, unit, radius, ONE, t=vectors * radius, c=vectors * radius, bits=12
    )


def claim_of(question, records):
    """The epsilon that the charge of a report proves, and the delta of it."""
    card = cards.decode(question.card)
    if sums.of(card).norm == 1:
        return card.epsilon / MICRO, 0.0
    return sums.epsilon_of(charge(records, question), DELTA), DELTA


NORMS = pytest.mark.parametrize("norm", [1, 2])


@pytest.mark.sampled(2)
@NORMS
@pytest.mark.parametrize("unit", [1, 5])
def test_that_a_run_was_there_is_told_as_well_as_the_charge_says(norm, unit):
    """A report of a sum protects a run, so many successive records (`unit`): reports of a client
    with and without one more run show a privacy loss below the epsilon that its ledger was charged,
    and above a third of it.
    """
    question = Question(sums_card(unit, norm), k=2, unit=unit)
    others, run = [LOW] * unit, [HIGH] * unit
    epsilon, delta = claim_of(question, others)
    sums_without = sum_of(reports(others, question), question)
    sums_with_run = sum_of(reports(others + run, question), question)
    assert epsilon / 3 < loss(sums_without, sums_with_run, delta) < epsilon


@NORMS
def test_what_a_record_says_is_told_better_than_that_it_was_there(norm):
    """A sum hides whether a record was there. What a record says is hidden less, since replacing it
    takes two steps: one record is removed, another added. The measured loss lies between both
    claims.
    """
    question = Question(sums_card(1, norm), k=2, unit=1)
    epsilon_of_presence, delta = claim_of(question, [LOW])
    if norm == 1:  # epsilon grows with the number of steps, rho with its square
        epsilon_of_two_steps = 2 * epsilon_of_presence
    else:
        epsilon_of_two_steps = sums.epsilon_of(4 * charge([LOW], question), DELTA)

    sums_with_low = sum_of(reports([LOW, LOW], question), question)
    sums_with_high = sum_of(reports([LOW, HIGH], question), question)
    measured_loss = loss(sums_with_low, sums_with_high, delta)

    assert epsilon_of_two_steps / 3 < measured_loss < epsilon_of_two_steps
    # The measured loss is a lower bound: for normal noise, 4,000 draws show nine tenths.
    assert measured_loss > epsilon_of_presence * (1 if norm == 1 else 0.9)


@NORMS
def test_a_sum_over_the_whole_device_is_charged_for_replacement(norm):
    """The vector of the device moves from -R to R: the noise is for twice the radius."""
    question = Question(sums_card(0, norm), k=2)
    epsilon, delta = claim_of(question, [LOW])
    sums_of_low = sum_of(reports([LOW], question), question)
    sums_of_high = sum_of(reports([HIGH], question), question)
    assert epsilon / 3 < loss(sums_of_low, sums_of_high, delta) < epsilon


@NORMS
def test_a_card_whose_noise_is_for_presence_is_not_certified_for_the_whole_device(norm):
    """With noise for one radius, replaced data would be told apart twice as well."""
    for_a_record = sums_card(1, norm)
    for_the_device = for_a_record[:6] + bytes(2) + for_a_record[8:]
    client, _ = client_of([LOW])
    code, _ = error_of(asked(client, 1, Question(for_the_device, k=2)))
    assert code == wire.ERR_NOT_CERTIFIED


@NORMS
@pytest.mark.parametrize("multiple", [2, 3, 10])
def test_a_sum_over_a_multiple_of_the_unit_is_refused_and_costs_nothing(norm, multiple):
    """A device protects runs of `unit` records, here of one. A card whose sum treats several
    records as one run is refused with ERR_UNIT, and the ledger pays nothing: one record more would
    change such a run, and not add one, so its vector could move by twice the radius R at the price
    of R.
    """
    client, folder = client_of([LOW] * 4, unit=1)
    code, detail = error_of(asked(client, 1, Question(sums_card(multiple, norm), k=2, unit=1)))
    assert (code, detail) == (wire.ERR_UNIT, 1), "the device tells its own unit"
    client.close()
    assert book_of(folder).spent == 0


# This audit finds a mistake


class RoundsLast(device_sums.Answerer):
    """The wrong order: units are clipped on a grid 64 times as fine, and their sum is rounded to
    the card's.
    """

    def values(self, client, records, card):
        shape, norm, unit = self._sum, self._sum.norm, self._sum.unit
        fine = sum_card(
            0, norm, unit, 64 * shape.radius, shape.reach, t=shape.t, c=shape.c, m=shape.m
        )
        self._sum = device_sums.Sum(fine)
        result = super().values(client, records, card)
        for j in range(len(self._sums) - 1):
            self._sums[j] = (self._sums[j] + 32) // 64
        self._sum = shape
        return result


@pytest.mark.slow
@pytest.mark.parametrize("answerer", [None, RoundsLast], ids=["rounded first", "rounded last"])
def test_a_sum_that_is_rounded_last_tells_more_than_its_rho(answerer):
    """The privacy of a sum rests on this order: the vector of each record is rounded to a grid, and
    then added. With the wrong order, this audit measures a loss above the claim; so it would find
    the mistake. The record has 64 features of an eighth of a step each: together they have norm 1.
    The sum of the others ends at half steps, so that the record moves each of 64 rounded sums by a
    step.
    """
    rho_micro, delta, draws = 250_000, 1e-3, 1000
    card = sum_card(rho_micro, norm=2, unit=1, steps=1, reach=1 << 14, t=1, c=2, bits=8)
    question = Question(card, d=64, k=64 + 1, unit=1)  # 64 values and the tally
    record = [2047] * 64 + [0]  # an eighth of 2**14, which is 1
    others = [[1750] * 64 + [0], record, record, record]

    without = reports(others, question, draws, answerer)[:, :64].sum(axis=1)
    with_record = reports([record, *others], question, draws, answerer)[:, :64].sum(axis=1)
    measured_loss = loss(without, with_record, delta)

    claim = sums.epsilon_of(rho_micro, delta)
    if answerer is RoundsLast:
        assert measured_loss > 1.2 * claim
    else:
        assert measured_loss < claim / 3
