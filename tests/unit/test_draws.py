"""The firmware's table leaf on every input, and its distribution over every branch."""

from array import array

import numpy as np
import pytest
import sampler_walk
from spec import cards as spec

from tern import table
from tern.card import T, decode
from tern.entropy import SLACK
from tern.fixed import MAX_EPSILON, ONE
from ternhost.privacy import certify, mechanisms


def rows(*thresholds):
    """A table card with these thresholds, a row for each knot."""
    return decode(spec.table(MAX_EPSILON, range(len(thresholds[0]) + 1), thresholds))


def designed(name, epsilon):
    return decode(mechanisms.design(name, epsilon).card)


def some_rows(knot_bits, levels):
    rng = np.random.default_rng(levels)
    drawn = (rng.choice(T - 2, levels - 1, replace=False) + 1 for _ in range((1 << knot_bits) + 1))
    return rows(*(tuple(sorted(thresholds.tolist())) for thresholds in drawn))


CARDS = {
    "three-outputs 1/2": designed("three-outputs", "0.5"),
    "three-outputs 2": designed("three-outputs", "2"),
    "three-outputs 8": designed("three-outputs", "8"),
    "duchi": designed("duchi", "1"),
    "from end to end": rows((1,), (T - 1,)),
    "and back": rows((T - 1,), (1,), (T - 1,)),
    "as close as can be": rows((1, 2, 3), (T - 3, T - 2, T - 1)),
    "beside a first byte": rows((2**29 - 1, 2**29, 2**29 + 1), (2**29 - 2, 2**29, 2**29 + 2)),
    "steep steps of half a product": rows((32767, 65536), (T - 32769, T - 1)),
    "16 levels": some_rows(2, 16),
    "33 knots": some_rows(5, 3),
}


def exact(card, values):
    """The thresholds of each value out of 2**45, interpolated between its two knots."""
    knots = np.array(card.thresholds, np.int64).reshape(-1, card.symbols - 1)
    position = (values.astype(np.int64) + ONE) << card.knot_bits
    knot, fraction = position >> 15, (position & 32767)[:, None]
    next_knot = np.minimum(knot + 1, len(knots) - 1)
    return (2**15 - fraction) * knots[knot] + fraction * knots[next_knot]


def check_first_bytes(card, values, bytes_of):
    """Run the leaf on each value and first byte: it decides unless a threshold lies in the interval
    of that byte.
    """
    thresholds = exact(card, values)
    symbols, job, pool = array("H", (0,)), card.job, bytearray(1 + SLACK)
    for first_bytes in bytes_of(thresholds):
        low = first_bytes.astype(np.int64)[:, None] << 37  # of 45 bits
        high = low + (1 << 37)
        decided = (thresholds <= low).sum(axis=1)
        is_open = ((thresholds > low) & (thresholds < high)).any(axis=1)
        expected = np.where(is_open, -1, decided).tolist()
        for value, byte, symbol in zip(
            values.tolist(), first_bytes.tolist(), expected, strict=True
        ):
            pool[0] = byte
            job[0], job[1], job[2], job[3] = 0, 1, 0, 1
            table.table(array("h", (value,)), symbols, pool, job)
            assert (symbols[0] if job[0] else -1) == symbol, (value, byte)
            assert job[2] == job[0]


EVERY_INPUT = np.arange(-ONE, ONE + 1)


def beside_thresholds(thresholds):
    """The first byte of each threshold, and those beside it: a comparison is monotone in the byte."""
    for column in thresholds.T >> 37:
        for beside in (-1, 0, 1):
            yield np.clip(column + beside, 0, 255)


def all_bytes(thresholds):
    return (np.full(len(thresholds), u) for u in range(256))


NEAR_KNOTS = np.unique(np.clip(np.arange(-ONE, ONE + 1, 512)[:, None] + [-1, 0, 1], -ONE, ONE))


@pytest.mark.parametrize("name", CARDS)
@pytest.mark.parametrize(
    ("xs", "bytes_of"),
    [
        pytest.param(np.union1d(EVERY_INPUT[::37], NEAR_KNOTS), beside_thresholds, id="some"),
        pytest.param(
            EVERY_INPUT,
            beside_thresholds,
            id="every",
            marks=[pytest.mark.slow, pytest.mark.sampled(2)],
        ),
        pytest.param(EVERY_INPUT, all_bytes, id="every byte", marks=pytest.mark.exhaustive),
    ],
)
def test_a_first_byte_decides_inputs_as_it_should(name, xs, bytes_of):
    check_first_bytes(CARDS[name], xs, bytes_of)


@pytest.mark.parametrize("name", [name for name in CARDS if name != "16 levels"])
def test_the_distribution_between_knots_is_exact(name):
    for v in (-ONE, 1 - ONE, -12345, -1, 0, 1, 511, 512, 4097, 16383, ONE):
        drawn = sampler_walk.outputs(CARDS[name], v)
        assert sum(drawn) == 1
        assert drawn == certify.distribution(CARDS[name], v)
