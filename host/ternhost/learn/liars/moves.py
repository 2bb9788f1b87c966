"""How far a number of lies, which can be about any of several values, moves these together."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ternhost.learn.liars.bounds import Counts, Floats


class Moves(NamedTuple):
    """How far lies can move each of several values.

    t lies move a value by at most t * reach / (weight - t * heaviest), and by at most `most`.
    """

    lies: Counts  # how many there are about each value, at most
    weight: Floats  # of all reports about it
    reach: Floats  # weight * distance from the estimate, of the worst lie
    heaviest: Floats  # the largest weight of a report
    most: Floats  # no estimate is farther from the one of all reports

    def per_lie(self, power: int) -> Floats:
        """Return the largest move to a power, 1 or 2, divided by the number of lies that it takes.

        The first bound to the power, divided by t, grows with t; the second one falls. So the
        largest quotient is at the last t of the first bound or at the first t of the second one.
        """
        with np.errstate(divide="ignore", invalid="ignore"):  # nobody reports a value
            turning = np.nan_to_num(
                self.most * self.weight / (self.reach + self.most * self.heaviest)
            )
        last = np.minimum(self.lies, np.floor(turning))
        first = np.minimum(self.lies, np.floor(turning) + 1)
        quotients = np.zeros(self.weight.shape)
        for count in (last, first):
            with np.errstate(divide="ignore", invalid="ignore"):  # no lie
                quotient = self._moved(count) ** power / count
            quotients = np.maximum(quotients, np.where(count > 0, quotient, 0.0))
        return quotients

    def _moved(self, lies: npt.ArrayLike) -> Floats:
        """Return how far so many lies about each value can move it."""
        count = np.asarray(lies, np.float64)
        honest_weight = self.weight - count * self.heaviest
        with np.errstate(divide="ignore", invalid="ignore"):  # replaced where nothing is left
            moved = np.where(honest_weight > 0, count * self.reach / honest_weight, np.inf)
        return np.minimum(moved, self.most)


def largest_sum(worth: Floats, available: Counts, budget: int) -> float:
    """Return the largest sum of worth * count, with counts up to `available`, `budget` in all."""
    order = np.argsort(-worth, kind="stable")
    taken_before = np.cumsum(available[order]) - available[order]
    taken = np.clip(budget - taken_before, 0, available[order])
    return float(taken @ worth[order])
