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
        """The least number of honest reports among these, one device's own included.

        share: of the site's devices that are honest. delta: the probability, over all draws, that
        fewer are honest.
        """
        if not reports:
            return 0
        dishonest = dishonest_of(self.site, share)
        if self.pool:
            tail = delta / (_ALL_DRAWS * self.draw**2)
            dishonest = most_dishonest(self.pool, dishonest, self.asked, tail)
        return max(1, reports - dishonest)


def dishonest_of(devices: int, share: float) -> int:
    """How many of these devices may be dishonest where this share is honest: rounded up."""
    return math.ceil((1 - Fraction(str(share))) * devices)


@lru_cache(maxsize=4096)
def most_dishonest(pool: int, dishonest: int, asked: int, tail: float) -> int:
    """The most dishonest devices beside an honest one in a group of `asked` that is drawn at random.

    pool: the devices from which it is drawn, so many of them `dishonest`. A group has more with at
    most the probability `tail`.
    """
    from scipy.special import gammaln  # slow to load

    others = pool - 1
    drawn = asked - 1
    marked = min(dishonest, others)
    most = min(marked, drawn)
    least = max(0, drawn - (others - marked))
    if tail <= 0 or most == least:
        return most

    def log_choose(n, k):  # type: ignore[no-untyped-def]
        return gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)

    # The hypergeometric law of the counts, from the largest down.
    counts = np.arange(most, least, -1, dtype=np.float64)
    log_law = (
        log_choose(marked, counts)
        + log_choose(others - marked, drawn - counts)
        - log_choose(others, drawn)
    )
    at_least = np.cumsum(np.exp(log_law)) * (1 + _ROUNDING)  # the probability of a count or more
    left_out = int(np.searchsorted(at_least, tail, side="right"))
    return most - left_out
