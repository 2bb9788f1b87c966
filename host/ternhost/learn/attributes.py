"""Algorithm 6: a client reports k of its d attributes, each at epsilon / k.

Source: Zhao et al., IEEE IoT J. 8, 2021. A question covers one kind of attribute: numbers, or
categories of one card. Public randomness divides the clients among the kinds in proportion to their
attributes. So for k > 1 the attributes of a client are of one kind, where the paper mixes kinds;
each attribute has as many reports. A kind of fewer than k attributes gives each more of the budget.
Categories are perturbed by generalised randomised response or optimised local hashing (Wang et al.,
USENIX Security 2017), whichever has less variance where categories are equally frequent.
"""

import math
from dataclasses import dataclass

from tern import wire
from tern.card import MAX_SYMBOLS, Card
from tern.collect import PRIME
from ternhost.count.questions import Question
from ternhost.datasets import Table
from ternhost.errors import UsageError
from ternhost.learn.designs import (
    DeviceClass,
    MechanismOptions,
    ReportDesign,
    coordinates_by_rule,
)
from ternhost.learn.estimate import frequency_variance
from ternhost.options import require
from ternhost.privacy import mechanisms
from ternhost.privacy.base import MICRO


@dataclass(frozen=True)
class Part:
    """Attributes that one question covers."""

    name: str
    columns: tuple[int, ...]  # in a record, without what comes before the attributes
    design: ReportDesign
    categories: int = 0  # of each attribute; 0: they are numbers
    hashed: bool = False

    def question(self, width: int, first: int = 0) -> Question:
        """Return the question for these attributes.

        width: the number of features in a record. first: the number of features that come before
        the attributes; they are never asked for.
        """
        # A flag for each feature of a record: 1 if the clients shall report it.
        is_asked = []
        for feature in range(width):
            is_asked.append(int(feature - first in self.columns))
        card, k = self.design.card.data, self.design.k
        if not self.categories:
            range_ = range_of(self.design.tau)
            return Question(wire.VALUES, is_asked, 0, card, k, range=range_)
        if not self.hashed:
            return Question(wire.CATEGORIES, is_asked, 0, card, k)
        return Question(wire.CATEGORIES, is_asked, 0, card, k, range=1, categories=self.categories)

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the counts: attributes x symbols, or, if hashed, attributes x categories."""
        if self.hashed:
            return len(self.columns), self.categories
        return len(self.columns), self.design.card.symbols


def range_of(tau: float | None) -> int:
    """Return the range r of a question for numbers that are clipped to +-tau, where tau is 2**-r.

    tau: None for [-1, 1]. Raises UsageError unless it is a power of two that a frame can carry.
    """
    if tau is None:
        return 0
    mantissa, exponent = math.frexp(tau)  # a power of two is 0.5 * 2**exponent
    is_possible = mantissa == 0.5 and 0 <= 1 - exponent <= wire.MAX_RANGE
    must = f"of safe ranges 1, 0.5, 0.25, ... or 2**-{wire.MAX_RANGE}"
    require(is_possible, "choices", must, f"of {tau:g}")
    return 1 - exponent


def columns_of(table: Table) -> dict[int, tuple[int, ...]]:
    """Group the columns of a table by their number of categories, in ascending order.

    Numeric columns, with 0 categories, come first. Raises UsageError if the table has no column.
    """
    category_counts = [0] * len(table.numeric_names)
    for categories in table.categories:
        category_counts.append(len(categories))
    groups: dict[int, list[int]] = {}
    for column, category_count in enumerate(category_counts):
        groups.setdefault(category_count, []).append(column)
    if not groups:
        raise UsageError("there is no attribute to collect")
    return {category_count: tuple(groups[category_count]) for category_count in sorted(groups)}


def parts_of(options: MechanismOptions, table: Table, device_class: DeviceClass) -> list[Part]:
    """Divide the attributes of a table into the parts that clients of a class report.

    A client reports one part. Raises UsageError for an attribute that cannot be reported.
    """
    parts = []
    for size, columns in columns_of(table).items():
        if size == 0:
            k = options.k_for([device_class], len(columns))
            parts.append(numeric_part(table, options.design(device_class, k)))
        elif 2 <= size <= PRIME:
            parts += _categorical_parts(options.k_rule, table, columns, size, device_class)
        else:
            raise UsageError(f"a categorical attribute has 2 to {PRIME} categories, not {size}")
    return parts


def numeric_part(table: Table, design: ReportDesign) -> Part:
    """All numbers of a table."""
    return Part("numbers", tuple(range(len(table.numeric_names))), design)


def _categorical_parts(
    rule: str, table: Table, columns: tuple[int, ...], size: int, device_class: DeviceClass
) -> list[Part]:
    """Make the parts of the attributes with `size` categories: one for all, or one for each.

    Generalised randomised response, about k attributes at once, is compared with optimised local
    hashing, about one attribute; the one with less variance is used. rule: for k.
    """
    epsilon, share = device_class.epsilon, device_class.share

    def response_variance(k: int) -> float:
        """The variance of a frequency by one of k randomised responses in a report."""
        return frequency_variance(_response(size, epsilon // k), size)

    hashing = _hashing(size, epsilon)
    if size <= MAX_SYMBOLS:
        k = coordinates_by_rule(rule, epsilon, len(columns), response_variance)
        hashed_variance = frequency_variance(hashing, size, hashed=True)
        if response_variance(k) / k <= hashed_variance:
            card = _response(size, epsilon // k)
            design = ReportDesign(card, k, 0.0, mechanism="grr", epsilon=epsilon, share=share)
            return [Part(f"of {size} categories", columns, design, categories=size)]

    design = ReportDesign(hashing, 1, 0.0, mechanism="olh", epsilon=epsilon, share=share)
    names = (*table.numeric_names, *table.categorical_names)
    parts = []
    for column in columns:
        name = f"{names[column]}, of {size} categories"
        parts.append(Part(name, (column,), design, categories=size, hashed=True))
    return parts


def _hashing(size: int, epsilon: int) -> Card:
    """Design the card of optimised local hashing for `size` categories, at epsilon (micro).

    The best number of buckets is e**epsilon + 1 (Wang et al. 2017); of the two integers
    beside it, the one with less variance is chosen.
    """
    best = 1 + math.exp(epsilon / MICRO)
    bucket_counts = {min(MAX_SYMBOLS, math.floor(best)), min(MAX_SYMBOLS, math.ceil(best))}
    candidates = [_response(buckets, epsilon) for buckets in bucket_counts]
    return min(candidates, key=lambda card: frequency_variance(card, size, hashed=True))


def _response(symbols: int, epsilon: int) -> Card:
    """The card of generalised randomised response."""
    return mechanisms.design("grr", levels=symbols, epsilon_micro=epsilon).decode()
