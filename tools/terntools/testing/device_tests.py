"""Runs tests/device/test_*.py on MicroPython: the same files, plain functions, as under pytest."""

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
from terntools.boards import deploy, mpy
from terntools.boards.repl import GoneError, Repl, SilenceError
from terntools.emulators import catalogue, flash_image, micropython, qemu
from terntools.emulators.unix_fleet import FIRMWARE
from terntools.testing import prepared_flash
from terntools.testing.folders import SPEC, VECTORS

_RUNNER = Path(__file__).with_name("device_runner.py")
TIMEOUT = 120.0
_EMULATION = 5  # times as long as a board, where other work keeps this machine busy


@dataclass(frozen=True)
class Outcome:
    """Outcome of one test function, its output, and the seconds that it took."""

    name: str
    passed: bool
    output: str
    seconds: float = 0.0


@dataclass(frozen=True)
class Transcript:
    """Output of a target in one test.

    timed_out: the test had to be stopped. gone: the target runs no other test of the file.
    """

    text: str
    timed_out: bool = False
    gone: bool = False


# Runs one function of a test file with terntools.testing.device_runner: run(mark, name, timeout).
RunTest = Callable[[str, str, float], Transcript]


class Target(ABC):
    """Something with MicroPython on it that runs test files.

    Each test has an interpreter of its own: it finds the same heap whichever tests ran before, and
    wherever the files are.
    """

    name: str
    one_of = 1  # it runs one of this number of cases in each group of vectors

    @abstractmethod
    def prepared(self, path: Path) -> AbstractContextManager[RunTest]:
        """A context with what runs the functions of the test file `path`."""

    def close(self) -> None:
        """Give its port back, if it holds one."""


class UnixTarget(Target):
    """The 32-bit MicroPython of the emulated device, with a board's heap; a process a test."""

    name = "unix"

    def __init__(self) -> None:
        self._interpreter = micropython.find_micropython()

    @contextmanager
    def prepared(self, path: Path) -> Iterator[RunTest]:
        """Yield a function that runs a test of the file in a process of its own."""
        with tempfile.TemporaryDirectory(prefix="tern-test-") as folder:
            # MicroPython keeps the path of each module on the heap. So it sees links, whose names
            # have one length.
            links = {
                _RUNNER.name: _RUNNER,
                "library": FIRMWARE,
                "device": path.resolve().parent,
                "tests": SPEC.parent,
            }
            for name, target in links.items():
                Path(folder, name).symlink_to(target)
            # The runner works in a folder of its own, one below.
            module_path = os.pathsep.join(["../library", "../device", "../tests", ".frozen"])

            def run(mark: str, name: str, timeout: float) -> Transcript:
                """Run the test function `name`. mark: begins the runner's own lines of output."""
                program = _program(mark, path, name)
                command = micropython.device_command(self._interpreter, "-c", program)
                try:
                    process = subprocess.run(
                        command,
                        cwd=folder,
                        env={**os.environ, "MICROPYPATH": module_path},
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.PIPE,
                        stderr=subprocess.STDOUT,
                        timeout=timeout,
                    )
                except subprocess.TimeoutExpired as late:
                    return Transcript((late.output or b"").decode(errors="replace"), timed_out=True)
                return Transcript(process.stdout.decode(errors="replace"))

            yield run


class BoardTarget(Target):
    """A board at a serial port.

    The library and the tests are put on it as .mpy for its processor.
    """

    name = "board"

    def __init__(self, port: str, baud: int = BAUD) -> None:
        """Deploy the library on the board at a port, which this target then keeps open."""
        self._repl = Repl(port, baud, visits=True)
        try:
            self._repl.enter()
            self._repl.soft_reset()
            self._machine = deploy.Machine.of(self._repl)
            files = prepared_flash.library_files(self._machine)
            changes = deploy.compare(self._repl, files, prune=deploy.LIBRARY)
            deploy.install(self._repl, self._machine, changes)
        except BaseException:
            self._repl.close()
            raise

    @contextmanager
    def prepared(self, path: Path) -> Iterator[RunTest]:
        files = test_files(path, self._machine.processor, self.one_of)
        deploy.apply(self._repl, deploy.compare(self._repl, files))
        yield partial(_run, self._repl, path)

    def close(self) -> None:
        self._repl.close()


def _program(mark: str, path: Path, name: str) -> str:
    return f"from device_runner import run\nrun({mark!r}, {path.stem!r}, {name!r})\n"


def _run(repl: Repl, path: Path, mark: str, name: str, timeout: float) -> Transcript:
    """Run a test in the fresh interpreter after a soft reset; one that hangs is interrupted."""
    output = ""
    try:
        repl.soft_reset()
        output, traceback = repl.execute(_program(mark, path, name), timeout)
        return Transcript(output + traceback)
    except GoneError as gone:
        return Transcript(output + gone.output, gone=True)
    except SilenceError as silence:
        output += silence.output
    try:
        repl.enter()
    except SilenceError:
        return Transcript(output, timed_out=True, gone=True)
    return Transcript(output, timed_out=True)


class EmulatedTarget(Target):
    """An emulated board: a new one for each file, with the library and the tests on its flash."""

    def __init__(self, name: str, processor: str | None = None) -> None:
        """processor: the one whose code it runs instead of its own."""
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
    """Return the files that a board needs for the test file `path`, by their paths on it.

    These are the file itself, helpers beside it, encoders of SPEC, and a `sample` of its vectors.
    processor: as mpy-cross calls it.
    """
    source_files = [_RUNNER, path]
    for source in path.parent.glob("*.py"):
        if not source.name.startswith(("test_", "conftest")):
            source_files.append(source)
    files = {f"/lib/{source.stem}.mpy": _compile(source, processor) for source in source_files}

    all_text = "".join(source.read_text() for source in source_files)
    for source in SPEC.glob("*.py"):
        if f"from spec.{source.stem} import" in all_text:
            files[f"/lib/spec/{source.stem}.mpy"] = _compile(source, processor)
    for vectors in VECTORS.glob("*.json"):
        if vectors.name in all_text:
            cases = sample(vectors.read_text(), one_of)
            files[f"/lib/vector_files/{vectors.name}"] = cases.encode()
    return files


def sample(vectors: str, one_of: int) -> str:
    """Return a vector file, which has a case in each line, with one of every `one_of` cases.

    Cases are left out group by group. Of a group of few cases there are more: at least _FEW of
    them.
    """

    def sample_group(group: re.Match[str]) -> str:
        """Return some lines of a group, with commas between them."""
        cases = group[0].replace("},\n", "}\n").splitlines()
        every = max(1, min(one_of, len(cases) // _FEW))
        return ",\n".join(cases[::every]) + "\n"

    return re.sub(r"(?:^  \{.*\n)+", sample_group, vectors, flags=re.MULTILINE)


def _compile(source: Path, processor: str) -> bytes:
    return mpy.compiled(source.read_text(), processor, source.name)


# Features that not every target has; a test file says in NEEDS which it needs.
SOCKETS = "sockets"
ENDURANCE = "endurance"
_NEEDS = (SOCKETS, ENDURANCE)


@dataclass(frozen=True)
class Kind:
    """A kind of target.

    make: makes one. lacks: features that it has not, and why. The others hold without --exhaustive:
    spared: features whose tests do not run, and why. only_vectors: of each file, only the tests of
    vectors run. one_of: it runs one of this number of cases of vectors.
    """

    make: Callable[[], Target]
    lacks: Mapping[str, str] = field(default_factory=dict)
    spared: Mapping[str, str] = field(default_factory=dict)
    only_vectors: bool = False
    one_of: int = 1


_FEW = 4  # cases that a sample() leaves
_THOUSANDS = "thousands of rounds, which faster targets run"
_IF_EXHAUSTIVE = {ENDURANCE: f"{_THOUSANDS}: --exhaustive"}
_NO_NETWORK = {SOCKETS: "the emulated Cortex-M33 has no network"}
_PICO_LACKS = {SOCKETS: "a Pico without Wi-Fi has no sockets", ENDURANCE: _THOUSANDS}


def _sampled(name: str, lacks: Mapping[str, str]) -> Kind:
    """An emulated board that runs a sample of the vectors and, with --exhaustive, every test."""
    return Kind(partial(EmulatedTarget, name), lacks, only_vectors=True, one_of=16)


# The slowest first. A board is made of a port, by the plugin.
KINDS = {
    "pico": _sampled("pico", _PICO_LACKS),
    "xtensa": _sampled("xtensa", {}),
    "m33": _sampled("m33", _NO_NETWORK),
    "rv32": _sampled("rv32", {}),
    # A Pico's code on a Cortex-M33, which executes all of ARMv6-M: at a fraction of the whole
    # chip's cost.
    "armv6m": Kind(partial(EmulatedTarget, "m33", "armv6m"), _NO_NETWORK, _IF_EXHAUSTIVE, one_of=8),
    "rv32-newest": Kind(partial(EmulatedTarget, "rv32-newest")),
    "unix": Kind(UnixTarget),
}
# Targets whose source changes and may not build; then they are skipped, with a message.
OPTIONAL = ("rv32-newest",)
BOARD_LACKS = {
    SOCKETS: "not every board has sockets",
    ENDURANCE: "thousands of rounds wear out its flash",
}


def absence(name: str) -> str | None:
    """Why a target of OPTIONAL is not there; None where it is, or must be."""
    if name in OPTIONAL and qemu.MACHINES[name].firmware() is None:
        return f"{name} is not built: {qemu.build_command(name)}"
    return None


def needs(path: Path) -> dict[str, str]:
    """Return the NEEDS of a test file by test; a text there is the need of all its tests.

    Raises UsageError for a need that there is not.
    """
    names, value = _read_tests(path.read_text())
    needed: dict[str, str] = dict.fromkeys(names, value) if isinstance(value, str) else value
    for need in sorted(needed.values()):
        if need not in _NEEDS:
            raise UsageError(f"{path}: NEEDS knows {', '.join(_NEEDS)}, and not {need}")
    return needed


def selected(path: Path, only_vectors: bool = False) -> list[str]:
    """Return the names of the tests of a file.

    only_vectors: only those whose name says that they run vectors.
    """
    names, _ = _read_tests(path.read_text())
    if only_vectors:
        return [name for name in names if "vectors" in name]
    return names


@cache
def _read_tests(text: str) -> tuple[list[str], Any]:
    """Return the names of the test functions in a file's text, and its NEEDS."""
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
    """Run the functions `names` of a test file on `target`; return an outcome for each, in order."""
    # new for each run, so that stale output cannot pass for an answer
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
    """Find the outcome of a test in the lines of `mark` in a transcript; without one it has failed."""
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

    Only lines that point into the test file `path` get one.
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
