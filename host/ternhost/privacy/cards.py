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
    """The properties of a card, from its integers, ready for JSON. A card that is not unbiased has
    null moments.
    """
    certified = certify.epsilon_certified(card)
    moment_names = (
        "worst_case_variance",
        "worst_case_at",
        "variance_at_zero",
        "worst_case_second_moment",
    )
    description: dict[str, Any] = {
        "shape": SHAPES[card.shape],
        **_measured(card, certified),
        "posterior_from_half": None
        if certified is None or card.shape == SUM
        else float(posterior(certified)),
        **dict.fromkeys((*moment_names, "bias")),
        "levels": card.symbols,
        "bits_per_value": math.log2(card.symbols),
        "card_bytes": len(card.data),
        "card_hash": cards.card_hash(card.data).hex(),
        "scale": None,
    }
    if card.shape == SUM:
        return description | _sum_fields(sums.of(card))
    if card.shape == PROJECTION:
        return description | projection.fields(projection.of(card))
    try:
        moments, bias, scales = certify.moments(card), certify.bias(card), certify.scales(card)
    except Biased:
        return description
    worst, at = moments.worst_variance()
    known = (worst, abs(at), moments.variance(Fraction(0)), moments.worst_second_moment())
    description |= zip(moment_names, map(float, known), strict=True)
    description |= {"bias": 0 if bias == 0 else fraction(bias), "scale": fraction(scales[0])}
    if len(scales) > 1:
        description["scales"] = [fraction(scale) for scale in scales]
    return description


def unit_of(data: bytes) -> int:
    """The unit that a card protects: 0 for a whole client."""
    card = cards.decode(data)
    return int(sums.of(card).unit) if card.shape == SUM else 0


def measure(card: Card) -> str:
    """What a card claims and keeps: "rho" (sums with Gaussian noise) or "epsilon"."""
    return "rho" if card.shape == SUM and sums.of(card).norm == 2 else "epsilon"


def _measured(card: Card, certified: int | None) -> dict[str, Any]:
    name, kept = measure(card), None if certified is None else certified / MICRO
    known: dict[str, Any] = {"epsilon_claimed": None, "epsilon_certified": None}
    known |= {f"{name}_claimed": card.epsilon / MICRO, f"{name}_certified": kept}
    if card.shape == SUM and name == "epsilon":
        known["rho_certified"] = certified and sums.rho_of_pure(certified) / MICRO
    return known


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
    asked = {"mechanism": design.mechanism, "epsilon": design.epsilon / MICRO}
    return {**asked, **describe(decode(design.card)), "notes": list(design.notes)}


def check(data: bytes, epsilon: int | None = None, rho: int | None = None) -> dict[str, Any]:
    """Certify the bytes of a card at `epsilon` or `rho` (micro; default: its claim).

    Gives `certified`, `epsilon_certified`, `reason`. Raises UsageError for a card that keeps the
    other of the two.
    """
    try:
        card = _decoded(data)
    except CardError as error:
        return {
            "certified": False,
            "epsilon_certified": None,
            "reason": f"it is not a card: {error}",
        }
    name = measure(card)
    if (epsilon if name == "rho" else rho) is not None:
        other = "epsilon" if name == "rho" else "rho"
        raise UsageError(f"this card keeps {name}, not {other}", f"give it as --{name}")
    most = next((limit for limit in (epsilon, rho) if limit is not None), card.epsilon)
    wanted, worth = most / MICRO, describe(card)
    claimed, kept = worth[f"{name}_claimed"], worth[f"{name}_certified"]
    if kept is None:
        reason = f"it keeps no {name} up to 20"
    elif not cards.certify(card, most):
        reason = f"it keeps {name} {kept}, not {wanted}"
    elif not cards.certify(card):
        reason = f"it claims {name} {claimed} and keeps only {kept}: a device refuses it"
    else:
        reason = f"it keeps {name} {kept}"
        if card.epsilon > most:
            reason += f", though it claims {claimed}, which a device would charge"
    certified = cards.certify(card, most) and cards.certify(card)
    if worth["bias"] != 0 and card.shape < SUM:
        reason += "; its outputs are not unbiased"
    return {"certified": certified, name: wanted, "reason": reason, **worth}


_BLOCKS = " ▁▂▃▄▅▆▇█"
_ASCII_BLOCKS = " .:-=+*%#"
_WIDTH = 64
_INPUTS = range(-ONE, ONE + 1, ONE // 2)


def output_values(card: Card) -> list[float]:
    """The value of every output; of a sum in radii, of a projection its cosine with the vector,
    nearest last; of a card that is not unbiased, its level.
    """
    if card.shape == PROJECTION:
        return [float(value) for value in projection.law(projection.of(card), 1)[0]]
    if card.shape == SUM:
        return [float(value) for value in _sum_outputs(sums.of(card)) / sums.of(card).radius]
    try:
        return [float(value) for value in certify.values(card)]
    except Biased:
        return [float(level) for level in certify.levels(card)]


def distribution(card: Card, v: int) -> list[float]:
    """The probability of every output for an input (Q1.14), from exact fractions or, for a laplace
    card, in floats. Of a sum the input is a share of the radius, what one unit can add to a
    coordinate; noise as if it were continuous. Of a projection it is the vector's length as a share
    of the radius, below 0 for the opposite vector.
    """
    if card.shape == PROJECTION:
        return [float(p) for p in projection.law(projection.of(card), v / ONE)[1]]
    if card.shape == SUM:
        from scipy import stats  # slow to load

        body = sums.of(card)
        gaussian = stats.norm(scale=math.sqrt(sums.variance(body)))
        noise = gaussian if body.norm == 2 else stats.laplace(scale=body.t)
        ends = _sum_outputs(body)[1:] - 2**body.coarse / 2 - v / ONE * body.radius
        return [float(p) for p in np.diff(noise.cdf(ends), prepend=0, append=1)]
    if card.shape == LAPLACE:
        return _laplace(card, v / ONE * (1 << card.grid_bits))
    return [float(p) for p in certify.distribution(card, v)]


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
    """The distribution of the card's outputs at five inputs, as text; in plain ASCII if `encoding`
    has no blocks.
    """
    blocks = _BLOCKS
    try:
        blocks.encode(encoding)
    except UnicodeEncodeError:
        blocks = _ASCII_BLOCKS
    values = output_values(card)
    rows = [(v, distribution(card, v)) for v in _INPUTS]
    lines = []
    if len(values) <= 16:
        heads = [f"{value:+.4g}" for value in values]
        width = max(8, *(len(head) for head in heads)) + 1
        lines.append("       x " + "".join(head.rjust(width) for head in heads) + "   value")
        for v, row in rows:
            lines.append(f"{v / ONE:8.2f} " + "".join(f"{p:{width}.5f}" for p in row))
            lines.append(
                " " * 9 + "".join((blocks[-1] * round(p * (width - 1))).rjust(width) for p in row)
            )
        return "\n".join(lines)
    size = math.ceil(len(values) / _WIDTH)
    binned = [(v, [sum(row[j : j + size]) for j in range(0, len(row), size)]) for v, row in rows]
    top = max(max(bins) for _, bins in binned)
    for v, bins in binned:
        lines.append(
            f"{v / ONE:8.2f} |" + "".join(blocks[math.ceil(p / top * 8)] for p in bins) + "|"
        )
    what = f"{size} symbols" if size > 1 else "a symbol"
    lines.append(f"       x   a column is {what}; a full block is probability {top:.4f}")
    return "\n".join(lines)
