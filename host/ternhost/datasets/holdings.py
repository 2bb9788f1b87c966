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


def deal(
    name: str,
    records: Fixed,
    among: Indices,
    boards: int,
    each: int,
    seed: int,
    *,
    again: bool = False,
) -> Holdings:
    """Give each of some boards other records of a data set, at these positions. again: the same
    ones to several where they are too few; otherwise raises UsageError.
    """
    rng, needed, there = np.random.default_rng(seed), boards * each, len(among)
    if needed > there and not again:
        text = f"{boards} devices of {each} records need {needed:,}, and {name} has {there:,}"
        raise UsageError(text, f"ask for --records {there // boards}, or fewer boards")
    order = rng.choice(among, needed) if needed > there else rng.permutation(among)[:needed]
    return Holdings(records, order, each)
