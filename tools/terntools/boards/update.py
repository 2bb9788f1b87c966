"""Brings packages to boards and sees them started or rolled back (shared_specs/update.md).

The board says which byte it wants next, so that an interrupted transfer goes on from there.
"""

from __future__ import annotations

import asyncio
import queue
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, Self

from tern import frames, host_frames, wire
from tern.links.mqtt import name as board_name
from ternhost.errors import DeviceError, RefusedError
from ternhost.reach.absence import require_at_port
from ternhost.reach.links import Received, open_link
from ternhost.reach.patience import patience_for

if TYPE_CHECKING:
    from ternhost.reach.broker.link import MqttLink

_SUBSCRIBING = 10.0  # seconds in which a broker accepts a subscription
GREETING = 3.0  # seconds in which the broker lists the boards
ANSWER = 5.0  # seconds that an UPDATE is waited for before it is sent again
# least bytes that a board writes and verifies for each UPDATE once it has the whole package
WORK = 128
_GREET_PATIENCE = 0.5  # seconds in which a board says HELLO that has restarted, if it has no slot
POLL = 1.0  # seconds between two questions while a board restarts
LAST = (
    wire.CONFIRMED,
    wire.ROLLED_BACK,
    wire.OLD,
    wire.DAMAGED,
    wire.FULL,
)  # nothing comes after these


@dataclass
class Transfer:
    """One package (a new program) on its way to one board.

    The host sends UPDATE frames with parts of the package, and the board answers each by an UPDATED
    frame with its state, such as wire.RECEIVING, and the byte that it wants next.
    """

    device: int
    key: bytes  # of the device
    number: int  # of the package; a board takes only larger ones than before
    package: bytes
    wanted: int = 0  # the position of the byte that the board wants next
    state: int | None = None  # in the last UPDATED; None before there was one
    first: int | None = None  # the state in the first UPDATED
    error: str = ""  # the name of the board's last ERROR, which is not authenticated

    def frame(self) -> bytes:
        """Return the next UPDATE frame.

        One without data only asks for the board's state: the first one, and those after the last
        byte.
        """
        start = 0
        data = b""
        if self.state == wire.RECEIVING:
            data = self.package[self.wanted : self.wanted + host_frames.MAX_DATA]
        if data:
            start = self.wanted
        frame = bytearray(wire.MAX_FRAME)
        frame_size = host_frames.encode_update(
            frame, self.key, self.device, self.number, start, len(self.package), data
        )
        return bytes(frame[:frame_size])

    def take(self, request: bytes, answer: bytes) -> bool:
        """Update the state by `answer`, if it is an authentic UPDATED for `request`.

        Returns whether it is. An ERROR is noted, and does not count as the answer.
        """
        try:
            if answer[:1] == bytes((wire.ERROR,)):
                _, _, error_code, *_ = host_frames.decode_error(answer, b"")
                self.error = wire.error_name(error_code)
                return False
            # The board authenticates its answer by a key that depends on the request.
            key = frames.answer_key(frames.digest(self.key, request[: -wire.TAG_BYTES]))
            device, number, wanted, state = host_frames.decode_updated(answer, key)
        except frames.FrameError:
            return False
        is_for_this = device == self.device and number == self.number
        if not is_for_this or wanted > len(self.package):
            return False
        self.wanted = wanted
        self.state = state
        if self.first is None:
            self.first = state
        return True


def _is_for(device: int, frame: bytes) -> bool:
    """Return whether a frame is an UPDATED or an ERROR that may be an answer of this device.

    An ERROR of a board as a whole has wire.BOARD in the place of a device.
    """
    is_answer = frame[:1] in (bytes((wire.UPDATED,)), bytes((wire.ERROR,)))
    named_device = int.from_bytes(frame[1:5], "little")
    return is_answer and named_device in (device, wire.BOARD)


class BrokerPost:
    """Exchanges frames with the boards of a broker. An asynchronous context manager."""

    def __init__(self, link: MqttLink) -> None:
        """link: to the broker, not connected yet."""
        self._link = link
        self._answers: dict[int, asyncio.Queue[bytes]] = {}  # by the device that was asked
        self._reader: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._link.connect()
        try:
            await asyncio.wait_for(self._link.subscribed.wait(), _SUBSCRIBING)
        except TimeoutError:
            await self._link.close()
            raise DeviceError(
                f"the broker at {self._link.access.host} has not let this host hear its boards "
                f"within {_SUBSCRIBING:g} s",
                hint="restart the broker, and try again",
            ) from None
        self._reader = asyncio.create_task(self._read())
        await asyncio.sleep(GREETING)
        return self

    async def __aexit__(self, *problem: object) -> None:
        if self._reader:
            self._reader.cancel()
        await self._link.close()

    async def _read(self) -> None:
        """Put each frame of the broker into the queue of its device, until this is cancelled."""
        while True:
            await self._link.wait(60.0)
            for frame in await self._link.take(0.0):
                for device, answers in self._answers.items():
                    if _is_for(device, frame):
                        answers.put_nowait(frame)

    def boards(self) -> list[int]:
        """Return the ids of the connected boards' first clients, sorted."""
        presence = self._link.presence
        # Strangers are boards that use another version of the protocol: to be updated all the more.
        board_names = {*presence.boards, *presence.strangers}
        return sorted(int(name, 16) for name in board_names)

    async def ask(self, device: int, frame: bytes) -> None:
        """Send `frame` to the board of `device`; earlier answers do not count any more."""
        self._answers[device] = asyncio.Queue()
        self._link.ask(board_name(device), frame)

    async def answer(self, device: int, timeout: float) -> bytes | None:
        """Return the next UPDATED or ERROR of `device`; None if none comes in time.

        timeout: seconds.
        """
        with suppress(TimeoutError):
            return await asyncio.wait_for(self._answers[device].get(), timeout)
        return None

    async def greet(self) -> None:
        """Do nothing: a board that tries a new program says hello whenever it connects."""


class PortPost:
    """Exchanges frames with the one board on a port. An asynchronous context manager.

    The port may disappear for a while, as it does on USB when the board restarts.
    """

    def __init__(self, port: str) -> None:
        """Open the port, and ask the board for its hello. Raises DeviceError and RefusedError."""
        self._port = port
        self._events: SimpleQueue[Received] = SimpleQueue()
        self._heard: deque[bytes] = deque()
        self._link = open_link(port, self._events)
        self._first = require_at_port(port, self._link.hello()).first or 0
        self._patience = patience_for(self._link.answer_seconds, _GREET_PATIENCE)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *problem: object) -> None:
        self._link.close()

    def boards(self) -> list[int]:
        """Return the id of the board's first client, in a list; [] if it has no key yet."""
        if not self._first:
            return []
        return [self._first]

    async def ask(self, device: int, frame: bytes) -> None:
        """Send `frame` to the board; earlier answers do not count any more."""
        self._heard.clear()
        self._link.send(frame)

    async def answer(self, device: int, timeout: float) -> bytes | None:
        """Return the next UPDATED or ERROR of `device`; None if none comes in time.

        timeout: seconds. A board without an answer is greeted, see `greet`.
        """
        give_up_at = time.monotonic() + timeout
        while True:
            seconds_left = give_up_at - time.monotonic()
            if seconds_left <= 0:
                break
            if self._heard:
                return self._heard.popleft()
            try:
                received = await asyncio.to_thread(self._events.get, timeout=min(seconds_left, 0.2))
            except queue.Empty:
                continue
            if received.error:
                await self._open_again(give_up_at)
            self._heard.extend(frame for frame in received.frames if _is_for(device, frame))
        await self.greet()
        return None

    async def greet(self) -> None:
        """Ask a board that tries a new program for its hello, as a host does that connects.

        Such a board has restarted; both sides then count the bytes that it may be sent from 0.
        """
        with suppress(DeviceError, RefusedError):
            await asyncio.to_thread(self._link.hello, self._patience, self._patience)

    async def _open_again(self, give_up_at: float) -> None:
        """Open the port again, which disappears when a board restarts.

        give_up_at: a time of time.monotonic(). Raises DeviceError if it does not come back by then.
        """
        self._link.close()
        while True:
            try:
                self._link = open_link(self._port, self._events)
                return
            except DeviceError:
                if time.monotonic() > give_up_at:
                    raise
                await asyncio.sleep(0.2)


Post = BrokerPost | PortPost


Tell = Callable[[Transfer, bool, float], None]
"""Shows a transfer: whether the board has just answered, and in how many seconds it is given up."""


async def bring(
    post: Post, transfer: Transfer, patience: float, trial: float, tell: Tell
) -> int | None:
    """Send a package to its board until the board has started it, or has not.

    Returns the board's last state, one of LAST, or None if the board fell silent.

    post: the way to the board. patience: seconds that may pass without progress until the package
    is written to flash. trial: seconds that the board then has to restart and to reach its host.
    tell: is called after each answer, and after each wait for one.
    """
    package_bytes = len(transfer.package)
    give_up_at = time.monotonic() + patience
    most_received = -1  # bytes
    # A board that has all bytes writes and verifies them, a piece for each UPDATE, and its answers
    # show no progress. As many answers count as progress as it may need for that; the 500 are a
    # margin, since the library that it runs may be an older one.
    work_answers_left = 500 + package_bytes // WORK
    while time.monotonic() < give_up_at:
        state_before = transfer.state
        answered = await _exchange(post, transfer, min(ANSWER, patience))
        tell(transfer, answered, give_up_at - time.monotonic())
        if not answered:
            continue
        if transfer.state in LAST:
            return transfer.state

        if transfer.state == wire.RECEIVING:
            has_all_bytes = transfer.wanted == package_bytes
            is_working = has_all_bytes and work_answers_left > 0
            if transfer.wanted > most_received or is_working:
                give_up_at = time.monotonic() + patience
            most_received = max(most_received, transfer.wanted)
            if has_all_bytes:
                work_answers_left -= 1
            continue

        # The package is written, and the board restarts or runs it already.
        is_written_now = state_before in (None, wire.RECEIVING)
        if is_written_now:
            give_up_at = time.monotonic() + trial
        if transfer.state == wire.TRIAL:
            await post.greet()
        await asyncio.sleep(POLL)
    return None


async def _exchange(post: Post, transfer: Transfer, seconds: float) -> bool:
    """Send the next UPDATE, and return whether the board has answered it in time."""
    request = transfer.frame()
    await post.ask(transfer.device, request)
    give_up_at = time.monotonic() + seconds
    while True:
        seconds_left = give_up_at - time.monotonic()
        if seconds_left <= 0:
            return False
        answer = await post.answer(transfer.device, seconds_left)
        if answer is not None and transfer.take(request, answer):
            return True
