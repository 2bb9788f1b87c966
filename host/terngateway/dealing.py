"""Draws the groups of a round at a gateway, with the gateway's own randomness.

A host that chooses the devices of a group can ask its own devices and one victim. It cannot where
the gateway draws the group: then few of its devices are in it, except with a small probability
(shared_specs/gateways.md).
"""

import hashlib
import os

import numpy as np

from terngateway.messages import LENGTH, Deal, Dealt, Refused
from terngateway.tables import GatewayTables
from ternhost.count.members import Integers, Members, id_bytes
from ternhost.count.rounds import StoredCohort
from ternhost.privacy.groups import Group


def dealt(tables: GatewayTables, deal: Deal, devices: Integers) -> Dealt | Refused:
    """Return the groups that a host gets for its round: the same ones whenever it asks again.

    devices: those of this gateway. A pool that is too small, or has other devices, is refused.
    """
    gateway_devices = Members(devices)
    draws: list[int] = []
    sizes: list[int] = []
    groups: list[Integers] = []
    for parts, pool in zip(deal.parts, deal.pools, strict=True):
        if parts > len(pool):
            return Refused(deal.number, f"{len(pool)} devices cannot be dealt into {parts} groups")
        if np.any(gateway_devices.find(pool) < 0):
            text = "some of these devices are not on this gateway"
            return Refused(deal.number, text, "ask the next round")

        # The groups of earlier draws from this pool are used up before it is dealt again.
        hand = _digest(parts, pool)
        taken_group = tables.take_group(hand, deal.number)
        if taken_group is None:
            tables.deal(hand, draw(pool, parts))
            taken_group = tables.take_group(hand, deal.number)
        assert taken_group is not None
        draw_number, group = taken_group
        draws.append(draw_number)
        groups.append(group)
        sizes.append(len(pool))
    return Dealt(deal.number, draws, sizes, groups)


def draw(pool: Integers, parts: int) -> list[Integers]:
    """Deal the devices into so many nearly equal groups; every deal is equally likely.

    Each group is in ascending order.
    """
    # The order of 128 random bits for each device, as two rows of 64. Two devices have the same
    # bits with a probability that is far below any delta.
    random_bits = np.frombuffer(os.urandom(16 * len(pool)), np.uint64).reshape(2, -1)
    order = np.lexsort(random_bits)
    return [np.sort(group) for group in np.array_split(pool[order], parts)]


def wrong_groups(dealt: Dealt, deal: Deal) -> str:
    """Return why these are not the groups that a host has asked for, or "" if they are."""
    if len(dealt.groups) != len(deal.pools):
        return f"{len(dealt.groups)} groups of {len(deal.pools)} pools"
    hands = zip(deal.parts, deal.pools, dealt.dealt, dealt.groups, strict=True)
    for parts, pool, size, group in hands:
        if size != len(pool) or np.any(Members(pool).find(group) < 0):
            return "devices of another pool"
        smallest = size // parts
        largest = -(-size // parts)  # rounded up
        if not smallest <= len(group) <= largest:
            return f"a group of {len(group)} devices, one of {parts} parts of {size}"
    return ""


def groups_of(
    tables: GatewayTables, number: int, cohorts: list[StoredCohort], site: int
) -> list[Group]:
    """Return, for each cohort of a round, the group of devices that may be in it.

    site: the number of the site's devices.
    """
    groups = []
    for cohort in cohorts:
        drawn = tables.drawn(number, np.asarray(cohort.devices, np.int64))
        if drawn is None:  # the host has chosen the devices itself
            groups.append(Group(site, len(cohort.devices)))
        else:
            pool_size, draw_number = drawn
            groups.append(Group(site, len(cohort.devices), pool=pool_size, draw=draw_number))
    return groups


def _digest(parts: int, pool: Integers) -> bytes:
    """Return the digest under which the groups of a pool, dealt into so many parts, are stored."""
    return hashlib.sha256(LENGTH.pack(parts) + id_bytes(pool).tobytes()).digest()
