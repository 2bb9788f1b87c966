"""When rounds come and how they end."""

from dataclasses import dataclass
from functools import partial

from ternhost.errors import UsageError
from ternhost.options import OptionGroup, option, require, seconds_of

how = partial(option, group="the fleet and its rounds")
_when = partial(option, group="schedule")
_LONGEST = 604_800  # a week: devices may sleep for a day
_HORIZON = 100  # rounds


@dataclass(frozen=True)
class Schedule(OptionGroup):
    """Options of a fleet that is served: round after round, a share of its devices is asked."""

    rounds: int | None = _when(None, shown="no limit", metavar="N")
    every: str | float | None = _when(None, shown="none; needed without --rounds", metavar="T")
    share: float = _when(1.0, metavar="SHARE")
    horizon: int | None = _when(
        None,
        "number of rounds for which the rate is chosen",
        shown=f"all of --rounds, or {_HORIZON}",
        metavar="N",
    )
    patience: float = _when(
        2.0,
        "seconds without an answer until boards are asked again; doubles",
        metavar="SECONDS",
    )
    model_every: int = _when(
        10,
        "devices get the model for their own use every N rounds",
        metavar="N",
    )

    def check(self) -> None:
        """Raise UsageError for an option out of bounds."""
        require(self.model_every >= 1, "model_every", "1 or more rounds", self.model_every)
        if self.every is not None:
            seconds_of(self.every, "every")  # raises UsageError for a text that is no time
        is_within_a_day = 0 < self.patience <= 86_400
        require(is_within_a_day, "patience", "above 0 and at most 86400 seconds", self.patience)
        for name in ("rounds", "horizon"):
            value = getattr(self, name)
            require(value is None or value >= 1, name, "1 or more", value)
        require(0 < self.share <= 1, "share", "above 0 and at most 1", self.share)

    def require_pace(self) -> None:
        """Raise UsageError for rounds without end that would follow each other without a pause.

        They would spend the budgets of all devices within seconds. Somebody who wants that can say
        so with `--every 0`.
        """
        if self.rounds is None and self.every is None:
            text = (
                "--every is missing: rounds without end, one right after the other, would soon "
                "spend the budgets of all devices"
            )
            raise UsageError(text, hint="choose the time between rounds, such as --every 1h")

    @property
    def interval(self) -> float:
        """The seconds from the start of one round to that of the next. Raises UsageError."""
        if self.every is None:
            return 0.0
        return seconds_of(self.every, "every")

    @property
    def planned(self) -> int:
        """The rounds for which a learning rate is chosen."""
        return self.horizon or self.rounds or _HORIZON

    def group(self, devices: int) -> int:
        """Return how many of `devices` devices a round asks."""
        return max(1, round(self.share * devices))


@dataclass(frozen=True)
class Terms(OptionGroup):
    """How a round ends.

    After `silence` seconds without a frame of a board it goes on without that board.
    """

    quorum: float = how(1.0, "share of its reports that ends a round", metavar="SHARE")
    deadline: float | None = how(
        120.0, "seconds after which a round ends with what it has", metavar="SECONDS"
    )
    silence: float = how(30.0, metavar="SECONDS")

    def check(self) -> None:
        """Raise UsageError for an option out of bounds."""
        require(0 < self.quorum <= 1, "quorum", "a share above 0 and at most 1", self.quorum)
        if self.deadline is not None:
            in_order = 0 < self.deadline <= _LONGEST
            require(in_order, "deadline", f"above 0 and at most {_LONGEST} seconds", self.deadline)
        is_within_a_day = 0 < self.silence <= 86_400
        require(is_within_a_day, "silence", "above 0 and at most 86400 seconds", self.silence)

    def reports(self, asked: int) -> int:
        """Return the number of reports that ends a round in which so many devices were asked."""
        return max(1, round(self.quorum * asked))
