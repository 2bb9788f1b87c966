"""A board that a process of this machine emulates, and the lock of its flash."""

import contextlib
import json
import os
import selectors
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ternhost.errors import UsageError
from ternhost.files import Closing, close_to_others, require_one_name

_LOCK_SECONDS = 3.0  # to wait for a lock: a board ends a little after a host that was killed


class EmulatedMachine(Closing):
    """A running emulated board; a context manager.

    url: of its console, which serial_for_url of pyserial opens.
    """

    def __init__(
        self, process: subprocess.Popen[str], url: str, clean: Callable[[], None] = lambda: None
    ) -> None:
        """Take over the process of an emulated board that has started.

        clean: is called once the process has ended, to remove its files.
        """
        self._process = process
        self._clean = clean
        self.url = url

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def cut_power(self) -> None:
        """Kill the process, as a power cut ends a board.

        The flash stays as it was after the last operation that was complete.
        """
        self._process.kill()
        self.close()

    def close(self) -> None:
        """End the process, and remove its files."""
        self._process.terminate()
        for stream in (self._process.stdin, self._process.stdout):
            if stream:
                stream.close()
        self._process.wait()
        self._clean()


@contextlib.contextmanager
def beyond_9(descriptor: int) -> Iterator[int]:
    """Yield a duplicate of a file descriptor whose number is 10 or more.

    A shell that starts the process which is to get the descriptor uses those up to 9 itself.
    """
    import fcntl  # absent on Windows, where other tools import this module

    duplicate = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
    try:
        yield duplicate
    finally:
        os.close(duplicate)


def lock_within(lock: int, seconds: float) -> bool:
    """Try to lock an open file for so many seconds; return whether it is locked.

    lock: descriptor of the file. The processes that inherit it hold the lock until they end.
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
    """Lock a flash file until the process that inherits the yielded descriptors has ended.

    Two boards on one flash would spend one device's privacy budget twice. flash: None needs no lock.
    size: that a flash of this kind of board has, in bytes. Raises UsageError for a flash in use, and
    for a file of another size, which belongs to another kind of board. Raises StorageError for a flash
    with hard links: the lock is a file beside one of its names, and does not protect the others.
    """
    if flash is None:
        yield ()
        return
    flash = flash.resolve()  # it may be known by several names
    try:
        # The lock is a file of its own: the flash must not be there before it has a firmware.
        descriptor = os.open(f"{flash}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UsageError(f"cannot keep a flash at {flash}: {error.strerror}") from error
    with beyond_9(descriptor) as lock:  # a duplicate, as a shell can pass it on
        os.close(descriptor)
        if not lock_within(lock, _LOCK_SECONDS):
            hint = "end that one, or name another file"
            raise UsageError(f"another emulated board uses {flash}", hint=hint)
        if flash.exists():
            require_one_name(flash)
            close_to_others(flash)  # it holds keys
            has_size = flash.stat().st_size in (0, size)  # a new one is empty
            if not has_size:
                text = f"{flash} does not have the size of this board's flash: "
                raise UsageError(f"{text}is it another board's?", hint="name another file")
        yield (lock,)


def start(
    command: Sequence[str | Path], flash: Path | None, flash_bytes: int, seconds: float
) -> EmulatedMachine | None:
    """Start a program that emulates a board, and wait until a host would see the board's port.

    command: of the program. It prints {"port": PATH} as its first line, where PATH is a socket in a
    folder of its own, and ends when its input closes. flash: the file of the board's flash, which
    stays locked until the program ends; None: it needs no lock. flash_bytes: the size of the flash.

    Returns the board, or None if its port does not show up within so many seconds. Raises
    FileNotFoundError if there is no such program, and UsageError for a flash in use.
    """
    with locked(flash, flash_bytes) as lock:
        # A session of its own: Ctrl-C is the host's to handle. The program ends when its input
        # closes, which happens even if this process is killed.
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            umask=0o077,  # its flash and its port are its owner's alone
            pass_fds=lock,
        )
    first_line = _first_line(process, seconds)
    if not first_line:
        process.kill()
        process.wait()
        return None
    port = Path(json.loads(first_line)["port"])

    def remove_folder() -> None:
        shutil.rmtree(port.parent, ignore_errors=True)

    return EmulatedMachine(process, url=f"socket://{port}", clean=remove_folder)


def _first_line(process: subprocess.Popen[str], seconds: float) -> str:
    """Return the first line that a process prints; "" if there is none within so many seconds."""
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        if not selector.select(seconds):
            return ""
        return process.stdout.readline()
