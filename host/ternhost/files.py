"""Files that are whole or not there, and files that are their owner's alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def private(path: str, flags: int) -> int:
    """An opener for open(): a file that it makes is for its owner alone."""
    return os.open(path, flags, 0o600)


def write_whole(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Write a file that is on the disk, whole, when this returns; one that was there is replaced.

    Raises OSError.
    """
    with replacing(path) as temporary:
        descriptor = os.open(temporary, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, mode)
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary name beside `path`, with the same ending, to write to; it takes the name `path` if nothing is raised.

    Otherwise what was written is deleted, and a file that was there stays. A device or a pipe is written to as it is.
    Raises OSError.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        yield target
        return
    temporary = target.with_name(f".{target.stem}-{os.getpid()}{target.suffix}")
    try:
        yield temporary
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
