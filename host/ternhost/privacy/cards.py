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
    """Read the bytes of a card file, which need not be those of a valid card.

    Raises UsageError if the file is too long, or OSError.
    """
    with open(path, "rb") as file:
        data = file.read(MAX_CARD + 1)
    if len(data) > MAX_CARD:
        raise UsageError(f"{path} is not a card: it is longer than {MAX_CARD} bytes")
    return data


def decode(data: bytes, name: str = "the card") -> Card:
    """Decode the bytes of a card.

    name: what messages call it. Raises UsageError for bytes that are not a card, and for a
    hierarchy that is biased or whose ranges are not equal.
    """
    try:
        return _decoded(data)
    except CardError as error:
        hint = "make one with: tern card design NAME --epsilon E -o FILE"
        raise UsageError(f"{name} is not a card: {error}", hint) from None


def _decoded(data: bytes) -> Card:
    """Decode a card, and raise CardError also for another version or a biased hierarchy."""
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
    """Return the properties of a card, computed from its integers, ready for JSON.

    They are its privacy, accuracy and size. The moments of a biased card are None.
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

    # The symbols of sums and projections stand for no single value, so they have other fields.
    if card.shape == SUM:
        return description | _sum_fields(sums.of(card))
    if card.shape == PROJECTION:
        return description | projection.fields(projection.of(card))
    try:
        return description | _accuracy(card)
    except Biased:
        return description


def _accuracy(card: Card) -> dict[str, Any]:
    """Return the exact variances, bias and scales of a card, ready for JSON.

    Raises Biased for a card whose symbols have no unbiased values.
    """
    moments = certify.moments(card)
    bias = certify.bias(card)
    scales = [fraction(scale) for scale in certify.scales(card)]
    worst_variance, worst_input = moments.worst_variance()
    accuracy: dict[str, Any] = {
        "worst_case_variance": float(worst_variance),
        "worst_case_at": float(abs(worst_input)),
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
    if card.shape == SUM and sums.of(card).norm == sums.L2:
        return "rho"
    return "epsilon"


def _measured(card: Card, certified: int | None) -> dict[str, Any]:
    """Return the epsilon or rho that the card claims, and the one that it keeps.

    certified: what it keeps, in millionths of its measure; None if it keeps none.
    """
    name = measure(card)
    kept = None
    if certified is not None:
        kept = certified / MICRO
    fields: dict[str, Any] = {"epsilon_claimed": None, "epsilon_certified": None}
    fields |= {f"{name}_claimed": card.epsilon / MICRO, f"{name}_certified": kept}
    if card.shape == SUM and name == "epsilon":
        # A ledger in rho pays for a sum with Laplace noise, too.
        fields["rho_certified"] = None
        if certified is not None:
            fields["rho_certified"] = sums.rho_of_pure(certified) / MICRO
    return fields


def _sum_fields(body: Sum) -> dict[str, Any]:
    """Return the fields of `describe` that only a sum has: its unit, radius and noise.

    Lengths in steps are in the noise's grid steps; `radius` is in units of 2**-(14 + range), where
    `range` is that of the question.
    """
    return {
        "norm": body.norm,
        "noise": "Gaussian" if body.norm == sums.L2 else "Laplace",
        "unit": body.unit,
        "protects": protected(body.unit),
        "radius_steps": body.radius,
        "radius": body.reach,
        "tally": [body.clipped, body.kept],
        "sigma_steps": math.sqrt(sums.variance(body)),
        "output_steps": 1 << body.coarse,
    }


def describe_design(design: Design) -> dict[str, Any]:
    """Return the output of `tern card design --json`: the design and its card's properties."""
    return {
        "mechanism": design.mechanism,
        "epsilon": design.epsilon / MICRO,
        **describe(decode(design.card)),
        "notes": list(design.notes),
    }


def check(data: bytes, epsilon: int | None = None, rho: int | None = None) -> dict[str, Any]:
    """Certify the bytes of a card at `epsilon` or `rho` (micro; default: its claim).

    Returns the fields of `describe`, whether it is `certified`, and the `reason` in words. Bytes
    that are no card are not certified. Raises UsageError for a limit in the measure that the card
    does not have: a sum with Gaussian noise keeps rho, any other card epsilon.
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
    """Explain why a card is certified at this limit, or why not.

    limit: of epsilon or rho, micro. description: of `describe`.
    """
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
_WIDTH = 64  # columns of a picture of many outputs
_FEW_OUTPUTS = 16  # up to so many have a bar each, with its number
_INPUTS = range(-ONE, ONE + 1, ONE // 2)


def output_values(card: Card) -> list[float]:
    """Return the value that each output stands for, in the order of the outputs.

    For a sum these are in radii; for a projection they are cosines with the vector, the nearest
    last; for a biased card, which has no values, they are levels.
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
    """Return the probability of each output for an input, for pictures.

    v: the input in Q1.14. For a sum it is a share of the radius, which is the most that one unit
    can add to a coordinate. For a projection it is the vector's length as a share of the radius,
    negative for the opposite vector. Probabilities come from exact fractions, except those of
    laplace cards, which are irrational, and of sums, whose noise is taken as continuous.
    """
    if card.shape == PROJECTION:
        _, probabilities = projection.law(projection.of(card), v / ONE)
        return [float(p) for p in probabilities]
    if card.shape == SUM:
        return _distribution_of_sum(sums.of(card), v / ONE)
    if card.shape == LAPLACE:
        return _laplace(card, v / ONE * (1 << card.grid_bits))
    return [float(p) for p in certify.distribution(card, v)]


def _distribution_of_sum(body: Sum, share: float) -> list[float]:
    """Return the probability of each output of a sum, for continuous noise.

    share: the sum without noise, as a share of the radius.
    """
    from scipy import stats  # slow to load

    if body.norm == sums.L2:
        noise = stats.norm(scale=math.sqrt(sums.variance(body)))
    else:
        noise = stats.laplace(scale=body.t)

    # An output is reported for sums within half an output step of it; the outermost two take the
    # tails. In grid steps, relative to the sum without noise:
    boundaries = _sum_outputs(body)[1:] - 2**body.coarse / 2 - share * body.radius
    probabilities = np.diff(noise.cdf(boundaries), prepend=0, append=1)
    return [float(p) for p in probabilities]


def _sum_outputs(body: Sum) -> npt.NDArray[np.float64]:
    """Return the sum that each output stands for, in grid steps."""
    return np.asarray((np.arange(body.symbols) - body.symbols / 2) * 2.0**body.coarse)


def _laplace(card: Card, at: float) -> list[float]:
    """Return the probability of each output of a laplace card at an input in grid steps.

    The input is rounded at random to one of its two neighbours on the grid. Geometric noise of
    ratio g = exp(-s/t) is then added, and the sum is clamped to the card's outputs.
    """
    g = math.exp(-card.s / card.t)
    outputs = np.arange(card.lowest, card.lowest + card.symbols)
    probabilities = np.zeros(len(outputs))
    below = math.floor(at)
    probability_of_above = at - below
    roundings = ((below, 1 - probability_of_above), (below + 1, probability_of_above))
    for grid_point, probability_of_point in roundings:
        law = g ** np.abs(outputs - grid_point) / (1 + g)
        law[1:-1] *= 1 - g  # the two ends include everything beyond them
        probabilities += probability_of_point * law
    return [float(p) for p in probabilities]


def picture(card: Card, encoding: str = "utf-8") -> str:
    """Draw the distribution of the card's outputs at five inputs from -1 to 1, as text.

    encoding: the terminal's; if it has no block characters, the picture is in plain ASCII.
    """
    blocks = _BLOCKS
    try:
        blocks.encode(encoding)
    except UnicodeEncodeError:
        blocks = _ASCII_BLOCKS
    rows = {v: distribution(card, v) for v in _INPUTS}
    values = output_values(card)
    if len(values) <= _FEW_OUTPUTS:
        lines = _picture_of_few(values, rows, blocks)
    else:
        lines = _picture_of_many(len(values), rows, blocks)
    return "\n".join(lines)


def _picture_of_few(values: list[float], rows: dict[int, list[float]], blocks: str) -> list[str]:
    """Draw a horizontal bar for each output, with its probability above it.

    values: of the outputs. rows: the probabilities of the outputs by input (Q1.14). blocks:
    characters from empty to full. Returns lines: a heading, and two for each input.
    """
    headings = [f"{value:+.4g}" for value in values]
    longest = max(len(heading) for heading in headings)
    width = max(8, longest) + 1  # of a column; a probability takes 7 characters
    heading_cells = [heading.rjust(width) for heading in headings]
    lines = ["       x " + "".join(heading_cells) + "   value"]
    for v, probabilities in rows.items():
        numbers = []
        bars = []
        for p in probabilities:
            numbers.append(f"{p:{width}.5f}")
            bar = blocks[-1] * round(p * (width - 1))
            bars.append(bar.rjust(width))
        lines.append(f"{v / ONE:8.2f} " + "".join(numbers))
        lines.append(" " * 9 + "".join(bars))
    return lines


def _picture_of_many(outputs: int, rows: dict[int, list[float]], blocks: str) -> list[str]:
    """Draw a line of blocks for each input; a block is as high as its outputs are likely together.

    rows: the probabilities of the outputs by input (Q1.14). blocks: characters from empty to full.
    """
    outputs_in_column = math.ceil(outputs / _WIDTH)
    columns_of_input = {}
    for v, probabilities in rows.items():
        columns = []
        for first in range(0, outputs, outputs_in_column):
            columns.append(sum(probabilities[first : first + outputs_in_column]))
        columns_of_input[v] = columns

    # The likeliest column of all lines is a full block.
    top = max(max(columns) for columns in columns_of_input.values())
    highest_block = len(blocks) - 1
    lines = []
    for v, columns in columns_of_input.items():
        drawn = [blocks[math.ceil(p / top * highest_block)] for p in columns]
        lines.append(f"{v / ONE:8.2f} |" + "".join(drawn) + "|")
    what = "a symbol"
    if outputs_in_column > 1:
        what = f"{outputs_in_column} symbols"
    lines.append(f"       x   a column is {what}; a full block is probability {top:.4f}")
    return lines
