"""A Post to gateways on this machine, without Flower between them and the host."""

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from ternhost.errors import TernError, UsageError
from ternhost.reach.gateway.post import SOCKET, Inbox, Reply, call, served

_TIMEOUT = 600.0  # seconds that a gateway may take to answer


class LocalPost:
    """A Post to the gateways whose directories are in `directory`, on this machine, each through its own socket."""

    def __init__(self, directory: str | Path) -> None:
        self._directory = Path(directory)
        self._inbox = Inbox()
        self.receive = self._inbox.receive
        self.stop = self._inbox.stop

    def __enter__(self) -> Self:
        if not self._directory.is_dir():
            raise UsageError(f"{self._directory} is no directory of gateways")
        return self

    def __exit__(self, *_: object) -> None:
        pass  # its threads end with their answers, and hold nothing

    def sites(self) -> Mapping[str, bool]:
        """As Post's: the directories with a socket; one that nobody serves cannot be reached."""
        return {path.parent.name: served(path) for path in sorted(self._directory.glob(f"*/{SOCKET}"))}

    def send(self, site: str, payload: bytes) -> None:
        """As Post's."""
        threading.Thread(target=self._ask, args=(site, payload), daemon=True).start()

    def _ask(self, site: str, payload: bytes) -> None:
        try:
            answer = call(self._directory / site / SOCKET, payload, _TIMEOUT)
        except TernError as error:
            self._inbox.put(Reply(site, None, error.message))
        else:
            self._inbox.put(Reply(site, answer))

    def condition(self) -> str:
        """As Post's: there is nothing between that could be wrong."""
        return ""
