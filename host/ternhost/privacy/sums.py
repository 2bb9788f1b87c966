"""Sums over units under exact noise (cards.md, sum): their design, and rho as (epsilon, delta).

The conversion is corollary 13 of Canonne, Kamath and Steinke 2020 (ledger.md, Measure). Every alpha
gives a valid bound: floats choose one, and 60 digits compute the bound there, which is then rounded
to the safe side.
"""

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any, NamedTuple, cast

from tern import card as cards
from tern.fixed import MAX_EPSILON
from tern.sums import BODY, Sum, rho
from ternhost.errors import UsageError
from ternhost.privacy.base import MICRO, finish
from ternhost.privacy.certify import bisected

# The norm in which a card measures the radius of a unit: L1 has Laplace noise, L2 Gaussian noise.
L1, L2 = 1, 2
MOST_BYTES = 256  # of the packed symbols of a report
_ITS_RHO = 100 * MICRO  # an epsilon from which on rho is epsilon itself, to all digits
_DIGITS = 60  # of the decimals in which bounds are computed
_SLACK = Fraction(1, 10**30)  # above the errors of numbers with so many digits
# The bounds of a card's numbers (cards.md).
_MOST_STEPS = 4096  # of a radius and of a tally
_MOST_SCALE = 1 << 20  # of the noise
_MOST_REACH = (1 << 30) - 1  # of a radius in the units of a question
_CLOSE = Fraction(1, 256)  # the share of the variance that may be wasted for a small m
_SPREADS = 8  # standard deviations of noise for which symbols have room beside the largest sum


def rho_of_pure(epsilon: int) -> int:
    """Return the price in rho of a report of `epsilon`, as devices compute it; both in millionths."""
    if epsilon > _ITS_RHO:
        return epsilon
    return int(rho(epsilon))


def pure_of(micro_rho: int) -> int:
    """Return the largest epsilon, up to 20, of a report that costs at most this rho of zCDP.

    Both are in millionths. The report is epsilon-private without a delta, and costs about
    epsilon**2 / 2 (`rho_of_pure`). Returns 0 if there is no such epsilon.
    """

    def costs_too_much(epsilon: int) -> bool:
        """Whether a report of this micro-epsilon is beyond the price or the largest epsilon."""
        return epsilon > MAX_EPSILON or rho_of_pure(epsilon) > micro_rho

    least_that_costs_too_much = bisected(0, MAX_EPSILON + 1, costs_too_much)
    return least_that_costs_too_much - 1


@dataclass(frozen=True)
class _AtAlpha:
    """What a formula takes at an order alpha > 1, as floats or as decimals."""

    alpha: Any
    alpha_less_1: Any  # alpha - 1
    log_alpha: Any  # ln alpha
    log_ratio: Any  # ln(1 - 1/alpha)


def rho_of(epsilon: float, delta: float) -> int:
    """Return the largest micro-rho whose total is (epsilon, delta)-DP, rounded down; else 0.

    It is the largest rho that the formula of `epsilon_of`, solved for rho, gives for any alpha > 1.
    Raises UsageError.
    """
    if not 0 < epsilon < math.inf:
        raise UsageError(f"epsilon must be above 0, not {epsilon:g}")

    def minus_rho(at: _AtAlpha, epsilon: Any, log_inverse_delta: Any) -> Any:
        """Return -rho, since `_least` minimises."""
        divided = (log_inverse_delta - at.log_alpha) / at.alpha_less_1
        return (at.log_ratio + divided - epsilon) / at.alpha

    least_minus_rho = _least(minus_rho, epsilon, _log_inverse(delta))
    return max(0, math.floor(-least_minus_rho * MICRO))


def epsilon_of(micro_rho: int, delta: float) -> float:
    """Return the epsilon of a total of rho (in millionths) at `delta`, rounded up to millionths.

    It is the least value over alpha > 1 of

        alpha rho + ln(1 - 1/alpha) + ln(1 / (alpha delta)) / (alpha - 1)

    (Canonne, Kamath and Steinke 2020, corollary 13). Raises UsageError.
    """
    log_inverse_delta = _log_inverse(delta)
    if not micro_rho:
        return 0.0

    def epsilon(at: _AtAlpha, rho: Any, log_inverse_delta: Any) -> Any:
        """Return the formula's value."""
        divided = (log_inverse_delta - at.log_alpha) / at.alpha_less_1
        return at.alpha * rho + at.log_ratio + divided

    least = _least(epsilon, Decimal(micro_rho) / MICRO, log_inverse_delta)
    rounded_up = max(0, math.ceil(least * MICRO)) / MICRO
    if Fraction(rounded_up) >= least:
        return rounded_up
    # The float nearest to the decimal number is a little below it.
    return math.nextafter(rounded_up, math.inf)


def epsilon_that_pays(micro_rho: int, delta: float) -> str:
    """Return an epsilon, in two digits or so, whose `rho_of` at `delta` is at least `micro_rho`.

    It is the least one, rounded up, for hints. micro_rho: 1 or more. Raises UsageError.
    """
    least = epsilon_of(micro_rho, delta)
    step = 10.0 ** (math.floor(math.log10(least)) - 1)
    steps = math.ceil(least / step)
    while rho_of(steps * step, delta) < micro_rho:
        steps += 1
    return f"{steps * step:.3g}"


def epsilon_of_renyi(divergence: float, alpha: float, delta: float) -> float:
    """Return the epsilon at `delta` of a Renyi divergence of one order alpha.

    It is divergence + ln(1 - 1/alpha) + ln(1 / (alpha delta)) / (alpha - 1) (ledger.md, Measure).
    """
    log_inverse = -math.log(delta) - math.log(alpha)
    added = math.log1p(-1 / alpha) + log_inverse / (alpha - 1)
    return divergence + added * (1 + 1e-12) + 1e-12  # raised by more than the errors of floats


def exceeded(micro_rho: int, epsilon: float) -> float:
    """Return an upper bound of the probability that the privacy loss exceeds `epsilon`.

    The bound is exp(-(epsilon - rho)**2 / (4 rho)), by Markov's inequality for the Renyi divergence
    of the best order. micro_rho: the total of the reports.
    """
    rho = micro_rho / MICRO
    if epsilon <= rho:
        return 1.0
    if not rho:
        return 0.0
    rounding = 1e-9  # far above the errors of floats
    return math.exp(-((epsilon - rho) ** 2) / (4 * rho)) * (1 + rounding)


def group(cost: int, units: int, delta: float | None = None) -> float:
    """Return the epsilon of several units together, such as all those of a device.

    A unit is a run of records that are protected together.

    cost: the price of each unit. With a delta it is in millionths of rho (zCDP), and n units cost
    n**2 rho (Bun and Steinke 2016, proposition 1.9). Without one it is in millionths of epsilon,
    and n units cost n epsilon. units: their number n.
    """
    if delta is None:
        return units * cost / MICRO
    return epsilon_of(units * units * cost, delta)


def parse_delta(text: str | float | Decimal) -> float:
    """Return the number that a user gave as --delta, after checking it. Raises UsageError."""
    try:
        delta = float(text)
    except ValueError:
        raise UsageError(f"--delta must be a number, not {text!r}", hint="such as 1e-6") from None
    _log_inverse(delta)  # raises if delta is not between 0 and 1
    return delta


def _log_inverse(delta: float) -> Decimal:
    """Return ln(1 / delta), to 60 digits. Raises UsageError if delta is not between 0 and 1."""
    if not 0 < delta < 1:
        raise UsageError(f"delta must be between 0 and 1, not {delta:g}")
    with localcontext() as context:
        context.prec = _DIGITS
        return -Decimal(str(delta)).ln()


def _least(formula: Callable[..., Any], *given: float | Decimal) -> Fraction:
    """Return the least value of a formula over all alpha > 1, or slightly more.

    Floats search for the best alpha. Decimals with 60 digits then compute the formula there, which
    is a valid bound for any alpha.

    formula: called as formula(_AtAlpha(...), *given). given: further arguments.
    """
    given_floats = [float(value) for value in given]

    def value_at(log_alpha_less_1: float) -> float:
        """Return the formula in floats, by the logarithm of alpha - 1."""
        alpha_less_1 = math.exp(log_alpha_less_1)
        log_alpha = math.log1p(alpha_less_1)
        at = _AtAlpha(
            alpha=1 + alpha_less_1,
            alpha_less_1=alpha_less_1,
            log_alpha=log_alpha,
            log_ratio=log_alpha_less_1 - log_alpha,
        )
        return float(formula(at, *given_floats))

    # A search over a grid of logarithms of alpha - 1, and then with ever smaller steps.
    grid_of_logarithms = [i / 10 for i in range(-300, 301)]
    best = min(grid_of_logarithms, key=value_at)
    step = 0.1
    for _ in range(100):
        best = min((best - step, best, best + step), key=value_at)
        step *= 0.8

    with localcontext() as context:
        context.prec = _DIGITS
        alpha_less_1 = Decimal(math.exp(best))
        alpha = 1 + alpha_less_1
        exact = _AtAlpha(
            alpha=alpha,
            alpha_less_1=alpha_less_1,
            log_alpha=alpha.ln(),
            log_ratio=(alpha_less_1 / alpha).ln(),
        )
        given_decimals = [Decimal(str(value)) for value in given]
        return Fraction(formula(exact, *given_decimals)) + _SLACK


@dataclass(frozen=True)
class SumDesign:
    """The card of a sum, and what a question with this card needs to know.

    card: the bytes of the card, which has the shape SUM. range: the question's range, which sets
    the unit of lengths, 2**-(14 + range). step: the real value of one step of a symbol. sigma: the
    standard deviation of the noise in one value of a report, in real units. The tally, the last
    value of a report, is in the card's own integer units instead.
    """

    card: bytes
    range: int
    step: float
    sigma: float


def of(card: cards.Card) -> Sum:
    """Return the body of a card of the shape SUM."""
    return cast(Sum, card.body)


def variance(body: Sum) -> float:
    """Return the variance of the noise, in grid steps squared.

    body: the card of a noisy sum, with the parameters c, t and m of its noise. Gaussian noise has a
    variance of at most c t / m: the formula is that of the continuous law. Laplace noise is
    geometric with the ratio g = exp(-1/t) on both sides of 0, and has the variance 2 g / (1 -
    g)**2.
    """
    if body.norm == L2:
        return float(body.c * body.t / body.m)
    g = math.exp(-1 / body.t)
    return 2 * g / (1 - g) ** 2


def grid(body: Sum, range_: int) -> float:
    """Return the real value of a grid step of the noise, in a question of this range.

    The radius is body.reach units of 2**-(14 + range), and body.radius grid steps.
    """
    units_in_one = 1 << 14 + range_
    return float(body.reach / body.radius / units_in_one)


@dataclass(frozen=True, kw_only=True)
class SumPlan:
    """What the card of a sum is designed for.

    A device adds up the vectors of its units (runs of records, or all its records), each clipped to
    a radius, and adds noise. The last value of the sum is a tally, a count of units.

    cost: what one report may spend: micro-rho with Gaussian noise, micro-epsilon with Laplace
    noise.
    unit: how many consecutive records a unit has; 0: all records of the device.
    radius: the length to which a unit's vector is clipped, in real units.
    clipped, kept: what a unit adds to the tally if its vector was clipped, and if it was not.
    units: how many units a device has.
    values: how many values a report has, the tally included.
    norm: the norm of lengths: L2 for Gaussian noise, L1 for Laplace noise.
    steps: how many steps of the noise's grid the radius has.
    bits: of a symbol, which is a value as it is sent; None: as many as the sums need, 8 to 12.
    fine: the largest range that the question may have.
    """

    cost: int
    unit: int
    radius: float
    clipped: int
    kept: int
    units: int
    values: int
    norm: int = L2
    steps: int = 128
    bits: int | None = None
    fine: int = 4

    @property
    def tally(self) -> int:
        """The most that a unit adds to the tally, or takes from it."""
        return max(abs(self.clipped), abs(self.kept))

    @property
    def most_bits(self) -> int:
        """How many bits each value may have, so that all fit a report."""
        return 8 * MOST_BYTES // max(1, self.values)


def design(plan: SumPlan) -> SumDesign:
    """Return the card of the sum with the smallest noise that keeps the cost of the plan.

    Raises UsageError if there is none.
    """
    # Devices multiply values by 2**range before they round them. This is the largest range at which
    # the radius still fits the card, in its units of 2**-(14 + range).
    range_ = plan.fine
    while range_ > 0 and plan.radius * (1 << 14 + range_) > _MOST_REACH:
        range_ -= 1
    _require_bounds(plan, range_)
    _require_room(plan.bits, plan.most_bits, plan.values)

    # The noise, and the step to which noisy sums are rounded: 2**coarse steps of the noise's grid.
    noise = _noise(plan)
    if plan.norm == L2:
        noise_variance = Fraction(noise.c * noise.t, noise.m)
    else:
        noise_variance = Fraction(2 * noise.t * noise.t)
    coarse = _coarseness(noise_variance)

    # The bits of a noisy sum as it is sent.
    bits = plan.bits
    if not bits:  # as many as the largest sum and its noise need
        largest_sum = plan.units * max(plan.steps, plan.tally)
        spread = _SPREADS * math.sqrt(noise_variance)
        bits = min(_bits_for((largest_sum + spread) / 2**coarse), plan.most_bits)

    # The card.
    reach = round(plan.radius * (1 << 14 + range_))
    lengths = plan.norm, plan.unit, plan.steps, reach, plan.clipped, plan.kept
    body = struct.pack(BODY, *lengths, noise.t, noise.c, noise.m, coarse, bits)
    try:
        card = finish(cards.SUM, body)
    except cards.CardError as error:
        hint = "use more steps, or spend less"
        raise UsageError(f"there is no such sum: {error}", hint) from None
    decoded = of(cards.decode(card))
    grid_step = grid(decoded, range_)
    return SumDesign(
        card=card,
        range=range_,
        step=grid_step * 2**coarse,
        sigma=grid_step * math.sqrt(variance(decoded)),
    )


def _require_bounds(plan: SumPlan, range_: int) -> None:
    """Raise UsageError if a number of the plan is out of the bounds of cards (cards.md).

    range_: the question's range; it sets the unit of lengths, 2**-(14 + range_).
    """
    if not 1 <= plan.cost <= MAX_EPSILON:
        raise UsageError(f"a report cannot cost {plan.cost / MICRO:g}", "at most 20")
    if not (0 <= plan.unit < 1 << 16 and plan.units >= 1):
        raise UsageError("a unit has up to 65535 records", "give 0 for all of the device")
    if not 1 <= plan.steps <= _MOST_STEPS or plan.tally > _MOST_STEPS:
        raise UsageError("a radius or a tally is out of bounds", "up to 4096 steps")
    # From 0.5 on, a radius is rounded to one unit or more.
    if not 0.5 < plan.radius * (1 << 14 + range_) <= _MOST_REACH:
        raise UsageError(f"a radius cannot be {plan.radius:g}", "from 0.000002 to 65535")


def _require_room(bits: int | None, most_bits: int, values: int) -> None:
    """Raise UsageError if a report has no room for its values.

    bits: of a value; None: they are chosen later, and 8 must fit. most_bits: how many bits of a
    value fit. values: how many a report has.
    """
    if bits:
        fits = 2 <= bits <= min(16, most_bits)
    else:
        fits = most_bits >= 8 and values > 0
    if not fits:
        text = f"{values} values of {bits or 8} bits do not fit a report of {MOST_BYTES} bytes"
        raise UsageError(text, "use fewer values")


def _coarseness(noise_variance: Fraction) -> int:
    """Return how much coarser than the noise's grid a report may be: a binary logarithm, up to 20.

    A noisy sum is rounded to a step of 2**coarse grid steps. Noise with a standard deviation of at
    least twice that hides the rounding.
    """
    # The largest power for which (2 * 2**coarse)**2 is at most the variance.
    coarse = 0
    while coarse < 20 and 4 ** (coarse + 2) <= noise_variance:
        coarse += 1
    return coarse


def _bits_for(largest_sum: float) -> int:
    """Return the fewest bits, from 8 to 12, that hold sums from -largest_sum to largest_sum.

    largest_sum: in output steps.
    """
    bits = 8
    while bits < 12 and largest_sum >= 2 ** (bits - 1):
        bits += 1
    return bits


class _Noise(NamedTuple):
    """The noise of a card: Gaussian of variance c t / m, or Laplace of scale t with c = m = 0."""

    t: int
    c: int
    m: int


def _noise(plan: SumPlan) -> _Noise:
    """Return the smallest noise that the plan's cost allows (cards.md).

    For neighbours that are d grid steps apart, Laplace noise of scale d / epsilon keeps epsilon,
    and Gaussian noise of variance d**2 / (2 rho) keeps rho. Raises UsageError if the noise is out
    of the card's bounds.
    """
    # By how many vectors the sums of two neighbours may differ: 1 where a run of records is there
    # or not, 2 where a whole device may hold other records (ledger.md, Neighbours).
    vectors = 1 if plan.unit else 2
    noise: _Noise | None = None
    if plan.norm == L1:
        distance = vectors * (plan.steps + plan.tally)
        scale = -(-MICRO * distance // plan.cost)  # rounded up
        if scale <= _MOST_SCALE:
            noise = _Noise(t=scale, c=0, m=0)
    else:
        squared_distance = vectors**2 * (plan.steps**2 + plan.tally**2)
        noise = _gaussian_noise(Fraction(MICRO * squared_distance, 2 * plan.cost))
    if noise is None:
        text = f"{plan.cost / MICRO:g} is too little for a radius of {plan.steps} steps"
        hint = "use fewer steps, use fewer reports, or spend more"
        raise UsageError(f"{text}: the noise is out of bounds", hint)
    return noise


def _gaussian_noise(variance: Fraction) -> _Noise | None:
    """Return Gaussian noise of at least this variance; None if it does not fit a card.

    The variance is c t / m. t and m are powers of two, so that a device draws uniform numbers below
    t m without rejecting any. The smallest m is taken at which rounding c up wastes hardly any
    variance, or else the largest m.
    """
    t = 1 << max(0, round(math.log2(variance) / 2))  # about the standard deviation
    allowed = []
    for exponent in range(_MOST_SCALE.bit_length()):
        m = 1 << exponent
        c = math.ceil(variance * m / t)
        if c < _MOST_SCALE // 2 and t * m <= _MOST_SCALE:
            allowed.append(_Noise(t, c, m))
    for noise in allowed:
        is_close = noise.t * noise.c <= (1 + _CLOSE) * variance * noise.m
        if is_close:
            return noise
    if not allowed:
        return None
    return allowed[-1]
