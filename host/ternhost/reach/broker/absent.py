"""Finds boards that should be connected to a broker and are not, and says why and what to do."""

import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from tern.links import mqtt
from ternhost.guides import guide
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
_GRACE = 3.0  # seconds that a board may take to connect again, and then to send its HELLO
_MOST_DEVICES = 200  # the most absent devices that are looked at, so that a check takes no time
_MOST_LINES = 10  # the most lines of a warning


class AbsenceReport(NamedTuple):
    """What is wrong with the boards of a fleet at the time of a check."""

    # Each is (first device of a board, reason) or (another problem,). They are compared with those
    # of the last check, to see whether there is anything new to warn of.
    facts: set[tuple[object, ...]]
    lines: list[str]  # the same for people


class _Evidence(NamedTuple):
    """From what a check finds out which boards are absent, and why."""

    link: MqttLink  # the connection to the broker
    roster: BoardRoster  # the boards that have connected, and the devices in the store
    log: BrokerLog | None  # the broker's log; None where it cannot be read
    now: float  # by the monotonic clock


class _KnownBoards:
    """Finds the board of a device, among the boards that were heard at any time."""

    def __init__(self, clients: Iterable[range]) -> None:
        """clients: for each board the ids of the devices on it."""
        # For each board the id behind that of its last device, by that of its first one.
        self._stops = {board.start: board.stop for board in clients}
        self._firsts = sorted(self._stops)

    def first_of(self, device: int) -> int:
        """Return the first device of the board that a device is on; it stands for the board.

        A board has consecutive ids. A device whose board was never heard counts as the only one of
        its board.
        """
        # `_firsts` has the first id of each board, ascending; `_stops` the id behind its last one.
        # Find the last board whose devices begin at this one or before it.
        index = bisect_right(self._firsts, device) - 1
        if index < 0:
            return device
        first = self._firsts[index]
        is_on_board = device < self._stops[first]
        if is_on_board:
            return first
        return device


class AbsentBoards:
    """Finds absent boards, and remembers of which it has warned already."""

    def __init__(
        self,
        store: Store,
        directory: Path | None,
        key: Callable[[int], bytes | None],
        warn: Warn | None = None,
        past: float = 60.0,
    ) -> None:
        """Prepare to look for the boards with the devices of a store.

        store: the database with the devices and when their boards were heard.
        directory: the directory of the broker's files; None if it is not on this machine.
        key: a function that returns the present key of a device, or None if it has none.
        warn: is called with each warning of `check`.
        past: events in the broker's log count if they are at most so many seconds old.
        """
        self._key = key
        self._warn: Warn = warn or (lambda message: None)

        # What an earlier host has stored about boards, by the first device of each.
        self._stored = {row.first: row for row in store.boards()}
        self._store_path = store.path
        self._known = _KnownBoards(())  # those in the store and those that are connected

        # The broker's files.
        self._directory = directory
        self._log: BrokerLog | None = None
        if directory:
            self._log = BrokerLog(directory, past)

        # The state of the checks.
        self._missed_since: dict[int, float] = {}  # by the first device of each absent board
        self._reported: set[tuple[object, ...]] = set()  # the facts at the last check
        self._next_check = 0.0

    def check(self, link: MqttLink, roster: BoardRoster, now: float) -> None:
        """Warn of absent boards and refused clients, once for each board and reason.

        A check is made every few seconds at most, and only if the broker's directory is known.
        link: the connection to the broker. roster: its boards. now: the time by the monotonic
        clock.
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
        """Describe which devices of the store are not connected to the broker, and why.

        link: the connection to the broker. roster: its boards. now: the time by the monotonic
        clock.
        """
        log: BrokerLog | None = None
        if self._log and self._log.read():
            log = self._log
        evidence = _Evidence(link, roster, log, now)
        self._known = self._known_boards(roster)

        # Devices that are absent for the same reason share a line.
        facts: set[tuple[object, ...]] = set()
        devices_by_reason: dict[str, list[int]] = {}
        for first, devices in self._missing(evidence).items():
            reason = self._reason(first, evidence)
            devices_by_reason.setdefault(reason, []).extend(devices)
            facts.add((first, reason))
        lines = []
        missing_count = 0
        for reason, devices in devices_by_reason.items():
            lines.append(self._line(devices, reason, evidence))
            missing_count += len(devices)

        for problem in self._other_problems(evidence):
            facts.add((problem,))
            lines.append(problem)

        if missing_count:
            total = len(roster.devices)
            head = f"{missing_count} of {total} devices are on no board that the broker hears"
            lines.insert(0, head)
            if log is None:
                lines.append(self._text("other", "log"))  # where more could be found out
        if len(lines) > _MOST_LINES:
            lines = [*lines[:_MOST_LINES], "and more"]
        return AbsenceReport(facts, lines)

    def _known_boards(self, roster: BoardRoster) -> _KnownBoards:
        """Return the boards in the store together with those that have connected to this host."""
        boards = []
        for row in self._stored.values():
            boards.append(range(row.first, row.first + row.clients))
        for board in roster.boards.values():
            boards.append(board.clients)
        return _KnownBoards(boards)

    # Who is absent

    def _missing(self, evidence: _Evidence) -> dict[int, list[int]]:
        """Return the devices of boards that should be connected and are not.

        They are listed by the first device of each board. Boards that sleep are left out, and so
        are those that have had no time yet to connect.
        """
        absent: dict[int, list[int]] = {}
        for device in islice(_absent_devices(evidence.roster), _MOST_DEVICES):
            first = self._known.first_of(device)
            absent.setdefault(first, []).append(device)

        # Remember since when each board has been absent; boards that are back are forgotten.
        is_first_check = not self._next_check
        missed_at = evidence.now
        if is_first_check:  # they have had time to connect while this host connected
            missed_at -= _GRACE
        missed_since = {}
        for first in absent:
            missed_since[first] = self._missed_since.get(first, missed_at)
        self._missed_since = missed_since

        missing = {}  # those of the absent boards that should be connected
        for first, devices in absent.items():
            had_time = evidence.now - self._missed_since[first] >= _GRACE
            if had_time and not self._may_sleep(first, evidence):
                missing[first] = devices
        return missing

    def _may_sleep(self, first: int, evidence: _Evidence) -> bool:
        """Return whether a board sleeps between rounds, and may still be in its present sleep.

        first: the first device of the board, which stands for it here and in the other methods.
        """
        wake_interval = evidence.roster.wake_intervals.get(first)
        if not wake_interval:
            return False
        # After so many seconds, even a board that sleeps has woken.
        longest_silence = sleepers.least_deadline((wake_interval,))
        return self._silence(first, evidence) < longest_silence

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
        """Return a line about the devices that are absent for the same reason.

        It says when the one was heard that was heard last.
        """
        silences = []  # how many seconds ago the board of each device was heard
        for device in devices:
            first = self._known.first_of(device)
            silences.append(self._silence(first, evidence))
        silence = min(silences)
        if silence == float("inf"):  # no board with any of them was ever heard
            heard = "never heard"
        else:
            heard = f"last heard {duration(silence)} ago"
        return f"{_list_devices(devices)}: {heard}; {reason}"

    def _reason(self, first: int, evidence: _Evidence) -> str:
        """Return why a board is absent, and what to do, in words for people.

        The most certain reasons are tried first; each is the name of a text in absent.json.

        first: the first device of the board. evidence: who is connected, and the broker's log.
        """
        name = mqtt.name(first)
        site = _disconnected_site(first, evidence.link)
        if name in evidence.link.presence.strangers:
            reason = "version"  # it speaks another version of the protocol
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
        """Return why a board is absent, as far as the broker's log says.

        The result is a key of the texts about absent boards in absent.json. name: the name under
        which the board logs in to the broker.
        """
        if log is None:
            return "silent"
        if name in log.connected:
            seconds_connected = time.time() - log.connected[name]
            if seconds_connected > _GRACE:
                return "hello"  # it is connected, and yet has sent no HELLO
            return "joined"  # it has only just connected
        if name in log.ended:
            return "ended"
        return "login"  # it has not logged in at all

    def _lacks_password(self, name: str, key: bytes | None) -> bool:
        """Return whether the broker's password file lacks the password of a board.

        name: the name under which the board logs in. key: the key of its first device, from which
        the password is derived. The result is False if the broker's files are not known.
        """
        if not self._directory or not key:
            return False
        return not has_password(self._directory, name, mqtt.password(key))

    def _other_problems(self, evidence: _Evidence) -> Iterator[str]:
        """Yield a line for each problem that is not about an absent board of the store.

        These are a store without devices, connected boards whose key it lacks, clients that the
        broker refuses, and names that two boards share.
        """
        if not evidence.roster.devices:
            yield self._text("other", "store", store=self._store_path)
        connected_boards = evidence.link.presence.boards.items()
        for name, hello in islice(connected_boards, _MOST_DEVICES):
            first = hello.clients.start
            if self._key(first) is None:
                yield self._text("other", "key", name=name, device=first)
        if evidence.log is None:
            return
        for address, reason in evidence.log.refused:
            place = ""
            if address:
                place = f" at {address}"
            yield self._text("refused", reason, at=place)
        for name in evidence.log.shared:
            yield self._text("other", "shared", name=name)

    def _text(self, kind: str, reason: str, **fields: object) -> str:
        """Return a text of absent.json, which says what has happened and what to do.

        kind, reason: the keys of the text in the file. fields: fill its placeholders, in addition
        to the directory of the broker, and the guide about absent boards.
        """
        text = "\n    ".join(TEXTS[kind][reason])
        return text.format(dir=self._directory, guide=guide("absent.md"), **fields)


def _absent_devices(roster: BoardRoster) -> Iterator[int]:
    """Yield the devices of the store that no connected board says it has."""
    claimed = 0  # how many devices connected boards say they have
    for board in roster.boards.values():
        if board.connected:
            claimed += len(roster.registered(board.clients))
    if claimed >= len(roster.devices):
        return  # all are there, so there is no need to look at each
    for device in roster.devices:
        boards = roster.boards_of(device)
        if not any(board.connected for board in boards):
            yield device


def _disconnected_site(first: int, link: MqttLink) -> str | None:
    """Return the site that a board belongs to if the site's broker is disconnected, or else None.

    first: the first device of the board. link: the connection to the central broker.
    """
    for site, connected in link.presence.sites.items():
        if not connected and link.presence.site_ids.may_speak(site, first):
            return site
    return None


def _list_devices(devices: list[int]) -> str:
    """Return ids of devices as text, such as "devices 1-3, 7"; a long list is cut."""
    spans = []
    for first, last in ranges_of(sorted(devices)):
        span = str(first)
        if last > first:
            span += f"-{last}"
        spans.append(span)
    text = ", ".join(spans[:_MOST_LINES])
    if len(spans) > _MOST_LINES:
        text += ", ..."

    noun = "device"
    if len(devices) > 1:
        noun = "devices"
    return f"{noun} {text}"
