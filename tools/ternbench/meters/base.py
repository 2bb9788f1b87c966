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
    """What is to be measured.

    fleet: the board, as a fleet of one. marker: the pin that marks reports; None: the board's
    usual one. asleep: measure the board in deep sleep, too. say: shows progress.
    """

    case: Case
    fleet: str
    marker: int | None
    active_low: bool
    asleep: bool
    say: Callable[[str], None]


@dataclass(frozen=True)
class Finding:
    """What a meter found.

    bars: microjoules of each part of each bar of the picture. chip: a key of
    shared_specs/currents.json, if known. more: further entries of the command's result.
    """

    report: ReportEnergy
    bars: Mapping[str, Mapping[str, float]]
    chip: str | None = None
    more: Mapping[str, Any] = field(default_factory=dict)


class Meter(ABC):
    """A way to find the energy of a report. Its class is registered in `ternbench.meters.METERS`.

    An instrument that records a board derives from `instrument.Instrument`, a file that another
    program recorded from `recording.Recording`.
    """

    # Whether a board has to be connected to it.
    needs_board: ClassVar[bool] = True

    @classmethod
    def add_options(cls, options: argparse._ArgumentGroup) -> None:
        """Add the options of `tern bench energy` that only this meter has."""

    @classmethod
    @abstractmethod
    def from_options(cls, args: argparse.Namespace) -> Self:
        """The meter that the options of the command describe, ready for use.

        Raises UsageError for options that do not fit, and DeviceError if it does not answer.
        """

    @abstractmethod
    def find(self, task: Task) -> Finding:
        """Find the energy of a report. Raises TernError."""
