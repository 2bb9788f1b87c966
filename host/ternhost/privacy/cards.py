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
    """Decode the bytes of a card, the table of probabilities from which a device draws its report.

    name: what messages call it. Raises UsageError for bytes that are not a card, and for a
    hierarchy that is biased or whose ranges are not equal.
    """
    try:
        return _decoded(data)
    except CardError as error:
        hint = "make one with: tern card design NAME --epsilon E --output FILE"
        raise UsageError(f"{name} is not a card: {error}", hint) from None


def _decoded(data: bytes) -> Card:
    """Decode the bytes of a card, with more checks than a device makes.

    Raises CardError also for a card of another version of the format, and for a hierarchy that is
    biased or whose ranges are not equal.
    """
    if data[:1] and data[0] >> 4 != cards.VERSION:  # the upper half of the first byte
        raise CardError(f"it does not begin as one of version {cards.VERSION} does")
    card: Card = cards.decode(data)
    if card.shape == HIERARCHY:
        try:
            certify.moments(card)  # raises CardError for ranges that are not equal
        except Biased:
            raise CardError("not a card of LHP: biased") from None
    return card


def fraction(value: Fraction) -> str:
    """Return a fraction as the text "numerator/denominator"."""
    return f"{value.numerator}/{value.denominator}"


def describe(card: Card) -> dict[str, Any]:
    """Return the properties of a card, computed from its integers, ready for JSON.

    A card is the table of probabilities from which a device draws its report. The properties are
    its privacy, accuracy and size. A card that is biased has None for its accuracy.
    """
    certified = certify.epsilon_certified(card)
    belief_after_report = None
    if certified is not None and card.shape != SUM:
        belief_after_report = float(posterior(certified))
    unknown_accuracy = dict.fromkeys((*_MOMENTS, "bias"), None)
    description: dict[str, Any] = {
        "shape": SHAPES[card.shape],
        **_measured(card, certified),
        "posterior_from_half": belief_after_report,
        **unknown_accuracy,
        "levels": card.symbols,
        "bits_per_value": math.log2(card.symbols),
        "card_bytes": len(card.data),
        "card_hash": cards.card_hash(card.data).hex(),
        "scale": None,
    }

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
    """Return the fields of `describe` with a card's exact variances, bias and scales.

    Moments are the mean and the second moment of what a report stands for, by its input from -1 to
    1. A scale is the factor from the level of an output, such as 1, to its value.

    Raises Biased for a card whose outputs have no unbiased values.
    """
    moments = certify.moments(card)
    bias = certify.bias(card)
    # Several if the card consists of others; then the first one is shown as "scale", too.
    scales = [fraction(scale) for scale in certify.scales(card)]
    worst_variance, worst_input = moments.worst_variance()
    accuracy: dict[str, Any] = {
        "worst_case_variance": float(worst_variance),
        "worst_case_at": float(abs(worst_input)),
        "variance_at_zero": float(moments.variance(Fraction(0))),
        "worst_case_second_moment": float(moments.worst_second_moment()),
        "bias": fraction(bias) if bias else 0,  # otherwise a text such as "1/3"
        "scale": scales[0],
    }
    if len(scales) > 1:
        accuracy["scales"] = scales
    return accuracy


def unit_of(data: bytes) -> int:
    """Return how many consecutive records a card protects; 0 stands for the whole device."""
    card = cards.decode(data)
    if card.shape != SUM:
        return 0
    return int(sums.of(card).unit)


def measure(card: Card) -> str:
    """Return the measure of a card's privacy: "rho" for sums with Gaussian noise, else "epsilon"."""
    if card.shape == SUM and sums.of(card).norm == sums.L2:
        return "rho"
    return "epsilon"


def _measured(card: Card, certified: int | None) -> dict[str, Any]:
    """Return the fields of `describe` with the privacy loss that a card claims and keeps.

    The loss is an epsilon, or, for a sum with Gaussian noise, rho of zCDP. A card claims one in its
    header. What it keeps follows from its probabilities.

    certified: what it keeps, in millionths of its measure; None if it keeps none.
    """
    name = measure(card)
    kept = None
    if certified is not None:
        kept = certified / MICRO
    # Every card has the fields for epsilon; a card in rho has its own beside them.
    fields: dict[str, Any] = {"epsilon_claimed": None, "epsilon_certified": None}
    fields[f"{name}_claimed"] = card.epsilon / MICRO
    fields[f"{name}_certified"] = kept
    if card.shape == SUM and name == "epsilon":
        # A ledger in rho pays for a sum with Laplace noise, too.
        fields["rho_certified"] = None
        if certified is not None:
            fields["rho_certified"] = sums.rho_of_pure(certified) / MICRO
    return fields


def _sum_fields(body: Sum) -> dict[str, Any]:
    """Return the fields of `describe` that only a sum has: what it protects, its radius and noise.

    A device divides its records into units, which are runs of records that are protected together.
    It clips the vector of each unit to a length, the radius, adds all of them up, and adds noise to
    the sum. The noise is on a grid, so lengths are also given in steps of this grid. Beside the sum
    there is a tally, a noisy counter of units.
    """
    noise = "Laplace"
    if body.norm == sums.L2:
        noise = "Gaussian"
    return {
        "norm": body.norm,  # by which the length of a vector is measured: 1 or 2
        "noise": noise,
        "unit": body.unit,  # how many records a unit has; 0: all of the device
        "protects": protected(body.unit),  # the same in words
        # The radius in grid steps, and in units of 2**-(14 + range), where the request for reports
        # says which range: devices multiply values by 2**range before they round them.
        "radius_steps": body.radius,
        "radius": body.reach,
        # What a clipped unit adds to the tally, and what any other unit adds.
        "tally": [body.clipped, body.kept],
        # The standard deviation of the noise, and the step to which a noisy sum is rounded.
        "sigma_steps": math.sqrt(sums.variance(body)),
        "output_steps": 1 << body.coarse,  # 2**coarse
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
    """Certify the bytes of a card, and say why it is certified or why not.

    epsilon, rho: the limit to certify at, in millionths; by default it is what the card claims. A
    sum with Gaussian noise has a limit in rho, any other card one in epsilon; UsageError is raised
    for a limit in the other measure.

    Returns the fields of `describe`, whether the card is `certified`, and the `reason` in words.
    Bytes that are no card are not certified.
    """
    try:
        card = _decoded(data)
    except CardError as error:
        reason = f"it is not a card: {error}"
        return {"certified": False, "epsilon_certified": None, "reason": reason}

    name = measure(card)  # "epsilon" or "rho": that in which this card has a limit
    limit = epsilon
    other_name = "rho"
    other_limit = rho
    if name == "rho":
        limit = rho
        other_name = "epsilon"
        other_limit = epsilon
    if other_limit is not None:
        raise UsageError(f"this card keeps {name}, not {other_name}", f"give it as --{name}")
    if limit is None:
        limit = card.epsilon  # what it claims, in its own measure
    description = describe(card)
    keeps_its_claim = cards.certify(card)
    certified = cards.certify(card, limit) and keeps_its_claim
    reason = _reason(card, limit, description)
    return {"certified": certified, name: limit / MICRO, "reason": reason, **description}


def _reason(card: Card, limit: int, description: dict[str, Any]) -> str:
    """Explain why a card is certified at this limit, or why not.

    A card is certified if it keeps the limit, and also the epsilon or rho that it claims, since a
    device refuses one that does not.

    limit: of epsilon or rho, in millionths. description: the fields of `describe` for this card.
    """
    name = measure(card)
    claimed = description[f"{name}_claimed"]
    kept = description[f"{name}_certified"]
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
    # Shapes from SUM on are sums and projections, whose symbols stand for no values.
    if description["bias"] != 0 and card.shape < SUM:
        reason += "; its outputs are not unbiased"
    return reason


_BLOCKS = " ▁▂▃▄▅▆▇█"
_ASCII_BLOCKS = " .:-=+*%#"
_WIDTH = 64  # columns of a picture of many outputs
_FEW_OUTPUTS = 16  # up to this many outputs have a bar each, with its number
_INPUTS = range(-ONE, ONE + 1, ONE // 2)  # -1, -1/2, 0, 1/2 and 1, in units of 2**-14


def output_values(card: Card) -> list[float]:
    """Return what each output stands for, in the order of the outputs.

    These are values, but for three kinds of cards. The outputs of a sum are given in multiples of
    its radius; those of a projection as cosines with the vector, the nearest last; and those of a
    biased card, which has no values, as levels.
    """
    if card.shape == PROJECTION:
        cosines, _ = projection.law(projection.of(card), 1)
        return [float(cosine) for cosine in cosines]
    if card.shape == SUM:
        body = sums.of(card)
        in_radii = _sum_outputs(body) / body.radius
        return [float(value) for value in in_radii]
    try:
        return [float(value) for value in certify.values(card)]
    except Biased:
        return [float(level) for level in certify.levels(card)]


def distribution(card: Card, v: int) -> list[float]:
    """Return the probability of each output for one input, for pictures.

    v: the input in units of 2**-14, from -1 to 1. For a sum it is a share of the radius, which is
    the most that one unit can add to a coordinate. For a projection it is the vector's length as a
    share of the radius, negative for the opposite vector.

    Probabilities come from exact fractions, except those of laplace cards, which are irrational,
    and of sums, whose noise is taken as continuous.
    """
    if card.shape == PROJECTION:
        _, probabilities = projection.law(projection.of(card), v / ONE)
        return [float(p) for p in probabilities]
    if card.shape == SUM:
        return _distribution_of_sum(sums.of(card), v / ONE)
    if card.shape == LAPLACE:
        grid_steps_in_one = 1 << card.grid_bits
        return _distribution_of_laplace(card, v / ONE * grid_steps_in_one)
    return [float(p) for p in certify.distribution(card, v)]


def _distribution_of_sum(body: Sum, share: float) -> list[float]:
    """Return the probability of each output of a card for sums, for continuous noise.

    A sum with noise is rounded to one of the card's outputs. share: the sum without noise, as a
    share of the radius, which is the most that one unit can add.
    """
    # An output is reported for sums within half an output step of it; the first and the last take
    # everything beyond them. These are the boundaries between outputs in grid steps, relative to
    # the sum without noise; `noise_below` is the probability that the noise is below each of them.
    half_output_step = 2**body.coarse / 2
    boundaries = _sum_outputs(body)[1:] - half_output_step - share * body.radius
    if body.norm == sums.L2:
        from scipy.special import ndtr  # slow to load

        noise_below = ndtr(boundaries / math.sqrt(sums.variance(body)))
    else:
        tail = np.exp(-np.abs(boundaries) / body.t) / 2
        noise_below = np.where(boundaries < 0, tail, 1 - tail)
    probabilities = np.diff(noise_below, prepend=0, append=1)
    return [float(p) for p in probabilities]


def _sum_outputs(body: Sum) -> npt.NDArray[np.float64]:
    """Return the sum that each output stands for, in grid steps. They are centred on 0."""
    output_step = 2.0**body.coarse
    return np.asarray((np.arange(body.symbols) - body.symbols / 2) * output_step)


def _distribution_of_laplace(card: Card, x: float) -> list[float]:
    """Return the probability of each output of a laplace card.

    The input x, in grid steps, is rounded at random to one of its two neighbours on the grid.
    Geometric noise of ratio g = exp(-s/t) is then added, and the result is clamped to the card's
    outputs. So an output that is n steps from the rounded input has the probability
    (1 - g) / (1 + g) g**n, and one at an end, which includes everything beyond it, g**n / (1 + g).
    """
    g = math.exp(-card.s / card.t)
    outputs = np.arange(card.lowest, card.lowest + card.symbols)
    probabilities = np.zeros(len(outputs))
    below = math.floor(x)
    probability_of_above = x - below
    roundings = ((below, 1 - probability_of_above), (below + 1, probability_of_above))
    for grid_point, probability_of_point in roundings:
        law = g ** np.abs(outputs - grid_point) / (1 + g)
        law[1:-1] *= 1 - g  # all but the two ends
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
    probabilities_by_input = {v: distribution(card, v) for v in _INPUTS}
    values = output_values(card)
    if len(values) <= _FEW_OUTPUTS:
        lines = _picture_of_few(values, probabilities_by_input, blocks)
    else:
        lines = _picture_of_many(len(values), probabilities_by_input, blocks)
    return "\n".join(lines)


def _picture_of_few(
    values: list[float], probabilities_by_input: dict[int, list[float]], blocks: str
) -> list[str]:
    """Draw a horizontal bar for each output, with its probability above it, at each input.

    values: what the outputs stand for. probabilities_by_input: the probability of each output, by
    the input in units of 2**-14. blocks: characters from empty to full. Returns lines: a heading,
    and two for each input.
    """
    headings = [f"{value:+.4g}" for value in values]
    longest = max(len(heading) for heading in headings)
    width = max(8, longest) + 1  # of a column; a probability takes 7 characters
    heading_cells = [heading.rjust(width) for heading in headings]
    lines = ["       x " + "".join(heading_cells) + "   value"]
    for v, probabilities in probabilities_by_input.items():
        numbers = []
        bars = []
        for p in probabilities:
            numbers.append(f"{p:{width}.5f}")
            bar = blocks[-1] * round(p * (width - 1))
            bars.append(bar.rjust(width))
        lines.append(f"{v / ONE:8.2f} " + "".join(numbers))
        lines.append(" " * 9 + "".join(bars))
    return lines


def _picture_of_many(
    outputs: int, probabilities_by_input: dict[int, list[float]], blocks: str
) -> list[str]:
    """Draw a line of blocks for each input, where a block's height stands for a probability.

    If there are more outputs than columns, a block stands for several neighbouring outputs
    together. probabilities_by_input: the probability of each output, by the input in units of
    2**-14. blocks: characters from empty to full.
    """
    outputs_in_column = math.ceil(outputs / _WIDTH)
    columns_by_input = {}
    for v, probabilities in probabilities_by_input.items():
        columns = []
        for first in range(0, outputs, outputs_in_column):
            columns.append(sum(probabilities[first : first + outputs_in_column]))
        columns_by_input[v] = columns

    # The likeliest column of all lines is a full block.
    largest = max(max(columns) for columns in columns_by_input.values())
    full_block = len(blocks) - 1
    lines = []
    for v, columns in columns_by_input.items():
        drawn = [blocks[math.ceil(p / largest * full_block)] for p in columns]
        lines.append(f"{v / ONE:8.2f} |" + "".join(drawn) + "|")
    what = "a symbol"
    if outputs_in_column > 1:
        what = f"{outputs_in_column} symbols"
    legend = f"a column is {what}; a full block is probability {largest:.4f}"
    lines.append(f"       x   {legend}")
    return lines
