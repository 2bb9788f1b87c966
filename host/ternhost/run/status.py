"""The status of a run, and its observers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

# The events of a status.
ROUND = "round"  # a round has begun
PROGRESS = "progress"  # a round has got more reports
END = "end"  # a round has ended


@dataclass(frozen=True)
class Status:
    """How far a run is. Its observers get one whenever a round begins, makes progress or ends.

    figures: numbers on the quality of the model after a round that has ended, the most important
    first. chosen: settings that the algorithm chose for this round. reasons: by reason, the number
    of refusals in a round that has ended. frames: by outcome, such as "accepted", the number of
    frames from devices.
    """

    event: str  # ROUND, PROGRESS or END
    round: int  # the rounds of a run are counted from 1
    rounds: int | None  # how many are planned; None: there is no end
    number: int  # of the round in the protocol, where all runs of a fleet are counted together
    asked: int  # devices
    reports: int  # of this round
    total_reports: int  # of the run
    wanted_reports: int | None  # of the run; None: there is no end
    seconds: float  # that the run has taken
    refusals: int = 0
    ended: str | None = None  # how the round ended, such as "quorum"
    figures: Mapping[str, float] = field(default_factory=dict)
    chosen: Mapping[str, float] = field(default_factory=dict)
    reasons: Mapping[str, int] = field(default_factory=dict)
    boards: int | None = None  # that are awake; None: not known
    asleep: int = 0  # boards
    strangers: int = 0  # boards with another version of the protocol
    connected: bool = True  # to the broker
    frames: Mapping[str, int] = field(default_factory=dict)


@dataclass
class Watcher:
    """Functions that are called as a run goes on; by default they do nothing.

    status: gets how far the run is. warn: gets warnings for people. note: gets other messages for
    people.
    """

    status: Callable[[Status], None] = lambda status: None
    warn: Callable[[str], None] = lambda message: None
    note: Callable[[str], None] = lambda message: None

    def also(self, tell: Callable[[Status], None]) -> Self:
        """Return a watcher that calls `tell` with every status, after this watcher's function."""

        def tell_both(status: Status) -> None:
            self.status(status)
            tell(status)

        return replace(self, status=tell_both)
