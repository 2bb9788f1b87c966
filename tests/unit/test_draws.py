"""The firmware's table leaf over every input, its law down every branch; and which wrong draws the vectors catch."""

import json
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import sampler_walk
from spec import cards as spec

from tern import table
from tern.card import HIERARCHY, LAPLACE, MIXTURE, TABLE, Card, T, decode
from tern.entropy import SLACK
from tern.fixed import MAX_EPSILON, ONE
from ternhost.privacy import certify, mechanisms

VECTORS = Path(__file__).parents[2] / "shared_specs" / "vectors" / "sampler.json"


def rows(*thresholds: tuple[int, ...]) -> Card:
    """A table card of these thresholds, a row a knot."""
    return decode(spec.table(MAX_EPSILON, range(len(thresholds[0]) + 1), thresholds))


def designed(name: str, epsilon: str) -> Card:
    return decode(mechanisms.design(name, epsilon).card)


def some_rows(knot_bits: int, levels: int) -> Card:
    rng = np.random.default_rng(levels)
    return rows(
        *(
            tuple(sorted((rng.choice(T - 2, levels - 1, replace=False) + 1).tolist()))
            for _ in range((1 << knot_bits) + 1)
        )
    )


CARDS = {
    "three-outputs 1/2": designed("three-outputs", "0.5"),
    "three-outputs 2": designed("three-outputs", "2"),
    "three-outputs 8": designed("three-outputs", "8"),
    "duchi": designed("duchi", "1"),
    "from end to end": rows((1,), (T - 1,)),
    "and back": rows((T - 1,), (1,), (T - 1,)),
    "as close as can be": rows((1, 2, 3), (T - 3, T - 2, T - 1)),
    "beside a first byte": rows(
        ((1 << 29) - 1, 1 << 29, (1 << 29) + 1), ((1 << 29) - 2, 1 << 29, (1 << 29) + 2)
    ),
    "steep steps of half a product": rows((32767, 65536), (T - 32769, T - 1)),
    "33 knots": some_rows(5, 3),
    "16 levels": some_rows(2, 16),
}


def exact(card: Card, xs: np.ndarray) -> np.ndarray:
    """The thresholds of each input out of 2**45: those of its two knots, interpolated."""
    columns = card.symbols - 1
    c = np.array(card.thresholds, np.int64).reshape(-1, columns)
    b = (xs.astype(np.int64) + ONE) << card.knot_bits
    i, f = b >> 15, (b & 32767)[:, None]
    return (2**15 - f) * c[i] + f * c[np.minimum(i + 1, len(c) - 1)]


def check_first_bytes(
    card: Card, xs: np.ndarray, bytes_of: Callable[[np.ndarray], Iterator[np.ndarray]]
) -> None:
    """Run the leaf on each input and first byte: it decides just where no threshold lies in what the byte leaves."""
    thresholds = exact(card, xs)
    out, job, pool = array("H", (0,)), card.job, bytearray(1 + SLACK)
    for u in bytes_of(thresholds):
        low = u.astype(np.int64) << 37
        symbols = (thresholds <= low[:, None]).sum(axis=1)
        inside = (thresholds > low[:, None]) & (thresholds < (low + (1 << 37))[:, None])
        expected = np.where(inside.any(axis=1), -1, symbols).tolist()
        for x, byte, symbol in zip(xs.tolist(), u.tolist(), expected, strict=True):
            pool[0] = byte
            job[0], job[1], job[2], job[3] = 0, 1, 0, 1
            table.table(array("h", (x,)), out, pool, job)
            assert (out[0] if job[0] else -1) == symbol, (x, byte)
            assert job[2] == job[0]


EVERY_INPUT = np.arange(-ONE, ONE + 1)


def beside_thresholds(thresholds: np.ndarray) -> Iterator[np.ndarray]:
    """The first byte of each threshold, and those beside it: a comparison is monotone in the byte."""
    for column in thresholds.T >> 37:
        for beside in (-1, 0, 1):
            yield np.clip(column + beside, 0, 255)


def all_bytes(thresholds: np.ndarray) -> Iterator[np.ndarray]:
    return (np.full(len(thresholds), u) for u in range(256))


@pytest.mark.parametrize("name", CARDS)
def test_first_bytes_of_inputs(name: str) -> None:
    near_knots = np.unique(np.clip(np.arange(-ONE, ONE + 1, 512)[:, None] + [-1, 0, 1], -ONE, ONE))
    check_first_bytes(CARDS[name], np.union1d(EVERY_INPUT[::37], near_knots), beside_thresholds)


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", CARDS)
def test_first_bytes_of_every_input(name: str) -> None:
    check_first_bytes(CARDS[name], EVERY_INPUT, beside_thresholds)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", CARDS)
def test_every_first_byte_of_every_input(name: str) -> None:
    check_first_bytes(CARDS[name], EVERY_INPUT, all_bytes)


@pytest.mark.parametrize("name", [name for name in CARDS if name != "16 levels"])
def test_the_law_between_knots_is_exact(name: str) -> None:
    # Every branch of up to six bytes.
    for v in (-ONE, 1 - ONE, -12345, -1, 0, 1, 511, 512, 4097, 16383, ONE):
        drawn = sampler_walk.outputs(CARDS[name], v)
        assert sum(drawn) == 1
        assert drawn == certify.distribution(CARDS[name], v)


# --- what the vectors catch ---------------------------------------------------------------------------------


class Draws:
    """Draws as cards.md tells them, in plain integers; what a mutation names is done wrong."""

    def __init__(self, data: bytes, wrong: str) -> None:
        self.data = data
        self.at = 0
        self.wrong = wrong

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def thresholds(self, found: list[int], bits: int, single: bool = False) -> int:
        known, m = 0, 0
        reads_on = self.wrong == ("single thresholds read on" if single else "rows read on")
        while True:
            low, high = known << bits, (known + 1) << bits
            scaled = [t << 8 * m for t in found]
            inside = any(low < t < high or (reads_on and m and t == low) for t in scaled)
            if self.wrong == "all bytes are read":
                inside = True
            if not inside or 8 * m >= bits:
                below = [
                    t < low if self.wrong == "an equal threshold counts as above" else t <= low
                    for t in scaled
                ]
                return sum(below)
            known = known << 8 | self.byte()
            m += 1

    def bernoulli(self, f: int, bits: int) -> int:
        if f == 0:
            return 0
        return 1 - self.thresholds([f], bits, single=True)

    def uniform(self, n: int) -> int:
        mask = (1 << (n - 1).bit_length()) - 1
        size = -(-mask.bit_length() // 8)
        if self.wrong == "uniform(256) reads two bytes" and n == 256:
            size = 2
        order = "big" if self.wrong == "uniform reads most significant bytes first" else "little"
        while True:
            value = int.from_bytes([self.byte() for _ in range(size)], order)
            if self.wrong == "uniform takes a remainder":
                return value % n
            if value & mask < n:
                return value & mask

    def table(self, card: Card, v: int) -> int:
        columns = card.symbols - 1
        b = (v + ONE) << card.knot_bits
        i, f = b >> 15, b & 32767
        if self.wrong == "a knot is drawn first":
            i, f = i + self.bernoulli(f, 15), 0
        c = list(card.thresholds[i * columns : (i + 1) * columns])
        after = list(card.thresholds[(i + 1) * columns : (i + 2) * columns]) if f else c
        found = [(2**15 - f) * a + f * b for a, b in zip(c, after, strict=True)]
        if self.wrong == "interpolated thresholds have 30 bits":
            found = [t >> 15 << 15 for t in found]
        return self.thresholds(found, 45)

    def window(self, card: Card, v: int) -> int:
        others = card.symbols - card.window
        b = (v + ONE) * others
        i = (b >> 15) + self.bernoulli(b & 32767, 15)
        if self.bernoulli(card.threshold, 30):
            return i + self.uniform(card.window)
        e = self.uniform(others)
        return e if e < i else e + card.window

    def rounded(self, card: Card, v: int) -> int:
        b = (v + ONE) << (card.grid_bits + 1)
        if self.wrong == "laplace reads where the fraction is 0" and b & 32767 == 0:
            self.byte()
        return (b >> 15) - (1 << card.grid_bits) + self.bernoulli(b & 32767, 15)

    def noise(self, card: Card, i: int) -> int:
        while True:
            offset = self.uniform(card.t)
            k = 1
            while self.uniform(card.t) < offset and (k == 1 or self.uniform(k) == 0):
                k += 1
            if k % 2 == 0:
                continue
            whole = 0
            while True:
                k = 2
                while self.uniform(k) == 0:
                    k += 1
                if k % 2 == 0:
                    break
                whole += 1
            magnitude = (offset + card.t * whole) // card.s
            negative = self.byte() & 1
            if magnitude or not negative or self.wrong == "laplace has a negative zero":
                i += -magnitude if negative else magnitude
                return min(max(i, card.lowest), card.highest) - card.lowest

    def sample(self, card: Card, xs: list[int]) -> list[int]:
        if card.shape == LAPLACE:
            if self.wrong == "laplace rounds each coordinate before its noise":
                return [self.noise(card, self.rounded(card, v)) for v in xs]
            return [self.noise(card, i) for i in [self.rounded(card, v) for v in xs]]
        return [self.table(card, v) if card.shape == TABLE else self.window(card, v) for v in xs]


WRONG = (
    "single thresholds read on",
    "rows read on",
    "all bytes are read",
    "an equal threshold counts as above",
    "uniform(256) reads two bytes",
    "uniform reads most significant bytes first",
    "uniform takes a remainder",
    "a knot is drawn first",
    "interpolated thresholds have 30 bits",
    "laplace reads where the fraction is 0",
    "laplace has a negative zero",
    "laplace rounds each coordinate before its noise",
)


def failures(wrong: str) -> list[str]:
    """The vectors that an implementation with this mistake does not pass."""
    found = []
    for case in json.loads(VECTORS.read_text())["tests"]:
        card = decode(bytes.fromhex(case["card"]))
        if card.shape in (MIXTURE, HIERARCHY):
            continue
        draws = Draws(bytes.fromhex(case["stream"]), wrong)
        try:
            passed = draws.sample(card, case["xs"]) == case["symbols"] and draws.at == case["bytes_used"]
        except IndexError:  # no byte is left
            passed = False
        if not passed:
            found.append(case["comment"])
    return found


def test_what_the_text_says_passes_the_vectors() -> None:
    assert failures("") == []


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_draw_fails_a_vector(wrong: str) -> None:
    assert failures(wrong)
