"""`tern bench profile`: which functions spend the time of a report on the emulated Pico."""

import argparse
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ternbench import latency_command, profile
from ternhost import errors
from ternhost.command import add_command, add_option
from ternhost.errors import UsageError
from terntools.sessions import Session, SessionProgress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ternbench.plots import Panel

FOLDED = "profile.folded"
"""The file in a session's folder from which other programs draw a flame graph."""

# The text leaves out what takes a smaller share of the report's time.
_SMALLEST_SHARE = 0.01
_NAME_WIDTH = 58
_FILES_OF_FUNCTION = 3  # that the text names
# The picture has so many bars, and in them so many parts and the rest.
_BARS = 20
_PARTS = 9
_REST = "other files"


def add_parser(actions: Any) -> None:
    """Add `profile` to the actions of `tern bench`."""
    summary = "show which functions spend the time of a report on the emulated Pico"
    example = """tern bench profile
    tern bench profile --mechanism projection --slowest --json"""
    parser = add_command(actions, "profile", summary, example, _run)
    latency_command.add_report_options(parser)
    text = "number of reports; the one with the median time is shown"
    add_option(parser, "--reports N", text, default=profile.REPORTS)
    add_option(parser, "--slowest", "show the slowest report instead")


def _run(args: argparse.Namespace) -> int:
    """Profile reports, and write the result to the session's folder with text and a picture."""
    case = latency_command.case_of(args)
    if not 1 <= args.reports <= profile.MOST_REPORTS:
        text = f"--reports must be 1 to {profile.MOST_REPORTS}, not {args.reports}"
        raise UsageError(text)
    session = Session(args.sessions)
    with SessionProgress(session) as progress:
        result, folded = profile.measure(case, progress, args.reports, args.slowest)
    (session.directory / FOLDED).write_text(folded)
    session.finish("profile", result, summary(result), pictures(result), args.json)
    return errors.OK


def summary(result: Mapping[str, Any]) -> str:
    """Return the result of `profile.measure` as text for people."""
    whole = result["us"]
    case = result["case"]["name"]
    fastest, slowest = result["us_fastest"], result["us_slowest"]
    calls = []
    for row in result["calls"]:
        indent = "  " * (len(row["path"]) - 1)
        calls.append({**row, "name": indent + row["path"][-1]})
    lines = [
        result["device"],
        f"a report ({case}): {whole:,.1f} us, the {result['chosen']} of {result['reports']} "
        f"reports, which took {fastest:,.1f} to {slowest:,.1f} us",
        "own: without the functions that a function calls; bytes: of the heap, that it leaves behind",
    ]
    lines += _table("Python functions below those that call them", calls, whole, "total_us")
    title = "Python functions; own has the time of the interpreter for them, by its files"
    lines += _table(title, result["functions"], whole, "own_us")
    lines += _table(
        "files of the interpreter and its libraries", result["c_files"], whole, "own_us"
    )
    lines += _table("functions of the interpreter", result["c_functions"], whole, "own_us")
    return "\n".join(lines)


def _table(title: str, rows: Iterable[Mapping[str, Any]], whole: float, least_of: str) -> list[str]:
    """Return the lines of a table of functions, after an empty one.

    whole: microseconds of the report. least_of: the column by which a row is left out if it is small.
    """
    columns = f"{'own us':>9}{'%':>6}{'total us':>10}{'%':>6}{'calls':>7}{'bytes':>7}"
    lines = ["", title, f"  {'':{_NAME_WIDTH}}{columns}"]
    for row in rows:
        if row[least_of] >= _SMALLEST_SHARE * whole:
            lines.append(_line(row, whole))
    return lines


def _line(row: Mapping[str, Any], whole: float) -> str:
    """Return the line of a function, a call path or a file. whole: microseconds of the report."""
    own_percent = 100 * row["own_us"] / whole
    total_percent = 100 * row["total_us"] / whole
    line = (
        f"  {row['name']:{_NAME_WIDTH}}{row['own_us']:9,.1f}{own_percent:6.1f}"
        f"{row['total_us']:10,.1f}{total_percent:6.1f}{row['calls']:7,}{row['bytes']:7,}"
    )
    if "file" in row:
        line += f"  {row['file']}"
    if "interpreter_us" in row:
        shares = []
        for file, microseconds in list(row["interpreter_us"].items())[:_FILES_OF_FUNCTION]:
            shares.append(f"{file} {100 * microseconds / row['own_us']:.0f} %")
        line += f"  {', '.join(shares)}"
    return line


def pictures(result: Mapping[str, Any]) -> "dict[str, Figure]":
    """Draw a page with the bars of `panel`."""
    from ternbench import plots  # takes long to import

    return {"page": plots.page([panel(result)])}


def panel(result: Mapping[str, Any]) -> "Panel":
    """Return a bar for each of the functions that spent most, with the interpreter's files in it."""
    from ternbench.plots import Panel

    functions = result["functions"][:_BARS]
    files = _largest_files(functions)
    bars = {}
    for function in functions:
        parts = dict.fromkeys([*files.values(), _REST], 0.0)
        for file, microseconds in function["interpreter_us"].items():
            parts[files.get(file, _REST)] += microseconds
        bars[function["name"].removeprefix("tern.")] = parts
    unit = f"microseconds of the {result['us']:,.0f} of a report, without the functions called"
    return Panel("Functions that spend the time of a report", unit, bars)


def _largest_files(functions: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the files of the interpreter that spent most for these functions, and their short names."""
    times: dict[str, float] = {}
    for function in functions:
        for file, microseconds in function["interpreter_us"].items():
            times[file] = times.get(file, 0.0) + microseconds
    largest = sorted(times, key=lambda file: -times[file])[:_PARTS]
    return {file: file.rpartition("/")[2] for file in largest}
