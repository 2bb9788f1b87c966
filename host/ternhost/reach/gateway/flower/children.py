"""Processes that are restarted when they end, and that end with the process that started them."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Self

_LARGEST_LOG = 1 << 20  # bytes; then it is moved aside once
_LONGEST_PAUSE = 10.0  # seconds before a restart of a process that ends at once
_STEADY = 5.0  # seconds after which a process has not ended at once
_PATIENCE = 5.0  # seconds from SIGTERM to SIGKILL


class Child:
    """A process with its own group, restarted when it ends. Its standard input closes when its parent ends."""

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        self._command = command
        self._log = log
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._supervise, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    @property
    def pid(self) -> int | None:
        return process.pid if (process := self._process) and process.poll() is None else None

    def _opened_log(self) -> BinaryIO:
        """The log; os.devnull if it cannot be written, for example on a full disk."""
        try:
            if self._log.exists() and self._log.stat().st_size > _LARGEST_LOG:
                self._log.replace(self._log.with_name(self._log.name + ".1"))
            return open(self._log, "ab")
        except OSError:
            return open(os.devnull, "ab")

    def _supervise(self) -> None:
        pause = 0.0
        while not self._ending.wait(pause):
            began = time.monotonic()
            with suppress(OSError):  # the process cannot be started now
                self._run()
            pause = next_pause(pause, time.monotonic() - began, _LONGEST_PAUSE)

    def _run(self) -> None:
        with self._opened_log() as log:
            process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=dict(self._environment),
                start_new_session=True,
            )
        self._process = process
        end = float("inf")
        while process.poll() is None and time.monotonic() < end:
            if self._ending.is_set() and end == float("inf"):
                _signal(process, signal.SIGTERM)
                end = time.monotonic() + _PATIENCE
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.2)
        _signal(process, signal.SIGKILL)  # whatever is left of its group, also when it ended by itself
        process.wait()
        assert process.stdin is not None
        process.stdin.close()


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def next_pause(pause: float, ran: float, longest: float) -> float:
    """Seconds until the next attempt, up to `longest`. pause: before the last attempt, which took `ran` seconds."""
    return 0.5 if ran > _STEADY else min(max(0.5, 2 * pause), longest)


def end_with_parent() -> None:
    """In a Child: end when the process that started it has ended, which closes standard input."""

    def wait() -> None:
        while os.read(0, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_PATIENCE)
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()
