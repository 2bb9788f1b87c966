"""Properties of frames, over inputs that nobody chose."""

from __future__ import annotations

import contextlib
import hmac
import struct
from array import array
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tern import bench, frames, host_frames, wire

keys = st.binary(min_size=wire.KEY_BYTES, max_size=wire.KEY_BYTES)
u32 = st.integers(0, 2**32 - 1)


@st.composite
def rounds(draw: st.DrawFn) -> dict[str, Any]:
    parameters = draw(st.lists(st.integers(-32768, 32767), min_size=1, max_size=wire.MAX_DIMENSION))
    collects = draw(st.booleans())
    if collects:
        parameters = [value or 1 for value in parameters]
    gradients, locals_ = range(wire.LINEAR, wire.SOFTMAX), range(wire.SOFTMAX + 1, wire.VALUES)
    model = draw(st.sampled_from((wire.VALUES, wire.CATEGORIES) if collects else (*gradients, *locals_)))
    local = model in locals_
    return {
        "device": draw(st.integers(1, 2**32 - 1)),
        "round_number": draw(st.integers(1, wire.MAX_ROUND)),
        "model": model,
        "exponent": draw(
            st.integers(wire.MIN_LOCAL_EXPONENT if local else wire.MIN_EXPONENT, wire.MAX_EXPONENT)
        ),
        "k": draw(st.integers(1, len(parameters))),
        "batch": draw(st.integers(0, wire.MAX_BATCH)),
        "deadline": draw(st.integers(0, 65535)),
        "parameters": array("h", parameters),
        "card": draw(st.binary(min_size=1, max_size=wire.MAX_CARD)),
        "local": draw(
            st.tuples(st.integers(1, 255), st.integers(0, wire.MAX_RATE), st.integers(1, wire.MAX_TAU))
            if local
            else st.just(())
        ),
    }


@st.composite
def packings(draw: st.DrawFn) -> tuple[int, list[int]]:
    base = draw(st.integers(2, wire.MAX_BASE))
    return base, draw(st.lists(st.integers(0, base - 1), min_size=1, max_size=wire.MAX_DIMENSION))


def round_trip(data: bytes, cuts: list[int]) -> bytes:
    coded = bytearray(frames.cobs_size(len(data)))
    n = frames.cobs_encode(data, len(data), coded)
    assert n <= len(coded)
    assert coded[:n].index(0) == n - 1
    receiver = frames.Receiver()
    ends = sorted({min(cut, n) for cut in cuts} | {n})
    start = 0
    for end in ends:
        receiver.give(bytes(coded[start:end]))
        length = receiver.next()
        assert (length == frames.MORE) == (end < n)
        start = end
    return bytes(receiver.frame[:length])


@given(st.binary(max_size=wire.MAX_FRAME), st.lists(st.integers(1, 2600), max_size=5))
def test_cobs_round_trip(data: bytes, cuts: list[int]) -> None:
    assert round_trip(data, cuts) == data


@given(st.lists(st.sampled_from([b"\x01", b"\xff", b"\x00\x00", b"\x02\x00"]), max_size=1300))
def test_cobs_round_trip_of_few_symbols(parts: list[bytes]) -> None:
    data = b"".join(parts)[: wire.MAX_FRAME]
    assert round_trip(data, [7]) == data


@given(st.binary(max_size=6000), st.integers(1, 300), st.binary(min_size=1, max_size=200))
def test_receiver_is_right_again_after_any_noise(noise: bytes, limit: int, data: bytes) -> None:
    receiver = frames.Receiver(limit)
    receiver.give(noise)
    while (n := receiver.next()) != frames.MORE:
        assert n == frames.DAMAGED or 0 <= n <= limit
    coded = bytearray(frames.cobs_size(len(data)))
    n = frames.cobs_encode(data, len(data), coded)
    receiver.give(b"\x00" + bytes(coded[:n]))
    receiver.next()
    expected = len(data) if len(data) <= limit else frames.DAMAGED
    assert receiver.next() == expected
    assert len(receiver.frame) == limit
    if expected > 0:
        assert receiver.frame[:expected] == data


@given(packings())
def test_packing_is_the_number_in_base_m(packing: tuple[int, list[int]]) -> None:
    base, symbols = packing
    k = len(symbols)
    size = frames.packed_size(base, k)
    assert 256 ** (size - 1) < base**k <= 256**size
    out = bytearray(size)
    assert 0 <= frames.pack(array("H", symbols), k, base, out, 0, size) <= size
    assert int.from_bytes(out, "little") == sum(s * base**i for i, s in enumerate(symbols))
    back = array("H", bytes(2 * k))
    host_frames.unpack(bytes(out), k, base, back)
    assert back.tolist() == symbols


@given(packings(), st.data())
def test_numbers_too_large_are_refused(packing: tuple[int, list[int]], data: st.DataObject) -> None:
    base, symbols = packing
    k = len(symbols)
    size = frames.packed_size(base, k)
    if base**k == 256**size:
        return
    number = data.draw(st.integers(base**k, 256**size - 1))
    refused(
        wire.ERR_FRAME, host_frames.unpack, number.to_bytes(size, "little"), k, base, array("H", bytes(2 * k))
    )


def refused(code: int, function: Any, *args: Any) -> None:
    with pytest.raises(frames.FrameError) as refusal:
        function(*args)
    assert refusal.value.code == code


@given(st.binary(max_size=64), st.binary(max_size=500))
def test_tag_is_hmac(key: bytes, data: bytes) -> None:
    assert frames.tag(key, data) == hmac.digest(key, data, "sha256")[:8]


@given(rounds(), keys)
def test_round_comes_back(fields: dict[str, Any], key: bytes) -> None:
    out = bytearray(wire.MAX_FRAME)
    n = host_frames.encode_round(out, key, **fields)
    frame = memoryview(out)[:n]
    frames.verify(key, frame)
    decoded = frames.Round()
    decoded.decode(frame)
    for name, value in fields.items():
        assert getattr(decoded, {"round_number": "round"}.get(name, name)) == value
    assert decoded.d == len(fields["parameters"])
    assert decoded.tag == bytes(frame[-8:])


@given(rounds(), keys, st.data())
def test_any_other_round_does_not_verify(fields: dict[str, Any], key: bytes, data: st.DataObject) -> None:
    out = bytearray(wire.MAX_FRAME)
    n = host_frames.encode_round(out, key, **fields)
    frame = bytearray(out[:n])
    how = data.draw(st.sampled_from(["flip", "cut", "grow", "exchange"]))
    at = data.draw(st.integers(0, n - 1))
    if how == "flip":
        frame[at] ^= data.draw(st.integers(1, 255))
    elif how == "cut":
        del frame[at:]
    elif how == "grow":
        frame[at:at] = data.draw(st.binary(min_size=1, max_size=5))
    else:
        other = data.draw(st.integers(0, n - 1))
        frame[at], frame[other] = frame[other], frame[at]
    if frame != out[:n]:
        refused(wire.ERR_TAG, frames.verify, key, bytes(frame))


DECODERS = {
    "hello_request": lambda frame, key: frames.decode_hello_request(frame),
    "hello": lambda frame, key: host_frames.Hello(frame),
    "round": lambda frame, key: frames.Round().decode(frame),
    "report": lambda frame, key: host_frames.decode_report(frame, key, 5, 3, array("H", bytes(10))),
    "bench_request": lambda frame, key: bench.decode_bench_request(frame),
    "bench": lambda frame, key: host_frames.decode_bench(frame),
    "error": lambda frame, key: host_frames.decode_error(frame, key),
    "address": lambda frame, key: frames.address(frame),
}
TYPES = [wire.HELLO_REQUEST, wire.ROUND, wire.BENCH_REQUEST, wire.HELLO, wire.REPORT, wire.BENCH, wire.ERROR]


@given(st.sampled_from(sorted(DECODERS)), st.sampled_from(TYPES), st.binary(max_size=600))
def test_decoders_raise_nothing_but_frame_errors(name: str, kind: int, body: bytes) -> None:
    # With tags that verify, so that what lies behind them is reached.
    data = bytes([kind]) + body
    for frame in (data + frames.tag(b"", data), memoryview(data), b""):
        with contextlib.suppress(frames.FrameError):
            DECODERS[name](frame, b"")


@given(st.lists(u32, min_size=1, max_size=wire.MAX_REPEATS), u32, st.integers(0, 255), u32, u32, u32)
def test_bench_comes_back(times: list[int], nonce: int, case: int, units: int, used: int, free: int) -> None:
    out = bytearray(wire.MAX_FRAME)
    n = bench.encode_bench(out, nonce, case, units, times, used, free)
    assert host_frames.decode_bench(bytes(out[:n])) == (nonce, case, units, tuple(times), used, free)


@given(keys, u32, u32, st.integers(0, 255), u32)
def test_error_comes_back(key: bytes, device: int, number: int, code: int, detail: int) -> None:
    out = bytearray(wire.MAX_FRAME)
    n = frames.encode_error(out, key, device, number, code, detail)
    assert host_frames.decode_error(bytes(out[:n]), key) == (device, number, code, detail)
    refused(wire.ERR_TAG, host_frames.decode_error, bytes(out[:n]), bytes(32) if any(key) else b"k" * 32)


@given(u32, u32, u32, u32, u32, st.integers(0, 255), st.text(max_size=300))
@example(0, 1, 1, 0, 0, 1, "é" * 200)
@example(0, 1, 1, 0, 0, 1, "x" + "€" * 100)
def test_hello_comes_back(
    nonce: int, first: int, clients: int, budget: int, heap: int, entropy: int, text: str
) -> None:
    out = bytearray(wire.MAX_FRAME)
    try:
        text.encode()
    except UnicodeEncodeError:
        return
    n = frames.encode_hello(out, nonce, first, clients, budget, heap, entropy, text)
    hello = host_frames.Hello(bytes(out[:n]))
    got = (hello.nonce, hello.first, hello.clients, hello.budget, hello.heap, hello.entropy)
    assert got == (nonce, first, clients, budget, heap, entropy)
    assert hello.text is not None
    assert text.startswith(hello.text)
    assert len(hello.text.encode()) >= min(len(text.encode()), 252)


def test_layouts_have_the_sizes_of_the_specification() -> None:
    sizes = {
        wire.HELLO_REQUEST_FIELDS: 4,
        wire.HELLO_FIELDS: 35,
        wire.ROUND_FIELDS: 18,
        wire.REPORT_FIELDS: 8,
        wire.BENCH_REQUEST_FIELDS: 9,
        wire.BENCH_FIELDS: 10,
        wire.ERROR_FIELDS: 13,
    }
    assert {layout: struct.calcsize(layout) for layout in sizes} == sizes
