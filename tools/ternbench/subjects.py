"""The devices that the latency bench measures.

They are boards at a serial port, emulated boards with a board's firmware, and the emulated device:
MicroPython as a process of this machine.
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
from terntools.boards import file_changes
from terntools.boards.prompt_errors import SilenceError
from terntools.boards.repl import Repl
from terntools.emulators import micropython, qemu
from terntools.emulators.fleets import OnFirmware
from terntools.emulators.pico import SAMPLER, boot_pico
from terntools.emulators.unix_fleet import FIRMWARE
from terntools.testing import board_program

PROGRAM = Path(__file__).with_name("latency_program.py")
_NAMING_PROGRAM = Path(__file__).with_name("profile_program.py")
DIRECTORY = "/bench"  # on a board: the files of the device that is measured
# The units of a subject's times, which are also part of the names of its figures.
MICROSECONDS, INSTRUCTIONS = "us", "instructions"

# Modules of the device library that the program imports and that are not always installed.
_MODULES = ("bench", "sums", "projection")
_PROCESSOR_OF_SAMPLER = "armv6m"  # a Pico's, for which the sampler in C is compiled
_VALUE = "value"  # begins the line of output that has the result of an expression
_SEED = 1  # of an emulated board's random numbers: two boots must do the same
_BENCH_TIMEOUT = 120.0  # seconds


class Subject(ABC):
    """A device that runs latency_program.py.

    name: for people. has_port: whether `serve` works. unit: of its clock, MICROSECONDS or INSTRUCTIONS.
    chip: its key in the table of datasheet currents, shared_specs/currents.json; None if it is no chip.
    """

    name: str
    has_port: bool
    unit = MICROSECONDS
    chip: str | None = None

    @property
    def has_native(self) -> bool:
        """Whether `use_native` works here."""
        return False

    @abstractmethod
    def install(self, files: Mapping[str, bytes]) -> None:
        """Put files under DIRECTORY, and start the program over them.

        files: contents by path. They are a device's keys, records, ledgers and settings.
        """

    @abstractmethod
    def call(self, expression: str) -> Any:
        """Evaluate an expression in the program's namespace, and return its value."""

    def serve(self, messages: Sequence[bytes]) -> list[list[int]]:
        """Send request frames to the device's port, while the program answers what comes there.

        Returns three times for each message: of receiving it, of making the answer, and of sending the
        answer.
        """
        raise NotImplementedError

    def use_native(self) -> bool:
        """Replace the library's sampler by the one in C until the next install().

        Returns False if that is not built, or cannot run here.
        """
        return False


class BoardSubject(Subject):
    """A board whose program is run over its REPL: a real board, or the emulated Pico."""

    has_port = True
    _clock = "ticks_us"

    def __init__(self, repl: Repl, marker: int | None = None) -> None:
        """Install the bench's program on a board.

        marker: number of the pin that is set during each report, for a meter; None: the board's usual
        pin, if it has one.
        """
        self._repl = repl
        self._marker = marker
        self.machine = board_program.install(repl, PROGRAM, _MODULES)
        self.name = f"{self.machine.description}, MicroPython {self.machine.version}"
        # A description is such as "Raspberry Pi Pico with RP2040".
        self.chip = self.machine.description.rpartition(" with ")[2].lower()

    def install(self, files: Mapping[str, bytes]) -> None:
        """Replace the files under DIRECTORY, and start the program over them."""
        for path in self._repl.files.sizes(DIRECTORY):
            self._repl.files.remove(path)
        for path, data in files.items():
            self._repl.files.write(f"{DIRECTORY}/{path}", data)
        self._repl.soft_reset()
        setup = f"setup({DIRECTORY!r}, {self._marker}, {self._clock!r})"
        self._repl.run(f"from latency_program import *\nheap = {setup}", _BENCH_TIMEOUT)

    def call(self, expression: str) -> Any:
        return self._repl.evaluate(expression, _BENCH_TIMEOUT)

    def serve(self, messages: Sequence[bytes]) -> list[list[int]]:
        """Let the program serve the port, send it the messages, and return the times of each.

        The program keeps the times until the last message is answered.
        """
        with self._repl.program(f"times = serve({len(messages)})", "ready") as exchange:
            for message in messages:
                exchange(_encoded(message), b"\x00")
        times = self._repl.evaluate("times")  # three for each message, one after the other
        return [times[start : start + 3] for start in range(0, len(times), 3)]

    def sleep(self, seconds: float) -> None:
        """Put the board into deep sleep for so many seconds, after which it starts anew.

        Returns a second later, while the board sleeps.
        """
        milliseconds = round(1000 * seconds)
        with contextlib.suppress(SilenceError):  # a board that sleeps does not answer
            self._repl.run(f"import machine\nmachine.deepsleep({milliseconds})", 1.0)

    def functions(self) -> list[tuple[str, int, list[tuple[int, str]]]]:
        """Return the Python functions that the board has imported.

        They are by module: its name, its address, and the address and the name of each function that
        is known there. A name is such as "tern.client.Client.respond".
        """
        return self._repl.values(_NAMING_PROGRAM.read_text(), _BENCH_TIMEOUT)

    @property
    def has_native(self) -> bool:
        is_built = cache.find_entry(SAMPLER) is not None
        return is_built and self.machine.processor == _PROCESSOR_OF_SAMPLER

    def use_native(self) -> bool:
        """Install the sampler in C, if it is built for this processor, and use it.

        Returns whether it is in use.
        """
        entry = cache.find_entry(SAMPLER)
        if entry is None or not self.has_native:
            return False
        (name,) = SAMPLER.products
        module = (entry / name).read_bytes()
        changes = file_changes.compare(self._repl, {f"/lib/{name}": module})
        file_changes.apply(self._repl, changes)
        self._repl.run("use_native()", _BENCH_TIMEOUT)
        return True


def _encoded(message: bytes) -> bytes:
    """Return a message encoded by COBS, without the 0 byte that ends a frame."""
    out = bytearray(frames.cobs_size(len(message)))
    size = frames.cobs_encode(message, len(message), out)
    return bytes(out[:size])


class CountingSubject(BoardSubject):
    """A machine of QEMU whose clock counts an instruction as a nanosecond.

    Its port is not used: the instructions that it executes while it waits for this computer would
    count, too.
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
        """Write the files into the folder of the emulated device; they replace files of these names."""
        for path, data in files.items():
            target = self._folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        self._is_watched = False

    def call(self, expression: str) -> Any:
        """Evaluate an expression of the program, in a new process.

        The device's files, such as its ledger of spent budget, carry over from one process to the next.
        What else `watch()` does to the program is done again in each. Raises UsageError if the device
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

        # Where MicroPython looks for modules: the device library, the bench, what is built in.
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
    """Open the device of a fleet of one, such as "pico-emulated:1".

    marker: number of the pin that a board sets during each report, for a meter; None: its usual one.
    Raises UsageError if the fleet has another size or is only simulated, and DeviceError if the
    device does not answer.
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


@contextmanager
def profiled_pico(profile: Path) -> Iterator[BoardSubject]:
    """Boot an emulated Pico that profiles what it does, as `subject` boots one without that.

    profile: the file for the profile, see `boot_pico`. Raises DeviceError if it does not boot.
    """
    with contextlib.ExitStack() as stack:
        yield _emulated_pico(stack, profile)


def _emulated_pico(stack: contextlib.ExitStack, profile: Path | None = None) -> BoardSubject:
    """Boot an emulated Pico that runs for as long as `stack` is open. profile: see `boot_pico`."""
    board = stack.enter_context(boot_pico(seed=_SEED, skip_idle=True, profile=profile))
    return BoardSubject(stack.enter_context(Repl(board.url)))


def _emulated_board(emulated_fleet: OnFirmware, stack: contextlib.ExitStack) -> BoardSubject:
    """Boot an emulated board that runs for as long as `stack` is open.

    Raises UsageError if it is a machine of QEMU that cannot count instructions, since its time is
    this computer's and says nothing about a board. Raises DeviceError if it does not boot.
    """
    machine = qemu.MACHINES.get(emulated_fleet.firmware)
    if machine is None:
        return _emulated_pico(stack)
    if not machine.counts:
        hint = "use --fleet rv32-emulated:1"
        raise UsageError(f"the clock of {emulated_fleet.text} counts no instructions", hint)
    board = stack.enter_context(
        qemu.boot(emulated_fleet.firmware, seed=_SEED, count_instructions=True)
    )
    return CountingSubject(stack.enter_context(Repl(board.url)))
