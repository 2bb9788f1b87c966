"""The host's half of frames.py, without reports. A board has it only for tests."""

import struct

from tern import frames, wire
from tern.model import check_model
from tern.shapes import SUM

MAX_DATA = wire.MAX_FRAME - frames.end_of(wire.UPDATE_FIELDS) - wire.TAG_BYTES  # of an UPDATE


def encode_round(
    out,
    key,
    device,
    round_number,
    model,
    parameters,
    card,
    k,
    exponent=0,
    range_=0,
    classes=1,
    batch=0,
    local=(0, 0, 0),
):
    """Write a ROUND, by which the host asks for a report; return its length.

    out: the buffer. key, device: of a client, or of the whole fleet. model: one of wire.LINEAR and
    those after it. parameters: classes x d int16 mantissas, row by row; in a collection, for each
    of d features whether it is requested. card: the bytes of the privacy mechanism's table. k: how
    many values a report has. exponent: a mantissa m stands for m 2**exponent; for categories, 0, or
    e if features are numbers, whose categories are 2**e bins. range_: values are scaled up by
    2**range_; for categories, 1 if they are hashed. batch: records to use, 0 for all. local:
    (epochs, rate, tau) for local training. Raises FrameError if a field is out of bounds.
    """
    frames.check_address(device, round_number)
    is_collection = model in wire.COLLECTIONS
    rows = 1 if is_collection else classes
    frames.require(classes >= 1 and len(parameters) % rows == 0, "parameters are not classes x d")
    d = len(parameters) // rows
    shape = card[0] & 15 if card else 0  # below the version
    frames.check_question(model, shape, (range_, exponent), (classes, d, k), batch, local)
    frames.require(1 <= len(card) <= wire.MAX_CARD, "card too long or missing")
    if is_collection:
        requested = [1 if value else 0 for value in parameters]
        # A sum has one value more, the tally of its units; the comparison counts as 1.
        values = sum(requested) * classes + (shape == SUM)
        frames.require(k <= values <= wire.MAX_VALUES + 1, "k larger than the features asked for")
        # A bit for each feature, eight to a byte, from the lowest bit up.
        bits = bytearray(d + 7 >> 3)
        for j in range(d):
            bits[j >> 3] |= requested[j] << (j & 7)
        variable_part = bytes(bits)
    else:
        variable_part = _int16(parameters)
    fields = (
        (device, round_number, model, range_, exponent, classes, d, k, batch) + local + (len(card),)
    )
    return _encode(out, key, wire.ROUND, wire.ROUND_FIELDS, fields, variable_part + bytes(card))


def _int16(parameters):
    """Return the parameters as int16s, little-endian. Raises FrameError."""
    for value in parameters:
        frames.require(-32768 <= value <= 32767, "parameter out of bounds")
    return struct.pack("<%dh" % len(parameters), *parameters)


def _encode(out, key, kind, layout, fields, rest=b""):
    """Write a frame of type `kind`: fixed fields, the variable part `rest` and the tag.

    Returns its length.
    """
    out[0] = kind
    struct.pack_into(layout, out, 1, *fields)
    start = frames.end_of(layout)
    out[start : start + len(rest)] = rest
    return frames.seal(key, out, start + len(rest))


def encode_model(out, key, device, round_number, model, parameters, exponent, classes=1):
    """Write a MODEL, which brings the learned model to devices; return its length.

    device, key: those of a client; or FLEET and the fleet's. parameters: classes x d int16
    mantissas m, each of which stands for m 2**exponent. Raises FrameError.
    """
    n = len(parameters)
    frames.require(not (device >> 32 or round_number >> 32), "device or round out of bounds")
    frames.require(0 <= model <= 255 and -128 <= exponent <= 127, "model or exponent out of bounds")
    frames.require(1 <= classes <= 255 and n % classes == 0, "parameters are not classes x d")
    size = frames.end_of(wire.MODEL_FIELDS) + 2 * n + wire.TAG_BYTES
    frames.require(size <= wire.MAX_FRAME, "too many parameters")
    fields = device, round_number, model, exponent, classes, n // classes
    n = _encode(out, key, wire.MODEL, wire.MODEL_FIELDS, fields, _int16(parameters))
    check_model(memoryview(out)[:n], key)  # raises FrameError if a device would refuse it
    return n


def encode_fleet_key(out, key, device, epoch, fleet_key):
    """Write a FLEET_KEY, which brings a board the key of a later epoch; return its length.

    The key is hidden under `key`, that of the board's first client. Raises FrameError.
    """
    frames.check_address(device, 1)
    frames.require(1 <= epoch < wire.FLEET, "epoch out of bounds")
    fields = device, epoch, frames.mask_fleet_key(key, epoch, fleet_key)
    return _encode(out, key, wire.FLEET_KEY, wire.FLEET_KEY_FIELDS, fields)


def encode_update(out, key, device, number, offset, total, data=b""):
    """Write an UPDATE: bytes of package `number` from `offset` on; return its length.

    total: bytes of the package; without data, the frame asks for progress. Raises FrameError.
    """
    frames.check_address(device, 1)
    frames.require(
        1 <= number < 1 << 32 and 1 <= total <= wire.MAX_PACKAGE, "package out of bounds"
    )
    frames.require(
        offset >= 0 and offset + len(data) <= total and len(data) <= MAX_DATA, "data out of bounds"
    )
    return _encode(out, key, wire.UPDATE, wire.UPDATE_FIELDS, (device, number, offset, total), data)


def decode_updated(frame, key):
    """Return (device, number, wanted, state) of an UPDATED. Raises FrameError.

    key: frames.answer_key() of the UPDATE's digest.
    """
    fields = frames.fields_of(frame, wire.UPDATED, wire.UPDATED_FIELDS)
    frames.check_length(frame, wire.UPDATED_FIELDS, 0)
    frames.verify(key, frame)
    frames.require(fields[-1] <= wire.FULL, "unknown state")
    return fields


HELLO_NAMES = (
    "nonce",
    "version",
    "schema",
    "first",
    "clients",
    "largest",
    "credit",
    "budget",
    "spent",
    "epoch",
    "heap",
    "records",
    "exceptions",
    "restarts",
    "entropy",
    "assessed",
    "measure",
    "unit",
    "release",
)


class Hello:
    """A decoded HELLO, by which a board describes itself, with the fields of wire.md.

    release: (major, minor, patch) of the board's tern. A board with another schema, another version
    of wire.py, may have other fields: then only the first three are set, and all others are None.
    """

    nonce: int
    version: int
    schema: bytes
    first: "int | None"
    clients: "int | None"
    largest: "int | None"
    credit: "int | None"
    budget: "int | None"
    spent: "int | None"
    epoch: "int | None"
    heap: "int | None"
    records: "int | None"
    exceptions: "int | None"
    restarts: "int | None"
    entropy: "int | None"
    assessed: "int | None"
    measure: "int | None"
    unit: "int | None"
    release: "tuple[int, ...] | None"

    def __init__(self, frame):
        """Decode `frame`. Raises FrameError."""
        # The first three fields, nonce, version and schema, are the same in all schemas.
        fields = struct.calcsize("<IB8s")
        frames.require(
            frames.kind(frame) == wire.HELLO and len(frame) >= 1 + fields + wire.TAG_BYTES,
            "not a HELLO",
        )
        frames.verify(b"", frame)
        for name in HELLO_NAMES:
            setattr(self, name, None)
        self.text = None
        self.nonce, self.version, self.schema = struct.unpack_from("<IB8s", frame, 1)
        if self.schema != wire.SCHEMA:
            return
        fields = frames.fields_of(frame, wire.HELLO, wire.HELLO_FIELDS)
        n = fields[-1]  # the length of the text, which ends the frame
        frames.check_length(frame, wire.HELLO_FIELDS, n)
        for name, value in zip(HELLO_NAMES, fields):
            setattr(self, name, value)
        self.release = tuple(fields[-2])  # three bytes become three numbers
        start = frames.end_of(wire.HELLO_FIELDS)
        try:
            self.text = str(bytes(frame[start : start + n]), "utf-8")
        except UnicodeError:
            frames.require(False, "text is not UTF-8")


def decode_error(frame, key):
    """Return (device, round, code, detail) of an ERROR. Raises FrameError.

    key: frames.answer_key(), or the empty one of a board.
    """
    fields = frames.fields_of(frame, wire.ERROR, wire.ERROR_FIELDS)
    frames.check_length(frame, wire.ERROR_FIELDS, 0)
    frames.verify(key, frame)
    return fields
