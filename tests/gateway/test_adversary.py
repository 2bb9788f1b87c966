"""A site of a few devices against every adversary that owns the server and some of the devices.

Each device holds a bit and answers a question by randomised response. The adversary knows the bits
of all devices but one, the victim's. It chooses which devices are asked, by all earlier answers,
and subtracts the reports of its own. Its gain is the largest sum of max(0, P(transcript) -
e**epsilon Q(transcript)) for the two bits of the victim: the delta at the bound's epsilon, found by
trying every strategy. The gateway keeps to the filter of `Bound`, and the gain must not exceed the
bound's delta.
"""

import math
from functools import cache, lru_cache
from itertools import product
from math import comb

import numpy as np
import pytest

from terngateway.bound import Bound
from ternhost.count.disclosures import Disclosures, draws_delta
from ternhost.privacy.composing import ReportKind
from ternhost.privacy.groups import Group

MICRO = 10**6
VICTIM = [1]
MOST_OTHERS = 8  # honest devices that are asked with the victim: the fewer, the less they hide it


class Site:
    """Devices of which the adversary owns as many as the bound allows it; the victim is honest."""

    def __init__(self, devices, bound, epsilon):
        """epsilon: of a report."""
        self.devices = devices
        self.bound = bound
        self.epsilon = epsilon
        self.owned = math.ceil((1 - bound.honest) * devices - 1e-9)
        self.honest = devices - self.owned
        self.true_bit = 1 / (1 + math.exp(-epsilon))  # the probability that it is reported

    @cache  # noqa: B019
    def laws(self, others):
        """The laws of the number of ones, for the bits 0 and 1 of the victim.

        others: honest devices in the group, all with bit 0. With bit 1 the laws are mirrored.
        """
        ones = np.ones(1)
        for _ in range(others):
            ones = np.convolve(ones, [self.true_bit, 1 - self.true_bit])
        victim_0, victim_1 = [self.true_bit, 1 - self.true_bit], [1 - self.true_bit, self.true_bit]
        return [np.convolve(ones, victim_0), np.convolve(ones, victim_1)]

    @cache  # noqa: B019
    def keeps(self, account):
        """Whether the gateway answers a round, after which the victim has these reports."""
        told = Disclosures()
        for mixed, group in account:
            told.add(ReportKind(round(self.epsilon * MICRO)).among(mixed, group), VICTIM)
        return self.bound.keeps(told)


class Adversary:
    """Tries every strategy, and finds the largest gain."""

    def __init__(self, site, reckoned, most_owned=None, parts=0, draws=0):
        """reckoned: from the size of a chosen group, the reports and the group of the account.

        parts: it may also have the gateway deal all devices into so many groups, `draws` times, see
        which of its own are in a group, and throw the group away.
        """
        self.site = site
        self.reckoned = reckoned
        self.parts = parts
        self.draws = draws
        owned = range(site.owned + 1) if most_owned is None else [most_owned]
        self.groups = list(product(range(min(site.honest, MOST_OTHERS)), owned))
        self.best = lru_cache(maxsize=None)(self._best)

    def gain(self, rounds):
        return self.best((), rounds, 0, 1.0, 1.0)

    def _best(self, account, rounds, drawn, p, q):
        """The largest gain from here on.

        account: the reports of the victim. p, q: the probability of what was seen, for its bits.
        """
        largest = max(0.0, p - math.exp(self.site.bound.epsilon / MICRO) * q)
        if not rounds:
            return largest
        for others, owned in self.groups:
            report = self.reckoned(1 + others + owned)
            largest = max(largest, self._ask(account, rounds, drawn, p, q, report, others))
        if drawn < self.draws:
            largest = max(largest, self._draw(account, rounds, drawn + 1, p, q))
        return largest

    def _ask(self, account, rounds, drawn, p, q, report, others):
        """The gain of asking the victim among honest others; 0 where the gateway refuses."""
        account = tuple(sorted((*account, report), key=repr))
        if not self.site.keeps(account):
            return 0.0
        gain = 0.0
        for likely_0, likely_1 in zip(*self.site.laws(others), strict=True):
            gain += self.best(account, rounds - 1, drawn, p * likely_0, q * likely_1)
        return gain

    def _draw(self, account, rounds, drawn, p, q):
        """The gain of a group that the gateway draws: the adversary asks it, or throws it away."""
        site = self.site
        size = site.devices // self.parts
        report = size, Group(site.devices, size, site.devices, drawn)
        thrown_away = self.best(account, rounds, drawn, p, q)
        with_victim = 0.0
        for owned in range(min(site.owned, size - 1) + 1):
            honest = size - 1 - owned
            ways = comb(site.owned, owned) * comb(site.honest - 1, honest)
            asked = self._ask(account, rounds, drawn, p, q, report, honest)
            with_victim += ways / comb(site.devices - 1, size - 1) * max(asked, thrown_away)
        share = size / site.devices  # of groups have the victim; any other tells nothing of it
        return share * with_victim + (1 - share) * thrown_away


def chosen_by_the_host(site):
    """What the gateway knows of a group that the host chose."""
    return lambda asked: (asked, Group(site.devices, asked))


def a_share_of_the_reports(site):
    """The wrong account: as if each group had the site's share of honest devices."""
    return lambda asked: (math.floor(site.bound.honest * asked), None)


def site_with(devices, honest, report_epsilon, bound_epsilon, delta):
    """A site with a share of `honest` devices and a bound of (bound_epsilon, delta)."""
    return Site(devices, Bound(round(bound_epsilon * MICRO), delta, honest), report_epsilon)


SITES_OF_16 = [
    site_with(devices=16, honest=0.5, report_epsilon=0.3, bound_epsilon=0.35, delta=0.02),
    site_with(devices=16, honest=0.5, report_epsilon=0.5, bound_epsilon=0.45, delta=0.05),
]
SITES_OF_8 = [
    site_with(devices=8, honest=0.75, report_epsilon=0.4, bound_epsilon=0.5, delta=0.02),
    site_with(devices=8, honest=0.75, report_epsilon=1.0, bound_epsilon=0.9, delta=0.05),
]
# The adversary owns four of the devices, and throws groups away until many of these are in one.
SITES_OF_40 = [
    site_with(devices=40, honest=0.9, report_epsilon=0.6, bound_epsilon=0.7, delta=0.1),
    site_with(devices=40, honest=0.9, report_epsilon=1.0, bound_epsilon=0.9, delta=0.2),
]


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("site", SITES_OF_16 + SITES_OF_8)
def test_no_choice_of_groups_tells_more_than_the_bound(site):
    adversary = Adversary(site, chosen_by_the_host(site))

    assert 0 < adversary.gain(rounds=2) <= site.bound.delta


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("site", SITES_OF_8)
def test_no_choice_of_groups_over_three_rounds_tells_more_than_the_bound(site):
    adversary = Adversary(site, chosen_by_the_host(site), most_owned=site.owned)

    assert 0 < adversary.gain(rounds=3) <= site.bound.delta


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("site", SITES_OF_16)
def test_the_adversary_breaks_a_gateway_that_counts_a_share_of_the_reports(site):
    """A host asks its own devices and the victim: one honest device, not a share of the group."""
    adversary = Adversary(site, a_share_of_the_reports(site))

    assert adversary.gain(rounds=2) > 1.2 * site.bound.delta  # clearly, not by rounding


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("site", SITES_OF_40)
def test_no_choice_among_drawn_groups_tells_more_than_the_bound(site):
    groups_of_8 = {"parts": 5, "draws": 3}
    adversary = Adversary(site, chosen_by_the_host(site), most_owned=site.owned, **groups_of_8)

    assert 0 < adversary.gain(rounds=2) <= site.bound.delta


def test_a_drawn_group_is_reckoned_to_have_more_honest_devices_than_a_chosen_one():
    honest_share = 0.9
    chosen = Group(site=40, asked=8)
    drawn = Group(site=40, asked=8, pool=40, draw=1)

    tail = draws_delta(0.2, honest_share)  # of a bound with delta 0.2
    honest_of_chosen = chosen.honest(8, honest_share, tail)
    honest_of_drawn = drawn.honest(8, honest_share, tail)

    assert honest_of_chosen < honest_of_drawn < 8
