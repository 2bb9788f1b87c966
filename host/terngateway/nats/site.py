"""The site's end: takes questions of the host to a handler, and signed answers back."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from nats.aio.client import Client
from nats.aio.msg import Msg

from terngateway.nats import directories, line
from terngateway.nats import exchange as wire
from terngateway.post import LARGEST, Handler, handled
from ternhost.reach.certificates import private_key

_MOST = 64  # questions that are handled at a time; more are lost
_MOST_KEPT = (
    4  # questions whose parts have not all come, and answers whose parts have not all been fetched
)


@contextmanager
def serve_site(
    directory: str | Path, handler: Handler, tell: Callable[[str], None] = lambda state: None
) -> Iterator[None]:
    """Answer the host's questions for a site while the context is open.

    Several threads call `handler` at once. tell: gets each new state of the connection. Raises
    UsageError and StorageError.
    """
    site = directories.GatewaySite.load(directory)
    lock = site.directory / directories.SITE_LOCK
    with directories.only_one(lock, "one gateway runs in a directory") as file:

        def tell_all(state: str) -> None:
            with suppress(OSError):  # of a full disk
                file.truncate(0)
                file.write(state.encode())
                file.flush()
            with suppress(OSError):  # of an output that was closed
                tell(state)

        end = _SiteEnd(site, handler, tell_all)
        with end.threads, line.Line(site.there, site.tls, end.serve, end.tell):
            yield


class _SiteEnd:
    def __init__(
        self, site: directories.GatewaySite, handler: Handler, tell: Callable[[str], None]
    ) -> None:
        self._site = site
        self._key = private_key(site.directory / directories.SITE_KEY)
        self._host_key = directories.public_key(site.directory / directories.HOST)
        self._handler = handler
        self._tell_state = tell
        self._state = ""
        self._coming: dict[bytes, list[bytes]] = {}  # by exchange, parts of a question
        self._handled: set[bytes] = set()  # exchanges
        self._going: dict[bytes, list[bytes]] = {}  # by exchange, parts of an answer
        self.threads = ThreadPoolExecutor(_MOST, "question")

    def tell(self, state: str) -> None:
        if state != self._state:
            self._state = state
            self._tell_state(state)

    async def serve(self, client: Client) -> None:
        """Answer until the connection is lost."""
        answering: set[asyncio.Task[None]] = set()
        for kept in (self._coming, self._handled, self._going):
            kept.clear()

        async def take(message: Msg) -> None:  # the next one does not wait for the answer
            if len(answering) < _MOST:
                task = asyncio.create_task(self._take(message))
                answering.add(task)
                task.add_done_callback(answering.discard)

        await client.subscribe(wire.SUBJECT, cb=take)
        await client.flush()
        self.tell(f"{self._site.name}: connected")
        await asyncio.Event().wait()

    async def _take(self, message: Msg) -> None:
        with suppress(*line.FAILURES):  # the host asks again
            await message.respond(await self._reply(message.data))

    async def _reply(self, data: bytes) -> bytes:
        if len(data) < wire.REQUEST.size:
            return wire.REPLY.pack(wire.LOST, 0)
        kind, exchange, number, count = wire.REQUEST.unpack_from(data)
        if kind == wire.PING:
            known = (
                not any(exchange)
                or exchange in self._handled | self._coming.keys() | self._going.keys()
            )
            return wire.REPLY.pack(wire.GO_ON if known else wire.LOST, 0)
        if kind == wire.GET:
            return self._part(exchange, number)
        parts = [] if number == 0 else self._coming.pop(exchange, [])
        if kind != wire.PUT or number != len(parts) or not number < count <= wire.MOST_PARTS:
            return wire.REPLY.pack(wire.LOST, 0)
        parts.append(data[wire.REQUEST.size :])
        if number < count - 1:
            _keep(self._coming, exchange, parts)
            return wire.REPLY.pack(wire.GO_ON, 0)
        try:
            question = wire.open_question(
                self._host_key, self._site.name, exchange, b"".join(parts)
            )
        except ValueError:
            return wire.REPLY.pack(wire.LOST, 0)
        loop = asyncio.get_running_loop()
        self._handled.add(exchange)
        failed, answer = await loop.run_in_executor(self.threads, handled, self._handler, question)
        if len(answer) > LARGEST:
            failed, answer = (
                True,
                f"its answer of {len(answer)} bytes is more than {LARGEST}".encode(),
            )
        sealed = wire.seal_answer(self._key, exchange, question, failed, answer)
        self._handled.discard(exchange)
        _keep(self._going, exchange, wire.parts_of(sealed))
        return self._part(exchange, 0)

    def _part(self, exchange: bytes, number: int) -> bytes:
        parts = self._going.get(exchange, [])
        if number >= len(parts):
            return wire.REPLY.pack(wire.LOST, 0)
        if number == len(parts) - 1:  # the last one
            del self._going[exchange]
        return wire.REPLY.pack(wire.ANSWER, len(parts)) + parts[number]


def _keep(kept: dict[bytes, list[bytes]], exchange: bytes, parts: list[bytes]) -> None:
    kept[exchange] = parts
    while len(kept) > _MOST_KEPT:  # the host has given it up, and asks again
        del kept[next(iter(kept))]
