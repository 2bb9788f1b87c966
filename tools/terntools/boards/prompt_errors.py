"""The errors of a board at its prompt: it fails at what it is told, is silent, or is gone."""

from ternhost.errors import DeviceError, TernError
from terntools.boards import heard

# How MicroPython ends a traceback when its flash has no room, with the names of errors or without.
_FULL = ("OSError: 28", "OSError: [Errno 28]")


class ExecutionError(TernError):
    """The code that was sent raised an exception on the board."""

    def __init__(self, traceback: str) -> None:
        """Quote the last line of the traceback, which has the exception, in the message."""
        last_line = "no traceback"
        lines = traceback.strip().splitlines()
        if lines:
            last_line = lines[-1]
        super().__init__(f"the board says: {last_line}")
        self.means_full = last_line.startswith(_FULL)


class SilenceError(DeviceError):
    """The board printed nothing for too long, or is gone."""

    def __init__(self, message: str, output: str) -> None:
        """output: what the code on the board had printed until then."""
        super().__init__(
            message, hint="check its cable, or press reset, and run the same command again"
        )
        self.output = output


class GoneError(SilenceError):
    """The board's port does not exist any more: the board was unplugged, or it crashed."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the board on {name} is gone", "")
        self.hint = "check its cable and run the same command again: it goes on where it was"


class NoPromptError(DeviceError):
    """The board does not answer with MicroPython's prompt."""

    def __init__(self, name: str, printed: bytes) -> None:
        """name: the board's port. printed: what the board sent instead of a prompt."""
        text = f"no MicroPython prompt on {name}"
        description = heard.describe(printed)
        if description:
            text += f": {description}"
        hint = "press the board's reset button and try again; without MicroPython, flash it: `tern board flash`"
        super().__init__(text, hint)
        self.printed = printed
