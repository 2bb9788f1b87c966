"""Draws the groups of a round at a gateway, with the gateway's own randomness.

A host that chose the devices of a group could ask its own devices and one victim, and subtract what
it knows. It cannot where the gateway draws the group: then few of its devices are in it, except with
a small probability (shared_specs/gateways.md).

As with cards, the gateway shuffles a pool of devices and deals it into several groups, of which each
round gets another one. A hand is a pool together with the number of its groups.
"""

import hashlib
import os

import numpy as np

from terngateway.messages import LENGTH, Deal, Dealt, Refused
from terngateway.tables import GatewayTables
from ternhost.count.members import Integers, Members, id_bytes
from ternhost.count.rounds import StoredCohort
from ternhost.privacy.groups import Group


def groups_for(deal: Deal, devices: Integers, tables: GatewayTables) -> Dealt | Refused:
    """Return the groups of devices that a host gets for its round, one from each of its pools.

    The same round always gets the same groups, however often the host asks. A pool that has too few
    devices, or devices that are not on this gateway, is refused. devices: the ids of all devices of
    this gateway. tables: the gateway's store, which keeps the groups.
    """
    gateway_devices = Members(devices)
    draws: list[int] = []
    pool_sizes: list[int] = []
    groups: list[Integers] = []
    for parts, pool in zip(deal.parts, deal.pools, strict=True):
        if parts > len(pool):
            return Refused(deal.number, f"{len(pool)} devices cannot be dealt into {parts} groups")
        is_unknown = gateway_devices.find(pool) < 0
        if np.any(is_unknown):
            text = "some of these devices are not on this gateway"
            return Refused(deal.number, text, "ask the next round")

        # All groups that were dealt from this pool are used before it is dealt again.
        hand = _digest(parts, pool)
        taken_group = tables.take_group(hand, deal.number)
        if taken_group is None:
            tables.save_groups(hand, draw(pool, parts))
            taken_group = tables.take_group(hand, deal.number)
        assert taken_group is not None  # since groups were saved just now
        draw_number, group = taken_group
        draws.append(draw_number)
        pool_sizes.append(len(pool))
        groups.append(group)
    return Dealt(deal.number, draws, dealt=pool_sizes, groups=groups)


def draw(pool: Integers, parts: int) -> list[Integers]:
    """Divide the devices of a pool at random into `parts` groups of nearly equal size.

    Every division is equally likely. The ids of each group are in ascending order.
    """
    # Each device gets 128 random bits, as two columns of 64, and the devices are sorted by these.
    # Two devices have the same bits with a probability that is far below any delta.
    random_bits = np.frombuffer(os.urandom(16 * len(pool)), np.uint64).reshape(2, -1)
    order = np.lexsort(random_bits)
    shuffled = pool[order]
    return [np.sort(group) for group in np.array_split(shuffled, parts)]


def wrong_groups(dealt: Dealt, deal: Deal) -> str:
    """Return why groups are not what a host has asked a gateway for, or "" if they are.

    dealt: the message of the gateway with the groups. deal: the host's request for them.
    """
    if len(dealt.groups) != len(deal.pools):
        return f"{len(dealt.groups)} groups of {len(deal.pools)} pools"
    rows = zip(deal.parts, deal.pools, dealt.dealt, dealt.groups, strict=True)
    for parts, pool, pool_size, group in rows:
        is_outside_pool = Members(pool).find(group) < 0
        if pool_size != len(pool) or np.any(is_outside_pool):
            return "devices of another pool"
        # The sizes of a pool's groups differ by one at most.
        smallest = pool_size // parts
        largest = -(-pool_size // parts)  # the same division, rounded up
        if not smallest <= len(group) <= largest:
            return f"a group of {len(group)} devices, one of {parts} parts of {pool_size}"
    return ""


def groups_of(
    tables: GatewayTables, number: int, cohorts: list[StoredCohort], site: int
) -> list[Group]:
    """Return, for each cohort of a round, the group of devices that it was taken from.

    The privacy account needs to know whether the host or the gateway has chosen the group. number:
    that of the round. cohorts: the devices that get the same question. site: how many devices the
    site has.
    """
    groups = []
    for cohort in cohorts:
        device_ids = np.asarray(cohort.devices, np.int64)
        drawn = tables.drawn(number, device_ids)
        if drawn is None:  # the host has chosen the devices itself
            groups.append(Group(site, asked=len(device_ids)))
        else:
            pool_size, draw_number = drawn
            groups.append(Group(site, asked=len(device_ids), pool=pool_size, draw=draw_number))
    return groups


def _digest(parts: int, pool: Integers) -> bytes:
    """Return the SHA-256 of a pool and the number of its groups, by which the store finds them."""
    return hashlib.sha256(LENGTH.pack(parts) + id_bytes(pool).tobytes()).digest()
