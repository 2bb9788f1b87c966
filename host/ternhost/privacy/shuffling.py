"""The central privacy cost of reports behind an anonymous shuffler.

A shuffler passes on the reports of n clients in random order, and nothing else. Then a report of
local epsilon e0 is (epsilon, delta)-private with a far smaller epsilon. Two bounds:

- closed, for any mechanism: Feldman, McMillan and Talwar, "Hiding among the clones", FOCS 2021,
  Theorem 3.1. (By its errata the sharper form of their SODA paper of 2023 does not hold for all
  mechanisms.)
- numerical, for a card's integers or any mechanism: Balle, Bell, Gascon and Nissim, "The privacy
  blanket of the shuffle model", CRYPTO 2019. Let b(y) be the least probability of output y over all
  inputs, the *blanket*. Each other client then sends a report that does not depend on its data with
  the probability sum b. For two inputs with laws P and Q,

      delta(epsilon) <= E[max(0, X_1 + ... + X_n)] / n,

  where the X_i are independent, and each is (P(y) - e**epsilon Q(y)) / b(y) with probability b(y),
  and else 0.

The pair of inputs. All X here have the mean 1 - e**epsilon, and the bound grows in convex order:
that is, with pi(t) = E[max(0, X - t)] at any t. So an X that covers all pairs of inputs has the
largest pi over all of them. It also covers reports of one of several coordinates, drawn at random.

The worst mechanism. Where P and Q have a ratio of at most p = e**e0, b >= max(P, Q) / p. Splitting
a symbol of a ratio between 1 and p into two symbols of the ratios 1 and p raises pi. What is left
is a mixture of the ratio 1 with randomised response between two values. Its pi is greatest where
all of it is randomised response, which is therefore the worst mechanism.

Rounding is always towards a larger delta. pi is computed in integers on a grid and interpolated by
straight lines, which are never below a convex function. A Fourier transform gives the law of the
sum, tilted to mean 0, so that its errors are relative to the result; the result is raised by more
than they can be. The epsilon returned is the upper end of a bisection.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tern.card import Card
from ternhost.errors import UsageError
from ternhost.options import require
from ternhost.privacy import few_frequencies
from ternhost.privacy.base import MICRO
from ternhost.privacy.laws import BigIntegers, Part, are_known, parts, randomised_response
from ternhost.privacy.losses import (
    LARGEST_LOSS,
    ROUNDING,
    TAIL_EXPONENT,
    Draws,
    TiltedDraws,
    add_up,
    bisect_least,
    range_of_sum,
    relative_error,
)

MOST_REPORTS = 10**9
LEAST_DELTA = 1e-300  # its inverse is still a float

_ONE = 1 << 60  # 1.0 as a fixed-point number, in which the grid of X is computed
_CELLS = 128  # of the grid of X: it raises the variance of the sum by a ten-thousandth at most
_FEWER_CELLS = 16  # of the grid where there are _MANY reports: else the sum has too many values
_MANY = 10**7
_CLOSE = 1e-4  # the bisection ends where its ends differ by this share

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Shuffled:
    """Upper bounds of the central epsilon, at `delta`, of one of `reports` shuffled reports.

    The central epsilon is that of somebody who sees the reports in random order. local: the epsilon
    of somebody who knows the report's sender. closed: a bound by a formula; None where its theorem
    does not apply. any_mechanism: the numerical bound for the mechanism that discloses most at this
    local epsilon. card: the numerical bound for a card's own probabilities; None where no card is
    known, or where its probabilities are irrational (laplace).
    """

    local: float
    reports: int
    delta: float
    closed: float | None
    any_mechanism: float
    card: float | None

    @property
    def epsilon(self) -> float:
        """The least of the bounds that are known, and of the local epsilon."""
        bounds = (self.local, self.closed, self.any_mechanism, self.card)
        return min(bound for bound in bounds if bound is not None)


def account(
    local: int, reports: int, delta: float, card: Card | None = None, values: int = 1
) -> Shuffled:
    """Return bounds on the central epsilon of a report that is shuffled with others.

    An intermediary mixes the reports, so that nobody knows who sent which. That hides each report
    among the others: the central epsilon, toward those who read the mixed reports, is less than the
    local one, which a report keeps by itself.

    local: the epsilon (in millionths) of each of the report's `values`. reports: how many honest
    clients send one report each. delta: at which the bounds hold. card: the mechanism of a value,
    whose probabilities give a sharper bound if a report has one value. Raises UsageError.
    """
    require(1 <= reports <= MOST_REPORTS, "reports", f"from 1 to {MOST_REPORTS:,}", f"{reports:,}")
    if not 0 < delta < 1:
        hint = "give much less than 1 divided by the number of reports, such as --delta 1e-6"
        raise UsageError(f"--delta must be between 0 and 1, not {delta:g}", hint)
    require(delta >= LEAST_DELTA, "delta", f"{LEAST_DELTA:g} or more", f"{delta:g}")
    require(values >= 1, "k", "1 or more", values)
    epsilon = local * values / MICRO
    if epsilon > LARGEST_LOSS:
        text = (
            f"a report of {values} values at {local / MICRO:g} has local epsilon {epsilon:g}: beyond"
            f" {LARGEST_LOSS:g} nothing is hidden"
        )
        raise UsageError(text, hint="use a smaller --k, or a smaller epsilon")

    worst_mechanism = randomised_response(epsilon)
    card_epsilon = None
    if card is not None and values == 1 and are_known(card):
        card_epsilon = _least_epsilon(parts(card), epsilon, reports, delta)
    return Shuffled(
        local=epsilon,
        reports=reports,
        delta=delta,
        closed=closed(epsilon, reports, delta),
        any_mechanism=_least_epsilon(worst_mechanism, epsilon, reports, delta),
        card=card_epsilon,
    )


def closed(epsilon: float, reports: int, delta: float) -> float | None:
    """Return the bound on the central epsilon by a formula; None where it does not apply.

    With n reports of the local epsilon e0 <= ln(n / (16 ln(2 / delta))) it is

        ln(1 + (e**e0 - 1) / (e**e0 + 1) (8 sqrt(e**e0 ln(4 / delta) / n) + 8 e**e0 / n))

    (Feldman, McMillan and Talwar, "Hiding among the clones", FOCS 2021, Theorem 3.1).
    """
    largest_local = math.log(reports / (16 * math.log(2 / delta)))
    if epsilon > largest_local:
        return None
    e = math.exp(epsilon)
    leading_term = 8 * math.sqrt(e * math.log(4 / delta) / reports)
    return math.log1p((e - 1) / (e + 1) * (leading_term + 8 * e / reports))


def _least_epsilon(laws: Sequence[Part], local: float, reports: int, delta: float) -> float:
    """Return the least central epsilon that is proved at `delta`, by bisection.

    laws: the probabilities of the outputs of one report at its extreme inputs. local: its local
    epsilon. reports: how many are shuffled together.
    """

    def is_proved(epsilon: float) -> bool:
        """Whether delta suffices at this central epsilon."""
        return delta_at(laws, local, epsilon, reports) <= delta

    if is_proved(0.0):
        return 0.0
    # The local epsilon is always proved, since no X is positive there.
    return bisect_least(0.0, local, _CLOSE, is_proved)


def delta_at(laws: Sequence[Part], local: float, epsilon: float, reports: int) -> float:
    """Return an upper bound of delta at a central epsilon, that of shuffled reports.

    laws: the probabilities of the outputs of one report at its extreme inputs. local: its local
    epsilon. reports: how many are shuffled together.
    """
    # Rounded down by more than exp can be wrong: a smaller ratio has a larger delta.
    exp_epsilon = Fraction(math.exp(epsilon) * (1 - 1e-15))
    return delta_of(laws, local, exp_epsilon, reports)


def delta_of(laws: Sequence[Part], local: float, g: Fraction, reports: int) -> float:
    """Return an upper bound of delta at the central epsilon ln g, that of n shuffled reports.

    By Balle et al. (CRYPTO 2019) it is E[max(0, X_1 + ... + X_n)] / n, for independent X with the
    law of (P(y) - g Q(y)) / b(y). P and Q are the probabilities of output y at two inputs, and b,
    the blanket, is the least probability of y at any input; the output y is drawn with b(y), and X
    is 0 otherwise.

    X is described by pi(t) = E[max(0, X - t)], of which points on a grid are computed. Straight
    lines between them are the pi of a law on this grid that is worse than X, or as bad.

    Other arguments are as in `delta_at`.
    """
    grid = _grid_for(local, float(g), reports)
    if grid.last <= grid.first + 2:  # X has a single value: the report discloses nothing
        return 0.0

    fixed_g = math.floor(g * _ONE)  # rounded down, which makes delta larger
    # pi and the steps of the grid are integers in units of 1 / denominator.
    denominator = math.lcm(*(part.share.denominator * part.whole for part in laws)) * _ONE
    pi: BigIntegers = np.zeros(len(grid.points), object)
    for part in laws:
        numerators, denominator_of_part = _largest_pi(part, fixed_g, grid.points)
        pi = pi + numerators * (denominator // denominator_of_part)
    step = grid.step * (denominator // _ONE)

    # The probability of a grid point is the change of pi's slope there, which is its second
    # difference. The slope is -1 below the grid, and pi is 0 above it.
    extended = np.concatenate([[pi[0] + step], pi, [0]])
    second_differences = extended[2:] - 2 * extended[1:-1] + extended[:-2]
    masses = (second_differences / step).astype(np.float64)  # each of them rounded once
    return _mean_positive(masses, first=grid.first, unit=grid.step / _ONE, reports=reports)


class _Grid(NamedTuple):
    """Points from `first` to `last` steps. step: a fixed-point number, in units of 2**-60."""

    first: int
    last: int
    step: int

    @property
    def points(self) -> list[int]:
        """The points as fixed-point numbers."""
        return [self.step * j for j in range(self.first, self.last + 1)]


def _grid_for(local: float, g: float, reports: int) -> _Grid:
    """Return a grid that covers all values of X, from which the delta of shuffled reports follows.

    X is (P - g Q) / b, for the probabilities P and Q of an output at two inputs and the least one,
    b, at any input; the central epsilon is ln g. P / b and Q / b are between 1 and e**local, so
    that X lies between 1 - g e**local and e**local - g. The grid is a step or two longer at each
    end, so that pi(t) = E[max(0, X - t)] is a straight line there.

    local: the epsilon of a single report. reports: how many are shuffled; very many need a coarse
    grid, since their sum has too many values otherwise.
    """
    cells = _CELLS if reports < _MANY else _FEWER_CELLS
    low = 1 - g * math.exp(local)
    high = math.exp(local) - g
    # Rounded up, so that the cells are enough.
    step = max(1, math.ceil((high - low) / cells * (1 + 1e-9) * _ONE))
    first = math.floor(low * _ONE / step) - 1
    last = math.ceil(high * _ONE / step) + 1
    return _Grid(first, last, step)


def _largest_pi(part: Part, g: int, grid: Sequence[int]) -> tuple[BigIntegers, int]:
    """Return the largest pi(t) = E[max(0, X - t)] over all pairs of inputs at each grid point t.

    X is (P - g Q) / b with the probability b of each output, and else 0. P and Q are the
    probabilities of the output at two inputs, and b, the blanket, is the least at any input. The
    results are exact: numerators, and their common denominator. They have the part's share of all
    draws as a factor. g and the grid points are fixed-point numbers in units of 2**-60.
    """
    # X is 0 where a client's report is not drawn from the blanket b. That has the probability
    # 1 - sum b, in units of 1 / whole, and adds max(0, -t) to pi.
    not_blanket = part.whole - int(part.blanket.sum())
    below_zero = np.array([max(-t, 0) for t in grid], object)
    numerators = part.largest(_ONE, g, grid) + not_blanket * below_zero
    return numerators * part.share.numerator, part.share.denominator * part.whole * _ONE


def _mean_positive(masses: Floats, first: int, unit: float, reports: int) -> float:
    """Return an upper bound of E[max(0, X_1 + ... + X_n)] / n, for n = `reports`.

    In this form the delta of n shuffled reports is known. The X_i are independent and have one law:
    X_i is (first + j) unit with probability masses[j].
    """
    values = np.arange(first, first + len(masses))
    draws = Draws(values[masses > 0], masses[masses > 0], reports)
    if draws.values.max() <= 0:
        return 0.0

    tilt = _centring_tilt(draws)
    one = TiltedDraws.of(draws, tilt)
    low, high = range_of_sum([one])
    log_scale = draws.times * draws.log_moment(tilt)
    # Sums s beyond the ends of the tilted law have the probability exp(-TAIL_EXPONENT) there. They
    # count with at most the largest value of s exp(-tilt s), which is at s = 1 / tilt.
    if tilt:
        largest = 1 / (math.e * tilt)
    else:
        largest = reports * draws.largest_size
    beyond_ends = math.exp(log_scale - TAIL_EXPONENT) * largest

    mean_of_tilted = few_frequencies.mean_positive(one, tilt, low, high)
    if mean_of_tilted is not None:
        raised = 1 + ROUNDING + relative_error([draws], tilt)
        mean = math.exp(log_scale) * mean_of_tilted * raised
        return (mean + beyond_ends) * unit / reports

    def sum_itself(sums: Floats) -> Floats:
        """Return what each positive sum counts: itself."""
        return sums

    total = add_up([draws], tilt)
    return (total.above(0.0, sum_itself) + beyond_ends) * unit / reports


def _centring_tilt(draws: Draws) -> float:
    """Return the tilt at which the mean of a draw is 0; no tilt (0) if it is 0 or more already."""
    from scipy import optimize  # slow to load

    if draws.mean(0.0) >= 0:
        return 0.0
    too_steep = 1.0 / draws.values.max()
    while draws.mean(too_steep) < 0:
        too_steep *= 2
    return float(optimize.brentq(draws.mean, 0.0, too_steep, xtol=1e-15))
