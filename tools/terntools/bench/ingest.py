"""How fast reports come in through a broker: checked, deduplicated, committed and counted, beside merely counted.

A process of its own makes the reports of a fleet beforehand and publishes them over one connection, as fast as the host
takes them. The same client library then counts the same messages and does nothing else: before the reports are taken
in, and once more after, since a machine is not always equally fast.
"""

from __future__ import annotations

import asyncio
import contextlib
import cProfile
import hashlib
import multiprocessing
import pstats
import resource
import socket
import struct
import sys
import tempfile
import threading
import time
from array import array
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from gmqtt.mqtt.constants import MQTTv311

from tern import card as cards
from tern import frames, wire
from tern.links import mqtt
from ternhost import mechanisms
from ternhost.aggregate.aggregator import Aggregator
from ternhost.aggregate.questions import Question
from ternhost.aggregate.store import Store
from ternhost.errors import DeviceError, UsageError
from ternhost.fleet.broker import write_configuration
from ternhost.links.access import Access
from ternhost.links.mqtt import Client, MqttLink
from terntools.mosquitto import Mosquitto, free_port

DIMENSION = 28
_EPSILON = 2_000_000
_K = 1
_DEVICES = 20_000
_AHEAD = 60_000  # messages that the load is ahead of the host, at most
_REPEATED = 100  # every so many reports one is sent twice
_CHUNK = 200
_PATIENCE = 30.0


@dataclass(frozen=True)
class Load:
    """What is published: `reports` different ones of `devices` devices, round after round, and the repetitions."""

    reports: int
    devices: int
    qos: int
    port: int
    password: str

    @property
    def rounds(self) -> int:
        return -(-self.reports // self.devices)

    @property
    def messages(self) -> int:
        return self.reports + self.reports // _REPEATED

    def in_round(self, number: int) -> int:
        """How many devices report in round 1, 2, ..."""
        return min(self.devices, self.reports - (number - 1) * self.devices)


def key_of(device: int) -> bytes:
    """The key of a device of this load; it protects nothing."""
    return hashlib.sha256(b"ingest %d" % device).digest()


def run(reports: int, *, qos: int = 1, devices: int = _DEVICES, profile: bool = False) -> dict[str, Any]:
    """Measure; `profile`: print where the time goes. Raises UsageError and DeviceError (no mosquitto)."""
    if reports < 1 or devices < 1 or qos not in (0, 1):
        raise UsageError(
            f"--reports must be 1 or more, not {reports}, of at least one device, at QoS 0 or 1",
            hint="such as --reports 100000",
        )
    devices = min(devices, reports)
    with tempfile.TemporaryDirectory(prefix="tern-ingest-") as directory:
        access = write_configuration(
            Path(directory) / "broker",
            {1: key_of(1)},
            port=free_port(),
            tls=False,
            persistence=False,
            queued=0,
        )
        load = Load(reports, devices, qos, access.port, mqtt.password(key_of(1)))
        with Mosquitto(Path(directory) / "broker"), _Loader(load) as loader:
            before = asyncio.run(_count(access, load, loader))
            with Store(Path(directory) / "store.sqlite") as store:
                profiler = cProfile.Profile() if profile else contextlib.nullcontext()
                with profiler:
                    found = asyncio.run(_ingest(access, load, loader, store))
                if isinstance(profiler, cProfile.Profile):
                    pstats.Stats(profiler, stream=sys.stderr).sort_stats("tottime").print_stats(25)
            after = asyncio.run(_count(access, load, loader))
    counting = 2 / (1 / before + 1 / after)
    return {
        "reports": reports,
        "devices": devices,
        "rounds": load.rounds,
        "qos": qos,
        "messages": load.messages,
        "client_only_messages_per_s": round(counting, 1),
        "ratio": round(found["messages_per_s"] / counting, 4),
        **found,
    }


# The load, in a process of its own


class _Loader:
    """The process that publishes. `start` has it publish everything once; `taken` lets it go on."""

    def __init__(self, load: Load) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, child = context.Pipe()
        self._process = context.Process(target=_publish, args=(load, child), daemon=True)
        self._process.start()
        child.close()

    def start(self) -> None:
        self._pipe.send(-1)

    def taken(self, messages: int) -> None:
        """The host has taken so many messages since `start`."""
        self._pipe.send(messages)

    def __enter__(self) -> _Loader:
        try:
            self._pipe.recv()  # everything is made
        except EOFError:
            raise DeviceError("the load could not be made", hint="see the messages above") from None
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join()


def _publish(load: Load, pipe: Connection) -> None:
    chunks = list(_chunks(load))
    pipe.send("ready")
    connection = _connect(load)
    threading.Thread(target=_drain, args=(connection,), daemon=True).start()
    while True:
        assert pipe.recv() == -1
        taken = sent = 0
        for messages, data in chunks:
            while sent - taken > _AHEAD or pipe.poll():
                taken = pipe.recv()
            connection.sendall(data)
            sent += messages
        while taken < sent:
            taken = pipe.recv()


def _drain(connection: socket.socket) -> None:
    while connection.recv(65536):
        pass


def _field(data: bytes) -> bytes:
    return struct.pack(">H", len(data)) + data


def _connect(load: Load) -> socket.socket:
    # A publisher that needs as little of the processor as can be: the host and the broker are to have it.
    board = mqtt.name(1).encode()
    body = _field(b"MQTT") + b"\x04\xc2" + struct.pack(">H", 3600)
    body += _field(board) + _field(board) + _field(load.password.encode())
    connection = socket.create_connection(("127.0.0.1", load.port))
    connection.sendall(bytes((0x10, len(body))) + body)
    if connection.recv(4) != b"\x20\x02\x00\x00":
        raise ConnectionError("refused by the broker")
    return connection


def _chunks(load: Load) -> Any:
    """(messages, MQTT packets) one after the other."""
    topic = _field((mqtt.UP % ("tern", mqtt.name(1))).encode())
    card = _card()
    source = np.random.Generator(np.random.SFC64(1))
    size = frames.packed_size(card.symbols, _K)
    symbols = array("H", bytes(2 * _K))
    out = bytearray(64)
    packets: list[bytes] = []
    made = packet_id = 0
    device_keys = [key_of(device) for device in range(1, load.devices + 1)]
    for number in range(1, load.rounds + 1):
        order = source.permutation(load.in_round(number))
        drawn = source.integers(0, card.symbols, (len(order), _K))
        for index, values in zip(order.tolist(), drawn.tolist(), strict=True):
            for i in range(_K):
                symbols[i] = values[i]
            n = frames.encode_report(
                out, device_keys[index], index + 1, number, symbols, _K, card.symbols, size
            )
            made += 1
            for _ in range(2 if made % _REPEATED == 0 else 1):
                packet_id = packet_id % 65535 + 1
                body = topic + (struct.pack(">H", packet_id) if load.qos else b"") + out[:n]
                packets.append(bytes((0x30 | load.qos << 1, len(body))) + body)
            if len(packets) >= _CHUNK:
                yield len(packets), b"".join(packets)
                packets = []
    if packets:
        yield len(packets), b"".join(packets)


def _card() -> cards.Card:
    card: cards.Card = cards.decode(mechanisms.design("three-outputs", epsilon_micro=_EPSILON).card)
    return card


async def _in_time(subscribed: asyncio.Event) -> None:
    try:
        await asyncio.wait_for(subscribed.wait(), _PATIENCE)
    except TimeoutError:
        raise DeviceError("the broker does not answer") from None


# Merely counting


async def _count(access: Access, load: Load, loader: _Loader) -> float:
    """Messages a second that the client library counts."""
    client = Client("counter")
    client.set_auth_credentials(access.user, access.password)
    counted = 0
    first = last = 0.0
    told = 0

    def on_message(*_: Any) -> int:
        nonlocal counted, first
        if not counted:
            first = time.perf_counter()
        counted += 1
        return 0

    subscribed = asyncio.Event()
    client.on_message = on_message
    client.on_subscribe = lambda *_: subscribed.set()
    await client.connect(access.host, access.port, version=MQTTv311)
    client.subscribe(mqtt.UP % (access.prefix, "+"), qos=load.qos)
    await _in_time(subscribed)
    loader.start()
    idle = time.perf_counter()
    while counted < load.messages:
        await asyncio.sleep(0.02)
        if counted != told:
            told = counted
            loader.taken(told)
            idle = last = time.perf_counter()
        elif time.perf_counter() - idle > _PATIENCE:
            raise DeviceError(f"only {counted} of {load.messages} messages came through the broker")
    await client.disconnect()
    return counted / (last - first)


# Taking in


async def _ingest(access: Access, load: Load, loader: _Loader, store: Store) -> dict[str, Any]:
    card = _card()
    store.add_devices({device: key_of(device) for device in range(1, load.devices + 1)})
    aggregator = Aggregator(store)
    question = Question(wire.LOGISTIC, [0] * DIMENSION, wire.MAX_EXPONENT, bytes(card.data), _K)
    opened = 0

    def open_rounds() -> None:
        nonlocal opened
        while opened < load.rounds and len(aggregator.in_flight()) < 2 + _AHEAD // load.devices:
            opened += 1
            asked = range(1, load.in_round(opened) + 1)
            aggregator.open(opened, [(question, asked)], time.monotonic())

    open_rounds()
    link = MqttLink(access, qos=load.qos)
    await link.connect()
    await _in_time(link.subscribed)
    memory = []
    counted = taken = 0
    started = used = 0.0
    loader.start()
    while taken < load.messages:
        if not taken:
            await link.wait(_PATIENCE)
            started, used = time.perf_counter(), time.process_time()
        batch = await link.take(_PATIENCE)
        if not batch:
            break
        taken += len(batch)
        aggregator.accept(batch, time.monotonic())
        for result in aggregator.tick(time.monotonic()):
            counted += sum(int(cohort.counts.sum()) for cohort in result.cohorts) // _K
            store.end_round(result.number, result.ended)
            memory.append(_rss())
        open_rounds()
        loader.taken(taken)
    seconds, used = time.perf_counter() - started, time.process_time() - used
    await link.close()
    stored = store.report_count()
    memory = memory[:: max(1, len(memory) // 20)]
    return {
        "reports_per_s": round(stored / seconds, 1),
        "messages_per_s": round(taken / seconds, 1),
        "seconds": round(seconds, 3),
        "cpu_seconds": round(used, 3),
        "lost": load.reports - stored,
        "counted_twice": max(0, counted - stored),
        "not_counted": max(0, stored - counted),
        "duplicates": aggregator.statistics.duplicate,
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        * (1 if sys.platform == "darwin" else 1024),
        "rss_bytes": memory,
    }


def _rss() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()
