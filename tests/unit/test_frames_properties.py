"""Properties of frames over generated inputs."""

import hashlib
from array import array
from itertools import pairwise

import pytest
import report_frames
from framing import encoded
from hypothesis import given
from hypothesis import strategies as st

from tern import frames, host_frames, wire
from tern.shapes import SUM

keys = st.binary(min_size=wire.KEY_BYTES, max_size=wire.KEY_BYTES)
u32, u16, u8 = st.integers(0, 2**32 - 1), st.integers(0, 2**16 - 1), st.integers(0, 255)


@st.composite
def rounds(draw):
    """Valid arguments of host_frames.encode_round."""
    model = draw(st.integers(wire.LINEAR, wire.LAST_MODEL))
    collects = model in wire.COLLECTIONS
    local = model in wire.TRAININGS
    card = draw(st.binary(min_size=1, max_size=300))
    tally = card[0] & 15 == SUM and model != wire.SOFTMAX
    counts = tally and model == wire.CATEGORIES
    many = counts or model in wire.OF_CLASSES
    classes = draw(st.integers(2, wire.MAX_DIMENSION)) if many else 1
    d = draw(st.integers(1, min(wire.MAX_DIMENSION, wire.MAX_VALUES // classes)))
    # A few values are repeated, since drawing a thousand takes long.
    few = draw(st.lists(st.integers(-32768, 32767), min_size=1, max_size=9))
    parameters = [few[i % len(few)] for i in range(d if collects else classes * d)]
    if collects:
        parameters = [int(value % 3 > 0) for value in parameters]
        parameters[draw(st.integers(0, d - 1))] = 1
    values = (
        classes if model == wire.SOFTMAX else classes * (sum(parameters) if collects else d) + tally
    )
    least = wire.MIN_LOCAL_EXPONENT if local else wire.MIN_EXPONENT
    return {
        "device": draw(st.integers(1, 2**32 - 1)),
        "round_number": draw(st.integers(1, wire.MAX_ROUND)),
        "model": model,
        "range_": draw(st.integers(0, wire.MAX_RANGE if model in wire.SCALED else 0)),
        "exponent": 0 if collects else draw(st.integers(least, wire.MAX_EXPONENT)),
        "classes": classes,
        "k": draw(
            st.sampled_from((1, values)) if model == wire.SOFTMAX else st.integers(1, values)
        ),
        "batch": 0 if model in wire.OF_ONE_RECORD else draw(st.integers(0, wire.MAX_BATCH)),
        "parameters": parameters,
        "card": card,
        "local": draw(
            st.tuples(
                st.integers(1, 255), st.integers(0, wire.MAX_RATE), st.integers(1, wire.MAX_TAU)
            )
            if local
            else st.just((0, 0, 0))
        ),
    }


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


@given(rounds(), keys)
def test_a_decoded_round_is_the_encoded_one(fields, key):
    frame = encoded(host_frames.encode_round, key, **fields)
    frames.verify(key, frame)
    decoded = frames.Round()
    decoded.decode(frame)
    written = {**fields, "round": fields["round_number"], "range": fields["range_"]}
    written["epochs"], written["rate"], written["tau"] = fields["local"]
    collects = decoded.model in wire.COLLECTIONS
    written["d"] = len(fields["parameters"]) // (1 if collects else fields["classes"])
    names = vars(decoded).keys() & written.keys() - {"parameters", "card"}
    assert len(names) == 12
    assert {name: getattr(decoded, name) for name in names} == {
        name: written[name] for name in names
    }
    assert (
        list(decoded.asked[: decoded.d] if collects else decoded.parameters) == fields["parameters"]
    )
    assert bytes(decoded.card) == fields["card"]
    assert report_frames.question_of(key, fields["device"], frame)[:8] == frame[-8:]


@given(rounds(), keys, keys, st.integers(1, 2**32 - 2))
def test_a_question_is_one_client_s_in_frames_for_a_device_and_for_the_fleet(
    fields, key, fleet_key, device
):
    to_device = encoded(host_frames.encode_round, key, **{**fields, "device": device})
    to_fleet = encoded(host_frames.encode_round, fleet_key, **{**fields, "device": wire.FLEET})
    assert len(to_fleet) == len(to_device)
    question = report_frames.question_of(key, device, to_device)
    assert question == report_frames.question_of(key, device, to_fleet)
    address = bytes((wire.ROUND,)) + device.to_bytes(4, "little")
    assert question == hashlib.sha256(key + address + to_device[5:-8]).digest()
    assert question != report_frames.question_of(key, device + 1, to_device)
