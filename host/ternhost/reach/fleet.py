"""Fleets: the devices of one aggregator.

`KIND:REST` names one; each kind is a class, registered by its word.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol, Self

from ternhost.errors import DeviceError, UsageError
from ternhost.registry import Registry

if TYPE_CHECKING:
    from ternhost.datasets import Holdings
    from ternhost.learn.schedule import Terms
    from ternhost.reach.driver import Driver, Warn
    from ternhost.reach.stored_rounds import DriverOptions
    from ternhost.run.options import RunOptions
    from ternhost.store.store import Store


class Boards(Protocol):
    """Boards that can be reached while the context is open."""

    @property
    def ports(self) -> Sequence[str]:
        """One URL of ternhost.reach.links for each board."""

    def failed(self) -> Mapping[str, DeviceError]:
        """Return the errors of boards that are known to be gone for good, by their ports."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *raised: object) -> None: ...


class Notices(Protocol):
    """Messages about a fleet that a broker retains, the latest of each topic."""

    def put(self, topic: str, payload: bytes) -> None:
        """Retain this on a topic; an empty payload removes the message. Returns at once."""

    def close(self, last: Mapping[str, bytes]) -> bool:
        """Put the last messages and disconnect; return whether they have arrived."""


class Publication(Protocol):
    """Topics of a broker on which the figures of a fleet are published."""

    @property
    def prefix(self) -> str:
        """Prefix of the fleet's topics."""

    @property
    def discovery(self) -> str:
        """The topic that describes the fleet to those who look for it."""

    def notices(self, will: tuple[str, bytes], warn: Warn) -> Notices:
        """Connect to the broker. will: (topic, payload) that it retains if this process is lost."""


@dataclass(frozen=True)
class SimulatedClients:
    """The clients of a simulated fleet.

    holdings: their records; None if the learner needs none. count: None for as many as the fleet
    has. seed: of their draws. first: the id of the first one.
    """

    holdings: Holdings | None = None
    count: int | None = None
    seed: int = 1
    first: int = 1


@dataclass(frozen=True)
class RunContext:
    """The arguments of a fleet's driver."""

    store: Store
    directory: Path
    run: str
    terms: Terms
    warn: Warn
    clients: SimulatedClients = field(default_factory=SimulatedClients)
    modules: Sequence[str] = ()  # of the device library, that boards need in addition
    individual: bool = False  # the reports of single devices are wanted
    standing: bool = False  # the fleet is served
    options: RunOptions | None = None  # of the run; None: the fleet serves another program
    patience: float = 2.0  # seconds without news until boards are asked again

    @property
    def driver_options(self) -> DriverOptions:
        """What every driver with a store needs of it."""
        return {
            "run": self.run,
            "individual": self.individual,
            "standing": self.standing,
            "warn": self.warn,
        }


class Fleet:
    """The base of all kinds of fleets; `form` and `about` explain how to name one."""

    form: ClassVar[str]
    about: ClassVar[str]
    provisions: ClassVar[bool] = False  # tern makes its boards, in the directory of the run
    simulated: ClassVar[bool] = False  # its clients are not devices: no store, no keys, no ledgers
    knows_records: ClassVar[bool] = False  # the host knows the records of its clients
    has_keys: ClassVar[bool] = True  # the host has the keys of its devices, in its store
    may_move: ClassVar[bool] = False  # a run that is resumed may find its boards elsewhere
    opening: ClassVar[str] = ""  # what the beginning of a run waits for, where that takes long
    way: ClassVar[str] = ""  # how frames travel, in a sentence for privacy statements
    word: str  # the kind
    text: str  # the whole name
    count: int  # of its boards, or of simulated clients

    def __init__(self, text: str) -> None:
        """Raises UsageError for a text that names no fleet of this kind."""
        self.text = text
        self.word, _, self.rest = text.partition(":")

    def number(self, what: str, most: int) -> int:
        """Return the number in the fleet's name, as in "emulated:2".

        what: is counted, for the message. Raises UsageError unless it is a number from 1 to `most`.
        """
        if not (self.rest.isascii() and self.rest.isdecimal() and 1 <= int(self.rest) <= most):
            hint = f"such as {self.word}:2"
            raise UsageError(f"fleet {self.text!r}: the number of {what} must be 1 to {most}", hint)
        return int(self.rest)

    @property
    def anywhere(self) -> str:
        """Its name, valid in any working directory."""
        return self.text

    @property
    def clients(self) -> int | None:
        """The largest number of clients; None where the fleet does not limit it."""
        return None

    @property
    def most_clients(self) -> int | None:
        """The default number of clients for boards that tern makes; None: irrelevant."""
        return None

    @property
    def default_store(self) -> Path | None:
        """The store with its keys, if the fleet knows one."""
        return None

    def publication(self) -> Publication | None:
        """Where its figures may be published for others; None if nobody may see them.

        Raises UsageError and StorageError.
        """
        return None

    def census(self, store: Store, standing: bool) -> int:
        """Return the number of devices when a run begins in this store.

        standing: the fleet is served. Raises TernError.
        """
        return len(store.keys())

    def boards(
        self, directories: Sequence[Path], modules: Sequence[str] = (), whole: bool = False
    ) -> Boards:
        """Return the boards of the fleet, which are on ports.

        directories: with the files of each board that tern made. modules: of the device library,
        which the boards need in addition. whole: they need all of it. Raises UsageError if the
        fleet has no boards on ports.
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
    """Read a fleet's name, `KIND:REST`. Raises UsageError."""
    kind = text.partition(":")[0]
    if kind not in KINDS:
        raise UsageError(f"there is no fleet {text!r}", hint=f"a fleet is {forms()}")
    return KINDS[kind](text)


def forms() -> str:
    """The forms of all kinds, for help texts."""
    return "; ".join(f"{kind.form} ({kind.about})" for kind in KINDS.available())
