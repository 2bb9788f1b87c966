"""Measures how fast a host takes reports in through a broker, compared with a client that merely
counts messages.

    python -m benchmarks.ingest [--reports N] [--batch N] [--bridge]

Another process makes the reports of a fleet beforehand and publishes them over one connection, as
fast as the host takes them: each by itself, or many in a REPORTS frame. The host verifies,
deduplicates, commits and counts them. The same client library also counts the same messages and
does nothing else: before the intake and after it, since a machine is not always equally fast. In
the end every report in the store is compared with the one sent.
"""

import argparse
import asyncio
import contextlib
import json
import resource
import socket
import struct
import sys
import tempfile
import threading
import time
from collections import deque
from pathlib import Path

from gmqtt.mqtt.constants import MQTTv311
from harness.raw_client import field, length
from spec import answers

from benchmarks import brokers, resident
from benchmarks.child import Child
from benchmarks.ingest_load import REPEATED, K, Load, key_of, question
from tern import frames, wire
from tern.links import mqtt
from ternhost.count.aggregator import Aggregator
from ternhost.count.questions import round_body, round_start
from ternhost.errors import DeviceError
from ternhost.reach.broker.link import MqttLink
from ternhost.reach.broker.mqtt_client import Client
from ternhost.store import store_file
from ternhost.store.store import Store

DEVICES = 20_000
_MOST_SINGLE = 200_000  # reports that are sent one by one, to compare with
_CHUNK, _PATIENCE = 200, 30.0
MOST_IN_A_FRAME = (wire.MAX_FRAME - frames.end_of(wire.REPORTS_FIELDS)) // (4 + 1 + wire.TAG_BYTES)

# Fields of a result that must be 0.
MISTAKES = ("lost", "counted_twice", "not_counted", "not_as_sent")


def run(
    reports,
    *,
    batch=1,
    devices=DEVICES,
    bridge=False,
):
    """Measure the intake of reports; return the figures. Raises DeviceError (no mosquitto).

    batch: reports in a message; if more than 1, some are sent one by one first, to compare. bridge:
    send them to a site's broker, and some to the host's own first, to compare.
    """
    if batch == 1 and not bridge:
        return measure(reports, 1, devices)
    name, sent = (
        ("direct", (reports, batch)) if bridge else ("single", (min(reports, _MOST_SINGLE), 1))
    )
    rate = measure(*sent, devices)["reports_per_s"]
    result = measure(reports, batch, devices, bridge)
    times = round(result["reports_per_s"] / rate, 2)
    return {**result, f"{name}_reports_per_s": rate, f"times_{name}": times}


def measure(reports, batch, devices, bridge=False):
    """Measure once, as `run` does, without a comparison."""
    devices = min(devices, reports)
    with (
        tempfile.TemporaryDirectory(prefix="tern-ingest-") as directory,
        contextlib.ExitStack() as stack,
    ):
        path = Path(directory) / store_file.NAME
        access, port = stack.enter_context(
            brokers.running(path.with_name("broker"), {1: key_of(1)}, bridge)
        )
        load = Load(reports, devices, batch, port, mqtt.password(key_of(1)))
        loader = stack.enter_context(_Loader(load))
        before = asyncio.run(_count(access, load, loader))
        with Store(path) as store:
            store.add_devices({device: key_of(device) for device in range(1, devices + 1)})
        empty = path.stat().st_size
        with Store(path) as store:
            figures = asyncio.run(_ingest(access, load, loader, store))
            wrong = sum(_wrong(store, load, number) for number in range(1, load.rounds + 1))
        stored = path.stat().st_size - empty
        after = asyncio.run(_count(access, load, loader))
    counting = 2 / (1 / before + 1 / after)
    return {
        "reports": reports,
        "batch": batch,
        "devices": devices,
        "rounds": load.rounds,
        "messages": load.messages,
        "client_only_messages_per_s": round(counting, 1),
        "ratio": round(figures["messages_per_s"] / counting, 4),
        **figures,
        "not_as_sent": wrong,
        "stored_bytes_per_report": round(stored / reports, 2),
    }


def _wrong(store, load, number):
    # The number of reports of a round in the store that differ from those sent.
    devices, packed = load.drawn(number)
    stored = store.reports(number)
    sent = sorted(zip(devices.tolist(), (row.tobytes() for row in packed), strict=True))
    return len(set(stored) ^ set(sent)) + len(stored) - len(set(stored))


# The load, in a process of its own


class _Loader(Child):
    """The process that publishes. All messages are made once the context manager is entered.

    `start` makes it publish everything once; `taken` lets it go on.
    """

    def __init__(self, load):
        super().__init__(_publish, (load,), failure="the load could not be made")

    def start(self):
        self.pipe.send(-1)

    def taken(self, messages):
        """Report the number of messages that the host has taken since `start`."""
        self.pipe.send(messages)


def _publish(load, pipe):
    chunks = list(_chunks(load))
    pipe.send("ready")
    connection = _connect(load)
    threading.Thread(target=_drain, args=(connection,), daemon=True).start()
    while True:
        assert pipe.recv() == -1
        taken = sent = 0
        for messages, data in chunks:
            while sent - taken > load.ahead or pipe.poll():
                taken = pipe.recv()
            connection.sendall(data)
            sent += messages
        while taken < sent:
            taken = pipe.recv()


def _drain(connection):
    while connection.recv(65536):
        pass


def _connect(load):
    # A publisher that uses as little of the processor as possible, which host and broker need.
    board = mqtt.name(1).encode()
    body = field(b"MQTT") + b"\x04\xc2" + struct.pack(">H", 3600)
    body += field(board) + field(board) + field(load.password.encode())
    connection = socket.create_connection(("127.0.0.1", load.port))
    connection.sendall(bytes((0x10, len(body))) + body)
    if connection.recv(4) != b"\x20\x02\x00\x00":
        raise ConnectionError("refused by the broker")
    return connection


def _chunks(load):
    """Yield (number of messages, their MQTT packets)."""
    topic = field((mqtt.UP % ("tern", mqtt.name(1))).encode())
    packets = []
    packet_id = 0
    for number, payload in enumerate(_payloads(load), 1):
        for _ in range(2 if number % REPEATED == 0 else 1):
            packet_id = packet_id % 65535 + 1
            body = topic + struct.pack(">H", packet_id) + payload
            packets.append(b"\x32" + length(len(body)) + body)  # QoS 1
        if len(packets) >= _CHUNK:
            yield len(packets), b"".join(packets)
            packets = []
    if packets:
        yield len(packets), b"".join(packets)


def _payloads(load):
    """Yield the REPORT or REPORTS frames."""
    keys = [key_of(device) for device in range(1, load.devices + 1)]
    for number in range(1, load.rounds + 1):
        request = round_start(1) + round_body(number, question()) + bytes(wire.TAG_BYTES)
        reports = []
        devices, symbols = load.drawn(number)
        for device, packed in zip(devices.tolist(), symbols, strict=True):
            digest = frames.question(
                keys[device - 1], round_start(device), request[5 : -wire.TAG_BYTES]
            )
            report = struct.pack("<BII", wire.REPORT, device, number) + packed.tobytes()
            reports.append(report + frames.tag(frames.answer_key(digest), report))
        if load.batch == 1:
            yield from reports
            continue
        for start in range(0, len(reports), load.batch):
            yield answers.reports(*reports[start : start + load.batch])


async def _in_time(subscribed):
    try:
        await asyncio.wait_for(subscribed.wait(), _PATIENCE)
    except TimeoutError:
        raise DeviceError("the broker does not answer") from None


# Merely counting


async def _count(access, load, loader):
    """The number of messages that the client library counts in a second."""
    client = Client(deque(access.hosts), access.user, access.password)
    counted = 0
    first = last = 0.0
    reported = 0

    def on_message(*_):
        nonlocal counted, first
        if not counted:
            first = time.perf_counter()
        counted += 1
        return 0

    subscribed = asyncio.Event()
    client.on_message = on_message
    client.on_subscribe = lambda *_: subscribed.set()
    await client.connect(access.host, access.port, version=MQTTv311)
    client.subscribe(mqtt.UP % (access.prefix, "+"), qos=1)
    await _in_time(subscribed)
    loader.start()
    idle = time.perf_counter()
    while counted < load.messages:
        await asyncio.sleep(0.02)
        if counted != reported:
            reported = counted
            loader.taken(reported)
            idle = last = time.perf_counter()
        elif time.perf_counter() - idle > _PATIENCE:
            raise DeviceError(f"only {counted} of {load.messages} messages came through the broker")
    await client.disconnect()
    return counted / (last - first)


# Taking in


async def _ingest(access, load, loader, store):
    aggregator, opened = Aggregator(store), 0

    def open_rounds():
        nonlocal opened
        most = 2 + load.ahead * load.batch // load.devices
        while opened < load.rounds and len(aggregator.in_flight()) < most:
            opened += 1
            devices = range(1, load.in_round(opened) + 1)
            aggregator.open(opened, [(question(), devices)], time.monotonic())

    open_rounds()
    link = MqttLink(access)
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
        now = time.monotonic()
        for result in filter(
            None, (aggregator.ended(number, now) for number in aggregator.in_flight())
        ):
            counted += sum(int(cohort.counts.sum()) for cohort in result.cohorts) // K
            store.end_round(result.number, result.ended)
            memory.append(resident())
        open_rounds()
        loader.taken(taken)
    seconds, used = time.perf_counter() - started, time.process_time() - used
    await link.close()
    stored = store.report_count()
    memory = memory[:: max(1, len(memory) // 20)]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )
    return {
        "reports_per_s": round(stored / seconds, 1),
        "messages_per_s": round(taken / seconds, 1),
        "seconds": round(seconds, 3),
        "cpu_seconds": round(used, 3),
        "lost": load.reports - stored,
        "counted_twice": max(0, counted - stored),
        "not_counted": max(0, stored - counted),
        "duplicates": aggregator.statistics.duplicate,
        "peak_rss_bytes": peak,
        "rss_bytes": memory,
    }


def main():
    parser = argparse.ArgumentParser(
        description="Time the intake of reports; prints one JSON object."
    )
    parser.add_argument("--reports", type=int, default=100_000, help="number of reports to publish")
    batch = {"type": int, "default": 1, "choices": range(1, MOST_IN_A_FRAME + 1), "metavar": "N"}
    parser.add_argument("--batch", **batch, help="reports in a message, compared with one in each")
    parser.add_argument(
        "--bridge", action="store_true", help="use a site's broker, too, to compare"
    )
    args = parser.parse_args()
    result = run(args.reports, batch=args.batch, bridge=args.bridge)
    print(json.dumps(result, indent=1))
    return any(result.get(name) for name in MISTAKES)


if __name__ == "__main__":
    sys.exit(main())
