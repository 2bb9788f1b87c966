"""A board emulated by a process of this machine, and the lock of its flash."""

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ternhost.errors import UsageError
from ternhost.files import Closing, close_to_others, require_one_name

_LOCK_SECONDS = 3.0  # the board of a host that was killed ends a little after it


class EmulatedMachine(Closing):
    """A running emulated board; a context manager. Its console is at `url`, for serial_for_url."""

    def __init__(
        self, process: subprocess.Popen[str], url: str, clean: Callable[[], None] = lambda: None
    ) -> None:
        """clean: is called once the process has ended."""
        self._process = process
        self._clean = clean
        self.url = url

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def cut_power(self) -> None:
        """Kill it: the flash stays as it was at the last erase or program that was complete."""
        self._process.kill()
        self.close()

    def close(self) -> None:
        """End the process, and call `clean`."""
        self._process.terminate()
        for stream in (self._process.stdin, self._process.stdout):
            if stream:
                stream.close()
        self._process.wait()
        self._clean()


@contextlib.contextmanager
def beyond_9(descriptor: int) -> Iterator[int]:
    """A duplicate of a descriptor that a shell between does not use: those up to 9 are its own."""
    import fcntl  # absent on Windows, where other tools import this module

    duplicate = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
    try:
        yield duplicate
    finally:
        os.close(duplicate)


def lock_within(lock: int, seconds: float) -> bool:
    """Try to lock an open file for some seconds; return whether it is locked.

    lock: its descriptor. The processes that inherit the file hold the lock until they end.
    """
    import fcntl

    give_up_at = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > give_up_at:
                return False
            time.sleep(0.02)


@contextlib.contextmanager
def locked(flash: Path | None, size: int) -> Iterator[tuple[int, ...]]:
    """Lock the flash, of `size` bytes, until the process that inherits the descriptors ends.

    Yields the descriptors to pass on. Two boards on one flash would spend one device's budget
    twice. Raises UsageError for a flash in use, and for a file of another size, which is another
    kind of board's. Raises StorageError for a flash with hard links: the lock lies beside one name.
    """
    if flash is None:
        yield ()
        return
    flash = flash.resolve()  # it may be known by several names
    try:
        # Beside it: to be there, the flash has to hold a firmware.
        descriptor = os.open(f"{flash}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UsageError(f"cannot keep a flash at {flash}: {error.strerror}") from error
    with beyond_9(descriptor) as lock:
        os.close(descriptor)
        if not lock_within(lock, _LOCK_SECONDS):
            hint = "end that one, or name another file"
            raise UsageError(f"another emulated board uses {flash}", hint=hint)
        if flash.exists():
            require_one_name(flash)
            close_to_others(flash)  # it holds keys
            if flash.stat().st_size not in (0, size):
                text = f"{flash} does not have the size of this board's flash: "
                raise UsageError(f"{text}is it another board's?", hint="name another file")
        yield (lock,)
