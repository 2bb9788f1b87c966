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


class _Evidence(NamedTuple):
    """What is known of the boards at the time of a check."""

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
        """Return the first device of the board that a device is on.

        A device whose board was never heard may be on a board of its own.
        """
        index = bisect_right(self._firsts, device) - 1  # of the last board that begins before it
        if index < 0:
            return device
        first = self._firsts[index]
        is_on_board = device < self._stops[first]
        return first if is_on_board else device


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
        """store: with the devices. directory: of the broker; None: not known.

        key: returns the present key of a device. past: how many seconds back the broker's log
        still counts.
        """
        self._store_path = store.path
        self._stored = {row.first: row for row in store.boards()}
        self._known = _KnownBoards(())
        self._directory = directory
        self._log: BrokerLog | None = None
        if directory:
            self._log = BrokerLog(directory, past)
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
        """Describe everything that keeps the broker from hearing the devices of the store.

        now: by the monotonic clock.
        """
        log: BrokerLog | None = None
        if self._log and self._log.read():
            log = self._log
        evidence = _Evidence(link, roster, log, now)
        stored = [range(row.first, row.first + row.clients) for row in self._stored.values()]
        claimed = [board.clients for board in roster.boards.values()]
        self._known = _KnownBoards([*stored, *claimed])

        facts: set[tuple[object, ...]] = set()
        devices_by_reason: dict[str, list[int]] = {}
        for first, devices in self._missing(evidence).items():
            reason = self._reason(first, evidence)
            devices_by_reason.setdefault(reason, []).extend(devices)
            facts.add((first, reason))

        lines = []
        for reason, devices in devices_by_reason.items():
            lines.append(self._line(devices, reason, evidence))
        for problem in self._other_problems(evidence):
            facts.add((problem,))
            lines.append(problem)
        if devices_by_reason:
            missing_count = sum(len(devices) for devices in devices_by_reason.values())
            total = len(roster.devices)
            head = f"{missing_count} of {total} devices are on no board that the broker hears"
            lines.insert(0, head)
            if log is None:
                lines.append(self._text("other", "log"))
        if len(lines) > _MOST_LINES:
            lines = [*lines[:_MOST_LINES], "and more"]
        return AbsenceReport(facts, lines)

    # Who is absent

    def _missing(self, evidence: _Evidence) -> dict[int, list[int]]:
        """Return the devices of absent boards, by the first device of each board.

        Boards that sleep are not missing, nor those that had no time yet to connect.
        """
        absent: dict[int, list[int]] = {}
        for device in islice(_absent_devices(evidence.roster), _MOST_DEVICES):
            absent.setdefault(self._known.first_of(device), []).append(device)

        is_first_check = not self._next_check
        missed_at = evidence.now
        if is_first_check:  # they have had their time while the host connected
            missed_at -= _GRACE
        missed_since = {}
        for first in absent:
            missed_since[first] = self._missed_since.get(first, missed_at)
        self._missed_since = missed_since

        missing = {}
        for first, devices in absent.items():
            had_time = evidence.now - self._missed_since[first] >= _GRACE
            if had_time and not self._may_sleep(first, evidence):
                missing[first] = devices
        return missing

    def _may_sleep(self, first: int, evidence: _Evidence) -> bool:
        """Return whether a board sleeps, and was heard so lately that it need not be awake."""
        wake_interval = evidence.roster.wake_intervals.get(first)
        if not wake_interval:
            return False
        return self._silence(first, evidence) < sleepers.least_deadline((wake_interval,))

    def _silence(self, first: int, evidence: _Evidence) -> float:
        """Return the seconds since a board was heard; infinite if it never was."""
        board = evidence.roster.boards.get(mqtt.name(first))
        if board:
            return evidence.now - board.last_heard
        if first in self._stored:
            return time.time() - self._stored[first].heard
        return float("inf")

    # Why, in words

    def _line(self, devices: list[int], reason: str, evidence: _Evidence) -> str:
        """Write a line about the devices that are absent for one reason."""
        silences = []
        for device in devices:
            silences.append(self._silence(self._known.first_of(device), evidence))
        silence = min(silences)
        if silence == float("inf"):
            heard = "never heard"
        else:
            heard = f"last heard {duration(silence)} ago"
        return f"{_list_devices(devices)}: {heard}; {reason}"

    def _reason(self, first: int, evidence: _Evidence) -> str:
        """Say why a board is absent, and what to do. first: its first device."""
        name = mqtt.name(first)
        site = _disconnected_site(first, evidence.link)
        if name in evidence.link.presence.strangers:
            reason = "version"
        elif self._lacks_password(name, self._key(first)):
            reason = "password"
        elif site:
            reason = "site"
        else:
            reason = self._reason_in_log(name, evidence.log)
        ending = None
        if evidence.log:
            ending = evidence.log.ended.get(name)
        prefix = evidence.link.access.prefix
        return self._text("absent", reason, site=site, how=ending, prefix=prefix)

    def _reason_in_log(self, name: str, log: BrokerLog | None) -> str:
        """Return the key of the reason that the broker's log gives for a board."""
        if log is None:
            return "silent"
        if name in log.connected:
            seconds_connected = time.time() - log.connected[name]
            return "hello" if seconds_connected > _GRACE else "joined"
        return "ended" if name in log.ended else "login"

    def _lacks_password(self, name: str, key: bytes | None) -> bool:
        """Return whether the broker lacks the password that belongs to a board's key.

        False if the broker's files are not known.
        """
        if not self._directory or not key:
            return False
        return not has_password(self._directory, name, mqtt.password(key))

    def _other_problems(self, evidence: _Evidence) -> Iterator[str]:
        """Yield lines about boards without a key, refused clients, and names that are shared."""
        if not evidence.roster.devices:
            yield self._text("other", "store", store=self._store_path)
        for name, hello in islice(evidence.link.presence.boards.items(), _MOST_DEVICES):
            first = hello.clients.start
            if self._key(first) is None:
                yield self._text("other", "key", name=name, device=first)
        if evidence.log is None:
            return
        for address, reason in evidence.log.refused:
            yield self._text("refused", reason, at=address and f" at {address}")
        for name in evidence.log.shared:
            yield self._text("other", "shared", name=name)

    def _text(self, kind: str, reason: str, **fields: object) -> str:
        """Fill in a text of absent.json: what has happened, and what to do."""
        text = "\n    ".join(TEXTS[kind][reason])
        return text.format(dir=self._directory, **fields)


def _absent_devices(roster: BoardRoster) -> Iterator[int]:
    """Yield the devices that no connected board claims."""
    claimed = 0
    for board in roster.boards.values():
        if board.connected:
            claimed += len(roster.registered(board.clients))
    if claimed < len(roster.devices):  # otherwise there is no need to look at each
        for device in roster.devices:
            if not any(board.connected for board in roster.boards_of(device)):
                yield device


def _disconnected_site(first: int, link: MqttLink) -> str | None:
    """Return the site that a board is at, if the site's broker is not connected."""
    for site, connected in link.presence.sites.items():
        if not connected and link.presence.site_ids.may_speak(site, first):
            return site
    return None


def _list_devices(devices: list[int]) -> str:
    """List devices for people, such as "devices 1-3, 7"."""
    spans = []
    for first, last in ranges_of(sorted(devices)):
        spans.append(f"{first}-{last}" if last > first else f"{first}")
    text = ", ".join(spans[:_MOST_LINES])
    if len(spans) > _MOST_LINES:
        text += ", ..."
    noun = "devices" if len(devices) > 1 else "device"
    return f"{noun} {text}"
