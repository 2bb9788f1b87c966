"""Batches against the device library, report by report."""

import random
from array import array

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tern import coordinates, frames, host_frames
from ternhost.aggregate import batches


def rows(data):
    """Byte strings of one length as the rows of an array."""
    return np.frombuffer(b"".join(data), np.uint8).reshape(len(data), -1)


@given(st.binary(min_size=0, max_size=64), st.binary(min_size=1, max_size=300))
def test_tags_are_those_of_the_frames(key, data):
    tags = batches.Tags()
    right = frames.tag(key, data)
    wrong = [right[:i] + bytes((right[i] ^ 1,)) + right[i + 1 :] for i in range(8)]
    for _ in range(2):  # begun, and begun before
        made = [right, *wrong, right]
        verified = tags.verify([key] * 9 + [key + b"\1"], rows([data] * 10), rows(made))
        assert verified.tolist() == [True] + [False] * 9


@pytest.mark.parametrize(
    ("d", "k"), [(28, 1), (28, 2), (28, 27), (28, 28), (1, 1), (128, 1), (128, 60), (128, 127)]
)
def test_coordinates(d, k):
    source = random.Random(d * k)
    keys = [source.randbytes(32) for _ in range(300)]
    chosen = batches.choose(keys, 77, d, k)
    out = array("H", bytes(2 * k))
    for key, row in zip(keys, chosen, strict=True):
        coordinates.choose(key, 77, d, k, out)
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
    symbols, good = batches.unpack(rows(payloads), k, base)
    assert good.tolist() == [True] * len(numbers) + [False] * len(wrong)
    out = array("H", bytes(2 * k))
    for payload, row in zip(payloads[: len(numbers)], symbols, strict=False):
        host_frames.unpack(payload, k, base, out)
        assert row.tolist() == out.tolist()
    assert symbols.dtype == np.int64
