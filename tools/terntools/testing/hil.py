"""Hardware in the loop: tests on every board of a map, side by side, and one report of all.

Each board has its own pytest, which runs the device tests and tests/hil.
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
from terntools.sessions import Session, SessionProgress
from terntools.terminal import require_positive
from terntools.testing import expectations, hil_report
from terntools.testing.board_run import (
    LOST,
    PASSED,
    TESTS,
    TIMEOUT,
    BoardResult,
    Plan,
    run_board,
)
from terntools.testing.hardware import MappedBoard, read_map


def boards_of(hardware_map: str | Path, only: Sequence[str] = ()) -> list[MappedBoard]:
    """Return the boards of a map, or only those with these ids.

    Raises UsageError if the map has no such board.
    """
    boards = read_map(hardware_map)
    ids = [board.id for board in boards]
    missing = sorted(set(only).difference(ids))
    if missing:
        text = f"the map has no connected board {missing[0]}"
        raise UsageError(text, hint=f"it has {', '.join(ids)}")
    if not only:
        return boards
    return [board for board in boards if board.id in only]


def require_tests(tests: Sequence[Path]) -> None:
    """Raise UsageError if pytest or one of the paths is not there."""
    extras.require("pytest")
    for path in tests:
        if not path.exists():
            raise UsageError(f"there are no tests at {path}", hint="name others with --tests")


def run(
    plan: Plan, only: Sequence[str] = (), progress: Progress | None = None
) -> list[BoardResult]:
    """Run the tests on a map's boards; write junit.xml and report.html into `plan.directory`.

    only: ids of boards, instead of all. Raises UsageError.
    """
    boards = boards_of(plan.hardware_map, only)
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
        except BaseException:  # Ctrl-C: no thread may wait for its board
            plan.stopped.set()
            raise
    hil_report.write(results, plan.directory)
    return results


def _line_about(result: BoardResult) -> str:
    counts = [f"{count} {state}" for state, count in result.counts.items() if count]
    outcome = result.lost or ", ".join(counts) or "no tests"
    return f"{result.board.id}: {result.word} after {result.seconds:.0f} s ({outcome})"


def worst(results: Sequence[BoardResult]) -> int:
    """The exit code of all: failed before lost before passed."""
    codes = [result.code for result in results if result.code != PASSED]
    return min(codes, default=PASSED)


def add_parser(subparsers: Any) -> None:
    """Add `tern hil` to the commands."""
    summary = "run the board tests on all boards of a hardware map at once"
    example = """tern hil --hardware-map boards.yaml
    tern hil --hardware-map boards.yaml --board pico-1 --json
    tern hil --hardware-map boards.yaml --history"""
    parser = add_command(subparsers, "hil", summary, example, _run)
    figures = "Also measure the figures that the map expects."
    codes = (
        "Exit code: 0 if all passed, 1 if a test or figure failed, "
        f"{LOST} if a board is missing or timed out."
    )
    parser.description = f"{parser.description} {figures}\n{codes}"
    add_option(parser, "--hardware-map FILE", "a hardware map of Zephyr's twister", required=True)
    add_option(parser, "--board ID...", "run on this board only")
    add_option(parser, "--tests PATH...", "tests to run (default: those of tern)", type=Path)
    add_option(parser, "--timeout S", "time limit of a board in seconds", TIMEOUT)
    add_option(parser, "--sessions DIR", "write the report to a folder in DIR", "sessions")
    add_option(parser, "--history", "draw the measured figures across commits, and run nothing")
    text = "history of the figures (default: beside the map)"
    add_option(parser, "--history-file FILE", text, type=Path)


def _run(args: argparse.Namespace) -> int:
    """Run the tests on the boards of a map, compare their figures, and print the outcome."""
    history = args.history_file or Path(args.hardware_map).with_suffix(".history.jsonl")
    if args.history:
        return _draw(history, args.json)
    require_positive(args, "timeout")

    # Errors are reported before a session begins, those of the history too.
    tests = tuple(args.tests or TESTS)
    expects_figures = any(board.expect for board in boards_of(args.hardware_map, args.board))
    if expects_figures:
        expectations.append(history, "", (), {})
        expectations.read(history)
    require_tests(tests)

    session = Session(args.sessions)
    with SessionProgress(session) as progress:
        plan = Plan(args.hardware_map, session.directory, tests, args.timeout)
        results = run(plan, args.board, progress)

    records: dict[str, list[expectations.Record]] = {}
    for result in results:
        board = result.board
        records[board.id] = []
        if expects_figures:
            records[board.id] = expectations.append(history, board.id, board.expect, result.figures)
    missed = _missed(history, records)
    lines = _lines(results, records)
    lines += [*missed, f"report: {session.directory / 'report.html'}"]
    printed = {
        "directory": str(session.directory),
        "boards": [_about(result, records[result.board.id]) for result in results],
        "missed": missed,
    }
    print_result(printed, "\n".join(lines), args.json)
    return worst(results)


def _about(result: BoardResult, records: Sequence[expectations.Record]) -> dict[str, Any]:
    """Return the outcome of a board for --json."""
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
    """Return lines for people about the boards and their figures."""
    lines = []
    for result in results:
        lines.append(f"{result.board.id}: {result.word}")
        for record in records[result.board.id]:
            lines.append(f"  {expectations.describe(record)}")
    return lines


def _missed(history: Path, records: dict[str, list[expectations.Record]]) -> list[str]:
    """Return a line for each figure that missed its expectation: since which commit."""
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
    """Draw the history of the figures beside its file, and print which commits moved them."""
    from terntools.testing import history_plot  # loads matplotlib

    series = expectations.read(history)
    if not series:
        raise UsageError(f"{history} has no figures yet", hint="run tern hil without --history")
    moves = list(expectations.moves(series).values())
    picture = history.with_suffix(".png")
    history_plot.save(series, picture)
    result = {"history": str(history), "picture": str(picture), "moves": moves}
    print_result(result, "\n".join((*moves, f"picture: {picture}")), as_json)
    return PASSED
