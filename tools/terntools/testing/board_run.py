"""Runs the tests of `tern hil` (hardware in the loop) on one board, and reads their result."""

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

# Results of a board, which are also exit codes of `tern hil`. A board is lost if it is not there or
# takes too long.
PASSED, FAILED, LOST = 0, 1, 2

TESTS = (folders.DEVICE, folders.HIL)
TIMEOUT = 1800.0  # seconds for all tests of a board
_POLL = 2.0  # seconds between two looks at the progress of the tests


@dataclass(frozen=True)
class Case:
    """The result of one test on a board.

    state: "passed", "failed" or "skipped". message: why it failed or was skipped, or the measured value
    of a figure of the board that passed.
    """

    name: str
    state: str
    message: str

    @classmethod
    def of(cls, element: Element) -> "Case":
        """Read the result of a test from its element `testcase` in pytest's XML file (JUnit's format)."""
        name = f"{element.get('classname')}::{element.get('name')}"
        for outcome in ("failure", "error"):
            failure = element.find(outcome)
            if failure is not None:
                message = f"{failure.get('message') or ''}\n{failure.text or ''}"
                return cls(name, "failed", message.strip())
        skipped = element.find("skipped")
        if skipped is not None:
            reason = skipped.get("message") or ""
            return cls(name, "skipped", reason.strip())
        measured_value = properties_of(element).get("value", "")
        return cls(name, "passed", measured_value)


@dataclass
class BoardResult:
    """How the tests of a board went.

    code: PASSED, FAILED or LOST. seconds: that they took. lost: why the board is lost; "" if it is not.
    suites: the elements `testsuite` of pytest's XML files.
    """

    board: MappedBoard
    code: int = PASSED
    seconds: float = 0.0
    lost: str = ""
    suites: list[Element] = field(default_factory=list)

    @property
    def word(self) -> str:
        """The result in a word, for people."""
        words = {PASSED: "passed", FAILED: "FAILED", LOST: "LOST"}
        return words[self.code]

    @property
    def cases(self) -> list[Case]:
        """The result of each test."""
        return [Case.of(element) for element in self._test_cases()]

    @property
    def counts(self) -> dict[str, int]:
        """The number of tests in each state."""
        states = [case.state for case in self.cases]
        return {state: states.count(state) for state in ("passed", "failed", "skipped")}

    @property
    def properties(self) -> dict[str, str]:
        """What the tests have recorded about the board, such as the version of its firmware."""
        properties: dict[str, str] = {}
        for suite in self.suites:
            properties.update(properties_of(suite))
        return properties

    @property
    def figures(self) -> dict[str, float]:
        """The values that were measured on the board, by figure, such as "latency-us"."""
        figures = {}
        for element in self._test_cases():
            properties = properties_of(element)
            if "figure" in properties:
                figures[properties["figure"]] = float(properties["value"])
        return figures

    def _test_cases(self) -> list[Element]:
        """Return the XML element of each test."""
        elements: list[Element] = []
        for suite in self.suites:
            elements += suite.iter("testcase")
        return elements


def properties_of(element: Element) -> dict[str, str]:
    """Return the properties that a test has recorded, from the XML element of a suite or a test."""
    properties = {}
    for entry in element.iterfind("properties/property"):
        properties[entry.get("name", "")] = entry.get("value", "")
    return properties


@dataclass(frozen=True)
class Plan:
    """What runs on every board of a hardware map, and where the results go.

    hardware_map: the file that lists the boards. directory: of the results. tests: files or folders of
    tests. timeout: seconds for all tests of a board. stopped: is set when the user has interrupted the
    command.
    """

    hardware_map: str | Path
    directory: Path
    tests: Sequence[Path] = TESTS
    timeout: float = TIMEOUT
    stopped: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True)
class Part:
    """A part of the tests of a board, which one process of pytest runs.

    paths: the files and folders of the tests.
    """

    name: str
    paths: Sequence[Path]

    def junit_file(self, board: MappedBoard, plan: Plan) -> Path:
        """Return the XML file (in JUnit's format) in which pytest writes the results."""
        return plan.directory / f"{board.id}-{self.name}.xml"


def run_board(board: MappedBoard, plan: Plan, progress: Progress) -> BoardResult:
    """Run the tests on a board, and measure its figures if the hardware map expects any.

    A figure is a measured value, such as the latency of a report. A board is lost if its port
    cannot be opened, or if it takes longer than the plan allows.
    """
    if board.serial is not None:
        try:
            open_port(board.serial, board.baud).close()
        except TernError as error:
            return BoardResult(board, LOST, lost=error.message)

    # pytest runs once for each part, since each has settings of its own beside its files.
    parts = [Part("tests", plan.tests)]
    if board.expect:
        parts.append(Part("figures", (folders.FIGURES,)))

    result = BoardResult(board)
    start = time.monotonic()
    for part in parts:
        exit_code = _run_pytest(board, plan, part, start + plan.timeout, progress)
        if exit_code is None:
            result.code = LOST
            result.lost = f"timed out: not done in {plan.timeout:g} s"
            break
        if exit_code != 0:
            result.code = FAILED
        junit_file = part.junit_file(board, plan)
        if junit_file.exists():
            result.suites += parse(junit_file).iter("testsuite")
    result.seconds = time.monotonic() - start
    return result


def _run_pytest(
    board: MappedBoard, plan: Plan, part: Part, give_up_at: float, progress: Progress
) -> int | None:
    """Run pytest over a part of a board's tests, and return its exit code.

    The result is None if it was stopped, by the user or since it took too long. give_up_at: when it
    takes too long, in time.monotonic().
    """
    log = part.junit_file(board, plan).with_suffix(".log")
    with open(log, "w") as output:
        command = _command(board, plan, part)
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    start_time = time.time()
    while process.poll() is None:
        is_late = time.monotonic() >= give_up_at
        if is_late or plan.stopped.is_set():
            process.kill()
            process.wait()
            return None
        with suppress(subprocess.TimeoutExpired):
            process.wait(min(_POLL, plan.timeout))
        share = _share_done(log, time.time() - start_time)
        progress.step(f"{board.id}: {part.name}{share}")
    return process.returncode


def _command(board: MappedBoard, plan: Plan, part: Part) -> list[str | Path]:
    """Return the command that runs pytest over a part of a board's tests."""
    command: list[str | Path] = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider"]
    # The results: "xunit1" is the format of XML in which tests can record properties.
    command += [f"--junitxml={part.junit_file(board, plan)}", f"--junit-prefix={board.id}"]
    command += ["-o", "junit_family=xunit1", "-o", f"junit_suite_name={board.id}"]
    # The tests, and the board: an emulated one, or one at a port.
    command += ["--not-on-cpython"]
    command += ["--hardware-map", plan.hardware_map, "--hardware-id", board.id]
    command += part.paths
    if board.serial is None:
        command += ["--target", catalogue.name_of(board.platform) or ""]
    else:
        command += ["--target", "board", "--port", board.serial]
    command += ["--baud", str(board.baud)]
    # A user's own tests have settings of their own beside them.
    if all(_is_ours(path) for path in part.paths):
        command += folders.PYTEST_OPTIONS
    return command


def _is_ours(path: Path) -> bool:
    """Return whether a file or folder of tests is among those of tern."""
    return any(path.resolve().is_relative_to(folder) for folder in TESTS)


def _share_done(log: Path, seconds: float) -> str:
    """Describe how far pytest is, and how much time is left; "" before the first test is done.

    log: the file with its output, in which a line for each test ends with the percentage that is
    done, such as "[ 25%]". seconds: since it began.
    """
    percents = re.findall(r"\[ *(\d+)%\]$", log.read_text(errors="replace"), re.MULTILINE)
    percent = int(percents[-1]) if percents else 0
    if percent == 0:
        return ""
    # The percentage was true when the last line was written.
    since_last_test = time.time() - log.stat().st_mtime
    seconds_so_far = seconds - since_last_test
    seconds_left = seconds_so_far * (100 - percent) / percent - since_last_test
    return f", {percent} %, about {duration(max(0.0, seconds_left))} left"
