"""The tests of `tern hil` on one board, and their result."""

import re
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree.ElementTree import Element, parse

from ternhost.errors import TernError
from ternhost.reach.ports.link import open_port
from ternhost.terminal import Progress, duration
from terntools.emulators import catalogue
from terntools.testing import folders
from terntools.testing.hardware import MappedBoard

# Results of a board, and exit codes of `tern hil`.
PASSED, FAILED, LOST = 0, 1, 2

TESTS = (folders.DEVICE, folders.HIL)
TIMEOUT = 1800.0  # seconds of a board
_POLL = 2.0  # seconds


@dataclass(frozen=True)
class Case:
    """A test on a board: its state is "passed", "failed" or "skipped".

    message: why, or the value of a figure that passed.
    """

    name: str
    state: str
    message: str

    @classmethod
    def of(cls, element: Element) -> "Case":
        """Read a test's result from its element in JUnit's XML."""
        name = f"{element.get('classname')}::{element.get('name')}"
        for outcome in ("failure", "error"):
            failure = element.find(outcome)
            if failure is not None:
                message = f"{failure.get('message') or ''}\n{failure.text or ''}".strip()
                return cls(name, "failed", message)
        skipped = element.find("skipped")
        if skipped is not None:
            return cls(name, "skipped", (skipped.get("message") or "").strip())
        return cls(name, "passed", properties_of(element).get("value", ""))


@dataclass
class BoardResult:
    """How the tests of a board went. code: PASSED, FAILED or LOST. lost: why it was lost."""

    board: MappedBoard
    code: int = PASSED
    seconds: float = 0.0
    lost: str = ""
    suites: list[Element] = field(default_factory=list)  # of JUnit's XML

    @property
    def word(self) -> str:
        return ("passed", "FAILED", "LOST")[self.code]

    @property
    def cases(self) -> list[Case]:
        return [Case.of(element) for element in self._test_cases()]

    @property
    def counts(self) -> dict[str, int]:
        """The number of tests in each state."""
        states = [case.state for case in self.cases]
        return {state: states.count(state) for state in ("passed", "failed", "skipped")}

    @property
    def properties(self) -> dict[str, str]:
        """What the tests say about the board, such as its firmware."""
        properties: dict[str, str] = {}
        for suite in self.suites:
            properties.update(properties_of(suite))
        return properties

    @property
    def figures(self) -> dict[str, float]:
        """The measured figures of the board's expectations, by name."""
        figures = {}
        for element in self._test_cases():
            properties = properties_of(element)
            if "figure" in properties:
                figures[properties["figure"]] = float(properties["value"])
        return figures

    def _test_cases(self) -> list[Element]:
        elements: list[Element] = []
        for suite in self.suites:
            elements += suite.iter("testcase")
        return elements


def properties_of(element: Element) -> dict[str, str]:
    """The properties of a suite or a test case of JUnit's XML."""
    properties = {}
    for entry in element.iterfind("properties/property"):
        properties[entry.get("name", "")] = entry.get("value", "")
    return properties


@dataclass(frozen=True)
class Plan:
    """What runs on every board of a map, and where the results go.

    timeout: seconds for all tests of a board. stopped: is set when the command was interrupted.
    """

    hardware_map: str | Path
    directory: Path
    tests: Sequence[Path] = TESTS
    timeout: float = TIMEOUT
    stopped: threading.Event = field(default_factory=threading.Event)


def run_board(board: MappedBoard, plan: Plan, progress: Progress) -> BoardResult:
    """Run the tests and, if the map expects any, the figures of a board.

    A board is lost if its port cannot be opened, or if it takes longer than the plan allows.
    """
    if board.serial is not None:
        try:
            open_port(board.serial, board.baud).close()
        except TernError as error:
            return BoardResult(board, LOST, lost=error.message)

    # Each with the settings of pytest that are beside its files.
    parts = {"tests": plan.tests}
    if board.expect:
        parts["figures"] = (folders.FIGURES,)

    result = BoardResult(board)
    start = time.monotonic()
    for part, paths in parts.items():
        junit_file = plan.directory / f"{board.id}-{part}.xml"
        exit_code = _run_pytest(
            board, plan, (part, paths, junit_file), start + plan.timeout, progress
        )
        if exit_code is None:
            result.code = LOST
            result.lost = f"timed out: not done in {plan.timeout:g} s"
            break
        if exit_code != 0:
            result.code = FAILED
        if junit_file.exists():
            result.suites += parse(junit_file).iter("testsuite")
    result.seconds = time.monotonic() - start
    return result


def _run_pytest(
    board: MappedBoard,
    plan: Plan,
    part: tuple[str, Sequence[Path], Path],
    give_up_at: float,
    progress: Progress,
) -> int | None:
    """Run pytest over one part of a board's tests; return its exit code, None if it was stopped.

    part: its name, its paths, and the file for JUnit's XML. give_up_at: of time.monotonic().
    """
    name, paths, junit_file = part
    log = junit_file.with_suffix(".log")
    with open(log, "w") as output:
        command = _command(board, plan, paths, junit_file)
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    start_time = time.time()
    while process.poll() is None and not plan.stopped.is_set() and time.monotonic() < give_up_at:
        with suppress(subprocess.TimeoutExpired):
            process.wait(min(_POLL, plan.timeout))
        progress.step(f"{board.id}: {name}{_share_done(log, time.time() - start_time)}")

    if process.poll() is None:
        process.kill()
        process.wait()
        return None
    return process.returncode


def _command(
    board: MappedBoard, plan: Plan, paths: Sequence[Path], junit_file: Path
) -> list[str | Path]:
    """Return the command that runs pytest on these paths for a board."""
    command: list[str | Path] = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider"]
    command += [f"--junitxml={junit_file}", f"--junit-prefix={board.id}"]
    command += ["-o", "junit_family=xunit1"]  # which has properties of tests
    command += ["-o", f"junit_suite_name={board.id}", "--not-on-cpython"]
    command += ["--hardware-map", plan.hardware_map, "--hardware-id", board.id]
    command += paths
    if board.serial is None:
        command += ["--target", catalogue.name_of(board.platform) or ""]
    else:
        command += ["--target", "board", "--port", board.serial]
    command += ["--baud", str(board.baud)]
    if all(_is_ours(path) for path in paths):
        command += folders.PYTEST_OPTIONS
    return command


def _is_ours(path: Path) -> bool:
    return any(path.resolve().is_relative_to(folder) for folder in TESTS)


def _share_done(log: Path, seconds: float) -> str:
    """Describe how far pytest is, by its log, and how much time is left; "" at first.

    seconds: since pytest began.
    """
    percents = re.findall(r"\[ *(\d+)%\]$", log.read_text(errors="replace"), re.MULTILINE)
    percent = int(percents[-1]) if percents else 0
    if percent == 0:
        return ""
    since_last_test = time.time() - log.stat().st_mtime
    seconds_left = (seconds - since_last_test) * (100 - percent) / percent - since_last_test
    return f", {percent} %, about {duration(max(0.0, seconds_left))} left"
