"""Subjects of the latency bench: a board at a port, an emulated board, or the emulated device of
this machine.
"""

import contextlib
import json
import os
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tern import frames
from ternhost import cache
from ternhost.errors import UsageError
from ternhost.reach import fleet
from ternhost.reach.ports.fleet import OnPorts
from terntools.boards import deploy
from terntools.boards.repl import Repl, SilenceError
from terntools.emulators import micropython, qemu
from terntools.emulators.fleets import OnFirmware
from terntools.emulators.pico import SAMPLER, boot_pico
from terntools.emulators.unix_fleet import FIRMWARE
from terntools.testing import board_program

PROGRAM = Path(__file__).with_name("latency_program.py")
DIRECTORY = "/bench"
MICROSECONDS, INSTRUCTIONS = "us", "instructions"  # what figures are in, and so part of their names

_MODULES = ("bench", "sums", "projection")  # that the program imports
_SEED = 1
_BENCH_TIMEOUT = 120.0


class Subject(ABC):
    """Something that runs the program."""

    name: str
    has_port: bool
    unit = MICROSECONDS
    chip: str | None = None  # as in shared_specs/currents.json, if it is a chip

    @abstractmethod
    def install(self, files: Mapping[str, bytes]) -> None:
        """Put files under DIRECTORY and start the program over them."""

    @abstractmethod
    def call(self, expression: str) -> Any:
        """The value of an expression in the program."""

    def serve(self, messages: Sequence[bytes]) -> list[list[int]]:
        """Send frames to the device's port while the program serves it.

        See latency_program.serve.
        """
        raise NotImplementedError

    def use_native(self) -> bool:
        """Let the sampler be the one in C until the next install(); False where that is not built
        or cannot run.
        """
        return False


class BoardSubject(Subject):
    """A board, through its REPL: real, or the emulated Pico."""

    has_port = True
    _clock = "ticks_us"

    def __init__(self, repl: Repl, marker: int | None = None) -> None:
        """marker: number of the pin that marks windows for a meter, where the board has no other."""
        self._repl = repl
        self._marker = marker
        self.machine = board_program.install(repl, PROGRAM, _MODULES)
        self.name = f"{self.machine.description}, MicroPython {self.machine.version}"
        self.chip = self.machine.description.rpartition(" with ")[2].lower()

    def install(self, files: Mapping[str, bytes]) -> None:
        for path in self._repl.directory(DIRECTORY):
            self._repl.remove(path)
        for path, data in files.items():
            self._repl.write_file(f"{DIRECTORY}/{path}", data)
        self._repl.soft_reset()
        setup = f"setup({DIRECTORY!r}, {self._marker}, {self._clock!r})"
        self._repl.run(f"from latency_program import *\nheap = {setup}", _BENCH_TIMEOUT)

    def call(self, expression: str) -> Any:
        return self._repl.evaluate(expression, _BENCH_TIMEOUT)

    def serve(self, messages: Sequence[bytes]) -> list[list[int]]:
        with self._repl.program(f"times = serve({len(messages)})", "ready") as exchange:
            for message in messages:
                out = bytearray(frames.cobs_size(len(message)))
                n = frames.cobs_encode(message, len(message), out)
                exchange(bytes(out[:n]), b"\x00")
        times = self._repl.evaluate("times")
        return [times[i : i + 3] for i in range(0, len(times), 3)]

    def sleep(self, seconds: float) -> None:
        """Put the board into deep sleep, after which it starts anew; return a second later."""
        with contextlib.suppress(SilenceError):
            self._repl.run(f"import machine\nmachine.deepsleep({round(1000 * seconds)})", 1.0)

    def use_native(self) -> bool:
        entry = cache.find_entry(SAMPLER)
        if entry is None or self.machine.processor != "armv6m":  # a Pico's
            return False
        (name,) = SAMPLER.products
        module = {f"/lib/{name}": (entry / name).read_bytes()}
        deploy.apply(self._repl, deploy.compare(self._repl, module))
        self._repl.run("use_native()", _BENCH_TIMEOUT)
        return True


class CountingSubject(BoardSubject):
    """A machine of QEMU whose clock counts an instruction as a nanosecond.

    Its port would have it wait for this one.
    """

    has_port = False
    unit = INSTRUCTIONS
    _clock = "ticks_cpu"


class UnixSubject(Subject):
    """The 32-bit MicroPython of the emulated device; this machine's clock times it. No port."""

    has_port = False

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._interpreter = micropython.find_micropython()
        self.name = "emulated device (times of this machine)"

    def install(self, files: Mapping[str, bytes]) -> None:
        for path, data in files.items():
            target = self._folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        self._state = ""

    def call(self, expression: str) -> Any:
        # A process a question: the ledger carries on from one to the next.
        if expression == "watch()":
            self._state += "watch()\n"
            return None
        text = (
            "from latency_program import *\n"
            f"heap = setup({str(self._folder)!r})\n{self._state}"
            f"import json\nprint('value', json.dumps({expression}))\n"
        )
        path = os.pathsep.join((str(FIRMWARE), str(PROGRAM.parent), ".frozen"))
        command = micropython.device_command(self._interpreter, "-c", text)
        own: dict[str, Any] = {"env": {**os.environ, "MICROPYPATH": path}, "cwd": self._folder}
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=_BENCH_TIMEOUT, **own
        )
        for line in answer.stdout.splitlines():
            if line.startswith("value "):
                return json.loads(line.removeprefix("value "))
        last = (answer.stderr.strip() or answer.stdout).splitlines()[-1:]
        raise UsageError(f"the emulated device failed: {last}")


@contextmanager
def subject(spec: str, marker: int | None = None) -> Iterator[Subject]:
    """The device of a fleet of one, such as `pico-emulated:1`.

    Raises UsageError and DeviceError.
    """
    named = fleet.parse(spec)
    if named.count != 1 or named.simulated:
        raise UsageError(
            f"--fleet must be one board, not {spec}", hint="such as --fleet pico-emulated:1"
        )
    with contextlib.ExitStack() as stack:
        if isinstance(named, OnFirmware) and named.firmware in qemu.MACHINES:
            if not qemu.MACHINES[named.firmware].counts:
                hint = "take --fleet rv32-emulated:1"
                raise UsageError(f"the clock of {named.text} counts no instructions", hint)
            machine = stack.enter_context(
                qemu.boot(named.firmware, seed=_SEED, count_instructions=True)
            )
            yield CountingSubject(stack.enter_context(Repl(machine.url)))
        elif isinstance(named, OnFirmware):
            pico = stack.enter_context(boot_pico(seed=_SEED, skip_idle=True))
            yield BoardSubject(stack.enter_context(Repl(pico.url)))
        elif isinstance(named, OnPorts):
            repl = stack.enter_context(Repl(named.ports[0], visits=True))
            yield BoardSubject(repl, marker=marker)
        else:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tern-latency-"))
            yield UnixSubject(Path(folder))
