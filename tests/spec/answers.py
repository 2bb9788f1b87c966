"""REPORT, REPORTS and ERROR frames in the bytes of wire.md, written without the library, which they check."""

import struct

from spec import frames
from spec.frames import question as question


def sealed(digest, body):
    """An answer to the question of that digest."""
    return frames.sealed(frames.answer_key(digest), body)


def report(digest, device, number, packed):
    return sealed(digest, struct.pack("<BII", 0x82, device, number) + packed)


def reports(*of_reports):
    """The REPORTS that stands for these REPORTs of one round."""
    size = len(of_reports[0]) - 17
    return (
        b"\x85"
        + of_reports[0][5:9]
        + struct.pack("<H", size)
        + b"".join(one[1:5] + one[9:] for one in of_reports)
    )


def error(digest, device, number, code, detail=0):
    return sealed(digest, struct.pack("<BIIBI", 0x84, device, number, code, detail))


def board_error(number, code, detail=0):
    """An ERROR of the board itself."""
    return frames.sealed(b"", struct.pack("<BIIBI", 0x84, 0, number, code, detail))
