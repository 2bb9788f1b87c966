"""The errors that a user can act on, and the exit codes of the `tern` command."""

from __future__ import annotations

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
TERMINATED = 143

# What `tern --help` says about them.
EXIT_CODES = {
    OK: "done",
    FAILED: "tried, and it is not so or did not work (a card that is not certified, a failed test)",
    USAGE: "wrong usage or bad input",
    NO_DEVICE: "no such device or port, or it does not answer",
    REFUSED: "the device refused (budget, policy, schema)",
    STORAGE: "storage: disk full, not readable or not writable",
    SHORT: "a run has ended with fewer reports than were asked for",
    FAULT: "a fault in tern itself",
    INTERRUPTED: "interrupted by Ctrl-C",
}


class TernError(Exception):
    """Root of every error that tern reports: what happened, and what to do next (`hint`)."""

    exit_code = FAILED

    def __init__(self, message: str, hint: str | None = None) -> None:
        self.message = visible(message, lines=True)  # a board, a broker or a file may have a part in it
        self.hint = hint and visible(hint, lines=True)
        super().__init__(self.message)


class UsageError(TernError):
    """A request makes no sense, or an input file is bad."""

    exit_code = USAGE


class DeviceError(TernError):
    """No such device or port, or it does not answer as a tern device does."""

    exit_code = NO_DEVICE


class RefusedError(TernError):
    """The device understood and refused: budget, policy or schema."""

    exit_code = REFUSED


class StorageError(TernError):
    """A disk is full, or a file can be neither read nor written."""

    exit_code = STORAGE


class InterruptedByUser(TernError):
    """Ctrl-C, where a command has more to say than "interrupted" (for example how to resume)."""

    exit_code = INTERRUPTED
