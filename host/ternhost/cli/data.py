"""`tern data`: prepares the user's own data. `tern data describe` writes and judges its schema.

The other verbs of the group come from packages that have them, as entry points.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from ternhost.command import add_command, add_option, print_result
from ternhost.datasets import CLASSIFICATION, own
from ternhost.datasets.own import OwnData
from ternhost.datasets.schemas import describe, findings
from ternhost.datasets.schemas.findings import CategoricalUse, Finding, NumericUse, Use
from ternhost.datasets.schemas.schema import SUFFIX, Categorical, Schema
from ternhost.datasets.selection import EVERYTHING
from ternhost.datasets.tables import reading
from ternhost.errors import OK, UsageError
from ternhost.files import storage_errors, write_file
from ternhost.text import counted, wrapped

_COLUMNS = 80  # that the report fits
_LONGEST_NAME = 24
_MOST_UNUSED = 12  # columns that the report names


def add_parser(subparsers: Any) -> None:
    """Add `tern data describe` to the verbs."""
    summary = (
        "write a schema, which says what the columns of a table mean, or check the one beside it"
    )
    example = """tern data describe my.csv
    tern data describe my.csv --label activity --output other.toml"""
    parser = add_command(subparsers, "describe", summary, example, _run)
    parser.add_argument("file", type=Path, metavar="FILE", help="table, such as my.csv")
    add_option(
        parser,
        "--label COLUMN",
        "column that models predict",
        shown="one with a usual name, such as label, or the last",
    )
    add_option(parser, "--output FILE.toml", shown="the table's name, with .toml")


def _run(args: argparse.Namespace) -> int:
    """Write the schema of a table if there is none, and print what its bounds do."""
    file = args.file.expanduser()
    path = _schema_path(file, args.output)
    table = reading.read(file)
    problems: dict[str, str] = {}
    is_new = not path.exists()
    if not is_new and args.label:
        text = f"{path} is there already, and is not changed"
        raise UsageError(text, f"leave out --label, and write in the file: label = {args.label!r}")
    if is_new:
        proposal = describe.propose(table, args.label or "")
        problems = proposal.problems
        with storage_errors("name another place with --output", path):
            write_file(path, proposal.text().encode())

    records = own.of_table(table, Schema.read(path), EVERYTHING)
    uses = findings.uses_of(table, records.schema)
    found = findings.findings_of(records, uses)
    result = {
        "schema": str(path),
        "written": is_new,
        "label_was_named": args.label is not None,
        **_summary(records, uses),
        "problems": problems,
        "findings": [finding.summary() for finding in found],
    }
    print_result(result, "\n".join(_lines(result, records, uses, found)), args.json)
    return OK


def _schema_path(file: Path, output: str | None) -> Path:
    """Return the path of the schema of a table. Raises UsageError.

    file: the table. output: what --output says; None: the schema is beside the table.
    """
    if file.suffix.lower() == SUFFIX:
        raise UsageError(f"{file} is a schema, not a table", "name the table, such as my.csv")
    if not output:
        return file.with_suffix(SUFFIX)
    path = Path(output).expanduser()
    if path.suffix.lower() != SUFFIX:
        raise UsageError(f"--output {path} is no schema", f"its name must end in {SUFFIX}")
    return path


# The report as data


def _summary(records: OwnData, uses: Sequence[Use]) -> dict[str, Any]:
    """Return what the table holds, for JSON."""
    return {
        "file": records.table.name,
        "records": len(records.table),
        "left_out": records.missing_rows,
        "features": len(records.feature_names),
        "label": records.schema.label or None,
        "classes": _classes(records),
        "devices": _devices(records),
        "columns": [use.summary() for use in uses],
        "not_used": _not_used(records),
    }


def _classes(records: OwnData) -> dict[str, int] | None:
    """Return the number of records of each class by its name; None if there are no classes."""
    column = records.schema.label_column
    if not isinstance(column, Categorical) or records.labels is None:
        return None
    counts = np.bincount(records.labels, minlength=len(column.categories))
    return dict(zip(column.categories, counts.tolist(), strict=True))


def _devices(records: OwnData) -> dict[str, Any] | None:
    """Return how many devices there are, and how many records they hold; None if unknown."""
    if records.owners is None:
        return None
    counts = np.bincount(records.owners, minlength=len(records.owner_names))
    return {
        "column": records.schema.device,
        "count": len(counts),
        "least": int(counts.min()),
        "median": float(median(counts.tolist())),
        "most": int(counts.max()),
    }


def _not_used(records: OwnData) -> list[str]:
    """Return the columns of the table that become neither a feature nor a label."""
    used = {column.name for column in records.schema.columns}
    return [name for name in records.table.columns if name not in used]


# The report for people


def _lines(
    result: dict[str, Any], records: OwnData, uses: Sequence[Use], found: Sequence[Finding]
) -> list[str]:
    """Return the lines of the report, none of which is longer than a terminal is wide."""
    lines = [*_first_lines(result, records), "", *_column_lines(records, uses)]
    if found:
        lines += ["", f"to change ({len(found)}):"]
        lines += [f"  {finding.words}" for finding in found]
    if result["written"]:
        lines += ["", f"edit {result['schema']}, then run this command again"]
    fitting: list[str] = []
    for line in lines:
        fitting += wrapped(line, _COLUMNS).split("\n")
    return fitting


def _column_lines(records: OwnData, uses: Sequence[Use]) -> list[str]:
    """Return the lines about the columns: their names, and beside them how they are used."""
    width = min(_LONGEST_NAME, max(len(use.column.name) for use in uses)) + 2
    lines = []
    for use in uses:
        name = use.column.name
        if isinstance(use, NumericUse):
            first, *rest = _numeric_lines(use)
        else:
            first, *rest = _categorical_lines(use)
        if name == records.schema.label:
            first += ", the label"
        if len(name) + 2 > width:  # a long name gets a line of its own
            lines.append(name)
            name = ""
        lines.append(f"{name:{width}}{first}")
        lines += [" " * width + line for line in rest]
    return lines


def _first_lines(result: dict[str, Any], records: OwnData) -> list[str]:
    """Return the lines about the file, its records, devices and classes."""
    written = "wrote" if result["written"] else "read"
    lines = [f"{written} {result['schema']}"]
    text = f"{result['file']}: {counted(result['records'], 'record')} of "
    if result["label"]:
        text += f"{counted(result['features'], 'feature')}, the constant included"
    else:
        text += f"{counted(len(result['columns']), 'column')} to collect; it has no label to learn"
    lines.append(text)
    if result["devices"]:
        lines.append(_devices_line(result["devices"]))
    if result["classes"]:
        shares = [f"{name} {count:,}" for name, count in result["classes"].items()]
        lines.append(f"classes of {result['label']}: {', '.join(shares)}")
        if records.schema.task == CLASSIFICATION:
            negative, positive = records.schema.class_names
            lines.append(f"{positive} is +1, and {negative} is -1")
    elif result["label"]:
        lines.append(f"the label {result['label']} is a number")
    if result["label"] and result["written"] and not result["label_was_named"]:
        lines.append(
            f"{result['label']} was chosen as the label: if it is not, change label in the file"
        )
    not_used = result["not_used"]
    if not_used:
        shown = ", ".join(not_used[:_MOST_UNUSED])
        if len(not_used) > _MOST_UNUSED:
            shown += f" and {len(not_used) - _MOST_UNUSED:,} more"
        lines.append(f"no features: {shown}")
    return lines + _problem_lines(result["problems"])


def _devices_line(devices: dict[str, Any]) -> str:
    """Return the line about devices and their records. devices: as of `_devices`."""
    line = f"{devices['column']}: {counted(devices['count'], 'device')} with {devices['least']:,}"
    if devices["least"] == devices["most"]:
        return f"{line} records each"
    return f"{line} to {devices['most']:,} records, the median is {devices['median']:,g}"


def _problem_lines(problems: dict[str, str]) -> list[str]:
    """Return why columns are no features, each reason once. problems: reasons by column."""
    names_by_reason: dict[str, list[str]] = {}
    for name, reason in problems.items():
        names_by_reason.setdefault(reason, []).append(name)
    lines = []
    for reason, names in list(names_by_reason.items())[:_MOST_UNUSED]:
        columns = names[0]
        if len(names) > 1:
            columns += f" and {len(names) - 1:,} more"
        lines.append(f"  {columns}: {reason}")
    return lines


def _numeric_lines(use: NumericUse) -> list[str]:
    """Return the lines about a column of numbers."""
    column = use.column
    first = f"{column.low} to {column.high}"
    if column.unit:
        first += f" {column.unit}"
    if column.computed:
        first += " (computed)"
    shares = {
        "below low": use.below,
        "at low": use.at_low,
        "at high": use.at_high,
        "above high": use.above,
    }
    words = [f"{100 * share:.3g} % {words}" for words, share in shares.items() if share]
    if use.missing:
        words.append(f"{use.missing:,} missing")
    lines = [
        first,
        f"values {use.least:g} to {use.most:g}: {use.steps:,} of {findings.STEPS:,} steps, "
        f"{use.distinct:,} different",
    ]
    if words:
        lines.append(", ".join(words))
    return lines


def _categorical_lines(use: CategoricalUse) -> list[str]:
    """Return the lines about a column of categories."""
    pairs = zip(use.column.categories, use.counts, strict=True)
    text = ", ".join(f"{name} {count:,}" for name, count in pairs)
    first = f"{len(use.column.categories)} categories"
    if use.column.computed:
        first += " (computed)"
    lines = [first, text]
    if use.missing:
        lines.append(f"{use.missing:,} missing")
    return lines
