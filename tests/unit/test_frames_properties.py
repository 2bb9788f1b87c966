"""Properties of frames over generated inputs."""

from array import array
from itertools import pairwise

import report_frames
from hypothesis import given
from hypothesis import strategies as st

from tern import frames, wire


@st.composite
def packings(draw):
    """(base, symbols)."""
    base = draw(st.integers(2, wire.MAX_BASE))
    return base, draw(st.lists(st.integers(0, base - 1), min_size=1, max_size=wire.MAX_DIMENSION))


def round_trip(data, cuts):
    """Data that was encoded, and received in pieces with these ends."""
    coded = bytearray(frames.cobs_size(len(data)))
    n = frames.cobs_encode(data, len(data), coded)
    assert n <= len(coded)
    assert coded[:n].index(0) == n - 1
    receiver = frames.Receiver()
    for start, end in pairwise([0, *sorted({min(cut, n) for cut in cuts} | {n})]):
        receiver.give(bytes(coded[start:end]))
        length = receiver.next()
        assert (length == frames.MORE) == (end < n)
    return bytes(receiver.frame[:length])


@given(st.binary(max_size=wire.MAX_FRAME), st.lists(st.integers(1, 2600), max_size=5))
def test_cobs_gives_back_data_that_comes_in_any_pieces(data, cuts):
    assert round_trip(data, cuts) == data


@given(packings())
def test_packing_is_the_number_in_base_m(packing):
    """A report's symbols, each below the base, are packed into as few bytes as possible: as the
    digits of one little-endian number. The device packs, and the host unpacks.
    """
    base, symbols = packing
    count = len(symbols)
    size = frames.packed_size(base, count)
    assert 256 ** (size - 1) < base**count <= 256**size, "no byte more than needed"

    packed = bytearray(size)
    frames.pack(array("H", symbols), array("i", (count, base, 0, size)), packed)
    number = sum(symbol * base**i for i, symbol in enumerate(symbols))
    assert packed == number.to_bytes(size, "little")

    unpacked = array("H", bytes(2 * count))
    report_frames.unpack(bytes(packed), count, base, unpacked)
    assert unpacked.tolist() == symbols
