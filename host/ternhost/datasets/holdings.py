"""Which client of a fleet holds which records."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ternhost.datasets.base import Fixed, Indices
from ternhost.errors import UsageError


@dataclass(frozen=True)
class Holdings:
    """The records of a fleet's clients.

    records: m x (d + 1), Q1.14, the label last. order: positions in `records`. Client i (from 0)
    holds the i-th group of `each` positions in `order`, cyclically.
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
        """The positions of these clients (n) in `records`: n x each."""
        groups: Indices = self.order[: self.clients * self.each].reshape(-1, self.each)
        return groups[np.asarray(clients, np.int64) % self.clients]

    def rows(self, clients: npt.ArrayLike) -> Fixed:
        """The records of these clients (n): n x each x (d + 1)."""
        return self.records[self.positions(clients)]


def deal(stock: Holdings, name: str, boards: int, seed: int, *, again: bool = False) -> Holdings:
    """Deal the records of a stock to boards at random, `stock.each` to each board.

    name: of the data set, for messages. seed: of the shuffle. again: whether several boards may get
    the same records if there are too few; otherwise that raises UsageError.
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
        hint = f"ask for --records {available // boards}, or fewer boards"
        raise UsageError(f"{need}, and {name} has {available:,}", hint)
    return Holdings(stock.records, order, stock.each)
