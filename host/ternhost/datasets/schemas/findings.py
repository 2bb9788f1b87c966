"""What the bounds and the categories of a schema do to the records of a table, and what to change.

A feature has 32,768 steps of Q1.14 between its bounds. If its values use only a few of them, the
noise of reports hides their differences. Every finding names the place that the user can change.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tern.fixed import ONE
from ternhost import datasets
from ternhost.datasets import in_memory, own
from ternhost.datasets.own import OwnData
from ternhost.datasets.schemas.columns import Categorical, Column, Numeric
from ternhost.datasets.schemas.schema import MIDDLE, SUFFIX, Schema
from ternhost.datasets.selection import Selection
from ternhost.datasets.tables.reading import RawTable
from ternhost.text import counted

STEPS = 2 * ONE  # of Q1.14 between -1 and 1

# Kinds of findings, the most important first.
FEW_STEPS = "few steps"
ONE_END = "one end"
NARROW = "narrow middle"
NO_RECORD = "no record"  # of a class
RARE = "rare class"
ALIKE = "alike"  # categories that differ in case or blanks only
UNUSED_CATEGORY = "unused category"
MISSING = "missing"
COMPUTED = "computed"
KINDS = (FEW_STEPS, ONE_END, NARROW, NO_RECORD, ALIKE, RARE, UNUSED_CATEGORY, MISSING, COMPUTED)

_FEW = STEPS // 100
_AT_ONE_END = 0.95  # share of the values at a bound or beyond it
_MIDDLE = (0.01, 0.99)  # the quantiles between which most values lie
_NARROW = STEPS // 10
_TIMES_MORE_LOST = 1.5  # records of a class than of all, as shares
_FEWEST_LOST = 10  # records of a class
_RARE_SHARE = 0.05  # of the records, for few classes
_RARE_OF_FAIR = 0.2  # the same for many, as a part of the share that each would have
_MOST_ROWS = 20_000  # that a run looks at
_MOST_SHOWN = 3  # findings of a run
_MOST_NAMES = 4  # of columns or classes in a sentence


@dataclass(frozen=True)
class Finding:
    """Something that the user may want to change.

    - kind: one of KINDS
    - column: what it is about; empty if it is about several
    - place: what to change, such as "my.toml, line 7"
    - text: what was found, and what to do
    """

    kind: str
    column: str
    place: str
    text: str

    @property
    def words(self) -> str:
        """The finding as a sentence that begins with its place."""
        return f"{self.place}: {self.text}"

    def summary(self) -> dict[str, str]:
        """Return the finding for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class NumericUse:
    """How the values of a numeric column use its bounds.

    - missing: how many values are missing
    - least, most: the values that are there, from the least to the most; nan if there is none
    - below, at_low, at_high, above: shares of the values, relative to the bounds
    - steps: how many steps of Q1.14 there are from the least to the largest feature
    - distinct: how many of these steps occur
    - middle: how many steps there are from the 1 % quantile to the 99 % quantile
    """

    column: Numeric
    missing: int
    least: float = math.nan
    most: float = math.nan
    below: float = 0.0
    at_low: float = 0.0
    at_high: float = 0.0
    above: float = 0.0
    steps: int = 0
    distinct: int = 0
    middle: int = 0

    def summary(self) -> dict[str, Any]:
        """Return the use for JSON."""
        column = self.column
        values = asdict(self)
        for name in ("least", "most"):
            if math.isnan(values[name]):
                values[name] = None
        values["column"] = column.name
        return {
            **values,
            "kind": "numeric",
            "low": float(column.low),
            "high": float(column.high),
            "unit": column.unit,
            "computed": column.computed,
        }


@dataclass(frozen=True)
class CategoricalUse:
    """How often each category of a column occurs. missing: how many values are missing."""

    column: Categorical
    missing: int
    counts: tuple[int, ...]

    def summary(self) -> dict[str, Any]:
        """Return the use for JSON."""
        return {
            "column": self.column.name,
            "missing": self.missing,
            "kind": "categorical",
            "categories": dict(zip(self.column.categories, self.counts, strict=True)),
            "computed": self.column.computed,
        }


Use = NumericUse | CategoricalUse


def use_of(table: RawTable, column: Column, missing: Sequence[str]) -> Use:
    """Return how the values of a table use a column. Raises UsageError for a cell that is wrong."""
    if isinstance(column, Categorical):
        codes = column.codes(table, missing)
        counts = np.bincount(codes[codes >= 0], minlength=len(column.categories))
        return CategoricalUse(column, int((codes < 0).sum()), tuple(counts.tolist()))

    values = table.numbers(column.name, missing)
    known = values[~np.isnan(values)]
    missing_count = len(values) - len(known)
    if not len(known):
        return NumericUse(column, missing_count)
    low, high = float(column.low), float(column.high)
    features = column.scale(known).astype(np.int64)
    first, last = np.quantile(features, _MIDDLE)
    return NumericUse(
        column=column,
        missing=missing_count,
        least=float(known.min()),
        most=float(known.max()),
        below=float((known < low).mean()),
        at_low=float((known == low).mean()),
        at_high=float((known == high).mean()),
        above=float((known > high).mean()),
        steps=min(STEPS, int(features.max() - features.min()) + 1),
        distinct=len(np.unique(features)),
        middle=int(last - first) + 1,
    )


def uses_of(table: RawTable, schema: Schema) -> list[Use]:
    """Return how the values of a table use each column of a schema."""
    return [use_of(table, column, schema.missing) for column in schema.columns]


def findings_of(records: OwnData, uses: Sequence[Use]) -> list[Finding]:
    """Return what is worth a change, the most important first. uses: as of `uses_of`."""
    found: list[Finding] = []
    for use in uses:
        if isinstance(use, NumericUse):
            found += _of_numbers(records, use)
            continue
        found += _of_alike(records.schema, use.column)
        if use.column.name == records.schema.label:
            found += _of_classes(records.schema, use)
        else:
            found += _of_categories(records.schema, use)
    found += _of_missing_rows(records)
    found += computed_bounds(records.schema)
    return sorted(found, key=lambda finding: KINDS.index(finding.kind))


def _of_numbers(records: OwnData, use: NumericUse) -> Iterator[Finding]:
    """Yield what is found about a numeric column: at most one thing."""
    name = use.column.name
    if math.isnan(use.least):
        return
    if use.steps < _FEW:
        yield Finding(
            FEW_STEPS, name, _place_of_bound(records, name, "low"), _few_steps(records, use)
        )
        return
    is_flag = use.distinct == 2 and not use.below and not use.above
    if is_flag:
        return
    at_ends = (
        ("low", "at or below the low bound", use.below + use.at_low),
        ("high", "at or above the high bound", use.above + use.at_high),
    )
    for key, words, share in at_ends:
        if share > _AT_ONE_END:
            text = f"{100 * share:.1f} % of {name} are {words}: use another bound"
            yield Finding(ONE_END, name, _place_of_bound(records, name, key), text)
            return
    if use.middle < _NARROW:
        text = f"98 % of {name} lie within {use.middle:,} of {STEPS:,} steps: use narrower bounds"
        yield Finding(NARROW, name, _place_of_bound(records, name, "low"), text)


def _place_of_bound(records: OwnData, column: str, key: str) -> str:
    """Return where the user can change a bound; the column itself if no file has the schema.

    key: "low" or "high".
    """
    if not records.schema.text:
        return f"{records.table.name}, column {column}"
    return records.schema.line_of(column, key)


def _few_steps(records: OwnData, use: NumericUse) -> str:
    """Return the sentence about a column that uses few steps, with what to do about it."""
    name = use.column.name
    if use.least == use.most:
        return f"{name} is {use.least:g} in every record, and tells nothing: leave it out"
    remedy = f"bounds nearer to the values, which are {use.least:g} to {use.most:g}, show more"
    if not records.schema.text:
        remedy = f"'tern data describe {records.table.name}' writes a schema with bounds for it"
    return f"{name} uses {use.steps:,} of {STEPS:,} steps: {remedy}"


def _of_classes(schema: Schema, use: CategoricalUse) -> Iterator[Finding]:
    """Yield which classes never occur, and which ones are rare."""
    label = use.column.name
    place = schema.line_of(label, "categories")
    total = max(1, sum(use.counts))
    limit = min(_RARE_SHARE, _RARE_OF_FAIR / len(use.counts))
    never, rare = [], []
    for name, count in zip(use.column.categories, use.counts, strict=True):
        if not count:
            never.append(name)
        elif count / total < limit:
            rare.append(f"{name} ({count:,} of {total:,})")
    if never:
        text = f"no record is of the class {_names(never)}: check how it is written"
        yield Finding(NO_RECORD, label, place, text)
    if rare:
        text = f"few records are of the class {_names(rare)}: a model may never predict it"
        yield Finding(RARE, label, place, text)


def _of_alike(schema: Schema, column: Categorical) -> Iterator[Finding]:
    """Yield which categories differ in case or blanks only, such as yes and Yes."""
    alike: dict[str, list[str]] = {}
    for category in column.categories:
        alike.setdefault("".join(category.casefold().split()), []).append(category)
    for names in alike.values():
        if len(names) > 1:
            text = (
                f"{_names(names)} are not the same to tern: if they mean the same, write them alike"
            )
            place = schema.line_of(column.name, "categories")
            yield Finding(ALIKE, column.name, place, text)


def _of_categories(schema: Schema, use: CategoricalUse) -> Iterator[Finding]:
    """Yield which categories never occur."""
    pairs = zip(use.column.categories, use.counts, strict=True)
    never = [name for name, count in pairs if not count]
    if never:
        name = use.column.name
        text = f"{name} is never {_names(never)}"
        yield Finding(UNUSED_CATEGORY, name, schema.line_of(name, "categories"), text)


def _of_missing_rows(records: OwnData) -> Iterator[Finding]:
    """Yield how many rows are left out, since a value in them is missing."""
    if records.missing_rows:
        schema = records.schema
        rows = counted(records.missing_rows, "row")
        total = records.missing_rows + len(records.table)
        text = f"{rows} of {total:,} are left out, since a value is missing"
        text += _of_lost_class(records)
        yield Finding(MISSING, "", schema.place_of("rows_with_missing", "missing"), text)


def _of_lost_class(records: OwnData) -> str:
    """Return words about the class of which missing values take far more records than of all.

    Its share becomes smaller, so that models believe it to be rarer than it is. The text is empty if
    there is none.
    """
    column = records.schema.label_column
    if not isinstance(column, Categorical):
        return ""
    counts_before = _class_counts(records.whole, records.schema)
    counts_after = _class_counts(records.table, records.schema)
    lost_of_all = records.missing_rows / len(records.whole)
    lost_shares = 1 - counts_after / np.maximum(1, counts_before)
    most = int(lost_shares.argmax())
    lost = int(counts_before[most] - counts_after[most])
    if lost < _FEWEST_LOST or lost_shares[most] < _TIMES_MORE_LOST * lost_of_all:
        return ""
    name = column.categories[most]
    return (
        f", among them {lost:,} of the {counts_before[most]:,} of the class {name}, which seems rarer "
        f'then: leave out the column that lacks them, or write rows_with_missing = "{MIDDLE}"'
    )


def _class_counts(table: RawTable, schema: Schema) -> npt.NDArray[np.int64]:
    """Return how many rows of a table have each class; a missing label counts for none."""
    column = schema.label_column
    assert isinstance(column, Categorical)
    codes = column.codes(table, schema.missing)
    return np.bincount(codes[codes >= 0], minlength=len(column.categories))


def computed_bounds(schema: Schema) -> list[Finding]:
    """Return that bounds or categories are not private, since they come from the records."""
    names = [column.name for column in schema.columns if column.computed]
    if not names:
        return []
    text = (
        f"the bounds or categories of {_names(names)} come from the records, and are not private: "
        "write public ones, and delete computed"
    )
    return [Finding(COMPUTED, "", schema.line_of(names[0], "computed"), text)]


def _names(names: Sequence[str]) -> str:
    """Return names for people; of many, the first ones and how many more there are."""
    if len(names) <= _MOST_NAMES:
        return ", ".join(names)
    return f"{', '.join(names[:_MOST_NAMES])} and {len(names) - _MOST_NAMES:,} more"


# For runs


def of_run(data: str, selection: Selection) -> list[Finding]:
    """Return what is found about the records that --data names; nothing for other data sets.

    A long table is judged by rows that are spread evenly over it. Raises UsageError.
    """
    if data.lower().endswith(SUFFIX):
        return computed_bounds(Schema.read(data))
    if not datasets.is_own(data):
        return []
    records = own.load(data, selection)
    table = records.whole
    if len(table) > _MOST_ROWS:
        table = table.rows(np.linspace(0, len(table) - 1, _MOST_ROWS).astype(np.int64))
    schema = records.schema
    uses = []
    for column in schema.columns:
        judged = table
        if column.name == schema.label and isinstance(column, Categorical):
            judged = records.whole  # since a class may be rare
        uses.append(use_of(judged, column, schema.missing))
    return findings_of(records, uses)


def warn_of(findings: Sequence[Finding], data: str, warn: Callable[[str], None]) -> None:
    """Warn of what was found about the records of a run: at most three lines, and where more is.

    data: the value of --data. warn: takes the text.
    """
    if not findings:
        return
    lines = [finding.words for finding in findings[:_MOST_SHOWN]]
    if not data.lower().endswith(SUFFIX) and not in_memory.is_name(data):
        lines.append(f"'tern data describe {data}' shows all")
    warn("\n  ".join(lines))
