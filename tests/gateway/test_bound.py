"""The bound on what counts disclose: which reports it counts, and which it refuses."""

import re
from array import array

import numpy as np
import pytest

from tern import card as cards
from tern import wire
from terngateway.bound import Bound, reports_of
from ternhost.count.disclosures import Disclosures
from ternhost.count.questions import Question, round_body
from ternhost.count.rounds import StoredCohort
from ternhost.privacy import composing
from ternhost.privacy.composing import ReportKind
from ternhost.privacy.groups import Group
from ternhost.privacy.mechanisms import design
from ternhost.privacy.projection import design as projected
from ternhost.privacy.sums import SumPlan
from ternhost.privacy.sums import design as sum_design

MICRO = 10**6
DELTA = 1e-6
CARD = cards.decode(design("three-outputs", 1).card)
ONE = ReportKind.of(CARD)
DEVICES = np.arange(1, 41)


def told(*shares):
    """What these reports have told. shares: (report, devices, times)."""
    return Disclosures().with_reports(shares)


def any_mechanism(epsilon):
    """A report of which only the epsilon is known."""
    return ReportKind(round(epsilon * MICRO))


# What questions are in the account

LAPLACE = design("laplace", epsilon_micro=MICRO).card
GRR = design("grr", levels=3, epsilon_micro=MICRO).card
SUM = {"cost": 500_000, "radius": 0.5, "clipped": 24, "kept": -8, "units": 1, "values": 6}
OVER_DEVICES = sum_design(SumPlan(unit=0, **SUM))
OVER_RECORDS = sum_design(SumPlan(unit=1, **SUM))


def logistic(card, values=1, **fields):
    return Question(wire.LOGISTIC, array("h", [100] * 5), -14, card, values, **fields)


def softmax(card, values):
    return Question(wire.SOFTMAX, [1] * 15, -14, card, values, classes=3)


def categories(hashed):
    return Question(wire.CATEGORIES, [1] + [0] * 4, 0, GRR, 1, range=int(hashed))


def report_in_account(question, reports=40):
    """The report of a question to 40 devices, of which so many answered."""
    cohort = StoredCohort(round_body(3, question), DEVICES)
    ((report, devices),) = reports_of([cohort], [Group(40, 40)], [reports])
    assert devices.tolist() == DEVICES.tolist(), "whoever was asked may have reported"
    return report.among_honest(1.0, 0.0)


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        (logistic(CARD.data), ONE.among(40)),
        (softmax(GRR, 1), ReportKind.of(cards.decode(GRR)).among(40)),
        (softmax(LAPLACE, 3), ReportKind(MICRO).among(40)),  # any mechanism of that epsilon
        (categories(hashed=False), ReportKind.of(cards.decode(GRR)).among(40)),
    ],
    ids=["gradient", "label", "vector", "categories"],
)
def test_questions_count_as_reports_that_hide_one_another(question, expected):
    report = report_in_account(question)
    assert (report.card, report.cost, report.mixed) == (expected.card, expected.cost, 40)


def test_several_values_cost_several_times_as_much():
    report = report_in_account(logistic(CARD.data, 3), reports=7)
    assert (report.cost, report.mixed, report.values) == (3 * ONE.cost, 7, 3)


def test_a_projection_counts_as_one_report():
    report = report_in_account(logistic(projected(MICRO, 5, 1.0).card))
    assert (report.cost, report.mixed) == (MICRO, 40)


def test_hashed_answers_hide_nothing():
    report = report_in_account(categories(hashed=True))
    assert (report.cost, report.mixed, report.alone) == (MICRO, 0, True)


def test_a_sum_with_noise_over_devices_counts_as_a_local_report():
    report = report_in_account(logistic(OVER_DEVICES.card, 6, range=OVER_DEVICES.range))
    assert (report.gaussian, report.mixed, report.alone) == (True, 0, True)


def test_a_sum_that_protects_records_tells_everything_about_a_device():
    report = report_in_account(logistic(OVER_RECORDS.card, 6, range=OVER_RECORDS.range))
    refused = Bound(1000 * MICRO).why_refused(Disclosures(), [(report, DEVICES)])
    assert "no number of devices is enough" in refused
    assert told((report, [1], 2000)).largest_loss(DELTA).epsilon >= 2000 * MICRO, "at once"


def test_counts_of_no_report_tell_nothing():
    body = round_body(3, logistic(CARD.data))
    cohorts = [StoredCohort(body, DEVICES[:2]), StoredCohort(body, DEVICES[2:3])]
    groups = [Group(site=3, asked=2), Group(site=3, asked=1)]

    ((report, _),) = reports_of(cohorts, groups, [0, 1])

    assert report.mixed == 1
    assert reports_of(cohorts, groups, [0, 0]) == []


# What it refuses


@pytest.mark.parametrize(("epsilon", "delta"), [(1.2, 1e-9), (8, 1e-6)])
def test_a_bound_says_how_many_honest_reports_would_be_enough(epsilon, delta):
    bound, report = Bound(900_000, delta), any_mechanism(epsilon)

    refusal = bound.why_refused(Disclosures(), [(report.among(20), np.arange(20))])
    (number,) = re.findall(r"the bound: ([\d,]+) honest", refusal)
    enough = int(number.replace(",", ""))

    assert bound.why_refused(Disclosures(), [(report.among(enough), [1])]) == ""
    fewer = int(0.93 * enough)  # the number is searched to a per cent, with some to spare
    assert bound.why_refused(Disclosures(), [(report.among(fewer), [1])])


def test_rounds_before_are_a_reason_for_devices_that_they_asked():
    bound, before = Bound(900_000, DELTA), told((ONE.among(60), range(60), 1))
    again = bound.why_refused(before, [(ONE.among(60), np.arange(59, 119))])
    assert again.startswith("the counts of this round and of those before it")
    assert bound.why_refused(before, [(ONE.among(60), np.arange(60, 120))]) == ""


# A bound is kept by a filter, which accounts for rounds that are chosen one after the other. It
# pays at most 12 per cent more than the exact composition of rounds that were planned before.
FILTER_PAYS = 1.12


@pytest.mark.parametrize(("epsilon", "clients", "rounds"), [(4, 1000, 20), (0.1, 50, 400)])
def test_a_filter_is_stricter_than_exact_composition_and_not_by_much(epsilon, clients, rounds):
    report = any_mechanism(epsilon).among(clients)
    exact = composing.compose_exactly({report: rounds}, DELTA)

    disclosed = told((report, range(1, clients + 1), rounds))

    assert not Bound(round(exact * MICRO)).keeps(disclosed)
    assert Bound(round(FILTER_PAYS * exact * MICRO)).keeps(disclosed)


FIRST_ROUND = any_mechanism(3).among(1000)


@pytest.fixture
def bound_of_two_rounds():
    """A bound that has just room for two rounds like FIRST_ROUND on the same device."""
    exact = composing.compose_exactly({FIRST_ROUND: 2}, DELTA)
    return Bound(round(FILTER_PAYS * exact * MICRO))


@pytest.mark.parametrize(
    ("second_round", "is_kept"),
    [
        pytest.param(any_mechanism(3).among(1000), True, id="a round like the first"),
        pytest.param(any_mechanism(3).among(850), False, id="fewer devices hide a report"),
        pytest.param(any_mechanism(3.1).among(1000), False, id="a larger epsilon"),
    ],
)
def test_a_filter_covers_rounds_that_are_no_more_telling_than_the_first(
    bound_of_two_rounds, second_round, is_kept
):
    device = 1
    disclosed = told((FIRST_ROUND, [device], 1), (second_round, [device], 1))
    assert bound_of_two_rounds.keeps(disclosed) == is_kept


@pytest.mark.parametrize("epsilon", [3, 3.1])
@pytest.mark.parametrize("clients", [1000, 850])
def test_a_filter_counts_no_round_of_another_device(bound_of_two_rounds, epsilon, clients):
    of_another = any_mechanism(epsilon).among(clients)
    assert bound_of_two_rounds.keeps(told((FIRST_ROUND, [1], 2), (of_another, [2], 1)))


def test_a_filter_allows_what_local_epsilons_allow():
    disclosed = told((any_mechanism(1).among(2), [1], 3), (any_mechanism(0.5), [1], 2))
    assert Bound(4 * MICRO).keeps(disclosed)
    assert not Bound(4 * MICRO - 1).keeps(disclosed)
