"""The central privacy cost of reports where an anonymous shuffler stands between the clients and
the reader.

A shuffler passes on the reports of n clients in random order, and nothing else. Then a report of
local epsilon e0 is (epsilon, delta)-private with a far smaller epsilon. Two bounds:

- closed, for any mechanism: Feldman, McMillan and Talwar, "Hiding among the clones", FOCS 2021,
  Theorem 3.1. (By its errata the sharper form of their SODA paper of 2023 does not hold for all
  mechanisms.)
- numerical, for a card's integers or any mechanism: Balle, Bell, Gascon and Nissim, "The privacy
  blanket of the shuffle model", CRYPTO 2019. Symbol y has at least the probability b(y), the least
  over all inputs, so each other client sends a report that does not depend on its data with
  probability sum b. For inputs of laws P and Q,

      delta(epsilon) <= E[max(0, X_1 + ... + X_n)] / n,  X independent: (P(y) - e**epsilon Q(y)) /
      b(y) with probability b(y), else 0

All X here have the mean 1 - e**epsilon, and the bound grows in convex order, that is with pi(t) =
E[max(0, X - t)] at any t. So an X that covers all inputs has the largest pi over all pairs of them.
It also covers reports of one of several coordinates, drawn at random. A pair of ratio at most p =
e**e0 has b >= max(P, Q) / p. Splitting a symbol of ratio 1 to p into ratios 1 and p raises pi, and
what is left, ratio 1 mixed with randomised response between two values, has the greatest pi where
all is randomised response: this is the worst mechanism.

Rounding is towards more: pi is computed in integers on a grid and interpolated, which is not below
a convex function. A Fourier transform gives the law of the sum, tilted to mean 0 so that errors are
relative to the result; it is raised by more than they can be. The epsilon returned is the upper end
of a bisection.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from tern.card import Card
from ternhost.errors import UsageError
from ternhost.options import require
from ternhost.privacy.base import MICRO
from ternhost.privacy.laws import Part, are_known, parts, randomised_response
from ternhost.privacy.losses import LOST, MOST, Draws, add_up, least

MOST_REPORTS = 10**9
LEAST_DELTA = 1e-300  # its inverse is a number

_BITS = 60  # of a grid's points, after the point
_CELLS = 128  # of the grid of X; the sum's variance is more by a ten-thousandth at most
_FEWER_CELLS = 16  # where there are many reports
_MANY = 10**7
_CLOSE = 1e-4  # the bisection ends where its ends differ by this share

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Shuffled:
    """Upper bounds of the central epsilon of a report of local epsilon `local`, one of `reports`,
    at `delta`.
    """

    local: float
    reports: int
    delta: float
    closed: float | None  # None where its theorem does not apply
    any_mechanism: float
    card: float | None  # None where no card is known, or its probabilities are irrational (laplace)

    @property
    def epsilon(self) -> float:
        """The least of them, and of the local epsilon."""
        bounds = (self.local, self.closed, self.any_mechanism, self.card)
        return min(bound for bound in bounds if bound is not None)


def account(
    local: int, reports: int, delta: float, card: Card | None = None, values: int = 1
) -> Shuffled:
    """Account for one report of each of `reports` honest clients, in which `values` values cost
    `local` (micro) each. Several values a report take the bound for any mechanism, whatever the
    `card`. Raises UsageError.
    """
    require(1 <= reports <= MOST_REPORTS, "reports", f"from 1 to {MOST_REPORTS:,}", f"{reports:,}")
    if not 0 < delta < 1:
        hint = "well below one in the number of reports, for example --delta 1e-6"
        raise UsageError(f"--delta must be between 0 and 1, not {delta:g}", hint)
    require(delta >= LEAST_DELTA, "delta", f"{LEAST_DELTA:g} or more", f"{delta:g}")
    require(values >= 1, "values", "1 or more", values)
    epsilon = local * values / MICRO
    if epsilon > MOST:
        raise UsageError(
            f"a report of {values} values at {local / MICRO:g} has local epsilon {epsilon:g}: beyond"
            f" {MOST:g} nothing is hidden",
            hint="fewer --values, or a smaller epsilon",
        )
    known = card is not None and values == 1 and are_known(card)
    worst = _least_epsilon(randomised_response(epsilon), epsilon, reports, delta)
    of_card = (
        _least_epsilon(parts(card), epsilon, reports, delta) if known and card is not None else None
    )
    return Shuffled(epsilon, reports, delta, closed(epsilon, reports, delta), worst, of_card)


def closed(epsilon: float, reports: int, delta: float) -> float | None:
    """The closed bound on the central epsilon, or None where epsilon > log(reports / (16 log(2 /
    delta))).
    """
    if epsilon > math.log(reports / (16 * math.log(2 / delta))):
        return None
    e = math.exp(epsilon)
    root = 8 * math.sqrt(e * math.log(4 / delta) / reports)
    return math.log1p((e - 1) / (e + 1) * (root + 8 * e / reports))


def _least_epsilon(laws: Sequence[Part], local: float, reports: int, delta: float) -> float:
    if delta_at(laws, local, 0.0, reports) <= delta:
        return 0.0
    # At the local epsilon no X is positive.
    return least(
        0.0, local, _CLOSE, lambda epsilon: delta_at(laws, local, epsilon, reports) <= delta
    )


def delta_at(laws: Sequence[Part], local: float, epsilon: float, reports: int) -> float:
    """An upper bound of delta at central `epsilon`, of laws that keep the local epsilon."""
    return delta_of(
        laws, local, Fraction(math.exp(epsilon) * (1 - 1e-15)), reports
    )  # less: delta is more


def delta_of(laws: Sequence[Part], local: float, g: Fraction, reports: int) -> float:
    """The same at e**epsilon = g."""
    e = math.floor(g * (1 << _BITS))
    cells = _CELLS if reports < _MANY else _FEWER_CELLS
    low, high = 1 - float(g) * math.exp(local), math.exp(local) - float(g)
    step = max(1, math.ceil((high - low) / cells * (1 + 1e-9) * (1 << _BITS)))
    first = math.floor(low * (1 << _BITS) / step) - 1
    last = math.ceil(high * (1 << _BITS) / step) + 1
    if last <= first + 2:
        return 0.0
    at = [step * j for j in range(first, last + 1)]
    pi: npt.NDArray[np.object_] = sum(part.share * _envelope(part, e, at) for part in laws)
    unit = Fraction(step, 1 << _BITS)
    beyond = np.concatenate([[pi[0] + unit], pi, [Fraction(0)]])
    masses = np.array([float(m / unit) for m in beyond[2:] - 2 * beyond[1:-1] + beyond[:-2]])
    return _mean_positive(masses, first, float(unit), reports)


def _envelope(part: Part, e: int, at: Sequence[int]) -> npt.NDArray[np.object_]:
    """The largest pi of any two inputs at points `at` (in 2**-60), exactly."""
    scale = 1 << _BITS
    rest = part.whole - int(part.blanket.sum())
    largest = [part.largest(scale, e, t) + rest * max(-t, 0) for t in at]
    return np.array([Fraction(n, part.whole * scale) for n in largest], object)


def _mean_positive(masses: Floats, first: int, unit: float, n: int) -> float:
    """E[max(0, X_1 + ... + X_n)] / n, at least, where X is (first + j) unit with probability
    masses[j].
    """
    from scipy import optimize  # slow to load

    at = np.arange(first, first + len(masses))
    at, masses = at[masses > 0], masses[masses > 0]
    top = at.max()
    if top <= 0:
        return 0.0

    draws = Draws(at, masses, n)
    most = 1.0 / top
    while draws.mean(most) < 0:
        most *= 2
    tilt = float(optimize.brentq(draws.mean, 0.0, most, xtol=1e-15)) if draws.mean(0.0) < 0 else 0.0
    total = add_up([draws], tilt)
    largest = 1 / (math.e * tilt) if tilt else n * float(np.abs(at).max())  # of s exp(-tilt s)
    lost = math.exp(total.log_scale - LOST) * largest
    return (total.above(0.0, lambda sums: sums) + lost) * unit / n
