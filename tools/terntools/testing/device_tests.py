"""Runs tests/device/test_*.py on MicroPython: plain functions with bare asserts, the same files as under pytest."""

import ast
import os
import re
import secrets
import shutil
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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
    """Outcome of one test function, and its output."""

    name: str
    passed: bool
    output: str


@dataclass(frozen=True)
class Transcript:
    """Output of a target, and whether it had to be stopped."""

    text: str
    timed_out: bool


class Target(ABC):
    """Something with MicroPython on it that runs test files."""

    name: str
    one_of = 1  # it runs one of this number of cases in each group of vectors

    @abstractmethod
    def run(self, mark: str, path: Path, names: Sequence[str], timeout: float) -> Transcript:
        """Run the functions `names` of the test file `path` with terntools.testing.device_runner."""

    def close(self) -> None:  # noqa: B027
        """Give its port back, if it holds one."""


class UnixTarget(Target):
    """The 32-bit MicroPython of the emulated device, with a board's heap; a process a file."""

    name = "unix"

    def __init__(self) -> None:
        self._interpreter = micropython.find_micropython()

    def run(self, mark: str, path: Path, names: Sequence[str], timeout: float) -> Transcript:
        command = micropython.device_command(self._interpreter, _RUNNER, mark, path.stem, *names)
        search = os.pathsep.join([str(FIRMWARE), str(path.resolve().parent), str(SPEC.parent), ".frozen"])
        with tempfile.TemporaryDirectory(prefix="tern-test-") as folder:
            try:
                ended = subprocess.run(
                    command,
                    cwd=folder,
                    env={**os.environ, "MICROPYPATH": search},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    timeout=timeout,
                )
            except subprocess.TimeoutExpired as late:
                return Transcript((late.output or b"").decode(errors="replace"), timed_out=True)
        return Transcript(ended.stdout.decode(errors="replace"), timed_out=False)


class BoardTarget(Target):
    """A board at a serial port. The library and the tests are put on it as .mpy for its processor."""

    name = "board"

    def __init__(self, port: str, baud: int = BAUD) -> None:
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

    def run(self, mark: str, path: Path, names: Sequence[str], timeout: float) -> Transcript:
        files = test_files(path, self._machine.processor, self.one_of)
        deploy.apply(self._repl, deploy.compare(self._repl, files))
        transcript = _run(self._repl, mark, path, names, timeout)
        if transcript.timed_out:
            self._repl.enter()
        return transcript

    def close(self) -> None:
        self._repl.close()


def _run(repl: Repl, mark: str, path: Path, names: Sequence[str], timeout: float) -> Transcript:
    repl.soft_reset()
    program = f"from device_runner import run\nrun({mark!r}, {path.stem!r}, {list(names)!r})\n"
    try:
        output, traceback = repl.execute(program, timeout)
    except SilenceError as silence:
        return Transcript(silence.output, timed_out=not isinstance(silence, GoneError))
    return Transcript(output + traceback, timed_out=False)


class EmulatedTarget(Target):
    """An emulated board; a new one a file, which has the library and the tests on its flash from the start."""

    def __init__(self, name: str, processor: str | None = None) -> None:
        """processor: the one whose code it runs instead of its own."""
        self.name = name
        self._deployed = prepared_flash.deployed(name, processor)

    def run(self, mark: str, path: Path, names: Sequence[str], timeout: float) -> Transcript:
        with tempfile.TemporaryDirectory(prefix="tern-test-") as folder:
            flash = Path(folder, "flash.bin")
            shutil.copyfile(self._deployed.flash, flash)
            flash_image.add(flash, test_files(path, self._deployed.processor, self.one_of))
            with catalogue.boot(self.name, flash, skip_idle=True) as board, Repl(board.url) as repl:
                return _run(repl, mark, path, names, timeout * _EMULATION)


def test_files(path: Path, processor: str, one_of: int) -> dict[str, bytes]:
    """The files that a board needs for the test file `path`: itself, shared helpers, and a sample() of its vectors."""
    shared = [one for one in path.parent.glob("*.py") if not one.name.startswith(("test_", "conftest"))]
    sources = [_RUNNER, path, *shared]
    files = {f"/lib/{source.stem}.mpy": _compile(source, processor) for source in sources}
    text = "".join(source.read_text() for source in sources)
    for source in SPEC.glob("*.py"):
        if f"from spec.{source.stem} import" in text:
            files[f"/lib/spec/{source.stem}.mpy"] = _compile(source, processor)
    for vectors in VECTORS.glob("*.json"):
        if vectors.name in text:
            files[f"/lib/vector_files/{vectors.name}"] = sample(vectors.read_text(), one_of).encode()
    return files


def sample(vectors: str, one_of: int) -> str:
    """A vector file (a case a line) with one of every `one_of` cases of each group, but at least `_FEW`."""

    def sampled(group: re.Match[str]) -> str:
        cases = group[0].replace("},\n", "}\n").splitlines()
        return ",\n".join(cases[:: max(1, min(one_of, len(cases) // _FEW))]) + "\n"

    return re.sub(r"(?:^  \{.*\n)+", sampled, vectors, flags=re.MULTILINE)


def _compile(source: Path, processor: str) -> bytes:
    return mpy.compiled(source.read_text(), processor, source.name)


# Features that not every target has; a test file says in NEEDS which it needs.
SOCKETS = "sockets"
ENDURANCE = "endurance"
_NEEDS = (SOCKETS, ENDURANCE)


# Tests that run without --exhaustive: all; those of compiled code; those worth a whole chip. Vectors always run.
ALL, COMPILED, CHIP = "ALL", "COMPILED", "CHIP"


@dataclass(frozen=True)
class Kind:
    """A kind of target: how to make one, what it lacks and why, and what it runs without --exhaustive.

    selection: of the tests. one_of: it runs one of this number of cases of vectors. spared: features without tests."""

    make: Callable[[], Target]
    lacks: Mapping[str, str] = field(default_factory=dict)
    spared: Mapping[str, str] = field(default_factory=dict)
    selection: str = ALL
    one_of: int = 1


_FEW = 4  # cases that a sample() leaves
_THOUSANDS = "thousands of rounds, which faster targets run"
_IF_EXHAUSTIVE = {ENDURANCE: f"{_THOUSANDS}: --exhaustive"}
_NO_NETWORK = {SOCKETS: "the emulated Cortex-M33 has no network"}
_PICO_LACKS = {SOCKETS: "a Pico without Wi-Fi has no sockets", ENDURANCE: _THOUSANDS}

# The slowest first. A board is made of a port, by the plugin.
KINDS = {
    "pico": Kind(partial(EmulatedTarget, "pico"), _PICO_LACKS, selection=CHIP, one_of=16),
    "xtensa": Kind(partial(EmulatedTarget, "xtensa"), {}, _IF_EXHAUSTIVE, COMPILED, one_of=4),
    "m33": Kind(partial(EmulatedTarget, "m33"), _NO_NETWORK, _IF_EXHAUSTIVE, COMPILED, one_of=4),
    # A Pico's code on a Cortex-M33, which executes all of ARMv6-M: at a fraction of the whole chip's cost.
    "armv6m": Kind(partial(EmulatedTarget, "m33", "armv6m"), _NO_NETWORK, _IF_EXHAUSTIVE, one_of=4),
    "rv32": Kind(partial(EmulatedTarget, "rv32"), {}, _IF_EXHAUSTIVE, one_of=4),
    "rv32-newest": Kind(partial(EmulatedTarget, "rv32-newest")),
    "unix": Kind(UnixTarget),
}
# Targets whose source changes and may not build; then they are skipped, with a message.
OPTIONAL = ("rv32-newest",)
BOARD_LACKS = {SOCKETS: "not every board has sockets", ENDURANCE: "thousands of rounds wear out its flash"}


def absence(name: str) -> str | None:
    """Why a target of OPTIONAL is not there; None where it is, or must be."""
    if name in OPTIONAL and qemu.MACHINES[name].firmware() is None:
        return f"{name} is not built: {qemu.build_command(name)}"
    return None


def needs(path: Path) -> dict[str, str]:
    """The NEEDS of a file by test; a text there is the need of all its tests."""
    names, constants = _read_tests(path.read_text())
    value = constants.get("NEEDS", {})
    needed: dict[str, str] = dict.fromkeys(names, value) if isinstance(value, str) else value
    if unknown := {*needed.values()} - {*_NEEDS}:
        raise UsageError(f"{path}: NEEDS knows {', '.join(_NEEDS)}, and not {min(unknown)}")
    return needed


def selected(path: Path, selection: str) -> list[str]:
    """The tests of a file in that selection: all where it says so, as `CHIP = True` does, else those of vectors."""
    names, constants = _read_tests(path.read_text())
    if selection in (ALL, *constants) or CHIP in constants:
        return names
    return [name for name in names if "vectors" in name]


@cache
def _read_tests(text: str) -> tuple[list[str], dict[str, Any]]:
    """The names of the test functions in a file's text, and the values of its NEEDS, COMPILED and CHIP."""
    names: list[str] = []
    constants: dict[str, Any] = {}
    for node in ast.parse(text).body:
        match node:
            case ast.FunctionDef(name=name) if name.startswith("test_"):
                names.append(name)
            case ast.Assign(targets=[ast.Name(id=("NEEDS" | "COMPILED" | "CHIP") as name)], value=value):
                constants[name] = ast.literal_eval(value)
    return names, constants


def run_file(target: Target, path: Path, names: Sequence[str], timeout: float = TIMEOUT) -> list[Outcome]:
    """Run the functions `names` of a test file on `target`: an outcome for each, in their order."""
    mark = f"@tern-{secrets.token_hex(4)}"  # new for each run, so that stale output cannot pass for an answer
    transcript = target.run(mark, path, names, timeout)
    outcomes = {outcome.name: outcome for outcome in _read(mark, transcript, names)}
    return [outcomes[name] for name in names]


def _read(mark: str, transcript: Transcript, names: Sequence[str]) -> Iterable[Outcome]:
    waiting = list(names)
    running: str | None = None
    ended = False
    output: list[str] = []
    for line in transcript.text.splitlines():
        before, marked, said = line.partition(f"{mark} ")
        word, _, rest = said.partition(" ") if marked and not before else ("", "", "")
        if word == "start":
            running, output = rest, []
        elif word in ("pass", "fail") and rest == running and running in waiting:
            yield Outcome(running, word == "pass", "\n".join(output))
            waiting.remove(running)
            running = None
        elif word == "end":
            ended = True
        else:
            output.append(line)
    # The remaining tests have no verdict: the device stopped in the first of them.
    for name in waiting:
        if name not in (running, waiting[0]):
            yield Outcome(name, False, f"not run: stopped in {waiting[0]}")
            continue
        if transcript.timed_out:
            why = "no answer in time"
        else:
            why = "skipped by the device" if ended else "the device stopped before the end"
        yield Outcome(name, False, "\n".join([*output, why]))


def with_source(output: str, path: Path) -> str:
    """Put the line of source under each line of a MicroPython traceback that points into the test file."""
    source = path.read_text().splitlines()
    lines = []
    for line in output.splitlines():
        lines.append(line)
        where = re.match(r'\s*File "([^"]*)", line (\d+)', line)
        if where and Path(where[1]).stem == path.stem and 0 < int(where[2]) <= len(source):
            lines.append("    " + source[int(where[2]) - 1].strip())
    return "\n".join(lines)
