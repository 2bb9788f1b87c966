"""Tells which boards of a store its broker does not hear, why, and what to do; again when that
changes.
"""

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from tern.links import mqtt
from ternhost.learn.devices import ranges_of
from ternhost.reach.broker.broker_log import TEXTS, BrokerLog
from ternhost.reach.broker.link import MqttLink
from ternhost.reach.broker.mosquitto_files import has_password
from ternhost.reach.broker.roster import BoardRoster
from ternhost.reach.driver import Warn
from ternhost.store import sleepers
from ternhost.store.store import Store
from ternhost.terminal import duration

_EVERY = 3.0  # seconds between two looks
_GRACE = 3.0  # seconds in which a board connects again, or a connected one says hello
_MOST, _MOST_LINES = 200, 10  # absent devices that it looks at; lines

Facts = set[tuple[object, ...]]


class AbsentBoards:
    """Finds the absent boards of a store on a broker, and remembers which it has reported."""

    def __init__(
        self,
        store: Store,
        directory: Path | None,
        key: Callable[[int], bytes | None],
        warn: Warn | None = None,
        past: float = 60.0,
    ) -> None:
        """directory: of the broker, where it is known. key: the present key of a device. past: as
        of BrokerLog.
        """
        self._store = store
        self._stored = {row.first: row for row in store.boards()}
        self._directory = directory
        self._log = BrokerLog(directory, past) if directory else None
        self._key = key
        self._warn: Warn = warn or (lambda message: None)
        self._since: dict[int, float] = {}  # when each absent board was missed first
        self._told: Facts = set()
        self._due = 0.0

    def look(self, link: MqttLink, roster: BoardRoster, now: float) -> None:
        """Warn of absent boards and refused clients of a broker in a known directory, once for each
        reason.
        """
        if now < self._due or not link.connected or not self._directory:
            return
        facts, lines = self.describe(link, roster, now)
        self._due = now + _EVERY
        if facts - self._told:
            self._warn("\n  ".join(lines))
        elif self._told and not facts:
            self._warn("the broker hears a board for each device")
        self._told = facts

    def describe(self, link: MqttLink, roster: BoardRoster, now: float) -> tuple[Facts, list[str]]:
        """What there is to tell: the facts, and lines about them."""
        log = self._log if self._log and self._log.read() else None
        self._ends = {row.first: row.first + row.clients for row in self._stored.values()}
        self._ends |= {board.clients.start: board.clients.stop for board in roster.boards.values()}
        self._firsts = sorted(self._ends)
        facts: Facts = set()
        reasons: dict[str, list[int]] = {}
        missed = now if self._due else now - _GRACE
        absent: dict[int, list[int]] = {}  # by the first device of their board
        for device in islice(self._absent(roster), _MOST):
            absent.setdefault(self._first(device), []).append(device)
        self._since = {first: self._since.get(first, missed) for first in absent}
        for first, devices in absent.items():
            wake = roster.wakes.get(first)
            asleep = wake and self._silence(first, roster, now) < sleepers.least_deadline((wake,))
            if now - self._since[first] >= _GRACE and not asleep:
                reason = self._reason(first, link, log)
                reasons.setdefault(reason, []).extend(devices)
                facts.add((first, reason))
        lines = []
        for reason, devices in reasons.items():
            silence = min(self._silence(self._first(device), roster, now) for device in devices)
            heard = (
                "never heard" if silence == float("inf") else f"last heard {duration(silence)} ago"
            )
            lines.append(f"{_listed(devices)}: {heard}; {reason}")
        others = list(self._others(link, roster, log))
        facts |= {(line,) for line in others}
        lines += others
        if reasons:
            count = sum(map(len, reasons.values()))
            lines.insert(
                0, f"{count} of {len(roster.devices)} devices are on no board that the broker hears"
            )
            lines += [] if log else [self._text("other", "log")]
        return facts, lines[:_MOST_LINES] + ["and more"] * (len(lines) > _MOST_LINES)

    def _absent(self, roster: BoardRoster) -> Iterator[int]:
        there = sum(
            len(roster.known(board.clients)) for board in roster.boards.values() if board.there
        )
        if there < len(roster.devices):
            for device in roster.devices:
                if not any(board.there for board in roster.of(device)):
                    yield device

    def _first(self, device: int) -> int:
        # Of its board; a device whose board was never heard may be on a board of its own.
        at = bisect_right(self._firsts, device) - 1
        return self._firsts[at] if at >= 0 and device < self._ends[self._firsts[at]] else device

    def _silence(self, first: int, roster: BoardRoster, now: float) -> float:
        # Seconds since a board was heard.
        if board := roster.boards.get(mqtt.name(first)):
            return now - board.heard
        return time.time() - self._stored[first].heard if first in self._stored else float("inf")

    def _reason(self, first: int, link: MqttLink, log: BrokerLog | None) -> str:
        name, key = mqtt.name(first), self._key(first)
        away = (site for site, there in link.sites.items() if not there)
        site = next((site for site in away if link.site_ids.may_speak(site, first)), None)
        if name in link.strangers:
            reason = "version"
        elif (
            self._directory and key and not has_password(self._directory, name, mqtt.password(key))
        ):
            reason = "password"
        elif site:
            reason = "site"
        elif log and name in log.connected:
            reason = "hello" if time.time() - log.connected[name] > _GRACE else "joined"
        elif log:
            reason = "ended" if name in log.ended else "login"
        else:
            reason = "silent"
        how = log and log.ended.get(name)
        return self._text("absent", reason, site=site, how=how, prefix=link.access.prefix)

    def _text(self, kind: str, reason: str, **fields: object) -> str:
        return "\n    ".join(TEXTS[kind][reason]).format(dir=self._directory, **fields)

    def _others(self, link: MqttLink, roster: BoardRoster, log: BrokerLog | None) -> Iterator[str]:
        # Boards without a key, refused clients, and boards that share a name.
        if not roster.devices:
            yield self._text("other", "store", store=self._store.path)
        for name, said in islice(link.boards.items(), _MOST):
            if self._key(said.clients.start) is None:
                yield self._text("other", "key", name=name, device=said.clients.start)
        for address, reason in log.refused if log else ():
            yield self._text("refused", reason, at=address and f" at {address}")
        for name in log.shared if log else ():
            yield self._text("other", "shared", name=name)


def _listed(devices: list[int]) -> str:
    spans = [
        f"{first}-{last}" if last > first else f"{first}"
        for first, last in ranges_of(sorted(devices))
    ]
    text = ", ".join(spans[:_MOST_LINES]) + ", ..." * (len(spans) > _MOST_LINES)
    return f"device{'s' * (len(devices) > 1)} {text}"
