"""Hardware in the loop: the device tests and tests/hil on every board of a map, side by side, and
one report of all.

Each board has its own pytest. Exit codes: 0 all passed, 1 a test failed, 2 a board is not there or
timed out.
"""

import argparse
import html
import re
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, ElementTree, SubElement, parse

from ternhost import extras
from ternhost.command import add_command, add_option, print_result
from ternhost.errors import TernError, UsageError
from ternhost.reach.ports.link import open_port
from ternhost.terminal import Progress, duration
from terntools.emulators import catalogue
from terntools.sessions import Session, SessionProgress
from terntools.terminal import require_positive
from terntools.testing import expectations, folders
from terntools.testing.hardware import MappedBoard, read_map

PASSED, FAILED, LOST = 0, 1, 2
TESTS = (folders.DEVICE, folders.HIL)
TIMEOUT = 1800.0
_POLL = 2.0


@dataclass
class BoardResult:
    """How the tests of a board went."""

    board: MappedBoard
    code: int = PASSED
    seconds: float = 0.0
    lost: str = ""  # why, with code LOST
    suites: list[Element] = field(default_factory=list)  # JUnit XML

    @property
    def cases(self) -> list[tuple[str, str, str]]:
        """Name, state (passed, failed or skipped) and message of each test; the value of a figure
        that passed.
        """
        return [_case(case) for suite in self.suites for case in suite.iter("testcase")]

    @property
    def properties(self) -> dict[str, str]:
        return {name: value for suite in self.suites for name, value in _properties(suite).items()}

    @property
    def counts(self) -> dict[str, int]:
        states = [state for _, state, _ in self.cases]
        return {state: states.count(state) for state in ("passed", "failed", "skipped")}

    @property
    def figures(self) -> dict[str, float]:
        """The measured figures of the board's expectations, by name."""
        cases = [_properties(case) for suite in self.suites for case in suite.iter("testcase")]
        return {case["figure"]: float(case["value"]) for case in cases if "figure" in case}

    @property
    def word(self) -> str:
        return ("passed", "FAILED", "LOST")[self.code]


def _properties(of: Element) -> dict[str, str]:
    return {one.get("name", ""): one.get("value", "") for one in of.iterfind("properties/property")}


def _case(case: Element) -> tuple[str, str, str]:
    name = f"{case.get('classname')}::{case.get('name')}"
    for tag, state in (("failure", "failed"), ("error", "failed"), ("skipped", "skipped")):
        if (why := case.find(tag)) is not None:
            text = why.text or "" if state == "failed" else ""
            return name, state, f"{why.get('message') or ''}\n{text}".strip()
    return name, "passed", _properties(case).get("value", "")


def boards_of(hardware_map: str | Path, only: Sequence[str] = ()) -> list[MappedBoard]:
    """The boards of a map; only: of these ids, which must all be there. Raises UsageError."""
    boards = read_map(hardware_map)
    ids = [board.id for board in boards]
    if missing := sorted(set(only).difference(ids)):
        raise UsageError(
            f"the map has no connected board {missing[0]}", hint=f"it has {', '.join(ids)}"
        )
    return [board for board in boards if not only or board.id in only]


def require_tests(tests: Sequence[Path]) -> None:
    """Raise UsageError where pytest or one of the paths is not there."""
    extras.require("pytest")
    if missing := [path for path in tests if not path.exists()]:
        raise UsageError(f"there are no tests at {missing[0]}", hint="name others with --tests")


def run(
    hardware_map: str | Path,
    directory: Path,
    tests: Sequence[Path] = TESTS,
    timeout: float = TIMEOUT,
    only: Sequence[str] = (),
    progress: Progress | None = None,
) -> list[BoardResult]:
    """Run the tests on a map's boards; write junit.xml and report.html into `directory`.

    Raises UsageError.
    """
    progress = progress or Progress(quiet=True)
    boards = boards_of(hardware_map, only)
    require_tests(tests)
    stopped = threading.Event()

    def one(board: MappedBoard) -> BoardResult:
        progress.say(f"{board.id}: started")
        result = _run_board(board, hardware_map, directory, tests, timeout, stopped, progress)
        counts = ", ".join(f"{n} {state}" for state, n in result.counts.items() if n) or "no tests"
        if not stopped.is_set():
            progress.say(
                f"{board.id}: {result.word} after {result.seconds:.0f} s ({result.lost or counts})"
            )
        return result

    with ThreadPoolExecutor(len(boards)) as pool:
        try:
            results = list(pool.map(one, boards))
        except BaseException:  # Ctrl-C: no thread may wait for its board
            stopped.set()
            raise
    (directory / "report.html").write_text(page(results), encoding="utf-8")
    _write_junit(results, directory / "junit.xml")
    return results


def worst(results: Sequence[BoardResult]) -> int:
    """The exit code of all: failed before lost before passed."""
    return min((result.code for result in results if result.code), default=PASSED)


def _run_board(
    board: MappedBoard,
    hardware_map: str | Path,
    directory: Path,
    tests: Sequence[Path],
    timeout: float,
    stopped: threading.Event,
    progress: Progress,
) -> BoardResult:
    target = ["--target", catalogue.name_of(board.platform) or ""]
    if board.serial is not None:
        target = ["--target", "board", "--port", board.serial]
        try:
            open_port(board.serial, board.baud).close()
        except TernError as error:
            return BoardResult(board, LOST, lost=error.message)
    result = BoardResult(board)
    start = time.monotonic()
    parts = {"tests": tests, **({"figures": (folders.FIGURES,)} if board.expect else {})}
    for part, paths in parts.items():  # each with the settings of pytest that are beside its files
        log, xml = (directory / f"{board.id}-{part}.{kind}" for kind in ("log", "xml"))
        command: list[str | Path] = [
            sys.executable,
            "-m",
            "pytest",
            "-v",
            "-p",
            "no:cacheprovider",
            "--not-on-cpython",
            f"--junitxml={xml}",
            # xunit1 has properties of tests
            "-o",
            "junit_family=xunit1",
            "-o",
            f"junit_suite_name={board.id}",
            f"--junit-prefix={board.id}",
            "--hardware-map",
            hardware_map,
            "--hardware-id",
            board.id,
            *map(str, paths),
            *target,
            "--baud",
            str(board.baud),
        ]
        if all(any(path.resolve().is_relative_to(folder) for folder in TESTS) for path in paths):
            command += folders.PYTEST_OPTIONS
        with open(log, "w") as output:
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        began = time.time()
        while (
            process.poll() is None and not stopped.is_set() and time.monotonic() - start < timeout
        ):
            with suppress(subprocess.TimeoutExpired):
                process.wait(min(_POLL, timeout))
            progress.step(f"{board.id}: {part}{_share(log, time.time() - began)}")
        if process.poll() is None:
            process.kill()
            process.wait()
            result.code, result.lost = LOST, f"timed out: not done in {timeout:g} s"
            break
        if process.returncode:
            result.code = FAILED
        if xml.exists():
            result.suites += parse(xml).iter("testsuite")
    result.seconds = time.monotonic() - start
    return result


def _share(log: Path, seconds: float) -> str:
    """The share of the tests that are done, by pytest's log, and the time left."""
    percents = re.findall(r"\[ *(\d+)%\]$", log.read_text(errors="replace"), re.MULTILINE)
    if not (done := int(percents[-1]) if percents else 0):
        return ""
    since = time.time() - log.stat().st_mtime  # the last test
    left = (seconds - since) * (100 - done) / done - since
    return f", {done} %, about {duration(max(0.0, left))} left"


def _write_junit(results: Sequence[BoardResult], path: Path) -> None:
    root = Element("testsuites")
    for result in results:
        for suite in result.suites:
            if (properties := suite.find("properties")) is None:
                properties = SubElement(suite, "properties")
            SubElement(properties, "property", name="platform", value=result.board.platform)
            root.append(suite)
        if result.lost:
            suite = SubElement(root, "testsuite", name=result.board.id, tests="1", errors="1")
            case = SubElement(suite, "testcase", classname=result.board.id, name="is there")
            SubElement(case, "error", message=result.lost)
    ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)


def page(results: Sequence[BoardResult]) -> str:
    """The HTML of a report."""
    from ternhost.run.report import page as report  # loads matplotlib

    names = (
        "board",
        "platform",
        "firmware",
        "tern",
        "result",
        "passed",
        "failed",
        "skipped",
        "seconds",
    )
    rows, details = [], []
    for one in results:
        board, seen = one.board, one.properties
        about = [
            seen.get("board", board.platform),
            *(seen.get(name, "?") for name in ("firmware", "tern")),
        ]
        counts = map(str, one.counts.values())
        rows.append((board.id, *about, one.word, *counts, f"{one.seconds:.0f}"))
        details.append(f"<h2>{html.escape(f'{board.id}: {one.word}')}</h2>")
        details += [f"<p>{html.escape(note)}</p>" for note in (board.notes, one.lost) if note]
        details.append(report.table(("test", "result", "message"), one.cases))
    head = f"<h1>Hardware in the loop</h1><p>{time.strftime('%Y-%m-%d %H:%M')}</p>"
    style = f"{report.STYLE}td:last-child {{ white-space: pre-wrap; overflow-wrap: anywhere; }}"
    body = "\n".join((head, report.table(names, rows), *details))
    return report.PAGE.format(title="tern: hardware in the loop", style=style, body=body)


def add_parser(subparsers: Any) -> None:
    summary = "run the board tests on all boards of a hardware map at once"
    example = """tern hil --hardware-map boards.yaml
    tern hil --hardware-map boards.yaml --board pico-1 --json
    tern hil --hardware-map boards.yaml --history"""
    parser = add_command(subparsers, "hil", summary, example, _run)
    figures = "Also measure the figures that the map expects."
    codes = "Exit code: 0 if all passed, 1 if a test or figure failed, 2 if a board is missing or timed out."
    parser.description = f"{parser.description} {figures}\n{codes}"
    add_option(parser, "--hardware-map FILE", "a hardware map of Zephyr's twister", required=True)
    add_option(parser, "--board ID...", "run on this board only")
    add_option(parser, "--tests PATH...", "tests to run (default: those of tern)", type=Path)
    add_option(parser, "--timeout S", "time limit of a board in seconds", TIMEOUT)
    add_option(parser, "--sessions DIR", "write the report to a folder in DIR", "sessions")
    add_option(parser, "--history", "draw the measured figures across commits, and run nothing")
    add_option(
        parser, "--history-file FILE", "history of the figures (default: beside the map)", type=Path
    )


def _run(args: argparse.Namespace) -> int:
    history = args.history_file or Path(args.hardware_map).with_suffix(".history.jsonl")
    if args.history:
        return _draw(history, args.json)
    require_positive(args, "timeout")
    tests = tuple(args.tests or TESTS)
    # Errors are reported before a session begins, those of the history too.
    expecting = any(board.expect for board in boards_of(args.hardware_map, args.board))
    if expecting:
        expectations.append(history, "", (), {})
        expectations.read(history)
    require_tests(tests)
    session = Session(args.sessions)
    with SessionProgress(session) as progress:
        results = run(
            args.hardware_map, session.directory, tests, args.timeout, args.board, progress
        )
    boards, lines, missed = [], [], []
    for one in results:
        name = one.board.id
        figures = (
            expectations.append(history, name, one.board.expect, one.figures) if expecting else []
        )
        about = {"id": name, "result": one.word.lower(), "lost": one.lost, "figures": figures}
        boards.append({**about, **one.counts, **one.properties})
        lines += [
            f"{name}: {one.word}",
            *(f"  {expectations.describe(record)}" for record in figures),
        ]
        missed += [f"{name}: {record['figure']}" for record in figures if not record["passed"]]
    moves = expectations.moves(expectations.read(history)) if missed else {}
    said = [moves[name] for name in missed]
    result = {"directory": str(session.directory), "boards": boards, "missed": said}
    lines += [*said, f"report: {session.directory / 'report.html'}"]
    print_result(result, "\n".join(lines), args.json)
    return worst(results)


def _draw(history: Path, as_json: bool) -> int:
    from ternhost.plots.canvas import save
    from terntools.testing import history_plot  # loads matplotlib

    if not (series := expectations.read(history)):
        raise UsageError(f"{history} has no figures yet", hint="run tern hil without --history")
    moves = list(expectations.moves(series).values())
    picture = history.with_suffix(".png")
    save(history_plot.draw(series), picture)
    result = {"history": str(history), "picture": str(picture), "moves": moves}
    print_result(result, "\n".join((*moves, f"picture: {picture}")), as_json)
    return PASSED
