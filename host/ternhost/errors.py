"""Errors that a user can act on, and the exit codes of the `tern` command."""

from ternhost.text import visible

OK = 0
FAILED = 1
USAGE = 2
NO_DEVICE = 3
REFUSED = 4
STORAGE = 5
SHORT = 6
FAULT = 70
INTERRUPTED = 130
BROKEN_PIPE = 141
ENDED_BY_SIGNAL = 128  # and the number of the signal
TERMINATED = 143

# For `tern --help`.
EXIT_CODES = {
    OK: "success",
    FAILED: "failure, or a negative result (a card is not certified, a test failed)",
    USAGE: "wrong usage or bad input, such as a named file that is not there",
    NO_DEVICE: "no such device or port, or it does not answer",
    REFUSED: "the device refused (budget, policy, schema)",
    STORAGE: "storage: a disk is full, or a file cannot be read or written",
    SHORT: "a run ended with fewer reports than it asked for",
    FAULT: "a bug in tern",
    INTERRUPTED: "interrupted by Ctrl-C",
}


class TernError(Exception):
    """Base class of the errors that tern reports: what happened (`message`), and what to do next
    (`hint`).
    """

    exit_code = FAILED
    remedy: str | None = None  # the hint of errors that give none; None: the help of the command

    def __init__(self, message: str, hint: str | None = None) -> None:
        """Make an error. hint: what the user can do about it; None for `remedy`."""
        self.message = visible(message, lines=True)  # it may quote a board, a broker or a file
        self.hint = hint
        if hint:
            self.hint = visible(hint, lines=True)
        super().__init__(self.message)


class UsageError(TernError):
    """A request makes no sense, or an input file is bad."""

    exit_code = USAGE


class DeviceError(TernError):
    """No such device or port, or it does not answer as a tern device does."""

    exit_code = NO_DEVICE
    remedy = "check cable and power; 'tern board list' lists the boards that are connected"


class RefusedError(TernError):
    """The device understood the request and refused it: budget, policy or schema."""

    exit_code = REFUSED


class StorageError(TernError):
    """A disk is full, or a file cannot be read or written."""

    exit_code = STORAGE
    remedy = "check the path, who may read and write it, and the room on its disk"


class InterruptedByUser(TernError):
    """Ctrl-C in a command whose message says more than "interrupted", such as how to resume."""

    exit_code = INTERRUPTED
