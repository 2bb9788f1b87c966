"""What becomes of the frames that devices send: accepted reports, refusals, and everything else."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ternhost.count.members import Integers, Positions
from ternhost.count.rounds import Refusal, Reports

if TYPE_CHECKING:
    from ternhost.count.cohort import Cohort
    from ternhost.count.round import Round


@dataclass
class Accepted:
    """The new reports (round, device), refusals and unread requests in a batch of frames."""

    reports: list[tuple[int, int]] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    unread: list[Refusal] = field(default_factory=list)


@dataclass
class Statistics:
    """How many reports, and frames that hold no report, had each outcome."""

    accepted: int = 0
    duplicate: int = 0  # a second report of this device in this round: repeated or replayed
    late: int = 0  # the round has ended, or was never opened
    unknown: int = 0  # no such device
    unasked: int = 0  # the device is not part of this round
    forged: int = 0  # the tag does not verify: another key, or the answer to another question
    damaged: int = 0  # not a frame, or fields out of bounds
    refused: int = 0  # an ERROR that ends a device's part in the round
    unread: int = 0  # an ERROR after a frame that was damaged on its way to the device: ask again


@dataclass(frozen=True)
class NewReports:
    """Valid reports of one cohort that no device has sent before, not yet committed.

    places: of the devices in `Round.members`. increments: as `Cohort.increments` returns them.
    """

    round: Round
    cohort: Cohort
    reports: Reports
    places: Positions
    increments: Integers
