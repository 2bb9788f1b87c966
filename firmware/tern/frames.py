"""Frames, in one file because a second module costs a board 190 bytes: COBS, tags, packed symbols,
codecs of wire.py.

Encoders write a whole frame, tag included, into the caller's buffer and return its length. Decoders
check every bound before they use a field, and raise FrameError. COBS: Cheshire and Baker, 1999.
Tags: SHA-256 of key and data, cut to 8 bytes, a PRF (Bellare, Bernstein, Tessaro, Hash-Function
Based PRFs, Eurocrypt 2016).
"""

import hashlib
import struct
from array import array

from tern import __version__, wire
from tern.compat import const, micropython, ptr8, ptr16, ptr32
from tern.shapes import SUM

MORE = const(-1)  # Receiver.next(): the bytes given hold no further whole frame
# Receiver.next(): a frame ended that was not COBS, or was longer than the limit
DAMAGED = const(-2)

_AT = const(
    0
)  # indices of a Receiver's state, written in this order: next byte of the source, its end,
_END = const(1)
_LENGTH = const(2)  # bytes decoded,
_LEFT = const(3)  # bytes left in the block,
_ZERO = const(4)  # whether a zero follows the block,
_BAD = const(5)  # whether this frame is damaged,
_LIMIT = const(6)  # and the longest frame

# Tools interrupt a board by a carriage return, which in COBS would begin a block of 12 bytes, and
# Ctrl-C.
_RETURN = const(0x0D)
_CTRL_C = const(0x03)
_LEAST = const(13)  # a HELLO_REQUEST: the shortest frame of a host
QUESTION_AT = const(5)  # a ROUND is type, device, question, tag
REPORT_BYTES = const(9)  # type and fixed fields of a REPORT
_ROUND_BYTES = const(26)  # type and fixed fields of a ROUND,
_LEAST_ROUND = const(36)  # those, a byte of parameters, one of the card, the tag;
_MODEL_AT = const(9)  # and where those of them stand that say how long it is
_CLASSES_AT = const(12)
_D_AT = const(13)
_CARD_AT = const(24)


class FrameError(ValueError):
    """A frame that must not be obeyed. `code` and `detail`: as in an ERROR frame."""

    def __init__(self, code, what="", detail=0):
        super().__init__(what)
        self.code = code
        self.detail = detail


def require(condition, what=""):
    if not condition:
        raise FrameError(wire.ERR_FRAME, what)


@micropython.viper
def cobs_encode(source: ptr8, n: int, out: ptr8) -> int:
    """Write the COBS form of source[:n] and the ending 0x00 into `out`; return the length (at most
    cobs_size(n)).
    """
    mark = 0
    to = 1
    code = 1
    i = 0
    while i < n:
        value = source[i]
        i += 1
        if value:
            out[to] = value
            to += 1
            code += 1
        if value == 0 or (code == 255 and i < n):
            out[mark] = code
            mark = to
            to += 1
            code = 1
    out[mark] = code
    out[to] = 0
    return to + 1


@micropython.viper
def cobs_decode(source: ptr8, state: ptr32, out: ptr8) -> int:
    """Decode source[state[0]:state[1]] into `out` up to a 0x00; return the frame's length, MORE or
    DAMAGED.
    """
    at = state[_AT]
    end = state[_END]
    length = state[_LENGTH]
    left = state[_LEFT]
    zero = state[_ZERO]
    bad = state[_BAD]
    result = -1
    while at < end and result == -1:
        value = source[at]
        at += 1
        if value == 0:
            result = length
            if bad or left:
                result = -2
            length = 0
            left = 0
            zero = 0
            bad = 0
        elif bad == 0:
            put = 1
            if left:
                left -= 1
            else:
                put = zero
                left = value - 1
                zero = 1 if value < 255 else 0
                value = 0
            if put:
                if length < state[_LIMIT]:
                    out[length] = value
                    length += 1
                else:
                    bad = 1
    state[_AT] = at
    to = _LENGTH  # see compat: no constant index
    state[to] = length
    to += 1
    state[to] = left
    to += 1
    state[to] = zero
    to += 1
    state[to] = bad
    return result


@micropython.viper
def still_to_come(state: ptr32, frame: ptr8) -> int:
    """See Receiver.certain()."""
    length = state[_LENGTH]
    left = state[_LEFT]
    if length == 0:  # after a carriage return the next byte tells what it is
        if left and left != _RETURN - 1:
            left = _LEAST
        else:
            left = 0
    elif length == 1 and left == _RETURN - 2 and frame[0] == _CTRL_C:
        left = -1
    elif frame[0] == int(wire.ROUND):
        least = _LEAST_ROUND
        if length >= _ROUND_BYTES:
            model = frame[_MODEL_AT]
            d = frame[_D_AT] | frame[_D_AT + 1] << 8
            least = (
                _ROUND_BYTES + int(wire.TAG_BYTES) + (frame[_CARD_AT] | frame[_CARD_AT + 1] << 8)
            )
            if model >= int(wire.VALUES) and model <= int(wire.CATEGORIES):
                least += d + 7 >> 3  # as question_bytes()
            else:
                least += 2 * frame[_CLASSES_AT] * d
        if left < least - length:
            left = least - length
    return 1 + left


@micropython.viper
def pack(symbols: ptr16, k: int, base: int, out: ptr8, start: int, end: int) -> int:
    """Write sum of symbols[i] * base**i, little-endian, into out[start:end], packed_size(base, k)
    bytes.

    base: 2..65536. Return how many bytes the value takes, or -1 if a symbol is not below base.
    """
    j = end
    while j > start:
        j -= 1
        out[j] = 0
    used = start
    i = k - 1
    while i >= 0:
        carry = symbols[i]
        if carry >= base:
            return -1
        j = start
        while j < used:
            carry += out[j] * base
            out[j] = carry & 255
            carry >>= 8
            j += 1
        while carry:
            out[used] = carry & 255
            used += 1
            carry >>= 8
        i -= 1
    return used - start


@micropython.viper
def copy_int16(source: ptr8, start: int, out: ptr16, n: int):
    """out[i] = the int16 at source[start + 2 i], for i < n."""
    i = 0
    while i < n:
        at = start + i + i
        value = source[at] | source[at + 1] << 8
        out[i] = ((value + 32768) & 65535) - 32768
        i += 1


def cobs_size(n):
    """Return the most bytes that cobs_encode writes for n bytes, the ending 0x00 included."""
    return n + 2 + n // 254


def receiver_state(limit):
    return array("i", (0, 0, 0, 0, 0, 0, limit))


class Receiver:
    """Frames out of a stream of bytes: give() some, then call next() until it returns MORE.

    A frame of length n is frame[:n] until the next call; 0 is an empty frame. Any garbage ends at
    the next 0x00.
    """

    def __init__(self, limit=wire.MAX_FRAME):
        self.frame = bytearray(limit)
        self._state = receiver_state(limit)
        self._source = b""

    def give(self, source, n=None):
        """Take source[:n] as the next bytes of the stream; `source` must stay as it is until next()
        says MORE.
        """
        self._source = source
        self._state[_AT] = 0
        self._state[_END] = len(source) if n is None else n

    def next(self):
        """Return the length of the next frame, or MORE or DAMAGED."""
        return cobs_decode(self._source, self._state, self.frame)

    def certain(self):
        """Return how many bytes of a host must still come before the current frame can end; 1
        between two frames.

        0 if the bytes since the last 0x00 are just 0x0D 0x03, by which tools interrupt and no frame
        of a host begins.
        """
        return still_to_come(self._state, self.frame)


def question_bytes(model, classes, d):
    """Return how many bytes of a ROUND are its parameters, or the features that it asks for."""
    return d + 7 >> 3 if model in wire.COLLECTIONS else 2 * classes * d


def packed_size(base, k):
    """Return the fewest bytes that hold every number below base**k."""
    require(2 <= base <= wire.MAX_BASE and 1 <= k <= wire.MAX_VALUES + 1, "symbols out of bounds")
    values = base**k
    n = 0
    holds = 1
    while holds < values:
        holds <<= 8
        n += 1
    return n


def digest(key, data):
    state = hashlib.sha256(key)
    state.update(data)
    return state.digest()


def tag(key, data):
    return digest(key, data)[: wire.TAG_BYTES]


def same(a, b):
    """Return whether two byte strings are equal, in constant time."""
    return len(a) == len(b) and not difference(a, 0, b, len(a))


@micropython.viper
def difference(a: ptr8, start: int, b: ptr8, n: int) -> int:
    """Return 0 if a[start : start + n] and b[:n] are equal, in constant time."""
    bits = 0
    i = 0
    while i < n:
        bits |= a[start + i] ^ b[i]
        i += 1
    return bits


def seal(key, out, n, data=None):
    """Write the tag of out[:n] (bytearray or memoryview) behind it; return the frame's length.
    data: a view of it.
    """
    data = digest(key, data or out[:n])
    struct.pack_into("8s", out, n, data)
    return n + wire.TAG_BYTES


def verify(key, frame):
    """Return the SHA-256 that the tag of `frame` (bytes, memoryview) begins.

    Raises FrameError (ERR_TAG).
    """
    n = len(frame) - wire.TAG_BYTES
    if n > 0:
        whole = digest(key, frame[:n])
        if not difference(frame, n, whole, wire.TAG_BYTES):
            return whole
    raise FrameError(wire.ERR_TAG, "tag does not verify")


def question(key, address, asked):
    """Return a client's digest of a ROUND; address: its type and device, 5 bytes; asked: the rest
    without the tag.
    """
    state = hashlib.sha256(key)
    state.update(address)
    state.update(asked)
    return state.digest()


def answer_key(question):
    """Return the tag key for answers to a ROUND; question: the digest of the ROUND, under the
    client's key and id.
    """
    return question[wire.TAG_BYTES : 3 * wire.TAG_BYTES]


def mask_fleet_key(key, epoch, fleet_key):
    """Return the key of a fleet as a FLEET_KEY carries it to the client with `key`; or back."""
    label = wire.FLEET_KEY_LABEL + struct.pack("<I", epoch)
    mask = digest(key, label + b"1")[:16] + digest(key, label + b"2")[:16]
    return bytes([a ^ b for a, b in zip(mask, fleet_key)])


def end_of(layout):
    return 1 + struct.calcsize(layout)


def check_address(device, round_number):
    if device < 1 or device >> 32 or not 1 <= round_number <= wire.MAX_ROUND:
        raise FrameError(wire.ERR_FRAME, "device or round out of bounds")


def encode_hello_request(out, nonce):
    struct.pack_into("<BI", out, 0, wire.HELLO_REQUEST, nonce)
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
    """Write a HELLO: the fields of wire.md; those that are the same for every board are put in
    here.
    """
    while len(text.encode()) > 255:
        text = text[:-1]
    text = text.encode()
    parts = __version__.split(".")
    release = bytes(map(int, parts))
    out[0] = wire.HELLO
    struct.pack_into(
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


def encode_report(out, key, device, round_number, symbols, k, base, size, data=None):
    """Write a REPORT of symbols[:k] (array('H')), each below base; key: answer_key(); size:
    packed_size(base, k).
    """
    out[0] = wire.REPORT
    struct.pack_into(wire.REPORT_FIELDS, out, 1, device, round_number)
    end = REPORT_BYTES + size
    if size > wire.MAX_PACKED or pack(symbols, k, base, out, REPORT_BYTES, end) < 0:
        raise FrameError(wire.ERR_FRAME, "symbols out of bounds")
    return seal(key, out, end, data)


def encode_error(out, key, device, round_number, code, detail=0):
    """Write an ERROR; device 0 and the empty key where the board itself speaks."""
    out[0] = wire.ERROR
    struct.pack_into(wire.ERROR_FIELDS, out, 1, device, round_number, code, detail)
    return seal(key, out, end_of(wire.ERROR_FIELDS))


def kind(frame):
    """Return the type of `frame` (bytes, bytearray or memoryview).

    Raises FrameError where it is too short or long.
    """
    if not 1 + wire.TAG_BYTES <= len(frame) <= wire.MAX_FRAME:
        raise FrameError(wire.ERR_FRAME, "frame too short or too long")
    return frame[0]


def fields_of(frame, expected, layout):
    require(kind(frame) == expected, "another type of frame")
    require(len(frame) >= end_of(layout) + wire.TAG_BYTES, "frame too short")
    return struct.unpack_from(layout, frame, 1)


def check_length(frame, layout, rest):
    require(len(frame) == end_of(layout) + rest + wire.TAG_BYTES, "wrong length")


def check_question(model, shape, scale, sizes, batch, local):
    """Return how many values a client computes (in a collection, at most); it reports k of them.

    shape: of the card; scale: (range, exponent); sizes: (classes, d, k); local: (epochs, rate, tau)
    of local training. Raises FrameError.
    """
    range_, exponent = scale
    classes, d, k = sizes
    require(wire.LINEAR <= model <= wire.LAST_MODEL, "unknown model")
    trains = model in wire.TRAININGS
    collects = model in wire.COLLECTIONS
    counts = model == wire.CATEGORIES and shape == SUM
    fits = counts or classes * d <= wire.MAX_VALUES
    require(1 <= d <= wire.MAX_DIMENSION and fits, "d out of bounds")
    if counts or model in wire.OF_CLASSES:
        require(2 <= classes <= wire.MAX_DIMENSION, "classes out of bounds")
    else:
        require(classes == 1, "classes out of bounds")

    most = 0  # of the range
    if model in wire.SCALED:
        most = wire.MAX_RANGE
    elif collects and not counts:
        most = 1
    require(0 <= range_ <= most, "range")
    if collects:
        require(exponent == 0, "exponent out of bounds")
    else:
        least = wire.MIN_LOCAL_EXPONENT if trains else wire.MIN_EXPONENT
        require(least <= exponent <= wire.MAX_EXPONENT, "exponent out of bounds")

    most = 0 if model in wire.OF_ONE_RECORD else wire.MAX_BATCH
    require(0 <= batch <= most, "batch out of bounds")
    if trains:
        epochs, rate, tau = local
        fits = 1 <= epochs <= 255 and 0 <= rate <= wire.MAX_RATE and 1 <= tau <= wire.MAX_TAU
    else:
        fits = not any(local)
    require(fits, "local training out of bounds")

    values = k if model == wire.SOFTMAX else classes * d + (shape == SUM)
    fits = 1 <= k <= values
    if model == wire.SOFTMAX:
        fits = k == 1 or k == classes
    require(fits, "k out of bounds")
    return values


def is_for_fleet(frame):
    """Return whether `frame` is a ROUND for the whole fleet: its device is FLEET, four bytes of 255."""
    if len(frame) <= 16 or frame[0] != wire.ROUND:
        return False
    return frame[4] == frame[3] == frame[2] == frame[1] == 255


def address(frame):
    """Return (device, round) of a ROUND, REPORT or ERROR, unchecked, so that its key can be found."""
    if kind(frame) not in (wire.ROUND, wire.REPORT, wire.ERROR) or len(frame) < 9 + wire.TAG_BYTES:
        raise FrameError(wire.ERR_FRAME, "frame without an address")
    return struct.unpack_from("<II", frame, 1)


def decode_hello_request(frame):
    (nonce,) = fields_of(frame, wire.HELLO_REQUEST, wire.HELLO_REQUEST_FIELDS)
    check_length(frame, wire.HELLO_REQUEST_FIELDS, 0)
    verify(b"", frame)
    return nonce


class Round:
    """One decoded ROUND after another; attributes as in wire.md.

    Unchanged fields are not checked again.

    parameters: array('h'), classes x d, row by row; asked: a byte per feature of a collection;
    values: how many a client computes, of which it reports k.
    """

    def __init__(self):
        self.device = self.round = self.model = self.range = self.exponent = self.classes = 0
        self.d = self.k = self.batch = self.epochs = self.rate = self.tau = self.values = 0
        self.parameters = array("h")
        self.asked = bytearray(wire.MAX_DIMENSION)
        self.card = b""
        # The bytes of the last valid frame from its model to its parameters, its length (0: none),
        # and how many mantissas and bytes of a card it has.
        self._head = bytearray(_ROUND_BYTES - _MODEL_AT)
        self._length = self._mantissas = self._card_bytes = 0

    def decode(self, frame, known=None):
        """Take the fields of `frame`, whose tag verify() checks. known: its device and round.

        Raises FrameError.
        """
        self.device, self.round = known or address(frame)
        check_address(self.device, self.round)
        n = len(frame)
        size = self._card_bytes
        if (
            n != self._length
            or frame[0] != wire.ROUND
            or difference(frame, _MODEL_AT, self._head, _ROUND_BYTES - _MODEL_AT)
            or difference(frame, n - wire.TAG_BYTES - size, self.card, size)
        ):
            self._decode_head(frame)
        if self.model in wire.COLLECTIONS:
            self._decode_asked(frame)
        else:
            copy_int16(frame, _ROUND_BYTES, self.parameters, self._mantissas)

    def _decode_asked(self, frame):
        self.values = self.card[0] & 15 == SUM
        for j in range(self.d + 7 & ~7):
            bit = frame[_ROUND_BYTES + (j >> 3)] >> (j & 7) & 1
            require(j < self.d or not bit, "feature out of bounds")
            self.asked[j] = bit
            self.values += bit * self.classes
        require(self.k <= self.values <= wire.MAX_VALUES + 1, "k out of bounds")

    def _decode_head(self, frame):
        self._length = 0
        (
            _,
            _,
            self.model,
            self.range,
            self.exponent,
            self.classes,
            self.d,
            self.k,
            self.batch,
            self.epochs,
            self.rate,
            self.tau,
            length,
        ) = fields_of(frame, wire.ROUND, wire.ROUND_FIELDS)
        require(1 <= length <= wire.MAX_CARD, "card too long or missing")
        size = question_bytes(self.model, self.classes, self.d)
        check_length(frame, wire.ROUND_FIELDS, size + length)
        self.values = check_question(
            self.model,
            frame[_ROUND_BYTES + size] & 15,
            (self.range, self.exponent),
            (self.classes, self.d, self.k),
            self.batch,
            (self.epochs, self.rate, self.tau),
        )
        n = self.classes * self.d
        if n != self._mantissas:
            self.parameters = array("h", bytes(2 * n))
            self._mantissas = n
        self.card = bytes(frame[_ROUND_BYTES + size : -wire.TAG_BYTES])
        self._card_bytes = length
        self._head[:] = frame[_MODEL_AT:_ROUND_BYTES]
        self._length = len(frame)
