"""The status of a run, and its observers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

# The events of a status.
ROUND = "round"  # one has begun
PROGRESS = "progress"
END = "end"  # one has ended


@dataclass(frozen=True)
class Status:
    """The status of a run.

    `round` counts its rounds from 1, of `rounds` (None: no end); `number` is the protocol's.

    figures: quality of the model after an ended round, the most important first. chosen: settings
    that the algorithm chose for that round. strangers: boards of another version. reasons: refusals
    by reason, once a round has ended. frames: frames from devices, accepted or rejected, by reason.
    """

    event: str
    round: int
    rounds: int | None
    number: int
    asked: int
    reports: int
    total_reports: int
    wanted_reports: int | None
    seconds: float
    refusals: int = 0
    ended: str | None = None
    figures: Mapping[str, float] = field(default_factory=dict)
    chosen: Mapping[str, float] = field(default_factory=dict)
    reasons: Mapping[str, int] = field(default_factory=dict)
    boards: int | None = None
    asleep: int = 0
    strangers: int = 0
    connected: bool = True
    frames: Mapping[str, int] = field(default_factory=dict)


@dataclass
class Watcher:
    """The observers of a run; by default none."""

    status: Callable[[Status], None] = lambda status: None
    warn: Callable[[str], None] = lambda message: None
    note: Callable[[str], None] = lambda message: None

    def also(self, tell: Callable[[Status], None]) -> Self:
        """Return a watcher that passes every status to `tell`, too."""

        def tell_both(status: Status) -> None:
            self.status(status)
            tell(status)

        return replace(self, status=tell_both)
