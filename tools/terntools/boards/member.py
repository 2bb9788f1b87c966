"""A member of a fleet: the wanted state of a board, checked before anything is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tern import wire
from tern.ledger import RHO
from ternhost import datasets
from ternhost.errors import UsageError
from ternhost.privacy import cards
from ternhost.privacy.accounting import Policy
from ternhost.provision import keys
from ternhost.provision.boards import Rows, fleet_file
from ternhost.store import sleepers
from ternhost.store.fleet_key import FleetKey
from terntools.boards import records
from terntools.boards.network import Broker

SHAPES = {name: number for number, name in cards.SHAPES.items()}

_LEAST_BOUND = 64  # records
_LOCKED = "a locked board runs tern's own main.py"
_LEAVE_ONE_OUT = "leave out one of the two"


@dataclass(frozen=True)
class FleetSettings:
    """The settings that a board reads from its fleet.bin (storage.md)."""

    whole_fleet: bool = True  # it has the fleet's key, and so answers rounds for the whole fleet
    pause: int = 0  # least seconds between two payments
    slot: int = 0  # milliseconds; reports leave at multiples of it
    reserve: int = 1  # reports that are paid for in advance
    most_records: int | None = None  # public upper bound; None: large enough for the records
    unit: int = 0  # records of a run that is protected; 0: the device

    def fleet_file(self, fleet: FleetKey, record_count: int) -> bytes:
        """Return the bytes of fleet.bin with the fleet's key. Raises UsageError for wrong settings."""
        most_records = self.most_records or _bound_on_records(record_count)
        return fleet_file(
            fleet.key,
            pause=self.pause,
            slot=self.slot,
            ahead=self.reserve,
            epoch=fleet.epoch,
            records=most_records,
            unit=self.unit,
        )


def _bound_on_records(record_count: int) -> int:
    """Return a public upper bound on the number of records, for a device that holds so many.

    It is the smallest power of two from 64 on that is not below them, since that reveals little.
    """
    power_of_two = 1 << (record_count - 1).bit_length()
    return min(max(_LEAST_BOUND, power_of_two), records.MOST)


@dataclass(frozen=True)
class Member:
    """The wanted state of a board: one client of a fleet. Raises UsageError if it is impossible."""

    device: int
    rows: Rows
    policy: Policy
    shapes: tuple[str, ...] = ()  # of cards that it answers; none named: all
    settings: FleetSettings = field(default_factory=FleetSettings)
    broker: Broker | None = None
    wake: int | None = None  # seconds from one wake to the next, if it sleeps
    # Files of one's own link, by name.
    link: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    lock: bool = False  # the board's console is closed
    counter: bool = False  # a new ledger is bound to the counter of its chip
    again: bool = False  # a device that has lived before goes on, on a board without its ledger

    def __post_init__(self) -> None:
        """Raise UsageError if no board can be in this state."""
        keys.parse_ids([str(self.device)])
        unknown = sorted(set(self.shapes) - set(SHAPES))
        if unknown:
            raise UsageError(
                f"--mechanisms must be of {', '.join(SHAPES)}, not {unknown[0]!r}",
                hint="separate them with commas",
            )
        most_records = self.settings.most_records
        if most_records is not None and not 1 <= most_records <= records.MOST:
            raise UsageError(f"--most-records must be 1 to {records.MOST}, not {most_records}")
        self._require_wake_possible()
        self._require_no_contradiction()
        self.fleet_file(FleetKey(bytes(wire.KEY_BYTES), 1))
        records.check_fits(self.rows)

    def _require_wake_possible(self) -> None:
        """Raise UsageError if the board cannot sleep in this way."""
        if self.wake is not None and not 1 <= self.wake <= sleepers.LONGEST:
            raise UsageError(
                f"--wake-s must be 1 to {sleepers.LONGEST} seconds, not {self.wake}",
                hint="a board that does not sleep needs no --wake-s",
            )
        if self.wake and self.broker is None:
            raise UsageError(
                "--wake-s needs a broker: a sleeping board receives nothing at its port",
                hint="name the broker with --broker HOST[:PORT], "
                "which keeps the round until it wakes",
            )

    def _require_no_contradiction(self) -> None:
        """Raise UsageError for two options that exclude each other."""
        reserve, pause = self.settings.reserve, self.settings.pause
        if self.wake and reserve > 1:
            raise _contradiction(
                f"--reserve {reserve} and --wake-s",
                "a sleep is as a power cut, and each would throw away up to "
                f"{reserve - 1} reports that are paid for",
                hint="leave out --reserve: each report is then paid for by itself",
            )
        if self.wake and pause > 0:
            raise _contradiction(
                f"--pause {pause} and --wake-s",
                f"a board that has just started waits {pause} s before it answers, "
                "and sleeps by then",
                hint="leave out --pause, and give the host that interval: tern serve --interval",
            )
        if self.wake and self.lock:
            raise _contradiction("--lock and --wake-s", f"{_LOCKED}, which never sleeps")
        if self.link and self.broker:
            raise _contradiction("--link and --broker", "a board has one link")
        if self.link and self.lock:
            raise _contradiction("--link and --lock", f"{_LOCKED}, which knows no other link")

    @property
    def link_name(self) -> str:
        """The link that the board uses: "mqtt", that of its .json file, or "serial" for its port."""
        if self.broker:
            return "mqtt"
        for name in self.link:
            if name.endswith(".json"):
                return name.removesuffix(".json")
        return "serial"

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules on demand that its board needs for its unit and its ledger."""
        if self.settings.unit or self.policy.measure == RHO:
            return ("sums",)
        return ()

    def fleet_file(self, fleet: FleetKey) -> bytes:
        """fleet.bin with the fleet's key. Raises UsageError."""
        return self.settings.fleet_file(fleet, len(self.rows))


def _contradiction(options: str, why: str, hint: str = _LEAVE_ONE_OUT) -> UsageError:
    """The error for two options that exclude each other."""
    return UsageError(f"{options} are at odds: {why}", hint=hint)


def dataset_records(name: str, device: int, count: int, *, classes: bool = False) -> Rows:
    """Take `count` training records of a data set, for a trial.

    Devices with successive ids get successive records. classes: labels are class numbers.
    """
    dataset = datasets.held(name, classes=classes)
    positions = (np.arange(count) + (device - 1) * count) % len(dataset.training)
    return dataset.records(dataset.training[positions])
