"""Keeps a Mosquitto running: restarts it when it ends or hangs."""

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
    """When a keeper looks and restarts, in seconds."""

    look_every: float = 0.5  # whether the process still runs
    ask_every: float = 30.0  # whether it answers: 2.0.11 may hang after a bridge was cut
    answer: float = 15.0  # that an answer may take
    first_pause: float = 1.0  # before a restart; doubles with every restart
    longest_pause: float = 60.0
    healthy: float = 300.0  # without a restart, after which the pause is short again
    largest_log: int = 16 << 20  # bytes of its log, which is emptied then


DEFAULT_TIMES = KeeperTimes()


class Keeper:
    """Watches a Mosquitto in a thread."""

    def __init__(
        self, broker: Mosquitto, report: Callable[[str], None], times: KeeperTimes
    ) -> None:
        """report: gets a sentence before each restart."""
        self._broker = broker
        self._report = report
        self._times = times
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._start_error = ""  # of the last attempt to start the broker
        self._last_check = 0.0  # whether it answers

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """Watch no longer; return once the broker is left alone."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        """Look at the broker again and again, and restart it after ever longer pauses."""
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
            if self._stopping.wait(pause):
                return
            pause = min(2 * pause, self._times.longest_pause)
            self._restart()
            last_start = time.monotonic()

    def _failure(self) -> str:
        """Say what is wrong with the broker; "" if it is well. A broker that hangs is killed."""
        if not self._broker.runs:
            return self._start_error or self._broker.failure("mosquitto has ended").message
        self._start_error = ""
        if time.monotonic() - self._last_check < self._times.ask_every:
            return ""
        self._broker.limit_log(self._times.largest_log)
        answers = self._broker.answers(self._times.answer)  # None: its port is closed
        self._last_check = time.monotonic()
        if answers is not False or self._stopping.is_set():
            return ""
        self._broker.kill()
        return "mosquitto hangs"

    def _restart(self) -> None:
        try:
            self._broker.start()
        except (DeviceError, OSError) as error:
            self._start_error = str(error)
