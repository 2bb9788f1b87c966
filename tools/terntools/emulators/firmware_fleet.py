"""A fleet of emulated boards that run a board's firmware: Picos or machines of QEMU.

A board's directory has the files that provisioning made (keys, records, ledgers of spent budget),
and the board's flash, `flash.bin`, which is made at the first start and kept. The board works with
the files in its flash. When the fleet is closed, its ledgers are copied into the directory, where
people and tools can read them.
"""

import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from tern import storage
from ternhost.errors import DeviceError, TernError
from ternhost.files import close_to_others, private
from terntools.boards import file_changes, machines, mpy, self_check, software, starting
from terntools.boards.program import read
from terntools.boards.repl import Repl
from terntools.emulators import catalogue, flash_image
from terntools.emulators.process import EmulatedMachine

FLASH_NAME = "flash.bin"
_READY_NAME = "flash.ready"  # made last: a flash without it is filled again
_AT_ONCE = 2  # boards that start at the same time
_START_SECONDS = 60.0  # in which a board shows a first sign that it runs, even on a busy computer
# Pairs of a kind of board and a version of mpy-cross whose code was found to be right there, by
# this process.
_tried: set[tuple[str, str]] = set()


class FirmwareFleet:
    """Emulated boards of one kind, one for each directory, from entering the context until leaving it."""

    def __init__(
        self,
        name: str,
        directories: Sequence[str | Path],
        *,
        whole: bool = False,
        more: Sequence[str] = (),
        program: str | Path | None = None,
    ) -> None:
        """Prepare a fleet with a board for each directory; nothing is started yet.

        name: the kind of board, one of catalogue.NAMES. whole: install every module of the device library
        instead of the needed ones. more: names of extra modules to install. program: a file of MicroPython
        that the boards run instead of tern's main.py.
        """
        self._name = name
        self._directories = [Path(directory) for directory in directories]
        self._whole = whole
        self._more = more
        self._program = program
        self._library: dict[str, bytes] = {}
        self._boards: list[EmulatedMachine] = []

    @property
    def ports(self) -> list[str]:
        return [board.url for board in self._boards]

    def failed(self) -> dict[str, DeviceError]:
        """Return the errors of the boards whose processes have ended, by the boards' ports."""
        failures = {}
        for board, directory in zip(self._boards, self._directories, strict=True):
            if not board.is_running:
                text = f"the emulated {self._name} of {directory} has ended"
                failures[board.url] = DeviceError(text, hint="resume to start it again")
        return failures

    def __enter__(self) -> Self:
        """Start all boards with the library and their files on them."""
        try:
            for directory in self._directories:
                self._boards.append(self._boot(directory))
                close_to_others(directory)
            # Once for all, since the boards are alike.
            self._library = self._compile_library(self._boards[0])
            self._each(self._start)
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._each(_save_ledgers)
        finally:
            self._close()

    def _compile_library(self, board: EmulatedMachine) -> dict[str, bytes]:
        """Return the files of the device library, compiled for boards like this one, by path.

        Raises MiscompiledError if the board computes something else than the source says.
        """
        with Repl(board.url) as repl:
            machine = machines.Machine.of(repl)
            kind_and_compiler = self._name, mpy.compiler_version()
            if kind_and_compiler not in _tried:  # the check takes a Pico three seconds
                self_check.require_compiler(repl, machine.processor)
                _tried.add(kind_and_compiler)
        program = read(self._program) if self._program else None
        return software.library_files(machine, self._whole, self._more, program)

    def _boot(self, directory: Path) -> EmulatedMachine:
        return catalogue.boot(self._name, directory / FLASH_NAME)

    def _each(self, action: Callable[[EmulatedMachine, Path], None]) -> None:
        """Call `action` with each board and its directory, for _AT_ONCE boards at a time."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            outcomes = pool.map(action, list(self._boards), self._directories)
            list(outcomes)  # raises the error of an action, if there was one

    def _start(self, board: EmulatedMachine, directory: Path) -> None:
        """Bring the library and the provisioned files to a board, and start its program.

        A new flash is filled while the board is off, which is quicker than over its console.
        """
        is_filled = (directory / _READY_NAME).exists()
        if is_filled:
            with Repl(board.url) as repl:
                changes = file_changes.compare(repl, self._library, prune=software.LIBRARY)
                file_changes.apply(repl, changes)
                repl.start_main()
        else:
            board.close()
            flash_image.add(directory / FLASH_NAME, self._library | _provisioned(directory))
            (directory / _READY_NAME).touch(0o600)
            board = self._boot(directory)
            position = self._directories.index(directory)
            self._boards[position] = board  # so that it is closed even if it does not answer
        _wait_for_hello(board, directory)

    def _close(self) -> None:
        while self._boards:
            self._boards.pop().close()


def _provisioned(directory: Path) -> dict[str, bytes]:
    """Return the files that provisioning made in a board's directory, by their paths on the board.

    A board does not have all kinds of them.
    """
    names = [storage.RECORDS, storage.FLEET, storage.CLIENTS]
    for ledger in sorted((directory / storage.LEDGERS).glob("*")):
        names.append(f"{storage.LEDGERS}/{ledger.name}")
    files = {}
    for name in names:
        path = directory / name
        if path.exists():
            files[f"/{name}"] = path.read_bytes()
    return files


def _wait_for_hello(board: EmulatedMachine, directory: Path) -> None:
    """Wait until a board that was just started answers. Raises DeviceError."""
    slot = 0.0
    fleet_file = directory / storage.FLEET
    if fleet_file.exists():
        _key, _pause, slot_ms, *_rest = storage.read_fleet(str(fleet_file))
        slot = slot_ms / 1000
    starting.wait_for_hello(board.url, slot, max(_START_SECONDS, starting.HELLO_WAIT))


def _save_ledgers(board: EmulatedMachine, directory: Path) -> None:
    """Copy the ledgers of a board into its directory. A board that does not answer is left alone."""
    with contextlib.suppress(TernError), Repl(board.url) as repl:
        for path in repl.files.sizes("/" + storage.LEDGERS):
            with open(directory / path.lstrip("/"), "wb", opener=private) as file:
                file.write(repl.files.read(path))
