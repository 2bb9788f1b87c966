"""Which client of a fleet holds which records."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from ternhost.datasets.base import Dataset, Fixed, Indices, Table
from ternhost.errors import UsageError
from ternhost.text import counted

MOST_RECORDS = 0xFFFF  # of a device: its files have 16 bits for the number


@dataclass(frozen=True)
class Holdings:
    """Says which client of a fleet holds which records.

    - records: all records (m x (d + 1), Q1.14, the label last)
    - order: positions in `records`, which are dealt to the clients
    - per_client: how many records a client holds, at most
    - starts: where in `order` the positions of each client begin, and at last where those of the
      last client end (clients + 1); None: each client holds `per_client` records, one group of
      positions after the other
    - names: of the clients, if they have any

    Clients are counted from 0. Clients beyond the last one with records begin again with the first.
    """

    records: Fixed
    order: Indices
    per_client: int = 1
    starts: Indices | None = None
    names: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        """The number of values of a record, its label included."""
        return int(self.records.shape[1])

    @property
    def clients(self) -> int:
        """The number of clients with positions of their own; further clients repeat them."""
        if self.starts is not None:
            return len(self.starts) - 1
        return len(self.order) // self.per_client

    def counts(self, clients: npt.ArrayLike) -> Indices:
        """Return how many records each of these n clients holds (n)."""
        numbers = np.asarray(clients, np.int64)
        if self.starts is None:
            return np.full(len(numbers), self.per_client, np.int64)
        numbers = numbers % self.clients
        counts: Indices = self.starts[numbers + 1] - self.starts[numbers]
        return counts

    def positions(self, clients: npt.ArrayLike) -> Indices:
        """Return the positions in `records` of what these n clients hold: n x records of each.

        Raises ValueError if they do not hold equally many; see `groups`.
        """
        counts = self.counts(clients)
        count = self.per_client
        if len(counts):
            count = int(counts[0])
        if (counts != count).any():
            raise ValueError("these clients do not hold equally many records")
        offsets = np.arange(count)
        positions: Indices = self.order[self._starts(clients)[:, None] + offsets]
        return positions

    def rows(self, clients: npt.ArrayLike) -> Fixed:
        """Return the records of these n clients: n x records of each x (d + 1).

        Raises ValueError if they do not hold equally many; see `groups`.
        """
        return self.records[self.positions(clients)]

    def all_positions(self, clients: npt.ArrayLike) -> Indices:
        """Return the positions of all that these clients hold, one client after the other."""
        counts = self.counts(clients)
        ends = np.cumsum(counts)
        total = int(counts.sum())
        offsets = np.arange(total) - np.repeat(ends - counts, counts)
        positions: Indices = self.order[np.repeat(self._starts(clients), counts) + offsets]
        return positions

    def groups(self, clients: npt.ArrayLike) -> Iterator[Indices]:
        """Yield positions in `clients`, in groups of clients that hold equally many records."""
        return groups_of_equal(self.counts(clients))

    def batches(self, clients: npt.ArrayLike, firsts: Indices, size: int) -> Fixed:
        """Return `size` records of each of these n clients: n x size x (d + 1).

        firsts: the first one of each client, counted from 0 (n). After the last one of a client
        comes its first one again.
        """
        offsets = (firsts[:, None] + np.arange(size)) % self.counts(clients)[:, None]
        return self.records[self.order[self._starts(clients)[:, None] + offsets]]

    def turns(self, clients: npt.ArrayLike, number: int) -> Fixed:
        """Return the record of each of these n clients whose turn it is: n x (d + 1).

        It is the one that devices report or classify: the next one in every round. number: that of
        the round, from 1.
        """
        firsts = (number - 1) % self.counts(clients)
        return self.batches(clients, firsts, 1)[:, 0]

    def _starts(self, clients: npt.ArrayLike) -> Indices:
        """Return where in `order` the positions of these n clients begin (n)."""
        numbers = np.asarray(clients, np.int64) % self.clients
        if self.starts is None:
            return numbers * self.per_client
        return self.starts[numbers]

    def only(self, client: int) -> Self:
        """Return what one client holds, as the only client."""
        positions = self.all_positions([client])
        starts = np.array([0, len(positions)])
        names = self.names[client : client + 1]
        return replace(self, order=positions, per_client=len(positions), starts=starts, names=names)

    def of_first(self, clients: int) -> Self:
        """Return what the first `clients` clients hold, and no others."""
        end = clients * self.per_client
        starts = self.starts
        if starts is not None:
            starts = starts[: clients + 1]
            end = int(starts[-1])
        return replace(self, order=self.order[:end], starts=starts, names=self.names[:clients])


def groups_of_equal(numbers: Indices) -> Iterator[Indices]:
    """Yield positions in an array of numbers, in groups where the numbers are equal."""
    if len(numbers) and (numbers == numbers[0]).all():  # far quicker than to sort them
        yield np.arange(len(numbers))
        return
    for number in np.unique(numbers):
        yield np.flatnonzero(numbers == number)


def counts_of_owners(data: Dataset | Table, positions: Indices) -> Indices:
    """Return how many of the records at these positions belong to each owner that has any.

    data: records whose owners are known.
    """
    assert data.owners is not None
    counts = np.bincount(data.owners[positions], minlength=len(data.owner_names))
    return counts[counts > 0]


def of_owners(data: Dataset | Table, positions: Indices, most: int | None = None) -> Holdings:
    """Return the holdings of clients that each hold the records of an owner.

    Client i holds those of the i-th owner that has any, in the order of the data.

    data: records whose owners are known. positions: those of the records that are handed out.
    most: a public bound; of each client's records those beyond it are left out, and the first ones
    stay. None: all stay.
    """
    assert data.owners is not None
    ordered = np.sort(positions)
    ordered = ordered[np.argsort(data.owners[ordered], kind="stable")]
    owners, first_of_owner, counts = np.unique(
        data.owners[ordered], return_index=True, return_counts=True
    )
    if most is not None:
        place = np.arange(len(ordered)) - np.repeat(first_of_owner, counts)  # within its owner
        ordered = ordered[place < most]
        counts = np.minimum(counts, most)
    return Holdings(
        records=data.records(np.arange(data.size)),
        order=ordered,
        per_client=int(counts.max(initial=1)),
        starts=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        names=tuple(data.owner_names[owner] for owner in owners),
    )


def deal(stock: Holdings, name: str, boards: int, seed: int, *, again: bool = False) -> Holdings:
    """Deal records to boards at random, `stock.per_client` to each board; return who holds what.

    stock: the records that can be dealt: those in its `order`. name: that of the data set, for
    messages. seed: that of the shuffle. again: whether several boards may get the same records if
    there are too few; otherwise that raises UsageError.
    """
    rng = np.random.default_rng(seed)
    needed = boards * stock.per_client
    if again and needed > len(stock.order):
        order = rng.choice(stock.order, needed)
    else:
        require_enough(stock, boards, name)
        order = rng.permutation(stock.order)[:needed]
    return Holdings(stock.records, order, stock.per_client)


def require_enough(stock: Holdings, devices: int, name: str) -> None:
    """Raise UsageError if there are too few records to deal different ones to so many devices.

    stock: the records that can be dealt: those in its `order`, `stock.per_client` to each device.
    name: that of the data set. The hint says how many devices there are records for, and how many
    records so many devices can have.
    """
    needed = devices * stock.per_client
    available = len(stock.order)
    if needed <= available:
        return
    ways = []
    if stock.clients:
        ways.append(f"at most {counted(stock.clients, 'device')}")
    if available >= devices:
        ways.append(f"at most --records {available // devices}")
    if not ways:  # neither alone is enough
        ways.append("fewer devices with fewer --records")
    hint = f"use {', or '.join(ways)}"
    who = f"{counted(devices, 'device')} with {counted(stock.per_client, 'record')} each"
    text = f"{who} need {needed:,}, and {name} has {available:,} for them"
    raise UsageError(text, hint)
