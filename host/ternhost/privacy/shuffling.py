"""The central privacy cost of reports behind an anonymous shuffler.

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
    """Upper bounds of the central epsilon, at `delta`, of one of `reports` shuffled reports.

    local: the local epsilon of a report. closed: None where its theorem does not apply. card: None
    where no card is known, or its probabilities are irrational (laplace).
    """

    local: float
    reports: int
    delta: float
    closed: float | None
    any_mechanism: float
    card: float | None

    @property
    def epsilon(self) -> float:
        """The least of them, and of the local epsilon."""
        bounds = (self.local, self.closed, self.any_mechanism, self.card)
        return min(bound for bound in bounds if bound is not None)


def account(
    local: int, reports: int, delta: float, card: Card | None = None, values: int = 1
) -> Shuffled:
    """Return bounds on the central epsilon of a report that is shuffled with others.

    local: the epsilon (micro) of each of the report's `values`. reports: how many honest clients
    send one report each. delta: of the bounds. card: the mechanism of a value, whose law gives a
    sharper bound if a report has one value. Raises UsageError.
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

    card_epsilon = None
    any_mechanism = _least_epsilon(randomised_response(epsilon), epsilon, reports, delta)
    if card is not None and values == 1 and are_known(card):
        card_epsilon = _least_epsilon(parts(card), epsilon, reports, delta)
    return Shuffled(
        local=epsilon,
        reports=reports,
        delta=delta,
        closed=closed(epsilon, reports, delta),
        any_mechanism=any_mechanism,
        card=card_epsilon,
    )


def closed(epsilon: float, reports: int, delta: float) -> float | None:
    """Return the closed bound on the central epsilon; None where it does not apply.

    Source: Feldman, McMillan and Talwar, "Hiding among the clones", FOCS 2021, Theorem 3.1. epsilon
    is the local one, and must be at most log(reports / (16 log(2 / delta))).
    """
    if epsilon > math.log(reports / (16 * math.log(2 / delta))):
        return None
    e = math.exp(epsilon)
    leading_term = 8 * math.sqrt(e * math.log(4 / delta) / reports)
    return math.log1p((e - 1) / (e + 1) * (leading_term + 8 * e / reports))


def _least_epsilon(laws: Sequence[Part], local: float, reports: int, delta: float) -> float:
    """Return the least central epsilon that is proved at `delta`, by bisection.

    laws: of one report, which keeps the local epsilon `local`.
    """

    def is_proved(epsilon: float) -> bool:
        return delta_at(laws, local, epsilon, reports) <= delta

    if is_proved(0.0):
        return 0.0
    return least(0.0, local, _CLOSE, is_proved)  # at the local epsilon no X is positive


def delta_at(laws: Sequence[Part], local: float, epsilon: float, reports: int) -> float:
    """Return an upper bound of delta at a central epsilon.

    laws: of one report, which keeps the local epsilon `local`. reports: shuffled together.
    """
    g = Fraction(math.exp(epsilon) * (1 - 1e-15))  # a smaller g has a larger delta
    return delta_of(laws, local, g, reports)


def delta_of(laws: Sequence[Part], local: float, g: Fraction, reports: int) -> float:
    """Return an upper bound of delta at the central epsilon ln g.

    This is E[max(0, X_1 + ... + X_n)] / n of the privacy blanket, as this module's text explains.
    The points of pi(t) = E[max(0, X - t)] on a grid are turned into a law of X on this grid, whose
    pi joins the points by straight lines. Other arguments are as in `delta_at`.
    """
    one = 1 << _BITS  # 1.0 as a fixed-point number
    cells = _CELLS if reports < _MANY else _FEWER_CELLS
    # X is from `low` to `high`; the grid goes from `first` to `last` steps.
    low = 1 - float(g) * math.exp(local)
    high = math.exp(local) - float(g)
    step = max(1, math.ceil((high - low) / cells * (1 + 1e-9) * one))
    first = math.floor(low * one / step) - 1
    last = math.ceil(high * one / step) + 1
    if last <= first + 2:
        return 0.0

    grid = [step * j for j in range(first, last + 1)]
    fixed_g = math.floor(g * one)
    pi: npt.NDArray[np.object_] = sum(part.share * _envelope(part, fixed_g, grid) for part in laws)
    unit = Fraction(step, one)  # the step as a number
    # The probability of a grid point is the change of pi's slope there, which is its second
    # difference. Below the grid the slope is -1, above it pi is 0.
    extended = np.concatenate([[pi[0] + unit], pi, [Fraction(0)]])
    second_differences = extended[2:] - 2 * extended[1:-1] + extended[:-2]
    masses = np.array([float(difference / unit) for difference in second_differences])
    return _mean_positive(masses, first, float(unit), reports)


def _envelope(part: Part, g: int, grid: Sequence[int]) -> npt.NDArray[np.object_]:
    """Return the largest pi(t) over all pairs of inputs, exactly, at each grid point t.

    g and the grid points are fixed-point numbers in units of 2**-60.
    """
    scale = 1 << _BITS
    # X is 0 where a client sends no report of the blanket, with the probability `rest` / whole.
    rest = part.whole - int(part.blanket.sum())
    largest = [part.largest(scale, g, t) + rest * max(-t, 0) for t in grid]
    return np.array([Fraction(n, part.whole * scale) for n in largest], object)


def _mean_positive(masses: Floats, first: int, unit: float, reports: int) -> float:
    """Return an upper bound of E[max(0, X_1 + ... + X_n)] / n, for n = `reports`.

    The X_i are independent: each is (first + j) unit with probability masses[j].
    """
    at = np.arange(first, first + len(masses))
    draws = Draws(at[masses > 0], masses[masses > 0], reports)
    if draws.at.max() <= 0:
        return 0.0

    tilt = _centring_tilt(draws)
    total = add_up([draws], tilt)
    # What lies beyond the ends of the tilted law counts with the largest value of s exp(-tilt s).
    if tilt:
        largest = 1 / (math.e * tilt)
    else:
        largest = reports * draws.largest_size
    lost = math.exp(total.log_scale - LOST) * largest
    return (total.above(0.0, lambda sums: sums) + lost) * unit / reports


def _centring_tilt(draws: Draws) -> float:
    """Return the tilt at which the draws' mean is 0; no tilt (0) if it is not negative already."""
    from scipy import optimize  # slow to load

    if draws.mean(0.0) >= 0:
        return 0.0
    steep = 1.0 / draws.at.max()
    while draws.mean(steep) < 0:
        steep *= 2
    return float(optimize.brentq(draws.mean, 0.0, steep, xtol=1e-15))
