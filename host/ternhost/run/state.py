"""The state of a run: what its store keeps after each round, so that the run can go on."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from ternhost.count.rounds import RoundResult


@dataclass
class RunState:
    """What a run has done so far. All of it is JSON."""

    first_round: int  # the number of its first round
    # The first and last id of each span of devices that were there when it began.
    devices: list[tuple[int, int]] = field(default_factory=list)
    rounds: int = 0  # that have ended
    planned: int | None = None  # rounds, as the algorithm plans them by now; None: no end
    reports: int = 0
    asked: int = 0  # requests to devices
    refusals: int = 0
    missing: int = 0  # reports that did not come, of those that were wanted
    seconds: float = 0.0
    spent_before: int = 0  # by a device in earlier runs, millionths, the most of any
    # What boards have paid for that the store does not know (run.payments), and the guarantee of
    # each class of devices (run.guarantees); None: not found out yet.
    payments: list[dict[str, Any]] | None = None
    guarantees: list[dict[str, Any]] | None = None
    refusal: tuple[str, str | None] | None = None  # message and hint, if all devices refused
    algorithm: Any = None  # as `Learner.state` returns it

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """The state that `as_json` returned."""
        state = cls(**values)
        state.devices = [(first, last) for first, last in state.devices]
        if state.refusal is not None:
            message, hint = state.refusal
            state.refusal = message, hint
        return state

    def as_json(self) -> dict[str, Any]:
        """For the store."""
        return asdict(self)

    def add_round(self, result: RoundResult, wanted_reports: int) -> None:
        """Add a round that has ended. wanted_reports: those that would have ended it."""
        self.rounds += 1
        self.reports += result.reports
        self.asked += result.asked
        self.refusals += len(result.refusals)
        self.missing += max(0, wanted_reports - result.reports)
