"""Keeps a Mosquitto process running: restarts it when it ends or hangs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ternhost.errors import DeviceError

if TYPE_CHECKING:
    from ternhost.reach.broker.mosquitto import Mosquitto


@dataclass(frozen=True)
class KeeperTimes:
    """How often a keeper checks a broker, and how long it waits; in seconds."""

    look_every: float = 0.5  # between two looks whether the process still runs
    # Between two checks whether it answers: release 2.0.11 may hang after a bridge was cut.
    ask_every: float = 30.0
    answer: float = 15.0  # the longest time that an answer may take
    first_pause: float = 1.0  # before the first restart; the pause doubles with every restart
    longest_pause: float = 60.0
    healthy: float = 300.0  # without a restart, after which the pause is short again
    largest_log: int = 16 << 20  # not seconds but bytes: a larger log is emptied


DEFAULT_TIMES = KeeperTimes()


class Keeper:
    """Watches a Mosquitto process in a thread, and restarts it when needed."""

    def __init__(
        self, broker: Mosquitto, report: Callable[[str], None], times: KeeperTimes
    ) -> None:
        """Prepare to watch a broker.

        report: is called with a sentence before each restart. times: how often the broker is
        checked, and how long the pauses before restarts are.
        """
        self._broker = broker
        self._report = report
        self._times = times
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._start_error = ""  # why the last attempt to start the broker has failed
        self._last_check = 0.0  # when it was checked last whether the broker answers

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """Stop watching. Afterwards the keeper does nothing to the broker any more."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        """Check the broker regularly until `stop` is called, and restart it if it has failed.

        The pause before a restart grows, so that a broker that fails at once is not restarted all
        the time.
        """
        pause = self._times.first_pause
        self._last_check = last_start = time.monotonic()
        while not self._stopping.wait(self._times.look_every):
            failure = self._failure()
            if not failure:
                continue
            if time.monotonic() - last_start > self._times.healthy:
                pause = self._times.first_pause
            with suppress(OSError):  # where a disk is full, the keeper goes on
                self._report(f"{failure}; it is restarted in {pause:g} s")
            was_stopped = self._stopping.wait(pause)
            if was_stopped:
                return
            pause = min(2 * pause, self._times.longest_pause)
            self._restart()
            last_start = time.monotonic()

    def _failure(self) -> str:
        """Return what is wrong with the broker, or "" if nothing is.

        It is checked each time whether the process runs, and from time to time whether it answers.
        A broker that does not answer is killed.
        """
        if not self._broker.runs:
            if self._start_error:
                return self._start_error
            return self._broker.failure("mosquitto has ended").message
        self._start_error = ""
        check_is_due = time.monotonic() - self._last_check >= self._times.ask_every
        if not check_is_due:
            return ""
        self._broker.limit_log(self._times.largest_log)
        answers = self._broker.answers(self._times.answer)
        self._last_check = time.monotonic()
        # None says that its port is closed: then it is about to end, which is noticed soon.
        hangs = answers is False
        if not hangs or self._stopping.is_set():
            return ""
        self._broker.kill()
        return "mosquitto hangs"

    def _restart(self) -> None:
        """Try to start the broker, and remember the error if that fails."""
        try:
            self._broker.start()
        except (DeviceError, OSError) as error:
            self._start_error = str(error)
