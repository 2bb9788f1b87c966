"""Reads the answers of clients one by one; the host's aggregator reads them by the thousand."""

import struct

from tern import frames, wire
from tern.compat import ticks_ms


def answers_of(client, frame, moment=None):
    """Return every frame (bytes) with which `client` answers `frame`.

    moment: when it came (ms); None: now.
    """
    client.arrived = ticks_ms() if moment is None else moment
    answers = []
    client.respond(memoryview(frame), lambda reply, n: answers.append(bytes(reply[:n])))
    return answers


def question_of(key, device, frame):
    """Return the digest of a ROUND (bytes with tag) as the client `device` takes it.

    It begins with the client's own tag of the ROUND.
    """
    return frames.question(key, struct.pack("<BI", frame[0], device), frame[5 : -wire.TAG_BYTES])


def reports_of(frame):
    """Return the REPORT frames of a REPORTS, none of them verified. Raises FrameError."""
    number, size = frames.fields_of(frame, wire.REPORTS, wire.REPORTS_FIELDS)
    start = frames.end_of(wire.REPORTS_FIELDS)
    row = 4 + size + wire.TAG_BYTES
    count = (len(frame) - start) // row
    frames.require(
        1 <= size <= wire.MAX_PACKED and count and len(frame) == start + count * row, "wrong length"
    )
    head = bytes((wire.REPORT,))
    middle = struct.pack("<I", number)
    rows = [bytes(frame[start + i * row : start + (i + 1) * row]) for i in range(count)]
    return [head + row[:4] + middle + row[4:] for row in rows]


def one_by_one(answers):
    """Return `answers` (frames) in order of devices, each REPORTS as its REPORTs."""
    reports = []
    for answer in answers:
        reports += reports_of(answer) if answer[:1] == bytes((wire.REPORTS,)) else [answer]
    return sorted(reports, key=lambda report: int.from_bytes(report[1:5], "little"))


def unpack(data, k, base, out):
    """Write the k symbols of the packed `data` (bytes) into the array('H') `out`.

    Raises FrameError.
    """
    frames.require(len(data) == frames.packed_size(base, k), "wrong number of packed bytes")
    number = int.from_bytes(data, "little")
    for i in range(k):
        number, out[i] = divmod(number, base)
    frames.require(number == 0, "packed number too large")


def decode_report(frame, key, k, base, out):
    """Write the k symbols of a REPORT into the array('H') `out`; return (device, round).

    key: frames.answer_key(). Raises FrameError.
    """
    device, round_number = frames.fields_of(frame, wire.REPORT, wire.REPORT_FIELDS)
    frames.check_address(device, round_number)
    frames.verify(key, frame)
    unpack(bytes(frame[9 : len(frame) - wire.TAG_BYTES]), k, base, out)
    return device, round_number
