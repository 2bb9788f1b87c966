"""The bound on what counts disclose: which reports it counts, which it refuses, and with what words."""

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
from ternhost.privacy.base import MICRO
from ternhost.privacy.composing import ReportKind
from ternhost.privacy.groups import Group
from ternhost.privacy.mechanisms import design
from ternhost.privacy.projection import design as projected
from ternhost.privacy.sums import SumPlan
from ternhost.privacy.sums import design as sum_design

CARD = cards.decode(design("three-outputs", 1).card)
ONE = ReportKind.of(CARD)
DELTA = 1e-6


def among(n):
    return ONE.among(n)


def of_site(n, site):
    """A report among n of a site's devices."""
    return ONE.among(n, Group(site, n))


def told(*shares):
    return Disclosures().with_reports((report, devices, times) for report, devices, times in shares)


def any_mechanism(epsilon):
    """A report of which only the epsilon is known."""
    return ReportKind(round(epsilon * MICRO))


def exact(reports):
    return composing.compose_exactly(reports, DELTA)


# What questions are in the account

VECTOR = design("laplace", epsilon_micro=10**6).card
GRR = design("grr", levels=3, epsilon_micro=10**6).card
OF_UNITS = sum_design(
    SumPlan(cost=500_000, unit=1, radius=0.5, clipped=24, kept=-8, units=1, values=6)
)
OF_DEVICES = sum_design(
    SumPlan(cost=500_000, unit=0, radius=0.5, clipped=24, kept=-8, units=1, values=6)
)
PROJECTION = projected(10**6, 5, 1.0)


def asked(question, reports=40):
    cohort = StoredCohort(round_body(3, question), np.arange(1, 41))
    ((report, devices),) = reports_of([cohort], [Group(40, 40)], [reports])
    assert devices.tolist() == [*range(1, 41)], "whoever was asked may have reported"
    return report.among_honest(1.0, 0.0)


def logistic(card, k=1, **fields):
    return Question(wire.LOGISTIC, array("h", [100] * 5), -14, card, k, **fields)


def test_each_kind_of_question_counts_as_the_specification_says():
    assert asked(logistic(CARD.data)) == among(40)
    several = asked(logistic(CARD.data, 3), 7)
    assert (several.cost, several.mixed, several.values) == (3 * ONE.cost, 7, 3)
    label = asked(Question(wire.SOFTMAX, [1] * 15, -14, GRR, 1, classes=3))
    assert (label.cost, label.mixed) == (10**6, 40)
    vector = asked(Question(wire.SOFTMAX, [1] * 15, -14, VECTOR, 3, classes=3))
    assert (vector.card, vector.cost, vector.mixed) == (b"", 10**6, 40), (
        "any mechanism of the vector's epsilon"
    )
    categories = Question(wire.CATEGORIES, [1] + [0] * 4, 0, GRR, 1)
    assert asked(categories).mixed == 40
    hashed = asked(Question(wire.CATEGORIES, [1] + [0] * 4, 0, GRR, 1, range=1))
    assert (hashed.cost, hashed.mixed, hashed.alone) == (10**6, 0, True)
    projection = asked(logistic(PROJECTION.card))
    assert (projection.cost, projection.mixed) == (10**6, 40)


def test_sums_with_noise_over_devices_count_locally_and_over_units_without_a_bound():
    whole, units = (
        asked(logistic(each.card, 6, range=each.range)) for each in (OF_DEVICES, OF_UNITS)
    )
    assert (whole.gaussian, whole.mixed, whole.alone) == (True, 0, True)
    assert units.cost > 1000 * 10**6
    bound = Bound(1000 * 10**6)
    assert "no number of devices is enough" in bound.refuses(
        Disclosures(), [(units, np.arange(1, 41))]
    )
    assert not bound.refuses(Disclosures(), [(whole, np.arange(1, 41))])
    assert told((units, [1], 2000)).largest_loss(DELTA).epsilon >= 2000 * 10**6, (
        "soon, and not after hours"
    )


def test_counts_of_no_report_tell_nothing():
    cohorts = [
        StoredCohort(round_body(3, logistic(CARD.data)), np.array(ids)) for ids in ([1, 2], [3])
    ]
    groups = [Group(3, 2), Group(3, 1)]
    assert [report.mixed for report, _ in reports_of(cohorts, groups, [0, 1])] == [1]
    assert [report.mixed for report, _ in reports_of(cohorts, groups)] == [2, 1]
    assert Bound(1).refuses(Disclosures(), reports_of(cohorts, groups, [0, 0])) == ""


@pytest.mark.parametrize(("epsilon", "delta"), [(1, 1e-6), (1.2, 1e-9), (4, 1e-6), (8, 1e-6)])
def test_a_bound_says_how_many_honest_reports_would_be_enough(epsilon, delta):
    bound, one = Bound(900_000, delta), ReportKind(round(epsilon * 10**6))
    words = bound.refuses(Disclosures(), [(one.among(20), np.arange(20))])
    assert words.startswith("the counts of this round could tell the owner of the server more")
    assert words.endswith(
        f"honest reports are enough to hide a report of epsilon {epsilon}, and there are 20"
    )
    enough = int(words.partition("the bound: ")[2].partition(" honest")[0].replace(",", ""))
    assert bound.refuses(Disclosures(), [(one.among(enough), [1])]) == ""
    assert bound.refuses(Disclosures(), [(one.among(int(0.93 * enough)), [1])])


def test_a_bound_says_how_many_of_the_reports_may_be_dishonest():
    bound = Bound(900_000, DELTA, 0.9)
    words = bound.refuses(Disclosures(), [(of_site(120, 1000), np.arange(120))])
    assert words.endswith("of these 120 only 20 are sure to be honest")


def test_rounds_before_may_be_the_reason():
    bound, before = Bound(900_000, DELTA), told((among(60), range(60), 1))
    again = bound.refuses(before, [(among(60), np.arange(59, 119))])
    assert again.startswith("the counts of this round and of those before it")
    assert bound.refuses(before, [(among(60), np.arange(60, 120))]) == "", (
        "others were asked before"
    )


# The filters


@pytest.mark.parametrize(
    ("epsilon", "clients", "rounds"), [(4, 1000, 20), (1, 100, 3), (0.1, 50, 400)]
)
def test_a_filter_is_stricter_than_exact_composition_and_not_by_much(epsilon, clients, rounds):
    report = any_mechanism(epsilon).among(clients)
    true = exact({report: rounds})
    told = Disclosures().with_reports([(report, range(1, clients + 1), rounds)])
    assert not Bound(round(true * MICRO)).keeps(told)
    assert Bound(round(1.12 * true * MICRO)).keeps(told)
    assert Bound(1).keeps(told.of_devices([]))


def test_a_filter_covers_rounds_that_are_no_more_telling_than_the_first():
    first, fewer, dearer = (
        any_mechanism(e).among(n) for e, n in ((3, 1000), (3, 850), (3.1, 1000))
    )
    bound = Bound(round(1.12 * exact({first: 2}) * MICRO))
    for report, kept in ((first, True), (fewer, False), (dearer, False)):
        assert bound.keeps(Disclosures().with_reports([(first, [1], 1), (report, [1], 1)])) == kept
    assert bound.keeps(Disclosures().with_reports([(first, [1], 2), (dearer, [2], 1)])), (
        "another device's"
    )


def test_a_filter_allows_what_local_epsilons_allow():
    told = Disclosures().with_reports(
        [(any_mechanism(1).among(2), [1], 3), (any_mechanism(0.5), [1], 2)]
    )
    assert Bound(4 * MICRO).keeps(told)
    assert not Bound(4 * MICRO - 1).keeps(told)
