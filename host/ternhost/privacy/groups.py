"""How many of the reports that are added up are honest, if some of the devices are the reader's.

The reader chooses which devices are asked, so it may ask all of its own and few others. What its
share of the *site* allows is then the worst case. A group that the intermediary has drawn with its
own randomness is better: its dishonest devices follow the hypergeometric law
(docs/guides/accounting.md, Theorem 5).
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

# The share of a bound's delta that is spent on the event that some group, of all that a site ever
# draws, has more dishonest devices than its bound says.
DRAWS_SHARE = 0.1
_ROUNDING = 1e-6  # the share by which floats may be wrong in a tail: their logarithms are below 1e9
_SUM_OF_INVERSE_SQUARES = math.pi**2 / 6  # the sum of 1 / i**2 over all i from 1 on


@dataclass(frozen=True)
class Group:
    """The devices that were asked the same question, and how they were chosen.

    site: how many devices the site has. asked: how many of them are in the group. pool: from how
    many devices the intermediary drew the group at random; 0: the reader chose the group. draw: the
    number of that draw at the site, from 1 on.
    """

    site: int
    asked: int
    pool: int = 0
    draw: int = 0

    def honest(self, reports: int, share: float, delta: float) -> int:
        """Return how many of the group's reports are honest at least, one device's own included.

        A report is honest if its device does not work for the reader: only such reports hide the
        others of a sum. Without a random draw, all dishonest devices of the site may be in the
        group. A draw makes that unlikely.

        reports: how many reports the group sent. share: the share of the site's devices that are
        honest. delta: the probability that the result is wrong for any of the site's draws.
        """
        if not reports:
            return 0
        dishonest = dishonest_of(self.site, share)
        if self.pool:
            # Draw i may fail with the probability 6 / (pi i)**2 delta, so all draws together, of
            # which there may be any number, fail with the probability delta at most.
            tail = delta / (_SUM_OF_INVERSE_SQUARES * self.draw**2)
            dishonest = most_dishonest(self.pool, dishonest, self.asked, tail)
        return max(1, reports - dishonest)


def dishonest_of(devices: int, share: float) -> int:
    """Return how many devices may be dishonest, rounded up, if this share of them is honest."""
    exact_share = Fraction(str(share))  # the decimal that was written, not its binary neighbour
    return math.ceil((1 - exact_share) * devices)


@lru_cache(maxsize=4096)
def most_dishonest(pool: int, dishonest: int, asked: int, tail: float) -> int:
    """Return how many dishonest devices an honest one finds beside it in a random group, at most.

    There may be more with the probability `tail`. The group has `asked` devices, drawn from a pool
    of `pool` devices of which `dishonest` are dishonest. So the number of dishonest ones follows
    the hypergeometric law.
    """
    # The honest device itself is in the group; the rest is drawn from the rest of the pool.
    others = pool - 1
    drawn = asked - 1
    dishonest = min(dishonest, others)
    honest = others - dishonest
    most = min(dishonest, drawn)
    least = max(0, drawn - honest)
    if tail <= 0 or most == least:
        return most

    # The logarithms of the hypergeometric probabilities, from the largest possible number down.
    counts = np.arange(most, least, -1, dtype=np.float64)
    log_law = (
        _log_choose(dishonest, counts)
        + _log_choose(honest, drawn - counts)
        - _log_choose(others, drawn)
    )
    at_least = np.cumsum(np.exp(log_law)) * (1 + _ROUNDING)  # the probability of a count or more
    # The largest counts are left out as long as they have the probability `tail` at most together.
    left_out = int(np.searchsorted(at_least, tail, side="right"))
    return most - left_out


def _log_choose(n, k):  # type: ignore[no-untyped-def]
    """Return the logarithm of the binomial coefficient "n choose k", for numbers or arrays."""
    from scipy.special import gammaln  # slow to load

    return gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
