"""The console of a board: bytes to and from its port, with an end to every wait."""

import contextlib
import time
from collections.abc import Iterator

from ternhost.reach.ports.link import BAUD, PORT_ERRORS, open_port
from terntools.boards import heard
from terntools.boards.prompt_errors import GoneError, SilenceError

MOST_TALK = 5.0  # seconds beyond a timeout after which a port that never falls silent is given up


class Console:
    """The port of a board, at which MicroPython prints what it has to say.

    Every wait for the board ends: with what was waited for, with SilenceError, or with GoneError.
    """

    def __init__(self, port: str, baud: int = BAUD) -> None:
        """Open the board's port, without sending anything. Raises DeviceError and UsageError."""
        self.name = port
        self._port = open_port(port, baud)
        self.at_prompt = False  # whether the board is known to wait for code

    def close(self) -> None:
        """Close the port."""
        self._port.close()

    def flush(self) -> None:
        """Wait until what was written has been sent."""
        with self._there():
            self._port.flush()

    def write(self, data: bytes) -> None:
        """Send bytes to the board. Raises GoneError."""
        with self._there():
            self._port.write(data)

    def receive(self, most_bytes: int = 0) -> bytes:
        """Return the bytes that come within the timeout of the port, at most `most_bytes`.

        most_bytes: 0 for all bytes that have come already, or for the next byte if there are none.
        """
        with self._there():
            if not most_bytes:
                most_bytes = self._port.in_waiting or 1
            return bytes(self._port.read(most_bytes))

    def read(self, count: int, timeout: float) -> bytes:
        """Read exactly `count` bytes. Raises SilenceError if they do not come in time."""
        data = b""
        give_up_at = time.monotonic() + timeout
        while len(data) < count:
            is_late = time.monotonic() > give_up_at
            part = self.receive(count - len(data))
            data += part
            # On a busy host the time may be over before the first read: bytes that have come by
            # then still count.
            if is_late and not part:
                raise self.silence("an answer")
        return data

    def read_until(self, ending: bytes, timeout: float, limit: float | None = None) -> bytes:
        """Return what the board prints up to and including `ending`, or until it takes too long.

        timeout: seconds without a byte after which it takes too long. limit: seconds in all, for a
        port that never falls silent (default: `timeout` and `MOST_TALK`). Raises GoneError, with
        what was printed until then.
        """
        if limit is None:
            limit = timeout + MOST_TALK
        data = bytearray()
        start = time.monotonic()
        last_byte_at = start
        while not data.endswith(ending):
            # The clock is read before the port: on a busy host the time may be over before the
            # first read, and bytes that have come by then still count.
            now = time.monotonic()
            is_silent = now - last_byte_at > timeout
            is_late = now - start > limit
            try:
                part = self.receive(1)
            except GoneError as gone:
                gone.output = data.decode(errors="replace")
                raise
            if part:
                data += part
                last_byte_at = time.monotonic()
            if is_late or (is_silent and not part):
                break
        return bytes(data)

    def expect(
        self, ending: bytes, timeout: float, wanted: str, limit: float | None = None
    ) -> bytes:
        """Return what the board prints up to and including `ending`.

        timeout, limit: as in `read_until`. wanted: what the host waits for, as words for the
        message. Raises SilenceError if the ending does not come in time.
        """
        data = self.read_until(ending, timeout, limit)
        if not data.endswith(ending):
            raise self.silence(wanted, data)
        return data

    def drain(self, quiet_seconds: float) -> None:
        """Discard what the board prints, until it has been silent for some seconds.

        With a board that never falls silent, this returns `MOST_TALK` seconds later all the same.
        """
        start = time.monotonic()
        last_byte_at = start
        while True:
            now = time.monotonic()
            is_quiet = now - last_byte_at >= quiet_seconds
            is_late = now - start >= quiet_seconds + MOST_TALK
            if is_quiet or is_late:
                return
            if self.receive():
                last_byte_at = time.monotonic()

    def silence(self, wanted: str, printed: bytes = b"") -> SilenceError:
        """Return the error for a board that did not answer, and note that its state is unknown.

        wanted: what the host waited for. printed: what came instead.
        """
        self.at_prompt = False
        text = f"the board on {self.name} gave no answer while the host waited for {wanted}"
        description = heard.describe(printed)
        if description:
            text += f": {description}"
        return SilenceError(text, printed.decode(errors="replace"))

    @contextlib.contextmanager
    def _there(self) -> Iterator[None]:
        """Raise GoneError where code in this context meets an error of the port."""
        try:
            yield
        except PORT_ERRORS as error:
            self.at_prompt = False
            raise GoneError(self.name) from error
