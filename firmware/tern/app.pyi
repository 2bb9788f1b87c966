from typing import Protocol

from tern.boards import Base
from tern.model import Model
from tern.recorder import Recorder

class Watchdog(Protocol):
    def feed(self) -> object: ...

class App:
    board: Base
    recorder: Recorder
    model: Model
    reports: int
    error: Exception | None
    def __init__(self, board: Base, recorder: Recorder, model: Model) -> None: ...
    async def run(self, watchdog: Watchdog | None = None) -> None: ...
    def once(self, timeout_ms: int = 5000) -> bool: ...
