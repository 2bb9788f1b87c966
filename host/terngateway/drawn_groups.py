"""The groups of a round that a host has gateways draw.

If a bound reckons with dishonest devices, a host that chose the groups could ask those alone. So
the gateway draws them (shared_specs/gateways.md, Groups that a gateway draws).
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
    """Return, by site, the message that asks it to draw a group for each cohort of round `number`.

    pools: for each cohort, the devices that it is drawn from. sites: by name, their devices. A site
    with too few devices of a pool is left out. If every cohort is its whole pool, there is nothing
    to draw, and no site is asked.
    """
    parts = []  # for each pool, the number of groups of the cohort's size that it makes
    for (_question, cohort_devices), pool in zip(cohorts, pools, strict=True):
        parts.append(math.ceil(len(pool) / len(cohort_devices)))
    if max(parts) == 1:
        return {}

    deals = {}
    for name, site_devices in sites.items():
        site_pools = [np.intersect1d(integers(pool), site_devices) for pool in pools]
        enough_devices = all(
            count <= len(site_pool) for count, site_pool in zip(parts, site_pools, strict=True)
        )
        if enough_devices:
            deals[name] = Deal(number, parts, site_pools)
    return deals


class DrawnGroups:
    """The groups of one round: what gateways were asked to draw, and what they have drawn."""

    def __init__(self, deals: Mapping[str, Deal], warn: Warn) -> None:
        """deals: by gateway, what it was asked to draw. warn: gets each failure to draw."""
        self._deals = deals
        self._warn = warn
        self._answered: set[str] = set()
        self._dealt: dict[str, Dealt] = {}

    def __bool__(self) -> bool:
        return bool(self._dealt)

    def was_asked(self, gateway: str) -> bool:
        """Whether a gateway was asked to draw."""
        return gateway in self._deals

    def missing(self) -> set[str]:
        """The gateways that have neither drawn groups nor refused to."""
        return self._deals.keys() - self._answered

    def take(self, gateway: str, message: Message) -> None:
        """Take the groups that a gateway has drawn, or its refusal to draw any.

        Messages of other kinds, or about other rounds, are ignored.
        """
        deal = self._deals[gateway]
        if isinstance(message, Dealt) and message.number == deal.number:
            problem = wrong_groups(message, deal)
            if problem:
                text = f"round {deal.number}: gateway {gateway} draws other groups than asked for"
                self._warn(f"{text}: {problem}")
            else:
                self._dealt[gateway] = message
            self._answered.add(gateway)
        elif isinstance(message, Refused) and message.number in (NO_ROUND, deal.number):
            text = f"round {deal.number}: gateway {gateway} draws no group"
            self._warn(f"{text}: {message.message}")
            self._answered.add(gateway)

    def replace_devices(
        self, cohorts: Cohorts, devices: Integers, sites: Mapping[str, Integers]
    ) -> Cohorts:
        """Return the cohorts with each site's devices replaced by the groups that it has drawn.

        devices: those of all sites. sites: by name, their devices. The devices of sites that have
        drawn nothing stay as the host chose them. Cohorts without a device are left out.
        """
        other_devices = devices  # of the sites that have drawn nothing
        for name in self._dealt:
            other_devices = np.setdiff1d(other_devices, sites[name])

        replaced = []
        for index, (question, chosen_devices) in enumerate(cohorts):
            groups = [dealt.groups[index] for dealt in self._dealt.values()]
            kept_devices = np.intersect1d(integers(chosen_devices), other_devices)
            cohort_devices = np.sort(np.concatenate([kept_devices, *groups]))
            if len(cohort_devices):
                replaced.append((question, cohort_devices))
        return replaced

    def groups_in(self, ask: Ask, gateway: str, registered: int) -> list[Group]:
        """Return, for each cohort of a question, the group of devices that may be in it.

        registered: the number of devices of the gateway's site.
        """
        return [
            self._with_draw(Group(registered, len(cohort.devices)), ask, gateway, cohort.devices)
            for cohort in ask.cohorts
        ]

    def _with_draw(self, group: Group, ask: Ask, gateway: str, devices: Devices) -> Group:
        """Return the group, with its pool and draw if the gateway has drawn exactly these devices."""
        dealt = self._dealt.get(gateway)
        if dealt is None or dealt.number != ask.number:
            return group
        for draw, pool, drawn in zip(dealt.draws, dealt.dealt, dealt.groups, strict=True):
            if np.array_equal(drawn, devices):
                return replace(group, pool=pool, draw=draw)
        return group
