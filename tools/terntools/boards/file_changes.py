"""The changes that make a board's files the wanted ones: only what differs is written."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from ternhost.text import counted
from terntools.boards import hiding
from terntools.boards.files import FileProgress
from terntools.boards.repl import Repl
from terntools.boards.software import MAIN
from terntools.boards.undo import UNDO


@dataclass(frozen=True)
class Changes:
    """The changes to a board's files that a deployment makes."""

    write: dict[str, bytes]  # the content of files by path, in the order of writing
    remove: tuple[str, ...]  # paths of files
    main: bytes = b""  # the board's main.py
    note: str = ""  # what the user should know of the changes
    move: tuple[str, ...] = ()  # paths of files and folders that hide the library, and are renamed

    def __bool__(self) -> bool:
        return bool(self.write or self.remove or self.move)

    @property
    def size(self) -> int:
        """The bytes of all files to write."""
        return sum(map(len, self.write.values()))

    def text(self) -> str:
        """Describe the changes in one line."""
        steps = []
        if self.move:
            paths = ", ".join(self.move)
            steps.append(f"rename what hides the library ({paths}), adding {hiding.MOVED}")
        if self.write:
            steps.append(f"write {counted(len(self.write), 'file')} ({counted(self.size, 'byte')})")
        if self.remove:
            steps.append(f"remove {counted(len(self.remove), 'file')}")
        line = ", ".join(steps)
        if not steps:
            line = "nothing to change"
        if self.note:
            line += f"; {self.note}"
        return line

    def lines(self) -> list[str]:
        """Describe the changes in a line for each file; the note, if there is one, comes last."""
        lines = []
        for path in self.move:
            lines.append(f"rename {path} to {path}{hiding.MOVED}: it hides the library")
        for path, data in self.write.items():
            lines.append(f"write  {path}  {len(data):,} bytes")
        for path in self.remove:
            lines.append(f"remove {path}")
        if self.note:
            lines.append(self.note)
        return lines


def digest(data: bytes) -> str:
    """Return the digest of a file's bytes, as Files.digests returns it for a file on a board."""
    return hashlib.sha256(data).digest()[:8].hex()


def compare(repl: Repl, files: Mapping[str, bytes], prune: str | None = None) -> Changes:
    """Find the changes after which the board has `files`, and no others under `prune`.

    files: contents by path. prune: a folder of the board, or None to remove nothing. The files that
    an interrupted deployment renamed, to undo it, are not removed.
    """
    digests_on_board = repl.files.digests(list(files))
    changed = {}
    for path, data in files.items():
        if digests_on_board.get(path) != digest(data):
            changed[path] = data
    stale = []
    if prune:
        for path in sorted(repl.files.sizes(prune)):
            if path not in files and not path.endswith(UNDO):
                stale.append(path)
    return Changes(write=changed, remove=tuple(stale), main=files.get(MAIN, b""))


def apply(repl: Repl, changes: Changes, progress: FileProgress | None = None) -> None:
    """Write and remove the files of the board as `changes` says.

    After an interruption every file is whole, the old one or the new one, and the same call makes
    the changes that are left. progress: is called with the bytes written until now and with the
    bytes of all files.
    """
    bytes_done = 0  # of the files before the current one
    for path, data in changes.write.items():
        # As a default value, bytes_done is that of this turn of the loop.
        def show(sent: int, total: int, bytes_done: int = bytes_done) -> None:
            """Report the progress over all files; the size of this one (`total`) is not needed."""
            if progress:
                progress(bytes_done + sent, changes.size)

        repl.files.write(path, data, show)
        bytes_done += len(data)
    for path in changes.remove:
        repl.files.remove(path)
