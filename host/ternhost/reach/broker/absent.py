"""Tells which boards of a store its broker does not hear, why, and what to do; again when that changes."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tern.links import mqtt
from ternhost.learn.base import ranges_of
from ternhost.reach.broker.broker_log import BrokerLog
from ternhost.reach.broker.link import MqttLink
from ternhost.reach.broker.mosquitto_files import is_password, password_hashes
from ternhost.reach.broker.roster import BoardRoster
from ternhost.reach.driver import Warn
from ternhost.store import sleepers
from ternhost.store.store import Store
from ternhost.terminal import duration

_EVERY = 2.0  # seconds between two looks
_GRACE = 3.0  # seconds in which a board connects again, or a connected one says hello
_MOST = 1000  # absent devices whose reasons are looked for
_MOST_LINES = 10

_GUIDE = "see its LED, or its port with tern monitor; docs/guides/absent.md lists what to check"
_NO_LOG = (
    "the log of this broker is not on this machine: see Mosquitto's own (journalctl -u mosquitto), or run it with "
    "tern broker run"
)

Reason = tuple[str, str]  # why a board is absent, and a remedy


class AbsentBoards:
    """The absent boards of a broker, and what was told about them."""

    def __init__(
        self, store: Store, directory: Path | None, warn: Warn, key: Callable[[int], bytes | None]
    ) -> None:
        """directory: of the broker. key: the present key of a device."""
        self._store = store
        self._rows = {row.first: row for row in store.boards()}
        self._boards: dict[int, range] = {}  # the devices of every known board, by the first
        self._log = BrokerLog(directory) if directory else None
        self._began = time.time() - 60  # older refusals are of the past
        self._directory = directory
        self._warn = warn
        self._key = key
        self._since: dict[int, float] = {}  # when each absent board was missed first
        self._told: set[tuple[object, ...]] = set()
        self._due = 0.0
        self._looked = False

    def look(self, link: MqttLink, roster: BoardRoster, now: float) -> None:
        """Warn where boards are absent, or are refused, for a reason that was not told yet."""
        if now >= self._due and link.connected:
            self._due = now + _EVERY
            lines, facts = self.lines(link, roster, now)
            self._looked = True
            if facts - self._told:
                self._warn("\n  ".join(lines))
            elif self._told and not lines:
                self._warn(f"the broker hears the boards of all {len(roster.devices)} devices")
            self._told = facts | {fact for fact in self._told if fact[0] == "client"}

    def lines(
        self, link: MqttLink, roster: BoardRoster, now: float
    ) -> tuple[list[str], set[tuple[object, ...]]]:
        """What there is to tell, and the facts in it."""
        at_hand = self._log is not None and self._log.read()
        self._boards = {row.first: range(row.first, row.first + row.clients) for row in self._rows.values()}
        self._boards |= {board.clients.start: board.clients for board in roster.boards.values()}
        self._firsts = sorted(self._boards)
        absent = self._absent(roster)
        boards: dict[int, list[int]] = {}  # absent devices by the first device of their board
        for device in absent[:_MOST].tolist():
            boards.setdefault(self._first(device), []).append(device)
        missed = now if self._looked else now - _GRACE
        self._since = {first: self._since.get(first, missed) for first in boards}
        reasons: dict[Reason, list[int]] = {}
        facts: set[tuple[object, ...]] = set()
        for first, devices in boards.items():
            if now - self._since[first] >= _GRACE and not self._asleep(first, roster, now):
                reason = self._reason(first, link, roster, at_hand)
                reasons.setdefault(reason, []).extend(devices)
                facts.add((first, reason[0]))
        told = [
            f"{_devices(devices)}: {self._heard(devices, roster, now)}; {why}"
            + (f"\n    {remedy}" * bool(remedy))
            for (why, remedy), devices in reasons.items()
        ]
        others, more = self._others(link, roster, at_hand)
        told += others
        facts |= more
        if not roster.devices:
            path = self._store.path
            told.append(
                f"{path} has no device yet\n    make a board one: tern provision BOARD --store {path}"
            )
            facts.add(("no device",))
        if reasons:
            head = f"{len(absent)} of {len(roster.devices)} devices are on no board that the broker hears"
            told = [head, *told, *([] if at_hand else [_NO_LOG])]
        if (more_lines := len(told) - _MOST_LINES) > 1:
            told[_MOST_LINES:] = [f"and {more_lines} more"]
        return told, facts

    def _absent(self, roster: BoardRoster) -> np.ndarray:
        devices = np.asarray(roster.devices, np.int64)
        missing = np.ones(len(devices), bool)
        for board in roster.boards.values():
            if board.there:
                start, stop = np.searchsorted(devices, (board.clients.start, board.clients.stop))
                missing[start:stop] = False
        return devices[missing]

    def _first(self, device: int) -> int:
        at = bisect_right(self._firsts, device) - 1
        return self._firsts[at] if at >= 0 and device in self._boards[self._firsts[at]] else device

    def _heard_at(self, device: int, roster: BoardRoster, now: float) -> float | None:
        # Seconds since the board of a device was heard.
        first = self._first(device)
        if (board := roster.boards.get(mqtt.name(first))) and board.heard:
            return now - board.heard
        return time.time() - self._rows[first].heard if first in self._rows else None

    def _heard(self, devices: list[int], roster: BoardRoster, now: float) -> str:
        heard = [ago for device in devices if (ago := self._heard_at(device, roster, now)) is not None]
        return f"last heard {duration(min(heard))} ago" if heard else "never heard"

    def _asleep(self, first: int, roster: BoardRoster, now: float) -> bool:
        wake = roster.wakes.get(first)
        heard = self._heard_at(first, roster, now)
        return wake is not None and heard is not None and heard < sleepers.least_deadline((wake,))

    def _reason(self, first: int, link: MqttLink, roster: BoardRoster, at_hand: bool) -> Reason:
        name = mqtt.name(first)
        if name in link.strangers:
            return "its library is of another version than this host", "update it: tern deploy BOARD"
        if self._directory and (problem := self._unknown(name, first)):
            return problem, f"tern broker config {self._directory}"
        if site := next(
            (site for site, there in link.sites.items() if not there and link.is_of(site, first)), None
        ):
            return f"the broker of site {site} is not connected", "see the broker and the network there"
        log = self._log
        if log and at_hand:
            if time.time() - log.connected.get(name, time.time()) > _GRACE:
                return (
                    "connected, but its hello does not arrive: its topics do not begin with "
                    f"{link.access.prefix!r}, or the access list refuses them",
                    f"tern broker config {self._directory}; tern provision BOARD --prefix {link.access.prefix}",
                )
            if name in log.ended and name not in log.connected:
                return f"its connection ended: {log.ended[name][1]}", _GUIDE
            return "no login at this broker", _GUIDE
        return "no hello at this broker", _GUIDE

    def _unknown(self, name: str, first: int) -> str | None:
        assert self._directory
        hashes, key = password_hashes(self._directory), self._key(first)
        if not hashes or key is None:
            return None
        if name not in hashes:
            return "the broker does not have its password yet"
        if not is_password(hashes[name], mqtt.password(key)):
            return "the broker has the password of an earlier key"
        return None

    def _others(
        self, link: MqttLink, roster: BoardRoster, at_hand: bool
    ) -> tuple[list[str], set[tuple[object, ...]]]:
        # Refused clients, boards that share a name, and connected boards without a key here.
        told, facts = [], set[tuple[object, ...]]()
        for name, said in list(link.boards.items())[:_MOST]:
            if self._key(said.clients.start) is None:
                told.append(
                    f"board {name} is connected, but this store has no key for device {said.clients.start}: it is of "
                    "another store, or was revoked\n    see tern device list; tern provision makes it a member"
                )
                facts.add(("client", name))
        if self._log and at_hand:
            log = self._log
            for refusal, at in log.refused.items():
                if at > self._began:
                    told.append("\n    ".join(log.words(refusal)))
                    facts.add(("client", *refusal))
            for name, at in log.shared.items():
                if at > self._began:
                    told.append(
                        f"several boards log in as {name}, and push each other out: they have one key"
                        "\n    give each board an id of its own: tern provision BOARD --device ID"
                    )
                    facts.add(("client", name, "shared"))
        return told, facts


def _devices(devices: list[int]) -> str:
    spans = [f"{first}-{last}" if last > first else f"{first}" for first, last in ranges_of(sorted(devices))]
    text = ", ".join(spans[:_MOST_LINES]) + ("..." if len(spans) > _MOST_LINES else "")
    return f"device{'s' * (len(devices) > 1)} {text}"
