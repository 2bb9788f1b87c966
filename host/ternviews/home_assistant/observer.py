"""Publishes a fleet's figures, and no data of a board, to Home Assistant.

It sends retained messages of MQTT discovery, see
https://www.home-assistant.io/integrations/mqtt/#device-discovery-payload
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from tern import wire
from ternhost.errors import UsageError
from ternhost.learn.models.judging import WORDS
from ternhost.reach.fleet import parse
from ternhost.run.directory import figures_of
from ternhost.run.observer import Observer
from ternhost.run.status import END, Status
from ternhost.text import visible
from ternhost.watch.fleet_view import least_budget

if TYPE_CHECKING:
    from ternhost.reach.broker.guests import GuestAccess
    from ternhost.run.run import Run
    from ternhost.store.store import Store
    from ternviews.home_assistant.notices import Notices

ONLINE, OFFLINE = b"online", b"offline"
_STATE = "home_assistant"  # name in the store's state: the topics with retained messages
# Bytes of a message. A broker closes a connection on which a longer packet than MAX_FRAME comes, and
# the packet has a topic and a header, too.
_LONGEST = wire.MAX_FRAME - 64
_EVERY = 5.0  # least seconds between two messages within a round
# Reading the store takes long for a large fleet. The pause after a read is this many times as long
# as the read, so that reading takes at most 2 % of the time.
_PAUSES = 50

# The sensors of every fleet, by name: the display name, the unit and the icon.
_SENSORS = {
    "round": ("Round", None, "mdi:counter"),
    "asked": ("Devices asked", "devices", "mdi:account-question"),
    "reports": ("Reports in the round", "reports", "mdi:chart-bell-curve"),
    "refusals": ("Refusals in the round", "refusals", "mdi:cancel"),
    "boards": ("Boards online", "boards", "mdi:chip"),
    "asleep": ("Boards asleep", "boards", "mdi:sleep"),
    "budget": ("Least budget left", None, "mdi:shield-half-full"),
}
_OF_STATUS = ("asked", "reports", "refusals", "boards", "asleep")


class HomeAssistant(Observer):
    """Publishes a fleet on a broker to Home Assistant, from `begin` to `end`."""

    name = "home_assistant"
    about = (
        "show the fleet in Home Assistant, through a broker of 'tern broker config --guest "
        "home-assistant'"
    )

    def __init__(self, fleet: str) -> None:
        """Prepare to publish a fleet; nothing is sent before `begin`.

        fleet: as --fleet names it, such as "mqtt:my-broker". Raises UsageError unless its broker
        lets Home Assistant see it.
        """
        access = _access_to(fleet)
        if access is None:
            directory = "my-broker"
            if fleet.startswith("mqtt:"):
                directory = fleet.removeprefix("mqtt:")
            raise UsageError(
                "--home-assistant needs a fleet on a broker that lets Home Assistant see it",
                f"let it: tern broker config {directory} --guest home-assistant",
            )
        self._access = access
        self._fleet_prefix = access.publisher.prefix  # the beginning of the fleet's topics
        self._discovery_topic = _discovery_topic(access)
        self._state_topic = f"{self._fleet_prefix}/fleet/state"
        self._availability_topic = f"{self._fleet_prefix}/fleet/availability"
        self._values: dict[str, Any] = dict.fromkeys(_SENSORS)  # the last value of each sensor
        self._sensors: tuple[str, ...] = ()  # the values that fit into the discovery message

        # Times of time.monotonic().
        self._last_message = -_EVERY  # when the last message was sent
        self._last_read = 0.0  # when the store was read
        self._read_seconds = 0.0  # how long that took

    def begin(self, run: Run, warn: Callable[[str], None]) -> None:
        """Publish a served run, with the figures of its last round, from now on."""
        last_entry = run.store.last_entry(run.files.name)
        self.publish(run.store, figures_of(last_entry), warn)

    def publish(
        self,
        store: Store,
        figures: Mapping[str, float],
        warn: Callable[[str], None] = lambda message: None,
    ) -> None:
        """Publish the discovery message and the first values of a fleet that is served from now on.

        store: of the fleet. figures: those of the model after the last round. warn: called with a
        message if the broker refuses.
        """
        self._store = store
        topics = [self._discovery_topic, self._state_topic, self._availability_topic]
        store.save_state({_STATE: topics})  # so that `forget` can remove the messages later
        # The broker itself publishes OFFLINE if this process loses the connection.
        last_will = (self._availability_topic, OFFLINE)
        self._notices = _notices(self._access, last_will, warn)
        self._values |= figures
        self._publish_discovery()
        self._publish_state()
        self._notices.put(self._availability_topic, ONLINE)

    def update(self, status: Status) -> None:
        """Publish the status of a run, at the end of a round and every few seconds within one."""
        round_has_ended = status.event == END
        seconds_since_last = time.monotonic() - self._last_message
        if not round_has_ended and seconds_since_last < _EVERY:
            return
        names_before = set(self._values)
        self._values["round"] = status.number
        for name in _OF_STATUS:
            self._values[name] = getattr(status, name)
        if round_has_ended:
            self._values |= status.figures
        has_new_sensor = set(self._values) != names_before
        if has_new_sensor:
            self._publish_discovery()
        self._publish_state()

    def end(self) -> None:
        """Publish that the fleet is not served now; Home Assistant keeps the last figures."""
        self._notices.close({self._availability_topic: OFFLINE})

    def _publish_state(self) -> None:
        """Publish the present values, and now and then read the least budget from the store."""
        now = time.monotonic()
        self._last_message = now
        read_is_due = now - self._last_read >= _PAUSES * self._read_seconds
        if read_is_due:
            self._values["budget"] = least_budget(self._store.boards(), time.time())
            self._last_read = time.monotonic()
            self._read_seconds = self._last_read - now
        state = {name: self._values[name] for name in self._sensors}
        self._notices.put(self._state_topic, _packed(state))

    def _publish_discovery(self) -> None:
        """Describe the fleet to Home Assistant, with as many of its sensors as fit into a message."""
        release = version("tern-ldp")
        fleet_id = f"tern_{self._fleet_prefix}"
        components: dict[str, Any] = {}
        # The keys are those of Home Assistant's MQTT discovery: "dev" for device, "mf" for
        # manufacturer, "sw" for software version, "o" for origin, "cmps" for components.
        message = {
            "dev": {
                "ids": [fleet_id],
                "name": f"{self._fleet_prefix} fleet",
                "mf": "tern",
                "sw": release,
            },
            "o": {"name": "tern", "sw": release},
            "cmps": components,
            "state_topic": self._state_topic,
            "availability_topic": self._availability_topic,
            "qos": 1,
        }
        for name in self._values:
            components[name] = _sensor(name, fleet_id)
            is_too_long = len(_packed(message)) > _LONGEST
            if is_too_long:
                del components[name]
        self._sensors = tuple(components)
        self._notices.put(self._discovery_topic, _packed(message))

    @classmethod
    def forget(cls, run: Run, warn: Callable[[str], None]) -> None:
        """Remove the messages that the broker of the run's fleet retains for Home Assistant, if any.

        warn: called with a message if they cannot be removed now.
        """
        topics = run.store.state(_STATE)
        if not topics:
            return
        access = _access_to(run.options.fleet)
        if access is not None:
            # An empty message removes the one that is retained under the same topic.
            availability_topic = topics[-1]
            notices = _notices(access, (availability_topic, b""), warn)
            was_removed = notices.close(dict.fromkeys(topics, b""))
            if not was_removed:
                warn(
                    "Home Assistant still shows this fleet: its messages cannot be removed now; the "
                    "next start tries again"
                )
                return
        run.store.save_state({_STATE: None})


def _sensor(name: str, fleet_id: str) -> dict[str, Any]:
    """Describe a value to Home Assistant, as a component of the discovery message.

    name: of the value: one of _SENSORS, or a figure of the model. fleet_id: of the fleet, which
    makes the id of the sensor unique.
    """
    if name in _SENSORS:
        display_name, unit, icon = _SENSORS[name]
    else:
        words = WORDS.get(name, name.replace("_", " "))
        display_name, unit, icon = visible(words).capitalize(), None, "mdi:chart-line"

    # An algorithm from another package may call a figure anything: as a string of JSON, the name
    # cannot end the template or add to it.
    name_as_json = json.dumps(name, ensure_ascii=False)
    sensor = {
        "p": "sensor",  # the platform
        "name": display_name,
        "unique_id": f"{fleet_id}_{name}",
        # In an f-string two braces stand for one: {{ value_json["round"] }}
        "value_template": f"{{{{ value_json[{name_as_json}] }}}}",
        "state_class": "measurement",
        "icon": icon,
    }
    if unit:
        sensor["unit_of_measurement"] = unit
    return sensor


def _packed(values: Mapping[str, Any]) -> bytes:
    """Return values as JSON without spaces, in UTF-8."""
    return json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode()


def _access_to(fleet: str) -> GuestAccess | None:
    """Load how Home Assistant and its publisher reach the broker of a fleet.

    fleet: as --fleet names it. Return None if Home Assistant may not see the fleet, or if the fleet
    is on no broker.
    """
    directory = parse(fleet).broker_directory
    if directory is None:
        return None
    from ternviews.home_assistant.guest import GUEST  # there may be no brokers otherwise

    return GUEST.load(directory)


def _discovery_topic(access: GuestAccess) -> str:
    """Return the topic at which Home Assistant discovers the fleet."""
    from ternviews.home_assistant.guest import discovery_topic

    return discovery_topic(access.publisher.prefix, access.guest.prefix)


def _notices(access: GuestAccess, will: tuple[str, bytes], warn: Callable[[str], None]) -> Notices:
    """Connect to the broker as publisher.

    will: the topic and payload of a message that the broker retains if this process is lost. warn:
    is called with a sentence if the broker refuses this host.
    """
    from ternviews.home_assistant.notices import Notices  # it needs an extra

    return Notices(access.publisher, will, warn)
