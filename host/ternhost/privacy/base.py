"""The base of mechanisms: epsilon in integers, designs, and card encoders.

tern.card decodes and certifies.
"""

import contextlib
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from itertools import accumulate

from tern import card as cards
from tern.card import Card, T
from tern.fixed import EXP_BITS, MAX_EPSILON, exp_lower
from ternhost.errors import UsageError
from ternhost.privacy import certify

MICRO = 1_000_000  # amounts of epsilon and rho are integers in millionths


@dataclass(frozen=True)
class Design:
    """A card (the certified table from which a device draws its report), and how it came about.

    mechanism: the name of the mechanism that designed it. epsilon: the requested one (in
    millionths); the card itself claims the least epsilon that it keeps. notes: remarks for the
    user.
    """

    mechanism: str
    epsilon: int
    card: bytes
    notes: tuple[str, ...] = ()

    def __bytes__(self) -> bytes:
        return self.card

    def decode(self) -> Card:
        """Return the decoded card.

        Raises UsageError for a hierarchy, sum or projection, whose symbols stand for no values.
        """
        return single_valued(cards.decode(self.card), self.mechanism)


def single_valued(card: Card, name: str) -> Card:
    """Return `card`, after checking that each of its outputs stands for one value.

    Only then can its reports be averaged. name: what a message calls the card. Raises UsageError
    for a hierarchy (whose outputs stand for a range of values and a sign), a sum or a projection.
    """
    if card.shape == cards.HIERARCHY:
        raise UsageError(
            f"{name} reports a level and a sign, which are not averaged as a card's values are",
            hint="use another mechanism, or run 'tern train hiera' or 'tern collect levels'",
        )
    return certify.valued(card)


def parse_epsilon(
    text: str | float | Decimal, most: int = MAX_EPSILON, option: str = "--epsilon"
) -> int:
    """Return an epsilon written in decimal as micro-epsilon, rounded down.

    text: as the user wrote it. most: the largest allowed micro-epsilon. option: the command line's
    name for it, used in messages. Raises UsageError if it is not a number in that range.
    """
    micro = 0  # in millionths; stays 0, which is refused below, if the text is no finite number
    with contextlib.suppress(InvalidOperation, OverflowError):
        value = Decimal(str(text).strip())
        is_possible = value.is_finite() and value <= most  # the product below is not huge then
        if is_possible:
            micro = int(value * MICRO)
    if not 1 <= micro <= most:
        name = option.lstrip("-")
        text = f"{name} {text} is not a number from 0.000001 to {most // MICRO}"
        raise UsageError(text, f"give it in decimal, such as {option} 1.5")
    return micro


def exp_bound(epsilon: int) -> Fraction:
    """Return a rational number just below e**epsilon: the one that the certificate uses.

    epsilon: in millionths.
    """
    return Fraction(exp_lower(epsilon), 1 << EXP_BITS)


def posterior(epsilon: int) -> Fraction:
    """Return how sure an observer can be after one report, who was undecided before it.

    The observer guesses something about the sender, with a probability of 1/2 before the report.
    The odds of the guess, which were 1 to 1, become e**epsilon to 1 at most, so that its
    probability becomes e**epsilon / (1 + e**epsilon) at most. That is the result, rounded up to
    three digits, such as 0.732 for an epsilon of 1.

    epsilon: in millionths.
    """
    # `exp_bound` is rounded down. At one millionth more it is surely above e**epsilon, so that the
    # result is an upper bound.
    odds = exp_bound(epsilon + 1)
    belief = odds / (1 + odds)
    return Fraction(math.ceil(1000 * belief), 1000)


def check_levels(levels: int | None, default: int, least: int, most: int) -> int:
    """Return the number of outputs that a mechanism is to use: `levels`, or `default` if it is None.

    Raises UsageError if `levels` is not from `least` to `most`.
    """
    if levels is None:
        return default
    if not least <= levels <= most:
        allowed = f"{least} to {most}"
        if least == most:
            allowed = f"{least}"
        raise UsageError(f"this mechanism has {allowed} levels, not {levels}")
    return levels


def table(levels: Sequence[int], rows: Sequence[Sequence[int]]) -> bytes:
    """Encode a table card (cards.md), which has the probability of each output at each knot.

    A card is what a device draws its report from. Knots are 2**p + 1 inputs, evenly spaced from -1
    to 1; between them a device interpolates.

    levels: the integer that each output stands for. rows: one for each knot, with the probability
    of each output, as a count out of T.
    Raises CardError for rows that are out of the format's bounds.
    """
    knot_bits = (len(rows) - 2).bit_length()  # p
    are_laws = all(sum(row) == T and min(row) >= 1 for row in rows)
    if len(rows) != (1 << knot_bits) + 1 or not are_laws:
        raise cards.CardError("rows are not 2**p + 1 rows of positive counts that add up to T")
    body = struct.pack(cards.TABLE_BODY, knot_bits, len(levels))
    body += struct.pack(f"{len(levels)}b", *levels)
    for row in rows:
        # A card has cumulative counts. The last one is always T and is left out.
        cumulative = list(accumulate(row[:-1]))
        body += struct.pack(f"<{len(cumulative)}I", *cumulative)
    return finish(cards.TABLE, body)


def window(levels: int, width: int, threshold: int) -> bytes:
    """Encode a window card: its number of levels, and the width of its window in levels.

    An output lies in the window around the input with probability threshold / T.
    """
    return finish(cards.WINDOW, struct.pack(cards.WINDOW_BODY, levels, width, threshold))


def laplace(grid_bits: int, t: int, s: int, lowest: int, highest: int) -> bytes:
    """Encode a laplace card, which adds Laplace noise on a grid and clamps the result.

    The grid has steps of 2**-grid_bits, the noise has the scale t/s steps, and the outputs go from
    `lowest` to `highest` steps.
    """
    return finish(cards.LAPLACE, struct.pack(cards.LAPLACE_BODY, grid_bits, t, s, lowest, highest))


def mixture(threshold: int, first: bytes, second: bytes) -> bytes:
    """Encode a mixture card: it uses the first card with probability threshold / T, else the second."""
    head = struct.pack(cards.MIXTURE_BODY, threshold, len(first))
    return finish(cards.MIXTURE, head + first + second)


def finish(shape: int, body: bytes) -> bytes:
    """Return a whole card: its header, with the smallest epsilon that it keeps, and its body.

    A card is the table of probabilities from which a device draws its report.

    shape: the kind of card, as in `tern.card`. body: its bytes after the header. Raises CardError
    if no epsilon up to 20 is kept.
    """
    # To find the epsilon, the card is decoded with the largest epsilon in its header.
    tag = cards.VERSION << 4 | shape  # the first byte: the version above, the shape below
    draft_header = struct.pack(cards.HEADER, tag, MAX_EPSILON)
    epsilon = certify.epsilon_certified(cards.decode(draft_header + body))
    if epsilon is None:
        raise cards.CardError("the card keeps no epsilon up to 20")
    return struct.pack(cards.HEADER, tag, epsilon) + body


def checked(mechanism: str, epsilon: int, card: bytes, *notes: str) -> Design:
    """Return the Design of `card`, after checking that it keeps `epsilon` and is exactly unbiased.

    mechanism: the name of the one that made the card. epsilon: in millionths. notes: remarks for
    the user.
    A card that fails is a mistake in the mechanism's code, so this raises AssertionError.
    """
    decoded: Card = cards.decode(card)
    if not cards.certify(decoded, epsilon) or decoded.epsilon > epsilon:
        raise AssertionError(f"{mechanism}: the card does not keep epsilon {epsilon / MICRO}")
    if certify.bias(decoded) != 0:
        raise AssertionError(f"{mechanism}: the card is biased")
    return Design(mechanism, epsilon, card, notes)
