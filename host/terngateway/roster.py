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

# Seconds for which a gateway keeps a question: at first, and at most.
HOLD = 2.0
MOST_HOLD = 15.0
# Seconds until a gateway that fails is asked again: at first, and at most.
_PATIENCE = 2.0
_MOST_PATIENCE = 30.0
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
    patience: float = _PATIENCE
    hold: float = HOLD
    greeted: float = 0.0
    next: float = 0.0  # when something is sent next


class GatewayRoster:
    """Gateways by name, in `all`: those of the `post`, and those in the store from before."""

    def __init__(
        self, store: Store, post: Post, warn: Warn, *, standing: bool, registered: Registered
    ) -> None:
        """Begin with the gateways in the store.

        standing: the fleet is served, so that devices come and go. registered: returns, by gateway,
        the ids that its devices may have.
        """
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
        """The gateways that have said hello, with their latest HERE."""
        return [
            (gateway, gateway.here) for gateway in self.all.values() if gateway.here is not None
        ]

    def look(self, now: float) -> None:
        """Update which gateways can be reached, at most once in _LOOK seconds.

        A gateway that can be reached again is due at once. Warns of a new problem of the post.
        """
        if now - self._looked < _LOOK:
            return
        self._looked = now
        sites = self._post.sites()
        condition = self._post.condition()
        if condition != self.condition:
            self.condition = condition
            if condition and not self.quiet:
                self._warn(condition)
        for name in self.all.keys() - sites.keys():  # removed, or about to restart
            self.all[name].reachable = self.all[name].registered = False
        for name, reachable in sites.items():
            gateway = self.all.setdefault(name, KnownGateway(name))
            if reachable and not gateway.reachable:
                gateway.next, gateway.patience = now, _PATIENCE
            gateway.reachable, gateway.registered = reachable, True

    def greet(self, now: float, besides: frozenset[str] = frozenset()) -> None:
        """Say hello to gateways that have not been heard; in a served fleet also to others at times.

        besides: gateways that are not greeted.
        """
        for gateway in self.all.values():
            if gateway.name in besides:
                continue
            is_stale = self._standing and now - gateway.greeted > _AGAIN
            if gateway.here is None or gateway.left_out or is_stale:
                gateway.greeted = now
                self.send(gateway, Hello().encode(), now)

    def send(self, gateway: KnownGateway, payload: bytes, now: float, hold: float = 0.0) -> None:
        """Send to a gateway, if it can be reached and is due.

        hold: seconds that the gateway may keep the message before it replies.
        """
        if gateway.reachable and now >= gateway.next:
            gateway.next = now + hold + _LOST
            self._post.send(gateway.name, payload)

    def heard(self, gateway: KnownGateway, now: float) -> None:
        """Note that a gateway has sent a message, and warn that it is back if it was gone.

        A gateway that has left two rounds without an answer stays left out until it answers one.
        """
        gateway.heard = now
        gateway.patience = _PATIENCE
        was_gone = gateway.reported_gone or gateway.left_out
        if was_gone and gateway.unanswered <= 1:
            gateway.reported_gone = False
            gateway.left_out = False
            if gateway.here is not None:
                self._warn(f"gateway {gateway.name} is back")

    def failed(self, gateway: KnownGateway, why: str, now: float) -> None:
        """Postpone the next message to a gateway that has failed, for longer after each failure."""
        gateway.next = now + gateway.patience
        gateway.patience = min(2 * gateway.patience, _MOST_PATIENCE)
        self.gone(gateway, why)

    def gone(self, gateway: KnownGateway, why: str) -> None:
        """Warn that a gateway does not answer and why, once until it is back."""
        if not gateway.reported_gone and not self.quiet:
            gateway.reported_gone = True
            self._tables.gateway_gone(gateway.name)
            self._warn(f"gateway {gateway.name} does not answer: {why}")

    def admit(self, gateway: KnownGateway, here: Here, now: float, strict: bool) -> None:
        """Accept a HERE, unless it has devices that belong to another gateway; store it.

        A gateway with such devices is ignored for a while. strict: raise UsageError instead, if
        another gateway has one of them, too.
        """
        problem = self._registered_elsewhere(gateway, here)
        if not problem:
            problem = self._shared_device(gateway, here)
            if problem and strict:
                hint = "give the devices of every site ids of their own (--first-id)"
                raise UsageError(problem, hint=hint)
        if problem:
            self._ignore(gateway, now, problem)
            return

        count = len(here.devices)
        count_before = len(gateway.devices)
        if count_before and gateway.here is not None and count_before != count:
            text = f"gateway {gateway.name} now has {counted(count, 'device')}, not {count_before}"
            self._warn(text)
        if gateway.first is None:
            gateway.first = here.last
        gateway.devices = here.devices
        gateway.here = here
        gateway.next = now
        gateway.refused = False
        fields = asdict(here)
        del fields["devices"]
        self._tables.gateway_seen(
            gateway.name, here.devices, time.time(), {**fields, "clients": count}
        )

    def _shared_device(self, gateway: KnownGateway, here: Here) -> str:
        """Return a sentence on a device that another gateway has, too, or "" if there is none.

        Devices of a gateway that was removed are free.
        """
        for other in self.all.values():
            shared = np.intersect1d(other.devices, here.devices, assume_unique=True)
            if other is gateway or not len(shared):
                continue
            was_removed = other.here is None and not other.registered
            if was_removed:
                other.devices = integers(())
                continue
            return f"gateways {other.name} and {gateway.name} both have device {shared[0]}"
        return ""

    def _registered_elsewhere(self, gateway: KnownGateway, here: Here) -> str:
        """Return a sentence on a device whose id the gateway may not have, or "" if there is none.

        That is an id registered for another gateway, or one that is not among its own ids.
        """
        for name, allowed in self._registered().items():
            is_in_range = (here.devices >= allowed.start) & (here.devices < allowed.stop)
            ids = f"{allowed.start} to {allowed.stop - 1}"
            if name == gateway.name:
                wrong_devices = here.devices[~is_in_range]
                owner = "it is"
            else:
                wrong_devices = here.devices[is_in_range]
                owner = f"gateway {name} is"
            if len(wrong_devices):
                device = wrong_devices[0]
                return (
                    f"gateway {gateway.name} has device {device}, and {owner} registered for {ids}"
                )
        return ""

    def _ignore(self, gateway: KnownGateway, now: float, problem: str) -> None:
        """Ignore a gateway for _UNWANTED seconds, and warn of its problem."""
        self._warn(f"{problem}: {gateway.name} is ignored")
        gateway.next = now + _UNWANTED
        gateway.refused = True

    def believed(self) -> int:
        """Return the last round number that credible gateways have used; 0 if there are none.

        A dishonest gateway must not use up the numbers: the host ignores a gateway far ahead of all
        others, and uses only the first number that each reports.
        """
        first_claims = {}
        for gateway in self.all.values():
            if gateway.first is not None:
                first_claims[gateway.name] = gateway.first

        largest_credible = self._largest_credible(list(first_claims.values()))
        last_used = 0
        for name, claimed in first_claims.items():
            if claimed <= largest_credible:
                last_used = max(last_used, claimed)
            elif name not in self._doubted:  # warn once
                self._doubted.add(name)
                self._warn(
                    f"gateway {name} claims round {claimed}, which this host has not asked; it is "
                    f"not believed. If it is right, go on with --after-round {claimed}"
                )
        return last_used

    def _largest_credible(self, claims: list[int]) -> int:
        """Return the largest round number that a gateway may claim. claims: those of all gateways.

        All but a few numbers of it must be confirmed by this store, or by every other gateway.
        """
        ours = last_number(self._store)
        confirmed = min(claims, default=0)
        if len(claims) == 1:  # nobody else confirms it
            confirmed = ours if ours else min(confirmed, wire.CLIENT_AHEAD // 2)
        return max(ours, confirmed) + wire.FLEET_AHEAD
