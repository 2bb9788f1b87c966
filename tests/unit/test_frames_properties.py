"""Properties of frames over generated inputs."""

from array import array
from itertools import pairwise

import pytest
import report_frames
from hypothesis import given
from hypothesis import strategies as st

from tern import frames, wire

u32, u16, u8 = st.integers(0, 2**32 - 1), st.integers(0, 2**16 - 1), st.integers(0, 255)


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
    base, symbols = packing
    k = len(symbols)
    size = frames.packed_size(base, k)
    assert 256 ** (size - 1) < base**k <= 256**size
    out = bytearray(size)
    assert 0 <= frames.pack(array("H", symbols), k, base, out, 0, size) <= size
    assert int.from_bytes(out, "little") == sum(s * base**i for i, s in enumerate(symbols))
    back = array("H", bytes(2 * k))
    report_frames.unpack(bytes(out), k, base, back)
    assert back.tolist() == symbols


@given(packings(), st.data())
def test_numbers_too_large_are_refused(packing, data):
    base, symbols = packing
    k = len(symbols)
    size = frames.packed_size(base, k)
    if base**k == 256**size:
        return
    number = data.draw(st.integers(base**k, 256**size - 1)).to_bytes(size, "little")
    assert_refused(wire.ERR_FRAME, report_frames.unpack, number, k, base, array("H", bytes(2 * k)))


def assert_refused(code, function, *args):
    with pytest.raises(frames.FrameError) as refusal:
        function(*args)
    assert refusal.value.code == code
