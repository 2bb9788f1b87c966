"""Which client of a fleet holds which records."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ternhost.datasets.base import Fixed, Indices
from ternhost.errors import UsageError


@dataclass(frozen=True)
class Holdings:
    """Says which client of a fleet holds which records.

    records: all records (m x (d + 1), Q1.14, the label last). order: positions in `records`, which
    are dealt to the clients: client i, counted from 0, holds the i-th group of `each` positions.
    Clients beyond the last group begin again with the first one.
    """

    records: Fixed
    order: Indices
    each: int = 1

    @property
    def width(self) -> int:
        """The number of values of a record, its label included."""
        return int(self.records.shape[1])

    @property
    def clients(self) -> int:
        """The number of clients with positions of their own; further clients repeat them."""
        return len(self.order) // self.each

    def positions(self, clients: npt.ArrayLike) -> Indices:
        """Return the positions in `records` of what these n clients hold: n x each."""
        dealt = self.order[: self.clients * self.each]  # without a rest that is no whole group
        groups: Indices = dealt.reshape(-1, self.each)
        return groups[np.asarray(clients, np.int64) % self.clients]

    def rows(self, clients: npt.ArrayLike) -> Fixed:
        """Return the records of these n clients: n x each x (d + 1)."""
        return self.records[self.positions(clients)]


def deal(stock: Holdings, name: str, boards: int, seed: int, *, again: bool = False) -> Holdings:
    """Deal records to boards at random, `stock.each` to each board; return who holds what.

    stock: the records that can be dealt: those in its `order`. name: that of the data set, for
    messages. seed: that of the shuffle. again: whether several boards may get the same records if
    there are too few; otherwise that raises UsageError.
    """
    rng = np.random.default_rng(seed)
    needed = boards * stock.each
    available = len(stock.order)
    if needed <= available:
        order = rng.permutation(stock.order)[:needed]
    elif again:
        order = rng.choice(stock.order, needed)
    else:
        need = f"{boards} devices of {stock.each} records need {needed:,}"
        hint = "use fewer boards"
        if available >= boards:
            hint = f"use --records {available // boards}, or fewer boards"
        raise UsageError(f"{need}, and {name} has {available:,}", hint)
    return Holdings(stock.records, order, stock.each)
