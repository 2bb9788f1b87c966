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

if TYPE_CHECKING:
    from ternhost.reach.broker.link import MqttLink

GREETING = 3.0  # seconds in which the broker lists the boards
ANSWER = 5.0  # seconds that an UPDATE is waited for before it is sent again
# least bytes that a board writes and verifies for each UPDATE once it has the whole package
WORK = 128
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
    """One package on its way to one board."""

    device: int
    key: bytes
    number: int
    package: bytes
    wanted: int = 0  # the byte that the board wants next
    state: int | None = None  # of the last UPDATED; None before
    first: int | None = None  # the state of the first UPDATED
    error: str = ""  # the board's last one; not authenticated

    def frame(self) -> bytes:
        """Return the next UPDATE frame. The first asks how far the board is."""
        data = b""
        if self.state == wire.RECEIVING:
            data = self.package[self.wanted : self.wanted + host_frames.MAX_DATA]
        start = self.wanted if data else 0
        frame = bytearray(wire.MAX_FRAME)
        frame_size = host_frames.encode_update(
            frame, self.key, self.device, self.number, start, len(self.package), data
        )
        return bytes(frame[:frame_size])

    def take(self, request: bytes, answer: bytes) -> bool:
        """Take `answer` if it is the UPDATED for `request`; return whether it is."""
        try:
            if answer[:1] == bytes((wire.ERROR,)):
                self.error = wire.error_name(host_frames.decode_error(answer, b"")[2])
                return False
            key = frames.answer_key(frames.digest(self.key, request[: -wire.TAG_BYTES]))
            device, number, wanted, state = host_frames.decode_updated(answer, key)
        except frames.FrameError:
            return False
        if (device, number) != (self.device, self.number) or wanted > len(self.package):
            return False
        self.wanted, self.state = wanted, state
        if self.first is None:
            self.first = state
        return True


def _is_for(device: int, frame: bytes) -> bool:
    """Whether a frame is an UPDATED or an ERROR of this device; an ERROR of the board names none."""
    kinds = (bytes((wire.UPDATED,)), bytes((wire.ERROR,)))
    named_device = int.from_bytes(frame[1:5], "little")
    return frame[:1] in kinds and named_device in (device, wire.BOARD)


class BrokerPost:
    """Reaches the boards of a broker. An asynchronous context manager."""

    def __init__(self, link: MqttLink) -> None:
        self._link = link
        self._answers: dict[int, asyncio.Queue[bytes]] = {}  # of the boards that are asked
        self._reader: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._link.connect()
        await asyncio.wait_for(self._link.subscribed.wait(), 10.0)
        self._reader = asyncio.create_task(self._read())
        await asyncio.sleep(GREETING)
        return self

    async def __aexit__(self, *problem: object) -> None:
        if self._reader:
            self._reader.cancel()
        await self._link.close()

    async def _read(self) -> None:
        """Give each frame to whoever waits for an answer of its device; runs until it is cancelled."""
        while True:
            await self._link.wait(60.0)
            for frame in await self._link.take(0.0):
                for device, answers in self._answers.items():
                    if _is_for(device, frame):
                        answers.put_nowait(frame)

    def boards(self) -> list[int]:
        """The first clients of the boards that are there."""
        presence = self._link.presence
        # Strangers are boards of another schema: to be updated all the more.
        board_names = {*presence.boards, *presence.strangers}
        return sorted(int(name, 16) for name in board_names)

    async def ask(self, device: int, frame: bytes) -> None:
        """Send `frame` to the board of `device`."""
        self._answers[device] = asyncio.Queue()
        self._link.ask(board_name(device), frame)

    async def answer(self, device: int, timeout: float) -> bytes | None:
        """The next UPDATED or ERROR that names `device`, None where none comes in time."""
        with suppress(TimeoutError):
            return await asyncio.wait_for(self._answers[device].get(), timeout)
        return None

    async def greet(self) -> None:
        """Nothing: a board on trial says hello whenever it connects."""


class PortPost:
    """Reaches the one board on a port; it may be gone for a while, as on USB when it restarts."""

    def __init__(self, port: str) -> None:
        self._port = port
        self._events: SimpleQueue[Received] = SimpleQueue()
        self._heard: deque[bytes] = deque()
        self._link = open_link(port, self._events)
        self._first = require_at_port(port, self._link.hello()).first or 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *problem: object) -> None:
        self._link.close()

    def boards(self) -> list[int]:
        """The first client of the board; none if it has no key yet."""
        return [self._first] if self._first else []

    async def ask(self, device: int, frame: bytes) -> None:
        """Send `frame` to the board; earlier answers do not count any more."""
        self._heard.clear()
        self._link.send(frame)

    async def answer(self, device: int, timeout: float) -> bytes | None:
        """Return the next UPDATED or ERROR that names `device`, None if none comes in time."""
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
        """Ask a board on trial for its hello, after which a restarted one counts credits from 0."""
        with suppress(DeviceError, RefusedError):
            await asyncio.to_thread(self._link.hello, 0.5)

    async def _open_again(self, give_up_at: float) -> None:
        """Open the port again, which a restarting board has lost. end: of time.monotonic().

        Raises DeviceError if it does not come back in time.
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


async def bring(
    post: Post, transfer: Transfer, patience: float, trial: float, tell: Callable[[Transfer], None]
) -> int | None:
    """Bring a package to its board; return its last state, None if the board fell silent.

    patience: seconds without progress until the package is written. trial: seconds to restart and
    be confirmed. tell: gets the transfer after each answer. A board with the whole package reports
    no progress: so many of its answers count as progress as it may need to write and verify it.
    """
    package_bytes = len(transfer.package)
    give_up_at = time.monotonic() + patience
    most_received = -1  # bytes
    work_answers_left = 500 + package_bytes // WORK  # the old library sends some, too
    while time.monotonic() < give_up_at:
        state_before = transfer.state
        if not await _exchange(post, transfer, min(ANSWER, patience)):
            continue
        tell(transfer)
        if transfer.state in LAST:
            return transfer.state

        if transfer.state == wire.RECEIVING:
            has_all_bytes = transfer.wanted == package_bytes
            if transfer.wanted > most_received or (has_all_bytes and work_answers_left > 0):
                give_up_at = time.monotonic() + patience
            most_received = max(most_received, transfer.wanted)
            if has_all_bytes:
                work_answers_left -= 1
            continue

        if state_before in (None, wire.RECEIVING):
            give_up_at = time.monotonic() + trial
        if transfer.state == wire.TRIAL:
            await post.greet()
        await asyncio.sleep(POLL)
    return None


async def _exchange(post: Post, transfer: Transfer, seconds: float) -> bool:
    """Send the next UPDATE; return whether the board has answered it within some seconds."""
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
