"""`tern bench profile`: which functions spend the time of a report on the emulated Pico."""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from ternbench import latency_command, profile
from ternhost import errors
from ternhost.command import add_command, add_option
from terntools.sessions import Session, SessionProgress

FOLDED = "profile.folded"
"""The file in a session's folder from which other programs draw a flame graph."""

_SMALLEST_SHARE = 0.01  # of the report's time: the text leaves out what takes less
_WHERE = 3  # how many files of the interpreter the text names for a function
_NAME_WIDTH = 56


def add_parser(actions: Any) -> None:
    """Add `profile` to the actions of `tern bench`."""
    summary = "show which functions spend the time of a report on the emulated Pico"
    example = """tern bench profile
    tern bench profile --mechanism projection --d 64 --json"""
    parser = add_command(actions, "profile", summary, example, _run)
    latency_command.add_report_options(parser)
    text = "how many reports to measure: the profile is of the one with the median time"
    add_option(parser, "--reports N", text, default=profile.REPORTS)


def _run(args: argparse.Namespace) -> int:
    """Profile reports, and write the result to the session's folder."""
    case = latency_command.case_of(args)
    if args.reports < 1:
        raise errors.UsageError(f"--reports must be 1 or more, not {args.reports}")
    session = Session(args.sessions)
    with SessionProgress(session) as progress:
        result, folded = profile.measure(case, progress, args.reports)
    (session.directory / FOLDED).write_text(folded)
    session.finish("profile", result, summary(result), {}, args.json)
    return errors.OK


def summary(result: Mapping[str, Any]) -> str:
    """Return the result of `profile.measure` as text for people."""
    report_us = result["report_us"]
    lines = [
        result["device"],
        f"a report ({result['case']['name']}): {report_us:,.1f} us, the median of "
        f"{result['reports']}, which took {result['fastest_us']:,.1f} to {result['slowest_us']:,.1f}",
        "",
        "calls of Python functions",
        *_path_lines(result["paths"], report_us),
        "",
        "Python functions, with the interpreter's work for them",
        *_function_lines(result["functions"], report_us),
        "",
        "files of the interpreter",
        *_function_lines(result["c_files"], report_us),
        "",
        "C functions of the interpreter",
        *_function_lines(result["c_functions"], report_us),
    ]
    return "\n".join(lines)


def _heading(first: str) -> str:
    """Return the headings of a table. first: that of the names."""
    return f"  {first:{_NAME_WIDTH}}{'own us':>9}{'%':>6}{'total us':>10}{'%':>6}{'calls':>7}"


def _row(name: str, row: Mapping[str, Any], report_us: float) -> str:
    """Return a line of a table."""
    own_percent = 100 * row["own_us"] / report_us
    total_percent = 100 * row["total_us"] / report_us
    return (
        f"  {name:{_NAME_WIDTH}}{row['own_us']:9,.1f}{own_percent:6.1f}"
        f"{row['total_us']:10,.1f}{total_percent:6.1f}{row['calls']:7}"
    )


def _path_lines(paths: Sequence[Mapping[str, Any]], report_us: float) -> list[str]:
    """Return the tree of calls, without the paths that take little time."""
    lines = [_heading("function")]
    for row in paths:
        if row["total_us"] >= _SMALLEST_SHARE * report_us:
            indent = 2 * (len(row["path"]) - 1)
            lines.append(_row(" " * indent + row["path"][-1], row, report_us))
    return lines


def _function_lines(functions: Sequence[Mapping[str, Any]], report_us: float) -> list[str]:
    """Return a table of functions, the largest own time first, without those of little time."""
    lines = [_heading("function")]
    for row in functions:
        if row["own_us"] < _SMALLEST_SHARE * report_us:
            continue
        line = _row(row["name"], row, report_us)
        where = row["where"] or {}
        largest_first = sorted(where.items(), key=lambda item: -item[1])
        if largest_first:
            shares = [
                f"{file} {100 * us / row['own_us']:.0f} %" for file, us in largest_first[:_WHERE]
            ]
            line += "  " + ", ".join(shares)
        elif row["file"]:
            line += "  " + row["file"]
        lines.append(line)
    return lines
