from typing import Protocol

from tern.boards import Base
from tern.model import Model
from tern.recorder import Recorder
from tern.update import Update

class Watchdog(Protocol):
    def feed(self) -> object: ...

class App:
    """The node of a program: run() beside its tasks, or once() between two sleeps."""

    board: Base
    recorder: Recorder
    model: Model
    update: Update | None
    reports: int
    error: Exception | None

    def __init__(self, board: Base, recorder: Recorder, model: Model, update: Update | None = None) -> None:
        """board: a tern.boards.Base, such as this_board(), of one device; recorder: a Recorder; model:
        a Model; update: an Update, for a board whose program comes over its link, too.
        """

    async def run(self, watchdog: Watchdog | None = None) -> None:
        """Answer the host beside other tasks, for ever; on a computer until the other end of the port
        has gone.
        """

    def once(self, timeout_ms: int = 20000) -> bool:
        """Connect, answer what is asked, take the model, take leave; return within about `timeout_ms`."""
