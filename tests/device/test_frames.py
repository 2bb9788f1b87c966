"""Frames, tags, COBS and packed symbols agree with shared_specs/vectors; their leaves do not use
the heap.
"""

import gc
import hashlib
from array import array

import report_frames
import vectors
from checks import raises, without_heap

from tern import frames, host_frames, model, octets, wire
from tern.frames import FrameError


def unhex(text):
    return bytes.fromhex(text)


def fails(code, function, *args):
    assert raises(FrameError, function, *args).code == code


def test_cobs_vectors():
    # COBS codes frames so that a zero byte can separate them on a serial line. cobs.json, which
    # other implementations share, holds coded frames and what a Receiver must make of them;
    # "decode only": a valid coding, but not the one that our encoder chooses.
    receiver = frames.Receiver()
    for case in vectors.load("cobs.json")["tests"]:
        coded = unhex(case["coded"])
        receiver.give(coded)
        n = receiver.next()
        if case["result"] == "invalid":
            assert n == frames.DAMAGED, case["comment"]
            assert receiver.next() == frames.MORE  # nothing is left of it
            continue
        frame = unhex(case["frame"])
        assert n == len(frame) and bytes(receiver.frame[:n]) == frame, case["comment"]
        assert receiver.next() == frames.MORE
        if "decode only" not in case["flags"]:
            out = bytearray(frames.cobs_size(len(frame)))
            n = frames.cobs_encode(frame, len(frame), out)
            assert bytes(out[:n]) == coded, case["comment"]


def test_the_receiver_takes_pieces_of_any_size_and_recovers_from_noise():
    # A serial line delivers bytes in any portions, and noise among them. Zero bytes separate
    # frames, so that after each a Receiver is in step again. The stream: noise, a good frame, an
    # empty one, noise longer than any frame, the good frame again.
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
        # Damage, or the length of a frame, in order.
        assert seen == [frames.DAMAGED, len(frame), 0, frames.DAMAGED, len(frame)], (piece, seen)


def test_the_receiver_stores_no_more_than_its_limit():
    # A host must not fill a board's memory: frames longer than the receiver's limit, 20 bytes
    # here, count as damaged.
    receiver = frames.Receiver(20)
    for n in (19, 20, 21, 5000):
        data = bytes([5]) * n
        coded = bytearray(frames.cobs_size(n))
        receiver.give(coded, frames.cobs_encode(data, n, coded))
        assert receiver.next() == (n if n <= 20 else frames.DAMAGED)
        assert len(receiver.frame) == 20


def test_the_receiver_takes_a_lone_ctrl_c_for_an_interrupt():
    receiver = frames.Receiver()
    receiver.give(b"\x00\r\x03")
    assert receiver.next() == 0  # a credit
    assert receiver.next() == frames.MORE and receiver.certain() == 0


def test_the_receiver_knows_a_frame_by_its_first_byte():
    # On a console, a user ends a program with Ctrl-C after other keys. The receiver has to tell
    # typed keys from a frame that contains the same bytes, already by its first byte: then it is
    # certain() of a frame.
    out = bytearray(64)
    coded = bytearray(64)
    returns = 0x0D0D0D0D  # like Ctrl-M before Ctrl-C
    hello = bytes(out[: frames.encode_hello_request(out, returns)])
    n = host_frames.encode_round(out, b"k" * 32, returns, returns, 1, (1,), b"c", 1, -14)
    for frame in (hello, bytes(out[:n])):
        size = frames.cobs_encode(frame, len(frame), coded)
        receiver = frames.Receiver()
        for i in range(size - 1):
            receiver.give(coded[i : i + 1])
            assert receiver.next() == frames.MORE and receiver.certain()


def test_a_board_waits_for_just_the_bytes_that_a_round_has():
    # A read blocks until all bytes that certain() names have come. So it must never name more than
    # the host sends, and it need not name fewer once the fields that say the length have come.
    fields_end = 26
    parameters = (1,) + (0,) * 39  # zeros end blocks of COBS, which would name as many bytes
    out = bytearray(200)
    coded = bytearray(204)
    for kind, exponent in ((wire.LOGISTIC, -14), (wire.VALUES, 0)):
        n = host_frames.encode_round(out, b"k" * 32, 7, 3, kind, parameters, b"card", 1, exponent)
        size = frames.cobs_encode(out, n, coded)
        receiver = frames.Receiver()
        for i in range(size - 1):
            receiver.give(coded[i : i + 1])
            assert receiver.next() == frames.MORE
            still_to_come = size - 1 - i
            assert receiver.certain() <= still_to_come, (kind, i)
            if i >= fields_end:
                assert receiver.certain() == still_to_come, (kind, i)


def test_packing_vectors():
    # A report packs k symbols below `base` into as few bytes as possible. packing.json, which
    # other implementations share, holds packed symbols, and invalid packings that must be refused.
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
        used = frames.pack(symbols, array("i", (k, base, 0, len(data))), out)
        assert 0 <= used <= len(data) and bytes(out) == data, case["comment"]
        back = array("H", (0 for _ in range(k)))
        report_frames.unpack(data, k, base, back)
        assert back == symbols


def test_pack_refuses_a_symbol_that_is_not_below_base():
    out = bytearray(8)
    for base in (2, 3, 255, 65535):
        packing = array("i", (3, base, 0, 8))
        assert frames.pack(array("H", (0, base, 0)), packing, out) == -1


def test_the_schema_is_that_of_the_specification():
    (case,) = vectors.cases("frames.json", "schema")
    assert wire.schema_text() == case["text"] and unhex(case["hash"]) == wire.SCHEMA
    assert hashlib.sha256(case["text"].encode()).digest()[:8] == wire.SCHEMA


def test_tag_vectors():
    for case in vectors.cases("frames.json", "tags"):
        good = frames.same(frames.tag(unhex(case["key"]), unhex(case["data"])), unhex(case["tag"]))
        assert good == (case["result"] == "valid"), case["comment"]


# For each type of frame: a function that decodes it, and encodes it again into `out`. It returns the
# fields by their names in the vectors, and the number of bytes.


def again_round(frame, key, case, out):
    frames.address(frame)
    frames.verify(key, frame)
    request = frames.Round()
    request.decode(frame)
    fields = {}
    for name in vectors.ROUND_FIELDS:
        fields[name] = getattr(request, name)
    parameters = request.parameters
    if request.model in wire.COLLECTIONS:
        parameters = request.asked[: request.d]
    fields["parameters"] = list(parameters)
    fields["card"] = bytes(request.card).hex()
    n = host_frames.encode_round(
        out,
        key,
        request.device,
        request.round,
        request.model,
        fields["parameters"],
        request.card,
        request.k,
        request.exponent,
        request.range,
        request.classes,
        request.batch,
        (request.epochs, request.rate, request.tau),
    )
    return fields, n


def again_report(frame, key, case, out):
    base = case["fields"]["base"]
    count = len(case["fields"]["symbols"])
    symbols = array("H", bytes(2 * count))
    device, number = report_frames.decode_report(frame, key, count, base, symbols)
    packing = frames.report_packing(count, base)
    n = frames.encode_report(out, key, device, number, symbols, packing)
    return {"device": device, "round": number, "base": base, "symbols": list(symbols)}, n


def again_reports(frame, key, case, out):
    reports = report_frames.reports_of(frame)
    encoded = bytes(frame[:7]) + b"".join([report[1:5] + report[9:] for report in reports])
    out[: len(encoded)] = encoded
    # A board has no room for a second list of hex digits.
    expected = case["fields"]["reports"]
    equal = len(reports) == len(expected)
    for report, digits in zip(reports, expected):
        equal = equal and report.hex() == digits
    return {"reports": expected if equal else reports}, len(encoded)


def again_model(frame, key, case, out):
    device, number, kind, exponent, classes, parameters = model.decode_model(frame, key)
    n = host_frames.encode_model(out, key, device, number, kind, parameters, exponent, classes)
    fields = {
        "device": device,
        "round": number,
        "model": kind,
        "exponent": exponent,
        "classes": classes,
        "d": len(parameters) // classes,
        "parameters": list(parameters),
    }
    return fields, n


def again_fleet_key(frame, key, case, out):
    layout = wire.FLEET_KEY_FIELDS
    frames.check_length(frame, layout, 0)
    device, epoch, hidden = frames.fields_of(frame, wire.FLEET_KEY, layout)
    frames.verify(key, frame)
    fleet_key = frames.mask_fleet_key(key, epoch, hidden)
    n = host_frames.encode_fleet_key(out, key, device, epoch, fleet_key)
    return {"device": device, "epoch": epoch, "fleet_key": fleet_key.hex()}, n


def again_hello_request(frame, key, case, out):
    nonce = frames.decode_hello_request(frame)
    return {"nonce": nonce}, frames.encode_hello_request(out, nonce)


def again_hello(frame, key, case, out):
    hello = host_frames.Hello(frame)
    assert (hello.version, hello.schema) == (2, wire.SCHEMA)
    assert (hello.largest, hello.credit) == (wire.MAX_FRAME, wire.CREDIT)
    fields, values = {}, []
    for name in host_frames.HELLO_NAMES:
        if name in case["fields"]:
            fields[name] = getattr(hello, name)
            if name != "release":
                values.append(fields[name])
    fields["text"] = hello.text
    fields["release"] = list(hello.release)
    n = frames.encode_hello(out, *values, hello.text)
    # The release of this library stands before the text and its length; write that of the vector.
    at = n - wire.TAG_BYTES - len(hello.text.encode()) - 4
    out[at : at + 3] = bytes(hello.release)
    return fields, frames.seal(b"", out, n - wire.TAG_BYTES)


def again_error(frame, key, case, out):
    device, number, code, detail = host_frames.decode_error(frame, key)
    n = frames.encode_error(out, key, device, number, code, detail)
    return {"device": device, "round": number, "code": code, "detail": detail}, n


AGAIN = {
    "round": again_round,
    "report": again_report,
    "reports": again_reports,
    "model": again_model,
    "fleet_key": again_fleet_key,
    "hello_request": again_hello_request,
    "hello": again_hello,
    "error": again_error,
}


def decoded(frame, key, case):
    """(fields of a frame by their names in the vectors, the frame encoded from them)."""
    out = bytearray(wire.MAX_FRAME)
    frames.kind(frame)
    fields, n = AGAIN[case["kind"]](frame, key, case, out)
    return fields, memoryview(out)[:n]


def test_frame_vectors():
    # frames.json, which other implementations share, holds frames of every kind with their keys:
    # valid ones with their fields, which encode to the same bytes again, and invalid ones with the
    # error that they cause.
    for case in vectors.cases("frames.json", "frames"):
        frame = unhex(case["frame"])
        key = unhex(case["key"])
        for data in (frame, memoryview(frame)):
            gc.collect()  # the heap of a device is small
            if case["result"] == "invalid":
                fails(case["error"], decoded, data, key, case)
            else:
                fields, again = decoded(data, key, case)
                assert fields == case["fields"], case["comment"]
                assert again == frame, case["comment"]


def test_question_vectors():
    # The question of a ROUND is a hash of it: a device answers the same question with the same
    # report only. The key that authenticates the answer is derived from it. frames.json holds
    # examples.
    for case in vectors.cases("frames.json", "questions"):
        key = unhex(case["key"])
        frame = unhex(case["frame"])
        question = report_frames.question_of(key, case["device"], frame)
        assert question == unhex(case["question"]), case["comment"]
        assert frames.answer_key(question) == unhex(case["answer_key"]), case["comment"]
        if not frames.is_for_fleet(frame):
            assert frames.verify(key, frame) == question, case["comment"]


def test_only_the_nonce_and_the_schema_are_read_from_a_hello_of_another_schema():
    # A HELLO, with which a board introduces itself, contains the hash of the schema, the layout of
    # all frames. If it is another, its other fields may lie elsewhere, and a host must not read
    # them.
    out = bytearray(128)
    nonce = 5  # the host's number, which the board returns
    n = frames.encode_hello(out, nonce, 1, 1, 9, 4, 0, 9, 0, 0, 0, 1, 0, 0, 0, "x")
    out[6] ^= 1  # the first byte of the schema's hash
    n = frames.seal(b"", out, n - wire.TAG_BYTES)  # with a tag that fits again

    hello = host_frames.Hello(bytes(out[:n]))
    assert hello.nonce == nonce and hello.schema != wire.SCHEMA
    assert hello.clients is None and hello.text is None


def test_digest_into_is_sha256_of_both_parts():
    # Boards with a Thumb processor compute it in assembler: around each end of a block, and around
    # the end of the first part.
    data = bytes((37 * i + 11) & 255 for i in range(200))
    out = bytearray(32)
    for n in (0, 1, 31, 54, 55, 56, 57, 63, 64, 65, 119, 120, 127, 128, 183, 200):
        for first in (0, 1, 16, 37, n):
            first = min(first, n)
            octets.digest_into(data[:first], memoryview(data)[first:n], out)
            assert bytes(out) == hashlib.sha256(data[:n]).digest(), (n, first)


def test_leaves_do_not_allocate():
    # These inner functions run for every byte of a frame: garbage would make a board pause for
    # collections.
    coded = bytearray(3000)
    out = bytearray(256)
    symbols = array("H", (65535 for _ in range(128)))
    packing = array("i", (128, 65536, 0, 256))
    data = bytes(1000)
    values = array("h", (0 for _ in range(128)))
    receiver = frames.Receiver()
    n = frames.cobs_encode(data, 1000, coded)

    # As defaults, since a closure over these variables allocates.
    def calls(receiver=receiver, symbols=symbols, packing=packing, values=values, out=out):
        frames.cobs_encode(data, 1000, coded)
        receiver.give(coded, n)
        assert receiver.next() == 1000
        assert frames.pack(symbols, packing, out) == 256
        frames.copy_int16(data, 3, values, 128)

    without_heap(calls)
