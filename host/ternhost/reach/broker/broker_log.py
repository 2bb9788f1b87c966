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

_PAST = 1 << 16  # bytes of the log that are read to begin with
_MOST = 1 << 20  # bytes that are read at once
_MOST_CLIENTS = 10_000
_TAKEOVERS = 3  # of one name, within so many
_SECONDS = 60.0  # make two boards of one name; a board that comes back takes over once

_TELLS = re.compile(r"^log_type (notice|all)\b", re.MULTILINE)  # in mosquitto.conf
_LINE = re.compile(r"(\d+): (.*)")
_BEGAN = re.compile(r"New connection from (.+):(\d+) on port")
_JOINED = re.compile(r"New client connected from (.+):(\d+) as (\S+) ")
_TAKEN_OVER = re.compile(r"Client (\S+) already connected")
_FAILED = re.compile(r"Client connection from (\S+) (?:denied|failed): (.*)")
_ENDED = re.compile(r"Client (\S+)(?: [(\[]([^)\]]*)[)\]])? (.*)")
_BOARD = re.compile(r"[0-9a-f]{8}")
_TLS = re.compile(r"OpenSSL Error\[\d+\]: (.*)")


class BrokerLog:
    """Reads the log of a directory's Mosquitto, as far as it is on this machine."""

    def __init__(self, directory: Path, past: float = 60.0) -> None:
        """past: seconds before now, before which nothing counts but who is connected."""
        self.directory = directory
        self._since = int(time.time() - past)  # the log has whole seconds
        self.connected: dict[
            str, float
        ] = {}  # clients by name, and since when (seconds since 1970)
        self.ended: dict[str, str] = {}  # how their last connection ended
        self.refused: set[tuple[str, str]] = set()  # addresses ("": unknown), and reasons
        self.shared: set[str] = set()  # names under which several boards take turns
        self._open: Counter[str] = Counter()  # unnamed connections by address
        self._tls = ""  # the last error of TLS, which the next line gives a client
        self._takeovers: dict[str, list[float]] = {}
        self._started = 0.0  # the time of the process
        self._file = (0, 0)  # inode, and bytes that were read

    def read(self) -> bool:
        """Read new lines; return whether there is a log that says who connects."""
        try:
            started = (self.directory / PID).stat().st_mtime
            if not _TELLS.search((self.directory / CONFIG).read_text()):
                return False
            with open(self._path(), "rb") as log:
                status = os.fstat(log.fileno())
                inode, at = self._file
                if not stat.S_ISREG(status.st_mode):
                    return False
                if inode != status.st_ino or at > status.st_size:
                    at = max(0, status.st_size - _PAST)
                log.seek(at)
                lines = log.read(_MOST).rpartition(b"\n")[0]
        except OSError:
            return False
        if started != self._started:  # nobody is connected to a new process
            self._started = started
            self.connected.clear()
            self._open.clear()
        self._file = (status.st_ino, at + len(lines) + bool(lines))
        for line in lines.decode(errors="replace").splitlines():
            if match := _LINE.fullmatch(line):
                self._take(float(match[1]), match[2])
        return True

    def _path(self) -> Path:
        # The standard error of the running process, wherever its user has it; else the file of
        # `tern broker run`.
        with suppress(OSError, ValueError):
            process = Path("/proc", str(int((self.directory / PID).read_text())))
            if (process / "comm").read_text() == "mosquitto\n":
                return process / "fd" / "2"
        return self.directory / LOG

    def _take(self, at: float, text: str) -> None:
        tls, self._tls = self._tls, ""
        recent = at >= self._since
        if match := _TLS.match(text):
            self._tls = match[1]
        elif match := _BEGAN.match(text):
            self._open[match[1]] += 1
        elif match := _JOINED.match(text):
            self._open[match[1]] -= 1
            if at >= int(self._started) and len(self.connected) < _MOST_CLIENTS:
                self.connected[match[3]] = at
            if _BOARD.fullmatch(match[3]):
                self.refused = {refusal for refusal in self.refused if refusal[0] != match[1]}
        elif recent and (match := _TAKEN_OVER.match(text)):
            times = [then for then in self._takeovers.get(match[1], ()) if at - then < _SECONDS]
            self._takeovers[match[1]] = [*times, at][-_TAKEOVERS:]
            if len(times) + 1 >= _TAKEOVERS:
                self.shared.add(match[1])
        elif recent and (match := _FAILED.match(text)):
            self._refuse(match[1], match[2])
        elif match := _ENDED.match(text):
            name, how = match[1], match[3]
            if self.connected.pop(name, None) is not None:
                if recent:
                    self.ended[name] = next(
                        words for part, words in TEXTS["ended"].items() if part in how
                    )
                return
            likely = [address for address, count in self._open.items() if count > 0]
            address = (match[2] or "").rpartition(":")[0] or (likely[0] if len(likely) == 1 else "")
            self._open[address] -= 1
            if recent and not name.startswith("auto-"):  # a client without a name is no board
                self._refuse(address, tls or how)

    def _refuse(self, address: str, how: str) -> None:
        reason = next((part for part in TEXTS["refused"] if part in how), None)
        if reason and len(self.refused) < _MOST_CLIENTS:
            self.refused.add((address, reason))
