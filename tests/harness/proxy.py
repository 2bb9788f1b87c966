"""A bad network between boards and broker: a proxy that reads MQTT packets, and loses, repeats,
delays, cuts, flips and replays messages.

It listens with the broker's own certificate, so boards take it for the broker. It acknowledges the
messages that it loses, like a broker that died with them. It keeps a hash of every report of a
board, to detect two different ones for the same round.
"""

import asyncio
import hashlib
import random
import ssl
import struct
import threading
from collections import Counter, deque

import report_frames

from harness.raw_client import length
from tern import wire
from ternhost.reach.broker.access import CERTIFICATE, KEY

_PUBLISH = 0x30
_KINDS = ("drop", "repeat", "delay", "truncate", "flip", "replay")
_KEPT = 500  # messages in each direction, to be replayed
_PATIENCE = 60  # s
_ERROR_BYTES = struct.calcsize(wire.ERROR_FIELDS) + 1 + wire.TAG_BYTES


class Faults:
    """Draws faults by their probabilities from `seed`, while `on`; `injected` counts them by name."""

    def __init__(self, seed=1, on=True, **probabilities):
        assert set(probabilities) <= set(_KINDS), probabilities
        self.on, self.injected, self._probabilities = on, Counter(), probabilities
        self._random = random.Random(seed)
        self._earlier = {
            up: deque(maxlen=_KEPT) for up in (True, False)
        }  # reports and rounds of any device

    def apply(self, payload, up):
        """The messages to send for a payload: a list of (seconds of delay, payload). up: whether a
        board sent it.
        """
        earlier = self._earlier[up]
        if payload[:1] and payload[0] in ((wire.REPORT, wire.REPORTS) if up else (wire.ROUND,)):
            earlier.append(payload)
        if not self.on:
            return [(0.0, payload)]
        out = []
        if not self._draw("drop", up):
            if payload and self._draw("truncate", up):
                payload = payload[: self._random.randrange(len(payload))]
            if payload and self._draw("flip", up):
                bit = self._random.randrange(8 * len(payload))
                payload = bytes(
                    b ^ (1 << (bit & 7) if i == bit >> 3 else 0) for i, b in enumerate(payload)
                )
            out.append((self._random.random() if self._draw("delay", up) else 0.0, payload))
            if self._draw("repeat", up):
                out.append((self._random.random() / 2, payload))
        if earlier and self._draw("replay", up):
            out.append((0.0, self._random.choice(earlier)))
        return out

    def _draw(self, kind, up):
        hit = self._random.random() < self._probabilities.get(kind, 0.0)
        if hit:
            self.injected[f"{kind} {'up' if up else 'down'}"] += 1
        return hit


class Proxy:
    """Passes messages between boards, which connect to `port`, and the broker of `access`.

    A context manager.
    """

    def __init__(self, access, directory, faults):
        self.faults = faults
        self.different = []  # (device, round) for which a board sent two different reports
        self.reports = 0
        self.errors = Counter()  # ERROR frames of boards, by name
        self._access, self._hashes = access, {}
        self._server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._server_context.load_cert_chain(directory / CERTIFICATE, directory / KEY)
        self._client_context = ssl.create_default_context(cafile=access.authority)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._tasks = set()

    def __enter__(self):
        self._thread.start()
        self.port = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(_PATIENCE)
        return self

    def __exit__(self, *_):
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(_PATIENCE)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def released(self):
        """The number of rounds for which each device has sent a report, as a Counter."""
        return Counter(device for device, _ in list(self._hashes))  # a copy: boards may still send

    async def _listen(self):
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", 0, ssl=self._server_context
        )
        return self._server.sockets[0].getsockname()[1]

    async def _end(self):
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader, writer):
        task = asyncio.current_task()
        self._tasks.add(task)
        ends, pumps = [writer], []
        try:
            far_reader, far_writer = await asyncio.open_connection(
                self._access.host, self._access.port, ssl=self._client_context
            )
            ends.append(far_writer)
            pumps = [
                asyncio.ensure_future(self._pump(reader, far_writer, writer, True)),
                asyncio.ensure_future(self._pump(far_reader, writer, far_writer, False)),
            ]
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        except (
            OSError,
            asyncio.CancelledError,
        ):  # the broker or this proxy ends, and the board's connection
            pass
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for end in ends:
                end.transport.abort()
            self._tasks.discard(task)

    async def _pump(self, source, sink, back, up):
        while True:
            first, body = await _read_packet(source)
            if first & 0xF0 != _PUBLISH:
                sink.write(_packet(first, body))
            else:
                self._message(first, body, sink, back, up)
            await sink.drain()

    def _message(self, first, body, sink, back, up):
        n = int.from_bytes(body[:2], "big")
        topic = body[: 2 + n]
        qos = first >> 1 & 3
        number = body[2 + n : 4 + n] if qos else b""
        payload = body[2 + n + len(number) :]
        if up:
            self._look(payload)
        out = self.faults.apply(payload, up)
        if not out and qos:
            back.write(_packet(0x40, number))
        for i, (delay, changed) in enumerate(out):
            if i == 0:
                packet = _packet(first, topic + number + changed)
            else:  # another copy, at QoS 0: nobody acknowledges it
                packet = _packet(_PUBLISH, topic + changed)
            if delay:
                self._loop.call_later(delay, _write, sink, packet)
            else:
                sink.write(packet)

    def _look(self, frame):
        if len(frame) == _ERROR_BYTES and frame[0] == wire.ERROR:
            self.errors[wire.error_name(frame[9])] += 1
        if frame[:1] == bytes((wire.REPORTS,)):
            for report in report_frames.reports_of(frame):
                self._look(report)
        if len(frame) < 17 or frame[0] != wire.REPORT:
            return
        self.reports += 1
        address = struct.unpack_from("<II", frame, 1)
        digest = hashlib.sha256(frame).digest()
        if self._hashes.setdefault(address, digest) != digest:
            self.different.append(address)


def _write(sink, packet):
    if not sink.transport.is_closing():
        sink.write(packet)


async def _read_packet(reader):
    first = (await reader.readexactly(1))[0]
    size = shift = 0
    while True:
        byte = (await reader.readexactly(1))[0]
        size |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return first, await reader.readexactly(size)


def _packet(first, body):
    return bytes((first,)) + length(len(body)) + body
