"""REPORT, REPORTS and ERROR frames as wire.md describes them, written without the library's code."""

import hashlib
import struct


def question(key, device, body):
    """The digest of what a device is asked. body: of the ROUND, from its offset 5 up to the tag."""
    return hashlib.sha256(key + struct.pack("<BI", 2, device) + body).digest()


def sealed(digest, frame):
    """An answer to the question of that digest, with its tag."""
    return frame + hashlib.sha256(digest[8:24] + frame).digest()[:8]


def report(digest, device, number, packed):
    return sealed(digest, struct.pack("<BII", 0x82, device, number) + packed)


def reports(*of_reports):
    """The REPORTS that stands for these REPORTs of one round."""
    number, size = of_reports[0][5:9], len(of_reports[0]) - 17
    return b"\x85" + number + struct.pack("<H", size) + b"".join(one[1:5] + one[9:] for one in of_reports)


def error(digest, device, number, code, detail=0):
    return sealed(digest, struct.pack("<BIIBI", 0x84, device, number, code, detail))


def board_error(number, code, detail=0):
    """An ERROR of the board itself."""
    frame = struct.pack("<BIIBI", 0x84, 0, number, code, detail)
    return frame + hashlib.sha256(frame).digest()[:8]
