"""Estimates how long the rest of a bench takes, from how long its work has taken so far.

Before a bench starts, its work is added up in the seconds that it takes on the emulated Pico. Other
devices are faster or slower. What this device needs for each kind of work is measured as soon as it
does some of it, and measured better with everything that it does.
"""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import astuple, dataclass
from typing import TypeVar

from ternbench.cases import Case
from ternhost.terminal import Progress, duration

Device = TypeVar("Device")

# Seconds on the emulated Pico.
_START = 8.0  # to boot it, and to install the device library and the bench's program
_INSTALL = 1.9  # to replace the files of a device, and to start the program over them
_INSTALL_A_BYTE = 1.1e-4  # of the records, which go through the console
_FIRST_REPORT = 0.1  # more than the next ones take, for modules that are imported
_REPORT = 0.012  # to ask for a report and to fetch its times
_REPORT_A_MILLISECOND = 0.0033  # that the report takes on the Pico's own clock
_VALUE_BYTES = 2  # of a record's value in its file
_DRAWS = 0.9  # to time the draws of a mechanism, by the library and in plain floats
_NATIVE_DRAWS = 0.3  # the same by the sampler in C
_ENTROPY = 0.15  # to time random bytes

# Milliseconds on the clock of a Pico.
_CLIENT = 3.0  # the steps of every report
_A_COORDINATE = 0.01
_A_RANDOM_VALUE = 0.02
_A_RECORD = 0.27
_A_COORDINATE_OF_A_RECORD = 0.0019
# A sum clips each record, and adds Gaussian noise to each value.
_CLIPPING_A_RECORD = 0.36
_A_GAUSSIAN_VALUE = 0.43


@dataclass(frozen=True)
class Work:
    """Work of a bench, in the seconds that it takes on the emulated Pico.

    There are three kinds, since a device may be fast at one and slow at another. starting: a board, and
    installing the library. installing: the files of a device through the board's console. reporting:
    making reports, and what else the bench's program computes.
    """

    starting: float = 0.0
    installing: float = 0.0
    reporting: float = 0.0

    def __add__(self, other: "Work") -> "Work":
        return Work(
            starting=self.starting + other.starting,
            installing=self.installing + other.installing,
            reporting=self.reporting + other.reporting,
        )


def start_of_a_board() -> Work:
    """Return the work to boot an emulated board, and to install the library on it."""
    return Work(starting=_START)


def installation(case: Case) -> Work:
    """Return the work to give a device the records and keys for a kind of report."""
    values = case.records * (case.d + 1)  # the last one of a record is its label
    return Work(installing=_INSTALL + _INSTALL_A_BYTE * _VALUE_BYTES * values)


def reports(case: Case, count: int) -> Work:
    """Return the work to make `count` reports of a kind."""
    a_record = _A_RECORD + _A_COORDINATE_OF_A_RECORD * case.d
    a_value = _A_RANDOM_VALUE
    if case.is_sum:
        a_record += _CLIPPING_A_RECORD
        a_value += _A_GAUSSIAN_VALUE
    milliseconds = _CLIENT + _A_COORDINATE * case.d + a_value * case.values
    milliseconds += a_record * case.records
    return Work(reporting=count * (_REPORT + _REPORT_A_MILLISECOND * milliseconds))


def first_reports(case: Case, count: int) -> Work:
    """Return the work to make the first `count` reports of a kind after an installation."""
    return reports(case, count) + Work(reporting=_FIRST_REPORT)


def draws() -> Work:
    """Return the work to time how a mechanism draws: by the library, and in plain floats."""
    return Work(reporting=_DRAWS)


def native_draws() -> Work:
    """Return the work to time how the sampler in C draws for a mechanism."""
    return Work(reporting=_NATIVE_DRAWS)


def entropy() -> Work:
    """Return the work to time random bytes."""
    return Work(reporting=_ENTROPY)


class TimeLeft:
    """Estimates how many seconds are left of a bench.

    planned: all of its work, also what is done already; None while that is unknown.
    """

    def __init__(self, planned: Work | None = None) -> None:
        self.planned = planned
        self.done = Work()
        self._measured = Work()  # the seconds that the work which is done has taken here

    def note(self, done: Work, seconds: float) -> None:
        """Note that work of one kind was done, and how many seconds it took on this device."""
        self.done += done
        kinds = [seconds if amount else 0.0 for amount in astuple(done)]
        self._measured += Work(*kinds)

    def seconds(self) -> float | None:
        """Return how many seconds are left; None until each kind of work has been measured."""
        if self.planned is None:
            return None
        seconds_left = 0.0
        kinds = zip(astuple(self.planned), astuple(self.done), astuple(self._measured), strict=True)
        for planned, done, measured in kinds:
            if planned and not done:
                return None
            if planned > done:
                seconds_left += (planned - done) * measured / done
        return seconds_left


class TimedSteps:
    """Shows the steps of a bench with the time that is left, which its work keeps up to date."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._step = ""
        self.time_left = TimeLeft()

    def say(self, text: str) -> None:
        """Show the step that begins."""
        self._step = text
        self._progress.say(self._with_time_left())

    @contextmanager
    def starting(self, device: AbstractContextManager[Device]) -> Iterator[Device]:
        """Enter the context of a device that is started, and yield the device."""
        start = time.monotonic()
        with device as started_device:
            self.time_left.note(start_of_a_board(), time.monotonic() - start)
            yield started_device

    @contextmanager
    def doing(self, work: Work) -> Iterator[None]:
        """Time this work, which is of one kind, and show how much time is left after it."""
        start = time.monotonic()
        yield
        self.time_left.note(work, time.monotonic() - start)
        if self._step:
            self._progress.step(self._with_time_left())

    def _with_time_left(self) -> str:
        """Return the present step with the time that is left, if that is known."""
        seconds_left = self.time_left.seconds()
        if seconds_left is None:
            return self._step
        return f"{self._step} (about {duration(seconds_left)} left)"
