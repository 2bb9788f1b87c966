"""The gateways that a host knows: their connections, devices and round numbers."""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field

import numpy as np

from tern import wire
from terngateway.messages import Hello, Here
from terngateway.post import Post
from terngateway.tables import GatewayTables
from ternhost.count.members import Integers, integers
from ternhost.errors import UsageError
from ternhost.reach.driver import Warn
from ternhost.store.round_numbers import last_number
from ternhost.store.store import Store
from ternhost.text import counted

HOLD = 2.0, 15.0  # seconds for which a gateway keeps a question: at first, and at most
_PATIENCE = 2.0, 30.0  # seconds until a gateway that fails is asked again: at first, and at most
_LOST = 6.0  # seconds beyond `hold` after which a message, or its reply, was lost
_LOOK = 0.25  # seconds between two looks at who can be reached
_AGAIN = 30.0  # seconds after which a gateway of a served fleet is asked for its devices again
_UNWANTED = 150.0  # seconds until a gateway that claims the devices of another one is heard again

Registered = Callable[[], Mapping[str, range]]


@dataclass
class KnownGateway:
    """A gateway as the host knows it. Times are of the monotonic clock."""

    name: str
    devices: Integers = field(default_factory=lambda: integers(()))
    here: Here | None = None  # its latest HERE since the driver was opened
    heard: float = 0.0
    registered: bool = True  # the post knows it
    reachable: bool = True
    left_out: bool = False  # rounds do not wait for it until it is heard again
    unanswered: int = 0  # rounds without it since its last answer
    first: int | None = None  # the last round number in its first HERE
    reported_gone: bool = False
    refused: bool = False  # its messages are ignored
    why: str = ""  # a round last went on without it
    patience: float = _PATIENCE[0]
    hold: float = HOLD[0]
    greeted: float = 0.0
    next: float = 0.0  # when something is sent next


class GatewayRoster:
    """Gateways by name, in `all`: those of the `post`, and those in the store from before."""

    def __init__(
        self, store: Store, post: Post, warn: Warn, *, standing: bool, registered: Registered
    ) -> None:
        """standing: devices come and go. registered: by gateway, the ids that its devices may have."""
        self.all = {
            known.name: KnownGateway(known.name, known.devices)
            for known in GatewayTables(store).gateways()
        }
        self.condition = ""  # of the post
        self.quiet = True  # do not warn of absent gateways yet
        self._doubted: set[str] = set()  # gateways whose round numbers are not credible
        self._store = store
        self._tables = GatewayTables(store)
        self._post = post
        self._warn = warn
        self._standing = standing
        self._registered = registered
        self._looked = 0.0

    @property
    def there(self) -> list[tuple[KnownGateway, Here]]:
        """The gateways that have been heard, with their latest HERE."""
        return [
            (gateway, gateway.here) for gateway in self.all.values() if gateway.here is not None
        ]

    def look(self, now: float) -> None:
        """Update which gateways can be reached."""
        if now - self._looked < _LOOK:
            return
        self._looked = now
        sites = self._post.sites()
        if (condition := self._post.condition()) != self.condition:
            self.condition = condition
            if condition and not self.quiet:
                self._warn(condition)
        for name in self.all.keys() - sites.keys():  # removed, or about to restart
            self.all[name].reachable = self.all[name].registered = False
        for name, reachable in sites.items():
            gateway = self.all.setdefault(name, KnownGateway(name))
            if reachable and not gateway.reachable:
                gateway.next, gateway.patience = now, _PATIENCE[0]
            gateway.reachable, gateway.registered = reachable, True

    def greet(self, now: float, besides: frozenset[str] = frozenset()) -> None:
        """Say hello to gateways that have not been heard, except for `besides`; repeatedly in a
        served fleet.
        """
        for gateway in self.all.values():
            stale = self._standing and now - gateway.greeted > _AGAIN
            if (gateway.here is None or gateway.left_out or stale) and gateway.name not in besides:
                gateway.greeted = now
                self.send(gateway, Hello().encode(), now)

    def send(self, gateway: KnownGateway, payload: bytes, now: float, hold: float = 0.0) -> None:
        """Send to a gateway, if it can be reached and is due. hold: seconds that it may take to
        reply.
        """
        if gateway.reachable and now >= gateway.next:
            gateway.next = now + hold + _LOST
            self._post.send(gateway.name, payload)

    def heard(self, gateway: KnownGateway, now: float) -> None:
        """Note that it has sent a message. A gateway that never answers a round stays left out."""
        gateway.heard, gateway.patience = now, _PATIENCE[0]
        if (gateway.reported_gone or gateway.left_out) and gateway.unanswered <= 1:
            gateway.reported_gone = gateway.left_out = False
            if gateway.here is not None:
                self._warn(f"gateway {gateway.name} is back")

    def failed(self, gateway: KnownGateway, why: str, now: float) -> None:
        """Ask a gateway again later that has not answered."""
        gateway.next = now + gateway.patience
        gateway.patience = min(2 * gateway.patience, _PATIENCE[1])
        self.gone(gateway, why)

    def gone(self, gateway: KnownGateway, why: str) -> None:
        """Warn that a gateway does not answer, once until it is back."""
        if not gateway.reported_gone and not self.quiet:
            gateway.reported_gone = True
            self._tables.gateway_gone(gateway.name)
            self._warn(f"gateway {gateway.name} does not answer: {why}")

    def admit(self, gateway: KnownGateway, here: Here, now: float, strict: bool) -> None:
        """Accept a HERE whose devices are allowed. strict: raise UsageError for devices of another
        gateway.
        """
        if message := self._not_its_own(gateway, here):
            self._ignore(gateway, now, message)
            return
        for other in self.all.values():
            twice = np.intersect1d(other.devices, here.devices, assume_unique=True)
            if other is gateway or not len(twice):
                continue
            if other.here is None and not other.registered:  # it was removed
                other.devices = integers(())
                continue
            message = f"gateways {other.name} and {gateway.name} both have device {twice[0]}"
            if strict:
                raise UsageError(
                    message, hint="give the devices of every site ids of their own (--first-id)"
                )
            self._ignore(gateway, now, message)
            return
        count, before = len(here.devices), len(gateway.devices)
        if before and gateway.here is not None and before != count:
            self._warn(f"gateway {gateway.name} now has {counted(count, 'device')}, not {before}")
        gateway.first = here.last if gateway.first is None else gateway.first
        gateway.devices, gateway.here, gateway.next, gateway.refused = (
            here.devices,
            here,
            now,
            False,
        )
        fields = {name: value for name, value in asdict(here).items() if name != "devices"}
        self._tables.gateway_seen(
            gateway.name, here.devices, time.time(), {**fields, "clients": count}
        )

    def _not_its_own(self, gateway: KnownGateway, here: Here) -> str:
        for name, allowed in self._registered().items():
            inside = (here.devices >= allowed.start) & (here.devices < allowed.stop)
            wrong = here.devices[~inside if name == gateway.name else inside]
            if len(wrong):
                ids = f"{allowed.start} to {allowed.stop - 1}"
                whose = "it is" if name == gateway.name else f"gateway {name} is"
                return f"gateway {gateway.name} has device {wrong[0]}, and {whose} registered for {ids}"
        return ""

    def _ignore(self, gateway: KnownGateway, now: float, message: str) -> None:
        self._warn(f"{message}: {gateway.name} is ignored")
        gateway.next, gateway.refused = now + _UNWANTED, True

    def believed(self) -> int:
        """The last round number that credible gateways have used.

        A dishonest one must not use up the numbers: the host ignores a gateway far ahead of all
        others, and uses only the first number that each reports.
        """
        ours = last_number(self._store)
        first = {
            gateway.name: gateway.first
            for gateway in self.all.values()
            if gateway.first is not None
        }
        least = min(first.values(), default=0)
        if len(first) == 1:
            least = ours if ours else min(least, wire.CLIENT_AHEAD // 2)
        most = max(ours, least) + wire.FLEET_AHEAD
        for name, last in first.items():
            if last > most and name not in self._doubted:
                self._doubted.add(name)
                text = (
                    f"gateway {name} claims round {last}, which this host has not asked; it is not "
                )
                text += f"believed. If it is right, go on with --after-round {last}"
                self._warn(text)
        return max((last for last in first.values() if last <= most), default=0)
