"""Boots machines of QEMU that execute a board's instruction set and run MicroPython.

MicroPython has a port of our own for them, in port/. There are three instruction sets: rv32, of
ESP32-C3 and C6; xtensa (with register windows), of ESP32, S2 and S3; m33 (Armv8-M), of RP2350. The
interpreter, the file system and the console are the real ones, and on the first two so are TCP and
TLS. Caches, the time of flash, memory that can only be read in 32 bits, radio and cryptographic
hardware are not emulated.
"""

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ternhost import cache
from ternhost.errors import DeviceError, UsageError
from terntools.emulators.micropython import version_of
from terntools.emulators.process import EmulatedMachine, beyond_9, locked
from terntools.emulators.qemu.build import BUILDS, ESP32, M33, NEWEST, Build

# The size of the flash, as port/Makefile has it. A Pico's MicroPython leaves as much to files.
FLASH_BLOCKS, BLOCK_BYTES = 352, 4096
_START_SECONDS = 20.0
# Files in the temporary folder of a machine.
_LOG = "qemu.log"
_PID = "qemu.pid"
_PORT = "port"  # the socket of the console

# A shell script that runs QEMU with its arguments. It kills QEMU and removes the current folder
# when its own input closes, which happens even if this process is killed.
_SUPERVISED = """
exec 9<&0 </dev/null
"$@" 9<&- &
board=$!
trap 'kill -9 $board' TERM
{ read -r _ <&9; rm -rf "$PWD"; kill -9 $board; } 2>/dev/null &
wait $board
wait $board
code=$?
kill $! 2>/dev/null
exit $code
"""


@dataclass(frozen=True)
class MachineType:
    """A kind of machine: its firmware, and how QEMU is started.

    command: the program of QEMU. arguments, network: its options. counts: whether the machine's clock
    can count instructions.
    """

    build: Build
    instruction_set: str
    command: str
    arguments: tuple[str, ...]
    network: tuple[str, ...] = ()
    counts: bool = False

    def firmware(self) -> Path | None:
        """Return the file of the firmware; None if it is not built."""
        return self.build.find(self.instruction_set)


_VIRT = ("-M", "virt", "-bios", "none", "-global", "virtio-mmio.force-legacy=false")
_VIRT_NETWORK = ("-netdev", "user,id=air", "-device", "virtio-net-device,netdev=air")
MACHINES = {
    "rv32": MachineType(
        build=ESP32,
        instruction_set="rv32",
        command="qemu-system-riscv32",
        arguments=_VIRT,
        network=_VIRT_NETWORK,
        counts=True,
    ),
    "xtensa": MachineType(
        build=ESP32,
        instruction_set="xtensa",
        command="qemu-system-xtensa",
        arguments=("-M", "lx60", "-cpu", "dc233c", "-m", "16M"),
        network=("-nic", "user"),
        counts=True,
    ),
    "m33": MachineType(
        build=M33,
        instruction_set="m33",
        command="qemu-system-arm",
        arguments=("-M", "mps2-an505"),
    ),
}
# The same machines with Debian's newest MicroPython.
MACHINES.update(
    {f"{name}-newest": replace(machine, build=NEWEST) for name, machine in MACHINES.items()}
)


class QemuMachine(EmulatedMachine):
    """A running machine of QEMU."""

    def cut_power(self) -> None:
        """End the process: its flash is always as after a power cut."""
        self.close()


def boot(
    name: str,
    flash: Path | None = None,
    *,
    seed: int | None = None,
    count_instructions: bool = False,
    skip_idle: bool = False,
) -> QemuMachine:
    """Start a machine of QEMU.

    name: a key of MACHINES. flash: the file that keeps its flash; None: the flash is lost at the
    end. seed: makes os.urandom return the same in each run. count_instructions: its clock counts an
    instruction as a nanosecond. skip_idle: if it counts instructions, time in which it only waits
    passes at once. Raises DeviceError if it is not built or does not start, and UsageError for a
    flash in use.
    """
    machine = MACHINES[name]
    firmware = machine.firmware()
    if firmware is None:
        hint = f"make it: {build_command(name)}"
        raise DeviceError(f"the emulated {name} is not built yet", hint)

    options: list[str] = []
    if count_instructions:
        clock = "shift=0"  # an instruction takes 2**0 nanoseconds
        if skip_idle:
            clock += ",sleep=off"
        options += ["-icount", clock]
    options += ["-kernel", str(firmware)]
    folder = Path(tempfile.mkdtemp(prefix=f"tern-{name}-"))

    def remove_folder() -> None:
        shutil.rmtree(folder, ignore_errors=True)

    try:
        _fill(folder, flash, seed)
        process = _start(machine, options, folder, flash)
    except BaseException:
        remove_folder()
        raise
    running_machine = QemuMachine(process, url=f"socket://{folder / _PORT}", clean=remove_folder)
    try:
        _wait_until_started(running_machine, folder, name)
    except BaseException:
        running_machine.close()
        raise
    return running_machine


def _start(
    machine: MachineType, options: list[str], folder: Path, flash: Path | None
) -> subprocess.Popen[str]:
    """Start QEMU in `folder`, with the machine's console at a socket there.

    options: of QEMU, in addition to those of the machine. flash: its file, which stays locked until
    QEMU ends; None: it needs no lock. Raises UsageError for a flash in use.
    """
    with (
        socket.socket(socket.AF_UNIX) as server,  # in a folder closed to other users
        locked(flash, FLASH_BLOCKS * BLOCK_BYTES) as lock,
        beyond_9(server.fileno()) as port,
    ):
        server.bind(str(folder / _PORT))
        server.listen()
        command = [machine.command, *machine.arguments, *machine.network]
        command += ["-display", "none", "-monitor", "none"]
        command += ["-semihosting-config", "enable=on,target=native"]
        command += ["-chardev", f"socket,id=console,fd={port},server=on,wait=off"]
        command += ["-serial", "chardev:console", "-pidfile", _PID, *options]
        with open(folder / _LOG, "wb") as log:
            return subprocess.Popen(
                ["sh", "-c", _SUPERVISED, "sh", *command],  # "sh" is $0, the command is "$@"
                cwd=folder,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                text=True,
                umask=0o077,  # its files are readable by their owner only
                start_new_session=True,  # Ctrl-C is the host's to handle
                pass_fds=(port, *lock),
            )


def _fill(folder: Path, flash: Path | None, seed: int | None) -> None:
    """Make the files in a machine's folder from which port/board.h reads the time, an id and the flash.

    flash: the file that keeps the flash; None: one in the folder. seed: see `boot`. Raises UsageError
    if the flash cannot be made.
    """
    (folder / "epoch").write_text(str(int(time.time())))
    if seed is None:
        (folder / "id").write_bytes(secrets.token_bytes(8))
    else:
        (folder / "id").write_bytes(seed.to_bytes(8, "little"))
        (folder / "seed").write_bytes(seed.to_bytes(8, "little"))
    if flash is None:
        (folder / "flash").touch()
        return
    try:
        os.close(os.open(flash, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        raise UsageError(f"cannot keep a flash at {flash}: {error.strerror}") from error
    (folder / "flash").symlink_to(flash.resolve())


def _wait_until_started(machine: QemuMachine, folder: Path, name: str) -> None:
    """Wait until a machine runs, which is when QEMU has written its process id into `folder`.

    name: of the machine, for the error. Raises DeviceError if it does not start in time.
    """
    give_up_at = time.monotonic() + _START_SECONDS
    while not (folder / _PID).exists():
        is_late = time.monotonic() > give_up_at
        if is_late or not machine.is_running:
            log_lines = (folder / _LOG).read_text(errors="replace").strip().splitlines()
            reason = log_lines[-1] if log_lines else "it does not start in time"
            text = f"QEMU does not start the emulated {name}: {reason}"
            raise DeviceError(text, hint=build_command(name))
        time.sleep(0.01)


def build_command(name: str) -> str:
    """Return the command of tern that builds the firmware of a machine. name: a key of MACHINES."""
    for what, build in BUILDS.items():
        if build == MACHINES[name].build:
            return f"tern emulator build {what}"
    raise KeyError(name)


def info() -> dict[str, Any]:
    """Return what `tern emulator info --json` says of QEMU's machines.

    That is the record of each build, None if there is none, and the versions of QEMU's programs.
    """
    records = {what: cache.read_record(build.recipe) for what, build in BUILDS.items()}
    commands = sorted({machine.command for machine in MACHINES.values()})
    versions = {command: version_of(command) or None for command in commands}
    return {**records, "qemu": versions}
