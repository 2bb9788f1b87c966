"""The inner loops of frames agree with slow functions, and write to no neighbour of a buffer.

Some boards have them in assembler. Here all buffers begin at any address, also an odd one.
"""

import hashlib
from array import array

from streams import Words

from tern import octets, wire

GUARD = 0xA5
_SIDE = 8  # guards on each side
_MOST = 700  # bytes of the longest buffer


class Guarded:
    """A buffer of n bytes, `view`, between guards; `shift` moves it away from a multiple of 4."""

    def __init__(self, n, shift):
        self._all = bytearray(bytes([GUARD]) * (n + 2 * _SIDE + 4))
        self._begin = _SIDE + shift
        self._end = self._begin + n
        self.view = memoryview(self._all)[self._begin : self._end]

    def is_whole(self):
        """Return whether nothing was written beside the buffer."""
        sides = self._all[: self._begin] + self._all[self._end :]
        return sides == bytes([GUARD]) * len(sides)


def placed(data, shift):
    """Return a view of a copy of `data`, which is `shift` away from a multiple of 4."""
    return memoryview(bytes(shift) + bytes(data))[shift:]


def random_bytes(words, n, alphabet=range(256)):
    return bytes([words.one_of(alphabet) for _ in range(n)])


def cobs(data):
    """Return the COBS form of `data`, with its 0x00."""
    out = b""
    blocks = (data + b"\x00").split(b"\x00")[:-1]
    for i in range(len(blocks)):
        block = blocks[i]
        # A block of 254 bytes needs no code for a zero. At the end of the data there is none.
        while len(block) > 254 or (len(block) == 254 and i == len(blocks) - 1):
            out += b"\xff" + block[:254]
            block = block[254:]
            if not block and i == len(blocks) - 1:
                return out + b"\x00"
        out += bytes([len(block) + 1]) + block
    return out + b"\x00"


def decoded(coded, limit):
    """Return the frame of coded bytes without their 0x00, or None if they are damaged."""
    out = b""
    zero = b""
    while coded:
        code = coded[0]
        if len(coded) < code:
            return None
        out += zero + coded[1:code]
        zero = b"" if code == 255 else b"\x00"
        coded = coded[code:]
    return out if len(out) <= limit else None


def test_cobs_of_any_bytes_stays_in_its_buffer():
    words = Words(1)
    for n in (0, 1, 2, 17, 253, 254, 255, 256, 508, 509, 600):
        for alphabet in (range(1, 256), (0, 1, 255), (0,)):
            data = random_bytes(words, n, alphabet)
            shift = words.below(4)
            out = Guarded(n + 2 + n // 254, words.below(4))
            used = octets.cobs_encode(placed(data, shift), n, out.view)
            assert bytes(out.view[:used]) == cobs(data), (n, shift)
            assert out.is_whole(), (n, shift)


def test_any_stream_is_decoded_within_the_limit():
    # What a hostile host sends: bytes that are no COBS, and frames that are too long, in pieces.
    words = Words(2)
    for alphabet in (range(256), (0, 1, 2, 3), (0, 255, 254, 1), (1, 2, 255)):
        for limit in (0, 1, 20, 255):
            stream = random_bytes(words, _MOST, alphabet) + b"\x00\x03ab\x00"
            expected = [decoded(part, limit) for part in stream.split(b"\x00")[:-1]]
            state = array("i", (0, 0, 0, 0, 0, 0, limit))
            out = Guarded(limit, words.below(4))
            seen = []
            begin = 0
            while begin < len(stream):
                piece = stream[begin : begin + words.between(1, 90)]
                begin += len(piece)
                source = placed(piece, words.below(4))
                state[octets.AT] = 0
                state[octets.END] = len(piece)
                while (n := octets.cobs_decode(source, state, out.view)) != -1:
                    seen.append(bytes(out.view[:n]) if n >= 0 else None)
                assert state[octets.AT] == len(piece)
            assert seen == expected and out.is_whole(), (alphabet, limit)


def to_come(length, left, frame):
    """Return what still_to_come() returns, from the description of frames in wire.md."""
    if not length:
        return 14 if left and left != 12 else 1
    if length == 1 and left == 11 and frame[0] == 3:  # a carriage return and Ctrl-C
        return 0
    if frame[0] != wire.ROUND:
        return 1 + left
    least = 36
    if length >= 26:
        d = frame[13] + 256 * frame[14]
        parameters = 2 * frame[12] * d
        if frame[9] in wire.COLLECTIONS:
            parameters = (d + 7) // 8
        least = 34 + frame[24] + 256 * frame[25] + parameters
    return 1 + max(left, least - length)


def test_how_many_bytes_are_still_to_come():
    words = Words(3)
    state = array("i", (0, 0, 0, 0, 0, 0, _MOST))
    for _ in range(400):
        frame = bytearray(random_bytes(words, 40))
        frame[0] = words.one_of((wire.ROUND, 3, 1, 255))
        frame[9] = words.one_of((0, 7, 8, 9, 10, 255))
        state[2] = words.one_of((0, 1, 2, 25, 26, 27, 600))
        state[3] = words.one_of((0, 1, 11, 12, 13, 254))
        n = octets.still_to_come(state, placed(frame, words.below(4)))
        assert n == to_come(state[2], state[3], frame), (bytes(frame), state)


def test_packed_symbols_stay_in_their_part_of_a_frame():
    words = Words(4)
    for base in (2, 3, 255, 256, 257, 40000, 65535, 65536):
        for k in (1, 2, 7, 40):
            for top in (1, base):  # symbols of zeros, and any
                symbols = array("H", [words.below(top) for _ in range(k)])
                symbols[0] = top - 1
                number = 0
                for symbol in reversed(symbols):
                    number = number * base + symbol
                n = 0
                while 1 << 8 * n < base**k:
                    n += 1
                out = Guarded(n, words.below(4))
                used = octets.pack(symbols, array("i", (k, base, 0, n)), out.view)
                assert bytes(out.view) == number.to_bytes(n, "little"), (base, k)
                assert used <= n and out.is_whole(), (base, k)


def test_integers_are_copied_from_any_address():
    words = Words(5)
    data = random_bytes(words, 90)
    for start in range(4):
        for n in (0, 1, 2, 40):
            out = array("h", [-1234] * (n + 2))
            octets.copy_int16(placed(data, start), start, out, n)
            for i in range(n):
                value = data[start + 2 * i] + 256 * data[start + 2 * i + 1]
                assert out[i] & 0xFFFF == value, (start, n, i)
            assert out[n] == out[n + 1] == -1234


def test_a_difference_is_found_at_every_place_and_none_beside_it():
    a = bytes((7 * i + 1) & 255 for i in range(40))
    for start in range(4):
        for n in (0, 1, 8, 32):
            part = placed(a[start : start + n] + b"\x00", start)  # the byte behind it differs
            assert octets.difference(a, start, part, n) == 0
            for i in range(n):
                other = bytearray(part)
                other[i] ^= 0x80 >> (i & 7)
                assert octets.difference(a, start, other, n)


def test_digests_of_all_lengths_at_any_address():
    words = Words(6)
    data = random_bytes(words, 200)
    for n in range(201):
        at = words.below(n + 1)
        out = Guarded(32, n & 3)
        first = placed(data[:at], words.below(4))
        octets.digest_into(first, placed(data[at:n], words.below(4)), out.view)
        assert bytes(out.view) == hashlib.sha256(data[:n]).digest(), (n, at)
        assert out.is_whole(), (n, at)


def test_a_digest_of_more_than_8191_bytes_has_its_length_in_more_than_two_bytes():
    # The number of bits is then above 2**16.
    data = bytes(range(256)) * 33
    out = bytearray(32)
    octets.digest_into(b"key", memoryview(data)[1:], out)
    assert bytes(out) == hashlib.sha256(b"key" + data[1:]).digest()


def drawn_below(digest, at, last):
    """A uniform number 0 .. last by rejection from digest[at:], and the position behind its bytes.

    None if the digest has too few bytes.
    """
    bits = 1
    while last >> bits:
        bits += 1
    step = 2 if bits > 8 else 1
    while at < 32:
        number = int.from_bytes(digest[at : at + step], "little") & (1 << bits) - 1
        at += step
        if number <= last:
            return number, at
    return None


def test_numbers_are_drawn_from_a_digest_by_rejection():
    words = Words(7)
    for last in (1, 2, 3, 4, 5, 127, 128, 254, 255, 256, 257, 511, 512, 1000, 1024):
        for at in (0, 2, 24, 30, 32):
            digest = random_bytes(words, 32)
            expected = drawn_below(digest, at, last)
            result = octets.draw_below(placed(digest, words.below(4)), at, last)
            if expected is None:
                assert result == -1, (last, at)
            else:
                assert (result >> 6, result & 63) == expected, (last, at)


def test_a_digest_of_which_no_byte_is_small_enough_gives_no_number():
    assert octets.draw_below(b"\xff" * 32, 0, 28) == -1
