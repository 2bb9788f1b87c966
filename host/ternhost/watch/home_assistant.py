"""Publishes a fleet's figures, and no data of a board, to Home Assistant by retained messages of
MQTT discovery.

Format: https://www.home-assistant.io/integrations/mqtt/#device-discovery-payload
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
_LONGEST = (
    wire.MAX_FRAME - 64
)  # bytes of a message: a broker drops a connection with a longer packet
_EVERY = 5.0  # seconds between two messages within a round
_SELDOM = 50  # pauses between reads of the store, in units of the duration of a read

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
        """text: the name of the fleet.

        Raises UsageError unless its broker lets Home Assistant see it.
        """
        topics = parse(text).home_topics()
        if topics is None:
            place = text.removeprefix("mqtt:") if text.startswith("mqtt:") else "my-broker"
            text = "--home-assistant needs a fleet on a broker that lets Home Assistant see it"
            raise UsageError(text, f"let it: tern broker config {place} --home-assistant")
        self._topics, prefix = topics, topics.prefix
        self._state, self._availability = f"{prefix}/fleet/state", f"{prefix}/fleet/availability"
        self._id = f"tern_{prefix}"
        self._values: dict[str, Any] = dict.fromkeys(_SENSORS)
        self._last = -_EVERY  # time of the last message
        self._read = self._took = 0.0  # time and duration of the last read of the store

    def begin(
        self,
        store: Store,
        figures: Mapping[str, float],
        warn: Callable[[str], None] = lambda message: None,
    ) -> None:
        """Publish a served fleet. figures: of its last round. warn: called where the broker
        refuses.
        """
        self._store = store
        store.save_state({_STATE: [self._topics.discovery, self._state, self._availability]})
        self._notices = self._topics.notices((self._availability, OFFLINE), warn)
        self._values |= figures
        self._configure()
        self._put()
        self._notices.put(self._availability, ONLINE)

    def update(self, status: Status) -> None:
        """Publish a status, at the end of a round and every few seconds within one."""
        ended = status.event == END
        if not ended and time.monotonic() - self._last < _EVERY:
            return
        known = set(self._values)
        self._values |= {name: getattr(status, name) for name in _OF_STATUS} | {
            "round": status.number
        }
        if ended:
            self._values |= status.figures
        if set(self._values) != known:
            self._configure()
        self._put()

    def end(self) -> None:
        """Publish that the fleet is not served now; Home Assistant keeps the last figures."""
        self._notices.close({self._availability: OFFLINE})

    def _put(self) -> None:
        self._last = time.monotonic()
        if self._last - self._read >= _SELDOM * self._took:
            self._values["budget"] = least_budget(self._store.boards(), time.time())
            self._read = time.monotonic()
            self._took = self._read - self._last
        self._notices.put(self._state, _packed({name: self._values[name] for name in self._shown}))

    def _configure(self) -> None:
        components: dict[str, Any] = {}
        release = version("tern-ldp")
        device = {
            "ids": [self._id],
            "name": f"{self._topics.prefix} fleet",
            "mf": "tern",
            "sw": release,
        }
        topics = {"state_topic": self._state, "availability_topic": self._availability}
        config = {
            "dev": device,
            "o": {"name": "tern", "sw": release},
            "cmps": components,
            **topics,
            "qos": 1,
        }
        for name in self._values:
            title = visible(WORDS.get(name, name.replace("_", " "))).capitalize()
            words, unit, icon = _SENSORS.get(name, (title, None, "mdi:chart-line"))
            # A name is no part of the template: an algorithm of one's own may call a figure
            # anything.
            template = f"{{{{ value_json[{json.dumps(name, ensure_ascii=False)}] }}}}"
            sensor = {"p": "sensor", "name": words, "unique_id": f"{self._id}_{name}"}
            sensor |= {"value_template": template, "state_class": "measurement", "icon": icon}
            components[name] = sensor | ({"unit_of_measurement": unit} if unit else {})
            if len(_packed(config)) > _LONGEST:
                del components[name]
        self._shown = tuple(components)
        self._notices.put(self._topics.discovery, _packed(config))


def _packed(values: Mapping[str, Any]) -> bytes:
    return json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode()


@contextmanager
def shown(home: HomeAssistant | None, run: Run, warn: Callable[[str], None]) -> Iterator[None]:
    """Publish a run while it goes on; without `home`, remove the retained messages of an earlier
    start.
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


def _forget(text: str, store: Store, warn: Callable[[str], None]) -> None:
    kept = store.state(_STATE)
    if not kept:
        return
    if topics := parse(text).home_topics():
        *_, availability = kept
        if not topics.notices((availability, b""), warn).close(dict.fromkeys(kept, b"")):
            later = "its messages cannot be removed now; the next start tries again"
            warn(f"Home Assistant still shows this fleet: {later}")
            return
    store.save_state({_STATE: None})
