"""What Mosquitto's log says about clients that it refuses or loses.

The lines are those of Mosquitto 2.0.11, and of later releases, which add an address or the id of a
refused client.
"""

import json
import os
import re
import stat
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from ternhost.reach.broker.access import CONFIG
from ternhost.reach.broker.mosquitto_files import LOG, PID

# Reasons and remedies. Those of refusals and endings are by a part of the log's line.
TEXTS: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("absent.json").read_text())

_FIRST_BYTES = 1 << 16  # of the log that are read to begin with
_MOST_BYTES = 1 << 20  # that are read at once
_MOST_CLIENTS = 10_000
# That many takeovers of a name, within that many seconds, mean that two boards have one name: a
# board that comes back takes over once.
_TAKEOVERS = 3
_TAKEOVER_SECONDS = 60.0

_LOGS_CLIENTS = re.compile(r"^log_type (notice|all)\b", re.MULTILINE)  # in mosquitto.conf
_LINE = re.compile(r"(?P<time>\d+): (?P<event>.*)")
_NEW_CONNECTION = re.compile(r"New connection from (?P<address>.+):(\d+) on port")
_CONNECTED = re.compile(r"New client connected from (?P<address>.+):(\d+) as (?P<name>\S+) ")
_TAKEN_OVER = re.compile(r"Client (?P<name>\S+) already connected")
_FAILED = re.compile(r"Client connection from (?P<address>\S+) (?:denied|failed): (?P<how>.*)")
_ENDED = re.compile(r"Client (?P<name>\S+)(?: [(\[](?P<address>[^)\]]*)[)\]])? (?P<how>.*)")
_TLS_ERROR = re.compile(r"OpenSSL Error\[\d+\]: (?P<error>.*)")
_BOARD = re.compile(r"[0-9a-f]{8}")  # a name of a client


class BrokerLog:
    """Reads the log of a directory's Mosquitto, as far as it is on this machine."""

    def __init__(self, directory: Path, past: float = 60.0) -> None:
        """directory: of the broker. past: how many seconds back events still count.

        Who is connected counts however long ago that began.
        """
        self.directory = directory
        self.connected: dict[str, float] = {}  # clients by name, and since when (since 1970)
        self.ended: dict[str, str] = {}  # clients by name, and how their last connection ended
        self.refused: set[tuple[str, str]] = set()  # addresses ("": unknown), and reasons
        self.shared: set[str] = set()  # names under which several boards take turns
        self._begin = int(time.time() - past)  # the log has whole seconds
        self._unnamed: Counter[str] = Counter()  # connections without a name yet, by address
        self._takeovers: dict[str, list[float]] = {}
        self._tls_error = ""  # of the line before; the next line says which client it is about
        self._process_start = 0.0  # seconds since 1970
        self._position = (0, 0)  # inode, and bytes that were read

    # Reading

    def read(self) -> bool:
        """Read the new lines of the log; return whether there is a log that says who connects."""
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
        """Return the whole lines since the last call; None if the log is no file. Raises OSError."""
        with open(self._path(), "rb") as log:
            status = os.fstat(log.fileno())
            if not stat.S_ISREG(status.st_mode):
                return None
            inode, start = self._position
            if inode != status.st_ino or start > status.st_size:
                start = max(0, status.st_size - _FIRST_BYTES)
            log.seek(start)
            text, newline, _ = log.read(_MOST_BYTES).rpartition(b"\n")
        self._position = (status.st_ino, start + len(text) + len(newline))
        return text.decode(errors="replace").splitlines()

    def _path(self) -> Path:
        """Return the path of the running broker's log."""
        # The standard error of the running process, wherever its user has it; else the file of
        # `tern broker run`.
        with suppress(OSError, ValueError):
            process = Path("/proc", str(int((self.directory / PID).read_text())))
            if (process / "comm").read_text() == "mosquitto\n":
                return process / "fd" / "2"
        return self.directory / LOG

    # Lines

    def _take_event(self, at: float, event: str) -> None:
        """Take the text of a line. at: seconds since 1970."""
        tls_error = self._tls_error
        self._tls_error = ""
        is_recent = at >= self._begin
        if match := _TLS_ERROR.match(event):
            self._tls_error = match["error"]
        elif match := _NEW_CONNECTION.match(event):
            self._unnamed[match["address"]] += 1
        elif match := _CONNECTED.match(event):
            self._note_client(match["name"], match["address"], at)
        elif is_recent and (match := _TAKEN_OVER.match(event)):
            self._note_takeover(match["name"], at)
        elif is_recent and (match := _FAILED.match(event)):
            self._note_refusal(match["address"], match["how"])
        elif match := _ENDED.match(event):
            name, address, how = match["name"], match["address"] or "", match["how"]
            was_connected = self.connected.pop(name, None) is not None
            if not was_connected:
                self._note_unnamed_end(name, address, tls_error or how, is_recent)
            elif is_recent:
                self.ended[name] = _ending(how)

    def _note_client(self, name: str, address: str, at: float) -> None:
        """Note that a connection has become that of a client, who has logged in."""
        self._unnamed[address] -= 1
        if at >= int(self._process_start) and len(self.connected) < _MOST_CLIENTS:
            self.connected[name] = at
        if _BOARD.fullmatch(name):
            # A board at this address is let in by now.
            self.refused = {refusal for refusal in self.refused if refusal[0] != address}

    def _note_takeover(self, name: str, at: float) -> None:
        """Note that a new connection has the name of one that was still there."""
        earlier_times = self._takeovers.get(name, [])
        times = [time for time in earlier_times if at - time < _TAKEOVER_SECONDS]
        times.append(at)
        self._takeovers[name] = times[-_TAKEOVERS:]
        if len(times) >= _TAKEOVERS:
            self.shared.add(name)

    def _note_unnamed_end(self, name: str, address: str, how: str, is_recent: bool) -> None:
        """Note the end of a connection that had not become that of a client.

        address: with the port; empty if the log does not name it.
        """
        host, _colon, _port = address.rpartition(":")
        if not host:
            candidates = [address for address, count in self._unnamed.items() if count > 0]
            if len(candidates) == 1:
                host = candidates[0]
        self._unnamed[host] -= 1
        if is_recent and not name.startswith("auto-"):  # a client without a name is no board
            self._note_refusal(host, how)

    def _note_refusal(self, address: str, how: str) -> None:
        """Note that the broker has refused a client, if the reason is one that is known."""
        for part in TEXTS["refused"]:
            if part in how:
                if len(self.refused) < _MOST_CLIENTS:
                    self.refused.add((address, part))
                return


def _ending(how: str) -> str:
    """Say how a connection ended. how: the end of its line in the log."""
    endings: dict[str, str] = TEXTS["ended"]
    # The last part is empty, and so in every line.
    return next(words for part, words in endings.items() if part in how)
