"""Runs tests/device/test_*.py on MicroPython: plain functions with bare asserts, the same files as under pytest.

python -m terntools.device_tests [FILE ...]      exit code 0: all passed, 1: a test failed, 2: time-out
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import secrets
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import tern
from ternhost.errors import TernError
from ternhost.links.serial import BAUD
from terntools import deploy, emulator, mpy
from terntools.pico import boot_pico
from terntools.repl import Repl, SilenceError

FIRMWARE = Path(tern.__file__).parent.parent
_RUNNER = Path(__file__).with_name("device_runner.py")
TIMEOUT = 120.0
_EMULATION = 5  # times as long as a board, where other work keeps this machine busy

PASSED, FAILED, TIMED_OUT = 0, 1, 2


@dataclass(frozen=True)
class Outcome:
    """How one test function ended (PASSED, FAILED or TIMED_OUT) and what it printed."""

    name: str
    state: int
    output: str


@dataclass(frozen=True)
class Transcript:
    """What a target printed, and whether it had to be stopped."""

    text: str
    timed_out: bool


class Target(ABC):
    """Something with MicroPython on it that runs test files."""

    name: str
    is_board = False

    @abstractmethod
    def run(self, mark: str, path: Path, names: Sequence[str], timeout: float) -> Transcript:
        """Run the functions `names` of the test file `path` with terntools.device_runner."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the target."""


class UnixTarget(Target):
    """The 32-bit MicroPython of the emulated device, with a board's heap; a process a file."""

    name = "unix"

    def __init__(self) -> None:
        self._interpreter = emulator.find_micropython()

    def run(self, mark: str, path: Path, names: Sequence[str], timeout: float) -> Transcript:
        command = emulator.device_command(self._interpreter, _RUNNER, mark, path.stem, *names)
        search = os.pathsep.join([str(FIRMWARE), str(path.resolve().parent), ".frozen"])
        with tempfile.TemporaryDirectory(prefix="tern-test-") as folder:
            try:
                text = subprocess.run(
                    command,
                    cwd=folder,
                    env={**os.environ, "MICROPYPATH": search},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    timeout=timeout,
                ).stdout
            except subprocess.TimeoutExpired as stopped:
                return Transcript((stopped.stdout or b"").decode(errors="replace"), timed_out=True)
        return Transcript(text.decode(errors="replace"), timed_out=False)

    def close(self) -> None:
        pass  # a process ends with its file


class BoardTarget(Target):
    """A board at a serial port. The library and the tests are put on it as .mpy for its processor."""

    name = "board"
    is_board = True

    def __init__(self, port: str, baud: int = BAUD) -> None:
        self._repl = Repl(port, baud)
        try:
            self._repl.enter()
            self._repl.soft_reset()
            machine = deploy.Machine.of(self._repl)
            self._processor = machine.processor
            files = deploy.library_files(machine, whole=True)
            # Device tests play a board of their own, on whatever board they run.
            files["/lib/tern/boards/emulated.mpy"] = self._compile(mpy.LIBRARY / "boards/emulated.py")
            deploy.apply(self._repl, deploy.compare(self._repl, files, prune=deploy.LIBRARY))
        except BaseException:
            self._repl.close()
            raise

    def _compile(self, source: Path) -> bytes:
        with tempfile.TemporaryDirectory(prefix="tern-test-") as folder:
            out = Path(folder, "module.mpy")
            mpy.compile_module(source, self._processor, out)
            return out.read_bytes()

    def run(self, mark: str, path: Path, names: Sequence[str], timeout: float) -> Transcript:
        shared = [one for one in path.parent.glob("*.py") if not one.name.startswith(("test_", "conftest"))]
        sources = [_RUNNER, path, *shared]
        files = {f"/lib/{source.stem}.mpy": self._compile(source) for source in sources}
        text = "".join(source.read_text() for source in sources)
        for vectors in (path.resolve().parents[2] / "shared_specs/vectors").glob("*.json"):
            if vectors.name in text:
                files[f"/lib/vector_files/{vectors.name}"] = vectors.read_bytes()
        deploy.apply(self._repl, deploy.compare(self._repl, files))
        self._repl.soft_reset()
        program = f"from device_runner import run\nrun({mark!r}, {path.stem!r}, {list(names)!r})\n"
        try:
            output, traceback = self._repl.execute(program, timeout)
        except SilenceError as silence:
            self._repl.enter()
            return Transcript(silence.output, timed_out=True)
        return Transcript(output + traceback, timed_out=False)

    def close(self) -> None:
        self._repl.close()


class PicoTarget(BoardTarget):
    """The emulated Pico."""

    name = "pico"

    def __init__(self) -> None:
        self._pico = boot_pico(skip_idle=True)
        try:
            super().__init__(self._pico.url)
        except BaseException:
            self._pico.close()
            raise

    def run(self, mark: str, path: Path, names: Sequence[str], timeout: float) -> Transcript:
        return super().run(mark, path, names, timeout * _EMULATION)

    def close(self) -> None:
        super().close()
        self._pico.close()


def test_names(path: Path) -> list[str]:
    """The names of the test functions of a file, in order, without importing it."""
    functions = [node.name for node in _statements(path) if isinstance(node, ast.FunctionDef)]
    return [name for name in functions if name.startswith("test_")]


def not_on_boards(path: Path) -> dict[str, str]:
    """What a file says in NOT_ON_BOARDS: the tests that a board cannot run, and why; or why it can run none."""
    for node in _statements(path):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "NOT_ON_BOARDS":
            said: dict[str, str] | str = ast.literal_eval(node.value)
            return dict.fromkeys(test_names(path), said) if isinstance(said, str) else said
    return {}


def _statements(path: Path) -> list[ast.stmt]:
    return ast.parse(path.read_text(), filename=str(path)).body


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
        word, _, rest = (
            line.removeprefix(mark + " ").partition(" ") if line.startswith(mark + " ") else ("", "", "")
        )
        if word == "start":
            running, output = rest, []
        elif word in ("pass", "fail") and rest == running and running in waiting:
            yield Outcome(running, PASSED if word == "pass" else FAILED, "\n".join(output))
            waiting.remove(running)
            running = None
        elif word == "end":
            ended = True
        else:
            output.append(line)
    # What is left has no verdict: the first of it is where the device stopped.
    for name in waiting:
        if name not in (running, waiting[0]):
            yield Outcome(
                name, TIMED_OUT if transcript.timed_out else FAILED, f"not run: stopped in {waiting[0]}"
            )
        elif transcript.timed_out:
            yield Outcome(name, TIMED_OUT, "\n".join([*output, "no answer in time"]))
        else:
            why = "skipped by the device" if ended else "the device stopped before the end"
            yield Outcome(name, FAILED, "\n".join([*output, why]))


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


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m terntools.device_tests", description=__doc__.splitlines()[0]
    )
    parser.add_argument("files", nargs="*", type=Path, help="default: tests/device/test_*.py")
    parser.add_argument(
        "--timeout", type=float, default=TIMEOUT, help="seconds a file (default: %(default)s)"
    )
    args = parser.parse_args(argv)
    worst = PASSED
    try:
        target = UnixTarget()
    except TernError as error:
        parser.error(f"{error.message}: {error.hint}")
    for path in args.files or sorted(Path("tests/device").glob("test_*.py")):
        for outcome in run_file(target, path, test_names(path), args.timeout):
            print(f"{('pass', 'FAIL', 'TIME-OUT')[outcome.state]:9}{path}::{outcome.name}")
            if outcome.state != PASSED:
                print("    " + with_source(outcome.output, path).replace("\n", "\n    "))
            worst = max(worst, outcome.state)
    return worst


if __name__ == "__main__":
    sys.exit(main())
