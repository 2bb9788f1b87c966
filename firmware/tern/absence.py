"""Why a board is not connected to its broker: reasons, and the board's last absence.

A reason is a number of shared_specs/mqtt.md, which a Lost exception carries. The board states it in
its HELLO and blinks it on its LED. It depends on the network alone, never on records.
"""

from tern.compat import const, ticks_diff, ticks_ms

ABSENT = "absent.bin"  # among the files of a board: the reason, a byte; 0 while it is not absent

# The reasons, in the order in which a connection is made.
NO_SETTINGS = const(1)
NO_NETWORK = const(2)
WIFI_KEY = const(3)
NOT_JOINED = const(4)
NO_LEASE = const(5)
NO_NAME = const(6)
NAME_SILENT = const(7)
REFUSED = const(8)
SILENT = const(9)
CLOSED = const(10)
NO_BROKER = const(11)
CERTIFICATE = const(12)
DATES = const(13)
CREDENTIALS = const(14)
DECLINED = const(15)
LOST = const(16)
FAULT = const(17)

_BLINK_MS = const(256)
_REST = const(6)  # of such times, darkness after the last blink


class Absence:
    """How long and why a board is absent from its broker, or was the last time.

    str() gives the text for a HELLO. reason: the last one since the absence began; 0 if nothing has
    failed. It is kept in a file, since the board may restart before it can state it.
    """

    def __init__(self, board):
        """Begin an absence now; a file of the board has the reason of one before a restart."""
        self._led = board.led
        self._path = board.directory + "/" + ABSENT
        self.reason = 0
        self._ms = self._kept = 0  # the length of the absence; the reason in the file
        # In whole seconds (of 1024 ms), so that nobody sees how long the start took.
        self._since = ticks_ms() >> 10 << 10
        self._ended = self._lit = False
        try:
            with open(self._path, "rb") as file:
                self._kept = file.read()[0]
        except (OSError, IndexError):
            pass

    def __str__(self):
        """Return the absence as a HELLO states it, such as "was absent 3 12 s" once it is over."""
        self._count()
        return "%sabsent %d %d s" % ("was " * self._ended, self.reason, self._ms // 1000)

    def _count(self):
        """Add the time since the last call to the length of the absence, unless it has ended."""
        now = ticks_ms()  # it wraps around, but not between two attempts
        if not self._ended:
            self._ms += ticks_diff(now, self._since)
        self._since = now

    def failed(self, reason, now):
        """Note at `now` (ms) that a connection was lost, or that an attempt to connect failed.

        reason: one of this module. The file gets the reason of a failed attempt, not of a loss.
        """
        self._count()
        if self._ended:  # another absence begins
            self._ended = False
            self._ms = 0
            self._since = now
        else:
            self._keep(reason)
        self.reason = reason

    def ended(self, hold):
        """Note that there is a connection.

        hold: called before the file changes, since that takes a time that must not show.
        """
        self._count()
        self._ended = True
        if not self.reason:  # the board was absent before it restarted
            self.reason = self._kept
            self._ms = 0
        self.show()
        if self._kept:
            hold()
            self._keep(0)

    def _keep(self, reason):
        """Write `reason` to the file (0: not absent), unless it is there already."""
        if reason != self._kept:
            self._kept = reason
            try:
                with open(self._path, "wb") as file:
                    file.write(bytes((reason,)))
            except OSError:  # then it is unknown after a restart
                pass

    def show(self):
        """Blink as often as the reason's number says, then pause; to be called again and again."""
        phases = 2 * self.reason  # each blink is a time of light and one of darkness
        phase = ticks_ms() // _BLINK_MS % (phases + _REST)
        # Light in even phases, dark in odd ones and in the pause.
        lit = phase < phases and not (self._ended or phase & 1)
        if lit != self._lit:
            self._lit = lit
            self._led(lit)
