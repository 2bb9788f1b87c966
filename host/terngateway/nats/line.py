"""A connection to NATS in a thread of its own, made again whenever it is lost."""

import asyncio
import logging
import random
import ssl
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Self

from nats import errors
from nats.aio.client import Client

from ternhost.reach.addresses import reason_of

_CONNECT = 4  # seconds
_CLOSE = 1.0  # seconds; a server that hangs takes no more
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0  # seconds before the next attempt
_STEADY = 1.0  # seconds after which a connection has not ended at once
_LOOK = 0.1  # seconds between two looks whether a connection is lost
_PING = 5  # seconds between pings of a server
_MOST_PINGS = 3  # without an answer, at which the server is gone

FAILURES = (OSError, errors.Error, asyncio.TimeoutError)  # of connections; TLS's are OSErrors

# Whenever a server ends a connection, asyncio warns that the library's reader keeps it open. What
# the library itself logs, such as malformed headers, either ends the connection or is of no
# interest.
logging.getLogger("asyncio").addFilter(lambda record: "eof_received" not in str(record.msg))
logging.getLogger("nats").addFilter(lambda record: False)


def next_pause(pause: float, lasted: float) -> float:
    """Return the seconds until the next attempt, which double as long as attempts fail at once.

    pause: before the last attempt. lasted: how many seconds that one lasted.
    """
    if lasted > _STEADY:
        return _SHORTEST_PAUSE
    return min(max(_SHORTEST_PAUSE, 2 * pause), _LONGEST_PAUSE)


class Line:
    """Keeps a connection to one of several servers while its context is open.

    Each connection has an event loop, which ends with it and all of its tasks.
    """

    def __init__(
        self,
        urls: Sequence[str],
        tls: Callable[[], ssl.SSLContext],
        serve: Callable[[Client], Coroutine[Any, Any, None]],
        failed: Callable[[str], None],
    ) -> None:
        """Prepare a connection, which entering the context makes.

        urls: servers, of which each attempt takes one at random. tls: makes the context of an
        attempt. serve: runs while there is a connection. failed: gets the reason of each failure.
        """
        self._urls = urls
        self._tls = tls
        self._serve = serve
        self._failed = failed
        self._error: Exception = OSError()
        self._ending = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._keep, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def stop(self) -> None:
        """Have it end soon."""
        self._ending.set()
        if self._task is not None:
            self.call(self._task.cancel)

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._thread.join()

    def call(self, function: Callable[..., object], *args: object) -> None:
        """Have the loop of the connection call a function, unless the connection ends before."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(function, *args)

    def _keep(self) -> None:
        """Connect again and again until `stop`; runs in the thread of the connection."""
        pause = 0.0
        while not self._ending.wait(pause):
            began = time.monotonic()
            try:
                asyncio.run(self._connect())
                self._failed("the connection was lost")
            except asyncio.CancelledError:
                return
            except Exception as error:
                # Whatever the other end sends: the library trusts what it reads.
                is_unexplained = isinstance(error, errors.NoServersError)
                self._failed(in_words(self._error if is_unexplained else error))
            pause = next_pause(pause, time.monotonic() - began)

    async def _connect(self) -> None:
        """Connect to a server and serve until the connection is lost, or serving fails.

        Raises whatever the library does, and the error with which serving has failed.
        """
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        client = Client()
        context = self._tls()
        await client.connect(
            random.choice(self._urls),
            tls=context,
            allow_reconnect=False,
            max_reconnect_attempts=1,  # by default it tries for two minutes before it says anything
            reconnect_time_wait=0,
            connect_timeout=_CONNECT,
            ping_interval=_PING,
            max_outstanding_pings=_MOST_PINGS,
            error_cb=self._note,
        )
        serving = asyncio.create_task(self._serve(client))
        try:
            if not context.session_stats()["connect_good"]:
                raise OSError("the other end wants no TLS")  # then the library goes on without
            # Its callbacks miss some ends.
            while not (client.is_closed or serving.done() or self._ending.is_set()):
                await asyncio.wait([serving], timeout=_LOOK)
        finally:
            serving.cancel()
            (result,) = await asyncio.gather(serving, return_exceptions=True)
            with suppress(*FAILURES):
                await asyncio.wait_for(client.close(), _CLOSE)
        if isinstance(result, Exception):
            raise result

    async def _note(self, error: Exception) -> None:
        """Keep the last error of the library, which explains why no server can be reached."""
        self._error = error


def in_words(error: BaseException) -> str:
    """Return a sentence for people on what went wrong with a connection."""
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError):
        return reason_of(error)
    text = str(error).removeprefix("nats: ").strip("'")
    if "authorization violation" in text.lower():
        return "the server has no site with this key"
    return text or type(error).__name__
