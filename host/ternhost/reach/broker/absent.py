"""Finds the boards of a store that its broker does not hear, and says why and what to do."""

import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

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

_EVERY = 3.0  # seconds between two checks
_GRACE = 3.0  # seconds in which a board connects again, or a connected one says hello
_MOST_DEVICES = 200  # absent ones that it looks at
_MOST_LINES = 10


class AbsenceReport(NamedTuple):
    """What is wrong: facts, to compare with those of the last report, and lines for people."""

    facts: set[tuple[object, ...]]
    lines: list[str]


class _View(NamedTuple):
    """What is known at the time of a check."""

    link: MqttLink
    roster: BoardRoster
    log: BrokerLog | None  # None where it cannot be read
    now: float


class _KnownBoards:
    """The boards that were ever heard, by the first of their devices."""

    def __init__(self, clients: Iterable[range]) -> None:
        self._stops = {board.start: board.stop for board in clients}
        self._firsts = sorted(self._stops)

    def first_of(self, device: int) -> int:
        """The first device of the board of `device`.

        A device whose board was never heard may be on a board of its own.
        """
        at = bisect_right(self._firsts, device) - 1
        if at < 0:
            return device
        first = self._firsts[at]
        return first if device < self._stops[first] else device


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
        """directory: of the broker, where it is known. key: the present key of a device.

        past: seconds, as of BrokerLog.
        """
        self._store_path = store.path
        self._stored = {row.first: row for row in store.boards()}
        self._known = _KnownBoards(())
        self._directory = directory
        self._log = BrokerLog(directory, past) if directory else None
        self._key = key
        self._warn: Warn = warn or (lambda message: None)
        self._missed_since: dict[int, float] = {}  # by the first device of each absent board
        self._reported: set[tuple[object, ...]] = set()
        self._next_check = 0.0

    def check(self, link: MqttLink, roster: BoardRoster, now: float) -> None:
        """Warn of absent boards and refused clients, once for each reason.

        Only for a broker whose directory is known.
        """
        if now < self._next_check or not link.connected or not self._directory:
            return
        report = self.describe(link, roster, now)
        self._next_check = now + _EVERY
        if report.facts - self._reported:
            self._warn("\n  ".join(report.lines))
        elif self._reported and not report.facts:
            self._warn("the broker hears a board for each device")
        self._reported = report.facts

    def describe(self, link: MqttLink, roster: BoardRoster, now: float) -> AbsenceReport:
        """Describe everything that keeps the broker from hearing the devices of the store."""
        log = self._log if self._log and self._log.read() else None
        view = _View(link, roster, log, now)
        stored = [range(row.first, row.first + row.clients) for row in self._stored.values()]
        claimed = [board.clients for board in roster.boards.values()]
        self._known = _KnownBoards([*stored, *claimed])

        facts: set[tuple[object, ...]] = set()
        devices_by_reason: dict[str, list[int]] = {}
        for first, devices in self._missing(view).items():
            reason = self._reason(first, view)
            devices_by_reason.setdefault(reason, []).extend(devices)
            facts.add((first, reason))

        lines = [self._line(devices, why, view) for why, devices in devices_by_reason.items()]
        for problem in self._other_problems(view):
            facts.add((problem,))
            lines.append(problem)
        if devices_by_reason:
            count = sum(map(len, devices_by_reason.values()))
            total = len(roster.devices)
            head = f"{count} of {total} devices are on no board that the broker hears"
            lines.insert(0, head)
            if log is None:
                lines.append(self._text("other", "log"))
        if len(lines) > _MOST_LINES:
            lines = [*lines[:_MOST_LINES], "and more"]
        return AbsenceReport(facts, lines)

    # Who is absent

    def _missing(self, view: _View) -> dict[int, list[int]]:
        """The devices of absent boards, by the first device of each board.

        Boards that sleep are not missing, nor those that had no time yet to connect.
        """
        absent: dict[int, list[int]] = {}
        for device in islice(_absent_devices(view.roster), _MOST_DEVICES):
            absent.setdefault(self._known.first_of(device), []).append(device)

        is_first_check = not self._next_check
        missed_at = view.now - _GRACE if is_first_check else view.now
        self._missed_since = {first: self._missed_since.get(first, missed_at) for first in absent}
        missing = {}
        for first, devices in absent.items():
            had_time = view.now - self._missed_since[first] >= _GRACE
            if had_time and not self._may_sleep(first, view):
                missing[first] = devices
        return missing

    def _may_sleep(self, first: int, view: _View) -> bool:
        wake_interval = view.roster.wake_intervals.get(first)
        if not wake_interval:
            return False
        return self._silence(first, view) < sleepers.least_deadline((wake_interval,))

    def _silence(self, first: int, view: _View) -> float:
        """Seconds since a board was heard; infinite if it never was."""
        board = view.roster.boards.get(mqtt.name(first))
        if board:
            return view.now - board.last_heard
        if first in self._stored:
            return time.time() - self._stored[first].heard
        return float("inf")

    # Why, in words

    def _line(self, devices: list[int], reason: str, view: _View) -> str:
        silence = min(self._silence(self._known.first_of(device), view) for device in devices)
        if silence == float("inf"):
            heard = "never heard"
        else:
            heard = f"last heard {duration(silence)} ago"
        return f"{_listed(devices)}: {heard}; {reason}"

    def _reason(self, first: int, view: _View) -> str:
        name = mqtt.name(first)
        site = _disconnected_site(first, view.link)
        ending = view.log.ended.get(name) if view.log else None
        reason = "site" if site else self._reason_at_broker(name, view.log)
        if name in view.link.presence.strangers:
            reason = "version"
        elif self._lacks_password(name, self._key(first)):
            reason = "password"
        prefix = view.link.access.prefix
        return self._text("absent", reason, site=site, how=ending, prefix=prefix)

    def _reason_at_broker(self, name: str, log: BrokerLog | None) -> str:
        if log is None:
            return "silent"
        if name in log.connected:
            seconds = time.time() - log.connected[name]
            return "hello" if seconds > _GRACE else "joined"
        return "ended" if name in log.ended else "login"

    def _lacks_password(self, name: str, key: bytes | None) -> bool:
        """Whether the broker, if its files are known, lacks the password of a board's key."""
        if not self._directory or not key:
            return False
        return not has_password(self._directory, name, mqtt.password(key))

    def _other_problems(self, view: _View) -> Iterator[str]:
        """Lines about boards without a key, refused clients, and boards that share a name."""
        if not view.roster.devices:
            yield self._text("other", "store", store=self._store_path)
        for name, hello in islice(view.link.presence.boards.items(), _MOST_DEVICES):
            first = hello.clients.start
            if self._key(first) is None:
                yield self._text("other", "key", name=name, device=first)
        if view.log is None:
            return
        for address, reason in view.log.refused:
            yield self._text("refused", reason, at=address and f" at {address}")
        for name in view.log.shared:
            yield self._text("other", "shared", name=name)

    def _text(self, kind: str, reason: str, **fields: object) -> str:
        text = "\n    ".join(TEXTS[kind][reason])
        return text.format(dir=self._directory, **fields)


def _absent_devices(roster: BoardRoster) -> Iterator[int]:
    claimed = 0
    for board in roster.boards.values():
        if board.connected:
            claimed += len(roster.registered(board.clients))
    if claimed < len(roster.devices):
        for device in roster.devices:
            if not any(board.connected for board in roster.boards_of(device)):
                yield device


def _disconnected_site(first: int, link: MqttLink) -> str | None:
    """The site of a board, if its broker is not connected."""
    for site, connected in link.presence.sites.items():
        if not connected and link.presence.site_ids.may_speak(site, first):
            return site
    return None


def _listed(devices: list[int]) -> str:
    spans = []
    for first, last in ranges_of(sorted(devices)):
        spans.append(f"{first}-{last}" if last > first else f"{first}")
    text = ", ".join(spans[:_MOST_LINES])
    if len(spans) > _MOST_LINES:
        text += ", ..."
    noun = "devices" if len(devices) > 1 else "device"
    return f"{noun} {text}"
