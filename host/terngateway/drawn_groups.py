"""The groups of a round that a host has gateways draw.

If a bound reckons with dishonest devices, a host that chose the groups could ask those alone. So
the gateway draws them (shared_specs/gateways.md, Groups that a gateway draws).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce

import numpy as np

from terngateway.dealing import wrong_groups
from terngateway.messages import Ask, Deal, Dealt, Message, Refused
from ternhost.count.members import Integers, integers
from ternhost.privacy.groups import Group
from ternhost.reach.driver import Cohorts, Devices, Warn


def deals_for(
    number: int, cohorts: Cohorts, pools: Sequence[Devices], sites: Mapping[str, Integers]
) -> dict[str, Deal]:
    """What each of these sites is asked to draw: a group for each cohort, out of its pool.

    sites: by name, their devices. A site is left out if it has too few devices of a pool, or if
    every cohort is a whole pool.
    """
    parts = []
    for (_, devices), pool in zip(cohorts, pools, strict=True):
        parts.append(math.ceil(len(pool) / len(devices)))
    if max(parts) == 1:
        return {}

    deals = {}
    for name, site_devices in sites.items():
        site_pools = [np.intersect1d(integers(pool), site_devices) for pool in pools]
        if all(count <= len(pool) for count, pool in zip(parts, site_pools, strict=True)):
            deals[name] = Deal(number, parts, site_pools)
    return deals


class DrawnGroups:
    """The groups of one round: what gateways were asked to draw, and what they have drawn."""

    def __init__(self, deals: Mapping[str, Deal], warn: Warn) -> None:
        """deals: by gateway."""
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
        """Take the groups that a gateway has drawn, or its refusal to draw any."""
        deal = self._deals[gateway]
        if isinstance(message, Dealt) and message.number == deal.number:
            why = wrong_groups(message, deal)
            if why:
                text = f"round {deal.number}: gateway {gateway} draws other groups than asked for"
                self._warn(f"{text}: {why}")
            else:
                self._dealt[gateway] = message
            self._answered.add(gateway)
        elif isinstance(message, Refused) and message.number in (0, deal.number):
            text = f"round {deal.number}: gateway {gateway} draws no group"
            self._warn(f"{text}: {message.message}")
            self._answered.add(gateway)

    def replace_devices(
        self, cohorts: Cohorts, devices: Integers, sites: Mapping[str, Integers]
    ) -> Cohorts:
        """The cohorts with the devices of these sites replaced by the groups that they have drawn.

        devices: of all sites. Cohorts without a device are left out.
        """
        elsewhere = [np.setdiff1d(devices, sites[name]) for name in self._dealt]
        of_other_sites = reduce(np.intersect1d, elsewhere)
        replaced = []
        for i, (question, chosen) in enumerate(cohorts):
            groups = [dealt.groups[i] for dealt in self._dealt.values()]
            kept = np.intersect1d(integers(chosen), of_other_sites)
            asked = np.sort(np.concatenate([kept, *groups]))
            if len(asked):
                replaced.append((question, asked))
        return replaced

    def groups_in(self, ask: Ask, gateway: str, registered: int) -> list[Group]:
        """Who may be in each cohort of a question. registered: devices of the gateway's site."""
        return [
            self._with_draw(Group(registered, len(cohort.devices)), ask, gateway, cohort.devices)
            for cohort in ask.cohorts
        ]

    def _with_draw(self, group: Group, ask: Ask, gateway: str, devices: Devices) -> Group:
        """The group with its draw, if the gateway has drawn exactly these devices."""
        dealt = self._dealt.get(gateway)
        if dealt is None or dealt.number != ask.number:
            return group
        for draw, pool, drawn in zip(dealt.draws, dealt.dealt, dealt.groups, strict=True):
            if np.array_equal(drawn, devices):
                return replace(group, pool=pool, draw=draw)
        return group
