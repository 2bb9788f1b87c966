"""What the latency bench measures: a board at a port, an emulated board, or the emulated device."""

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
# What a subject's figures are in, which is also part of their names.
MICROSECONDS, INSTRUCTIONS = "us", "instructions"

_MODULES = ("bench", "sums", "projection")  # that the program imports
_PROCESSOR_OF_SAMPLER = "armv6m"  # a Pico's
_VALUE = "value"  # begins the line of a result
_SEED = 1
_BENCH_TIMEOUT = 120.0  # seconds


class Subject(ABC):
    """Something that runs latency_program.py.

    name: for people. has_port: whether `serve` works. unit: of its clock. chip: its key in
    shared_specs/currents.json, if it is a chip.
    """

    name: str
    has_port: bool
    unit = MICROSECONDS
    chip: str | None = None

    @abstractmethod
    def install(self, files: Mapping[str, bytes]) -> None:
        """Put files under DIRECTORY, and start the program over them."""

    @abstractmethod
    def call(self, expression: str) -> Any:
        """The value of an expression in the program."""

    def serve(self, messages: Sequence[bytes]) -> list[list[int]]:
        """Send frames to the device's port while the program serves it.

        Returns for each: the microseconds of receiving, of answering, and of sending.
        """
        raise NotImplementedError

    def use_native(self) -> bool:
        """Let the sampler be the one in C until the next install().

        Returns False if that is not built, or cannot run here.
        """
        return False


class BoardSubject(Subject):
    """A board at its REPL: real, or the emulated Pico."""

    has_port = True
    _clock = "ticks_us"

    def __init__(self, repl: Repl, marker: int | None = None) -> None:
        """Install the bench's program on a board.

        marker: number of the pin that marks windows for a meter; None: the board's usual one.
        """
        self._repl = repl
        self._marker = marker
        self.machine = board_program.install(repl, PROGRAM, _MODULES)
        self.name = f"{self.machine.description}, MicroPython {self.machine.version}"
        self.chip = self.machine.description.rpartition(" with ")[2].lower()

    def install(self, files: Mapping[str, bytes]) -> None:
        """Replace the files under DIRECTORY, and start the program over them."""
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
                exchange(_encoded(message), b"\x00")
        times = self._repl.evaluate("times")
        return [times[start : start + 3] for start in range(0, len(times), 3)]

    def sleep(self, seconds: float) -> None:
        """Put the board into deep sleep, after which it starts anew. Returns a second later."""
        milliseconds = round(1000 * seconds)
        with contextlib.suppress(SilenceError):
            self._repl.run(f"import machine\nmachine.deepsleep({milliseconds})", 1.0)

    def use_native(self) -> bool:
        """Install the sampler in C, if it is built for this processor, and use it."""
        entry = cache.find_entry(SAMPLER)
        if entry is None or self.machine.processor != _PROCESSOR_OF_SAMPLER:
            return False
        (name,) = SAMPLER.products
        files = {f"/lib/{name}": (entry / name).read_bytes()}
        deploy.apply(self._repl, deploy.compare(self._repl, files))
        self._repl.run("use_native()", _BENCH_TIMEOUT)
        return True


def _encoded(message: bytes) -> bytes:
    """A message in COBS, without the 0 that ends a frame."""
    out = bytearray(frames.cobs_size(len(message)))
    size = frames.cobs_encode(message, len(message), out)
    return bytes(out[:size])


class CountingSubject(BoardSubject):
    """A machine of QEMU whose clock counts an instruction as a nanosecond.

    It has no port here: waiting for this computer would count, too.
    """

    has_port = False
    unit = INSTRUCTIONS
    _clock = "ticks_cpu"


class UnixSubject(Subject):
    """The 32-bit MicroPython of the emulated device, timed by this machine's clock."""

    has_port = False

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._interpreter = micropython.find_micropython()
        self._is_watched = False
        self.name = "emulated device (times of this machine)"

    def install(self, files: Mapping[str, bytes]) -> None:
        """Write the files into the folder of the emulated device."""
        for path, data in files.items():
            target = self._folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        self._is_watched = False

    def call(self, expression: str) -> Any:
        """Evaluate an expression of the program, in a process of its own.

        The ledger, a file, carries on from one process to the next. Raises UsageError if the device
        fails.
        """
        if expression == "watch()":
            self._is_watched = True
            return None
        lines = ["from latency_program import *", f"heap = setup({str(self._folder)!r})"]
        if self._is_watched:
            lines.append("watch()")
        lines += ["import json", f"print({_VALUE!r}, json.dumps({expression}))"]
        command = micropython.device_command(self._interpreter, "-c", "\n".join(lines))

        module_path = os.pathsep.join((str(FIRMWARE), str(PROGRAM.parent), ".frozen"))
        finished = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_BENCH_TIMEOUT,
            env={**os.environ, "MICROPYPATH": module_path},
            cwd=self._folder,
        )
        for line in finished.stdout.splitlines():
            if line.startswith(f"{_VALUE} "):
                return json.loads(line.removeprefix(f"{_VALUE} "))
        output = finished.stderr.strip() or finished.stdout
        raise UsageError(f"the emulated device failed: {output.splitlines()[-1:]}")


@contextmanager
def subject(fleet_name: str, marker: int | None = None) -> Iterator[Subject]:
    """Open the device of a fleet of one, such as `pico-emulated:1`.

    marker: number of the pin that marks windows. Raises UsageError and DeviceError.
    """
    fleet_of_one = fleet.parse(fleet_name)
    if fleet_of_one.count != 1 or fleet_of_one.simulated:
        hint = "such as --fleet pico-emulated:1"
        raise UsageError(f"--fleet must be one board, not {fleet_name}", hint)

    with contextlib.ExitStack() as stack:
        if isinstance(fleet_of_one, OnFirmware):
            yield _emulated_board(fleet_of_one, stack)
        elif isinstance(fleet_of_one, OnPorts):
            repl = stack.enter_context(Repl(fleet_of_one.ports[0], visits=True))
            yield BoardSubject(repl, marker=marker)
        else:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tern-latency-"))
            yield UnixSubject(Path(folder))


def _emulated_board(emulated_fleet: OnFirmware, stack: contextlib.ExitStack) -> BoardSubject:
    """Boot an emulated board for as long as `stack` is open.

    Raises UsageError if its clock counts nothing, DeviceError if it does not boot.
    """
    machine = qemu.MACHINES.get(emulated_fleet.firmware)
    if machine is None:
        pico = stack.enter_context(boot_pico(seed=_SEED, skip_idle=True))
        return BoardSubject(stack.enter_context(Repl(pico.url)))
    if not machine.counts:
        hint = "take --fleet rv32-emulated:1"
        raise UsageError(f"the clock of {emulated_fleet.text} counts no instructions", hint)
    board = stack.enter_context(
        qemu.boot(emulated_fleet.firmware, seed=_SEED, count_instructions=True)
    )
    return CountingSubject(stack.enter_context(Repl(board.url)))
