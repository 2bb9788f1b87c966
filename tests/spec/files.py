"""The files of a board in the bytes of ledger.md and storage.md, written without the library, which
they check.
"""

import hashlib
import struct
import zlib

from spec.frames import int16s

ONE = 16384


def key_of(device):
    """The key (bytes) of a client in the tests."""
    return hashlib.sha256(b"client %d" % device).digest()


def checked_ledger(data):
    """A ledger with its CRC behind it."""
    return data + zlib.crc32(data).to_bytes(4, "little")


def ledger_file(
    magic=b"TLG3",
    budget=10**9,
    spent=0,
    last=0,
    question=bytes(32),
    state=0,
    report=b"",
    step=0,
    length=None,
    measure=0,
):
    """A ledger. length: another value of the field with the length of the report. measure: 1 for
    rho.
    """
    length = len(report) if length is None else length
    head = struct.pack(
        "<4sIII32sBBHH", magic, budget, spent, last, question, state, measure, length, step
    )
    return checked_ledger(head + report)


def client_row(device, largest, budget, start, held, shapes=0, key=None):
    """A row of clients.bin."""
    return struct.pack(
        "<I32sIIIHH", device, key or key_of(device), largest, budget, start, held, shapes
    )


def records_file(d, values):
    """records.bin. values: d features and the label of each record, one record after the other."""
    return b"TRD1" + struct.pack("<HI", d, len(values) // (d + 1)) + int16s(values)


def fleet_file(key, pause, slot, ahead, epoch, records, unit=0):
    """fleet.bin."""
    return b"TFL3" + key + struct.pack("<IHHIHH", pause, slot, ahead, epoch, records, unit)


def uf2_file(data, family=0xE48BFF56, start=0x10000000):
    """A UF2 file of a flash image that begins at address `start`. family: of the chip, an RP2040 by
    default.
    """
    blocks = [data[at : at + 256] for at in range(0, len(data), 256)]
    magic = 0x0A324655, 0x9E5D5157
    heads = [
        (*magic, 0x2000, start + 256 * i, 256, i, len(blocks), family) for i in range(len(blocks))
    ]
    pairs = zip(heads, blocks, strict=True)
    return b"".join(struct.pack("<8I476sI", *head, block, 0x0AB16F30) for head, block in pairs)
