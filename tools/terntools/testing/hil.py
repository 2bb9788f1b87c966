"""Hardware in the loop: the device tests and tests/hil on every board of a map, side by side, and one report of all.

Each board has its own pytest. Exit codes: 0 all passed, 1 a test failed, 2 a board is not there or timed out.
"""

from __future__ import annotations

import argparse
import html
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, ElementTree, SubElement, parse

from ternhost import extras
from ternhost.command import add_command, add_option, print_result
from ternhost.errors import TernError, UsageError
from ternhost.reach.ports.link import open_port
from terntools.bench.sessions import Session
from terntools.emulators import catalogue
from terntools.terminal import require_positive
from terntools.testing import folders
from terntools.testing.hardware import MappedBoard, read_map

PASSED, FAILED, LOST = 0, 1, 2
TESTS = (folders.DEVICE, folders.HIL)
TIMEOUT = 1800.0

Tell = Callable[[str], None]


@dataclass
class BoardResult:
    """How the tests of a board went."""

    board: MappedBoard
    code: int
    seconds: float
    lost: str = ""  # why, with code LOST
    suite: Element = field(default_factory=lambda: Element("testsuite"))  # JUnit XML

    @property
    def cases(self) -> list[tuple[str, str, str]]:
        """Name, state (passed, failed or skipped) and message of each test."""
        return [_case(case) for case in self.suite.iter("testcase")]

    @property
    def properties(self) -> dict[str, str]:
        return {one.get("name", ""): one.get("value", "") for one in self.suite.iter("property")}

    @property
    def counts(self) -> dict[str, int]:
        states = [state for _, state, _ in self.cases]
        return {state: states.count(state) for state in ("passed", "failed", "skipped")}

    @property
    def word(self) -> str:
        return ("passed", "FAILED", "LOST")[self.code]


def _case(case: Element) -> tuple[str, str, str]:
    name = f"{case.get('classname')}::{case.get('name')}"
    for tag, state in (("failure", "failed"), ("error", "failed"), ("skipped", "skipped")):
        if (why := case.find(tag)) is not None:
            text = why.text or "" if state == "failed" else ""
            return name, state, f"{why.get('message') or ''}\n{text}".strip()
    return name, "passed", ""


def boards_of(hardware_map: str | Path, only: Sequence[str] = ()) -> list[MappedBoard]:
    """The boards of a map; only: of these ids, which must all be there. Raises UsageError."""
    boards = read_map(hardware_map)
    if missing := sorted(set(only) - {board.id for board in boards}):
        raise UsageError(
            f"the map has no connected board {missing[0]}",
            hint=f"it has {', '.join(board.id for board in boards)}",
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
    tell: Tell | None = None,
) -> list[BoardResult]:
    """Run the tests on a map's boards; write junit.xml and report.html into `directory`. Raises UsageError."""
    say = tell or (lambda line: None)
    boards = boards_of(hardware_map, only)
    require_tests(tests)

    running: list[subprocess.Popen[bytes]] = []
    stopped = threading.Event()

    def one(board: MappedBoard) -> BoardResult:
        say(f"{board.id}: started")
        result = _run_board(board, Path(hardware_map), directory, tests, timeout, running)
        counts = ", ".join(f"{n} {state}" for state, n in result.counts.items() if n)
        if not stopped.is_set():
            say(
                f"{board.id}: {result.word} after {result.seconds:.0f} s ({result.lost or counts or 'no tests'})"
            )
        return result

    with ThreadPoolExecutor(len(boards)) as pool:
        try:
            results = list(pool.map(one, boards))
        except BaseException:  # Ctrl-C: no thread may wait for its board
            stopped.set()
            for process in running:
                process.kill()
            raise
    (directory / "report.html").write_text(page(results), encoding="utf-8")
    _write_junit(results, directory / "junit.xml")
    return results


def worst(results: Sequence[BoardResult]) -> int:
    """The exit code of all: failed before lost before passed."""
    codes = {result.code for result in results}
    return FAILED if FAILED in codes else LOST if LOST in codes else PASSED


def _run_board(
    board: MappedBoard, hardware_map: Path, directory: Path, tests: Sequence[Path], timeout: float,
    running: list[subprocess.Popen[bytes]],
) -> BoardResult:  # fmt: skip
    if board.serial is not None:
        try:
            open_port(board.serial, board.baud).close()
        except TernError as error:
            return BoardResult(board, LOST, 0.0, error.message)
    xml = directory / f"{board.id}.xml"
    command: list[str | Path] = [
        sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--not-on-cpython", f"--junitxml={xml}",
        "--hardware-map", hardware_map, "--hardware-id", board.id, *map(str, tests),
    ]  # fmt: skip
    if board.serial is None:
        command += ["--target", catalogue.name_of(board.platform) or ""]
    else:
        command += ["--target", "board", "--port", board.serial]
    command += ["--baud", str(board.baud)]
    if all(map(folders.come_with_tern, tests)):
        command += folders.PYTEST_OPTIONS
    start = time.monotonic()
    with open(directory / f"{board.id}.log", "w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        running.append(process)
        try:
            status = process.wait(timeout)
            code, lost = PASSED if status == 0 else FAILED, ""
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            code, lost = LOST, f"timed out: not done in {timeout:g} s"
    result = BoardResult(board, code, time.monotonic() - start, lost)
    if xml.exists():
        result.suite = next(parse(xml).iter("testsuite"))
    return result


def _write_junit(results: Sequence[BoardResult], path: Path) -> None:
    root = Element("testsuites")
    for result in results:
        suite, board = deepcopy(result.suite), result.board
        for case in suite.iter("testcase"):
            case.set("classname", f"{board.id}.{case.get('classname')}")
        if result.lost:
            case = SubElement(suite, "testcase", classname=board.id, name="is there")
            SubElement(case, "error", message=result.lost)
            suite.attrib.update(tests=str(len(result.cases) + 1), errors="1")
        suite.set("name", board.id)
        properties = suite.find("properties")
        if properties is None:
            properties = SubElement(suite, "properties")
        SubElement(properties, "property", name="platform", value=board.platform)
        root.append(suite)
    ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)


def page(results: Sequence[BoardResult]) -> str:
    rows = "".join(_row(result) for result in results)
    details = "".join(_details(result) for result in results)
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>tern: hardware in the loop</title>
<style>
body {{ font: 16px/1.4 sans-serif; margin: 2em auto; max-width: 60em; padding: 0 1.5em; color: #222 }}
table {{ border-collapse: collapse; width: 100% }} td, th {{ text-align: left; padding: .3em .6em;
border-bottom: 1px solid #ccc }}
.failed {{ color: #a00; font-weight: bold }} .skipped {{ color: #666 }} pre {{ overflow-x: auto; background: #f4f4f4 }}
</style>
<h1>Hardware in the loop</h1>
<p>{time.strftime("%Y-%m-%d %H:%M")}</p>
<table><tr><th>board<th>platform<th>firmware<th>tern<th>result<th>passed<th>failed<th>skipped<th>seconds</tr>
{rows}</table>
{details}
</html>
"""


def _row(result: BoardResult) -> str:
    cells = [
        result.board.id, result.properties.get("board", result.board.platform), result.properties.get("firmware", "?"),
        result.properties.get("tern", "?"), result.word, *map(str, result.counts.values()), f"{result.seconds:.0f}",
    ]  # fmt: skip
    return "<tr>" + "".join(f"<td>{html.escape(cell)}" for cell in cells) + "</tr>\n"


def _details(result: BoardResult) -> str:
    rows = "".join(
        f'<tr><td>{html.escape(name)}<td class="{state}">{state}<td>'
        + (f"<pre>{html.escape(message)}</pre>" if state == "failed" else html.escape(message))
        + "</tr>\n"
        for name, state, message in result.cases
    )
    notes = f"<p>{html.escape(result.board.notes)}</p>" if result.board.notes else ""
    lost = f'<p class="failed">{html.escape(result.lost)}</p>' if result.lost else ""
    return f"<h2>{html.escape(result.board.id)}: {result.word}</h2>{notes}{lost}<table>{rows}</table>\n"


def add_parser(subparsers: Any) -> None:
    parser = add_command(
        subparsers,
        "hil",
        "run the board tests on all boards of a hardware map at once",
        "tern hil --hardware-map boards.yaml\ntern hil --hardware-map boards.yaml --board pico-1 --json",
        _run,
    )
    codes = "Exit code: 0 if all tests passed, 1 if one failed, 2 if a board is missing or timed out."
    parser.description = f"{parser.description}\n{codes}"
    add_option(parser, "--hardware-map FILE", "a hardware map of Zephyr's twister", required=True)
    add_option(parser, "--board ID...", "run on this board only")
    add_option(parser, "--tests PATH...", "tests to run (default: those of tern)", type=Path)
    add_option(parser, "--timeout S", "time limit of a board in seconds", TIMEOUT)
    add_option(parser, "--sessions DIR", "write the report to a folder in DIR", "sessions")


def _run(args: argparse.Namespace) -> int:
    require_positive(args, "timeout")
    tests = tuple(args.tests or TESTS)
    boards_of(args.hardware_map, args.board)  # errors are reported before a session begins
    require_tests(tests)
    session = Session(args.sessions)

    with session.telling() as say:
        results = run(args.hardware_map, session.directory, tests, args.timeout, args.board, say)
    result = {
        "directory": str(session.directory),
        "boards": [
            {"id": one.board.id, "result": one.word.lower(), "lost": one.lost, **one.counts, **one.properties}
            for one in results
        ],
    }
    lines = [f"{one.board.id}: {one.word}" for one in results]
    print_result(result, "\n".join((*lines, f"report: {session.directory / 'report.html'}")), args.json)
    return worst(results)
