"""The state of a run: what its store keeps after each round, so that the run can go on."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from ternhost.count.rounds import RoundResult


@dataclass
class RunState:
    """What a run has done so far, as its store keeps it in JSON after each round."""

    first_round: int  # the number of its first round
    # The devices that were there when the run began: the first and last id of each span of them.
    devices: list[tuple[int, int]] = field(default_factory=list)
    rounds: int = 0  # how many have ended
    planned: int | None = None  # the number of rounds that the algorithm plans now; None: no end

    reports: int = 0  # accepted ones
    asked: int = 0  # requests for a report, one for each device and round
    refusals: int = 0
    missing: int = 0  # reports that a round needed, but did not get
    seconds: float = 0.0  # without the time between two starts of the host

    # The most that a device had spent before the run, in millionths of its measure.
    spent_before: int = 0
    # What boards have spent that the store does not know of (`run.payments`), and the guarantees of
    # each class of devices (`run.guarantees`), as dicts; None: not computed yet.
    payments: list[dict[str, Any]] | None = None
    guarantees: list[dict[str, Any]] | None = None
    refusal: tuple[str, str | None] | None = None  # message and hint of the last refused round
    # What the run has collected of each attribute, for observers, as `Learner.entries` returned it.
    estimates: Sequence[Mapping[str, Any]] = ()
    algorithm: Any = None  # the algorithm's own state, as `Learner.state` returned it

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Restore a state from the dict that `as_json` returned.

        JSON has no tuples: they have become lists, and are made tuples again.
        """
        state = cls(**values)
        state.devices = [(first, last) for first, last in state.devices]
        if state.refusal is not None:
            message, hint = state.refusal
            state.refusal = message, hint
        return state

    def as_json(self) -> dict[str, Any]:
        """Return the state as a dict for JSON."""
        return asdict(self)

    def add_round(self, result: RoundResult, wanted_reports: int) -> None:
        """Count a round that has ended.

        wanted_reports: the number of reports that would have ended the round at once.
        """
        self.rounds += 1
        self.reports += result.reports
        self.asked += result.asked
        self.refusals += len(result.refusals)
        self.missing += max(0, wanted_reports - result.reports)
