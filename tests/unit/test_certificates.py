"""The device library judges cards as an implementation of the text of shared_specs/cards.md in
unbounded integers.
"""

import random
import struct
from decimal import Decimal, localcontext
from itertools import pairwise

import pytest
from spec import cards

from tern.card import CardError, certify, decode
from tern.fixed import MAX_EPSILON, exp_lower

T, ONE = 2**30, 2**14


class Refused(Exception):
    pass


def require(condition):
    if not condition:
        raise Refused


def exp_by_the_text(e):
    t = s = 2**60
    i = 1
    while t := t * e // (i * 10**6):
        s += t
        i += 1
    return s // 2**20


def fields(data, layout, exact=True):
    size = 5 + struct.calcsize(layout)
    require(len(data) == size if exact else len(data) > size)
    return struct.unpack_from(layout, data, 5)


def counts(row):
    return [high - low for low, high in zip((0, *row), (*row, T), strict=True)]


def ratios_of(data, nested=False):
    """The kind, the pairs and the number of symbols of a card.

    It holds if a * 2**40 <= exp_lower * b for each pair (a, b); for a laplace card if a <= epsilon
    * b.
    """
    require(5 < len(data) <= 2048)
    tag, epsilon = struct.unpack_from("<BI", data)
    require(tag >> 4 == 1 and 1 <= epsilon <= MAX_EPSILON)
    shape = tag & 15
    require(shape in (1, 2) or (shape in (3, 4, 5, 7) and not nested))
    return {1: table, 2: window, 3: laplace, 4: mixture, 5: hierarchy, 7: projection}[shape](data)


def rows_of(data):
    p, m = fields(data, "<BB", exact=False)
    require(p <= 5 and 2 <= m <= 16)
    knots = 2**p + 1
    require(len(data) == 7 + m + 4 * knots * (m - 1))
    levels = struct.unpack_from(f"{m}b", data, 7)
    require(all(low < high for low, high in pairwise(levels)))
    thresholds = struct.unpack_from(f"<{knots * (m - 1)}I", data, 7 + m)
    rows = [counts(thresholds[i : i + m - 1]) for i in range(0, len(thresholds), m - 1)]
    require(all(n > 0 for row in rows for n in row))
    return levels, rows


def table(data):
    _, rows = rows_of(data)
    return "ratio", [(max(column), min(column)) for column in zip(*rows, strict=True)], len(rows[0])


def window(data):
    n, w, p = fields(data, "<HHI")
    require(2 <= n <= 256 and 1 <= w < n and 1 <= p < T)
    inside, outside = p * (n - w), w * (T - p)
    return "ratio", [(inside, outside), (outside, inside)], n


def laplace(data):
    q, t, s, lo, hi = fields(data, "<BIIii")
    require(q <= 14 and 1 <= t <= 2**20 and 1 <= s <= 2**20)
    require(-(2**20) <= lo <= -(2**q) and 2**q <= hi <= 2**20 and hi - lo <= 65535)
    return "laplace", [(2 * 2**q * s * 1_000_000, t)], hi - lo + 1


def mixture(data):
    p, length = fields(data, "<IH", exact=False)
    require(1 <= p < T)
    parts = (data[11 : 11 + length], data[11 + length :])
    (_, first, m), (_, second, n) = (ratios_of(part, nested=True) for part in parts)
    require(m + n <= 256)
    return "ratio", first + second, m + n


def hierarchy(data):
    m = data[5]
    require(2 <= m <= 16 and len(data) == 6 + 2 * (m - 1) + 30 * m)
    bounds = struct.unpack_from(f"<{m - 1}h", data, 6)
    require(all(high > low for high, low in pairwise(bounds)))
    require(all(-ONE < bound <= ONE for bound in bounds))
    rest = data[6 + 2 * (m - 1) :]
    inside, rows = [], []
    for i in range(m):
        card = rest[13 * i : 13 * i + 13]
        require(card[0] == 0x12)
        ratios_of(card)
        n, w, p = fields(card, "<HHI")
        require(n == m and w == 1)
        inside.append(p)
        card = rest[13 * m + 17 * i : 13 * m + 17 * i + 17]
        require(card[0] == 0x11 and card[5] == 0)
        ratios_of(card)
        levels, rows_of_level = rows_of(card)
        require(levels == (-1, 1))
        rows.append(rows_of_level)
    pairs = []
    for t in range(m):
        for j in (0, 1):
            w = []
            for i in range(m):
                q = inside[i] * (m - 1) if t == i else T - inside[i]
                for x in (bounds[i] if i < m - 1 else -ONE, bounds[i - 1] - 1 if i else ONE):
                    w.append(q * (rows[t][0][j] * (ONE - x) + rows[t][1][j] * (ONE + x)))
            pairs.append((max(w), min(w)))
    return "ratio", pairs, 2 * m


def projection(data):
    n, k, a, b, radius = fields(data, "<BBIIH")
    require(1 <= n <= 7 and 1 <= k <= 2**n and 1 <= b <= a <= 2**20 and 1 <= radius <= 2**15)
    require(k * a + (2 * 2**n - k) * b <= 2**20)
    return "ratio", [(a, b)], 2 * 2**n


def holds(kind, pairs, epsilon):
    unit, bound = (1, epsilon) if kind == "laplace" else (2**40, exp_by_the_text(epsilon))
    return all(a * unit <= bound * b for a, b in pairs)


# Random cards


def threshold(rng):
    some, small, large = rng.randrange(1, T), rng.randrange(1, 40), T - rng.randrange(1, 40)
    return rng.choice([some, T // 2 + rng.randrange(-9, 10), small, large])


def some_table(rng, p=None, m=None, levels=None):
    p = rng.choice([0, 0, 1, 2, 5]) if p is None else p
    m = m or rng.choice([2, 3, 4, 16])
    levels = levels or sorted(rng.sample(range(-128, 128), m))
    like = [rng.randrange(1, T) for _ in range(m - 1)]  # rows that differ little, or much
    near = rng.choice([3, 10**5, T])
    epsilon = rng.randrange(1, MAX_EPSILON + 1)
    rows = [
        [max(1, min(T - 1, n + rng.randrange(-near, near + 1))) for n in like]
        for _ in range(2**p + 1)
    ]
    return cards.table(epsilon, levels, [sorted(row) for row in rows])


def some_window(rng, n=None, w=None):
    n = n or rng.randrange(2, 257)
    w = w or rng.randrange(1, n)
    return cards.window(rng.randrange(1, MAX_EPSILON + 1), n, w, threshold(rng))


def some_laplace(rng):
    q, bits = rng.randrange(15), rng.randrange(1, 21)
    t, s = rng.randrange(1, 2**bits + 1), rng.randrange(1, 2 ** rng.randrange(1, 21) + 1)
    lo, hi = -(2**q) - rng.randrange(100), 2**q + rng.randrange(100)
    return cards.laplace(rng.randrange(1, MAX_EPSILON + 1), q, t, s, lo, hi)


def some_mixture(rng):
    first, second = (rng.choice([some_table, some_window])(rng) for _ in range(2))
    return cards.mixture(rng.randrange(1, MAX_EPSILON + 1), threshold(rng), first, second)


def some_hierarchy(rng):
    m = rng.randrange(2, 17)
    bounds = sorted(rng.sample(range(-ONE + 1, ONE + 1), m - 1), reverse=True)
    if rng.random() < 0.3:
        top = rng.randrange(-ONE + m, ONE + 1)
        bounds = [top - i for i in range(m - 1)]
    levels = m if rng.random() < 0.5 else 1  # different ones, or one for all
    inside = [some_window(rng, m, 1) for _ in range(levels)] * (m // levels)
    values = [some_table(rng, 0, 2, (-1, 1)) for _ in range(m)]
    return cards.hierarchy(MAX_EPSILON, bounds, inside, values)


def some_projection(rng):
    n = rng.randrange(1, 8)
    k, b = rng.randrange(1, 2**n + 1), rng.randrange(1, 2 ** rng.randrange(1, 20 - n))
    a = b + rng.randrange(1 + (2**20 - 2 * 2**n * b) // k)
    return cards.projection_card(
        rng.randrange(1, MAX_EPSILON + 1), n, k, a, b, rng.randrange(1, 2**15 + 1)
    )


def some_change(rng, data):
    """A byte changed, the end cut off, or nothing."""
    kind, at = rng.randrange(8), rng.randrange(len(data))
    if kind == 0:
        return data[:at]
    return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :] if kind == 1 else data


def least_epsilon(kind, pairs):
    """The least epsilon, in millionths, from which on the text accepts a card; else one too many."""
    refused, accepted = 0, MAX_EPSILON + 1
    while accepted - refused > 1:
        middle = (refused + accepted) // 2
        if holds(kind, pairs, middle):
            accepted = middle
        else:
            refused = middle
    return accepted


@pytest.mark.parametrize(
    "some_card",
    [some_table, some_window, some_laplace, some_mixture, some_hierarchy, some_projection],
)
def test_each_card_is_judged_as_the_specification_says(some_card):
    """Random cards, most of them damaged. The device library refuses those that the specification
    refuses, and certifies a card for an epsilon if and only if no ratio of two probabilities
    exceeds e**epsilon, up to the least epsilon and one millionth below.
    """
    random_source = random.Random(some_card.__name__)
    judgements = {True: 0, False: 0}
    for _ in range(400):
        data = some_change(random_source, some_card(random_source))
        try:
            kind, pairs, symbols = ratios_of(data)
        except Refused:
            with pytest.raises(CardError):
                decode(data)
            continue
        card = decode(data)
        assert card.symbols == symbols
        least = least_epsilon(kind, pairs)
        epsilons = {1, max(1, least - 1), min(least, MAX_EPSILON), card.epsilon, MAX_EPSILON}
        for epsilon in epsilons:
            judgement = holds(kind, pairs, epsilon)
            judgements[judgement] += 1
            assert certify(card, epsilon) == judgement, (data.hex(), epsilon)
    assert min(judgements.values()) > 100, "cards are accepted and refused, often"


def test_exp_lower_is_computed_as_the_text_says_and_is_a_lower_bound():
    random_source = random.Random(6)
    drawn = [random_source.randrange(1, MAX_EPSILON) for _ in range(2000)]
    with localcontext(prec=60):
        for epsilon in (1, 2, 999_999, MAX_EPSILON - 1, MAX_EPSILON, *drawn):
            bound = exp_lower(epsilon)
            assert bound == exp_by_the_text(epsilon)
            exact = 2**40 * (Decimal(epsilon) / 10**6).exp()
            assert 0 <= exact - bound < exact / 2**38


def test_no_integer_of_the_exponential_is_wider_than_the_text_says():
    """The terms and their sum, for the largest epsilon."""
    term = total = 2**60
    divisor = 1
    while term:
        assert term * MAX_EPSILON < 2**110
        assert divisor * 10**6 < 2**27
        term = term * MAX_EPSILON // (divisor * 10**6)
        total += term
        divisor += 1
        assert term < 2**86
        assert total < 2**89


def test_no_product_of_a_comparison_is_wider_than_the_text_says():
    """A certificate compares products of integers. The widths in bits that the specification states
    for the C device, at the largest values that occur.
    """
    exp_bound = exp_lower(MAX_EPSILON)
    largest_count = T - 1
    assert exp_bound < 2**69
    assert exp_bound * largest_count < 2**99  # a table
    assert 255 * largest_count << 40 < 2**78  # a window of 256 symbols
    assert exp_bound * 255 * largest_count < 2**107
    assert MAX_EPSILON << 20 < 2**45  # Laplace
    assert 2_000_000 << 34 < 2**55
    assert 1 << 20 + 40 < 2**61  # a projection
    assert exp_bound << 20 < 2**89
    weight = largest_count * 15 * largest_count * 2**15  # a hierarchy of 16 levels
    assert weight < 2**79
    assert weight << 40 < 2**119
    assert exp_bound * weight < 2**148
