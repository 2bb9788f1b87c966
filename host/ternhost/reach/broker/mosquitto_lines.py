"""Passes the lines of Mosquitto's own log on to the log of tern."""

import logging
import re
from contextlib import suppress
from pathlib import Path

from ternhost import log
from ternhost.files import Closing
from ternhost.reach.broker.mosquitto_files import LOG

_MOST_BYTES = 1 << 20  # that are passed on at once; of more lines, the oldest are left out
_LINE = re.compile(r"(\d+: )?(?P<text>.*)")  # with the time at its beginning
# Connections before and without a login. Each check whether Mosquitto answers is one, and Mosquitto
# tells of its end in one of several ways. Other errors of TLS are about boards, and stay.
_WITHOUT_LOGIN = re.compile(
    r"New connection from |Client <unknown> "
    r"|(Client connection from \S+ failed|OpenSSL Error[^:]*): .*unexpected eof while reading"
)
_LEVELS = {"Error": logging.ERROR, "Warning": logging.WARNING}


class MosquittoLines(Closing):
    """Reads what is added to the log of the Mosquitto of a directory."""

    def __init__(self, directory: Path) -> None:
        """Begin after the lines that are there already."""
        self._path = directory / LOG
        self._position = self._size()

    def close(self) -> None:
        """Pass the last lines on."""
        self.pass_on()

    def pass_on(self) -> None:
        """Log the complete lines that were added since the last call."""
        size = self._size()
        if size < self._position:  # it was emptied
            self._position = 0
        self._position = max(self._position, size - _MOST_BYTES)
        added = b""
        with suppress(OSError), open(self._path, "rb") as file:
            file.seek(self._position)
            added = file.read(size - self._position)
        complete = added[: added.rfind(b"\n") + 1]
        self._position += len(complete)
        for line in complete.decode(errors="replace").splitlines():
            _log(line)

    def _size(self) -> int:
        """Return the size of the log in bytes; 0 if there is none."""
        try:
            return self._path.stat().st_size
        except OSError:
            return 0


def _log(line: str) -> None:
    """Log a line of Mosquitto, unless it is about a connection without a login."""
    match = _LINE.fullmatch(line)
    text = match["text"] if match else line
    if not text or _WITHOUT_LOGIN.match(text):
        return
    word, colon, rest = text.partition(": ")
    level = _LEVELS.get(word)
    if level is None or not colon:
        level, rest = logging.INFO, text
    log.say(level, f"mosquitto: {rest}", program="mosquitto")
