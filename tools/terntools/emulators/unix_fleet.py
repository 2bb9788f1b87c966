"""A fleet of emulated boards: MicroPython processes, each with a directory of its own.

Each is at the end of a pty, a pair of connected terminals, the other end of which is its port. This
process keeps both ends open, so that a port outlives restarts of its board and of the host.
"""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import tern
from ternhost import child_processes
from ternhost.errors import DeviceError, StorageError
from ternhost.files import close_to_others, private
from terntools.emulators.micropython import device_command
from terntools.emulators.process import lock_within

LOG_NAME = "board.log"
_LOCK_NAME = "board.lock"
_LOCK_TIMEOUT = 10.0  # seconds

FIRMWARE = Path(tern.__path__[0]).resolve().parent  # the folder of the device library


class EmulatedBoard:
    """A MicroPython process that runs the device library on the files of a directory.

    port: the path of the terminal at which it answers.
    """

    def __init__(
        self,
        binary: str | Path,
        directory: str | Path,
        firmware: Path = FIRMWARE,
        program: str | Path | None = None,
        port_is_read: bool = True,
    ) -> None:
        """Start the board.

        binary: the MicroPython interpreter. directory: of the board's files. firmware: the folder of the
        device library. program: a file of MicroPython that runs instead of tern's main.py.
        port_is_read: whether somebody reads what the board prints at its port; otherwise it prints
        into board.log, since a port that nobody reads blocks the program. Raises DeviceError.
        """
        self._port_is_read = port_is_read
        self.binary = Path(binary)
        self.program: tuple[str | Path, ...] = ("-m", "tern.boards.emulated")
        if program is not None:
            self.program = (Path(program).resolve(),)
        self.directory = Path(directory).resolve()
        self.firmware = firmware
        import tty  # absent on Windows

        # The process has the far end. The near end is the port, which the host opens by its path.
        self._far, self._near = os.openpty()
        tty.setraw(self._near)
        self.port = os.ttyname(self._near)
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int | None:
        """The id of the process; None if the board is switched off."""
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start the process. Its messages go to board.log in its directory. Raises DeviceError."""
        lock = self._lock()
        try:
            with open(self.directory / LOG_NAME, "ab", opener=private) as log:
                self._process = child_processes.start(
                    device_command(self.binary, *self.program, self.directory),
                    stdin=self._far,
                    stdout=self._far if self._port_is_read else log,
                    stderr=log,
                    cwd=self.directory,
                    env={**os.environ, "MICROPYPATH": f"{self.firmware}{os.pathsep}.frozen"},
                    pass_fds=(lock,),
                    umask=0o077,  # its files are readable by their owner only
                    # Ctrl-C is for the host, which then ends its boards in order
                    start_new_session=True,
                )
        except OSError as error:
            text = f"cannot start MicroPython ({self.binary}): {error.strerror}"
            raise DeviceError(text, hint="'make setup' builds it") from error
        finally:
            os.close(lock)  # the process holds the lock by its own descriptor

    def _lock(self) -> int:
        """Lock the board's directory, and return the descriptor of the lock, which the process inherits.

        The process takes no lock itself. Raises StorageError if there is no directory, and DeviceError if
        another process runs the board.
        """
        try:
            lock = os.open(self.directory / _LOCK_NAME, os.O_CREAT | os.O_RDWR, 0o600)
        except OSError as error:
            text = f"{self.directory}: {error.strerror}"
            raise StorageError(text, hint="check that the folder of this board is there") from error
        if lock_within(lock, _LOCK_TIMEOUT):
            return lock
        os.close(lock)
        text = f"another process runs the emulated board in {self.directory}"
        raise DeviceError(text, hint="end that one first")

    def kill(self) -> None:
        """End the process at once, as a power cut ends a board."""
        if self._process:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        """End the process and start another one, as a power cut restarts a board. The port stays the same."""
        self.kill()
        self.start()

    def failure(self) -> DeviceError | None:
        """Return an error that says why the process has ended by itself; None if it has not."""
        status = None
        if self._process is not None:
            status = self._process.poll()
        if status is None:
            return None
        log = self.directory / LOG_NAME
        text = f"the emulated board in {self.directory} ended with status {status}"
        lines = log.read_text(errors="replace").strip().splitlines()
        if lines:
            text += f": {lines[-1]}"
        return DeviceError(text, hint=f"see {log}")

    def close(self) -> None:
        """Kill the process, which a board survives as it does a power cut, and close its port."""
        self.kill()
        for descriptor in (self._far, self._near):
            if descriptor >= 0:
                os.close(descriptor)
        self._far = self._near = -1  # closed


class EmulatedFleet:
    """Emulated boards, one for each directory, from entering the context until leaving it."""

    def __init__(
        self,
        binary: str | Path,
        directories: Sequence[str | Path],
        program: str | Path | None = None,
        port_is_read: bool = True,
    ) -> None:
        """Prepare a fleet with a board for each directory; nothing is started yet.

        binary: the MicroPython interpreter. program: a file of MicroPython that runs instead of tern's
        main.py. port_is_read: as of `EmulatedBoard`.
        """
        self._port_is_read = port_is_read
        self._binary = binary
        self._directories = directories
        self._program = program
        self.boards: list[EmulatedBoard] = []

    @property
    def ports(self) -> list[str]:
        return [board.port for board in self.boards]

    def failed(self) -> dict[str, DeviceError]:
        """Return the errors of the boards whose processes have ended, by the boards' ports."""
        failures = {}
        for board in self.boards:
            failure = board.failure()
            if failure is not None:
                failures[board.port] = failure
        return failures

    def __enter__(self) -> Self:
        """Start all boards."""
        try:
            for directory in self._directories:
                board = EmulatedBoard(
                    self._binary,
                    directory,
                    program=self._program,
                    port_is_read=self._port_is_read,
                )
                self.boards.append(board)
                close_to_others(directory)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        while self.boards:
            self.boards.pop().close()
