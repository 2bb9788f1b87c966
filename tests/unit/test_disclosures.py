"""What reports of many rounds tell about one device: the device's own reports add up, and nobody
else's.
"""

import numpy as np
import pytest

from tern import card as cards
from ternhost.count import disclosures
from ternhost.count.disclosures import Disclosures
from ternhost.privacy.composing import ReportKind, compose
from ternhost.privacy.groups import Group
from ternhost.privacy.mechanisms import design

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
