"""What a meter is: a way to find the energy of a report, for `tern bench energy --meter METER`."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from ternbench.cases import Case
from ternbench.energy import ReportEnergy
from ternhost.options import Option


def positive(text: str) -> float:
    """Read a finite number above 0. Raises ValueError for any other text."""
    number = float(text)
    if not 0 < number < math.inf:
        raise ValueError
    return number


# Settings of several meters. `positive` is the type of those that are above 0.
VOLTS = Option("volts", "supply voltage in V", positive, "VOLTS")
MARKER = Option("marker", "the board's pin that marks reports", int, "PIN", shown="a Pico's GP15")
ACTIVE_LOW = Option("active_low", "the marker pin is low during a window", bool, default=False)


@dataclass(frozen=True)
class Task:
    """What a meter is to measure.

    case: the kind of report. fleet: the board, as a fleet of one, such as "port:/dev/ttyACM0". marker:
    number of the board's pin that is set during a report; None: the board's usual pin. active_low: the
    pin is low during a report, not high. asleep: measure the board in deep sleep, too. anyway: accept
    figures that no board has. say: shows the user a line about the next step.
    """

    case: Case
    fleet: str
    marker: int | None
    active_low: bool
    asleep: bool
    anyway: bool
    say: Callable[[str], None]


@dataclass(frozen=True)
class Finding:
    """What a meter has found about a report.

    bars: the bars of the picture, by name: microjoules by the name of each part. chip: the board's key
    in the table of datasheet currents, shared_specs/currents.json; None if unknown. more: further
    entries of the command's result.
    """

    report: ReportEnergy
    bars: Mapping[str, Mapping[str, float]]
    chip: str | None = None
    more: Mapping[str, Any] = field(default_factory=dict)


class Meter(ABC):
    """A way to find the energy of a report; a subclass is registered in `ternbench.meters.METERS`.

    about: what it is, in a line. place: the word for what --meter names after the colon, PORT or
    FILE; empty for nothing. example: such a port or file. settings: what users can set, by options
    whose names are keys of the mapping that `opened` gets.

    An instrument that records a board derives from `instrument.Instrument`, a file that another
    program recorded from `recording.Recording`.
    """

    # Whether the meter works only with a board that is connected to it and to this computer.
    needs_board: ClassVar[bool] = True
    about: ClassVar[str] = "a meter"
    place: ClassVar[str] = ""
    example: ClassVar[str] = ""
    settings: ClassVar[Sequence[Option]] = ()

    @classmethod
    @abstractmethod
    def opened(cls, place: str, settings: Mapping[str, Any]) -> Self:
        """Return the meter at this place, ready for use.

        settings: the values of those settings that were given, by name. Raises UsageError for
        values that do not fit, and DeviceError if the meter does not answer.
        """

    @abstractmethod
    def find(self, task: Task) -> Finding:
        """Find the energy of a report. Raises TernError if the figures would be wrong."""
