"""`tern hil`, hardware in the loop: runs tests on all boards of a hardware map at once.

A hardware map is a file that lists boards. Each board has a process of pytest, which runs the tests
of the device library and those in tests/hil. There is one report about all boards.
"""

import argparse
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ternhost import extras
from ternhost.command import add_command, add_option, print_result
from ternhost.errors import UsageError
from ternhost.terminal import Progress
from terntools.listed_commands import HIL
from terntools.sessions import Session, SessionProgress
from terntools.testing import commits, expectations, hil_report
from terntools.testing.board_run import (
    FAILED,
    LOST,
    PASSED,
    TESTS,
    TIMEOUT,
    BoardResult,
    Plan,
    run_board,
)
from terntools.testing.hardware import MappedBoard
from terntools.testing.hardware_map import read_map


def require_tests(tests: Sequence[Path]) -> None:
    """Raise UsageError if pytest is not installed, or if one of these files or folders does not exist."""
    extras.require("pytest")
    for path in tests:
        if not path.exists():
            raise UsageError(f"there are no tests at {path}", hint="name others with --tests")


def run(
    plan: Plan, only: Sequence[str] = (), progress: Progress | None = None
) -> list[BoardResult]:
    """Run the tests on the boards of a hardware map, all at the same time; return their results.

    The report is written into `plan.directory`, as report.html and junit.xml. only: ids of the
    boards to test; empty: all. progress: shows how far each board is; None: nothing is shown.
    Raises UsageError and DeviceError.
    """
    boards = read_map(plan.hardware_map, only)
    require_tests(plan.tests)
    shown_progress = progress or Progress(quiet=True)

    def run_and_say(board: MappedBoard) -> BoardResult:
        shown_progress.say(f"{board.id}: started")
        result = run_board(board, plan, shown_progress)
        if not plan.stopped.is_set():
            shown_progress.say(_line_about(result))
        return result

    with ThreadPoolExecutor(len(boards)) as pool:
        try:
            results = list(pool.map(run_and_say, boards))
        except BaseException:  # such as Ctrl-C: the threads are to stop their boards' tests
            plan.stopped.set()
            raise
    hil_report.write(results, plan.directory)
    return results


def _line_about(result: BoardResult) -> str:
    """Return a line about a board that is done: its result, its time, and the numbers of tests."""
    counts = [f"{count} {state}" for state, count in result.counts.items() if count]
    outcome = ", ".join(counts) or "no tests"
    if result.lost:
        outcome = result.lost
    return f"{result.board.id}: {result.word} after {result.seconds:.0f} s ({outcome})"


def worst(results: Sequence[BoardResult]) -> int:
    """Return the exit code for all boards: FAILED if one failed, else LOST if one is lost, else PASSED."""
    codes = {result.code for result in results}
    for code in (FAILED, LOST):
        if code in codes:
            return code
    return PASSED


def add_parser(subparsers: Any) -> None:
    """Add `tern hil` to the commands."""
    example = """tern hil --hardware-map boards.yaml
    tern hil --hardware-map boards.yaml pico-1 --json
    tern hil --hardware-map boards.yaml --history"""
    parser = add_command(subparsers, HIL.name, HIL.summary, example, _run)
    figures = "Also measure the figures that the map expects."
    codes = (
        "Exit code: 0 if all passed, 1 if a test or figure failed, "
        f"{LOST} if a board is missing or timed out."
    )
    parser.description = f"{parser.description} {figures}\n{codes}"
    add_option(parser, "--hardware-map FILE", "a hardware map of Zephyr's twister", required=True)
    text = "id of a board in the map (default: all that are connected)"
    parser.add_argument("boards", nargs="*", metavar="ID", help=text)
    add_option(parser, "--tests PATH...", "tests to run (default: those of tern)", type=Path)
    add_option(parser, "--sessions DIR", default="sessions")
    text = "draw the figures of earlier runs, which are kept beside the map, and run nothing"
    add_option(parser, "--history", text)


def _run(args: argparse.Namespace) -> int:
    """Run the tests on the boards of a hardware map, and print the outcome.

    If the map says what to expect of figures, such as the latency of a report, they are measured
    and appended to the history. With --history its picture is drawn instead.
    """
    history = Path(args.hardware_map).with_suffix(".history.jsonl")
    if args.history:
        return _draw(history, args.json)

    # Errors are reported before any board is tested, those of the history too.
    tests = tuple(args.tests or TESTS)
    boards = read_map(args.hardware_map, args.boards)
    expects_figures = any(board.expect for board in boards)
    if expects_figures:
        expectations.append(history, board="", expected=(), values={})  # raises if not writable
        expectations.read(history)
    require_tests(tests)

    session = Session(args.sessions)
    commit = commits.current()
    without_commit = ""  # a line that says so
    if expects_figures and commit.why_none:
        without_commit = f"the figures are kept with a date and without a commit: {commit.why_none}"
    with SessionProgress(session) as progress:
        if without_commit:
            progress.say(without_commit)
        plan = Plan(args.hardware_map, session.directory, tests, TIMEOUT)
        results = run(plan, args.boards, progress)

    records_by_board = _append_figures(history, results, commit.name)
    missed = _missed(history, records_by_board)
    report = session.directory / "report.html"
    lines = [*_lines(results, records_by_board), *missed, without_commit, f"report: {report}"]
    printed = {
        "directory": str(session.directory),
        "boards": [_about(result, records_by_board[result.board.id]) for result in results],
        "missed": missed,
        "commit": None if commit.why_none else commit.name,
        "why_no_commit": commit.why_none or None,
    }
    print_result(printed, "\n".join(filter(None, lines)), args.json)
    return worst(results)


def _append_figures(
    history: Path, results: Sequence[BoardResult], commit: str
) -> dict[str, list[expectations.Record]]:
    """Append the figures of all boards, measured at `commit`, to the history.

    Returns them by the board's id.
    """
    records_by_board: dict[str, list[expectations.Record]] = {}
    for result in results:
        board = result.board
        records_by_board[board.id] = []
        if board.expect:
            records_by_board[board.id] = expectations.append(
                history, board.id, board.expect, result.figures, commit
            )
    return records_by_board


def _about(result: BoardResult, records: Sequence[expectations.Record]) -> dict[str, Any]:
    """Return what --json prints about a board. records: its measured figures."""
    return {
        "id": result.board.id,
        "result": result.word.lower(),
        "lost": result.lost,
        "figures": records,
        **result.counts,
        **result.properties,
    }


def _lines(
    results: Sequence[BoardResult], records: dict[str, list[expectations.Record]]
) -> list[str]:
    """Return lines for people about the boards and their figures. records: the figures by the board's id."""
    lines = []
    for result in results:
        lines.append(f"{result.board.id}: {result.word}")
        for record in records[result.board.id]:
            lines.append(f"  {expectations.describe(record)}")
    return lines


def _missed(history: Path, records: dict[str, list[expectations.Record]]) -> list[str]:
    """Return a line about each figure that is not as expected: since which commit that is so.

    records: the measured figures by the board's id. history: the file that has them and older ones.
    """
    missed = []
    for board_id, board_records in records.items():
        for record in board_records:
            if not record["passed"]:
                missed.append(f"{board_id}: {record['figure']}")
    if not missed:
        return []
    moves = expectations.moves(expectations.read(history))
    return [moves[name] for name in missed]


def _draw(history: Path, as_json: bool) -> int:
    """Draw the history of the figures into a picture beside its file, and print which commits moved them."""
    from terntools.testing import history_plot  # loads matplotlib

    series = expectations.read(history)
    if not series:
        raise UsageError(f"{history} has no figures yet", hint="run 'tern hil' without --history")
    moves = list(expectations.moves(series).values())
    picture = history.with_suffix(".png")
    history_plot.save(series, picture)
    result = {"history": str(history), "picture": str(picture), "moves": moves}
    print_result(result, "\n".join((*moves, f"picture: {picture}")), as_json)
    return PASSED
