"""Frames: streams of frames, tags, and the codecs of wire.py.

They are in one file because a second module costs a board 190 bytes. The inner loops have a module
of their own, octets.py, since boards with a Thumb processor have them in assembler.

Encoders write a whole frame, tag included, into the caller's buffer and return its length. Decoders
check every bound before they use a field, and raise FrameError. A `layout` is one of struct. A key
has 32 bytes or, where a frame is not secret, none.

Tags, which authenticate frames: SHA-256 of key and data, cut to 8 bytes, a PRF (Bellare,
Bernstein, Tessaro, Hash-Function Based PRFs, Eurocrypt 2016).
"""

import struct
from array import array
from hashlib import sha256
from struct import pack_into

from tern import __version__, wire
from tern.compat import const
from tern.octets import AT, END, copy_int16, difference, pack
from tern.octets import cobs_decode as cobs_decode
from tern.octets import cobs_encode as cobs_encode
from tern.octets import still_to_come as still_to_come
from tern.shapes import SUM

MORE = const(-1)  # Receiver.next(): the bytes given hold no further whole frame
# Receiver.next(): a frame ended that was not COBS, or was longer than the limit
DAMAGED = const(-2)

QUESTION_AT = const(5)  # a ROUND is type, device, question, tag
REPORT_BYTES = const(9)  # type and fixed fields of a REPORT
_ROUND_BYTES = const(26)  # type and fixed fields of a ROUND
_MODEL_AT = const(9)  # where the fields of a ROUND begin that rarely change in a run


class FrameError(ValueError):
    """A frame that must not be obeyed. `code` and `detail`: as in an ERROR frame."""

    def __init__(self, code, what="", detail=0):
        super().__init__(what)
        self.code = code
        self.detail = detail


def require(condition, what=""):
    """Raise FrameError (ERR_FRAME) with the text `what` unless `condition` holds."""
    if not condition:
        raise FrameError(wire.ERR_FRAME, what)


def cobs_size(n):
    """Return the most bytes that cobs_encode writes for n bytes, the ending 0x00 included.

    That is a code for each 254 bytes, one more, and the 0x00.
    """
    return n + 2 + n // 254


def receiver_state(limit):
    """Return the state of cobs_decode() at the beginning, for frames of at most `limit` bytes."""
    return array("i", (0, 0, 0, 0, 0, 0, limit))


class Receiver:
    """Frames out of a stream of bytes.

    give() some bytes, then call next() until it returns MORE. A frame of length n is frame[:n]
    until the next call; 0 is an empty frame. Any garbage ends at the next 0x00.
    """

    def __init__(self, limit=wire.MAX_FRAME):
        self.frame = bytearray(limit)
        self._state = receiver_state(limit)
        self._source = b""

    def give(self, source, n=None):
        """Take source[:n] (None: all) as the next bytes of the stream.

        `source` must stay as it is until next() returns MORE.
        """
        self._source = source
        self._state[AT] = 0
        self._state[END] = len(source) if n is None else n

    def next(self):
        """Return the length of the next frame, or MORE or DAMAGED."""
        return cobs_decode(self._source, self._state, self.frame)

    def certain(self):
        """Return how many bytes of a host must still come before the current frame can end.

        A console's read blocks until all bytes are there, so a board may ask for this many. It is 1
        between two frames. It is 0 if the bytes since the last 0x00 are just 0x0D 0x03, by which
        tools interrupt a board, and with which no frame of a host begins.
        """
        return still_to_come(self._state, self.frame)


def question_bytes(model, classes, d):
    """Return how many bytes of a ROUND are its parameters, or its requested features.

    Parameters are classes x d int16s; the features of a collection are a bit each, of which
    (d + 7) >> 3 bytes are needed.
    """
    return d + 7 >> 3 if model in wire.COLLECTIONS else 2 * classes * d


def packed_size(base, k):
    """Return the fewest bytes that hold every number below base**k. Raises FrameError."""
    require(2 <= base <= wire.MAX_BASE and 1 <= k <= wire.MAX_VALUES + 1, "symbols out of bounds")
    values = base**k
    n = 0
    holds = 1
    while holds < values:
        holds <<= 8
        n += 1
    return n


def digest(key, data):
    """Return SHA-256 of key and data."""
    hashed = sha256(key)
    hashed.update(data)
    return hashed.digest()


def tag(key, data):
    """Return the tag of `data` under `key`: the first 8 bytes of digest()."""
    return digest(key, data)[: wire.TAG_BYTES]


def same(a, b):
    """Return whether two byte strings are equal, in constant time."""
    return len(a) == len(b) and not difference(a, 0, b, len(a))


def seal(key, out, n):
    """Write the tag of out[:n] behind it, and return the length of the whole frame.

    out: bytearray or memoryview.
    """
    pack_into("8s", out, n, digest(key, out[:n]))
    return n + wire.TAG_BYTES


def verify(key, frame):
    """Check the tag of `frame` (bytes, memoryview) under `key`.

    Returns the SHA-256 digest that the tag begins. Raises FrameError (ERR_TAG).
    """
    n = len(frame) - wire.TAG_BYTES
    if n > 0:
        whole = digest(key, frame[:n])
        if not difference(frame, n, whole, wire.TAG_BYTES):
            return whole
    raise FrameError(wire.ERR_TAG, "tag does not verify")


def question(key, address, asked):
    """Return the digest of a ROUND under a client's key, which identifies the question to it.

    The ROUND itself may be for the whole fleet, with other first bytes and another tag; so the
    digest is that of the frame as the client alone would have got it. address: the frame's first 5
    bytes then, its type and the client's device. asked: the rest of the frame without the tag.
    """
    return digest(key + address, asked)


def answer_key(question):
    """Return the key of the tags of answers to a ROUND: 16 bytes of the question's digest.

    question: the digest that question() returns. The first 8 bytes are the ROUND's own tag.
    """
    return question[wire.TAG_BYTES : 3 * wire.TAG_BYTES]


def mask_fleet_key(key, epoch, fleet_key):
    """Hide the key of a fleet for a FLEET_KEY frame, or reveal it again.

    It is XORed with digests of the epoch under the client's `key`, so that doing it twice gives the
    fleet's key back. epoch: the number of the fleet's key, a new one each time.
    """
    label = wire.FLEET_KEY_LABEL + struct.pack("<I", epoch)
    mask = digest(key, label + b"1")[:16] + digest(key, label + b"2")[:16]
    return bytes([a ^ b for a, b in zip(mask, fleet_key)])


def end_of(layout):
    """Return the length of a frame's type and fixed fields; layout: of struct."""
    return 1 + struct.calcsize(layout)


def check_address(device, round_number):
    """Raise FrameError unless `device` is a client's and `round_number` is in bounds."""
    if device < 1 or device >> 32 or not 1 <= round_number <= wire.MAX_ROUND:
        raise FrameError(wire.ERR_FRAME, "device or round out of bounds")


def encode_hello_request(out, nonce):
    """Write a HELLO_REQUEST, whose tag has the empty key. nonce: u32, which the HELLO repeats."""
    pack_into("<BI", out, 0, wire.HELLO_REQUEST, nonce)
    return seal(b"", out, 5)


def encode_hello(
    out,
    nonce,
    first,
    clients,
    budget,
    spent,
    epoch,
    heap,
    records,
    exceptions,
    restarts,
    entropy,
    assessed,
    measure,
    unit,
    text,
):
    """Write a HELLO, by which a board describes itself; return its length.

    The parameters are the fields of wire.md, in their order; those that are the same for every
    board, such as the version, are put in here. text: a description, cut to 255 bytes of UTF-8.
    """
    while len(text.encode()) > 255:
        text = text[:-1]
    text = text.encode()
    parts = __version__.split(".")
    release = bytes(map(int, parts))
    out[0] = wire.HELLO
    pack_into(
        wire.HELLO_FIELDS,
        out,
        1,
        nonce,
        wire.VERSION,
        wire.SCHEMA,
        first,
        clients,
        wire.MAX_FRAME,
        wire.CREDIT,
        budget,
        spent,
        epoch,
        heap,
        records,
        exceptions,
        restarts,
        entropy,
        assessed,
        measure,
        unit,
        release,
        len(text),
    )
    n = end_of(wire.HELLO_FIELDS)
    out[n : n + len(text)] = text
    return seal(b"", out, n + len(text))


def report_packing(k, base):
    """Return the `packing` of a REPORT for octets.pack(): k symbols, each below base.

    Raises FrameError if there are too many for a report.
    """
    size = packed_size(base, k)
    require(size <= wire.MAX_PACKED, "too many symbols for one report")
    return array("i", (k, base, REPORT_BYTES, REPORT_BYTES + size))


def write_report(out, device, round_number, symbols, packing):
    """Write a REPORT of `symbols` (array('H')) without its tag.

    packing: of report_packing(), which a caller keeps from round to round. Raises FrameError.
    """
    out[0] = wire.REPORT
    pack_into(wire.REPORT_FIELDS, out, 1, device, round_number)
    if pack(symbols, packing, out) < 0:
        raise FrameError(wire.ERR_FRAME, "symbols out of bounds")


def encode_report(out, key, device, round_number, symbols, packing):
    """Write a whole REPORT as write_report(); return its length.

    key: answer_key() of the question.
    """
    write_report(out, device, round_number, symbols, packing)
    return seal(key, out, packing[3])


def encode_error(out, key, device, round_number, code, detail=0):
    """Write an ERROR, by which a client refuses a request; return its length.

    code: one of wire.ERR_FRAME and those after it; detail: a number that wire.md explains for each.
    A device of 0 and the empty key mean that the board itself speaks, not one of its clients.
    """
    out[0] = wire.ERROR
    pack_into(wire.ERROR_FIELDS, out, 1, device, round_number, code, detail)
    return seal(key, out, end_of(wire.ERROR_FIELDS))


def kind(frame):
    """Return the type of `frame` (bytes, bytearray or memoryview).

    Raises FrameError if it is too short or too long for any frame.
    """
    if not 1 + wire.TAG_BYTES <= len(frame) <= wire.MAX_FRAME:
        raise FrameError(wire.ERR_FRAME, "frame too short or too long")
    return frame[0]


def fields_of(frame, expected, layout):
    """Return the fixed fields of a frame of the type `expected`; its tag is not verified.

    layout: of struct. Raises FrameError for another type, and for a frame that is too short.
    """
    require(kind(frame) == expected, "another type of frame")
    require(len(frame) >= end_of(layout) + wire.TAG_BYTES, "frame too short")
    return struct.unpack_from(layout, frame, 1)


def check_length(frame, layout, rest):
    """Raise FrameError unless a frame has its fixed fields, `rest` bytes and a tag, and no more."""
    require(len(frame) == end_of(layout) + rest + wire.TAG_BYTES, "wrong length")


def check_question(model, shape, scale, sizes, batch, local):
    """Check the fields of a question; return how many values a client computes (at most).

    A question is what a ROUND asks for, whatever device it is for. Raises FrameError.

    model: one of wire.LINEAR .. wire.LAST_MODEL.
    shape: that of the card, the kind of privacy mechanism.
    scale: (range, exponent). Values are scaled up by 2**range; a mantissa m of the model's
    parameters stands for m 2**exponent. For categories: whether they are hashed, and 0, or the
    exponent of the number of bins, whose numbers are the categories of numeric features.
    sizes: (classes, d, k): d features, in a collection those that may be requested; k of the values
    are reported.
    batch: how many records to use, 0 for all.
    local: (epochs, rate, tau) of local training, else zeros.
    """
    range_, exponent = scale
    classes, d, k = sizes
    require(wire.LINEAR <= model <= wire.LAST_MODEL, "unknown model")
    is_training = model in wire.TRAININGS
    is_collection = model in wire.COLLECTIONS
    is_count = model == wire.CATEGORIES and shape == SUM
    fits = is_count or classes * d <= wire.MAX_VALUES
    require(1 <= d <= wire.MAX_DIMENSION and fits, "d out of bounds")

    if is_count or model in wire.OF_CLASSES:
        require(2 <= classes <= wire.MAX_DIMENSION, "classes out of bounds")
    else:
        require(classes == 1, "classes out of bounds")

    # The range: how many bits values are scaled up. For categories it says whether they are hashed.
    most = 0
    if model in wire.SCALED:
        most = wire.MAX_RANGE
    elif is_collection and not is_count:
        most = 1
    require(0 <= range_ <= most, "range")

    # The exponent: of the model's parameters; or, for categories, that of the number of bins, where
    # features are numbers.
    least = wire.MIN_LOCAL_EXPONENT if is_training else wire.MIN_EXPONENT
    most = wire.MAX_EXPONENT
    if is_collection:
        least = 0
        most = wire.MAX_BIN_EXPONENT if model == wire.CATEGORIES else 0
    require(least <= exponent <= most, "exponent out of bounds")

    most = 0 if model in wire.OF_ONE_RECORD else wire.MAX_BATCH
    require(0 <= batch <= most, "batch out of bounds")
    if is_training:
        epochs, rate, tau = local
        fits = 1 <= epochs <= 255 and 0 <= rate <= wire.MAX_RATE and 1 <= tau <= wire.MAX_TAU
    else:
        fits = not any(local)
    require(fits, "local training out of bounds")

    if model == wire.SOFTMAX:  # inference reports the likeliest class, or all probabilities
        values = k
        fits = k in (1, classes)
    else:
        # A value for each parameter, and in a sum one more, the tally of its units.
        values = classes * d + (shape == SUM)
        fits = 1 <= k <= values
    require(fits, "k out of bounds")
    return values


def is_for_fleet(frame):
    """Return whether `frame` is a ROUND for the whole fleet.

    Its device is then FLEET, four bytes of 255. No ROUND has 16 bytes or less.
    """
    if len(frame) <= 16 or frame[4] != 255 or frame[0] != wire.ROUND:
        return False
    return frame[3] == frame[2] == frame[1] == 255


def address(frame):
    """Return (device, round) of a ROUND, REPORT or ERROR, unchecked.

    They say under which key the frame is to be verified. Raises FrameError for other frames.
    """
    if kind(frame) not in (wire.ROUND, wire.REPORT, wire.ERROR) or len(frame) < 9 + wire.TAG_BYTES:
        raise FrameError(wire.ERR_FRAME, "frame without an address")
    return struct.unpack_from("<II", frame, 1)


def decode_hello_request(frame):
    """Return the nonce of a HELLO_REQUEST. Raises FrameError."""
    (nonce,) = fields_of(frame, wire.HELLO_REQUEST, wire.HELLO_REQUEST_FIELDS)
    check_length(frame, wire.HELLO_REQUEST_FIELDS, 0)
    verify(b"", frame)
    return nonce


class Round:
    """One decoded ROUND after another, with the fields of wire.md as attributes.

    Decoding is quick if only the parameters differ from the last frame: fields that are the same
    are not checked again. parameters: array('h'), classes x d, row by row. asked: a byte for each
    feature of a collection, 1 if it is requested. values: how many values a client computes, of
    which it reports k. changes: counts frames that differ from the one before in more than device,
    round and parameters, and frames of collections.
    """

    def __init__(self):
        """Allocate the buffers; all fields are 0 or empty before the first decode()."""
        self.device = self.round = self.model = self.range = self.exponent = self.classes = 0
        self.d = self.k = self.batch = self.epochs = self.rate = self.tau = self.values = 0
        self.changes = 0
        self.parameters = array("h")
        self.asked = bytearray(wire.MAX_DIMENSION)
        self.card = b""
        # The bytes of the last valid frame from its model to its parameters, its length (0: none),
        # how many mantissas it has, and where its card is.
        self._head = bytearray(_ROUND_BYTES - _MODEL_AT)
        self._length = self._mantissas = self._card_at = self._card_bytes = 0
        self._is_collection = False

    def decode(self, frame, known=None):
        """Decode `frame` into the attributes; its tag is not verified here. Raises FrameError.

        known: the (device, round) of the frame, if the caller has read them with address(); else
        None.
        """
        device, number = known or address(frame)
        self.device = device
        self.round = number
        if device < 1 or not 1 <= number <= wire.MAX_ROUND:  # as check_address()
            raise FrameError(wire.ERR_FRAME, "device or round out of bounds")
        # Compare the head and the card with the last ones; both rarely change in a run.
        if (
            len(frame) != self._length
            or frame[0] != wire.ROUND
            or difference(frame, _MODEL_AT, self._head, _ROUND_BYTES - _MODEL_AT)
            or difference(frame, self._card_at, self.card, self._card_bytes)
        ):
            self._decode_head(frame)
        if self._is_collection:
            self._decode_asked(frame)
        else:
            copy_int16(frame, _ROUND_BYTES, self.parameters, self._mantissas)

    def _decode_asked(self, frame):
        """Read which features a collection requests, a bit each; count the values computed.

        Raises FrameError. The bits of the last byte beyond d must be 0.
        """
        self.changes += 1
        # A sum has one value more, the tally of its units: the comparison counts as 1. The low four
        # bits of a card are its shape.
        self.values = self.card[0] & 15 == SUM
        # All bits of the last byte too: d is rounded up to a multiple of 8.
        for j in range(self.d + 7 & ~7):
            bit = frame[_ROUND_BYTES + (j >> 3)] >> (j & 7) & 1
            require(j < self.d or not bit, "feature out of bounds")
            self.asked[j] = bit
            self.values += bit * self.classes
        require(self.k <= self.values <= wire.MAX_VALUES + 1, "k out of bounds")

    def _decode_head(self, frame):
        """Decode and check all fields from the model on, and remember them for the next frame.

        Raises FrameError; then the next frame is checked in full.
        """
        self._length = 0
        self.changes += 1
        (
            _,  # device, and
            _,  # round, which decode() has taken already
            self.model,  # what is computed: wire.LINEAR and those after it
            self.range,  # values are scaled up by 2**range
            self.exponent,  # a mantissa m of the parameters stands for m 2**exponent
            self.classes,  # rows of parameters
            self.d,  # features, the constant included
            self.k,  # values that are reported
            self.batch,  # records to compute with; 0: all
            self.epochs,  # of local training; else 0, as are the next two
            self.rate,
            self.tau,
            card_bytes,  # the length of the card behind the parameters
        ) = fields_of(frame, wire.ROUND, wire.ROUND_FIELDS)
        require(1 <= card_bytes <= wire.MAX_CARD, "card too long or missing")
        parameter_bytes = question_bytes(self.model, self.classes, self.d)
        check_length(frame, wire.ROUND_FIELDS, parameter_bytes + card_bytes)
        self.values = check_question(
            self.model,
            frame[_ROUND_BYTES + parameter_bytes] & 15,  # the shape, below the card's version
            (self.range, self.exponent),
            (self.classes, self.d, self.k),
            self.batch,
            (self.epochs, self.rate, self.tau),
        )
        mantissas = self.classes * self.d
        if mantissas != self._mantissas:
            self.parameters = array("h", bytes(2 * mantissas))
            self._mantissas = mantissas
        self._is_collection = self.model in wire.COLLECTIONS
        self._card_at = _ROUND_BYTES + parameter_bytes
        self._card_bytes = card_bytes
        self.card = bytes(frame[self._card_at : -wire.TAG_BYTES])
        self._head[:] = frame[_MODEL_AT:_ROUND_BYTES]
        self._length = len(frame)
