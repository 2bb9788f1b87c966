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
from typing import Any, cast

from tern import card as cards
from tern.fixed import MAX_EPSILON
from tern.sums import BODY, Sum, rho
from ternhost.errors import UsageError
from ternhost.privacy.base import MICRO, finish
from ternhost.privacy.certify import bisected

# The norm in which a card measures the radius of a unit: L1 has Laplace noise, L2 Gaussian noise.
L1, L2 = 1, 2
MOST_BYTES = 256  # of the packed symbols of a report
_ITS_RHO = 100 * MICRO  # from here on rho is epsilon itself, to all digits
_SLACK = Fraction(1, 10**30)  # above the errors of 60 digits
_MOST_STEPS, _MOST_SCALE, _MOST_REACH = 4096, 1 << 20, (1 << 30) - 1  # bounds of cards.md
_CLOSE = Fraction(1, 256)  # the variance that m = 1, 2, 4, ... may waste
_SPREADS = 8  # standard deviations of noise that the symbols hold beside the largest sum


def rho_of_pure(epsilon: int) -> int:
    """The price in rho (micro) of a report of `epsilon` (micro), on the device's own integers."""
    return int(rho(epsilon)) if epsilon <= _ITS_RHO else epsilon


def pure_of(micro_rho: int) -> int:
    """Return the largest micro-epsilon, up to 20, of a pure report that costs at most this rho.

    micro_rho: in millionths. Returns 0 if there is no such epsilon.
    """

    def is_too_much(epsilon: int) -> bool:
        return epsilon > MAX_EPSILON or rho_of_pure(epsilon) > micro_rho

    return bisected(0, MAX_EPSILON + 1, is_too_much) - 1


def rho_of(epsilon: float, delta: float) -> int:
    """Return the largest micro-rho whose total is (epsilon, delta)-DP, rounded down; else 0.

    It solves the formula of `epsilon_of` for rho and maximises over alpha. Raises UsageError.
    """
    if not 0 < epsilon < math.inf:
        raise UsageError(f"epsilon must be above 0, not {epsilon:g}")

    def minus_rho(alpha, alpha_less_1, log_alpha, log_ratio, epsilon, log_inverse_delta):  # type: ignore[no-untyped-def]
        excess = log_ratio + (log_inverse_delta - log_alpha) / alpha_less_1 - epsilon
        return excess / alpha

    least_minus_rho = _least(minus_rho, epsilon, _log_inverse(delta))
    return max(0, math.floor(-least_minus_rho * MICRO))


def epsilon_of(micro_rho: int, delta: float) -> float:
    """Return the epsilon of a total of rho (micro) at `delta`, rounded up to millionths.

    Source: Canonne, Kamath and Steinke 2020, corollary 13: the least over alpha > 1 of
    alpha rho + ln(1 - 1/alpha) + ln(1 / (alpha delta)) / (alpha - 1). Raises UsageError.
    """
    log_inverse_delta = _log_inverse(delta)
    if not micro_rho:
        return 0.0

    def epsilon(alpha, alpha_less_1, log_alpha, log_ratio, rho, log_inverse_delta):  # type: ignore[no-untyped-def]
        return alpha * rho + log_ratio + (log_inverse_delta - log_alpha) / alpha_less_1

    least = _least(epsilon, Decimal(micro_rho) / MICRO, log_inverse_delta)
    rounded_up = max(0, math.ceil(least * MICRO)) / MICRO
    if Fraction(rounded_up) >= least:
        return rounded_up
    # The float nearest to the decimal number is a little below it.
    return math.nextafter(rounded_up, math.inf)


def epsilon_of_renyi(divergence: float, alpha: float, delta: float) -> float:
    """The epsilon at `delta` of a Renyi divergence of one order alpha (ledger.md, Measure)."""
    log_inverse = -math.log(delta) - math.log(alpha)
    return divergence + (math.log1p(-1 / alpha) + log_inverse / (alpha - 1)) * (1 + 1e-12) + 1e-12


def exceeded(micro_rho: int, epsilon: float) -> float:
    """Return an upper bound of the probability that the privacy loss exceeds `epsilon`.

    micro_rho: the total of the reports. The bound is exp(-(epsilon - rho)**2 / (4 rho)), by
    Markov's inequality for the Renyi divergence of the best order.
    """
    rho = micro_rho / MICRO
    if epsilon <= rho:
        return 1.0
    if not rho:
        return 0.0
    return math.exp(-((epsilon - rho) ** 2) / (4 * rho)) * (1 + 1e-9)


def group(cost: int, units: int, delta: float | None = None) -> float:
    """Return the epsilon of `units` units together, such as all those of a device.

    cost: of each unit. With a delta it is micro-rho, and n units cost n**2 rho (Bun and Steinke
    2016, proposition 1.9). Without one it is pure micro-epsilon, and n units cost n epsilon.
    """
    if delta is None:
        return units * cost / MICRO
    return epsilon_of(units * units * cost, delta)


def parse_delta(text: str) -> float:
    """Return the number that a user gave as --delta, after checking it. Raises UsageError."""
    try:
        delta = float(text)
    except ValueError:
        raise UsageError(f"--delta must be a number, not {text!r}", hint="such as 1e-6") from None
    _log_inverse(delta)
    return delta


def _log_inverse(delta: float) -> Decimal:
    """ln(1 / delta), to 60 digits. Raises UsageError."""
    if not 0 < delta < 1:
        raise UsageError(f"delta must be between 0 and 1, not {delta:g}")
    with localcontext() as context:
        context.prec = 60
        return -Decimal(str(delta)).ln()


def _least(formula: Callable[..., Any], *given: float | Decimal) -> Fraction:
    """Return the least value of a formula over all alpha > 1, or slightly more.

    formula: called as formula(alpha, alpha - 1, ln alpha, ln(1 - 1/alpha), *given). given: further
    arguments. Floats search for the best alpha; 60 digits then compute the formula there, which is
    valid for any alpha.
    """
    floats = [float(value) for value in given]

    def value_at(log_alpha_less_1: float) -> float:
        alpha_less_1 = math.exp(log_alpha_less_1)
        log_alpha = math.log1p(alpha_less_1)
        log_ratio = log_alpha_less_1 - log_alpha
        return float(formula(1 + alpha_less_1, alpha_less_1, log_alpha, log_ratio, *floats))

    # On the logarithm of alpha - 1: a search over a grid, and then with ever smaller steps.
    best = min((i / 10 for i in range(-300, 301)), key=value_at)
    step = 0.1
    for _ in range(100):
        best = min((best - step, best, best + step), key=value_at)
        step *= 0.8

    with localcontext() as context:
        context.prec = 60
        alpha_less_1 = Decimal(math.exp(best))
        alpha = 1 + alpha_less_1
        exact = [Decimal(str(value)) for value in given]
        least = formula(alpha, alpha_less_1, alpha.ln(), (alpha_less_1 / alpha).ln(), *exact)
        return Fraction(least) + _SLACK


@dataclass(frozen=True)
class SumDesign:
    """A card of shape 6 with the `range` that its question needs.

    In real units: `step` of one symbol, and `sigma`, the standard deviation of the noise of one
    report's value. The tally has `card`'s own integer units.
    """

    card: bytes
    range: int
    step: float
    sigma: float


def of(card: cards.Card) -> Sum:
    """The body of a card of shape 6."""
    return cast(Sum, card.body)


def variance(body: Sum) -> float:
    """The variance of the noise Z, in grid steps (Gaussian: at most this)."""
    if body.norm == L2:
        return float(body.c * body.t / body.m)
    g = math.exp(-1 / body.t)  # the ratio of geometric noise on both sides of 0
    return 2 * g / (1 - g) ** 2


def grid(body: Sum, range_: int) -> float:
    """The real value of a grid step in a question of this range."""
    return float(body.reach / body.radius / (1 << 14 + range_))


@dataclass(frozen=True, kw_only=True)
class SumPlan:
    """What the card of a sum is designed for.

    cost: what one report may spend: micro-rho with Gaussian noise (norm 2), micro-epsilon with
    Laplace noise (norm 1). radius: of a unit, in real units, in `steps` grid steps. clipped, kept:
    what a unit adds to the tally. units: of a device. values: of a report, the tally included.
    bits: of a symbol; None: as many as the sums need, 8 to 12. fine: the largest range of its
    question.
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
        """The bits of a symbol for which a report has room."""
        return 8 * MOST_BYTES // max(1, self.values)


def design(plan: SumPlan) -> SumDesign:
    """Design the sum with the smallest noise that keeps the cost of the plan.

    Raises UsageError if there is none.
    """
    # The largest range of the question at which the radius still fits the card.
    range_ = plan.fine
    while range_ > 0 and plan.radius * (1 << 14 + range_) > _MOST_REACH:
        range_ -= 1
    _require_bounds(plan, range_)
    _require_room(plan.bits, plan.most_bits, plan.values)

    t, c, m = _noise(plan)
    if plan.norm == L2:
        noise_variance = Fraction(c * t, m)
    else:
        noise_variance = Fraction(2 * t * t)
    coarse = _coarseness(noise_variance)
    bits = plan.bits
    if not bits:
        largest_sum = plan.units * max(plan.steps, plan.tally)
        spread = _SPREADS * math.sqrt(noise_variance)
        bits = min(_bits_for((largest_sum + spread) / 2**coarse), plan.most_bits)

    reach = round(plan.radius * (1 << 14 + range_))
    lengths = plan.norm, plan.unit, plan.steps, reach, plan.clipped, plan.kept
    try:
        card = finish(cards.SUM, struct.pack(BODY, *lengths, t, c, m, coarse, bits))
    except cards.CardError as error:
        hint = "use more steps, or spend less"
        raise UsageError(f"there is no such sum: {error}", hint) from None
    decoded = of(cards.decode(card))
    step = grid(decoded, range_)
    sigma = step * math.sqrt(variance(decoded))
    return SumDesign(card=card, range=range_, step=step * 2**coarse, sigma=sigma)


def _require_bounds(plan: SumPlan, range_: int) -> None:
    """Raise UsageError if a number is out of the bounds of cards (cards.md).

    range_: of the question; it sets the unit of lengths, 2**-(14 + range_).
    """
    if not 1 <= plan.cost <= MAX_EPSILON:
        raise UsageError(f"a report cannot cost {plan.cost / MICRO:g}", "at most 20")
    if not (0 <= plan.unit < 1 << 16 and plan.units >= 1):
        raise UsageError("a unit has up to 65535 records", "0: all of the device")
    if not 1 <= plan.steps <= _MOST_STEPS or plan.tally > _MOST_STEPS:
        raise UsageError("a radius or a tally is out of bounds", "up to 4096 steps")
    if not 0.5 < plan.radius * (1 << 14 + range_) <= _MOST_REACH:
        raise UsageError(f"a radius cannot be {plan.radius:g}", "from 0.000002 to 65535")


def _require_room(bits: int | None, most_bits: int, values: int) -> None:
    """Raise UsageError if a report has no room for its values.

    bits: of a value; None: they are chosen later, and 8 must fit. most_bits: for which there is
    room. values: of a report.
    """
    if bits:
        fits = 2 <= bits <= min(16, most_bits)
    else:
        fits = most_bits >= 8 and values > 0
    if not fits:
        text = f"{values} values of {bits or 8} bits do not fit a report of {MOST_BYTES} bytes"
        raise UsageError(text, "ask for fewer values")


def _coarseness(noise_variance: Fraction) -> int:
    """The binary logarithm of the largest output step that noise of this variance hides."""
    coarse = 0
    while coarse < 20 and 4 ** (coarse + 2) <= noise_variance:
        coarse += 1
    return coarse


def _bits_for(largest_sum: float) -> int:
    """8 to 12 bits that hold sums up to this one and down to its opposite, in output steps."""
    bits = 8
    while bits < 12 and largest_sum >= 2 ** (bits - 1):
        bits += 1
    return bits


def _noise(plan: SumPlan) -> tuple[int, int, int]:
    """Return t, c and m of the card with the smallest noise that the plan's cost allows.

    Gaussian noise has the variance c t / m; Laplace noise has the scale t, and c = m = 0 (cards.md).
    Raises UsageError if the noise is out of bounds.
    """
    # By how many vectors the sums of two neighbours may differ: 1 where a run of records is there
    # or not, 2 where a whole device may hold other records (ledger.md, Neighbours).
    vectors = 1 if plan.unit else 2
    if plan.norm == L1:
        scale = -(-MICRO * vectors * (plan.steps + plan.tally) // plan.cost)
        noise = (scale, 0, 0)
        fits = scale <= _MOST_SCALE
    else:
        squared_distance = vectors**2 * (plan.steps**2 + plan.tally**2)
        noise, fits = _gaussian_noise(Fraction(MICRO * squared_distance, 2 * plan.cost))
    if not fits:
        text = f"{plan.cost / MICRO:g} is too little for a radius of {plan.steps} steps"
        hint = "use fewer steps, ask for fewer reports, or spend more"
        raise UsageError(f"{text}: the noise is out of bounds", hint)
    return noise


def _gaussian_noise(variance: Fraction) -> tuple[tuple[int, int, int], bool]:
    """Return t, c and m for Gaussian noise of at least this variance, and whether they fit a card.

    The variance is c t / m. t and m are powers of two, so that uniform draws below t m reject
    nothing. The smallest m is taken whose variance is hardly larger than needed, or else the
    largest m.
    """
    t = 1 << max(0, round(math.log2(variance) / 2))  # about the standard deviation
    allowed = []
    for j in range(_MOST_SCALE.bit_length()):
        m = 1 << j
        c = math.ceil(variance * m / t)
        if c < _MOST_SCALE // 2 and t * m <= _MOST_SCALE:
            allowed.append((t, c, m))
    if not allowed:
        return (t, 0, 0), False
    for t, c, m in allowed:
        if t * c <= (1 + _CLOSE) * variance * m:
            return (t, c, m), True
    return allowed[-1], True
