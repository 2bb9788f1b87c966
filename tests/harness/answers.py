"""REPORT, REPORTS and ERROR frames as wire.md describes them, written without the library's code."""

import hmac
import struct


def tag(key, data, question):
    return hmac.digest(key, data + question, "sha256")[:8]


def report(key, device, number, packed, question):
    """A REPORT. question: the hash of what is answered, 32 bytes."""
    frame = struct.pack("<BII", 0x82, device, number) + packed
    return frame + tag(key, frame, question)


def row(of_report):
    """The row of REPORTS that stands for a REPORT."""
    return of_report[1:5] + of_report[9:]


def reports(*of_reports):
    """The REPORTS that stands for these REPORTs of one round."""
    number, size = of_reports[0][5:9], len(of_reports[0]) - 17
    return b"\x85" + number + struct.pack("<H", size) + b"".join(map(row, of_reports))


def error(key, device, number, code, detail, question):
    """An ERROR. question: empty where the board itself speaks."""
    frame = struct.pack("<BIIBI", 0x84, device, number, code, detail)
    return frame + tag(key, frame, question)
