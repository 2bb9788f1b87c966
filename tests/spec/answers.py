"""REPORT, REPORTS and ERROR frames in the bytes of wire.md, written without the library, which they
check.
"""

import struct

from spec import frames
from spec.frames import question as question


def sealed(digest, body):
    """A frame that answers the question of that digest."""
    return frames.sealed(frames.answer_key(digest), body)


def report(digest, device, number, packed):
    return sealed(digest, struct.pack("<BII", 0x82, device, number) + packed)


def reports(*frames_of_round):
    """The REPORTS with the rows of these REPORTs of one round."""
    head = b"\x85" + frames_of_round[0][5:9] + struct.pack("<H", len(frames_of_round[0]) - 17)
    return head + b"".join(frame[1:5] + frame[9:] for frame in frames_of_round)


def error(digest, device, number, code, detail=0):
    return sealed(digest, struct.pack("<BIIBI", 0x84, device, number, code, detail))


def board_error(number, code, detail=0):
    """An ERROR of the board itself."""
    return frames.sealed(b"", struct.pack("<BIIBI", 0x84, 0, number, code, detail))
