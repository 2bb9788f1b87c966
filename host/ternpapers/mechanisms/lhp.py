"""LHP, the local part of HierA: it perturbs a value's privacy level, then the value at that level.

Source: Hao, Wu and Wan, Sensors 2023, 23, 1115. [-1, 1] is cut into m equal ranges, the *levels*.
The range of x, level t, has its own budget epsilon_t. Generalised randomised response at epsilon_t
draws the level t* that is reported, and Duchi's mechanism at epsilon_t* the sign v* that is
reported. The paper shows that each of them alone costs at most the largest epsilon_t, and does not
state what they cost together. That is more, since both depend on x.

A card is the table from which devices draw a report (cards.md). That of LHP, a hierarchy, consists
of 2 m cards: one for each level that draws the reported level, then one for each level that draws
the sign. Its epsilon protects both together. Budgets are named from the lowest range up, as in the
paper, but a card has them from the highest range down.
"""

import math
import struct
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from tern import card as cards
from tern.card import Card, CardError
from tern.fixed import ONE
from ternhost import words
from ternhost.errors import UsageError
from ternhost.options import Option
from ternhost.privacy import certify
from ternhost.privacy.base import MICRO, Design, checked, finish
from ternhost.privacy.mechanism import Mechanism, untried
from ternhost.privacy.mechanisms import duchi, grr

# The paper's budgets, in units of the smallest: the highest values are the most private.
BUDGETS = (5.0, 4.0, 3.0, 2.0, 1.0)
MAX_RANGES = 16


def card(budgets: Sequence[int]) -> bytes:
    """Return the card of LHP at budgets in millionths of epsilon, from the highest range down.

    Raises CardError if it keeps no epsilon up to 20.
    """
    m = len(budgets)
    lower_bounds = []  # those of all ranges but the lowest one, in Q1.14
    for level in range(m - 1):
        lower_bound = 1 - Fraction(2 * (level + 1), m)
        lower_bounds.append(math.ceil(lower_bound * ONE))

    level_cards = b"".join(grr.card(budget, m) for budget in budgets)
    value_cards = b"".join(duchi.card(budget) for budget in budgets)
    head = struct.pack(f"<B{m - 1}h", m, *lower_bounds)  # a byte, and an int16 for each bound
    return finish(cards.HIERARCHY, head + level_cards + value_cards)


def budgets_of(card: Card) -> tuple[int, ...]:
    """Return the budget of each level, in millionths of epsilon, from the highest range down.

    The largest is the paper's bound for the level alone and for the sign alone.
    """
    return tuple(value_card.epsilon for value_card in certify.hierarchy(card).value_cards)


def magnitudes(card: Card) -> npt.NDArray[np.float64]:
    """Return the number C that a positive sign of each level stands for; a negative one is -C.

    It is that of Duchi's mechanism. Levels are in the order of the card, from the highest range
    down.
    """
    return np.array([float(scale) for scale in certify.scales(card)])


def design(
    epsilon: int, levels: int | None = None, proportions: Sequence[float] = BUDGETS
) -> Design:
    """Design LHP with the largest budgets for which level and sign together keep epsilon.

    epsilon: in millionths. levels: the number of outputs of the card, which must be twice the
    number of budgets; None to leave that unsaid. proportions: those of the budgets, from the lowest
    range up. Raises UsageError.
    """
    _check_proportions(proportions, levels)
    largest_proportion = max(proportions)

    def card_at(largest: int) -> bytes:
        """Return the card whose largest budget is `largest`, in millionths of epsilon."""
        scaled = []
        for proportion in reversed(proportions):
            budget = math.floor(largest * proportion / largest_proportion)
            scaled.append(max(1, budget))
        return card(scaled)

    def is_too_large(largest: int) -> bool:
        """Return whether the card with this largest budget keeps no epsilon, or not this one."""
        try:
            return bool(cards.decode(card_at(largest)).epsilon > epsilon)
        except CardError:
            return True

    least_too_large = certify.bisected(0, epsilon + 1, is_too_large)
    largest = least_too_large - 1
    if largest == 0:
        raise UsageError(f"LHP has no cards at epsilon {epsilon / MICRO} with these proportions")
    data = card_at(largest)
    return checked("lhp", epsilon, data, *_notes(cards.decode(data)))


def _check_proportions(proportions: Sequence[float], levels: int | None) -> None:
    """Raise UsageError unless LHP can have these proportions, and this number of levels if it is named."""
    symbols = 2 * len(proportions)
    if levels is not None and levels != symbols:
        raise UsageError(f"LHP has two levels for each budget, here {symbols}, not {levels}")
    are_positive = all(0 < proportion < math.inf for proportion in proportions)
    if not 2 <= len(proportions) <= MAX_RANGES or not are_positive:
        hint = "such as --proportions 5,4,3,2,1"
        raise UsageError(f"LHP takes 2 to {MAX_RANGES} positive proportions", hint)


def _notes(card: Card) -> tuple[str, ...]:
    """Return the notes on a design: its budgets, and what the paper states of it."""
    budgets = [budget / MICRO for budget in reversed(budgets_of(card))]
    m = len(budgets)
    budgets_text = ", ".join(f"{budget:g}" for budget in budgets)
    return (
        f"budgets {budgets_text} from the lowest range up",
        f"epsilon protects the level and the sign together; the paper states {max(budgets):g} for each",
        f"a composite of {2 * m} cards: {m} to draw the level by category, {m} to draw the sign",
    )


def _proportions(text: str) -> tuple[float, ...]:
    """Parse proportions that are separated by commas. Raises ValueError."""
    return tuple(float(part) for part in text.split(","))


_PROPORTIONS = Option(
    "proportions", words.HELP["proportions"], _proportions, "B,B,...", shown="5,4,3,2,1"
)
LHP = Mechanism(
    "lhp",
    design,
    (_PROPORTIONS,),
    tries=untried,
    single_valued=False,
    about="a level and a sign, with a budget of its own for each range (Hao et al. 2023)",
)
