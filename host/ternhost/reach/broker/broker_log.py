"""Reads from Mosquitto's log which clients are connected, refused or lost.

The lines are those of Mosquitto 2.0 and 2.1. Later releases of 2.0 add an address or the id of a
refused client, and 2.1 has other words for some events.
"""

import json
import os
import re
import stat
import time
from collections import Counter
from pathlib import Path
from typing import Any

from ternhost.reach.broker import processes
from ternhost.reach.broker.access import CONFIG
from ternhost.reach.broker.mosquitto_files import LOG, PID, PROGRAM

# Why a board may be absent, and what to do. The texts about refused and ended connections are found
# by a part of the log's line, other texts by a word for the reason.
TEXTS: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("absent.json").read_text())

_FIRST_BYTES = 1 << 16  # how many bytes at the end of the log are read the first time
_MOST_BYTES = 1 << 20  # the most bytes that one call of `read` reads
_MOST_CLIENTS = 10_000  # the most clients that are remembered, however many the log names
# That many takeovers of a name, within that many seconds, mean that two boards have one name: a
# board that comes back takes over once.
_TAKEOVERS = 3
_TAKEOVER_SECONDS = 60.0

_LOGS_CLIENTS = re.compile(r"^log_type (notice|all)\b", re.MULTILINE)  # in mosquitto.conf
_LINE = re.compile(r"(?P<time>\d+): (?P<event>.*)")
# Events of clients. `how` is the reason of a refusal or an ending, and `name` that of the client.
_NEW_CONNECTION = re.compile(r"New connection from (?P<address>.+):(\d+) on port")
_CONNECTED = re.compile(r"New client connected from (?P<address>.+):(\d+) as (?P<name>\S+) ")
_TAKEN_OVER = re.compile(
    r"Client (?P<name>\S+)(?: already connected| \[.*\] disconnected: session taken over)"
)
_FAILED = re.compile(r"Client connection from (?P<address>\S+) (?:denied|failed): (?P<how>.*)")
_ENDED = re.compile(
    r"Client (?P<name>\S+)(?: [(\[](?P<address>[^)\]]*)[)\]])? "
    r"(?P<how>(?:(?:been )?disconnected|closed its connection|has exceeded timeout).*)"
)
_TLS_ERROR = re.compile(r"OpenSSL Error[^\[]*\[\d+\]: (?P<error>.*)")
_BOARD = re.compile(r"[0-9a-f]{8}")  # a name of a client


class BrokerLog:
    """Follows the log of a Mosquitto that runs on this machine. Times are seconds since 1970."""

    def __init__(self, directory: Path, past: float = 60.0) -> None:
        """Prepare to read the log of the broker in `directory`.

        past: refusals and lost connections count if they are at most so many seconds old. Who is
        connected counts however long ago that began.
        """
        self.directory = directory

        # What the log says so far.
        self.connected: dict[str, float] = {}  # when each client connected, by name
        self.ended: dict[str, str] = {}  # how the last connection of a client ended, by name
        self.refused: set[tuple[str, str]] = set()  # (address or "" if unknown, reason)
        self.shared: set[str] = set()  # names under which several boards connect by turns

        # What helps to understand the next lines.
        self._begin = int(time.time() - past)  # older events do not count; the log has no fractions
        self._unnamed: Counter[str] = Counter()  # by address, connections that have not logged in
        self._takeovers: dict[str, list[float]] = {}  # the times of takeovers, by name
        self._tls_error = ""  # the error in the line before; the next line says whose it is
        self._process_start = 0.0
        self._position = (0, 0)  # the inode of the log, and how many of its bytes were read

    # Reading

    def read(self) -> bool:
        """Read the new lines of the log, and note what they say about clients.

        Return False if there is no log on this machine, or if it does not say who connects.
        """
        try:
            process_start = (self.directory / PID).stat().st_mtime
            if not _LOGS_CLIENTS.search((self.directory / CONFIG).read_text()):
                return False
            lines = self._new_lines()
        except OSError:
            return False
        if lines is None:
            return False
        if process_start != self._process_start:  # nobody is connected to a new process
            self._process_start = process_start
            self.connected.clear()
            self._unnamed.clear()
        for line in lines:
            match = _LINE.fullmatch(line)
            if match:
                self._take_event(float(match["time"]), match["event"])
        return True

    def _new_lines(self) -> list[str] | None:
        """Return the complete lines that were added to the log since the last call.

        Of a log that is read for the first time, only the last part is read. Return None if the log
        is not a regular file, but a pipe, say. Raises OSError.
        """
        with open(self._path(), "rb") as log:
            status = os.fstat(log.fileno())
            if not stat.S_ISREG(status.st_mode):
                return None
            inode, start = self._position
            is_another_file = inode != status.st_ino
            was_truncated = start > status.st_size
            if is_another_file or was_truncated:
                start = max(0, status.st_size - _FIRST_BYTES)
            log.seek(start)
            added = log.read(_MOST_BYTES)
        # What follows the last line feed is the beginning of a line that is not complete yet.
        length = added.rfind(b"\n") + 1
        self._position = (status.st_ino, start + length)
        return added[:length].decode(errors="replace").splitlines()

    def _path(self) -> Path:
        """Return the path of the running broker's log.

        It is the standard error of the running process, wherever that goes. If no process is found,
        it is the file into which `tern broker run` has the broker write.
        """
        pid = processes.running(self.directory, PID, PROGRAM)
        if pid is None:
            return self.directory / LOG
        return Path(f"/proc/{pid}/fd/2")

    # Lines

    def _take_event(self, at: float, event: str) -> None:
        """Note what a line of the log says, if it is about a client.

        at: the time of the line, in seconds since 1970. event: its text after the time.
        """
        # The line after a TLS error says whose connection has failed with it.
        tls_error = self._tls_error
        self._tls_error = ""
        is_recent = at >= self._begin

        if match := _TLS_ERROR.match(event):
            self._tls_error = match["error"]
        elif match := _NEW_CONNECTION.match(event):
            self._unnamed[match["address"]] += 1  # its client has not logged in yet
        elif match := _CONNECTED.match(event):
            self._note_client(match["name"], match["address"], at)
        elif is_recent and (match := _TAKEN_OVER.match(event)):
            self._note_takeover(match["name"], at)
        elif is_recent and (match := _FAILED.match(event)):
            self._note_refusal(match["address"], match["how"])
        elif match := _ENDED.match(event):
            self._note_end(match, tls_error, is_recent)

    def _note_end(self, match: re.Match[str], tls_error: str, is_recent: bool) -> None:
        """Note that a connection has ended.

        match: the match of _ENDED with the line. tls_error: the TLS error in the line before, or
        "".
        is_recent: whether the connection has ended lately, so that the reason matters.
        """
        name = match["name"]
        how = match["how"]
        was_connected = self.connected.pop(name, None) is not None
        if was_connected:
            if is_recent:
                self.ended[name] = _ending(how)
            return
        address = match["address"] or ""  # some releases do not log it
        self._note_unnamed_end(name, address, tls_error or how, is_recent)

    def _note_client(self, name: str, address: str, at: float) -> None:
        """Note that a client has logged in: a connection has become that of a named client.

        at: when that was, in seconds since 1970.
        """
        self._unnamed[address] -= 1
        is_of_this_process = at >= int(self._process_start)  # the log has whole seconds
        if is_of_this_process and len(self.connected) < _MOST_CLIENTS:
            self.connected[name] = at
        if _BOARD.fullmatch(name):
            # The broker accepts a board at this address, so earlier refusals no longer matter.
            for refusal in list(self.refused):
                refused_address, _reason = refusal
                if refused_address == address:
                    self.refused.remove(refusal)

    def _note_takeover(self, name: str, at: float) -> None:
        """Note that a client has connected under a name that another connection still had.

        If that happens often, two boards have the same name. at: seconds since 1970.
        """
        times = []
        for earlier in self._takeovers.get(name, []):
            if at - earlier < _TAKEOVER_SECONDS:
                times.append(earlier)
        times.append(at)
        self._takeovers[name] = times[-_TAKEOVERS:]
        if len(times) >= _TAKEOVERS:
            self.shared.add(name)

    def _note_unnamed_end(self, name: str, address: str, how: str, is_recent: bool) -> None:
        """Note the end of a connection that had not logged in: the broker has refused it.

        name: the name that the client has given, if any. address: its host and port, or "" if the
        log does not say them. how: the reason. is_recent: whether the refusal still matters.
        """
        host, _colon, _port = address.rpartition(":")
        if not host:
            # If only one address has connections that have not logged in, it is that one.
            candidates = [other for other, count in self._unnamed.items() if count > 0]
            if len(candidates) == 1:
                host = candidates[0]
        self._unnamed[host] -= 1

        # Mosquitto makes up such a name for a client without one, which is not a board.
        is_unnamed_client = name.startswith("auto-")
        if is_recent and not is_unnamed_client:
            self._note_refusal(host, how)

    def _note_refusal(self, address: str, how: str) -> None:
        """Note that the broker has refused a client, if there is a text for the reason.

        address: the host of the client, or "" if unknown. how: the reason in the log.
        """
        for known_reason in TEXTS["refused"]:  # each is a part of what the log says
            if known_reason in how:
                if len(self.refused) < _MOST_CLIENTS:
                    self.refused.add((address, known_reason))
                return


def _ending(how: str) -> str:
    """Return how a connection ended, in words for people. how: the end of its line in the log."""
    endings: dict[str, str] = TEXTS["ended"]  # by a part of the line
    for part, words in endings.items():
        if part in how:
            return words
    raise AssertionError("the last part is empty, and so in every line")
