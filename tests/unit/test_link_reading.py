"""A device's serial link never waits for bytes that need not come, and hears tools at any point."""

import random
from array import array

from tern import frames, host_frames, wire


def encoded(frame, n):
    out = bytearray(frames.cobs_size(n))
    return bytes(out[: frames.cobs_encode(frame, n, out)])


def some_frames(seed):
    draw = random.Random(seed)
    out = bytearray(wire.MAX_FRAME)
    for _ in range(60):
        d = draw.choice((1, 2, 28, 100, 128))
        spread = draw.choice((0, 3, 300, 32767))
        parameters = array("h", (draw.randint(-spread, spread) for _ in range(d)))
        card = draw.randbytes(draw.choice((1, 14, 40, 300, 2048)))
        key = draw.randbytes(32)
        arguments = (draw.randint(1, 2**32 - 1), draw.randint(1, wire.MAX_ROUND), wire.LOGISTIC)
        yield encoded(out, host_frames.encode_round(out, key, *arguments, parameters, card, 1, -14))
        arguments = (*arguments[:2], draw.choice((wire.VALUES, wire.CATEGORIES)))
        asked = [draw.randrange(2) for _ in range(d - 1)] + [1]
        yield encoded(out, host_frames.encode_round(out, key, *arguments, asked, card, 1))
        yield encoded(out, frames.encode_hello_request(out, draw.getrandbits(32)))


def test_what_is_certain_to_come_does_come():
    for seed in range(5):
        for data in some_frames(seed):
            receiver = frames.Receiver()
            at = reads = 0
            while at < len(data):
                n = receiver.certain()
                assert 1 <= n <= len(data) - at
                receiver.give(data[at : at + min(n, 64)])
                at += min(n, 64)
                reads += 1
                assert (receiver.next() > 0) == (at == len(data))
            assert reads <= 9 + len(data) // 8  # not byte by byte


def test_a_tool_is_heard_between_frames():
    receiver = frames.Receiver()
    for byte in b"\0\r\x03":
        assert receiver.certain() == 1
        receiver.give(bytes([byte]))
        receiver.next()
    assert receiver.certain() == 0


def test_after_any_half_frame_a_tool_is_heard_within_its_zeros():
    for data in list(some_frames(9))[:30]:
        for cut in range(1, len(data), 7):
            receiver = frames.Receiver()
            line = data[:cut] + bytes(65) + b"\r\x03"
            at = 0
            while n := min(receiver.certain(), 64):
                assert at + n <= len(line)
                receiver.give(line[at : at + n])
                at += n
                while receiver.next() != frames.MORE:
                    pass
            assert at == len(line)
