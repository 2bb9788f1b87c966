"""Runs the tests of the device library on MicroPython.

They are the functions in tests/device/test_*.py, which pytest also runs on CPython. A target is
something that runs them: MicroPython on this machine, an emulated board, or a real one.
"""

import ast
import os
import re
import secrets
import shutil
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from ternhost.errors import UsageError
from ternhost.reach.ports.link import BAUD
from terntools.boards import file_changes, installing, machines, mpy, software
from terntools.boards.prompt_errors import GoneError, SilenceError
from terntools.boards.repl import Repl
from terntools.emulators import catalogue, flash_image, micropython, newest, webassembly
from terntools.emulators.unix_fleet import FIRMWARE
from terntools.testing import prepared_flash, webassembly_lacks
from terntools.testing.folders import SPEC, VECTORS

_RUNNER = Path(__file__).with_name("device_runner.py")
TIMEOUT = 120.0  # seconds for a test
# An emulated board gets so many times as long, since other work may keep this machine busy.
_EMULATION = 5
_WEBASSEMBLY_HEAP = 192 << 10  # bytes, as on the emulated device; there it grows


@dataclass(frozen=True)
class Outcome:
    """The outcome of one test function, what it printed, and the seconds that it took."""

    name: str
    passed: bool
    output: str
    seconds: float = 0.0


@dataclass(frozen=True)
class Transcript:
    """What a target printed in one test.

    timed_out: the test took too long and was stopped. gone: the target does not answer any more, and
    can run no other test of the file.
    """

    text: str
    timed_out: bool = False
    gone: bool = False


RunTest = Callable[[str, str, float], Transcript]
"""Runs a test function of a file on a target: run(mark, name, timeout).

mark: a word that begins the lines about the outcome, see device_runner. name: of the function.
timeout: seconds.
"""


class Target(ABC):
    """Something with MicroPython on it that runs test files.

    Each test has an interpreter of its own, so that it finds the same heap whichever tests ran before,
    and wherever the files are. name: of the target, on the command line. one_of: of each group of test
    vectors it runs one of so many cases; 1: all.
    """

    name: str
    one_of = 1

    @abstractmethod
    def prepared(self, path: Path) -> AbstractContextManager[RunTest]:
        """Return a context in which the target has a test file; it yields what runs the file's functions."""

    def close(self) -> None:
        """Close the target's port, if it has one."""


class ProcessTarget(Target):
    """MicroPython as a process of this machine, one for each test.

    patience: a test gets so many times as long as on a board.
    """

    patience = 1

    @abstractmethod
    def _fill(self, folder: Path, path: Path) -> None:
        """Put what the tests of a file need into a folder.

        folder: empty. path: of the test file.
        """

    @abstractmethod
    def _command(self, folder: Path, program: str) -> list[str]:
        """Return the command that runs a Python program with the files of the folder."""

    @contextmanager
    def prepared(self, path: Path) -> Iterator[RunTest]:
        """Yield a function that runs a test of the file in a process of its own.

        path: of the test file.
        """
        with tempfile.TemporaryDirectory(prefix="tern-test-") as folder:
            self._fill(Path(folder), path)
            # The paths are relative to the folder in which the runner works, one below.
            module_path = os.pathsep.join(["../library", "../device", "../tests", ".frozen"])

            def run(mark: str, name: str, timeout: float) -> Transcript:
                """Run the test function `name`. mark: begins the runner's own lines of output."""
                try:
                    process = subprocess.run(
                        self._command(Path(folder), _program(mark, path, name)),
                        cwd=folder,
                        env={**os.environ, "MICROPYPATH": module_path},
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.PIPE,
                        stderr=subprocess.STDOUT,
                        timeout=timeout * self.patience,
                    )
                except subprocess.TimeoutExpired as late:
                    output = late.output or b""  # None if it has printed nothing
                    return Transcript(output.decode(errors="replace"), timed_out=True)
                return Transcript(process.stdout.decode(errors="replace"))

            yield run


class UnixTarget(ProcessTarget):
    """The emulated device: a 32-bit MicroPython with as much heap as a board has."""

    name = "unix"

    def __init__(self, find: Callable[[], Path | None] = micropython.find_micropython) -> None:
        """Find the interpreter. find: returns its path."""
        interpreter = find()
        assert interpreter is not None  # else `absence` leaves out the tests
        self._interpreter = interpreter

    def _fill(self, folder: Path, path: Path) -> None:
        # MicroPython keeps the path of each module on the heap. The files have links, so that
        # their paths are as long on every machine.
        links = {
            _RUNNER.name: _RUNNER,
            "library": FIRMWARE,
            "device": path.resolve().parent,
            "tests": SPEC.parent,
        }
        for name, target in links.items():
            (folder / name).symlink_to(target)

    def _command(self, folder: Path, program: str) -> list[str]:
        return micropython.device_command(self._interpreter, "-c", program)


class WebAssemblyTarget(ProcessTarget):
    """MicroPython's newest release, in which viper functions run as their plain twins."""

    name = "webassembly"
    patience = _EMULATION

    def _fill(self, folder: Path, path: Path) -> None:
        sources = {f"device/{source.name}": source for source in _sources(path)}
        for source in FIRMWARE.rglob("*.py"):
            sources[f"library/{source.relative_to(FIRMWARE)}"] = source
        files = {
            name: webassembly.plain_twin(source.read_text()) for name, source in sources.items()
        }
        files[f"library/{webassembly.PLAIN_WORDS.name}"] = webassembly.PLAIN_WORDS.read_text()
        for source in SPEC.glob("*.py"):
            files[f"tests/spec/{source.name}"] = source.read_text()
        for name, cases in _vectors(_sources(path), self.one_of).items():
            files[f"device/vector_files/{name}"] = cases
        for name, text in files.items():
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)

    def _command(self, folder: Path, program: str) -> list[str]:
        return webassembly.command(folder, program, _WEBASSEMBLY_HEAP)


class BoardTarget(Target):
    """A board at a serial port.

    The device library and the tests are put on it, compiled for its processor.
    """

    name = "board"

    def __init__(self, port: str, baud: int = BAUD) -> None:
        """Install the device library on the board at a port, which this target then keeps open."""
        self._repl = Repl(port, baud, visits=True)
        try:
            self._repl.enter()
            self._repl.soft_reset()
            self._machine = machines.Machine.of(self._repl)
            files = prepared_flash.library_files(self._machine)
            changes = file_changes.compare(self._repl, files, prune=software.LIBRARY)
            installing.install(self._repl, self._machine, changes)
        except BaseException:
            self._repl.close()
            raise

    @contextmanager
    def prepared(self, path: Path) -> Iterator[RunTest]:
        """Put a test file on the board; yield a function that runs a test of it there."""
        files = test_files(path, self._machine.processor, self.one_of)
        file_changes.apply(self._repl, file_changes.compare(self._repl, files))
        yield partial(_run, self._repl, path)

    def close(self) -> None:
        self._repl.close()


def _program(mark: str, path: Path, name: str) -> str:
    """Return the Python source that runs the test function `name` of a file with device_runner."""
    return f"from device_runner import run\nrun({mark!r}, {path.stem!r}, {name!r})\n"


def _run(repl: Repl, path: Path, mark: str, name: str, timeout: float) -> Transcript:
    """Run a test function on a board, in a fresh interpreter after a soft reset.

    A test that takes too long is interrupted. repl: the board's console. path: of the test file.
    mark: a word that begins the lines about the outcome. timeout: seconds.
    """
    output = ""
    try:
        repl.soft_reset()
        output, traceback = repl.execute(_program(mark, path, name), timeout)
        return Transcript(output + traceback)
    except GoneError as gone:
        return Transcript(output + gone.output, gone=True)
    except SilenceError as silence:
        output += silence.output
    # The test took too long. A board that does not come back to its prompt is gone, too.
    try:
        repl.enter()
    except SilenceError:
        return Transcript(output, timed_out=True, gone=True)
    return Transcript(output, timed_out=True)


class EmulatedTarget(Target):
    """An emulated board: a new one for each file, with the library and the tests on its flash."""

    def __init__(self, name: str, processor: str | None = None) -> None:
        """Prepare the flash of the boards, with the device library on it.

        name: of the board, see catalogue. processor: compile the code for this one, as mpy-cross calls it,
        which the board's own processor can run as well; None: for the board's own.
        """
        self.name = name
        self._deployed = prepared_flash.deployed(name, processor)

    @contextmanager
    def prepared(self, path: Path) -> Iterator[RunTest]:
        """Yield a function that runs a test of the file on a new board."""
        with tempfile.TemporaryDirectory(prefix="tern-test-") as folder:
            flash = Path(folder, "flash.bin")
            shutil.copyfile(self._deployed.flash, flash)
            flash_image.add(flash, test_files(path, self._deployed.processor, self.one_of))
            with catalogue.boot(self.name, flash, skip_idle=True) as board, Repl(board.url) as repl:

                def run(mark: str, name: str, timeout: float) -> Transcript:
                    """Run the test function `name`, with more time than a board gets."""
                    return _run(repl, path, mark, name, timeout * _EMULATION)

                yield run


def test_files(path: Path, processor: str, one_of: int) -> dict[str, bytes]:
    """Return the files that a board needs for the test file `path`, contents by path on the board.

    They are the test file, the modules with helpers beside it, the shared encoders of tests/spec that
    it imports, and the files of test vectors that it names. processor: to compile for, as mpy-cross
    calls it. one_of: of each group of vectors one of so many cases is there; 1: all.
    """
    source_files = _sources(path)
    files = {}
    for source in source_files:
        files[f"/lib/{source.stem}.mpy"] = _compile(source, processor)

    all_text = "".join(source.read_text() for source in source_files)
    for source in SPEC.glob("*.py"):
        if f"from spec.{source.stem} import" in all_text:
            files[f"/lib/spec/{source.stem}.mpy"] = _compile(source, processor)
    for name, cases in _vectors(source_files, one_of).items():
        files[f"/lib/vector_files/{name}"] = cases.encode()
    return files


def _sources(path: Path) -> list[Path]:
    """Return the modules that the test file `path` runs with: itself, the runner, and helpers beside it."""
    sources = [_RUNNER, path]
    for source in path.parent.glob("*.py"):
        if not source.name.startswith(("test_", "conftest")):
            sources.append(source)
    return sources


def _vectors(sources: Sequence[Path], one_of: int) -> dict[str, str]:
    """Return the files of test vectors that some modules name, texts by name.

    one_of: of each group of vectors one of so many cases is there; 1: all.
    """
    all_text = "".join(source.read_text() for source in sources)
    texts = {}
    for vectors in VECTORS.glob("*.json"):
        if vectors.name in all_text:
            texts[vectors.name] = sample(vectors.read_text(), one_of)
    return texts


def sample(vectors: str, one_of: int) -> str:
    """Return the text of a file of test vectors with only one of every `one_of` cases.

    vectors: the text of the whole file, JSON with a case in each line. Cases are left out group by
    group; a group is an array in the file. At least _FEW cases of a group are kept, if it has as
    many.
    """

    def sample_group(group: re.Match[str]) -> str:
        """Return some of a group's lines, with commas between them."""
        # The comma after a case is added again between those that are kept.
        lines = group[0].replace("},\n", "}\n").splitlines()
        every = min(one_of, len(lines) // _FEW)
        kept_lines = lines[:: max(1, every)]
        return ",\n".join(kept_lines) + "\n"

    # A group is a series of lines that begin with two spaces and a brace.
    return re.sub(r"(?:^  \{.*\n)+", sample_group, vectors, flags=re.MULTILINE)


def _compile(source: Path, processor: str) -> bytes:
    """Return a source file compiled for a processor, as mpy-cross calls it."""
    return mpy.compiled(source.read_text(), processor, source.name)


# Features that not every target has. A test file says in its constant NEEDS which it needs.
SOCKETS = "sockets"
ENDURANCE = "endurance"
_NEEDS = (SOCKETS, ENDURANCE)


@dataclass(frozen=True)
class Kind:
    """A kind of target, and what does not run on it.

    make: returns a new target. lacks: features that the target does not have, with the reason. The
    others apply unless --exhaustive is given. spared: features whose tests are skipped, with the
    reason. cannot_run: tests that the target cannot run for other reasons, "FILE::TEST", with the
    reason. only_vectors: only the tests of test vectors run. one_of: of each group of vectors, one of
    so many cases runs; 1: all.
    """

    make: Callable[[], Target]
    lacks: Mapping[str, str] = field(default_factory=dict)
    spared: Mapping[str, str] = field(default_factory=dict)
    cannot_run: Mapping[str, str] = field(default_factory=dict)
    only_vectors: bool = False
    one_of: int = 1


_FEW = 4  # the least number of cases that sample() keeps of a group
_THOUSANDS = "thousands of rounds, which faster targets run"
_IF_EXHAUSTIVE = {ENDURANCE: f"{_THOUSANDS}: --exhaustive"}
_NO_NETWORK = {SOCKETS: "the emulated Cortex-M33 has no network"}
_PICO_LACKS = {SOCKETS: "a Pico without Wi-Fi has no sockets", ENDURANCE: _THOUSANDS}


def _sampled(name: str, lacks: Mapping[str, str]) -> Kind:
    """Return a kind of emulated board that runs a sample of the vectors and, with --exhaustive, all tests.

    name: of the board, see catalogue. lacks: features that it does not have, with the reason.
    """
    return Kind(partial(EmulatedTarget, name), lacks, only_vectors=True, one_of=16)


# The kinds of targets by name, the slowest first. The pytest plugin adds a real board, if --port
# names one.
KINDS = {
    "pico": _sampled("pico", _PICO_LACKS),
    "xtensa": _sampled("xtensa", {}),
    "m33": _sampled("m33", _NO_NETWORK),
    "rv32": _sampled("rv32", {}),
    # A Pico's code on a Cortex-M33, which executes all of ARMv6-M: at a fraction of the whole
    # chip's cost.
    "armv6m": Kind(partial(EmulatedTarget, "m33", "armv6m"), _NO_NETWORK, _IF_EXHAUSTIVE, one_of=8),
    "rv32-newest": Kind(partial(EmulatedTarget, "rv32-newest")),
    "xtensa-newest": Kind(partial(EmulatedTarget, "xtensa-newest")),
    "m33-newest": Kind(partial(EmulatedTarget, "m33-newest"), _NO_NETWORK),
    "armv6m-newest": Kind(partial(EmulatedTarget, "m33-newest", "armv6m"), _NO_NETWORK),
    "webassembly": Kind(
        WebAssemblyTarget, webassembly_lacks.FEATURES, cannot_run=webassembly_lacks.TESTS, one_of=8
    ),
    "unix-newest": Kind(partial(UnixTarget, micropython.find_newest)),
    "unix": Kind(UnixTarget),
}
BOARD_LACKS = {
    SOCKETS: "not every board has sockets",
    ENDURANCE: "thousands of rounds wear out its flash",
}


def absence(name: str) -> str | None:
    """Return why a target is not there; None if it is there, or if its absence is an error.

    Targets of the newest MicroPython may be absent: its source changes, and may not build.
    """
    if name.endswith(newest.SUFFIX) and not newest.is_built():
        return f"{name} is not built: tern emulator build newest"
    return None


def needs(path: Path) -> dict[str, str]:
    """Return which feature each test of a file needs, by the name of the test.

    The file says so in NEEDS: a table by test, or the name of one feature that all its tests need.
    Raises UsageError for a feature that does not exist.
    """
    names, value = _read_tests(path.read_text())
    needed: dict[str, str] = value
    if isinstance(value, str):
        needed = dict.fromkeys(names, value)
    for feature in sorted(needed.values()):
        if feature not in _NEEDS:
            raise UsageError(f"{path}: NEEDS knows {', '.join(_NEEDS)}, and not {feature}")
    return needed


def selected(path: Path, only_vectors: bool = False) -> list[str]:
    """Return the names of the tests of a file.

    only_vectors: leave out all but the tests of test vectors, which have "vectors" in their names.
    """
    names, _ = _read_tests(path.read_text())
    if only_vectors:
        return [name for name in names if "vectors" in name]
    return names


@cache
def _read_tests(text: str) -> tuple[list[str], Any]:
    """Return the names of the test functions in the text of a file, and the value of its NEEDS.

    The value is empty if the file has no NEEDS.
    """
    names: list[str] = []
    needs: Any = {}
    for node in ast.parse(text).body:
        match node:
            case ast.FunctionDef(name=name) if name.startswith("test_"):
                names.append(name)
            case ast.Assign(targets=[ast.Name(id="NEEDS")], value=value):
                needs = ast.literal_eval(value)
    return names, needs


def run_file(
    target: Target, path: Path, names: Sequence[str], timeout: float = TIMEOUT
) -> list[Outcome]:
    """Run test functions of a file on a target; return the outcome of each, in order.

    names: of the functions. timeout: seconds for each. If the target is gone after one of them, the
    others fail without being run.
    """
    # A new word each time, so that nothing that the target printed before passes for an outcome.
    mark = f"@tern-{secrets.token_hex(4)}"
    outcomes: list[Outcome] = []
    stopped_in = ""
    with target.prepared(path) as run:
        for name in names:
            if stopped_in:
                outcomes.append(Outcome(name, False, f"not run: stopped in {stopped_in}"))
                continue
            start = time.monotonic()
            transcript = run(mark, name, timeout)
            seconds = time.monotonic() - start
            outcomes.append(replace(_outcome(mark, name, transcript), seconds=seconds))
            if transcript.gone:
                stopped_in = name
    return outcomes


def _outcome(mark: str, name: str, transcript: Transcript) -> Outcome:
    """Find the outcome of a test in what the target printed.

    mark: a word that begins the lines about outcomes. A test without such a line has failed.
    """
    started = False
    output: list[str] = []
    for line in transcript.text.splitlines():
        if line == f"{mark} start {name}":
            started = True
            output = []
        elif started and line == f"{mark} pass {name}":
            return Outcome(name, True, "\n".join(output))
        elif started and line == f"{mark} fail {name}":
            return Outcome(name, False, "\n".join(output))
        else:
            output.append(line)
    why = "no answer in time" if transcript.timed_out else "the device stopped before the end"
    return Outcome(name, False, "\n".join([*output, why]))


def with_source(output: str, path: Path) -> str:
    """Add the line of source under each line of a traceback in MicroPython's output.

    path: of the test file. Only lines of the traceback that point into it get one.
    """
    source = path.read_text().splitlines()
    lines = []
    for line in output.splitlines():
        lines.append(line)
        location = re.match(r'\s*File "([^"]*)", line (\d+)', line)
        if location is None or Path(location[1]).stem != path.stem:
            continue
        line_number = int(location[2])
        if 0 < line_number <= len(source):
            lines.append("    " + source[line_number - 1].strip())
    return "\n".join(lines)
