"""Sums over units under exact noise (cards.md, sum): their design, and what rho of zCDP means as
(epsilon, delta).

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
    """The largest micro-epsilon, up to 20, of a report that costs at most this rho (micro); 0 if
    there is none.
    """
    return bisected(0, MAX_EPSILON + 1, lambda e: e > MAX_EPSILON or rho_of_pure(e) > micro_rho) - 1


def rho_of(epsilon: float, delta: float) -> int:
    """The largest micro-rho whose total is (epsilon, delta)-DP, rounded down; 0 if there is none.

    Raises UsageError.
    """
    if not 0 < epsilon < math.inf:
        raise UsageError(f"epsilon must be above 0, not {epsilon:g}")
    least = _least(
        lambda a, b, ln, ratio, e, sure: (ratio + (sure - ln) / b - e) / a, epsilon, _sure(delta)
    )
    return max(0, math.floor(-least * MICRO))


def epsilon_of(micro_rho: int, delta: float) -> float:
    """The epsilon of a total of rho (micro) at `delta`, rounded up to millionths.

    Raises UsageError.
    """
    sure = _sure(delta)
    if not micro_rho:
        return 0.0
    total = Decimal(micro_rho) / MICRO
    least = _least(lambda a, b, ln, ratio, r, sure: a * r + ratio + (sure - ln) / b, total, sure)
    found = max(0, math.ceil(least * MICRO)) / MICRO
    return found if Fraction(found) >= least else math.nextafter(found, math.inf)


def epsilon_of_renyi(divergence: float, alpha: float, delta: float) -> float:
    """The epsilon at `delta` of what has at most this Renyi divergence of one order alpha
    (ledger.md, Measure).
    """
    sure = -math.log(delta) - math.log(alpha)
    return divergence + (math.log1p(-1 / alpha) + sure / (alpha - 1)) * (1 + 1e-12) + 1e-12


def exceeded(micro_rho: int, epsilon: float) -> float:
    """At most the probability that reports of this rho change somebody's odds by more than
    e**epsilon (Markov's inequality for the Renyi divergence of the best order).
    """
    rho = micro_rho / MICRO
    if epsilon <= rho:
        return 1.0
    return math.exp(-((epsilon - rho) ** 2) / (4 * rho)) * (1 + 1e-9) if rho else 0.0


def group(cost: int, units: int, delta: float | None = None) -> float:
    """The epsilon of `units` units together, a whole device's, where each loses `cost`: micro-rho
    at this delta (n**2 rho: Bun and Steinke 2016, proposition 1.9), or, without a delta, pure
    micro-epsilon (n epsilon).
    """
    return units * cost / MICRO if delta is None else epsilon_of(units * units * cost, delta)


def parse_delta(text: str) -> float:
    """Raises UsageError."""
    try:
        _sure(float(text))
    except ValueError:
        raise UsageError(f"--delta must be a number, not {text!r}", hint="such as 1e-6") from None
    return float(text)


def _sure(delta: float) -> Decimal:
    # ln(1 / delta)
    if not 0 < delta < 1:
        raise UsageError(f"delta must be between 0 and 1, not {delta:g}")
    with localcontext() as context:
        context.prec = 60
        return -Decimal(str(delta)).ln()


def _least(formula: Callable[..., Any], *given: float | Decimal) -> Fraction:
    """At least, and by no more than rounding, the formula(alpha, alpha - 1, ln alpha, ln(1 -
    1/alpha), *given) of the alpha > 1 at which it is found to be least.
    """
    floats = [float(value) for value in given]

    def at(x: float) -> float:
        b = math.exp(x)
        return float(formula(1 + b, b, math.log1p(b), x - math.log1p(b), *floats))

    best, step = min((i / 10 for i in range(-300, 301)), key=at), 0.1
    for _ in range(100):
        best = min((best - step, best, best + step), key=at)
        step *= 0.8
    with localcontext() as context:
        context.prec = 60
        b = Decimal(math.exp(best))
        a = 1 + b
        exact = [Decimal(str(value)) for value in given]
        return Fraction(formula(a, b, a.ln(), (b / a).ln(), *exact)) + _SLACK


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
    if body.norm == 2:
        return float(body.c * body.t / body.m)
    g = math.exp(-1 / body.t)
    return 2 * g / (1 - g) ** 2


def grid(body: Sum, range_: int) -> float:
    """The real value of a grid step in a question of this range."""
    return float(body.reach / body.radius / (1 << 14 + range_))


def design(
    *,
    cost: int,
    norm: int = 2,
    unit: int,
    radius: float,
    steps: int = 128,
    clipped: int,
    kept: int,
    units: int,
    values: int,
    bits: int | None = None,
    fine: int = 4,
) -> SumDesign:
    """The card with the smallest noise that keeps `cost`, what one report may spend: micro-rho with
    Gaussian noise (norm 2), micro-epsilon with Laplace noise (norm 1). Raises UsageError where
    there is none.

    radius: of a unit, in real units, in `steps` grid steps. clipped, kept: what a unit adds to the
    tally. units: of a device; values: of a report, the tally included. bits: of a symbol, by
    default as many as the sums need, 8 to 12. fine: the largest range of its question.
    """
    tally = max(abs(clipped), abs(kept))
    room = 8 * MOST_BYTES // max(1, values)  # bits of a value
    fine = next((f for f in range(fine, -1, -1) if radius * (1 << 14 + f) <= _MOST_REACH), 0)
    for holds, text, hint in (
        (1 <= cost <= MAX_EPSILON, f"a report cannot cost {cost / MICRO:g}", "at most 20"),
        (
            0 <= unit < 1 << 16 and units >= 1,
            "a unit has up to 65535 records",
            "0: all of the device",
        ),
        (
            1 <= steps <= _MOST_STEPS >= tally,
            "a radius or a tally is out of bounds",
            "up to 4096 steps",
        ),
        (
            2 <= bits <= min(16, room) if bits else room >= 8 and values > 0,
            f"{values} values of {bits or 8} bits do not fit a report of {MOST_BYTES} bytes",
            "ask for fewer values",
        ),
        (
            0.5 < radius * (1 << 14 + fine) <= _MOST_REACH,
            f"a radius cannot be {radius:g}",
            "from 0.000002 to 65535",
        ),
    ):
        if not holds:
            raise UsageError(text, hint)
    t, c, m = _noise(norm, cost, steps, tally, vectors=1 if unit else 2)
    spread = Fraction(c * t, m) if norm == 2 else Fraction(2 * t * t)
    coarse = next(q for q in range(20, -1, -1) if q == 0 or 4 ** (q + 1) <= spread)
    if not bits:
        most = (units * max(steps, tally) + _SPREADS * math.sqrt(spread)) / 2**coarse
        bits = min(next((b for b in range(8, 12) if most < 2 ** (b - 1)), 12), room)
    reach = round(radius * (1 << 14 + fine))
    try:
        body = struct.pack(BODY, norm, unit, steps, reach, clipped, kept, t, c, m, coarse, bits)
        card = finish(cards.SUM, body)
    except cards.CardError as error:
        raise UsageError(
            f"there is no such sum: {error}", "use more steps, or spend less"
        ) from None
    decoded = of(cards.decode(card))
    step = grid(decoded, fine)
    return SumDesign(card, fine, step * 2**coarse, step * math.sqrt(variance(decoded)))


def _noise(norm: int, cost: int, steps: int, tally: int, vectors: int) -> tuple[int, int, int]:
    """t, c and m of the smallest noise.

    With norm 2 t and m are powers of two: uniform(t m) then rejects nothing.

    vectors: by how many vectors the sums of two neighbours may differ: 1 where a run of records is
    there or not, 2 where a whole device may hold other records (ledger.md, Neighbours).
    """
    if norm == 1:
        scale = -(-MICRO * vectors * (steps + tally) // cost)
        found = [(scale, 0, 0)]
    else:
        moved = vectors**2 * (steps**2 + tally**2)  # the square of its length
        least = Fraction(MICRO * moved, 2 * cost)  # sigma**2
        t = 1 << max(0, round(math.log2(least) / 2))
        found = [(t, math.ceil(least * m / t), m) for m in (1 << j for j in range(21))]
        found = [
            each for each in found if each[1] < _MOST_SCALE // 2 and t * each[2] <= _MOST_SCALE
        ]
        close = [each for each in found if t * each[1] <= (1 + _CLOSE) * least * each[2]]
        found = close or found[::-1]
    if not found or found[0][0] > _MOST_SCALE:
        text = f"{cost / MICRO:g} is too little for a radius of {steps} steps: the noise is out of bounds"
        raise UsageError(text, "use fewer steps, ask for fewer reports, or spend more")
    return found[0]
