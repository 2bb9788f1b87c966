"""The groups of devices that a host has gateways draw for a round.

Some devices may be dishonest, which means that the owner of the server controls them. If a bound
reckons with that, the host must not choose who is asked: it could ask dishonest devices and one
victim. So each gateway draws a group of its devices at random (shared_specs/gateways.md, Groups that
a gateway draws).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from terngateway.dealing import wrong_groups
from terngateway.messages import NO_ROUND, Ask, Deal, Dealt, Message, Refused
from ternhost.count.members import Integers, integers
from ternhost.privacy.groups import Group
from ternhost.reach.driver import Cohorts, Devices, Warn


def deals_for(
    number: int, cohorts: Cohorts, pools: Sequence[Devices], sites: Mapping[str, Integers]
) -> dict[str, Deal]:
    """Return, by site, the message that asks it to draw a group of devices for each cohort.

    A site that has too few devices of a pool is left out. If every cohort is its whole pool, there
    is nothing to draw, and no site is asked.

    number: that of the round. cohorts: the questions, each with the devices that the host would
    choose. pools: for each cohort, the devices from which its group is drawn. sites: the devices of
    each site, by its name.
    """
    # A pool is divided into as many groups as cohorts of this size fit into it, rounded up.
    groups_of_pools = []
    for (_question, cohort_devices), pool in zip(cohorts, pools, strict=True):
        groups_of_pools.append(math.ceil(len(pool) / len(cohort_devices)))
    if max(groups_of_pools) == 1:
        return {}

    deals = {}
    for name, site_devices in sites.items():
        site_pools = [np.intersect1d(integers(pool), site_devices) for pool in pools]
        each_group_has_a_device = all(
            groups <= len(site_pool)
            for groups, site_pool in zip(groups_of_pools, site_pools, strict=True)
        )
        if each_group_has_a_device:
            deals[name] = Deal(number, groups_of_pools, site_pools)
    return deals


class DrawnGroups:
    """The groups of one round: what gateways were asked to draw, and what they have drawn."""

    def __init__(self, deals: Mapping[str, Deal], warn: Warn) -> None:
        """Begin with no groups.

        deals: by gateway, what it was asked to draw. warn: is called with a text for each gateway
        that draws no groups, or wrong ones.
        """
        self._deals = deals
        self._warn = warn
        self._answered: set[str] = set()  # the names of gateways that have answered
        self._dealt: dict[str, Dealt] = {}  # by gateway, the groups that it has drawn

    def __bool__(self) -> bool:
        """Whether any gateway has drawn groups."""
        return bool(self._dealt)

    def was_asked(self, gateway: str) -> bool:
        """Whether a gateway was asked to draw."""
        return gateway in self._deals

    def missing(self) -> set[str]:
        """The gateways that have neither drawn groups nor refused to."""
        return self._deals.keys() - self._answered

    def take(self, gateway: str, message: Message) -> None:
        """Take the groups that a gateway has drawn, or its refusal to draw any.

        Messages of other kinds, or about other rounds, are ignored. gateway: the name of one that
        was asked to draw.
        """
        deal = self._deals[gateway]
        if isinstance(message, Dealt) and message.number == deal.number:
            self._answered.add(gateway)
            problem = wrong_groups(message, deal)
            if problem:
                text = f"round {deal.number}: gateway {gateway} draws other groups than asked for"
                self._warn(f"{text}: {problem}")
            else:
                self._dealt[gateway] = message
        elif isinstance(message, Refused) and message.number in (NO_ROUND, deal.number):
            self._answered.add(gateway)
            text = f"round {deal.number}: gateway {gateway} draws no group"
            self._warn(f"{text}: {message.message}")

    def replace_devices(
        self, cohorts: Cohorts, devices: Integers, sites: Mapping[str, Integers]
    ) -> Cohorts:
        """Return the cohorts with each site's devices replaced by the group that it has drawn.

        The devices of sites that have drawn nothing stay as the host has chosen them. Cohorts
        without a device are left out. cohorts: the questions, each with the devices that the host
        has chosen. devices: the ids of the devices of all sites. sites: those of each site, by its
        name.
        """
        devices_of_other_sites = devices  # which have drawn nothing
        for name in self._dealt:
            devices_of_other_sites = np.setdiff1d(devices_of_other_sites, sites[name])

        replaced = []
        for index, (question, chosen_devices) in enumerate(cohorts):
            groups = [dealt.groups[index] for dealt in self._dealt.values()]
            kept_devices = np.intersect1d(integers(chosen_devices), devices_of_other_sites)
            cohort_devices = np.sort(np.concatenate([kept_devices, *groups]))
            if len(cohort_devices):
                replaced.append((question, cohort_devices))
        return replaced

    def groups_in(self, ask: Ask, gateway: str, registered: int) -> list[Group]:
        """Return, for each cohort of a question, the group of devices that it was taken from.

        The privacy account needs to know who has chosen the group. ask: the question to `gateway`.
        registered: how many devices the gateway's site has.
        """
        groups = []
        for cohort in ask.cohorts:
            group = Group(registered, asked=len(cohort.devices))
            groups.append(self._with_draw(group, ask.number, gateway, cohort.devices))
        return groups

    def _with_draw(self, group: Group, number: int, gateway: str, devices: Devices) -> Group:
        """Return the group with its pool and draw, if the gateway has drawn exactly these devices.

        Otherwise the host has chosen them, and the group stays as it is. number: that of the round.
        """
        dealt = self._dealt.get(gateway)
        if dealt is None or dealt.number != number:
            return group
        rows = zip(dealt.draws, dealt.dealt, dealt.groups, strict=True)
        for draw, pool_size, drawn_devices in rows:
            if np.array_equal(drawn_devices, devices):
                return replace(group, pool=pool_size, draw=draw)
        return group
