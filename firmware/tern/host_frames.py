"""The host's half of frames.py, by the same rules: its requests, and the answers of devices.

A board has it for its bench and its tests only.
"""

import struct

from tern import wire
from tern.frames import (
    check_address,
    check_length,
    check_local,
    check_round,
    end_of,
    fields_of,
    kind,
    packed_size,
    require,
    seal,
    verify,
)


def encode_round(
    out, key, device, round_number, model, exponent, k, batch, deadline, parameters, card, local=()
):
    """Write a ROUND; parameters: d int16 mantissas; card: bytes; local: (epochs, rate, tau) for local training.

    Raises FrameError where a field is out of bounds.
    """
    d = len(parameters)
    require(
        model < wire.VALUES or sum(1 for value in parameters if value) >= k,
        "k larger than the features asked for",
    )
    check_address(device, round_number)
    check_round(model, exponent, k, batch, d, len(card))
    require(0 <= deadline <= 0xFFFF, "deadline out of bounds")
    out[0] = wire.ROUND
    struct.pack_into(wire.ROUND_FIELDS, out, 1, device, round_number, model, exponent, k, batch, deadline, d)
    n = end_of(wire.ROUND_FIELDS)
    for value in parameters:
        require(-32768 <= value <= 32767, "parameter out of bounds")
        struct.pack_into("<h", out, n, value)
        n += 2
    struct.pack_into("<H", out, n, len(card))
    n += 2
    out[n : n + len(card)] = card
    n += len(card)
    require(
        len(local) == (3 if wire.SOFTMAX < model < wire.VALUES else 0), "local training needs three fields"
    )
    if local:
        check_local(exponent, local)
        require(0 < local[0] <= 255 and local[1] >= 0, "epochs or rate out of bounds")
        local = struct.pack(wire.LOCAL_FIELDS, *local)
        out[n : n + len(local)] = local
        n += len(local)
    return seal(key, out, n)


def encode_bench_request(out, nonce, case, repeats, card=b""):
    """Write a BENCH_REQUEST; repeats 1..255; card: bytes, empty where the case needs none."""
    require(1 <= repeats <= wire.MAX_REPEATS and len(card) <= wire.MAX_CARD, "repeats or card out of bounds")
    out[0] = wire.BENCH_REQUEST
    struct.pack_into(wire.BENCH_REQUEST_FIELDS, out, 1, nonce, case, repeats, len(card))
    n = end_of(wire.BENCH_REQUEST_FIELDS)
    out[n : n + len(card)] = card
    return seal(b"", out, n + len(card))


def unpack(data, k, base, out):
    """Write the k symbols of the packed `data` (bytes) into the array('H') `out`. Raises FrameError."""
    require(len(data) == packed_size(base, k), "wrong number of packed bytes")
    number = int.from_bytes(data, "little")
    for i in range(k):
        number, out[i] = divmod(number, base)
    require(number == 0, "packed number too large")


class Hello:
    """What a board says of itself, in the attributes nonce, version, schema, first, clients, largest, credit,
    budget, heap, entropy and text. Of another schema only the first three are set, the others are None.
    """

    def __init__(self, frame):
        fields = struct.calcsize("<IB8s")
        require(kind(frame) == wire.HELLO and len(frame) >= 1 + fields + wire.TAG_BYTES, "not a HELLO")
        verify(b"", frame)
        self.nonce, self.version, self.schema = struct.unpack_from("<IB8s", frame, 1)
        self.first = self.clients = self.largest = self.credit = self.budget = self.heap = self.entropy = None
        self.text = None
        if self.schema != wire.SCHEMA:
            return
        fields = fields_of(frame, wire.HELLO, wire.HELLO_FIELDS)
        self.first, self.clients, self.largest, self.credit = fields[3:7]
        self.budget, self.heap, self.entropy, n = fields[7:]
        check_length(frame, wire.HELLO_FIELDS, n)
        start = end_of(wire.HELLO_FIELDS)
        try:
            self.text = str(bytes(frame[start : start + n]), "utf-8")
        except UnicodeError:
            require(False, "text is not UTF-8")


def decode_report(frame, key, k, base, out):
    """Return (device, round) of a REPORT, its k symbols below base written into the array('H') `out`."""
    device, round_number = fields_of(frame, wire.REPORT, wire.REPORT_FIELDS)
    check_address(device, round_number)
    verify(key, frame)
    unpack(bytes(frame[9 : len(frame) - wire.TAG_BYTES]), k, base, out)
    return device, round_number


def decode_bench(frame):
    """Return (nonce, case, units, tuple of microseconds, heap used, heap free)."""
    nonce, case, units, n = fields_of(frame, wire.BENCH, wire.BENCH_FIELDS)
    check_length(frame, wire.BENCH_FIELDS, 4 * n + 8)
    verify(b"", frame)
    start = end_of(wire.BENCH_FIELDS)
    times = struct.unpack_from("<%dI" % n, frame, start)
    used, free = struct.unpack_from("<II", frame, start + 4 * n)
    return nonce, case, units, times, used, free


def decode_error(frame, key):
    """Return (device, round, code, detail)."""
    fields = fields_of(frame, wire.ERROR, wire.ERROR_FIELDS)
    check_length(frame, wire.ERROR_FIELDS, 0)
    verify(key, frame)
    return fields
