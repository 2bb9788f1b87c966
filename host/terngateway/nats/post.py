"""The host's end: a connection for each site, so that no site can hold up another one.

Each connection is in the account of its site.
"""

import asyncio
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Self

from nats import errors
from nats.aio.client import Client

from terngateway.nats import directories, line
from terngateway.nats import exchange as wire
from terngateway.nats.directories import Server
from terngateway.post import LARGEST, Post, text_of
from ternhost.errors import StorageError, UsageError
from ternhost.reach.certificates import PrivateKey, PublicKey, private_key

_LOOK = 1.0  # seconds between two looks at the directory, and between two pings of a site
_PONG = 3.0  # seconds that a ping may take
_MOST = 4  # questions to a site under way at a time; an answer of each may take 64 MB
_PART = 15.0  # seconds that a part may take
# Seconds that a question and its answer may take; the host asks again long before.
_EXCHANGE = 240.0

Received = Callable[[str, bytes | None, str], None]


class NatsPost(Post):
    """A Post over NATS.

    Questions under way are lost with the connection to their site, or with the site's own.
    """

    def __init__(self, directory: str | Path, beside: bool = False) -> None:
        """Prepare the connections, which entering the context makes.

        directory: of the host, or the one above it. beside: only look at which sites are connected,
        beside another NatsPost that asks them. Raises UsageError and StorageError.
        """
        super().__init__()
        self._server = Server.load(directory)
        self._key = private_key(self._server.directory / directories.HOST_KEY)
        self._beside = beside
        self._sites: dict[str, _Site] = {}
        self._wrong = ""  # a site that is not admitted, and why
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._tend, daemon=True)

    def __enter__(self) -> Self:
        """Lock the host's directory, connect to its sites, and begin to look for changes.

        Raises UsageError if another host asks these sites.
        """
        with ExitStack() as stack:
            if not self._beside:
                lock = self._server.directory / directories.HOST_LOCK
                stack.enter_context(directories.only_one(lock, "end the other host of these sites"))
            stack.callback(self._end)
            self._admit()
            self._thread.start()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _end(self) -> None:
        """End the thread, and then all connections together."""
        self._ending.set()
        if self._thread.ident is not None:
            self._thread.join()
        for site in self._sites.values():
            site.line.stop()
        for site in self._sites.values():
            site.line.__exit__()

    def sites(self) -> Mapping[str, bool]:
        return {name: site.online for name, site in self._sites.items()}

    def condition(self) -> str:
        sites = list(self._sites.values())
        if sites and all(site.trouble for site in sites):
            return f"no connection to {' '.join(self._server.here)}: {sites[0].trouble}"
        return self._wrong

    def send(self, site: str, payload: bytes) -> None:
        """Send to a site; if that is impossible now, an error is received at once.

        Raises UsageError for a payload that is too long.
        """
        if len(payload) > LARGEST:
            raise UsageError(f"a question of {len(payload)} bytes is more than {LARGEST}")
        registered_site = self._sites.get(site)
        if registered_site is None:
            self.received(site, None, "it is not registered any more")
        else:
            registered_site.ask(payload)

    def _tend(self) -> None:
        """Look for new and removed sites until the end; runs in a thread of its own."""
        while not self._ending.wait(_LOOK):
            try:
                self._admit()
            except OSError as error:  # such as too many open files
                self._wrong = str(error)

    def _admit(self) -> None:
        """Connect to the accounts of new sites, and disconnect from those of removed ones.

        A site has an account of its own on the NATS server, and a certificate in the server's
        directory, which is read anew here. A site whose certificate was replaced counts as another
        one.
        """
        sites_before = self._sites
        sites: dict[str, _Site] = {}
        problem = ""
        for name in directories.sites_of(self._server.directory):
            certificate = self._server.directory / directories.SITES / f"{name}.pem"
            try:
                key = directories.public_key(certificate)
            except StorageError as error:
                problem = f"{name} is not admitted: {error.message}"
                continue
            if name in sites_before and sites_before[name].public_key == key:
                sites[name] = sites_before[name]
            else:
                sites[name] = _Site(self._server, name, self._key, key, self.received)

        self._sites = sites
        self._wrong = problem
        for name, site in sites_before.items():
            if sites.get(name) is not site:
                site.line.__exit__()


class _Site:
    """A site, and the connection in its account."""

    def __init__(
        self, server: Server, name: str, key: PrivateKey, public_key: PublicKey, received: Received
    ) -> None:
        """Connect. key: of the host. public_key: of the site. received: gets each reply."""
        self.public_key = public_key
        self.online = False
        self.trouble = "not connected yet"  # "" while there is a connection to a server
        self._name = name
        self._key = key
        self._received = received
        self._client: Client | None = None
        self._asking: dict[bytes, asyncio.Task[None]] = {}  # by exchange
        self.line = line.Line(
            server.here, partial(server.tls, name), self._serve, self._failed
        ).__enter__()

    def ask(self, question: bytes) -> None:
        """Have the post receive the answer, or the reason why there is none."""
        client = self._client
        if client is None:
            self._received(self._name, None, self.trouble)
        else:
            self.line.call(self._begin, client, question)

    def _failed(self, why: str) -> None:
        self.trouble = why

    # In the loop of the connection

    async def _serve(self, client: Client) -> None:
        """Ping the site while the connection lasts, and give up questions that it has lost."""
        self._client = client
        self.trouble = ""
        try:
            while True:
                exchanges = list(self._asking.items())  # whose first part is sent before their PING
                self.online = await self._ping(client) is not None
                if self.online:
                    await self._give_up_lost(client, exchanges)
                await asyncio.sleep(_LOOK)
        finally:
            self._client = None
            self.online = False
            self.trouble = "the connection was lost"

    async def _give_up_lost(
        self, client: Client, exchanges: Sequence[tuple[bytes, asyncio.Task[None]]]
    ) -> None:
        """Cancel the exchanges that the site does not know any more, such as after a restart."""
        for exchange, task in exchanges:
            if not task.done() and await self._ping(client, exchange) == wire.LOST:
                task.cancel()

    async def _ping(self, client: Client, exchange: bytes = b"") -> int | None:
        """Return the status of an exchange, by default that of the site; None without a reply."""
        request = wire.REQUEST.pack(wire.PING, exchange, 0, 0)
        try:
            reply = await client.request(wire.SUBJECT, request, timeout=_PONG)
        except (errors.NoRespondersError, errors.TimeoutError):
            return None
        return reply.data[0] if reply.data else wire.GO_ON

    def _begin(self, client: Client, question: bytes) -> None:
        """Begin an exchange with the site, unless too many are under way."""
        if len(self._asking) >= _MOST:
            self._received(self._name, None, "it answers too slowly")
            return
        exchange = secrets.token_bytes(wire.ID)
        task = asyncio.get_running_loop().create_task(self._ask(client, exchange, question))
        self._asking[exchange] = task
        task.add_done_callback(lambda _: self._asking.pop(exchange))

    async def _ask(self, client: Client, exchange: bytes, question: bytes) -> None:
        """Put a question to the site, and pass on the answer, or the reason why there is none.

        `_received` is called with the site's name, the answer (None if there is none), and the
        reason. exchange: the id under which the parts of the question and of the answer are sent.
        """
        try:
            async with asyncio.timeout(_EXCHANGE):
                failed, answer = await self._exchange(client, exchange, question)
        except asyncio.CancelledError:
            self._received(self._name, None, "lost: the connection has ended")
        except errors.NoRespondersError:
            self._received(self._name, None, "it is not connected")
        except Exception as error:  # whatever the site replies
            self._received(self._name, None, line.in_words(error))
        else:
            if failed:
                self._received(self._name, None, text_of(answer))
            else:
                self._received(self._name, answer, "")

    async def _exchange(
        self, client: Client, exchange: bytes, question: bytes
    ) -> tuple[bool, bytes]:
        """Send the parts of a question, and fetch those of its answer.

        Returns whether the site has failed, and the answer, which is then the text of the error.
        Raises line.FAILURES, and ValueError for a reply that is no answer of the site.
        """
        parts = wire.parts_of(wire.seal_question(self._key, self._name, exchange, question))
        count, answer = 0, bytearray()
        for number, part in enumerate(parts):
            request = wire.REQUEST.pack(wire.PUT, exchange, number, len(parts)) + part
            is_last = number == len(parts) - 1  # whose reply has the first part of the answer
            timeout = _EXCHANGE if is_last else _PART
            reply = await client.request(wire.SUBJECT, request, timeout=timeout)
            count, data = wire.read_reply(reply.data, wire.ANSWER if is_last else wire.GO_ON)
            answer += data
        for number in range(1, count):
            request = wire.REQUEST.pack(wire.GET, exchange, number, count)
            reply = await client.request(wire.SUBJECT, request, timeout=_PART)
            _, data = wire.read_reply(reply.data, wire.ANSWER)
            answer += data
        try:
            return wire.open_answer(self.public_key, exchange, question, bytes(answer))
        except ValueError as error:
            raise ValueError(f"an answer without the signature of {self._name}: {error}") from error
