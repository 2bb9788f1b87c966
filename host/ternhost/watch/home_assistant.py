"""Publishes a fleet's figures, and no data of a board, to Home Assistant.

It sends retained messages of MQTT discovery, see
https://www.home-assistant.io/integrations/mqtt/#device-discovery-payload
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

from tern import wire
from ternhost.errors import UsageError
from ternhost.learn.judging import WORDS
from ternhost.reach.fleet import parse
from ternhost.run.directory import figures_of
from ternhost.run.run import Run
from ternhost.run.status import END, Status
from ternhost.store.store import Store
from ternhost.text import visible
from ternhost.watch.fleet_view import least_budget

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


class HomeAssistant:
    """A fleet on a broker as Home Assistant sees it, from `begin` to `end`."""

    def __init__(self, text: str) -> None:
        """Prepare to publish a fleet; nothing is sent before `begin`.

        text: the fleet as --fleet names it, such as "mqtt:my-broker". Raises UsageError unless its
        broker lets Home Assistant see it.
        """
        publication = parse(text).publication()
        if publication is None:
            directory = "my-broker"
            if text.startswith("mqtt:"):
                directory = text.removeprefix("mqtt:")
            raise UsageError(
                "--home-assistant needs a fleet on a broker that lets Home Assistant see it",
                f"let it: tern broker config {directory} --home-assistant",
            )
        self._publication = publication
        self._state_topic = f"{publication.prefix}/fleet/state"
        self._availability_topic = f"{publication.prefix}/fleet/availability"
        self._values: dict[str, Any] = dict.fromkeys(_SENSORS)  # the last value of each sensor
        self._sensors: tuple[str, ...] = ()  # the values that fit into the discovery message

        # Times of time.monotonic().
        self._last_message = -_EVERY  # when the last message was sent
        self._last_read = 0.0  # when the store was read
        self._read_seconds = 0.0  # how long that took

    def begin(
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
        topics = [self._publication.discovery, self._state_topic, self._availability_topic]
        store.save_state({_STATE: topics})  # so that `_forget` can remove the messages later
        # The broker itself publishes OFFLINE if this process loses the connection.
        last_will = (self._availability_topic, OFFLINE)
        self._notices = self._publication.notices(last_will, warn)
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
        fleet_id = f"tern_{self._publication.prefix}"
        components: dict[str, Any] = {}
        # The keys are those of Home Assistant's MQTT discovery: "dev" for device, "mf" for
        # manufacturer, "sw" for software version, "o" for origin, "cmps" for components.
        message = {
            "dev": {
                "ids": [fleet_id],
                "name": f"{self._publication.prefix} fleet",
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
        self._notices.put(self._publication.discovery, _packed(message))


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


@contextmanager
def published(home: HomeAssistant | None, run: Run, warn: Callable[[str], None]) -> Iterator[None]:
    """Publish a served run to Home Assistant while the context is open.

    home: None if the run is not to be published. Then the messages of an earlier start, which the
    broker still retains, are removed. warn: called with a message if the broker refuses.
    """
    if home is None:
        _forget(run.options.fleet, run.store, warn)
        yield
        return
    last_entry = run.store.last_entry(run.files.name)
    home.begin(run.store, figures_of(last_entry), warn)
    try:
        yield
    finally:
        home.end()


def _forget(fleet: str, store: Store, warn: Callable[[str], None]) -> None:
    """Remove the messages that the broker of a fleet retains for Home Assistant, if there are any.

    fleet: as --fleet names it. store: of the fleet, which knows the topics. warn: called with a
    message if they cannot be removed now.
    """
    topics = store.state(_STATE)
    if not topics:
        return
    publication = parse(fleet).publication()
    if publication:
        # An empty message removes the one that is retained under the same topic.
        availability_topic = topics[-1]
        notices = publication.notices((availability_topic, b""), warn)
        was_removed = notices.close(dict.fromkeys(topics, b""))
        if not was_removed:
            warn(
                "Home Assistant still shows this fleet: its messages cannot be removed now; the "
                "next start tries again"
            )
            return
    store.save_state({_STATE: None})
