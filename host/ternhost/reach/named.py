"""Emulated boards that have a name, which keep their port and their flash from one start to the next.

`tern emulator run --name desk` runs one. Its folder is BOARDS/desk, where BOARDS is
`boards_folder()`. The flash of an emulated Pico is `pico.bin` there. While the board runs,
`pico.bin.lock` is locked, and `port` is a link to the socket at which the board is.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from ternhost.errors import UsageError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
_FLASH_ENDING = ".bin"


@dataclass(frozen=True)
class NamedBoard:
    """An emulated board with a name. kind: of the board, such as "pico"."""

    name: str
    kind: str

    @property
    def folder(self) -> Path:
        return boards_folder() / self.name

    @property
    def flash(self) -> Path:
        """The file that keeps its flash, and so its keys and its ledger."""
        return self.folder / f"{self.kind}{_FLASH_ENDING}"

    @property
    def link(self) -> Path:
        """A link to the socket of its port, which is there while the board runs."""
        return self.folder / "port"

    @property
    def url(self) -> str:
        """Its port, which is the same after each start."""
        return f"socket://{self.link}"

    @property
    def is_running(self) -> bool:
        """Whether a process has the lock of the flash."""
        try:
            import fcntl  # Windows does not have it, nor emulated boards
        except ImportError:
            return False
        try:
            lock = os.open(f"{self.flash}.lock", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)  # gives a lock back
        return False


def boards_folder() -> Path:
    """Return the folder of all named boards: tern/boards in $XDG_DATA_HOME or ~/.local/share."""
    data_home = Path(os.environ.get("XDG_DATA_HOME", ""))
    if not data_home.is_absolute():
        data_home = Path.home() / ".local/share"
    return data_home / "tern" / "boards"


def check_name(name: str) -> None:
    """Raise UsageError unless a board can have this name."""
    if not _NAME.fullmatch(name):
        text = f"--name must be up to 40 letters, digits, '.', '_' and '-', not {name!r}"
        raise UsageError(text, hint="such as --name desk")


def all_boards() -> list[NamedBoard]:
    """Return the named boards of this user, whether they run or not, sorted by name."""
    boards = []
    with contextlib.suppress(OSError):  # there are none yet
        for flash in boards_folder().glob(f"*/*{_FLASH_ENDING}"):
            boards.append(NamedBoard(name=flash.parent.name, kind=flash.stem))
    return sorted(boards, key=lambda board: (board.name, board.kind))
