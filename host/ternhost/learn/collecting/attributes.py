"""Algorithm 6: a client reports k of its d attributes, each at epsilon / k.

Source: Zhao et al., IEEE IoT J. 8, 2021. A question covers one kind of attribute: numbers, or
categories of one card. Public randomness divides the clients among the kinds in proportion to their
attributes. So for k > 1 the attributes of a client are of one kind, where the paper mixes kinds;
each attribute has as many reports. A kind of fewer than k attributes gives each more of the budget.
Categories are perturbed by generalised randomised response or optimised local hashing (Wang et al.,
USENIX Security 2017), whichever has less variance where categories are equally frequent.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tern import wire
from tern.card import MAX_SYMBOLS, Card
from tern.collect import PRIME
from ternhost.count.questions import Question
from ternhost.datasets import Table
from ternhost.errors import UsageError
from ternhost.learn.collecting.estimate import frequency_variance
from ternhost.learn.designs import (
    DeviceClass,
    MechanismOptions,
    ReportDesign,
    coordinates_by_rule,
)
from ternhost.options import require
from ternhost.privacy import mechanisms
from ternhost.privacy.base import MICRO


@dataclass(frozen=True)
class Part:
    """Attributes that one question covers, of which a client reports some or all."""

    name: str
    columns: tuple[int, ...]  # in a record, without what comes before the attributes
    design: ReportDesign
    categories: int = 0  # of each attribute; 0: they are numbers
    hashed: bool = False  # categories are hashed to buckets before they are perturbed
    # The attributes are numbers, and their categories are 2**exponent equal bins of [-1, 1]. 0: they
    # are no bins of numbers.
    exponent: int = 0

    def question(self, width: int, first: int = 0) -> Question:
        """Return the question that asks clients for these attributes.

        The fields of a question are those for the gradient of a model; a question for attributes
        uses them in its own way.

        width: the number of features in a record.
        first: the number of features that come before the attributes; they are never asked for.
        """
        is_numeric = not self.categories
        model = wire.CATEGORIES
        range_ = 0
        hashed_categories = 0  # 0: categories are not hashed
        if is_numeric:
            model = wire.VALUES
            range_ = range_of(self.design.tau)  # numbers are clipped to +-2**-range
        elif self.hashed:
            range_ = 1  # for categories it means that they are hashed
            hashed_categories = self.categories
        return Question(
            model=model,
            parameters=flags_of(self.columns, width, first),  # 1 for each attribute asked for
            exponent=self.exponent,  # 0 for flags that are whole numbers, else the bins of numbers
            card=self.design.card.data,
            k=self.design.k,
            range=range_,
            categories=hashed_categories,
        )

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the counts: attributes x symbols, or, if hashed, attributes x categories."""
        if self.hashed:
            return len(self.columns), self.categories
        return len(self.columns), self.design.card.symbols


def flags_of(columns: tuple[int, ...], width: int, first: int) -> list[int]:
    """Return a flag for each feature of a record: 1 if devices shall report it, else 0.

    columns: the numbers of the attributes that they shall report.
    width: the number of features in a record.
    first: the number of features that come before attribute 0; they are never reported.
    """
    flags = [0] * width
    for column in columns:
        flags[first + column] = 1
    return flags


def range_of(tau: float | None) -> int:
    """Return the range r by which a question tells devices to clip numbers to +-tau = +-2**-r.

    tau: None for 1, all of [-1, 1].
    Raises UsageError unless it is a power of two that a frame can carry.
    """
    if tau is None:
        return 0
    # tau = mantissa * 2**exponent, where the mantissa is 0.5 if and only if tau is a power of two.
    mantissa, exponent = math.frexp(tau)
    range_ = 1 - exponent
    is_possible = mantissa == 0.5 and 0 <= range_ <= wire.MAX_RANGE
    must = f"with bounds of clipping of 1, 0.5, 0.25, ... or 2**-{wire.MAX_RANGE}"
    require(is_possible, "epsilons", must, f"of {tau:g}")
    return range_


def columns_of(table: Table) -> dict[int, tuple[int, ...]]:
    """Group the columns of a table by their number of categories, in ascending order.

    Numeric columns, with 0 categories, come first. Raises UsageError if the table has no column.
    """
    category_counts = [0] * len(table.numeric_names)
    for categories in table.categories:
        category_counts.append(len(categories))
    if not category_counts:
        raise UsageError("there is no attribute to collect")

    groups = {}
    for count in sorted(set(category_counts)):
        columns = [i for i, own_count in enumerate(category_counts) if own_count == count]
        groups[count] = tuple(columns)
    return groups


def parts_of(options: MechanismOptions, table: Table, device_class: DeviceClass) -> list[Part]:
    """Divide the attributes of a table into parts, of which each client reports a single one.

    All numeric attributes are one part. Categorical attributes are put together by their number of
    categories.

    options: the mechanism for numbers, and how many attributes a client reports at once.
    device_class: the clients, which share an epsilon for a report.
    Raises UsageError for an attribute that cannot be reported.
    """
    parts = []
    for category_count, columns in columns_of(table).items():
        if category_count == 0:  # numbers
            k = options.choose_k([device_class], len(columns))
            parts.append(numeric_part(table, options.design(device_class, k)))
        elif 2 <= category_count <= PRIME:  # as many as the hash can tell from each other
            parts += _categorical_parts(
                options.k_rule, table, columns, size=category_count, device_class=device_class
            )
        else:
            raise UsageError(
                f"a categorical attribute has 2 to {PRIME} categories, not {category_count}"
            )
    return parts


def numeric_part(table: Table, design: ReportDesign) -> Part:
    """Return the part with all numbers of a table."""
    return Part("numbers", tuple(range(len(table.numeric_names))), design)


def _categorical_parts(
    rule: str, table: Table, columns: tuple[int, ...], size: int, device_class: DeviceClass
) -> list[Part]:
    """Return the parts for attributes that have the same number of categories.

    A part is a set of attributes that one question covers. Two protocols are compared, and the one
    with less variance is used. By generalised randomised response ("grr") a client reports k of the
    attributes at once, each at epsilon / k: they make one part. By optimised local hashing ("olh")
    it reports a single one: each attribute is a part.

    rule: the rule that chooses k, one of K_RULES.
    columns: those of the attributes.
    size: the number of categories of each attribute.
    device_class: the clients, which share an epsilon for a report.
    """
    epsilon = device_class.epsilon  # in millionths

    def response_variance(k: int) -> float:
        """Return the variance of a frequency by one of k randomised responses in a report."""
        return frequency_variance(_response(size, epsilon // k), size)

    k = 1
    if size <= MAX_SYMBOLS:  # a symbol for each category is possible, without hashing
        k = coordinates_by_rule(rule, epsilon, len(columns), response_variance)
    design = _frequency_design(size, device_class, k)
    if design.mechanism == "grr":
        return [Part(f"of {size} categories", columns, design, categories=size)]
    names = (*table.numeric_names, *table.categorical_names)
    parts = []
    for column in columns:
        name = f"{names[column]}, of {size} categories"
        parts.append(Part(name, (column,), design, categories=size, hashed=True))
    return parts


def parts_of_bins(
    table: Table, columns: tuple[int, ...], exponents: Sequence[int], device_class: DeviceClass
) -> list[Part]:
    """Return the parts for bins of numbers, by levels: each level divides [-1, 1] anew.

    A client reports the bin of a single number at a single level. By randomised response, where
    that has less variance, all numbers of a level make one part; hashed, each is a part.

    columns: those of the numbers.
    exponents: for each level e; it has 2**e bins of equal width.
    device_class: the clients, which share an epsilon for a report.
    """
    parts = []
    for exponent in exponents:
        bins = 2**exponent
        design = _frequency_design(bins, device_class, k=1)
        if design.mechanism == "grr":
            name = f"numbers, in {bins} bins"
            parts.append(Part(name, columns, design, categories=bins, exponent=exponent))
            continue
        for column in columns:
            name = f"{table.numeric_names[column]}, in {bins} bins"
            parts.append(
                Part(name, (column,), design, categories=bins, hashed=True, exponent=exponent)
            )
    return parts


def variance_of_bins(device_class: DeviceClass, exponent: int) -> float:
    """Return the variance of the share of a bin, from one report about one of 2**exponent bins.

    The report is that of `parts_of_bins`. device_class: the clients, which share an epsilon.
    """
    bins = 2**exponent
    design = _frequency_design(bins, device_class, k=1)
    return frequency_variance(design.card, bins, hashed=design.mechanism == "olh")


def _frequency_design(size: int, device_class: DeviceClass, k: int) -> ReportDesign:
    """Return the design of reports about categories, by the protocol of less variance.

    The protocols are generalised randomised response of k attributes, "grr", and optimised local
    hashing of one attribute, "olh".

    size: the number of categories of each attribute.
    device_class: the clients, which share an epsilon for a report.
    """
    epsilon, share = device_class.epsilon, device_class.share  # in millionths; of all clients
    # Cards are tables of probabilities, from which a device draws the symbol that it reports.
    hashing = _hashing(size, epsilon)
    if size <= MAX_SYMBOLS:
        response = _response(size, epsilon // k)
        # A report of k attributes is worth k reports of one attribute.
        response_variance = frequency_variance(response, size) / k
        if response_variance <= frequency_variance(hashing, size, hashed=True):
            # No step of a model depends on the variance, so it is left at 0.
            return ReportDesign(
                response, k, variance=0.0, mechanism="grr", epsilon=epsilon, share=share
            )
    return ReportDesign(hashing, k=1, variance=0.0, mechanism="olh", epsilon=epsilon, share=share)


def _hashing(size: int, epsilon: int) -> Card:
    """Return the card (the table that perturbs buckets) of optimised local hashing.

    The best number of buckets is e**epsilon + 1 (Wang et al. 2017); of the two integers beside it,
    the one with less variance is chosen.

    size: the number of categories.
    epsilon: the epsilon of a report, in millionths.
    """
    best = 1 + math.exp(epsilon / MICRO)
    bucket_counts = {min(MAX_SYMBOLS, math.floor(best)), min(MAX_SYMBOLS, math.ceil(best))}
    candidates = [_response(buckets, epsilon) for buckets in bucket_counts]
    return min(candidates, key=lambda card: frequency_variance(card, size, hashed=True))


def _response(symbols: int, epsilon: int) -> Card:
    """Return the card of generalised randomised response, for so many symbols.

    epsilon: the epsilon of a report, in millionths.
    """
    return mechanisms.design("grr", levels=symbols, epsilon_micro=epsilon).decode()
