"""Frames, tags, COBS and packed symbols agree with shared_specs/vectors; their leaves do not use
the heap.
"""

import gc
import hashlib
from array import array

import report_frames
import vectors
from checks import raises, without_heap

from tern import frames, host_frames, model, wire
from tern.frames import FrameError


def unhex(text):
    return bytes.fromhex(text)


def fails(code, function, *args):
    assert raises(FrameError, function, *args).code == code


def test_cobs_vectors():
    receiver = frames.Receiver()
    for case in vectors.load("cobs.json")["tests"]:
        coded = unhex(case["coded"])
        receiver.give(coded)
        n = receiver.next()
        if case["result"] == "invalid":
            assert n == frames.DAMAGED, case["comment"]
            assert receiver.next() == frames.MORE
            continue
        frame = unhex(case["frame"])
        assert n == len(frame) and bytes(receiver.frame[:n]) == frame, case["comment"]
        assert receiver.next() == frames.MORE
        if "decode only" not in case["flags"]:
            out = bytearray(frames.cobs_size(len(frame)))
            n = frames.cobs_encode(frame, len(frame), out)
            assert bytes(out[:n]) == coded, case["comment"]


def test_the_receiver_takes_pieces_of_any_size_and_recovers_from_noise():
    frame = bytes(range(256)) * 2
    coded = bytearray(frames.cobs_size(len(frame)))
    coded = bytes(coded[: frames.cobs_encode(frame, len(frame), coded)])
    stream = b"noise\xff\x00" + coded + b"\x00" + b"\xff" * 3000 + b"\x00" + coded
    for piece in (1, 2, 7, 64, 4000):
        receiver = frames.Receiver()
        seen = []
        for at in range(0, len(stream), piece):
            receiver.give(stream[at : at + piece])
            while (n := receiver.next()) != frames.MORE:
                if n > 0:
                    assert bytes(receiver.frame[:n]) == frame
                seen.append(n)
        assert seen == [frames.DAMAGED, len(frame), 0, frames.DAMAGED, len(frame)], (piece, seen)


def test_the_receiver_stores_no_more_than_its_limit():
    receiver = frames.Receiver(20)
    for n in (19, 20, 21, 5000):
        data = bytes([5]) * n
        coded = bytearray(frames.cobs_size(n))
        receiver.give(coded, frames.cobs_encode(data, n, coded))
        assert receiver.next() == (n if n <= 20 else frames.DAMAGED)
        assert len(receiver.frame) == 20


def test_the_receiver_tells_an_interrupt_from_a_frame():
    receiver = frames.Receiver()
    receiver.give(b"\x00\r\x03")
    assert receiver.next() == 0 and receiver.next() == frames.MORE and receiver.certain() == 0
    for kind in (wire.HELLO_REQUEST, wire.ROUND):
        out = bytearray(64)
        coded = bytearray(64)
        if kind == wire.HELLO_REQUEST:
            n = frames.encode_hello_request(out, 0x0D0D0D0D)
        else:
            n = host_frames.encode_round(
                out, b"k" * 32, 0x0D0D0D0D, 0x0D0D0D0D, 1, (1,), b"c", 1, -14
            )
        n = frames.cobs_encode(out, n, coded)
        receiver = frames.Receiver()
        for i in range(n - 1):
            receiver.give(coded[i : i + 1])
            assert receiver.next() == frames.MORE and receiver.certain()


def test_packing_vectors():
    for case in vectors.load("packing.json")["tests"]:
        base = case["base"]
        data = unhex(case["packed"])
        if case["result"] == "invalid":
            out = array("H", (0 for _ in range(case["k"])))
            fails(wire.ERR_FRAME, report_frames.unpack, data, case["k"], base, out)
            continue
        symbols = array("H", case["symbols"])
        k = len(symbols)
        assert frames.packed_size(base, k) == len(data), case["comment"]
        out = bytearray(len(data))
        used = frames.pack(symbols, k, base, out, 0, len(data))
        assert 0 <= used <= len(data) and bytes(out) == data, case["comment"]
        back = array("H", (0 for _ in range(k)))
        report_frames.unpack(data, k, base, back)
        assert back == symbols


def test_pack_refuses_a_symbol_that_is_not_below_base():
    out = bytearray(8)
    for base in (2, 3, 255, 65535):
        assert frames.pack(array("H", (0, base, 0)), 3, base, out, 0, 8) == -1


def test_reports_are_short():
    out = bytearray(wire.MAX_FRAME)
    for k, most in ((1, 20), (28, 26)):  # of 28 coordinates with three levels
        symbols = array("H", (2 for _ in range(k)))
        n = frames.encode_report(out, bytes(32), 7, 9, symbols, k, 3, frames.packed_size(3, k))
        assert n <= most, (k, n)


def test_the_schema_is_that_of_the_specification():
    (case,) = vectors.cases("frames.json", "schema")
    assert wire.schema_text() == case["text"] and unhex(case["hash"]) == wire.SCHEMA
    assert hashlib.sha256(case["text"].encode()).digest()[:8] == wire.SCHEMA


def test_tag_vectors():
    for case in vectors.cases("frames.json", "tags"):
        good = frames.same(frames.tag(unhex(case["key"]), unhex(case["data"])), unhex(case["tag"]))
        assert good == (case["result"] == "valid"), case["comment"]


def decoded(kind, frame, key, case):
    """(fields of a frame by their names in the vectors, the frame encoded from them)."""
    out = bytearray(wire.MAX_FRAME)
    f = {}
    frames.kind(frame)
    if kind == "round":
        frames.address(frame)
        frames.verify(key, frame)
        r = frames.Round()
        r.decode(frame)
        for name in vectors.ROUND_FIELDS:
            f[name] = getattr(r, name)
        collects = r.model in wire.COLLECTIONS
        f["parameters"] = list(r.asked[: r.d] if collects else r.parameters)
        f["card"] = bytes(r.card).hex()
        local = (r.epochs, r.rate, r.tau)
        n = host_frames.encode_round(
            out,
            key,
            r.device,
            r.round,
            r.model,
            f["parameters"],
            r.card,
            r.k,
            r.exponent,
            r.range,
            r.classes,
            r.batch,
            local,
        )
    elif kind == "reports":
        rows = report_frames.reports_of(frame)
        out = bytes(frame[:7]) + b"".join([row[1:5] + row[9:] for row in rows])
        n = len(out)
        expected = case["fields"]["reports"]  # a board has no room for a second list of hex digits
        equal = len(rows) == len(expected) and all(a.hex() == b for a, b in zip(rows, expected))
        f["reports"] = expected if equal else rows
    elif kind == "model":
        values = model.decode_model(frame, key)
        for name, value in zip(("device", "round", "model", "exponent", "classes"), values):
            f[name] = value
        f["d"] = len(values[5]) // values[4]
        f["parameters"] = list(values[5])
        n = host_frames.encode_model(out, key, *values[:3], values[5], *values[3:5])
    elif kind == "fleet_key":
        frames.check_length(frame, wire.FLEET_KEY_FIELDS, 0)
        f["device"], f["epoch"], hidden = frames.fields_of(
            frame, wire.FLEET_KEY, wire.FLEET_KEY_FIELDS
        )
        frames.verify(key, frame)
        fleet_key = frames.mask_fleet_key(key, f["epoch"], hidden)
        f["fleet_key"] = fleet_key.hex()
        n = host_frames.encode_fleet_key(out, key, f["device"], f["epoch"], fleet_key)
    elif kind == "report":
        base = case["fields"]["base"]
        k = len(case["fields"]["symbols"])
        symbols = array("H", (0 for _ in range(k)))
        f["device"], f["round"] = report_frames.decode_report(frame, key, k, base, symbols)
        f["base"] = base
        f["symbols"] = list(symbols)
        size = frames.packed_size(base, k)
        n = frames.encode_report(out, key, f["device"], f["round"], symbols, k, base, size)
    elif kind == "hello_request":
        f["nonce"] = frames.decode_hello_request(frame)
        n = frames.encode_hello_request(out, f["nonce"])
    elif kind == "hello":
        h = host_frames.Hello(frame)
        for name in list(host_frames.HELLO_NAMES) + ["text"]:
            if name in case["fields"]:
                f[name] = getattr(h, name)
        f["release"] = list(h.release)
        assert (h.version, h.schema, h.largest, h.credit) == (
            2,
            wire.SCHEMA,
            wire.MAX_FRAME,
            wire.CREDIT,
        )
        n = encode_hello_of(out, h, f)
    else:
        f["device"], f["round"], f["code"], f["detail"] = host_frames.decode_error(frame, key)
        n = frames.encode_error(out, key, f["device"], f["round"], f["code"], f["detail"])
    return f, memoryview(out)[:n]


def encode_hello_of(out, hello, fields):
    values = [
        fields[name] for name in host_frames.HELLO_NAMES if name in fields and name != "release"
    ]
    n = frames.encode_hello(out, *values, hello.text)
    at = n - wire.TAG_BYTES - len(hello.text.encode()) - 4
    out[at : at + 3] = bytes(hello.release)  # the release of the vector's board
    return frames.seal(b"", out, n - wire.TAG_BYTES)


def test_frame_vectors():
    for case in vectors.cases("frames.json", "frames"):
        frame = unhex(case["frame"])
        key = unhex(case["key"])
        for data in (frame, memoryview(frame)):
            gc.collect()  # the heap of a device is small
            if case["result"] == "invalid":
                fails(case["error"], decoded, case["kind"], data, key, case)
            else:
                fields, again = decoded(case["kind"], data, key, case)
                assert fields == case["fields"], case["comment"]
                assert again == frame, case["comment"]


def test_question_vectors():
    for case in vectors.cases("frames.json", "questions"):
        key = unhex(case["key"])
        frame = unhex(case["frame"])
        question = report_frames.question_of(key, case["device"], frame)
        assert question == unhex(case["question"]), case["comment"]
        assert frames.answer_key(question) == unhex(case["answer_key"]), case["comment"]
        if not frames.is_for_fleet(frame):
            assert frames.verify(key, frame) == question, case["comment"]


def test_only_the_nonce_and_the_schema_are_read_from_a_hello_of_another_schema():
    out = bytearray(128)
    n = frames.encode_hello(out, 5, 1, 1, 9, 4, 0, 9, 0, 0, 0, 1, 0, 0, 0, "x")
    out[6] ^= 1
    n = frames.seal(b"", out, n - 8)
    hello = host_frames.Hello(bytes(out[:n]))
    assert (
        hello.nonce == 5
        and hello.schema != wire.SCHEMA
        and hello.clients is None
        and hello.text is None
    )


def test_leaves_do_not_allocate():
    coded = bytearray(3000)
    out = bytearray(256)
    symbols = array("H", (65535 for _ in range(128)))
    data = bytes(1000)
    values = array("h", (0 for _ in range(128)))
    receiver = frames.Receiver()
    n = frames.cobs_encode(data, 1000, coded)

    # As defaults, since a closure over these variables allocates.
    def calls(receiver=receiver, symbols=symbols, values=values, out=out):
        frames.cobs_encode(data, 1000, coded)
        receiver.give(coded, n)
        assert receiver.next() == 1000
        assert frames.pack(symbols, 128, 65536, out, 0, 256) == 256
        frames.copy_int16(data, 3, values, 128)

    without_heap(calls)
