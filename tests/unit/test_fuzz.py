"""Every decoder against random bytes and against good inputs that were altered: it refuses as it says, or takes them.

What a decoder may raise is written down here; anything else fails the test. Seeds: tests/corpus and the vectors.
"""

import json
import os
import subprocess
import sys
from array import array
from pathlib import Path

import numpy as np
import pytest
from harness import answers
from hypothesis import given, settings
from hypothesis import strategies as st

from tern import bench, card, frames, host_frames, ledger, storage, wire
from tern.mqtt import MqttError, Session
from tern.tcp import Lost
from ternhost.aggregate import batches
from ternhost.aggregate.aggregator import Aggregator
from ternhost.aggregate.questions import Question, round_body
from ternhost.aggregate.store import Store
from ternhost.errors import StorageError, UsageError
from ternhost.links.access import Access
from ternhost.mechanisms import design

ROOT = Path(__file__).parents[2]
VECTORS = ROOT / "shared_specs" / "vectors"
CORPUS = ROOT / "tests" / "corpus"
KEY = bytes(32)


def corpus(name):
    lines = (CORPUS / name).read_text().splitlines()
    return [bytes.fromhex(line) for line in lines if line and not line.startswith("#")]


def strings(value):
    """Every string of hexadecimal digits in a file of vectors."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from strings(item)
    elif isinstance(value, str) and len(value) >= 4 and len(value) % 2 == 0:
        try:
            yield bytes.fromhex(value)
        except ValueError:
            return


def vectors(name):
    return sorted(set(strings(json.loads((VECTORS / name).read_text()))))


FRAMES = vectors("frames.json")
CARDS = vectors("cards.json")
LEDGERS = vectors("ledger.json")
MQTT = corpus("mqtt.txt")
COBS = vectors("cobs.json")


@st.composite
def altered(draw, seeds):
    """One of the seeds after a few bits were flipped, bytes cut out, put in or repeated; or random bytes."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=300))
    data = bytearray(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(("flip", "cut", "put", "end", "repeat")))
        at = draw(st.integers(0, max(0, len(data) - 1)))
        if kind == "flip" and data:
            data[at] ^= 1 << draw(st.integers(0, 7))
        elif kind == "cut":
            del data[at : at + draw(st.integers(1, 8))]
        elif kind == "put":
            data[at:at] = draw(st.binary(min_size=1, max_size=8))
        elif kind == "end":
            del data[at:]
        elif kind == "repeat":
            data += data[at:]
    return bytes(data[:4000])


def both(data):
    """The same bytes with the tag that they have, and with the right one: so that what stands behind it is reached."""
    yield data
    for key in (b"", KEY):
        if 1 <= len(data) <= wire.MAX_FRAME - wire.TAG_BYTES:
            yield data + frames.tag(key, data)
        if len(data) > wire.TAG_BYTES:
            yield data[: -wire.TAG_BYTES] + frames.tag(key, data[: -wire.TAG_BYTES])


def refuses(allowed, function, *arguments):
    try:
        return function(*arguments)
    except allowed:
        return None


@settings(max_examples=400)
@given(altered(FRAMES))
def test_frames(data):
    out = array("H", bytes(2 * 128))
    for frame in both(data):
        for view in (frame, memoryview(frame)):
            refuses(frames.FrameError, frames.kind, view)
            refuses(frames.FrameError, frames.address, view)
            refuses(frames.FrameError, frames.is_for_fleet, view)
            refuses(frames.FrameError, frames.verify, KEY, view)
            refuses(frames.FrameError, frames.Round().decode, view)
            refuses(frames.FrameError, frames.decode_hello_request, view)
            refuses(frames.FrameError, bench.decode_bench_request, view)
            refuses(frames.FrameError, host_frames.Hello, frame)
            refuses(frames.FrameError, host_frames.decode_error, view, KEY)
            refuses(frames.FrameError, host_frames.decode_bench, view)
            refuses(frames.FrameError, host_frames.decode_report, view, KEY, 28, 3, out)


@settings(max_examples=400)
@given(altered(CARDS))
def test_cards(data):
    decoded = refuses(card.CardError, card.decode, data)
    if decoded is not None:
        assert card.certify(decoded) in (True, False)


@settings(max_examples=200)
@given(altered(COBS))
def test_cobs(data):
    receiver = frames.Receiver(64)
    receiver.give(data)
    got = 0
    while (n := receiver.next()) != frames.MORE:
        assert n == frames.DAMAGED or 0 <= n <= 64
        got += 1
    assert got <= data.count(0)


@settings(max_examples=200)
@given(st.binary(max_size=200), st.integers(1, 128), st.integers(2, 65536))
def test_packed_symbols(data, k, base):
    out = array("H", bytes(2 * 128))
    one = refuses(frames.FrameError, lambda: host_frames.unpack(data, k, base, out) or True)
    if len(data) == batches.packed_size(base, k):
        symbols, good = batches.unpack(np.frombuffer(data, np.uint8)[None], k, base)
        assert bool(good[0]) == bool(one)
        if one:
            assert symbols[0].tolist() == out[:k].tolist()
    else:
        assert one is None


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


@settings(max_examples=200)
@given(altered(LEDGERS))
def test_ledgers(folder, data):
    path = folder / "ledger"
    path.write_bytes(data)
    book = ledger.Ledger()
    if refuses(ledger.LedgerError, lambda: book.load(str(path)) or True):
        assert 0 <= book.spent <= book.budget <= ledger.MAX_BUDGET


@settings(max_examples=200)
@given(st.binary(max_size=120))
def test_files_of_a_board(folder, data):
    path = folder / "file"
    for content in (data, storage.FLEET_MAGIC + data[:40], storage.MAGIC + data):
        path.write_bytes(content)
        refuses(storage.StorageError, storage.read_fleet, str(path))
        refuses(storage.StorageError, storage.Clients, str(path))
        refuses(storage.StorageError, storage.Records, str(path))


@settings(max_examples=100)
@given(st.binary(max_size=100) | st.text(max_size=100).map(lambda text: json.dumps({"host": text}).encode()))
def test_host_json(folder, data):
    (folder / "host.json").write_bytes(data)
    refuses((UsageError, StorageError), Access.load, folder / "host.json")


class Line:
    """A connection that holds `data`, in pieces of `step` bytes, and then nothing."""

    def __init__(self, data, step):
        self.data = data
        self.step = step

    def read_into(self, view):
        n = min(len(view), len(self.data), self.step)
        if not n:
            raise Lost("at its end")
        view[:n] = self.data[:n]
        self.data = self.data[n:]
        return n

    def write(self, view, timeout_ms):
        pass

    def wait(self, timeout_ms):
        pass

    def close(self):
        pass


@settings(max_examples=600)
@given(altered(MQTT), st.sampled_from((1, 2, 3, 1000)))
def test_mqtt_packets(data, step):
    talk(data, step)


@pytest.mark.parametrize("data", MQTT, ids=bytes.hex)
def test_mqtt_corpus(data):
    for step in (1, 2, 1000):
        talk(data, step)


def talk(data, step):
    session = Session(lambda: Line(data, step), b"x", largest=128, window=2, slot=64)
    out = memoryview(bytearray(32))
    received = 0
    try:
        session.open()
        session.subscribe(b"t")
        session.publish(b"t", b"x", 1, 1)
        while session.receive(0):
            assert len(session.topic) > 0
            assert len(session.topic) + len(session.payload) < 128
            session.take(out)
            session.publish(b"t", b"y", 1, 1)
            received += 1
    except (Lost, MqttError):
        pass
    assert received <= len(data)


def test_a_host_counts_no_hostile_frame_and_forgets_it(folder):
    """Frames of every kind of damage, by the hundred thousand: none accepted, and no memory kept.

    In a process of its own, whose memory is nobody else's, and without huge pages: one alone has 2 MB.
    """
    code = (
        "import ctypes, json, sys; ctypes.CDLL(None).prctl(41, 1, 0, 0, 0); from harness.hostile import assault; "
        "print(json.dumps(assault(sys.argv[1], 100_000)))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, folder / "hostile.sqlite"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "tests"), *sys.path))},
        stdout=subprocess.PIPE,
        check=True,
    )
    result = json.loads(ended.stdout)
    assert result["accepted"] == 0
    assert result["frames"] == 100_000
    assert result["reports"] == result["refused"] > 250_000
    assert result["grown_bytes"] < 2_000_000


def test_an_aggregator_still_takes_what_is_good(tmp_path):
    with Store(tmp_path / "store.sqlite") as store:
        store.add_devices({1: KEY})
        aggregator = Aggregator(store)
        data = design("three-outputs", epsilon_micro=1_000_000).card
        asked = Question(wire.LOGISTIC, [0] * 5, -14, data, 1)
        aggregator.open(1, [(asked, [1])], 0.0)
        good = answers.report(answers.question(KEY, 1, round_body(1, asked)), 1, 1, b"\2")
        aggregator.accept([b"", b"\x82", good[:-1], good], 0.0)
        assert aggregator.reports(1) == 1
