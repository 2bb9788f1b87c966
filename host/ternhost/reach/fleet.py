"""Fleets: a fleet is all devices that one host aggregates the reports of.

Users name a fleet as `KIND:REST`, such as "mqtt:my-broker". Each kind is a subclass of Fleet, which
is registered under the word before the colon.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol, Self

from ternhost.errors import DeviceError, UsageError
from ternhost.registry import Registry
from ternhost.text import did_you_mean, whole_number

if TYPE_CHECKING:
    from ternhost.datasets import Holdings
    from ternhost.learn.schedule import Terms
    from ternhost.reach.driver import Driver, Warn
    from ternhost.reach.stored_rounds import DriverOptions
    from ternhost.run.options import RunOptions
    from ternhost.store.store import Store


class Boards(Protocol):
    """Boards that can be reached at ports while this context manager is open."""

    @property
    def ports(self) -> Sequence[str]:
        """One URL of ternhost.reach.links for each board."""

    def failed(self) -> Mapping[str, DeviceError]:
        """Return the errors of boards that are known to be gone for good, by the boards' ports."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *raised: object) -> None: ...


@dataclass(frozen=True)
class SimulatedClients:
    """The clients of a simulated fleet.

    holdings: the records of the clients; None if the learner needs none.
    count: how many clients there are; None for as many as the fleet's name says.
    seed: the seed of the generator from which they draw their reports.
    first: the id of the first client.
    """

    holdings: Holdings | None = None
    count: int | None = None
    seed: int = 1
    first: int = 1


@dataclass(frozen=True)
class RunContext:
    """What a fleet needs to know about a run to make the driver for it."""

    store: Store  # with the keys of the devices; it gets the rounds
    directory: Path  # of the run, for its files
    run: str  # the name of the run
    terms: Terms  # when rounds end
    warn: Warn  # is called with each warning
    clients: SimulatedClients = field(default_factory=SimulatedClients)
    modules: Sequence[str] = ()  # names of device library modules that boards need in addition
    individual: bool = False  # the reports of single devices are wanted
    standing: bool = False  # the fleet is served: its devices come and go
    options: RunOptions | None = None  # of the run; None: the fleet serves another program
    patience: float = 2.0  # seconds without news until boards are asked again

    @property
    def driver_options(self) -> DriverOptions:
        """The keyword arguments that every driver with a store takes."""
        return {
            "run": self.run,
            "individual": self.individual,
            "standing": self.standing,
            "warn": self.warn,
        }


class Fleet:
    """The base class of all kinds of fleets."""

    # How users name a fleet of this kind, and what it is, for help texts.
    form: ClassVar[str]
    about: ClassVar[str]
    opening: ClassVar[str] = ""  # what the beginning of a run waits for, where that takes long
    way: ClassVar[str] = ""  # how frames travel, in a sentence for privacy statements

    # Properties of the kind.
    provisions: ClassVar[bool] = False  # tern makes its boards, in the directory of the run
    simulated: ClassVar[bool] = False  # its clients are not devices: no store, no keys, no ledgers
    knows_records: ClassVar[bool] = False  # the host knows the records of its clients
    has_keys: ClassVar[bool] = True  # the host has the keys of its devices, in its store
    may_move: ClassVar[bool] = False  # a run that is resumed may find its boards elsewhere

    # Properties of one fleet.
    word: str  # the word of its kind, such as "mqtt"
    text: str  # the whole name, such as "mqtt:my-broker"
    count: int  # the number of its boards, or of its simulated clients

    def __init__(self, text: str) -> None:
        """Read the name of a fleet, KIND:REST. Raises UsageError if it is none of this kind."""
        self.text = text
        self.word, _, self.rest = text.partition(":")

    def number(self, what: str, most: int) -> int:
        """Return the number in the fleet's name, which is 2 in "emulated:2".

        what: a noun in the plural for what is counted, for the error message. most: the largest
        number that is allowed. Raises UsageError unless the name has a number from 1 to `most`.
        """
        number = whole_number(self.rest)
        if number is None or not 1 <= number <= most:
            hint = f"such as {self.word}:2"
            raise UsageError(f"fleet {self.text!r}: the number of {what} must be 1 to {most}", hint)
        return number

    @property
    def absolute_name(self) -> str:
        """The name of the fleet, with absolute paths, so that it is valid in any directory."""
        return self.text

    @property
    def clients(self) -> int | None:
        """The largest number of clients, or None where the fleet does not limit it."""
        return None

    @property
    def most_clients(self) -> int | None:
        """The default number of clients of boards that tern makes; None if it makes none."""
        return None

    @property
    def default_store(self) -> Path | None:
        """The file with the keys of its devices, or None if the fleet does not know it."""
        return None

    @property
    def broker_directory(self) -> Path | None:
        """The directory of the broker that its boards are connected to; None if there is none."""
        return None

    def moved_with(self, store: Path) -> str | None:
        """Return the name of this fleet now, if it has moved together with a store; None if not.

        store: the file of a run's store.
        """
        return None

    def device_count(self, store: Store, standing: bool) -> int:
        """Return how many devices the fleet has when a run begins.

        store: the store of the run, which has the keys of the devices. standing: the fleet is
        served: its devices come and go. Raises TernError.
        """
        return len(store.keys())

    def boards(
        self, directories: Sequence[Path], modules: Sequence[str] = (), whole: bool = False
    ) -> Boards:
        """Return the boards of the fleet, which are reached at ports.

        directories: those with the files of the boards that tern has made, one for each board.
        modules: names of modules of the device library that the boards need in addition.
        whole: whether the boards need the whole library.
        Raises UsageError if the fleet has no boards on ports, as this base class does.
        """
        raise UsageError(
            f"fleet {self.text!r} has no boards on ports", hint="such as emulated:1 or port:a0"
        )

    def driver(self, context: RunContext) -> Driver:
        """Make the driver that reaches the fleet's devices. Raises TernError."""
        raise NotImplementedError


# The kinds by their words; other packages add theirs.
_OWN = {
    "port": "ternhost.reach.ports.fleet:OnPorts",
    "mqtt": "ternhost.reach.broker.fleet:OnBroker",
    "simulated": "ternhost.reach.simulated.fleet:Simulated",
}
KINDS: Registry[type[Fleet]] = Registry("fleet", "tern.fleets", _OWN)


def parse(text: str) -> Fleet:
    """Return the fleet with this name, KIND:REST. Raises UsageError if there is no such kind."""
    kind, colon, rest = text.partition(":")
    if kind not in KINDS:
        hint = f"{did_you_mean(kind, KINDS, colon + rest)} a fleet is {forms()}".strip()
        raise UsageError(f"there is no fleet {text!r}", hint=hint)
    return KINDS[kind](text)


def forms() -> str:
    """Return how fleets of all kinds are named, for help texts."""
    texts = [f"{kind.form} ({kind.about})" for kind in KINDS.available()]
    return "; ".join(texts)
