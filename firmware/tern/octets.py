"""Inner loops: COBS, lengths of frames to come, packed symbols, comparison, digests and draws.

The draws take numbers from the digest of a request.

COBS, which marks the ends of frames in a stream of bytes: Cheshire and Baker, 1999.

Boards with a Thumb processor get those of firmware/thumb, in assembler, in their place.
"""

from hashlib import sha256
from struct import pack_into

from tern import wire
from tern.compat import const, micropython, ptr8, ptr16, ptr32

# Indices of the state of cobs_decode().
AT = const(0)  # the next byte of the source
END = const(1)  # the end of the source
LENGTH = const(2)  # bytes decoded
LEFT = const(3)  # bytes left in the block
ZERO = const(4)  # whether a zero follows the block
BAD = const(5)  # whether this frame is damaged
LIMIT = const(6)  # bytes of the longest frame

# Tools interrupt a board by a carriage return and Ctrl-C. A carriage return in COBS would begin a
# block of 12 bytes.
_RETURN = const(0x0D)
_CTRL_C = const(0x03)
_LEAST = const(13)  # bytes of a HELLO_REQUEST, the shortest frame of a host
_ROUND_BYTES = const(26)  # type and fixed fields of a ROUND
_LEAST_ROUND = const(36)  # and with a byte of parameters, one of the card, and the tag
# The offsets of the fields that say how long a ROUND is: model, classes, d, length of the card.
_MODEL_AT = const(9)
_CLASSES_AT = const(12)
_D_AT = const(13)
_CARD_AT = const(24)


@micropython.viper
def cobs_encode(source: ptr8, n: int, out: ptr8) -> int:
    """Write the COBS form of source[:n] and the ending 0x00 into `out`; return the length.

    The length is at most cobs_size(n). COBS replaces zeros, so that 0x00 can end a frame: each
    block of up to 254 bytes without a zero begins with a code, its length plus 1. A code below 255
    also stands for a zero after the block, of which the last one is left out.
    """
    code_at = 0  # where the code of the block under way goes, once it is known
    end = 1
    code = 1
    i = 0
    while i < n:
        value = source[i]
        i += 1
        if value:
            out[end] = value
            end += 1
            code += 1
        # A zero, or the longest block with more to come: begin another block.
        if value == 0 or (code == 255 and i < n):
            out[code_at] = code
            code_at = end
            end += 1
            code = 1
    out[code_at] = code
    out[end] = 0
    return end + 1


@micropython.viper
def cobs_decode(source: ptr8, state: ptr32, out: ptr8) -> int:
    """Decode source[state[0]:state[1]] into `out` up to a 0x00.

    Returns the frame's length, MORE (-1) if the source ended first, or DAMAGED (-2). All that must
    be remembered until the next call is in `state`, an int32 array; for its slots see AT and the
    constants after it.
    """
    at = state[AT]
    end = state[END]
    length = state[LENGTH]
    block_left = state[LEFT]
    zero_follows = state[ZERO]
    damaged = state[BAD]
    result = -1
    while at < end:
        value = source[at]
        at += 1
        if value == 0:
            result = length
            if damaged | block_left:
                result = -2
            length = 0
            block_left = 0
            zero_follows = 0
            damaged = 0
            break
        if damaged:
            continue
        # Within a block the byte itself is output. At the end of one it is the next code, and the
        # zero that follows the block before, if any, is output.
        if block_left:
            block_left -= 1
        else:
            block_left = value - 1
            value = zero_follows
            zero_follows = 1
            if block_left == 254:
                zero_follows = 0
            if value == 0:
                continue
            value = 0
        if length < state[LIMIT]:
            out[length] = value
            length += 1
        else:
            damaged = 1
    state[AT] = at
    index = LENGTH  # see compat: no constant index
    state[index] = length
    index += 1
    state[index] = block_left
    index += 1
    state[index] = zero_follows
    index += 1
    state[index] = damaged
    return result


@micropython.viper
def still_to_come(state: ptr32, frame: ptr8) -> int:
    """Return how many bytes must still come before the frame can end: see Receiver.certain().

    A board that reads no more than these bytes at once never blocks for bytes that nobody sends.
    state, frame: those of a Receiver; frame[:length] is what was decoded so far.
    """
    length = state[LENGTH]
    left = state[LEFT]  # bytes that the COBS block under way still has
    if length == 0:
        # No host sends a shorter frame than _LEAST. But the code of a carriage return may be an
        # interrupt, and only the next byte tells; and before a code nothing is certain.
        if left and left != _RETURN - 1:
            left = _LEAST
        else:
            left = 0
    elif length == 1 and left == _RETURN - 2 and frame[0] == _CTRL_C:
        # A carriage return, taken for a code, and Ctrl-C: an interrupt, so the result is 0.
        left = -1
    elif frame[0] == int(wire.ROUND):
        # The head of a ROUND says how long it is. Before that has come, it is at least as long as
        # the shortest one. 16-bit fields have their low byte first.
        least = _LEAST_ROUND
        if length >= _ROUND_BYTES:
            model = frame[_MODEL_AT]
            dimension = frame[_D_AT] | frame[_D_AT + 1] << 8
            least = (
                _ROUND_BYTES + int(wire.TAG_BYTES) + (frame[_CARD_AT] | frame[_CARD_AT + 1] << 8)
            )
            if model >= int(wire.VALUES) and model <= int(wire.CATEGORIES):
                least += dimension + 7 >> 3  # as question_bytes()
            else:
                least += 2 * frame[_CLASSES_AT] * dimension
        if left < least - length:
            left = least - length
    return 1 + left  # and the 0x00 that ends it


@micropython.viper
def pack(symbols: ptr16, packing: ptr32, out: ptr8) -> int:
    """Pack k symbols into out[start:end] as one number, the sum of symbols[i] * base**i.

    So k symbols take k log2(base) bits, rounded up to whole bytes, the lowest of which comes first.
    packing: an int32 array of k; base, 2 .. 65536, the number of a card's symbols; start; and end,
    such that end - start is packed_size(base, k). Returns how many bytes the number takes, or -1
    if a symbol is not below base.
    """
    i = packing[0]
    base = packing[1]
    start = packing[2]
    at = packing[3]
    while at > start:
        at -= 1
        out[at] = 0
    used = start
    while i > 0:
        i -= 1
        # Horner's scheme, out = out * base + symbols[i], byte by byte. A carry is at most base, so
        # that 255 * base with the carry is below 2**25. `used` bytes are not 0.
        carry = symbols[i]
        if carry >= base:
            return -1
        at = start
        while at < used:
            carry += out[at] * base
            out[at] = carry & 255
            carry >>= 8
            at += 1
        while carry:
            out[used] = carry & 255
            used += 1
            carry >>= 8
    return used - start


@micropython.viper
def copy_int16(source: ptr8, start: int, out: ptr16, n: int):
    """Copy n little-endian int16s: out[i] = the one at source[start + 2 * i].

    A frame may hold them at an odd offset, where a processor cannot load them at once.
    """
    while n:
        n -= 1
        at = start + n + n
        value = source[at] | source[at + 1] << 8
        out[n] = ((value + 32768) & 65535) - 32768  # with its sign, as CPython's array('h') wants


@micropython.viper
def difference(a: ptr8, start: int, b: ptr8, n: int) -> int:
    """Return 0 if a[start : start + n] and b[:n] are equal, in constant time."""
    bits = 0
    while n:
        n -= 1
        bits |= a[start + n] ^ b[n]
    return bits


def digest_into(first, second, out):
    """Write SHA-256 of `first` and `second` into `out`, a buffer of 32 bytes."""
    hashed = sha256(first)
    hashed.update(second)
    pack_into("32s", out, 0, hashed.digest())


@micropython.viper
def draw_below(block: ptr8, at: int, last: int) -> int:
    """Draw a uniform number 0 .. last from the digest block[at:32], by rejection.

    Returns 64 times the number, plus the position behind its bytes; or -1 if the digest has too few
    bytes. last: 1 .. 1024. A number above 255 takes two bytes, so `at` must be even then.
    """
    # The smallest 2**b - 1 that covers `last`.
    mask = 1
    while mask < last:
        mask += mask + 1
    draw = last + 1
    while draw > last:
        if at == int(wire.KEY_BYTES):
            return -1
        draw = block[at]
        if mask > 255:
            at += 1
            draw |= block[at] << 8
        at += 1
        draw &= mask
    return draw << 6 | at
