"""The room on a board's flash, and what takes it when there is none left."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from tern import absence, lease, links, model, recorder, storage, update
from ternhost.errors import StorageError
from ternhost.text import counted

if TYPE_CHECKING:
    from terntools.boards.repl import Repl

# What must stay on a board: the library, programs, and what tern keeps there. Records have a command
# that removes them.
_FOLDERS = tuple(f"/{name}/" for name in ("lib/tern", "lib2", storage.LEDGERS, recorder.SAMPLES))
_FILES = frozenset(
    "/" + name.removeprefix("/")
    for name in (
        "boot.py",
        "columns.json",
        "lib/main.py",
        "lock",
        "main.py",
        *links.MODULES,
        absence.ABSENT,
        lease.LEASE,
        model.MODEL,
        storage.CLIENTS,
        storage.FLEET,
        storage.RECORDS,
        update.BOOT,
        update.STAGED,
    )
)
_LEAST_BYTES = 1024  # of a file that is worth removing; keys and settings of tern are smaller
_MOST_FILES = 5  # in a message
_TELL_ROOM = """
import uos
of_root = uos.statvfs("/")
_tell((of_root[0] * of_root[4], of_root[1] * of_root[2]))
"""


def require(repl: Repl, needed_bytes: int) -> None:
    """Raise StorageError unless so many bytes are free on the board's flash.

    Files take whole blocks, so that with barely enough bytes a file may not fit even so.
    """
    free_bytes, _ = _free_and_all(repl)
    if needed_bytes > free_bytes:
        raise full_error(repl, needed_bytes)


def full_error(repl: Repl, needed_bytes: int = 0) -> StorageError:
    """Return the error for a full flash, which says what takes the room and what may go.

    needed_bytes: that are to be free; 0 if that is not known.
    """
    free_bytes, all_bytes = _free_and_all(repl)
    text = f"the flash of the board on {repl.name} is full: {free_bytes:,} of {counted(all_bytes, 'byte')} are free"
    if needed_bytes:
        text += f", and {needed_bytes:,} are needed"
    sizes = repl.files.sizes("/")
    advice = []
    removable = _removable(sizes)
    if removable:
        files = ", ".join(f"{path} ({sizes[path]:,} bytes)" for path in removable)
        command = f"mpremote connect {repl.name} rm {shlex.quote(':' + removable[0])}"
        advice.append(f"remove what you do not need of {files}, as in: {command}")
    if any(path.startswith(f"/{recorder.SAMPLES}/") for path in sizes):
        command = f"tern board records {repl.name} --output FILE --clear"
        advice.append(f"save and remove the records that its program has collected: {command}")
    if not advice:
        advice.append("all large files are tern's: deploy without --whole, and fewer modules")
    advice.append(f"never remove /{storage.LEDGERS}, which has what the board has spent")
    return StorageError(text, "; ".join(advice))


def _removable(sizes: dict[str, int]) -> list[str]:
    """Return the paths of the largest files that tern does not need.

    sizes: of all files of the board, by path.
    """
    paths = []
    for path, size in sizes.items():
        is_of_tern = path.startswith(_FOLDERS) or path.removesuffix(".undo") in _FILES
        if size >= _LEAST_BYTES and not is_of_tern:
            paths.append(path)
    return sorted(paths, key=sizes.__getitem__, reverse=True)[:_MOST_FILES]


def _free_and_all(repl: Repl) -> tuple[int, int]:
    """Return the bytes of the board's file system that are free, and all of them.

    LittleFS counts a block twice that two files share for a moment, and may find less than none free.
    """
    free_bytes, all_bytes = repl.value(_TELL_ROOM)
    return max(0, free_bytes), all_bytes
