"""Reads who is connected to a broker, for observers: it can send nothing to boards.

An observer has a user of its own at the broker, which may only read the HELLOs with which boards
describe themselves. The host's user is left to the host: a broker ends the connection of a user that
connects a second time.
"""

import asyncio
import time
from collections.abc import Mapping

from tern.links import mqtt
from ternhost.reach.broker.access import Access
from ternhost.reach.broker.link import MqttLink
from ternhost.reach.broker.presence import BoardHello

_QUIET = 0.5  # seconds without a further HELLO, after which all retained ones have come
_LONGEST = 10.0  # seconds of a look


class HelloLink(MqttLink):
    """A connection to a broker that only receives the HELLOs of boards."""

    def subscribe(self) -> None:
        self.presence.start_over()
        self.subscribed.clear()
        self._unacknowledged = 1
        self.client.subscribe(mqtt.HELLO % (self.access.prefix, "+"), qos=1)


async def connected_boards(access: Access) -> Mapping[str, BoardHello]:
    """Return the HELLOs of the boards that are connected to a broker now, by the boards' names.

    The connection ends before this returns. access: of the observer. Raises DeviceError if the
    broker does not answer, or refuses the observer; UsageError without its certificate; TimeoutError.
    """
    link = HelloLink(access)
    await link.connect()
    try:
        async with asyncio.timeout(_LONGEST):
            await link.subscribed.wait()
            await _until_quiet(link)
        return dict(link.presence.boards)
    finally:
        await link.close()


async def _until_quiet(link: MqttLink) -> None:
    """Wait until no HELLO has come for some time, or for the longest time that a look may take."""
    end = time.monotonic() + _LONGEST - 2 * _QUIET
    count = -1
    while count != len(link.presence.boards) and time.monotonic() < end:
        count = len(link.presence.boards)
        await asyncio.sleep(_QUIET)
