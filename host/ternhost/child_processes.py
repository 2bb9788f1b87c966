"""Starts child processes that end with this one, however it ends."""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

_SET_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of Linux


def start(command: Sequence[str | os.PathLike[str]], **options: Any) -> subprocess.Popen[bytes]:
    """Start a child process, which gets SIGTERM when this process ends, even by SIGKILL.

    Only Linux can do that; elsewhere the child may outlive a process that is killed. A child that
    changes its user loses the protection, too.

    options: those of subprocess.Popen. Raises OSError.
    """
    if sys.platform != "linux":
        return subprocess.Popen(command, **options)
    die_with_parent = _die_with_parent(os.getpid())

    def start_here() -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, preexec_fn=die_with_parent, **options)

    return _starter(os.getpid()).submit(start_here).result()


@cache
def _starter(_process: int) -> ThreadPoolExecutor:
    """Return the one thread that starts all children of this process.

    The system sends the signal when the thread ends that has started the child. This thread lasts
    as long as the process. _process: its number, since a forked process needs its own thread.
    """
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="tern starts children")


def _die_with_parent(parent: int) -> Callable[[], None]:
    """Return what a new child calls before its program starts. parent: the number of this process."""
    libc = ctypes.CDLL(None)  # loaded here, since a new child of a threaded program may do little

    def ask_for_signal() -> None:
        libc.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)
        if os.getppid() != parent:  # it has ended meanwhile, and no signal will come
            os._exit(1)

    return ask_for_signal
