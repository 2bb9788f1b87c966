"""What reports of many rounds tell about one device: the device's own reports add up, and nobody
else's.
"""

from array import array

import numpy as np
import pytest

from tern import card as cards
from tern import wire
from ternhost.count import disclosures
from ternhost.count.disclosures import Disclosures
from ternhost.count.questions import Question, round_body
from ternhost.count.rounds import StoredCohort
from ternhost.privacy.composing import ReportKind, compose
from ternhost.privacy.groups import Group
from ternhost.privacy.mechanisms import design
from ternhost.privacy.projection import design as projected
from ternhost.privacy.sums import design as sum_design
from ternhost.reach.toward_server import Bound, reports_of

CARD = cards.decode(design("three-outputs", 1).card)
ONE = ReportKind.of(CARD)
DELTA = 1e-6


def among(n):
    return ONE.among(n)


def of_site(n, site=None):
    """A report among n of a site's devices, by default all of them."""
    return ONE.among(n, Group(site or n, n))


def told(*shares):
    return Disclosures().with_reports((report, devices, times) for report, devices, times in shares)


def test_a_device_that_was_not_asked_loses_nothing():
    rounds = told((among(40), range(1, 41), 1), (among(30), range(11, 41), 2))
    assert rounds.largest_loss(DELTA, of=[1, 10]) == compose({among(40): 1}, DELTA)
    assert (
        rounds.largest_loss(DELTA, of=[1, 11])
        == rounds.largest_loss(DELTA)
        == compose({among(40): 1, among(30): 2}, DELTA)
    )
    for nobody in ([], [41], [0, 1000]):
        assert rounds.largest_loss(DELTA, of=nobody).epsilon == 0
    assert rounds.of_devices([5, 41]).report_counts() == [{among(40): 1}]
    assert not rounds.of_devices([41])
    assert not Disclosures()


def test_devices_that_were_never_asked_together_do_not_add_up():
    apart = told(*((among(40), range(40 * i + 1, 40 * i + 41), 1) for i in range(50)))
    assert apart.largest_loss(DELTA) == compose({among(40): 1}, DELTA)
    same = told((among(40), range(1, 41), 1), (among(40), range(1, 41), 3))
    assert same.report_counts() == [{among(40): 4}]
    assert told((among(40), range(1, 41), 2)).report_counts() == [{among(40): 2}], (
        "`also` leaves the first as it was"
    )


def test_accounts_that_another_one_exceeds_are_left_out():
    rounds = told(
        (among(40), [1, 2, 3, 4], 1), (among(9), [2, 3], 1), (among(5), [3], 1), (among(5), [5], 2)
    )
    accounts = rounds.report_counts()
    assert sorted(accounts, key=len) == [{among(5): 2}, {among(40): 1, among(9): 1, among(5): 1}]
    assert rounds.largest_loss(DELTA).epsilon == max(
        compose(each, DELTA).epsilon for each in accounts
    )


def test_many_sizes_and_accounts_are_joined_and_never_tell_less(monkeypatch):
    rng = np.random.default_rng(1)
    shares = [
        (among(int(n)), rng.choice(60, int(n), replace=False) + 1, 1)
        for n in rng.integers(2, 60, 40)
    ]
    joined = told(*shares)
    kinds = {report for account in joined.report_counts() for report in account}
    assert len(kinds) <= disclosures.MOST_SIZES
    assert len(joined.report_counts()) <= disclosures.MOST_ROWS
    least = joined.largest_loss(1e-3).epsilon
    monkeypatch.setattr(disclosures, "MOST_SIZES", 10**6)
    monkeypatch.setattr(disclosures, "MOST_ROWS", 10**6)
    exact = max(joined.report_counts(), key=lambda account: sum(account.values()))
    assert compose(exact, 1e-3).epsilon <= least
    assert len({report for account in joined.report_counts() for report in account}) > len(kinds)


def test_a_device_has_its_first_report_whatever_sizes_are_joined(monkeypatch):
    shares = [
        (among(100), [1, 2], 1),
        (among(90), [1], 2),
        (among(120), [3], 1),
        (among(50), [3], 1),
    ]
    rounds = told(*shares)
    firsts = dict(rounds.worst_report_counts(1.0))
    assert firsts.keys() == {among(100).worst, among(120).worst}
    assert firsts[among(100).worst] == {among(100).worst: 1, among(90).worst: 2}
    monkeypatch.setattr(disclosures, "MOST_SIZES", 1)
    joined = rounds.worst_report_counts(1.0)
    assert {first for first, _ in joined} == {among(100).worst, among(120).worst}
    assert all(set(account) == {among(50).worst} for _, account in joined)
    monkeypatch.setattr(disclosures, "MOST_ROWS", 1)
    assert [first for first, _ in rounds.worst_report_counts(1.0)] == [None], "too many differ"


@pytest.mark.parametrize(
    ("asked", "site", "honest", "left"),
    [
        (10, 10, 0.9, 9),
        (10, 10, 0.95, 9),
        (10, 10, 0.3, 3),
        (1000, 1000, 1.0, 1000),
        (1000, 1000, 0.9, 900),
        (150, 1000, 0.9, 50),
        (101, 1000, 0.9, 1),
        (2, 1000, 0.9, 1),
        (1, 1, 0.9, 1),
    ],
)
def test_the_dishonest_devices_of_the_whole_site_may_be_in_the_group(asked, site, honest, left):
    """One device is honest in any case: the one whose data are to be hidden."""
    assert told((of_site(asked, site), [1], 1)).report_counts(honest) == [{among(left): 1}]


def test_a_report_among_dishonest_ones_alone_is_hidden_by_nothing():
    assert told((of_site(2, 1000), [1], 1)).largest_loss(DELTA, 0.9).epsilon == pytest.approx(
        1, rel=1e-3
    )


# What questions are in the account

VECTOR = design("laplace", epsilon_micro=10**6).card
GRR = design("grr", levels=3, epsilon_micro=10**6).card
OF_UNITS = sum_design(cost=500_000, unit=1, radius=0.5, clipped=24, kept=-8, units=1, values=6)
OF_DEVICES = sum_design(cost=500_000, unit=0, radius=0.5, clipped=24, kept=-8, units=1, values=6)
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
