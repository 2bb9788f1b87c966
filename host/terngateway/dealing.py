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
    """The groups that a host gets for its round, the same whenever it asks again.

    devices: of the gateway.
    """
    known = Members(devices)
    draws: list[int] = []
    sizes: list[int] = []
    groups: list[Integers] = []
    for parts, pool in zip(deal.parts, deal.pools, strict=True):
        if parts > len(pool):
            return Refused(deal.number, f"{len(pool)} devices cannot be dealt into {parts} groups")
        if np.any(known.find(pool) < 0):
            text = "some of these devices are not on this gateway"
            return Refused(deal.number, text, "ask the next round")

        hand = _digest(parts, pool)
        taken = tables.take_group(hand, deal.number)
        if taken is None:
            tables.deal(hand, draw(pool, parts))
            taken = tables.take_group(hand, deal.number)
        assert taken is not None
        draw_number, group = taken
        draws.append(draw_number)
        groups.append(group)
        sizes.append(len(pool))
    return Dealt(deal.number, draws, sizes, groups)


def draw(pool: Integers, parts: int) -> list[Integers]:
    """Deal the devices into so many nearly equal groups; every deal is equally likely.

    Each group is in ascending order.
    """
    # Two devices have the same 128 bits with a probability that is far below any delta.
    random_bits = np.frombuffer(os.urandom(16 * len(pool)), np.uint64).reshape(2, -1)
    order = np.lexsort(random_bits)
    return [np.sort(group) for group in np.array_split(pool[order], parts)]


def wrong_groups(dealt: Dealt, deal: Deal) -> str:
    """For a host: why these are not groups that it asked for; "" if they are."""
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
    """For each cohort of a question: who may be in it. site: the number of the site's devices."""
    groups = []
    for cohort in cohorts:
        drawn = tables.drawn(number, np.asarray(cohort.devices, np.int64))
        pool, draw_number = (0, 0) if drawn is None else drawn
        groups.append(Group(site, len(cohort.devices), pool, draw_number))
    return groups


def _digest(parts: int, pool: Integers) -> bytes:
    """What identifies a pool that is dealt into so many groups."""
    return hashlib.sha256(LENGTH.pack(parts) + id_bytes(pool).tobytes()).digest()
