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
from math import comb

import numpy as np
import pytest

from terngateway.bound import Bound
from ternhost.count.disclosures import Disclosures, draws_delta
from ternhost.privacy.composing import ReportKind
from ternhost.privacy.groups import Group

MICRO = 10**6
VICTIM = [1]
EVERYBODY = 8


class Site:
    """Devices of which the adversary owns as many as the bound allows it; the victim is honest.

    epsilon: of a report. filtered: the number of honest reports that the gateway reckons with, from
    its own facts.
    """

    def __init__(self, devices, bound, epsilon):
        self.devices, self.bound, self.epsilon = devices, bound, epsilon
        self.owned = math.ceil((1 - bound.honest) * devices - 1e-9)
        self.honest = devices - self.owned
        self.likely = 1 / (1 + math.exp(-epsilon))

    @cache  # noqa: B019
    def answers(self, others):
        """The laws of the number of ones among the victim and so many honest devices, whose bits
        are 0, for the bits 0 and 1 of the victim; and, for a bit of 1 in all others, the same
        mirrored.
        """
        law = np.ones(1)
        for _ in range(others):
            law = np.convolve(law, [self.likely, 1 - self.likely])
        return [
            np.convolve(law, bit)
            for bit in ([self.likely, 1 - self.likely], [1 - self.likely, self.likely])
        ]

    @cache  # noqa: B019
    def keeps(self, account):
        """Whether the gateway answers a round, after which the victim has these reports."""
        told = Disclosures()
        for mixed, group in account:
            told.add(ReportKind(round(self.epsilon * MICRO)).among(mixed, group), VICTIM)
        return self.bound.keeps(told)


def gain_of(p, q, epsilon):
    return max(0.0, p - math.exp(epsilon) * q)


class Adversary:
    """Tries every strategy. reckoned: from the number of devices of a group that it chose, the
    reports and the group that the gateway reckons with. parts: it may also have the gateway deal
    all devices into so many groups, `draws` times, see which of its own are in a group, and throw
    the group away.
    """

    def __init__(self, site, reckoned, most_owned=None, parts=0, draws=0):
        self.site, self.reckoned, self.parts, self.draws = site, reckoned, parts, draws
        self.owned = range(site.owned + 1) if most_owned is None else [most_owned]
        self.groups = [
            (others, owned) for others in range(min(site.honest, EVERYBODY)) for owned in self.owned
        ]
        self.best = lru_cache(maxsize=None)(self._best)

    def gain(self, rounds):
        return self.best((), rounds, 0, 1.0, 1.0)

    def _best(self, account, rounds, drawn, p, q):
        """The largest gain from here on. account: the reports of the victim; p, q: the probability
        of what was seen.
        """
        found = gain_of(p, q, self.site.bound.epsilon / MICRO)
        if not rounds:
            return found
        for others, owned in self.groups:
            report = self.reckoned(1 + others + owned)
            found = max(found, self._asks(account, rounds, drawn, p, q, report, others))
        if drawn < self.draws:
            found = max(found, self._draws(account, rounds, drawn + 1, p, q))
        return found

    def _asks(self, account, rounds, drawn, p, q, report, others):
        """The gain of asking the victim among so many honest others; 0 where the gateway refuses."""
        after = tuple(sorted((*account, report), key=repr))
        if not self.site.keeps(after):
            return 0.0
        laws = self.site.answers(others)
        return sum(
            self.best(after, rounds - 1, drawn, p * a, q * b) for a, b in zip(*laws, strict=True)
        )

    def _draws(self, account, rounds, drawn, p, q):
        """The gain of a group that the gateway draws: the adversary asks it, or throws it away."""
        site, size = self.site, self.site.devices // self.parts
        group = size, Group(site.devices, size, site.devices, drawn)
        goes_on = self.best(account, rounds, drawn, p, q)
        inside = 0.0
        for owned in range(min(site.owned, size - 1) + 1):
            likely = (
                comb(site.owned, owned)
                * comb(site.honest - 1, size - 1 - owned)
                / comb(site.devices - 1, size - 1)
            )
            asks = self._asks(account, rounds, drawn, p, q, group, size - 1 - owned)
            inside += likely * max(asks, goes_on)
        share = size / site.devices  # of the groups have the victim; any other tells nothing of it
        return share * inside + (1 - share) * goes_on


def chosen_by_the_host(site):
    """What the gateway knows of a group that the host chose."""
    return lambda asked: (asked, Group(site.devices, asked))


def a_share_of_the_reports(site):
    """The wrong account: as if each group had the site's share of honest devices."""
    return lambda asked: (math.floor(site.bound.honest * asked), None)


SITES = [
    # devices, share of honest ones, epsilon of a report, of the bound, its delta
    (8, 0.75, 1.0, 0.9, 0.05),
    (8, 0.75, 0.4, 0.5, 0.02),
    (16, 0.5, 0.5, 0.45, 0.05),
    (16, 0.5, 0.3, 0.35, 0.02),
]


@pytest.mark.slow
@pytest.mark.parametrize(("devices", "honest", "epsilon", "bound", "delta"), SITES)
def test_no_choice_of_groups_tells_more_than_the_bound(devices, honest, epsilon, bound, delta):
    site = Site(devices, Bound(round(bound * MICRO), delta, honest), epsilon)
    assert 0 < Adversary(site, chosen_by_the_host(site)).gain(2) <= delta


@pytest.mark.slow
@pytest.mark.parametrize(("devices", "honest", "epsilon", "bound", "delta"), SITES[:2])
def test_no_choice_of_groups_over_three_rounds_tells_more_than_the_bound(
    devices, honest, epsilon, bound, delta
):
    site = Site(devices, Bound(round(bound * MICRO), delta, honest), epsilon)
    assert 0 < Adversary(site, chosen_by_the_host(site), most_owned=site.owned).gain(3) <= delta


@pytest.mark.parametrize(("devices", "honest", "epsilon", "bound", "delta"), SITES[2:4])
def test_a_share_of_the_reports_would_be_broken(devices, honest, epsilon, bound, delta):
    """A host asks all of its own devices and the victim: the group has one honest device, not a
    share of it.
    """
    site = Site(devices, Bound(round(bound * MICRO), delta, honest), epsilon)
    assert Adversary(site, a_share_of_the_reports(site)).gain(2) > 1.2 * delta


@pytest.mark.parametrize(("epsilon", "bound", "delta"), [(1.0, 0.9, 0.2), (0.6, 0.7, 0.1)])
def test_no_choice_among_drawn_groups_tells_more_than_the_bound(epsilon, bound, delta):
    """Of 40 devices four are the adversary's.

    It throws groups away until many of its own are in one.
    """
    site = Site(40, Bound(round(bound * MICRO), delta, 0.9), epsilon)
    adversary = Adversary(site, chosen_by_the_host(site), most_owned=site.owned, parts=5, draws=3)
    assert 0 < adversary.gain(2) <= delta


def test_a_drawn_group_is_reckoned_to_have_more_honest_devices_than_a_chosen_one():
    bound = Bound(MICRO, 0.2, 0.9)
    chosen, drawn = Group(40, 8), Group(40, 8, 40, 1)
    tail = draws_delta(bound.delta, bound.honest)
    assert chosen.honest(8, 0.9, tail) < drawn.honest(8, 0.9, tail) < 8
