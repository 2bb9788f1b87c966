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

# Seconds for which a gateway may keep a question before it reports its progress: at first, and at
# most. They double, so that long rounds take few messages.
HOLD = 2.0
MOST_HOLD = 15.0
# Seconds until a gateway that fails is asked again: at first, and at most. They double, too.
_PATIENCE = 2.0
_MOST_PATIENCE = 30.0
_LOST = 6.0  # seconds, beyond `hold`, after which a message without a reply is sent again
_LOOK = 0.25  # seconds between two looks at which gateways can be reached
_AGAIN = 30.0  # seconds after which a gateway of a served fleet is asked for its devices again
_UNWANTED = 150.0  # seconds until a gateway that claims the devices of another one is heard again

Registered = Callable[[], Mapping[str, range]]
"""Returns, by name of a gateway, the ids that its devices may have."""


@dataclass
class KnownGateway:
    """A gateway as the host knows it. Times are in seconds of the monotonic clock.

    Its devices:
    devices: their ids, ascending; at first those in the store.
    here: its latest message about itself since the driver was opened; None if there was none.
    first_claim: the last round number in the first of these messages.

    Whether it answers:
    registered: the connection knows it, so it may come.
    reachable: it can probably be reached now.
    heard: when its last message came.
    left_out: rounds do not wait for it until it is heard again.
    unanswered: how many rounds have left it out since its last answer.
    reported_gone: people were told that it does not answer.
    is_ignored: its devices are those of another gateway, so its messages do not count.
    last_problem: why a round last went on without it, so that the same reason is not repeated.

    When it gets messages:
    next_send: nothing is sent to it before that time.
    greeted: when it was last asked about itself.
    hold: for how many seconds it may keep the next question before it replies.
    patience: after how many seconds it is asked again if it fails now.
    """

    name: str
    devices: Integers = field(default_factory=lambda: integers(()))
    here: Here | None = None
    first_claim: int | None = None
    registered: bool = True
    reachable: bool = True
    heard: float = 0.0
    left_out: bool = False
    unanswered: int = 0
    reported_gone: bool = False
    is_ignored: bool = False
    last_problem: str = ""
    next_send: float = 0.0
    greeted: float = 0.0
    hold: float = HOLD
    patience: float = _PATIENCE


class GatewayRoster:
    """Gateways by name, in `all`: those of the `post`, and those in the store from before."""

    def __init__(
        self, store: Store, post: Post, warn: Warn, *, standing: bool, registered: Registered
    ) -> None:
        """Begin with the gateways in the store.

        post: the connection to the gateways. warn: is called with the text of each warning.
        standing: whether the fleet is served, so that devices come and go. registered: returns, by
        gateway, the ids that its devices may have.
        """
        self._store = store
        self._tables = GatewayTables(store)
        self._post = post
        self._warn = warn
        self._standing = standing
        self._registered = registered

        self.all: dict[str, KnownGateway] = {}
        for stored in self._tables.gateways():
            self.all[stored.name] = KnownGateway(stored.name, stored.devices)
        self.condition = ""  # what is wrong with the connection; "" if all is well
        self.quiet = True  # do not warn of absent gateways yet
        self._doubted: set[str] = set()  # gateways whose round numbers are not credible
        self._last_look = 0.0  # at which gateways can be reached

    @property
    def present(self) -> list[tuple[KnownGateway, Here]]:
        """The gateways that have said hello, with their latest message about themselves."""
        present = []
        for gateway in self.all.values():
            if gateway.here is not None:
                present.append((gateway, gateway.here))
        return present

    def look(self, now: float) -> None:
        """Update which gateways can be reached, at most once in _LOOK seconds.

        A gateway that can be reached again may be sent something at once. Warns if something is
        newly wrong with the connection. now: the time of the monotonic clock.
        """
        if now - self._last_look < _LOOK:
            return
        self._last_look = now
        sites = self._post.sites()
        condition = self._post.condition()
        if condition != self.condition:
            self.condition = condition
            if condition and not self.quiet:
                self._warn(condition)

        for name, is_reachable in sites.items():
            if name not in self.all:
                self.all[name] = KnownGateway(name)
            gateway = self.all[name]
            if is_reachable and not gateway.reachable:
                gateway.next_send = now
                gateway.patience = _PATIENCE
            gateway.reachable = is_reachable
            gateway.registered = True
        for name in self.all.keys() - sites.keys():  # removed, or about to restart
            self.all[name].reachable = False
            self.all[name].registered = False

    def greet(self, now: float, besides: frozenset[str] = frozenset()) -> None:
        """Ask gateways about themselves if they have not said, or were away.

        In a served fleet the others are asked again from time to time, since devices come and go.
        now: the time of the monotonic clock. besides: gateways that are not asked.
        """
        for gateway in self.all.values():
            if gateway.name in besides:
                continue
            is_stale = self._standing and now - gateway.greeted > _AGAIN
            if gateway.here is None or gateway.left_out or is_stale:
                gateway.greeted = now
                self.send(gateway, Hello().encode(), now)

    def send(self, gateway: KnownGateway, payload: bytes, now: float, hold: float = 0.0) -> None:
        """Send a message to a gateway, unless it cannot be reached or got one a moment ago.

        now: the time of the monotonic clock. hold: for how many seconds the gateway may keep the
        message before it replies. Without a reply, the next message goes _LOST seconds after that.
        """
        if gateway.reachable and now >= gateway.next_send:
            gateway.next_send = now + hold + _LOST
            self._post.send(gateway.name, payload)

    def note_message(self, gateway: KnownGateway, now: float) -> None:
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

    def note_failure(self, gateway: KnownGateway, why: str, now: float) -> None:
        """Postpone the next message to a gateway that has failed, for longer after each failure."""
        gateway.next_send = now + gateway.patience
        gateway.patience = min(2 * gateway.patience, _MOST_PATIENCE)
        self.warn_of_absence(gateway, why)

    def warn_of_absence(self, gateway: KnownGateway, why: str) -> None:
        """Warn that a gateway does not answer and why, once until it is back; store that, too."""
        if not gateway.reported_gone and not self.quiet:
            gateway.reported_gone = True
            self._tables.gateway_gone(gateway.name)
            self._warn(f"gateway {gateway.name} does not answer: {why}")

    def admit(self, gateway: KnownGateway, here: Here, now: float, strict: bool) -> None:
        """Accept and store a gateway's message about itself, with its devices.

        If it has devices that belong to another gateway, it is ignored for a while instead. strict:
        raise UsageError instead of that, if another gateway has one of the devices, too.
        """
        problem = self._registered_elsewhere(gateway, here)
        if not problem:
            problem = self._shared_device(gateway, here)
            if problem and strict:
                hint = "give the devices of every site ids of their own (--ids)"
                raise UsageError(problem, hint=hint)
        if problem:
            self._ignore(gateway, now, problem)
            return

        count = len(here.devices)
        count_before = len(gateway.devices)
        was_heard_before = gateway.here is not None
        if was_heard_before and count_before and count_before != count:
            text = f"gateway {gateway.name} now has {counted(count, 'device')}, not {count_before}"
            self._warn(text)

        if gateway.first_claim is None:
            gateway.first_claim = here.last
        gateway.devices = here.devices
        gateway.here = here
        gateway.next_send = now
        gateway.is_ignored = False
        fields = asdict(here)
        del fields["devices"]  # which have a column of their own
        fields["clients"] = count
        self._tables.gateway_seen(gateway.name, here.devices, heard=time.time(), here=fields)

    def _shared_device(self, gateway: KnownGateway, here: Here) -> str:
        """Return a sentence on a device that another gateway has, too, or "" if there is none.

        A gateway that was removed loses its devices, so that others may have them.
        """
        for other in self.all.values():
            if other is gateway:
                continue
            shared = np.intersect1d(other.devices, here.devices, assume_unique=True)
            if not len(shared):
                continue
            was_removed = other.here is None and not other.registered
            if was_removed:
                other.devices = integers(())
            else:
                return f"gateways {other.name} and {gateway.name} both have device {shared[0]}"
        return ""

    def _registered_elsewhere(self, gateway: KnownGateway, here: Here) -> str:
        """Return a sentence on a device whose id the gateway may not have, or "" if there is none.

        Ids may be registered for a gateway. Then it may have no others, and no other gateway may
        have these.
        """
        for name, allowed in self._registered().items():
            is_in_range = (here.devices >= allowed.start) & (here.devices < allowed.stop)
            if name == gateway.name:
                wrong_devices = here.devices[~is_in_range]
                owner = "it is"
            else:
                wrong_devices = here.devices[is_in_range]
                owner = f"gateway {name} is"
            if len(wrong_devices):
                device = wrong_devices[0]
                ids = f"{allowed.start} to {allowed.stop - 1}"
                return (
                    f"gateway {gateway.name} has device {device}, and {owner} registered for {ids}"
                )
        return ""

    def _ignore(self, gateway: KnownGateway, now: float, problem: str) -> None:
        """Ignore a gateway for _UNWANTED seconds, and warn of its problem."""
        self._warn(f"{problem}: {gateway.name} is ignored")
        gateway.next_send = now + _UNWANTED
        gateway.is_ignored = True

    def last_credible_round(self) -> int:
        """Return the last round number that gateways have used, as far as they are credible.

        Round numbers only grow, and end at some point, so a dishonest gateway must not use them up.
        Hence a gateway that is far ahead of all others is ignored, with a warning; and of each
        gateway only the first number counts that it reported. Returns 0 if no gateway is credible.
        """
        first_claims = {}
        for gateway in self.all.values():
            if gateway.first_claim is not None:
                first_claims[gateway.name] = gateway.first_claim

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
        """Return the largest round number that is credible as the last one of a gateway.

        It is at most FLEET_AHEAD beyond a number that this store confirms, or every gateway.
        claims: the last round numbers that the gateways report.
        """
        last_of_store = last_number(self._store)
        confirmed = min(claims, default=0)
        if len(claims) == 1:  # no other gateway confirms the only claim
            if last_of_store:
                confirmed = last_of_store
            else:  # a new store knows nothing, so a claim is believed if it is not large
                confirmed = min(confirmed, wire.CLIENT_AHEAD // 2)
        return max(last_of_store, confirmed) + wire.FLEET_AHEAD
