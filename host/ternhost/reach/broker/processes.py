"""Finds the process of a broker on this machine by the file in which it notes its number."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

_STARTED_BY = (
    "TERN_STARTED_BY"  # variable of the environment: the process that has started a broker
)
_PARENT_FIELD = 1  # of /proc/PID/stat behind the name of the program
_TIME_TO_END = 10.0  # seconds


def environment() -> dict[str, str]:
    """Return the environment with which this process starts a broker, so that `end_orphan` knows it."""
    return {**os.environ, _STARTED_BY: str(os.getpid())}


def end_orphan(directory: Path, pid_file: str, program: str) -> None:
    """End the broker of a directory if the process of tern that has started it is gone.

    After kill -9 of that process the broker runs on, and holds its port. A broker that somebody else
    has started, or that still has its process of tern, is left alone. The parameters are those of
    `running`.
    """
    pid = running(directory, pid_file, program)
    if pid is None or not _is_orphan(pid):
        return
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
        end = time.monotonic() + _TIME_TO_END
        while time.monotonic() < end:
            os.kill(pid, 0)  # raises ProcessLookupError once it has ended
            time.sleep(0.05)
        os.kill(pid, signal.SIGKILL)


def _is_orphan(pid: int) -> bool:
    """Return whether tern has started a process, and is no longer its parent."""
    with suppress(OSError, ValueError):
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[_PARENT_FIELD]
        for variable in variables:
            name, _, starter = variable.decode(errors="replace").partition("=")
            if name == _STARTED_BY:
                return starter != parent
    return False


def running(directory: Path, pid_file: str, program: str) -> int | None:
    """Return the number of the process that runs the broker of a directory; None if none does.

    The file may be old, or that of another broker, if the directory is a copy. So the process must
    run this program, in this directory or with a file of it. This needs /proc.

    pid_file: the name of the file with the number of the process.
    """
    with suppress(OSError, ValueError):  # no such file or process, or no number in the file
        pid = int((directory / pid_file).read_text())
        process = Path(f"/proc/{pid}")
        is_program = (process / "comm").read_text() == f"{program}\n"
        if is_program and _is_of(process, directory):
            return pid
    return None


def _is_of(process: Path, directory: Path) -> bool:
    """Return whether a process runs in a directory, or with a file of it.

    Where this user may not see that, the process is taken to be the right one. process: its
    directory in /proc. Raises OSError if the process has ended.
    """
    try:
        place = Path(os.readlink(process / "cwd"))
    except PermissionError:
        return True
    if (process / "cwd").samefile(directory):
        return True
    arguments = (process / "cmdline").read_bytes().split(b"\0")
    for argument in arguments:
        folder = (place / os.fsdecode(argument)).parent
        if folder.exists() and folder.samefile(directory):
            return True
    return False
