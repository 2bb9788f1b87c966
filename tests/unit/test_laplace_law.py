"""The exact discrete Laplace sampler against its law: by enumeration as deep as it goes, and by a chi-square test."""

from array import array
from fractions import Fraction
from math import exp

import pytest
from scipy.stats import chi2
from spec.cards import laplace

from tern import sampler
from tern.card import Card, decode
from tern.entropy import EntropyError
from tern.streams import Keyed, Replay


def laplace_card(q: int, t: int, s: int, bound: int) -> Card:
    return decode(laplace(20_000_000, q, t, s, -bound, bound))


def law(card: Card, y: int) -> list[float]:
    """P(output) for the grid input y, ends included."""
    g = exp(-card.s / card.t)
    weights = [(1 - g) / (1 + g) * g ** abs(output - y) for output in range(card.lowest, card.highest + 1)]
    weights[0] = g ** (y - card.lowest) / (1 + g)
    weights[-1] = g ** (card.highest - y) / (1 + g)
    return weights


@pytest.mark.parametrize(
    ("t", "s", "depth"), [(1, 1, 7), (2, 1, 6), pytest.param(1, 3, 7, marks=pytest.mark.exhaustive)]
)
def test_enumerated_mass_is_within_the_law(t: int, s: int, depth: int) -> None:
    # Every draw here masks a byte to 3 bits or fewer until k exceeds 8, so 8 values stand for all 256.
    card = laplace_card(0, t, s, 3)
    mass = [Fraction(0)] * card.symbols
    xs, out = array("h", (0,)), array("H", (0,))
    prefixes = [b""]
    while prefixes:
        prefix = prefixes.pop()
        for value in range(8):
            data = prefix + bytes((value,))
            try:
                sampler.sample(card, Replay(data), xs, out, 1)
                mass[out[0]] += Fraction(1, 8 ** len(data))
            except EntropyError:
                if len(data) < depth:
                    prefixes.append(data)
    open_mass = float(1 - sum(mass))
    assert open_mass < 0.7
    for got, expected in zip(mass, law(card, 0), strict=True):
        assert float(got) <= expected + 1e-12
        assert expected <= float(got) + open_mass + 1e-12
    assert mass == mass[::-1]  # symmetric to the last string of bytes


@pytest.mark.parametrize(
    ("q", "t", "s", "x"), [(0, 1, 1, 0), (2, 7, 2, 4096), (4, 16, 1, -16384), (3, 300, 77, 16384)]
)
def test_chi_square(q: int, t: int, s: int, x: int) -> None:
    card = laplace_card(q, t, s, (1 << q) + 3 * t // s + 3)
    n = 80_000
    out = array("H", bytes(2 * n))
    sampler.sample(card, Keyed(b"fixed", b"laplace"), array("h", [x]) * n, out, n)
    expected = [n * p for p in law(card, x >> (14 - q))]
    counts = [0] * card.symbols
    for symbol in out:
        counts[symbol] += 1
    statistic = sum((c - e) ** 2 / e for c, e in zip(counts, expected, strict=True))
    assert min(expected) > 5
    assert 1e-4 < chi2.sf(statistic, card.symbols - 1) < 1 - 1e-4
