"""A fleet of emulated boards that run a board's firmware: Picos or machines of QEMU, each with its
own flash.

A board's directory has what provisioning made, and `flash.bin`, made at the first start and kept.
Ledgers are copied back when the fleet is closed, for people and tools; those in the flash count.
"""

import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from tern import storage
from ternhost.errors import DeviceError, TernError
from ternhost.files import close_to_others, private
from terntools.boards import deploy, mpy, self_check
from terntools.boards.program import read
from terntools.boards.repl import Repl
from terntools.emulators import catalogue, flash_image
from terntools.emulators.process import EmulatedMachine

FLASH_NAME = "flash.bin"
_READY_NAME = "flash.ready"  # made last: a flash without it is filled again
_AT_ONCE = 2  # boards that start at the same time
_suitable: set[tuple[str, str]] = (
    set()
)  # kind of board and compiler, once tried; a kind has one firmware


class FirmwareFleet:
    """Emulated boards of one kind, one a directory, from entering the context until leaving it."""

    def __init__(
        self,
        name: str,
        directories: Sequence[str | Path],
        *,
        whole: bool = False,
        more: Sequence[str] = (),
        program: str | Path | None = None,
    ) -> None:
        """name: of catalogue.NAMES. whole, more: see deploy.library_files. program: instead of
        tern's main.py.
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
        """The ports of boards whose processes ended, and why."""
        return {
            board.url: DeviceError(
                f"the emulated {self._name} of {directory} has ended",
                hint="resume to start it again",
            )
            for board, directory in zip(self._boards, self._directories, strict=True)
            if not board.is_running
        }

    def __enter__(self) -> Self:
        try:
            for directory in self._directories:
                self._boards.append(self._boot(directory))
                close_to_others(directory)
            with Repl(self._boards[0].url) as repl:  # once for all: they are alike
                machine = deploy.Machine.of(repl)
                pair = self._name, mpy.compiler_version()
                if pair not in _suitable:  # it takes a Pico three seconds
                    self_check.require_compiler(repl, machine.processor)
                    _suitable.add(pair)
                program = read(self._program) if self._program else None
                self._library = deploy.library_files(machine, self._whole, self._more, program)
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

    def _boot(self, directory: Path) -> EmulatedMachine:
        return catalogue.boot(self._name, directory / FLASH_NAME)

    def _each(self, action: Callable[[EmulatedMachine, Path], None]) -> None:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(action, list(self._boards), self._directories))

    def _start(self, board: EmulatedMachine, directory: Path) -> None:
        if (directory / _READY_NAME).exists():
            with Repl(board.url) as repl:
                deploy.apply(repl, deploy.compare(repl, self._library, prune=deploy.LIBRARY))
                repl.start_main()
        else:
            board.close()
            flash_image.add(directory / FLASH_NAME, self._library | _provisioned(directory))
            (directory / _READY_NAME).touch(0o600)
            board = self._boot(directory)
            self._boards[self._directories.index(directory)] = board  # to be closed, whatever comes
        deploy.wait_for_hello(board.url)

    def _close(self) -> None:
        while self._boards:
            self._boards.pop().close()


def _provisioned(directory: Path) -> dict[str, bytes]:
    names = [storage.RECORDS, storage.FLEET, storage.CLIENTS]
    names += [
        f"{storage.LEDGERS}/{path.name}" for path in sorted((directory / storage.LEDGERS).glob("*"))
    ]
    return {
        f"/{name}": (directory / name).read_bytes() for name in names if (directory / name).exists()
    }


def _save_ledgers(board: EmulatedMachine, directory: Path) -> None:
    with contextlib.suppress(TernError), Repl(board.url) as repl:
        for path in repl.directory("/" + storage.LEDGERS):
            with open(directory / path.lstrip("/"), "wb", opener=private) as file:
                file.write(repl.read_file(path))
