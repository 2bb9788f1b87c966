"""Tracks who is connected to a broker, from the HELLOs of boards and the messages of sites.

With a HELLO a board describes itself when it connects. Nothing here is verified: anybody who may
write to these topics can claim to be connected.
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
    """What the HELLO of a board says, which nobody has verified."""

    clients: range  # the ids of the devices on the board
    epoch: int = 0  # the number of the fleet key that the board has; 0 if it has none
    answered_epoch: int = 0  # the number of the fleet key that it has just been sent, else 0
    retained: bool = False  # the broker has kept it, so that it may be old
    hello: host_frames.Hello | None = None  # the whole message


class Presence:
    """The boards and sites that are connected to a broker."""

    def __init__(self, load_site_ids: Callable[[], Ids]) -> None:
        """Begin without boards and sites.

        load_site_ids: a function that returns which devices belong to each site (see `SiteIds`).
        """
        # Boards, by their names.
        self.boards: dict[str, BoardHello] = {}  # those that are connected
        self.changed: set[str] = set()  # their HELLO has come or gone; the reader empties this
        self.strangers: set[str] = set()  # they speak another version of the protocol
        # The last HELLO of boards that are gone, or have only moved to another site.
        self._departed: dict[str, BoardHello] = {}

        # Sites with a broker, by their names.
        self.sites: dict[str, bool] = {}  # whether the broker of each is connected
        self.site_returned = False  # one of them is connected again; the reader resets this
        self.site_ids = SiteIds(load_site_ids)

    def start_over(self) -> None:
        """Forget all boards, because there is a new connection to the broker.

        The broker then sends again the HELLOs with which the boards have connected.
        """
        self.changed |= self.boards.keys()
        self.boards.clear()
        self._departed.clear()
        self.strangers.clear()
        self.site_ids.renew()

    def take_message(self, board: str) -> None:
        """Note that a message has come from a board, which is therefore connected.

        If its HELLO was removed before, the board has moved to another site: the broker of the site
        that it left has noticed the lost connection late. So the HELLO counts again.
        """
        hello = self._departed.pop(board, None)
        if hello is not None:
            self.boards[board] = hello
            self.changed.add(board)

    def take_hello(self, board: str, payload: bytes, retained: bool = False) -> None:
        """Note the HELLO with which a board describes itself, or that the board is gone.

        board: the name in the topic of the message. payload: the HELLO; an empty one says that the
        board is gone. retained: whether the broker has kept the HELLO, which may be old then.
        """
        self.changed.add(board)
        last_hello = self.boards.pop(board, None)
        self._departed.pop(board, None)
        if last_hello and not payload:
            self._departed[board] = last_hello
        self.strangers.discard(board)

        with suppress(frames.FrameError):  # a message that is no HELLO is ignored, such as b""
            hello = read_hello(payload)
            if hello.schema != wire.SCHEMA:
                self.strangers.add(board)
                return
            # A board that speaks under the name of another one is ignored.
            has_own_name = bool(hello.first) and board == mqtt.name(hello.first)
            if has_own_name:
                self.boards[board] = self._board_hello(hello, retained)

    def _board_hello(self, hello: host_frames.Hello, retained: bool) -> BoardHello:
        """Return what the host believes of a HELLO: no clients that belong to another site.

        Fields that a HELLO lacks are None in it, and 0 in the result.
        """
        first = hello.first or 0
        count = hello.clients or 0
        claimed_clients = range(first, first + count)
        was_resent = self.site_ids.may_be_resent(first, time.monotonic())
        return BoardHello(
            clients=self.site_ids.clients_at_same_site(claimed_clients),
            epoch=hello.epoch or 0,
            answered_epoch=hello.nonce,
            retained=retained or was_resent,
            hello=hello,
        )

    def take_site(self, site: str, connected: bool, retained: bool) -> None:
        """Note that the broker of a site is connected to this one, or no longer is.

        retained: the message is an old one that this broker has kept, so the site has not just
        returned.
        """
        self.sites[site] = connected
        if connected and not retained:
            self.site_returned = True
            self.site_ids.note_return(site, time.monotonic())
