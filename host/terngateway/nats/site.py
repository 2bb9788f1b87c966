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
# Questions whose parts have not all come, and answers whose parts have not all been fetched.
_MOST_KEPT = 4


_GO_ON = wire.REPLY.pack(wire.GO_ON, 0)  # replies without a part of an answer
_LOST = wire.REPLY.pack(wire.LOST, 0)


@contextmanager
def serve_site(
    directory: str | Path, handler: Handler, tell: Callable[[str], None] = lambda state: None
) -> Iterator[None]:
    """Answer the host's questions for a site while the context is open.

    handler: called by several threads at once. tell: gets each new state of the connection, which
    is also written into the site's lock file. Raises UsageError and StorageError.
    """
    site = directories.GatewaySite.load(directory)
    lock = site.directory / directories.SITE_LOCK
    with directories.only_one(lock, "one gateway runs in a directory") as file:

        def write_and_tell(state: str) -> None:
            with suppress(OSError):  # of a full disk
                file.truncate(0)
                file.write(state.encode())
                file.flush()
            with suppress(OSError):  # of an output that was closed
                tell(state)

        end = _SiteEnd(site, handler, write_and_tell)
        with end.threads, line.Line(site.there, site.tls, end.serve, end.tell):
            yield


class _SiteEnd:
    """Puts the parts of questions together, has them handled, and sends the parts of answers."""

    def __init__(
        self, site: directories.GatewaySite, handler: Handler, tell: Callable[[str], None]
    ) -> None:
        """Read the keys of the site. Raises StorageError."""
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
        """Pass on the state of the connection if it has changed."""
        if state != self._state:
            self._state = state
            self._tell_state(state)

    async def serve(self, client: Client) -> None:
        """Answer the host's questions over this connection until it is lost.

        What is left of an earlier connection, such as half a question, is forgotten. Waits until it
        is cancelled.
        """
        answering: set[asyncio.Task[None]] = set()
        for exchanges in (self._coming, self._handled, self._going):
            exchanges.clear()

        async def take(message: Msg) -> None:
            # In a task, so that the next message does not wait for the answer.
            if len(answering) < _MOST:
                task = asyncio.create_task(self._take(message))
                answering.add(task)
                task.add_done_callback(answering.discard)

        await client.subscribe(wire.SUBJECT, cb=take)
        await client.flush()
        self.tell(f"{self._site.name}: connected")
        await asyncio.Event().wait()  # for ever: answers are made in `take`

    async def _take(self, message: Msg) -> None:
        with suppress(*line.FAILURES):  # the host asks again
            await message.respond(await self._reply(message.data))

    async def _reply(self, data: bytes) -> bytes:
        """Return the reply to a request of the host, as exchange.py describes both.

        An exchange is a question and its answer, under an id that the host has chosen. Both may be
        longer than a message, so they go in parts: PUT brings the next part of the question, and the
        last of them starts the answer; GET fetches a part of the answer; PING asks whether the
        exchange is still known. The reply _LOST lets the host begin anew.
        """
        if len(data) < wire.REQUEST.size:
            return _LOST
        kind, exchange, number, count = wire.REQUEST.unpack_from(data)
        part = data[wire.REQUEST.size :]
        if kind == wire.PING:
            return _GO_ON if self._is_known(exchange) else _LOST
        if kind == wire.GET:
            return self._part(exchange, number)

        parts = [] if number == 0 else self._coming.pop(exchange, [])
        is_next_part = number == len(parts) and number < count <= wire.MOST_PARTS
        if kind != wire.PUT or not is_next_part:
            return _LOST
        parts.append(part)
        if number < count - 1:
            _keep(self._coming, exchange, parts)
            return _GO_ON
        try:
            question = wire.open_question(
                self._host_key, self._site.name, exchange, b"".join(parts)
            )
        except ValueError:
            return _LOST
        return await self._answer(exchange, question)

    def _is_known(self, exchange: bytes) -> bool:
        """Whether the site has parts of an exchange; a PING of zeros asks only for the site."""
        asks_for_site = not any(exchange)
        return (
            asks_for_site
            or exchange in self._coming
            or exchange in self._handled
            or exchange in self._going
        )

    async def _answer(self, exchange: bytes, question: bytes) -> bytes:
        """Have a question handled, and return the reply with the first part of the answer.

        The question is handled in a thread. Its answer is signed and divided into parts, which are
        kept until the host has fetched them.

        exchange: the id that the host has given to this question and its answer.
        """
        loop = asyncio.get_running_loop()
        self._handled.add(exchange)
        failed, answer = await loop.run_in_executor(self.threads, handled, self._handler, question)
        if len(answer) > LARGEST:
            failed = True
            answer = f"its answer of {len(answer)} bytes is more than {LARGEST}".encode()
        sealed = wire.seal_answer(self._key, exchange, question, failed, answer)
        self._handled.discard(exchange)
        _keep(self._going, exchange, wire.parts_of(sealed))
        return self._part(exchange, 0)

    def _part(self, exchange: bytes, number: int) -> bytes:
        """Return the reply with a part of an answer, which is forgotten after its last part."""
        parts = self._going.get(exchange, [])
        if number >= len(parts):
            return _LOST
        if number == len(parts) - 1:  # the last one
            del self._going[exchange]
        return wire.REPLY.pack(wire.ANSWER, len(parts)) + parts[number]


def _keep(kept: dict[bytes, list[bytes]], exchange: bytes, parts: list[bytes]) -> None:
    """Keep the parts of an exchange, and forget the oldest exchanges beyond _MOST_KEPT."""
    kept[exchange] = parts
    while len(kept) > _MOST_KEPT:  # the host has given the oldest up, and asks again
        oldest = next(iter(kept))
        del kept[oldest]
