"""Finds the process of a broker on this machine by the file in which it notes its number."""

import os
from contextlib import suppress
from pathlib import Path


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
