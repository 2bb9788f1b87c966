"""The directory in which a save or a restore works, until its result is complete.

It lies beside the result, has the keys of devices, and is removed at the end. Only a process that
is killed, or whose machine stops, leaves it there. The next save or restore in the same folder
removes it then.
"""

import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PREFIX = ".tern-backup-"
_NAME = re.compile(re.escape(_PREFIX) + "[a-z0-9_]{8}")  # of those that `tempfile` makes
_LOCK = "lock"  # a file beside the content, which the process has locked that works there
_CONTENT = "content"


@contextmanager
def working_directory(parent: Path) -> Iterator[Path]:
    """Yield an empty directory somewhere in `parent`, which only its owner can read.

    It is removed at the end, unless the context has moved it to another place. First, those are
    removed that were left by processes that no longer run. Raises OSError.
    """
    _remove_abandoned(parent)
    work, lock = _make(parent)
    try:
        content = work / _CONTENT
        content.mkdir(mode=0o700)
        yield content
    finally:
        shutil.rmtree(work, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _make(parent: Path) -> tuple[Path, int | None]:
    """Make a directory, and lock it; return it and the descriptor of the lock. Raises OSError.

    The lock ends with this process, however that ends. It is None on Windows, and on disks without
    locks: nobody removes an abandoned directory there.
    """
    while True:
        work = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))  # mode 700
        if sys.platform == "win32":
            return work, None
        try:
            return work, _lock(work)
        except (BlockingIOError, FileNotFoundError):
            continue  # another process took it for an abandoned one before it was locked
        except OSError:
            return work, None


def _remove_abandoned(parent: Path) -> None:
    """Remove the directories of `working_directory` whose processes no longer run.

    Those of other users stay, and so does whatever else has such a name. Raises OSError if `parent`
    cannot be read.
    """
    if sys.platform == "win32":
        return
    for path in sorted(parent.iterdir()):
        if not (_NAME.fullmatch(path.name) and _is_own_directory(path)):
            continue
        try:
            lock = _lock(path)
        except OSError:
            continue  # its process runs, another one removes it, or the disk has no locks
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def _is_own_directory(path: Path) -> bool:
    """Whether a path is a directory of this user, and not a link to one."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


def _lock(work: Path) -> int:
    """Lock a directory, and return the descriptor of the lock.

    Raises BlockingIOError if another process has the lock, FileNotFoundError if that has removed
    the directory, and other kinds of OSError if there are no locks.
    """
    import fcntl  # absent on Windows

    path = work / _LOCK
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(lock), path.lstat()):
            raise FileNotFoundError(path)
    except OSError:
        os.close(lock)
        raise
    return lock
