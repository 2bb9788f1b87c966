"""Batches against the device library, report by report."""

import random
from array import array

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tern import coordinates, frames, host_frames
from ternhost.aggregate import batches


@given(st.binary(min_size=0, max_size=64), st.binary(min_size=1, max_size=300))
def test_tags_are_those_of_the_frames(key, data):
    tags = batches.Tags()
    for _ in range(2):  # begun, and begun before
        assert tags.verify(key, data + frames.tag(key, data))
        assert not tags.verify(key, data + bytes(8))
        assert not tags.verify(key + b"\1", data + frames.tag(key, data))


@pytest.mark.parametrize(
    ("d", "k"),
    [
        *((28, k) for k in (1, 2, 27, 28)),
        *((d, k) for d in (1, 128, 255, 256, 257, 1024) for k in (1, 60, d - 1, d) if 0 < k <= d),
    ],
)
def test_coordinates(d, k):
    source = random.Random(d * k)
    questions = [source.randbytes(32) for _ in range(300)]
    chosen = batches.choose(questions, d, k)
    out = array("H", bytes(2 * k))
    for question, row in zip(questions, chosen, strict=True):
        coordinates.choose(question, d, k, out)
        assert row.tolist() == out.tolist()
        if k > 60:  # the device's takes its time in Python
            break


@pytest.mark.parametrize("d", [129, 257])
def test_a_coordinate_that_the_digest_has_not(d):
    # About half of the draws are rejected: of 2000 digests there are some whose 8 bytes have no coordinate.
    source = random.Random(d)
    questions = [source.randbytes(32) for _ in range(2000)]
    assert any(all(value & 255 > 128 for value in one[24:]) for one in questions)
    out = array("H", bytes(2))
    for question, row in zip(questions, batches.choose(questions, d, 1), strict=True):
        coordinates.choose(question, d, 1, out)
        assert row.tolist() == out.tolist()


@pytest.mark.parametrize("base", [2, 3, 4, 5, 15, 255, 256, 257, 65536])
@pytest.mark.parametrize("k", [1, 2, 7, 28, 29, 100])
def test_symbols(base, k):
    source = random.Random(base * k)
    size = batches.packed_size(base, k)
    largest = base**k - 1
    numbers = [0, 1, largest, *(source.randrange(largest + 1) for _ in range(50))]
    wrong = [n for n in (largest + 1, 256**size - 1) if largest < n < 256**size]
    payloads = [n.to_bytes(size, "little") for n in numbers + wrong]
    symbols, good = batches.unpack(payloads, k, base)
    assert good.tolist() == [True] * len(numbers) + [False] * len(wrong)
    out = array("H", bytes(2 * k))
    for payload, row in zip(payloads[: len(numbers)], symbols, strict=False):
        host_frames.unpack(payload, k, base, out)
        assert row.tolist() == out.tolist()
    assert symbols.dtype == np.int64
