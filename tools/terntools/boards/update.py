"""Brings packages to boards, over a broker or a port, and sees them started or rolled back
(shared_specs/update.md).

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
    """One package on its way to one board. state: of the last UPDATED, None before; first: of the
    first UPDATED.
    """

    device: int
    key: bytes
    number: int
    package: bytes
    wanted: int = 0
    state: int | None = None
    first: int | None = None
    error: str = ""  # the board's last one; not authenticated

    def frame(self) -> bytes:
        """The next UPDATE. The first asks how far the board is."""
        data = b""
        if self.state == wire.RECEIVING:
            data = self.package[self.wanted : self.wanted + host_frames.MAX_DATA]
        start = self.wanted if data else 0
        out = bytearray(wire.MAX_FRAME)
        n = host_frames.encode_update(
            out, self.key, self.device, self.number, start, len(self.package), data
        )
        return bytes(out[:n])

    def take(self, request: bytes, answer: bytes) -> bool:
        """Take `answer` if it is the UPDATED for `request`; returns whether it is."""
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
    # An ERROR of the board names none.
    named = int.from_bytes(frame[1:5], "little")
    return frame[:1] in (bytes((wire.UPDATED,)), bytes((wire.ERROR,))) and named in (
        device,
        wire.BOARD,
    )


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
        while True:
            await self._link.wait(60.0)
            for frame in await self._link.take(0.0):
                for device, waiting in self._answers.items():
                    if _is_for(device, frame):
                        waiting.put_nowait(frame)

    def boards(self) -> list[int]:
        """The first clients of the boards that are there."""
        known = {
            *self._link.presence.boards,
            *self._link.presence.strangers,
        }  # of another schema: to be updated all the more
        return sorted(int(name, 16) for name in known)

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
        """Let a board on trial reach its host: nothing to do, since it says hello whenever it
        connects.
        """


class PortPost:
    """Reaches the one board on a port, as BrokerPost does.

    It may be gone for a while, as on USB when it restarts.
    """

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
        return [self._first] if self._first else []

    async def ask(self, device: int, frame: bytes) -> None:
        self._heard.clear()
        self._link.send(frame)

    async def answer(self, device: int, timeout: float) -> bytes | None:
        end = time.monotonic() + timeout
        while (left := end - time.monotonic()) > 0:
            if self._heard:
                return self._heard.popleft()
            try:
                received = await asyncio.to_thread(self._events.get, timeout=min(left, 0.2))
            except queue.Empty:
                continue
            if received.error:
                await self._open_again(end)
            self._heard.extend(frame for frame in received.frames if _is_for(device, frame))
        await self.greet()
        return None

    async def greet(self) -> None:
        """Ask a board on trial for its hello; a restarted one counts its credits from 0 after that."""
        with suppress(DeviceError, RefusedError):
            await asyncio.to_thread(self._link.hello, 0.5)

    async def _open_again(self, end: float) -> None:
        self._link.close()
        while True:
            try:
                self._link = open_link(self._port, self._events)
                return
            except DeviceError:
                if time.monotonic() > end:
                    raise
                await asyncio.sleep(0.2)


Post = BrokerPost | PortPost


async def bring(
    post: Post, transfer: Transfer, patience: float, trial: float, tell: Callable[[Transfer], None]
) -> int | None:
    """Bring a package to its board; return its last state, None where the board fell silent.

    patience: seconds without progress until the package is written; trial: seconds to restart and
    be confirmed. A board with the whole package reports no progress: up to `work` of its answers
    count as progress.
    """
    end = time.monotonic() + patience
    most = -1  # bytes that it has received
    work = 500 + len(transfer.package) // WORK  # answers; the old library sends some, too
    while time.monotonic() < end:
        request = transfer.frame()
        await post.ask(transfer.device, request)
        before = transfer.state
        by = time.monotonic() + min(ANSWER, patience)
        heard = False
        while not heard and (left := by - time.monotonic()) > 0:
            answer = await post.answer(transfer.device, left)
            heard = answer is not None and transfer.take(request, answer)
        if not heard:
            continue
        tell(transfer)
        if transfer.state in LAST:
            return transfer.state
        if transfer.state == wire.RECEIVING:
            if transfer.wanted > most or (transfer.wanted == len(transfer.package) and work > 0):
                end = time.monotonic() + patience
            most = max(most, transfer.wanted)
            work -= transfer.wanted == len(transfer.package)
            continue
        if before in (None, wire.RECEIVING):
            end = time.monotonic() + trial
        if transfer.state == wire.TRIAL:
            await post.greet()
        await asyncio.sleep(POLL)
    return None
