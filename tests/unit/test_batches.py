"""Batches against the device library, report by report."""

import random
from array import array

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from spec import answers

from tern import coordinates
from ternhost.count import batches


def rows(data):
    """Byte strings of one length as the rows of an array."""
    return np.frombuffer(b"".join(data), np.uint8).reshape(len(data), -1)


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.binary(min_size=1, max_size=300), st.data())
def test_tags_are_those_of_the_frames(device, number, packed, data):
    digest = data.draw(st.binary(min_size=32, max_size=32))
    right = answers.report(digest, device, number, packed)[-8:]
    tags = [right, *(right[:i] + bytes((right[i] ^ 1,)) + right[i + 1 :] for i in range(8)), right]
    digests = [digest] * 9 + [digest[:8] + bytes((digest[8] ^ 1,)) + digest[9:]]
    devices = [device.to_bytes(4, "little")] * 10
    verified = batches.verify(rows(digests), number, rows(devices), rows([packed] * 10), rows(tags))
    assert verified.tolist() == [True] + [False] * 9


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
    chosen = batches.choose(rows(questions), d, k)
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
    for question, row in zip(questions, batches.choose(rows(questions), d, 1), strict=True):
        coordinates.choose(question, d, 1, out)
        assert row.tolist() == out.tolist()
