"""Algorithm 6 (Zhao et al., IEEE IoT J. 8, 2021): a client reports k of its d attributes, each at
epsilon / k.

A question covers one kind of attribute: numbers, or categories of one card. Public randomness
divides the clients among the kinds in proportion to their attributes. So for k > 1 the attributes
of a client are of one kind, where the paper mixes kinds; each attribute has as many reports. A kind
of fewer than k attributes gives each more of the budget. Categories are perturbed by generalised
randomised response or optimised local hashing (Wang et al., USENIX Security 2017), whichever has
less variance where categories are equally frequent.
"""

import math
from dataclasses import dataclass

from tern import wire
from tern.card import MAX_SYMBOLS, Card
from tern.collect import PRIME
from ternhost.count.estimate import frequency_variance
from ternhost.count.questions import Question
from ternhost.datasets import Table
from ternhost.errors import UsageError
from ternhost.learn.designs import Mechanised, ReportDesign, coordinates_by_rule
from ternhost.options import require
from ternhost.privacy import mechanisms
from ternhost.privacy.base import MICRO


@dataclass(frozen=True)
class Part:
    """Attributes of one question: their columns in a record, and the number of categories of each
    (0: numbers).
    """

    name: str
    columns: tuple[int, ...]
    design: ReportDesign
    categories: int = 0
    hashed: bool = False

    def question(self, width: int, first: int = 0) -> Question:
        """The question for records of `width` features; `columns` count from the `first` of them."""
        chosen = [int(column - first in self.columns) for column in range(width)]
        model = wire.CATEGORIES if self.categories else wire.VALUES
        categories = self.categories if self.hashed else 0
        card, k = self.design.card.data, self.design.k
        range_ = int(self.hashed) if self.categories else range_of(self.design.tau)
        return Question(model, chosen, 0, card, k, range=range_, categories=categories)

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the counts: for each attribute the symbols, or, where they are hashed, the
        categories.
        """
        return len(self.columns), self.categories if self.hashed else self.design.card.symbols


def range_of(tau: float | None) -> int:
    """The range of a question for numbers that are clipped to [-tau, tau], or to [-1, 1].

    Raises UsageError.
    """
    if tau is None:
        return 0
    mantissa, exponent = math.frexp(tau)
    suits = mantissa == 0.5 and 0 <= 1 - exponent <= wire.MAX_RANGE
    require(
        suits, "choices", f"of safe ranges 1, 0.5, 0.25, ... or 2**-{wire.MAX_RANGE}", f"of {tau:g}"
    )
    return 1 - exponent


def numeric_part(table: Table, design: ReportDesign) -> Part:
    """All numbers of a table."""
    return Part("numbers", tuple(range(len(table.numeric_names))), design)


def columns_of(table: Table) -> dict[int, tuple[int, ...]]:
    """The columns of a table by their number of categories; numbers, with 0, come first.

    Raises UsageError.
    """
    groups: dict[int, list[int]] = {}
    for column, size in enumerate(
        [0] * len(table.numeric_names) + [len(values) for values in table.categories]
    ):
        groups.setdefault(size, []).append(column)
    if not groups:
        raise UsageError("there is no attribute to collect")
    return {size: tuple(groups[size]) for size in sorted(groups)}


def parts_of(
    options: Mechanised, table: Table, epsilon: int, share: float, tau: float | None = None
) -> list[Part]:
    """The parts of the clients of a class, each at this epsilon (micro). tau: of their numbers.

    Raises UsageError.
    """
    text = f"{epsilon / MICRO:.6f}"
    parts = []
    for size, columns in columns_of(table).items():
        if not size:
            k = options.k_of([(text, share)], len(columns))
            design = options.design(text, k, share=share, tau=tau)
            parts.append(numeric_part(table, design))
        elif 2 <= size <= PRIME:
            parts += _categorical(options.k_rule, table, columns, size, epsilon, share)
        else:
            raise UsageError(f"a categorical attribute has 2 to {PRIME} categories, not {size}")
    return parts


def _categorical(
    rule: str, table: Table, columns: tuple[int, ...], size: int, epsilon: int, share: float
) -> list[Part]:
    def variance(k: int) -> float:
        return frequency_variance(_response(size, epsilon // k), size)

    best = 1 + math.exp(epsilon / MICRO)  # number of hashes
    buckets = {min(MAX_SYMBOLS, n) for n in (math.floor(best), math.ceil(best))}
    cards = [_response(n, epsilon) for n in buckets]
    hashing = min(cards, key=lambda card: frequency_variance(card, size, hashed=True))
    k = coordinates_by_rule(rule, epsilon, len(columns), variance) if size <= MAX_SYMBOLS else 1
    if size <= MAX_SYMBOLS and variance(k) / k <= frequency_variance(hashing, size, hashed=True):
        design = ReportDesign(_response(size, epsilon // k), k, 0.0, "grr", epsilon, share)
        return [Part(f"of {size} categories", columns, design, size)]
    design = ReportDesign(hashing, 1, 0.0, "olh", epsilon, share)
    names = *table.numeric_names, *table.categorical_names
    return [
        Part(f"{names[column]}, of {size} categories", (column,), design, size, True)
        for column in columns
    ]


def _response(symbols: int, epsilon: int) -> Card:
    return mechanisms.design("grr", levels=symbols, epsilon_micro=epsilon).decode()
