"""Which client of a fleet holds which records."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ternhost.datasets.base import Fixed, Indices


@dataclass(frozen=True)
class Holdings:
    """The records of a fleet's clients: client i (from 0) holds the i-th `each` rows of `order`, cyclically.

    records: m x (d + 1) int16, Q1.14, the label last. order: positions in `records`.
    """

    records: Fixed
    order: Indices
    each: int = 1

    @property
    def width(self) -> int:
        return int(self.records.shape[1])

    @property
    def clients(self) -> int:
        """How many clients hold records that nobody else holds."""
        return len(self.order) // self.each

    def positions(self, clients: npt.ArrayLike) -> Indices:
        """The positions that these clients hold: n x each."""
        by_client: Indices = self.order[: self.clients * self.each].reshape(-1, self.each)
        return by_client[np.asarray(clients, np.int64) % self.clients]

    def rows(self, clients: npt.ArrayLike) -> Fixed:
        """The records that these clients hold: n x each x (d + 1)."""
        return self.records[self.positions(clients)]
