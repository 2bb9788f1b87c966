"""Files that are whole or not there, and files that are their owner's alone."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ternhost.errors import StorageError


def private(path: str, flags: int) -> int:
    """An opener for open(): a file that it makes is for its owner alone."""
    return os.open(path, flags, 0o600)


def close_to_others(path: str | Path, make: bool = False) -> None:
    """Leave a file or a directory to its owner alone: an older version may have left it open. Raises StorageError.

    make: make the file where there is none. One that is there is not opened: when it is closed, this process loses
    whatever lock it has on it.
    """
    with storage_errors("check the path and its owner", path):
        if make and not os.path.exists(path):
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
        if os.name == "posix":
            os.chmod(path, stat.S_IMODE(os.stat(path).st_mode) & 0o700)


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


@contextmanager
def storage_errors(hint: str | None = None, what: object = None) -> Iterator[None]:
    """Raise StorageError for an OSError within the context; it begins with `what`, or the name of the file."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{what or error.filename}: {error.strerror}", hint=hint) from error


def write_file(path: Path, data: bytes, secret: bool = False) -> None:
    """Replace a file at once; a secret one is for its owner alone. Raises OSError."""
    write_whole(path, data, 0o600 if secret else 0o644)
