"""Cards as files: loading, description, and a picture for the terminal."""

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tern import card as cards
from tern.card import (
    HIERARCHY,
    LAPLACE,
    MAX_CARD,
    MIXTURE,
    PROJECTION,
    SUM,
    TABLE,
    WINDOW,
    Card,
    CardError,
)
from tern.fixed import ONE
from tern.sums import Sum
from ternhost.errors import UsageError
from ternhost.privacy import certify, projection, sums
from ternhost.privacy.base import MICRO, Design, posterior
from ternhost.privacy.certify import Biased
from ternhost.privacy.units import protected

SHAPES = {
    TABLE: "table",
    WINDOW: "window",
    LAPLACE: "laplace",
    MIXTURE: "mixture",
    HIERARCHY: "hierarchy",
    SUM: "sum",
    PROJECTION: "projection",
}
_MOMENTS = (
    "worst_case_variance",
    "worst_case_at",
    "variance_at_zero",
    "worst_case_second_moment",
)


def load(path: str | Path) -> bytes:
    """Return the bytes of a card file, decoded or not.

    Raises UsageError if it is too long, or OSError.
    """
    with open(path, "rb") as file:
        data = file.read(MAX_CARD + 1)
    if len(data) > MAX_CARD:
        raise UsageError(f"{path} is not a card: it is longer than {MAX_CARD} bytes")
    return data


def decode(data: bytes, name: str = "the card") -> Card:
    """Return the decoded card.

    Raises UsageError where tern.card raises CardError, and for a hierarchy that is biased or whose
    ranges are not equal.
    """
    try:
        return _decoded(data)
    except CardError as error:
        hint = "make one with: tern card design NAME --epsilon E -o FILE"
        raise UsageError(f"{name} is not a card: {error}", hint) from None


def _decoded(data: bytes) -> Card:
    if data[:1] and data[0] >> 4 != cards.VERSION:
        raise CardError(f"it does not begin as one of version {cards.VERSION} does")
    card: Card = cards.decode(data)
    if card.shape == HIERARCHY:
        try:
            certify.moments(card)
        except Biased:
            raise CardError("not a card of LHP: biased") from None
    return card


def fraction(value: Fraction) -> str:
    """`value` as "num/den"."""
    return f"{value.numerator}/{value.denominator}"


def describe(card: Card) -> dict[str, Any]:
    """The properties of a card, from its integers, ready for JSON.

    A card that is not unbiased has null moments.
    """
    certified = certify.epsilon_certified(card)
    description: dict[str, Any] = {
        "shape": SHAPES[card.shape],
        **_measured(card, certified),
        "posterior_from_half": None,
        **dict.fromkeys((*_MOMENTS, "bias")),
        "levels": card.symbols,
        "bits_per_value": math.log2(card.symbols),
        "card_bytes": len(card.data),
        "card_hash": cards.card_hash(card.data).hex(),
        "scale": None,
    }
    if certified is not None and card.shape != SUM:
        description["posterior_from_half"] = float(posterior(certified))
    if card.shape == SUM:
        return description | _sum_fields(sums.of(card))
    if card.shape == PROJECTION:
        return description | projection.fields(projection.of(card))
    try:
        return description | _accuracy(card)
    except Biased:
        return description


def _accuracy(card: Card) -> dict[str, Any]:
    """Moments, bias and scales. Raises Biased."""
    moments = certify.moments(card)
    bias = certify.bias(card)
    scales = [fraction(scale) for scale in certify.scales(card)]
    worst, worst_at = moments.worst_variance()
    accuracy: dict[str, Any] = {
        "worst_case_variance": float(worst),
        "worst_case_at": float(abs(worst_at)),
        "variance_at_zero": float(moments.variance(Fraction(0))),
        "worst_case_second_moment": float(moments.worst_second_moment()),
        "bias": fraction(bias) if bias else 0,
        "scale": scales[0],
    }
    if len(scales) > 1:
        accuracy["scales"] = scales
    return accuracy


def unit_of(data: bytes) -> int:
    """The unit that a card protects: 0 for a whole client."""
    card = cards.decode(data)
    if card.shape != SUM:
        return 0
    return int(sums.of(card).unit)


def measure(card: Card) -> str:
    """What a card claims and keeps: "rho" (sums with Gaussian noise) or "epsilon"."""
    if card.shape == SUM and sums.of(card).norm == 2:
        return "rho"
    return "epsilon"


def _measured(card: Card, certified: int | None) -> dict[str, Any]:
    """The epsilon or rho that the card claims, and the one that it keeps."""
    name = measure(card)
    kept = None if certified is None else certified / MICRO
    fields: dict[str, Any] = {"epsilon_claimed": None, "epsilon_certified": None}
    fields |= {f"{name}_claimed": card.epsilon / MICRO, f"{name}_certified": kept}
    if card.shape == SUM and name == "epsilon":
        fields["rho_certified"] = certified and sums.rho_of_pure(certified) / MICRO
    return fields


def _sum_fields(body: Sum) -> dict[str, Any]:
    return {  # "radius" is in units of 2**-(14+range)
        "norm": body.norm,
        "noise": "Gaussian" if body.norm == 2 else "Laplace",
        "unit": body.unit,
        "protects": protected(body.unit),
        "radius_steps": body.radius,
        "radius": body.reach,
        "tally": [body.clipped, body.kept],
        "sigma_steps": math.sqrt(sums.variance(body)),
        "output_steps": 1 << body.coarse,
    }


def describe_design(design: Design) -> dict[str, Any]:
    """The output of `tern card design --json`."""
    return {
        "mechanism": design.mechanism,
        "epsilon": design.epsilon / MICRO,
        **describe(decode(design.card)),
        "notes": list(design.notes),
    }


def check(data: bytes, epsilon: int | None = None, rho: int | None = None) -> dict[str, Any]:
    """Certify the bytes of a card at `epsilon` or `rho` (micro; default: its claim).

    Gives `certified`, `epsilon_certified`, `reason`. Raises UsageError for a card that keeps the
    other of the two.
    """
    try:
        card = _decoded(data)
    except CardError as error:
        reason = f"it is not a card: {error}"
        return {"certified": False, "epsilon_certified": None, "reason": reason}

    name = measure(card)
    limit, other, limit_of_other = epsilon, "rho", rho
    if name == "rho":
        limit, other, limit_of_other = rho, "epsilon", epsilon
    if limit_of_other is not None:
        raise UsageError(f"this card keeps {name}, not {other}", f"give it as --{name}")
    if limit is None:
        limit = card.epsilon
    description = describe(card)
    certified = cards.certify(card, limit) and cards.certify(card)
    reason = _reason(card, limit, description)
    return {"certified": certified, name: limit / MICRO, "reason": reason, **description}


def _reason(card: Card, limit: int, description: dict[str, Any]) -> str:
    """Why a card is certified at this limit (micro), or why not."""
    name = measure(card)
    claimed, kept = description[f"{name}_claimed"], description[f"{name}_certified"]
    if kept is None:
        reason = f"it keeps no {name} up to 20"
    elif not cards.certify(card, limit):
        reason = f"it keeps {name} {kept}, not {limit / MICRO}"
    elif not cards.certify(card):
        reason = f"it claims {name} {claimed} and keeps only {kept}: a device refuses it"
    else:
        reason = f"it keeps {name} {kept}"
        if card.epsilon > limit:
            reason += f", though it claims {claimed}, which a device would charge"
    if description["bias"] != 0 and card.shape < SUM:
        reason += "; its outputs are not unbiased"
    return reason


_BLOCKS = " ▁▂▃▄▅▆▇█"
_ASCII_BLOCKS = " .:-=+*%#"
_WIDTH = 64
_INPUTS = range(-ONE, ONE + 1, ONE // 2)


def output_values(card: Card) -> list[float]:
    """The value of every output.

    Of a sum in radii; of a projection its cosine with the vector, nearest last; of a card that is
    not unbiased its level.
    """
    if card.shape == PROJECTION:
        cosines, _ = projection.law(projection.of(card), 1)
        return [float(cosine) for cosine in cosines]
    if card.shape == SUM:
        body = sums.of(card)
        return [float(value) for value in _sum_outputs(body) / body.radius]
    try:
        return [float(value) for value in certify.values(card)]
    except Biased:
        return [float(level) for level in certify.levels(card)]


def distribution(card: Card, v: int) -> list[float]:
    """The probability of every output for an input (Q1.14).

    From exact fractions; of a laplace card in floats. Of a sum the input is a share of the radius,
    what one unit can add to a coordinate, and the noise is as if it were continuous. Of a
    projection it is the vector's length as a share of the radius, below 0 for the opposite vector.
    """
    if card.shape == PROJECTION:
        _, likely = projection.law(projection.of(card), v / ONE)
        return [float(p) for p in likely]
    if card.shape == SUM:
        return _distribution_of_sum(sums.of(card), v / ONE)
    if card.shape == LAPLACE:
        return _laplace(card, v / ONE * (1 << card.grid_bits))
    return [float(p) for p in certify.distribution(card, v)]


def _distribution_of_sum(body: Sum, share: float) -> list[float]:
    from scipy import stats  # slow to load

    if body.norm == 2:
        noise = stats.norm(scale=math.sqrt(sums.variance(body)))
    else:
        noise = stats.laplace(scale=body.t)
    ends = _sum_outputs(body)[1:] - 2**body.coarse / 2 - share * body.radius
    return [float(p) for p in np.diff(noise.cdf(ends), prepend=0, append=1)]


def _sum_outputs(body: Sum) -> npt.NDArray[np.float64]:
    # in grid steps
    return np.asarray((np.arange(body.symbols) - body.symbols / 2) * 2.0**body.coarse)


def _laplace(card: Card, at: float) -> list[float]:
    """At an input in grid steps: a share of the law around each of its neighbours on the grid."""
    g = math.exp(-card.s / card.t)
    outputs = np.arange(card.lowest, card.lowest + card.symbols)
    row = np.zeros(len(outputs))
    below = math.floor(at)
    for centre, share in ((below, 1 - (at - below)), (below + 1, at - below)):
        law = g ** np.abs(outputs - centre) / (1 + g)
        law[1:-1] *= 1 - g  # the ends include everything beyond them
        row += share * law
    return [float(p) for p in row]


def picture(card: Card, encoding: str = "utf-8") -> str:
    """The distribution of the card's outputs at five inputs, as text.

    In plain ASCII if `encoding` has no blocks.
    """
    blocks = _BLOCKS
    try:
        blocks.encode(encoding)
    except UnicodeEncodeError:
        blocks = _ASCII_BLOCKS
    rows = {v: distribution(card, v) for v in _INPUTS}
    values = output_values(card)
    if len(values) <= 16:
        lines = _picture_of_few(values, rows, blocks)
    else:
        lines = _picture_of_many(len(values), rows, blocks)
    return "\n".join(lines)


def _picture_of_few(values: list[float], rows: dict[int, list[float]], blocks: str) -> list[str]:
    """A bar for each output, and its probability above."""
    headings = [f"{value:+.4g}" for value in values]
    width = max(8, *(len(heading) for heading in headings)) + 1
    lines = ["       x " + "".join(text.rjust(width) for text in headings) + "   value"]
    for v, row in rows.items():
        numbers = [f"{p:{width}.5f}" for p in row]
        bars = [(blocks[-1] * round(p * (width - 1))).rjust(width) for p in row]
        lines.append(f"{v / ONE:8.2f} " + "".join(numbers))
        lines.append(" " * 9 + "".join(bars))
    return lines


def _picture_of_many(outputs: int, rows: dict[int, list[float]], blocks: str) -> list[str]:
    """A line of blocks for each input; a block stands for several outputs next to each other."""
    size = math.ceil(outputs / _WIDTH)
    bins = {}
    for v, row in rows.items():
        bins[v] = [sum(row[j : j + size]) for j in range(0, outputs, size)]
    top = max(max(columns) for columns in bins.values())
    lines = []
    for v, columns in bins.items():
        drawn = [blocks[math.ceil(p / top * 8)] for p in columns]
        lines.append(f"{v / ONE:8.2f} |" + "".join(drawn) + "|")
    what = f"{size} symbols" if size > 1 else "a symbol"
    lines.append(f"       x   a column is {what}; a full block is probability {top:.4f}")
    return lines
