"""Who is connected to a broker, by the HELLOs of boards and the messages of sites.

Nothing here is verified: anybody who may write these topics can claim to be connected.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from tern import frames, host_frames, wire
from tern.links import mqtt
from ternhost.reach.broker.sites import Ids, SiteIds
from ternhost.reach.links import read_hello


class BoardHello(NamedTuple):
    """The unverified HELLO of a board."""

    clients: range
    epoch: int = 0  # of its fleet key; 0 without one
    answered_epoch: int = 0  # the epoch of the FLEET_KEY that it answers, else 0
    retained: bool = False  # by its broker: the board may sleep by now
    hello: host_frames.Hello | None = None


class Presence:
    """The boards and sites that are connected to a broker."""

    def __init__(self, load_site_ids: Callable[[], Ids]) -> None:
        """load_site_ids: as of `SiteIds`."""
        self.boards: dict[str, BoardHello] = {}  # connected boards, by name
        self.changed: set[str] = set()  # boards whose HELLO has come or gone; the reader empties it
        self.strangers: set[str] = set()  # boards of another schema, which understand nothing
        self.sites: dict[str, bool] = {}  # sites with a broker: whether it is connected
        self.site_returned = False  # a site is connected again; the reader resets it
        self.site_ids = SiteIds(load_site_ids)
        self._departed: dict[str, BoardHello] = {}  # boards whose HELLO was removed, and that HELLO

    def start_over(self) -> None:
        """Forget the boards: after each new connection, the broker sends their HELLOs again."""
        self.changed |= self.boards.keys()
        self.boards.clear()
        self._departed.clear()
        self.strangers.clear()
        self.site_ids.renew()

    def take_message(self, board: str) -> None:
        """Note a message of a board.

        If its HELLO was removed before, it has moved: the will came from the site that it left.
        """
        hello = self._departed.pop(board, None)
        if hello is not None:
            self.boards[board] = hello
            self.changed.add(board)

    def take_hello(self, board: str, payload: bytes, retained: bool = False) -> None:
        """Note the HELLO of a board; an empty one says that the board is gone.

        board: its name. retained: the broker kept the HELLO, which may be old.
        """
        self.changed.add(board)
        last_hello = self.boards.pop(board, None)
        self._departed.pop(board, None)
        if last_hello and not payload:
            self._departed[board] = last_hello
        self.strangers.discard(board)
        with suppress(frames.FrameError):
            hello = read_hello(payload)
            if hello.schema != wire.SCHEMA:
                self.strangers.add(board)
            elif hello.first and board == mqtt.name(hello.first):
                self.boards[board] = self._board_hello(hello, retained)

    def _board_hello(self, hello: host_frames.Hello, retained: bool) -> BoardHello:
        """Return what a HELLO says, without the clients that cannot be on the board's site."""
        first = hello.first or 0
        clients = self.site_ids.cut(range(first, first + (hello.clients or 0)))
        may_be_old = retained or self.site_ids.resent(first, time.monotonic())
        return BoardHello(clients, hello.epoch or 0, hello.nonce, may_be_old, hello)

    def take_site(self, site: str, connected: bool, retained: bool) -> None:
        """Note that the broker of a site is connected to this one, or no longer is."""
        self.sites[site] = connected
        if connected and not retained:
            self.site_returned = True
            self.site_ids.note_return(site, time.monotonic())
