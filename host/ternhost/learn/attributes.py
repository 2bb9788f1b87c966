"""Algorithm 6 (Zhao et al., IEEE IoT J. 8, 2021): a client reports k of its d attributes, each at epsilon / k.

A question covers one kind of attribute: numbers, or categories of one card. Public randomness divides the clients among
the kinds in proportion to their attributes. So for k > 1 the attributes of a client are of one kind, where the paper
mixes kinds; each attribute has as many reports. A kind of fewer than k attributes gives each more of the budget.
Categories are perturbed by generalised randomised response or optimised local hashing (Wang et al., USENIX Security
2017), whichever has less variance where categories are equally frequent."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tern import wire
from tern.card import MAX_SYMBOLS, Card
from tern.collect import PRIME
from ternhost.count.estimate import frequency_variance
from ternhost.count.questions import Question
from ternhost.datasets import Table
from ternhost.errors import UsageError
from ternhost.learn.designs import Mechanised, ReportDesign, coordinates_by_rule
from ternhost.privacy import mechanisms
from ternhost.privacy.base import MICRO


@dataclass(frozen=True)
class Part:
    """Attributes of one question: their columns in a record, and the number of categories of each (0: numbers)."""

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
        return Question(model, chosen, 0, card, k, range=int(self.hashed), categories=categories)

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the counts: for each attribute the symbols, or, where they are hashed, the categories."""
        return len(self.columns), self.categories if self.hashed else self.design.card.symbols


def numeric_part(table: Table, design: ReportDesign) -> Part:
    """All numbers of a table."""
    return Part("numbers", tuple(range(len(table.numeric_names))), design)


def parts_of(options: Mechanised, table: Table, epsilon: int, share: float) -> list[Part]:
    """The parts of the clients of a class, each at this epsilon (micro). Raises UsageError."""
    numeric = len(table.numeric_names)
    text = f"{epsilon / MICRO:.6f}"
    parts = []
    if numeric:
        design = options.design(text, options.k_of([(text, share)], numeric), share=share)
        parts.append(numeric_part(table, design))
    groups: dict[int, list[int]] = {}
    for j, values in enumerate(table.categories):
        groups.setdefault(len(values), []).append(j)
    for size, attributes in sorted(groups.items()):
        if not 2 <= size <= PRIME:
            raise UsageError(f"a categorical attribute has 2 to {PRIME} categories, not {size}")
        parts += _categorical(options.k_rule, table, attributes, size, epsilon, share)
    if not parts:
        raise UsageError("there is no attribute to collect")
    return parts


def _categorical(
    rule: str, table: Table, attributes: Sequence[int], size: int, epsilon: int, share: float
) -> list[Part]:
    columns = tuple(len(table.numeric_names) + j for j in attributes)

    def variance(k: int) -> float:
        return frequency_variance(_response(size, epsilon // k), size)

    cards = [_response(buckets, epsilon) for buckets in _buckets(epsilon)]
    hashing = min(cards, key=lambda card: frequency_variance(card, size, hashed=True))
    k = coordinates_by_rule(rule, epsilon, len(columns), variance) if size <= MAX_SYMBOLS else 1
    if size <= MAX_SYMBOLS and variance(k) / k <= frequency_variance(hashing, size, hashed=True):
        design = ReportDesign(_response(size, epsilon // k), k, 0.0, "grr", epsilon, share)
        return [Part(f"of {size} categories", columns, design, size)]
    design = ReportDesign(hashing, 1, 0.0, "olh", epsilon, share)
    return [
        Part(f"{table.categorical_names[j]}, of {size} categories", (column,), design, size, True)
        for j, column in zip(attributes, columns, strict=True)
    ]


def _response(symbols: int, epsilon: int) -> Card:
    return mechanisms.design("grr", levels=symbols, epsilon_micro=epsilon).decode()


def _buckets(epsilon: int) -> set[int]:
    """Numbers of hashes near the best, e**epsilon + 1."""
    best = 1 + math.exp(epsilon / MICRO)
    return {min(MAX_SYMBOLS, n) for n in (math.floor(best), math.ceil(best))}
