"""What reports of many rounds tell about one device: the device's own reports add up, and nobody
else's.
"""

import numpy as np
import pytest

from tern import card as cards
from ternhost.count import disclosures, members
from ternhost.count.disclosures import Disclosures
from ternhost.privacy.composing import ReportKind, compose
from ternhost.privacy.groups import Group
from ternhost.privacy.mechanisms import design

CARD = cards.decode(design("three-outputs", 1).card)
ONE = ReportKind.of(CARD)
OTHER = ReportKind.of(cards.decode(design("duchi", 2).card))
DELTA = 1e-6


def among(n):
    return ONE.among(n)


def of_site(n, site=None):
    """A report among n of a site's devices, by default all of them."""
    return ONE.among(n, Group(site or n, n))


def disclosures_of(*rounds):
    """What these rounds tell: each is a kind of report, the devices, and how often they reported."""
    return Disclosures().with_reports(iter(rounds))


def test_a_device_loses_only_what_rounds_that_asked_it_tell():
    rounds = disclosures_of((ONE, range(1, 41), 1), (OTHER, range(11, 41), 2))
    first_round = compose({ONE: 1}, DELTA)
    both_rounds = compose({ONE: 1, OTHER: 2}, DELTA)
    assert rounds.largest_loss(DELTA, of=[1, 10]) == first_round
    assert rounds.largest_loss(DELTA, of=[1, 11]) == both_rounds
    assert rounds.largest_loss(DELTA) == both_rounds


@pytest.mark.parametrize("devices", [[], [41], [0, 1000]], ids=str)
def test_devices_that_were_not_asked_lose_nothing(devices):
    rounds = disclosures_of((among(40), range(1, 41), 1))
    assert rounds.largest_loss(DELTA, of=devices).epsilon == 0
    assert not rounds.of_devices(devices)


def test_reports_of_the_same_devices_add_up():
    devices = range(1, 41)
    rounds = disclosures_of((among(40), devices, 1), (among(40), devices, 3))
    assert rounds.report_counts() == [{among(40): 4}]


@pytest.fixture
def rounds_of_many_sizes():
    """Forty rounds, each of 2 to 59 random devices of 60."""
    random = np.random.default_rng(1)
    rounds = []
    for size in random.integers(2, 60, 40).tolist():
        devices = random.choice(60, size, replace=False) + 1
        rounds.append((among(size), devices, 1))
    return disclosures_of(*rounds)


def among_at_most(n, account):
    """How many of an account's reports are mixed with those of at most n devices."""
    return sum(times for report, times in account.items() if report.mixed <= n)


def test_joined_accounts_hide_no_device_better_than_its_exact_one(
    rounds_of_many_sizes, monkeypatch
):
    """A device's account lists its reports, and among how many devices' each was mixed: the fewer,
    the more it tells. To bound the work, these sizes are rounded down, and accounts of several
    devices are joined to one that tells at least as much. So for each exact account, some joined
    one has as many reports among at most n devices, for every n.
    """
    joined = rounds_of_many_sizes.report_counts()
    assert len(joined) <= disclosures.MOST_ROWS
    assert len({report for account in joined for report in account}) <= disclosures.MOST_SIZES

    # Without these limits, nothing is rounded or joined.
    monkeypatch.setattr(disclosures, "MOST_SIZES", 10**6)
    monkeypatch.setattr(disclosures, "MOST_ROWS", 10**6)
    exact = rounds_of_many_sizes.report_counts()

    assert len(exact) > len(joined)
    for account in exact:
        assert any(tells_as_much(each, account) for each in joined)


def tells_as_much(account, exact):
    """True if the account has as many reports that are mixed with at most n, for every n."""
    return all(among_at_most(n, account) >= among_at_most(n, exact) for n in range(60))


@pytest.fixture
def two_first_reports():
    """Device 1 has first reported among 100 others, and device 3 among 120."""
    return disclosures_of(
        (among(100), [1, 2], 1), (among(90), [1], 2), (among(120), [3], 1), (among(50), [3], 1)
    )


FIRST_REPORTS = {among(100).worst, among(120).worst}


def test_the_worst_account_of_each_first_report_is_kept(two_first_reports):
    account_of_first = dict(two_first_reports.worst_report_counts(1.0))
    assert account_of_first.keys() == FIRST_REPORTS
    account_of_device_1 = {among(100).worst: 1, among(90).worst: 2}
    assert account_of_first[among(100).worst] == account_of_device_1


def test_a_device_has_its_first_report_when_all_sizes_are_joined(two_first_reports, monkeypatch):
    monkeypatch.setattr(disclosures, "MOST_SIZES", 1)
    joined = two_first_reports.worst_report_counts(1.0)
    assert {first for first, _ in joined} == FIRST_REPORTS
    for _, account in joined:
        assert set(account) == {among(50).worst}, "the smallest size, which hides least"


def test_too_many_first_reports_are_not_told_apart(two_first_reports, monkeypatch):
    monkeypatch.setattr(disclosures, "MOST_ROWS", 1)
    ((first, _),) = two_first_reports.worst_report_counts(1.0)
    assert first is None


@pytest.mark.parametrize(
    ("group_size", "site_size", "honest_share", "honest_in_group"),
    [
        pytest.param(10, 10, 0.95, 9, id="half a dishonest device counts as one"),
        pytest.param(1000, 1000, 1.0, 1000, id="all devices are honest"),
        pytest.param(150, 1000, 0.9, 50, id="all 100 dishonest devices are in the group"),
        pytest.param(2, 1000, 0.9, 1, id="the device whose data are to be hidden is honest"),
    ],
)
def test_the_dishonest_devices_of_the_whole_site_may_be_in_the_group(
    group_size, site_size, honest_share, honest_in_group
):
    """A group of a site's devices reports, and an observer sees only the sum. Dishonest devices
    tell the observer their own reports, so that only the honest ones of the group hide each other.
    We do not know who is dishonest, and count as if as many as possible were in the group.
    """
    device = 1
    rounds = disclosures_of((of_site(group_size, site_size), [device], 1))
    assert rounds.report_counts(honest_share) == [{among(honest_in_group): 1}]


def test_a_report_among_dishonest_ones_alone_is_hidden_by_nothing():
    rounds = disclosures_of((of_site(2, 1000), [1], 1))
    epsilon_of_card = 1
    loss = rounds.largest_loss(DELTA, 0.9)
    assert loss.epsilon == pytest.approx(epsilon_of_card, rel=1e-3)


@pytest.mark.parametrize("groups", [[], [[1, 2, 5]], [[5, 1], [1, 3]], [range(3), [2], []]])
def test_each_device_of_several_groups_is_named_once(groups):
    expected = sorted({device for group in groups for device in group})
    assert members.distinct(groups).tolist() == expected
