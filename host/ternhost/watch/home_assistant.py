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
_STATE = "home_assistant"  # in the store: the topics with retained messages
# Bytes of a message: a broker drops a connection with a longer packet.
_LONGEST = wire.MAX_FRAME - 64
_EVERY = 5.0  # seconds between two messages within a round
_PAUSES = 50  # between two reads of the store, each as long as a read

# The sensors of every fleet: name -> display name, unit, icon.
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
        """Prepare to publish the fleet that `text` names.

        Raises UsageError unless its broker lets Home Assistant see it.
        """
        publication = parse(text).publication()
        if publication is None:
            directory = text.removeprefix("mqtt:") if text.startswith("mqtt:") else "my-broker"
            raise UsageError(
                "--home-assistant needs a fleet on a broker that lets Home Assistant see it",
                f"let it: tern broker config {directory} --home-assistant",
            )
        self._publication = publication
        self._state_topic = f"{publication.prefix}/fleet/state"
        self._availability_topic = f"{publication.prefix}/fleet/availability"
        self._values: dict[str, Any] = dict.fromkeys(_SENSORS)
        self._sensors: tuple[str, ...] = ()  # the values that fit into the discovery message
        self._last_message = -_EVERY  # time
        self._last_read = 0.0  # of the store: time
        self._read_seconds = 0.0  # its duration

    def begin(
        self,
        store: Store,
        figures: Mapping[str, float],
        warn: Callable[[str], None] = lambda message: None,
    ) -> None:
        """Publish the discovery message and the first figures of a served fleet.

        figures: of its last round. warn: called with a message where the broker refuses.
        """
        self._store = store
        topics = [self._publication.discovery, self._state_topic, self._availability_topic]
        store.save_state({_STATE: topics})
        self._notices = self._publication.notices((self._availability_topic, OFFLINE), warn)
        self._values |= figures
        self._publish_discovery()
        self._publish_state()
        self._notices.put(self._availability_topic, ONLINE)

    def update(self, status: Status) -> None:
        """Publish a status, at the end of a round and every few seconds within one."""
        ended = status.event == END
        if not ended and time.monotonic() - self._last_message < _EVERY:
            return
        names_before = set(self._values)
        self._values["round"] = status.number
        for name in _OF_STATUS:
            self._values[name] = getattr(status, name)
        if ended:
            self._values |= status.figures
        if set(self._values) != names_before:
            self._publish_discovery()
        self._publish_state()

    def end(self) -> None:
        """Publish that the fleet is not served now; Home Assistant keeps the last figures."""
        self._notices.close({self._availability_topic: OFFLINE})

    def _publish_state(self) -> None:
        """Publish the present values, with the least budget read from the store now and then.

        Reading takes long for a large fleet, so the pause after a read is `_PAUSES` times as long
        as the read.
        """
        now = self._last_message = time.monotonic()
        if now - self._last_read >= _PAUSES * self._read_seconds:
            self._values["budget"] = least_budget(self._store.boards(), time.time())
            self._last_read = time.monotonic()
            self._read_seconds = self._last_read - now
        state = {name: self._values[name] for name in self._sensors}
        self._notices.put(self._state_topic, _packed(state))

    def _publish_discovery(self) -> None:
        """Describe the fleet to Home Assistant, with as many of its values as fit into a message."""
        release = version("tern-ldp")
        fleet_id = f"tern_{self._publication.prefix}"
        components: dict[str, Any] = {}
        # The abbreviated keys are those of Home Assistant's MQTT discovery: "dev" for device, "mf" for
        # manufacturer, "sw" for software version, "o" for origin, "cmps" for components.
        config = {
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
            if len(_packed(config)) > _LONGEST:
                del components[name]
        self._sensors = tuple(components)
        self._notices.put(self._publication.discovery, _packed(config))


def _sensor(name: str, fleet_id: str) -> dict[str, Any]:
    """Describe a value to Home Assistant, as a component of the discovery message ("p": platform)."""
    title = visible(WORDS.get(name, name.replace("_", " "))).capitalize()
    display_name, unit, icon = _SENSORS.get(name, (title, None, "mdi:chart-line"))
    # A name is no part of the template: an algorithm of one's own may call a figure anything.
    key = json.dumps(name, ensure_ascii=False)
    sensor = {
        "p": "sensor",
        "name": display_name,
        "unique_id": f"{fleet_id}_{name}",
        "value_template": f"{{{{ value_json[{key}] }}}}",
        "state_class": "measurement",
        "icon": icon,
    }
    if unit:
        sensor["unit_of_measurement"] = unit
    return sensor


def _packed(values: Mapping[str, Any]) -> bytes:
    return json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode()


@contextmanager
def shown(home: HomeAssistant | None, run: Run, warn: Callable[[str], None]) -> Iterator[None]:
    """Publish a served run to Home Assistant while the context is open.

    home: None if the run is not to be published; then the retained messages of an earlier start are
    removed.
    """
    if home is None:
        _forget(run.options.fleet, run.store, warn)
        yield
        return
    home.begin(run.store, figures_of(run.store.last_entry(run.files.name)), warn)
    try:
        yield
    finally:
        home.end()


def _forget(fleet: str, store: Store, warn: Callable[[str], None]) -> None:
    """Remove the messages that a broker retains for Home Assistant. fleet: its name."""
    topics = store.state(_STATE)
    if not topics:
        return
    publication = parse(fleet).publication()
    if publication:
        availability = topics[-1]
        was_removed = publication.notices((availability, b""), warn).close(
            dict.fromkeys(topics, b"")
        )
        if not was_removed:
            warn(
                "Home Assistant still shows this fleet: its messages cannot be removed now; the "
                "next start tries again"
            )
            return
    store.save_state({_STATE: None})
