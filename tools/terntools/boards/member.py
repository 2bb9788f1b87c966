"""A member of a fleet: the wanted state of a board, checked before anything is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tern import wire
from tern.ledger import RHO
from ternhost import datasets
from ternhost.datasets.holdings import MOST_RECORDS
from ternhost.errors import UsageError
from ternhost.privacy import cards
from ternhost.privacy.accounting import Policy
from ternhost.provision import keys
from ternhost.provision.boards import Rows, fleet_file
from ternhost.store import sleepers
from ternhost.store.fleet_key import FleetKey
from terntools.boards import records
from terntools.boards.network import Broker
from terntools.boards.program import Program

SHAPES = {name: number for number, name in cards.SHAPES.items()}  # kinds of mechanisms

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
        """Return the bytes of fleet.bin, with these settings and the fleet's key.

        fleet: the key with which the host authenticates what is for the whole fleet, and the number
        (epoch) of that key. record_count: how many records the device has, by which a bound is
        chosen if the settings have none. Raises UsageError for impossible settings.
        """
        most_records = self.most_records or bound_on_records(record_count)
        return fleet_file(
            fleet.key,
            pause=self.pause,
            slot=self.slot,
            ahead=self.reserve,
            epoch=fleet.epoch,
            records=most_records,
            unit=self.unit,
        )


def bound_on_records(record_count: int) -> int:
    """Return an upper bound on the number of records of a device, which everybody may know.

    It is the smallest power of two that is not below the number, and at least 64: so it reveals
    little about the number itself.
    """
    # The bits that n - 1 needs: 2 to their number is n or the next power of two.
    power_of_two = 1 << (record_count - 1).bit_length()
    return min(max(_LEAST_BOUND, power_of_two), MOST_RECORDS)


@dataclass(frozen=True)
class Member:
    """The wanted state of a board as one client of a fleet.

    Making one raises UsageError if no board can be in this state.
    """

    device: int  # its id
    rows: Rows  # its records
    policy: Policy  # the largest cost of a report, and the budget for life
    shapes: tuple[str, ...] = ()  # the kinds of mechanisms that it accepts; none named: all
    settings: FleetSettings = field(default_factory=FleetSettings)

    # How it reaches its host: by a broker, by a user's own link, or else by its port.
    broker: Broker | None = None
    wake: int | None = None  # seconds from one wake to the next, if it sleeps
    link: Mapping[str, bytes] = field(
        default_factory=dict, repr=False
    )  # files of the link, by name

    program: Program | None = None  # None: tern's own, which only serves the host
    lock: bool = False  # close the board's console
    counter: bool = False  # bind a new ledger to the counter of its chip
    again: bool = False  # go on with a device that the store knows, on a board without its ledger

    def __post_init__(self) -> None:
        """Raise UsageError if no board can be in the state that these fields describe."""
        keys.parse_ids([str(self.device)])  # raises if the id is impossible
        unknown = sorted(set(self.shapes) - set(SHAPES))
        if unknown:
            raise UsageError(f"shapes must be of {', '.join(SHAPES)}, not {unknown[0]!r}")
        most_records = self.settings.most_records
        if most_records is not None and not 1 <= most_records <= MOST_RECORDS:
            raise UsageError(f"--most-records must be 1 to {MOST_RECORDS}, not {most_records}")
        self._require_wake_possible()
        self._require_no_contradiction()
        any_key = FleetKey(bytes(wire.KEY_BYTES), 1)
        self.fleet_file(any_key)  # raises for impossible settings
        records.check_fits(self.rows)  # raises for too many or too large records

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
                hint="name the broker with --broker DIR; it keeps the round until the board wakes",
            )

    def _require_no_contradiction(self) -> None:
        """Raise UsageError for two options that exclude each other."""
        reserve = self.settings.reserve
        pause = self.settings.pause
        if self.wake and reserve > 1:
            raise _contradiction(
                f"--reserve {reserve} and --wake-s",
                "a sleep acts like a power cut, and each would waste up to "
                f"{reserve - 1} reports of the budget",
                hint="leave out --reserve: the budget is then charged for each report by itself",
            )
        if self.wake and pause > 0:
            raise _contradiction(
                f"--pause {pause} and --wake-s",
                f"a board that has just started waits {pause} s before it answers, "
                "and sleeps by then",
                hint="leave out --pause, and give the host that interval: tern serve --every",
            )
        if self.wake and self.lock:
            raise _contradiction("--lock and --wake-s", f"{_LOCKED}, which never sleeps")
        if self.link and self.broker:
            raise _contradiction("--link and --broker", "a board has one link")
        if self.link and self.lock:
            raise _contradiction("--link and --lock", f"{_LOCKED}, which knows no other link")

    @property
    def link_name(self) -> str:
        """The name of the link that the board uses.

        It is "mqtt" with a broker, the name of its .json file for a user's own link, and "serial"
        for the board's port.
        """
        if self.broker:
            return "mqtt"
        for name in self.link:
            if name.endswith(".json"):
                return name.removesuffix(".json")
        return "serial"

    @property
    def modules(self) -> tuple[str, ...]:
        """The optional modules that its board needs for its unit of privacy and its budget."""
        if self.settings.unit or self.policy.measure == RHO:
            return ("sums",)
        return ()

    def fleet_file(self, fleet: FleetKey) -> bytes:
        """Return the bytes of fleet.bin with the fleet's key. Raises UsageError."""
        return self.settings.fleet_file(fleet, len(self.rows))


def _contradiction(options: str, why: str, hint: str = _LEAVE_ONE_OUT) -> UsageError:
    """Return the error for two options that exclude each other.

    options: their names, such as "--a and --b". why: the reason, as the end of the sentence.
    """
    return UsageError(f"{options} exclude each other: {why}", hint=hint)


def dataset_records(name: str, device: int, count: int) -> Rows:
    """Return `count` training records of a data set, so that a device has records for a trial.

    Devices with successive ids get successive records; after the last record comes the first one.
    """
    dataset = datasets.held(name)
    positions = (np.arange(count) + (device - 1) * count) % len(dataset.training)
    return dataset.records(dataset.training[positions])
