"""The choice of coordinates against shared_specs/vectors, and its fairness."""

import hashlib
from array import array

import vectors

from tern.coordinates import choose


def test_coordinate_vectors():
    for case in vectors.load("coordinates.json")["tests"]:
        k = case["k"]
        out = array("H", (0 for _ in range(k)))
        choose(bytes.fromhex(case["question"]), case["d"], k, out)
        assert list(out) == case["coordinates"], case["comment"]


def test_every_coordinate_is_chosen_equally_often():
    # The hash of a question selects which coordinates of the gradient the device reports; were
    # some chosen more often, the mean of the fleet would be biased.
    # 1000 questions, 3 of 10: 300 expected of each, standard deviation 14.5; no coordinate twice in
    # a question
    counts = [0] * 10
    out = array("H", (0, 0, 0))
    for number in range(1, 1001):
        choose(hashlib.sha256(b"%d" % number).digest(), 10, 3, out)
        assert out[0] < out[1] < out[2] < 10
        for c in out:
            counts[c] += 1
    assert all(300 - 75 < n < 300 + 75 for n in counts), counts
