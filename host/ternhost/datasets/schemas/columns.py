"""The columns of a schema: what their values mean, and how they become features of records.

A numeric column has public bounds, low and high, which become -1 and 1. All computing is in
integers. A value v is counted in steps of the column: V = round(v * times / per), clipped to whole
numbers L .. H, which are the bounds in steps. Then the feature is (2 V - L - H) 2**14 // (H - L),
in Q1.14. The step is a power of ten, the smallest one for which H - L is below 2**16; for the
bounds -1 and 1 it is 2**-14 itself, so that such values are kept as they are.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tern.fixed import ONE
from tern.wire import MAX_DIMENSION
from ternhost.datasets.base import ColumnUnit, Fixed, Floats, expand
from ternhost.datasets.tables.number_style import NumberStyle
from ternhost.datasets.tables.reading import RawTable
from ternhost.errors import UsageError

_MOST_STEPS = 65_535  # of a column, so that no product on a board exceeds 31 bits
_MOST_DIGITS = 9  # of the step, before or after the point: a power of ten that has 31 bits
_LARGEST_STEP = (1 << 30) - 1  # the number of a step that a board can count
_LARGEST_BOUND = Decimal("1e15")
_FINEST_BOUND = -30  # the exponent of the last digit of a bound
_MOST_SHOWN = 20  # categories in a message
_PLAIN_STYLE = NumberStyle()  # with a decimal point, and without groups of thousands


class Steps(NamedTuple):
    """How a value becomes a whole number of steps: round(value * times / per), then clipped."""

    low: int
    high: int
    times: int
    per: int


def _decimal(bound: Any, name: str) -> Decimal:
    """Return a bound of the column `name` as a decimal number. Raises UsageError if it is none."""
    try:
        return Decimal(str(bound))
    except ArithmeticError as error:
        raise UsageError(f"the bounds of {name} must be numbers, not {bound!r}") from error


@dataclass(frozen=True)
class Numeric:
    """A column of numbers.

    - low, high: its public bounds, in the unit of the column
    - unit: in words, for people
    - computed: whether the bounds come from the records themselves, so that they are not private
    """

    name: str
    low: Decimal
    high: Decimal
    unit: str = ""
    computed: bool = False

    def __init__(
        self,
        name: str,
        low: Decimal | float,
        high: Decimal | float,
        unit: str = "",
        computed: bool = False,
    ) -> None:
        """Take bounds of any type of number; a float counts as the decimal that it shows.

        Raises UsageError for bounds that are no interval, or that boards cannot count in.
        """
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "low", _decimal(low, name))
        object.__setattr__(self, "high", _decimal(high, name))
        object.__setattr__(self, "unit", unit)
        object.__setattr__(self, "computed", computed)
        self._check_bounds()
        self._check_steps()

    def _check_bounds(self) -> None:
        """Raise UsageError for bounds that are no interval, or too large or too fine."""
        for bound in (self.low, self.high):
            if not bound.is_finite() or abs(bound) > _LARGEST_BOUND:
                raise UsageError(f"the bounds of {self.name} must be numbers below 1e15 in size")
            exponent = bound.as_tuple().exponent
            if isinstance(exponent, int) and exponent < _FINEST_BOUND:
                raise UsageError(f"the bounds of {self.name} have too many digits", "round them")
        if self.low >= self.high:
            text = f"the bounds of {self.name} are {self.low} and {self.high}"
            raise UsageError(f"{text}: low must be below high")

    def _check_steps(self) -> None:
        """Raise UsageError for bounds that boards cannot count to in 31 bits."""
        steps = self.steps
        largest = max(abs(steps.low), abs(steps.high))
        if largest > _LARGEST_STEP or max(steps.times, steps.per) > 10**_MOST_DIGITS:
            text = f"boards cannot count from {self.low} to {self.high}, the bounds of {self.name}"
            hint = "write the column in another unit, or as the difference from a usual value"
            raise UsageError(text, hint)

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the features that the column becomes."""
        return (self.name,)

    @property
    def is_unscaled(self) -> bool:
        """Whether the bounds are -1 and 1, which leave the values as they are."""
        return self.low == -1 and self.high == 1

    @property
    def column_unit(self) -> ColumnUnit | None:
        """What -1 and 1 stand for; None if they stand for themselves."""
        if self.is_unscaled and not self.unit:
            return None
        return ColumnUnit(self.name, float(self.low), float(self.high), self.unit)

    @cached_property
    def steps(self) -> Steps:
        """How values are counted in steps."""
        if self.is_unscaled:
            return Steps(-ONE, ONE, ONE, 1)
        low, high = Fraction(self.low), Fraction(self.high)
        # The smallest power of ten for which there are not too many steps. A step this much below
        # the width of the bounds is always too small.
        exponent = (self.high - self.low).adjusted() - len(str(_MOST_STEPS)) - 1
        while True:
            step = Fraction(10) ** exponent
            first, last = math.floor(low / step), math.ceil(high / step)
            if last - first <= _MOST_STEPS:
                break
            exponent += 1
        return Steps(first, last, times=10 ** max(0, -exponent), per=10 ** max(0, exponent))

    def scale(self, values: npt.ArrayLike) -> Fixed:
        """Return values (n) as features (n) in Q1.14; nan becomes the middle of the bounds, 0."""
        numbers = np.asarray(values, np.float64)
        steps = self.steps
        with np.errstate(over="ignore"):  # an infinite number is clipped as any other
            counted = np.clip(np.rint(numbers * steps.times / steps.per), steps.low, steps.high)
        is_known = ~np.isnan(counted)
        whole = np.where(is_known, counted, 0).astype(np.int64)
        scaled = (2 * whole - steps.low - steps.high) * ONE // (steps.high - steps.low)
        return np.where(is_known, scaled, 0).astype(np.int16)

    def values_of(self, scaled: npt.ArrayLike) -> Floats:
        """Return what numbers in Q1.14 (n) stand for, in the unit of the column (n)."""
        steps = self.steps
        places = np.asarray(scaled, np.float64) / ONE  # from -1 at the low bound to 1 at the high
        counted = (places * (steps.high - steps.low) + steps.low + steps.high) / 2
        return counted * steps.per / steps.times

    def for_board(self) -> list[Any]:
        """Return the column as a board reads it (storage.md)."""
        return [self.name, *self.steps]


@dataclass(frozen=True)
class Categorical:
    """A column of categories, whose names are public.

    - categories: all of them; a category's number is its position
    - computed: whether they come from the records themselves, so that they are not private
    """

    name: str
    categories: tuple[str, ...]
    computed: bool = False

    def __post_init__(self) -> None:
        """Raise UsageError for categories that cannot be told apart, or are too many."""
        count = len(self.categories)
        if count < 2:
            text = f"{self.name} needs two or more categories"
            raise UsageError(text, "leave the column out if it has only one value")
        if count > MAX_DIMENSION:
            text = f"{self.name} has {count} categories"
            raise UsageError(text, f"at most {MAX_DIMENSION}; leave the column out if it is a name")
        seen: dict[str, str] = {}
        for category in self.categories:
            other = seen.setdefault(normal(category), category)
            if other is not category:
                text = f"{self.name} has the category {category!r} twice"
                if other != category:
                    text = f"the categories {other!r} and {category!r} of {self.name} are the same number"
                raise UsageError(text, "leave one of them out")

    @property
    def column_unit(self) -> None:
        """Categories have no unit."""

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the features that the column becomes: one for each category but the last."""
        return tuple(f"{self.name}={category}" for category in self.categories[:-1])

    def codes(
        self, table: RawTable, missing: Sequence[str] = (), place: str = "the schema"
    ) -> Fixed:
        """Return the number of the category in each row of a table (n); -1 for a missing one.

        Texts that are the same number, such as 1 and 1.0, are the same category. place: where the
        categories stand, for messages. Raises UsageError for a text that is no category, with its
        line.
        """
        code_of = {normal(category): code for code, category in enumerate(self.categories)}
        codes = np.full(len(table), -1, np.int16)
        is_missing = table.missing(self.name, missing)
        for row, text in enumerate(table.texts(self.name)):
            if is_missing[row]:
                continue
            code = code_of.get(text)
            if code is None:
                code = code_of.get(normal(text))
            if code is None:
                raise self._unknown(table, row, text, place)
            codes[row] = code
        return codes

    def _unknown(self, table: RawTable, row: int, text: str, place: str) -> UsageError:
        """Return the error for a cell that holds no category. place: as of `codes`."""
        shown = ", ".join(self.categories[:_MOST_SHOWN])
        if len(self.categories) > _MOST_SHOWN:
            shown += ", ..."
        hint = (
            f"its categories are: {shown}; add {text!r} to them ({place}), "
            "or to missing if it stands for a missing value"
        )
        return UsageError(f"{table.where(row, self.name)}: {text!r} is no category", hint)

    def expand(self, codes: npt.ArrayLike) -> Fixed:
        """Return the numbers of categories (n) as features (n x categories - 1) in Q1.14.

        The features of a missing category, whose number is -1, are 0.
        """
        numbers = np.asarray(codes)
        features = expand(numbers, len(self.categories))
        features[numbers < 0] = 0
        return features

    def for_board(self) -> list[Any]:
        """Return the column as a board reads it (storage.md)."""
        return [self.name, list(self.categories)]


Column = Numeric | Categorical


def ordered(texts: Iterable[str]) -> tuple[str, ...]:
    """Return different texts as categories in their order, such as - before +, and nein before ja.

    The second of two classes is the positive one, and the alphabet may put it first.
    """
    return tuple(sorted(set(texts), key=lambda text: (text.casefold() in ("+", "ja"), text)))


def normal(text: str) -> str:
    """Return a text, and a number in its shortest form: "1" for "1.0"."""
    # float() takes texts that are codes rather than numbers, such as 1_0 and infinity.
    if not _PLAIN_STYLE.is_plain(text):
        return text
    return f"{float(text):.17g}"
