"""Fleets: the devices of one aggregator, and the words on the command line that name them.

`KIND:REST` names a fleet. Each kind is a class of its own, registered by its word: what is asked of it, and what it can
do, are its traits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from ternhost.drivers.ports import Boards, Ports
from ternhost.errors import UsageError
from ternhost.fleet import sites
from ternhost.fleet.provision import board_directories
from ternhost.links.access import Access, host_file
from ternhost.registry import Registry

if TYPE_CHECKING:
    from ternhost.aggregate.store import Store
    from ternhost.datasets import Holdings
    from ternhost.drivers.base import Driver, Terms, Warn


@dataclass(frozen=True)
class Setting:
    """What a fleet's driver is made for: a run, by name, with its store, its directory and its terms.

    first: id of the first simulated client. modules: of the device library that boards need beside their client.
    individual: whether the reports of single devices are wanted. standing: whether the fleet is served. patience:
    seconds without news until boards are asked again.
    """

    store: Store
    directory: Path
    run: str
    terms: Terms
    warn: Warn
    holdings: Holdings | None = None
    clients: int | None = None
    seed: int = 1
    first: int = 1
    modules: Sequence[str] = ()
    individual: bool = False
    standing: bool = False
    patience: float = 2.0


class Fleet:
    """The base of all kinds: a fleet as it was named.

    `form` and `about` tell people how to name one; `count` is the number of its boards, or of simulated clients.
    """

    form: ClassVar[str]
    about: ClassVar[str]
    provisions: ClassVar[bool] = False  # tern makes its boards, in the directory of a run
    simulated: ClassVar[bool] = False  # its clients are no devices: no store, no keys, no ledgers
    knows_records: ClassVar[bool] = False  # the host knows what its clients hold
    by_gateways: ClassVar[bool] = False  # gateways ask its devices, and have their keys
    may_move: ClassVar[bool] = False  # a run that is resumed may find its boards elsewhere
    word: str  # the kind, as it was named
    text: str  # all of it
    count: int

    def __init__(self, text: str) -> None:
        """Raises UsageError for what names no fleet of this kind."""
        self.text = text
        self.word, _, self.rest = text.partition(":")

    def number(self, what: str, most: int) -> int:
        """The number that the name gives. Raises UsageError."""
        if not (self.rest.isascii() and self.rest.isdecimal() and 1 <= int(self.rest) <= most):
            raise UsageError(
                f"fleet {self.text!r}: the number of {what} must be 1 to {most}",
                hint=f"such as {self.word}:2",
            )
        return int(self.rest)

    @property
    def anywhere(self) -> str:
        """Its name, good from any working directory."""
        return self.text

    @property
    def clients(self) -> int | None:
        """How many clients there are at most; None where that does not depend on the fleet."""
        return None

    @property
    def most_clients(self) -> int | None:
        """For how many clients boards are made where nobody says; None: no matter."""
        return None

    @property
    def default_store(self) -> Path | None:
        """The store with its keys, where the fleet knows one."""
        return None

    def census(self, store: Store, standing: bool) -> int:
        """How many devices there are when a run begins in this store. standing: it is served. Raises TernError."""
        return len(store.keys())

    def boards(self, directories: Sequence[Path], modules: Sequence[str] = (), whole: bool = False) -> Boards:
        """Its boards, to be reached by ports. Raises UsageError where it has none.

        directories: of the files of those that tern made. modules, whole: what of the device library they need.
        """
        raise UsageError(
            f"fleet {self.text!r} has no boards on ports", hint="such as emulated:1 or port:/dev/ttyACM0"
        )

    def driver(self, setting: Setting) -> Driver:
        """What reaches it. Raises TernError."""
        from ternhost.drivers.boards import BoardsDriver

        return BoardsDriver(
            setting.store,
            self.boards(board_directories(setting.directory, self.count), setting.modules),
            setting.terms,
            run=setting.run,
            individual=setting.individual,
            warn=setting.warn,
        )


class Simulated(Fleet):
    """Clients in NumPy."""

    form = "simulated:N"
    about = "N clients in NumPy"
    simulated = True
    knows_records = True
    MOST: ClassVar[int] = 1_000_000_000

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.count = self.number("clients", self.MOST)

    @property
    def clients(self) -> int:
        return self.count

    def driver(self, setting: Setting) -> Driver:
        from ternhost.drivers.simulated import SimulatedDriver

        assert setting.holdings is not None
        return SimulatedDriver(
            setting.holdings,
            setting.clients or self.count,
            setting.seed,
            individual=setting.individual,
            first=setting.first,
        )


class OnPorts(Fleet):
    """Boards on ports, provisioned by somebody else."""

    form = "port:PATH[,PATH...]"
    about = "boards on serial ports, or at URLs"
    may_move = True

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.ports = tuple(port.strip() for port in self.rest.split(","))
        if not all(self.ports):
            raise UsageError(f"fleet {text!r} names no port", hint="such as port:/dev/ttyACM0")
        if len(set(self.ports)) < len(self.ports):
            raise UsageError(f"fleet {text!r} names a port twice", hint="name each port once")
        self.count = len(self.ports)

    @property
    def anywhere(self) -> str:
        files = {port: str(Path(port).absolute()) for port in self.ports if Path(port).exists()}
        return f"{self.word}:{','.join(files.get(port, port) for port in self.ports)}"

    def boards(self, directories: Sequence[Path], modules: Sequence[str] = (), whole: bool = False) -> Boards:
        return Ports(self.ports)


class OnBroker(Fleet):
    """The devices of a store, on the broker of a directory of `tern broker config`."""

    form = "mqtt:DIR"
    about = "boards on the broker of 'tern broker config DIR'"
    may_move = True
    count = 0  # nobody knows before they connect

    def __init__(self, text: str) -> None:
        super().__init__(text)
        if not self.rest:
            raise UsageError(f"fleet {text!r} names no directory", hint="such as mqtt:my-broker")

    @property
    def anywhere(self) -> str:
        return f"{self.word}:{Path(self.rest).expanduser().absolute()}"

    @property
    def _host_file(self) -> Path:
        return host_file(Path(self.rest).expanduser())

    @property
    def _access(self) -> Access:
        if sites.is_site(directory := self._host_file.parent):
            raise UsageError(
                f"{directory} is a site: its broker lets no host in",
                hint="ask at the central broker: name the directory that 'tern broker config' made there",
            )
        return Access.load(self._host_file)

    @property
    def default_store(self) -> Path | None:
        store = self._access.store
        return None if store is None else Path(store)

    def driver(self, setting: Setting) -> Driver:
        from ternhost.drivers.broker import BrokerDriver
        from ternhost.links.mqtt import MqttLink

        access, directory = self._access, self._host_file.parent
        return BrokerDriver(
            setting.store,
            lambda: MqttLink(access, sites=lambda: sites.ids(directory)),
            setting.terms,
            run=setting.run,
            individual=setting.individual,
            standing=setting.standing,
            patience=setting.patience,
            warn=setting.warn,
        )


# The kinds by their words; those of emulated boards come with the tools.
KINDS: Registry[type[Fleet]] = Registry(
    "fleet",
    "tern.fleets",
    {
        "port": "ternhost.fleet:OnPorts",
        "mqtt": "ternhost.fleet:OnBroker",
        "simulated": "ternhost.fleet:Simulated",
        "flower": "ternhost.fleet.at_gateways:OverFlower",
    },
)


def parse(text: str) -> Fleet:
    """Read a fleet's name, `KIND:REST`. Raises UsageError."""
    kind = text.partition(":")[0]
    if kind not in KINDS:
        raise UsageError(f"there is no fleet {text!r}", hint=f"a fleet is {forms()}")
    return KINDS[kind](text)


def forms() -> str:
    """How every kind is named, for people."""
    return "; ".join(f"{kind.form} ({kind.about})" for kind in KINDS.values())
