"""What becomes of the frames that devices send: accepted reports, refusals, and everything else."""

from dataclasses import dataclass, field

from ternhost.count.rounds import Refusal


@dataclass
class Accepted:
    """What was new in a batch of frames from devices."""

    reports: list[tuple[int, int]] = field(default_factory=list)  # (round, device)
    refusals: list[Refusal] = field(default_factory=list)  # devices that will not report
    unread: list[Refusal] = field(default_factory=list)  # requests that may be repeated


@dataclass
class Statistics:
    """How many reports, and how many frames without a report, had each outcome."""

    accepted: int = 0
    duplicate: int = 0  # a second report of this device in this round: repeated or replayed
    late: int = 0  # the round has ended, or was never opened
    unknown: int = 0  # no such device
    unasked: int = 0  # the device is not part of this round
    forged: int = 0  # the tag does not verify: another key, or the answer to another question
    damaged: int = 0  # not a frame, or fields out of bounds
    refused: int = 0  # an ERROR that ends a device's part in the round
    unread: int = 0  # an ERROR of a device that can answer later, such as after a damaged request
