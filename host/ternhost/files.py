"""Files: written atomically, readable by their owner alone, and closed after use."""

import errno
import json
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from ternhost.errors import StorageError, UsageError

LONGEST_NAME = 255
"""How many bytes the name of a file or a directory can have."""
_LONGEST_PATH = 4095  # bytes


class Closing(ABC):
    """The base of objects that are closed when their `with` statement ends."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None: ...


def private(path: str, flags: int) -> int:
    """Open a file, as an opener for open(): only the owner may read and write a new one."""
    return os.open(path, flags, 0o600)


def close_to_others(path: str | Path, make: bool = False) -> None:
    """Restrict an existing file or directory to its owner. Raises StorageError.

    make: create a missing file. An existing one is not opened, because this process would lose its
    locks on the file when closing it.
    """
    with storage_errors("check the path and its owner", path):
        if make and not os.path.exists(path):
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
        if os.name == "posix":
            mode = stat.S_IMODE(os.stat(path).st_mode)
            os.chmod(path, mode & 0o700)  # without the rights of the group and of others


def path_text(value: str | os.PathLike[str], what: str) -> str:
    """Return a path as a text. Raises UsageError for anything that no file can have as its path.

    what: the parameter that it is for, for the message.
    """
    if not isinstance(value, str | os.PathLike):
        raise UsageError(f"{what} must be a name or a path, not {type(value).__name__}")
    name = os.fspath(value)
    if not isinstance(name, str) or not name or "\0" in name:
        raise UsageError(f"{what} must be a name or a path that is not empty")
    try:
        encoded = name.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{what} has a character that no file's name has") from None
    longest_part = max(map(len, encoded.split(b"/")))
    if longest_part > LONGEST_NAME or len(encoded) > _LONGEST_PATH:
        raise UsageError(f"{what} is too long for the path of a file")
    return name


def real(path: Path) -> Path:
    """Return the file that a symbolic link points to, or else `path` itself.

    So files that are written beside it lie beside the file, and not beside the link.
    """
    if path.is_symlink():
        return Path(os.path.realpath(path))
    return path


def require_one_name(path: Path) -> None:
    """Raise StorageError if a file has several names, by hard links.

    Locks and the log of a store lie beside a name. Two programs that open the file under different
    names would not see each other's locks.
    """
    names = path.stat().st_nlink
    if names > 1:
        text = f"{path} has {names} names (hard links), and may have one only:"
        text += " a program that opens it by another name would not notice this one"
        hint = f"find them (find DIRECTORY -samefile {path}), and remove all but one"
        raise StorageError(text, hint=hint)


def _is_standard_input(path: Path) -> bool:
    """Return whether a path is where this process reads what a user types."""
    return os.isatty(0) and os.path.samestat(path.stat(), os.fstat(0))


def read_whole(path: Path) -> bytes:
    """Return the content of a file that a user names.

    A device such as /dev/zero has no end, so that reading it would fill the memory. Raises
    UsageError for a device, OSError for what cannot be read, and ValueError for what is no path.
    """
    if stat.S_ISCHR(path.stat().st_mode) and not _is_standard_input(path):
        raise UsageError(f"{path} is a device, and no file", hint="name a file")
    return path.read_bytes()


def write_file(path: Path, data: bytes, secret: bool = False) -> None:
    """Write or replace a file atomically; when this returns, all of it is on the disk.

    secret: only its owner may read it. Raises OSError.
    """
    flags = os.O_CREAT | os.O_TRUNC | os.O_WRONLY
    mode = 0o644
    if secret:
        mode = 0o600
    with replacing(path) as temporary, open(os.open(temporary, flags, mode), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield the path of a temporary file, which replaces `path` when the context ends.

    It is beside `path` and has the same suffix. After an error it is deleted, and an existing file
    at `path` stays. If `path` is a device or a pipe, it is yielded itself. Raises OSError.
    """
    target = Path(os.path.realpath(path))
    is_device_or_pipe = target.exists() and not target.is_file()
    if is_device_or_pipe:
        yield target
        return
    temporary = target.with_name(f".{target.stem}-{os.getpid()}{target.suffix}")
    try:
        yield temporary
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


# What a user can do about an error of the operating system, by its code.
_REMEDIES = {
    errno.ENOSPC: "make room",
    errno.EDQUOT: "make room",
    errno.EROFS: "make the disk writable",
    errno.EACCES: "allow yourself to write there",
    errno.EPERM: "allow yourself to write there",
    errno.EIO: "check the disk",
}


@contextmanager
def storage_errors(
    hint: str | None = None, what: object = None, afterwards: str | None = None
) -> Iterator[None]:
    """Turn an OSError of the context into a StorageError.

    hint: what to do, whatever the reason is. what: the beginning of the message, by default the
    name of the file. afterwards: instead of `hint`, the end of one that begins with a remedy for
    the reason, such as "make room", if it is a full disk.
    """
    try:
        yield
    except OSError as error:
        beginning = what or error.filename
        if afterwards:
            remedy = _REMEDIES.get(error.errno or 0, "check the path and its owner")
            hint = f"{remedy}, {afterwards}"
        raise StorageError(f"{beginning}: {error.strerror}", hint=hint) from error


def read_object(path: Path, hint: str | None = None) -> dict[str, Any]:
    """Read the JSON object in a file.

    Raises UsageError if it is missing or not a JSON object, StorageError if it cannot be read.
    """
    try:
        content = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UsageError(f"{path}: {error.strerror}", hint) from error
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror}", hint) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}", hint) from error
    if not isinstance(content, dict):
        raise UsageError(f"{path} is not a JSON object", hint)
    return content
