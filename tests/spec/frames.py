"""Frames in the bytes of wire.md, written without the library, which they check."""

import hashlib
import struct

FLEET = 2**32 - 1
COLLECTIONS = (8, 9)  # models: values and categories
TRAININGS = (5, 6, 7, 11)  # local


def tag(key, data):
    return hashlib.sha256(key + data).digest()[:8]


def sealed(key, body):
    """A frame: a body and its tag."""
    return body + tag(key, body)


def hello_request(nonce=1):
    return sealed(b"", struct.pack("<BI", 1, nonce))


def features(positions, d):
    """The question of a collection, which asks for these of d features: a bit for each."""
    return sum(1 << j for j in positions).to_bytes((d + 7) // 8, "little")


def int16s(values):
    return struct.pack(f"<{len(values)}h", *values)


def round_body(
    device,
    number,
    model,
    range_,
    exponent,
    classes,
    d,
    k,
    batch,
    local,
    question,
    card,
    length=None,
):
    """A ROUND without its tag. local: (epochs, rate, tau). length: another value of the card's
    length field.
    """
    epochs, rate, tau = local
    length = len(card) if length is None else length & 65535
    head = struct.pack("<BIIBBBB", 2, device, number, model, range_, exponent & 255, classes)
    head += struct.pack("<HHBBBIH", d, k, batch, epochs & 255, rate & 255, tau, length)
    return head + question + card


def question(key, device, body):
    """The digest of a question to a device. body: the bytes of its ROUND from offset 5 up to the
    tag.
    """
    return hashlib.sha256(key + struct.pack("<BI", 2, device) + body).digest()


def answer_key(digest):
    """The key of answers to the question with that digest."""
    return digest[8:24]


def fleet_key_body(key, device, epoch, new):
    """A FLEET_KEY without its tag: the key `new`, encrypted with the key of the board's first
    client.
    """
    label = b"tern fleet key " + struct.pack("<I", epoch)
    mask = (
        hashlib.sha256(key + label + b"1").digest()[:16]
        + hashlib.sha256(key + label + b"2").digest()[:16]
    )
    return struct.pack("<BII", 5, device, epoch) + bytes(
        a ^ b for a, b in zip(mask, new, strict=True)
    )


def packed(symbols, base):
    number = sum(s * base**i for i, s in enumerate(symbols))
    return number.to_bytes(((base ** len(symbols) - 1).bit_length() + 7) // 8, "little")


def cobs(data):
    """The COBS code of `data` on a serial line, with the 0x00 behind it.

    It has blocks of up to 254 bytes that are not 0; a shorter block stands for itself and a 0
    behind it.
    """
    out = bytearray()
    blocks = data.split(b"\0")
    for i, block in enumerate(blocks):
        while len(block) > 254 or (len(block) == 254 and i < len(blocks) - 1):
            out += b"\xff" + block[:254]
            block = block[254:]
        out += bytes([len(block) + 1]) + block
        # 254 bytes at the very end need no further block, and the code 255 promises no 0
    return bytes(out) + b"\0"


def uncobs(coded):
    """The data of the COBS code `coded`, which has no 0x00 behind it."""
    out, i = bytearray(), 0
    while i < len(coded):
        code = coded[i]
        out += coded[i + 1 : i + code]
        i += code
        if code < 255 and i < len(coded):
            out.append(0)
    return bytes(out)
