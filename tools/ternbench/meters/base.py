"""What a meter is: a way to find the energy of a report, for `tern bench energy --meter NAME`."""

from __future__ import annotations

import argparse
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from ternbench.cases import Case
from ternbench.energy import ReportEnergy


@dataclass(frozen=True)
class Task:
    """What a meter is to measure.

    case: the kind of report. fleet: the board, as a fleet of one, such as "port:/dev/ttyACM0". marker:
    number of the board's pin that is set during a report; None: the board's usual pin. active_low: the
    pin is low during a report, not high. asleep: measure the board in deep sleep, too. say: shows the
    user a line about the next step.
    """

    case: Case
    fleet: str
    marker: int | None
    active_low: bool
    asleep: bool
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

    An instrument that records a board derives from `instrument.Instrument`, a file that another
    program recorded from `recording.Recording`.
    """

    # Whether the meter works only with a board that is connected to it and to this computer.
    needs_board: ClassVar[bool] = True

    @classmethod
    def add_options(cls, options: argparse._ArgumentGroup) -> None:
        """Add the options of `tern bench energy` that only this meter has."""

    @classmethod
    @abstractmethod
    def from_options(cls, args: argparse.Namespace) -> Self:
        """Return the meter that the options of `tern bench energy` describe, ready for use.

        Raises UsageError for options that do not fit, and DeviceError if the meter does not answer.
        """

    @abstractmethod
    def find(self, task: Task) -> Finding:
        """Find the energy of a report. Raises TernError if the figures would be wrong."""
