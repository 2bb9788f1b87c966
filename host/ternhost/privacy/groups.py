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

DRAWS_SHARE = 0.1  # of a bound's delta: what all draws of a site may miss together
_ROUNDING = 1e-6  # the share by which floats may be wrong in a tail: their logarithms are below 1e9
_ALL_DRAWS = math.pi**2 / 6  # the sum of 1 / i**2


@dataclass(frozen=True)
class Group:
    """The devices of a cohort.

    site: how many devices the site has. asked: how many of them were asked. pool: among how many
    the group was drawn at random, in the `draw`-th draw (from 1 on), by the intermediary with
    its own randomness; 0: the reader chose them.
    """

    site: int
    asked: int
    pool: int = 0
    draw: int = 0

    def honest(self, reports: int, share: float, delta: float) -> int:
        """Return how many of `reports` are honest at least, one device's own included.

        share: of the site's devices that are honest. delta: the probability that fewer are honest,
        over all draws together; draw i may take 6 / (pi i)**2 of it.
        """
        if not reports:
            return 0
        dishonest = dishonest_of(self.site, share)
        if self.pool:
            tail = delta / (_ALL_DRAWS * self.draw**2)
            dishonest = most_dishonest(self.pool, dishonest, self.asked, tail)
        return max(1, reports - dishonest)


def dishonest_of(devices: int, share: float) -> int:
    """Return how many devices may be dishonest, rounded up, if a share of them is honest."""
    return math.ceil((1 - Fraction(str(share))) * devices)


@lru_cache(maxsize=4096)
def most_dishonest(pool: int, dishonest: int, asked: int, tail: float) -> int:
    """Return how many dishonest devices an honest one finds beside it in a random group, at most.

    The group has `asked` devices, drawn from a pool of `pool` devices of which `dishonest` are
    dishonest. It has more dishonest devices than the result with probability `tail` at most.
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

    # The hypergeometric law of the number of dishonest devices, from the largest number down.
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
