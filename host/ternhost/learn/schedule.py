"""The schedule of a fleet that is served: when rounds come, and how many devices each asks."""

from __future__ import annotations

from dataclasses import dataclass

from ternhost.options import option, require

_WHEN = "schedule"
_HORIZON = 100  # rounds


@dataclass(frozen=True)
class Schedule:
    """Options of a fleet that is served: its devices are asked round after round, a share of them at a time."""

    rounds: int | None = option(
        None,
        "rounds until it stops, those of earlier starts included",
        group=_WHEN,
        kind=int,
        metavar="N",
        shown="never",
    )
    interval: float = option(
        0.0,
        "seconds from the start of one round to that of the next",
        group=_WHEN,
        kind=float,
        metavar="SECONDS",
    )
    share: float = option(
        1.0, "share of the devices that is asked in a round", group=_WHEN, kind=float, metavar="SHARE"
    )
    horizon: int | None = option(
        None,
        "rounds for which the learning rate is chosen",
        group=_WHEN,
        kind=int,
        metavar="N",
        shown=f"all of --rounds, or {_HORIZON}",
    )
    patience: float = option(
        2.0,
        "seconds without news until boards are asked again; doubles with every time",
        group=_WHEN,
        kind=float,
        metavar="SECONDS",
    )
    model_every: int = option(
        10,
        "rounds from one model that devices are sent, for their own use, to the next; the last comes at the end",
        group=_WHEN,
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

    @property
    def planned(self) -> int:
        """The rounds for which a learning rate is chosen."""
        return self.horizon or self.rounds or _HORIZON

    def group(self, devices: int) -> int:
        """How many of so many devices a round asks."""
        return max(1, round(self.share * devices))
