"""How and where a run goes, whatever it learns: its fleet, how its rounds end, its schedule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from tern import ledger, wire
from ternhost.errors import UsageError
from ternhost.learn.base import Learner, Standing
from ternhost.learn.designs import PRIVACY
from ternhost.options import check_named, flag, names_of, option, require
from ternhost.privacy.base import parse_epsilon
from ternhost.reach import fleet
from ternhost.reach.driver import Terms

WHERE = "where and how"
WHEN = "schedule"
DEADLINE = 120.0
_LONGEST = 604_800  # a week: devices may sleep for a day


def divided(
    cls: type[Learner], named: Mapping[str, Any], algorithms: Mapping[str, type[Learner]]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Those options that are the algorithm's, and those of `Where`.

    Raises UsageError for one that belongs to another of `algorithms`, and for some that do not go together.
    """
    its_names = {field.name for field in fields(cls.Options)}
    where = {name: value for name, value in named.items() if name in names_of(Where)}
    options = {name: value for name, value in named.items() if name in its_names}
    for name in named.keys() - where.keys() - options.keys():
        others = [other for other, its in algorithms.items() if name in names_of(its.Options)]
        raise UsageError(
            f"{flag(name)} belongs to {' and '.join(others)}, and this run is {cls.name}",
            hint=f"leave it out, or choose the algorithm {others[0]}",
        )
    check_named(cls.Options, {name: value for name, value in options.items() if value is not None})
    return options, {"fleet": default_fleet(cls.command), **where}


def default_fleet(command: str) -> str:
    """The devices of a command that names none."""
    return "emulated:8" if command == "train" else "emulated:2"


@dataclass(frozen=True)
class Where:
    """Options of every run."""

    fleet: str = option("emulated:2", "the devices: see 'tern fleet kinds'", group=WHERE, metavar="KIND:...")
    deadline: float | None = option(
        DEADLINE,
        "seconds after which a round ends with what came",
        group=WHERE,
        kind=float,
        metavar="SECONDS",
    )
    quorum: float = option(
        1.0, "share of a round's reports that ends it", group=WHERE, kind=float, metavar="SHARE"
    )
    silence: float = option(
        30.0,
        "seconds without a word of a board, after which rounds go on without it until it answers again",
        group=WHERE,
        kind=float,
        metavar="SECONDS",
    )
    after_round: int | None = option(
        None,
        "ask no round up to this number: for a store that was restored from a copy, whose boards know later rounds",
        group=WHERE,
        kind=int,
        metavar="N",
    )
    budget: str | None = option(
        None,
        "epsilon of a device for its life, which the run must not go beyond",
        group=PRIVACY,
        metavar="E",
        shown="what the run costs",
    )

    @classmethod
    def stored(cls, options: Mapping[str, Any]) -> Self:
        """Of a run in a store; an older version's may have had options that are no more."""
        own = names_of(cls)
        return cls(**{name: value for name, value in options.items() if name in own})

    def __post_init__(self) -> None:
        require(0 < self.quorum <= 1, "quorum", "a share above 0 and at most 1", self.quorum)
        if self.deadline is not None:
            require(
                0 < self.deadline <= _LONGEST,
                "deadline",
                f"above 0 and at most {_LONGEST} seconds",
                self.deadline,
            )
        require(0 < self.silence <= 86_400, "silence", "above 0 and at most 86400 seconds", self.silence)
        if self.after_round is not None:
            in_order = 0 <= self.after_round < wire.MAX_ROUND
            require(in_order, "after_round", f"0 to {wire.MAX_ROUND - 1}", self.after_round)
        fleet.parse(self.fleet)
        _ = self.budget_micro

    @property
    def budget_micro(self) -> int | None:
        """The budget in micro-epsilon."""
        return None if self.budget is None else parse_epsilon(self.budget, ledger.MAX_BUDGET, "--budget")

    @property
    def terms(self) -> Terms:
        return Terms(self.quorum, self.deadline, self.silence)


@dataclass(frozen=True)
class Schedule:
    """Options of a fleet that is served."""

    rounds: int | None = option(
        None,
        "rounds until it stops, those of earlier starts included",
        group=WHEN,
        kind=int,
        metavar="N",
        shown="never",
    )
    interval: float = option(
        0.0,
        "seconds from the start of one round to that of the next",
        group=WHEN,
        kind=float,
        metavar="SECONDS",
    )
    share: float = option(
        1.0, "share of the devices that is asked in a round", group=WHEN, kind=float, metavar="SHARE"
    )
    horizon: int | None = option(
        None,
        "rounds for which the learning rate is chosen",
        group=WHEN,
        kind=int,
        metavar="N",
        shown="all of --rounds, or 100",
    )
    patience: float = option(
        2.0,
        "seconds without news until boards are asked again; doubles with every time",
        group=WHEN,
        kind=float,
        metavar="SECONDS",
    )

    model_every: int = option(
        10,
        "rounds from one model that devices are sent, for their own use, to the next; the last comes at the end",
        group=WHEN,
        kind=int,
        metavar="N",
    )

    def __post_init__(self) -> None:
        require(self.model_every >= 1, "model_every", "1 or more rounds", self.model_every)
        require(0 <= self.interval < 1e9, "interval", "0 or more seconds", self.interval)
        require(0 < self.patience <= 86_400, "patience", "above 0 and at most 86400 seconds", self.patience)
        for name in ("rounds", "horizon"):
            value = getattr(self, name)
            require(value is None or value >= 1, name, "1 or more", value)
        require(0 < self.share <= 1, "share", "above 0 and at most 1", self.share)
        _ = self.standing

    @property
    def standing(self) -> Standing:
        return Standing(self.rounds, self.horizon or self.rounds or 100, self.share)
