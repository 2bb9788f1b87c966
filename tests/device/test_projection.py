"""Reports about a whole vector: they agree with integers of any size, and have exactly the law of
their card.
"""

import struct
from array import array

from checks import raises
from small_board import EPSILON
from spec.cards import projection_card
from spec.projection import length, ranked, rotated
from spec.sums import bits
from streams import Drip, Replay
from vectors import cases

from tern import projection
from tern.card import decode
from tern.compat import MICROPYTHON
from tern.entropy import POSITION, EntropyError
from tern.fixed import ONE
from tern.rotation import find, rotate

CARD = projection_card(EPSILON, 2, 2)  # for the four values of small_board


class Question:
    """A ROUND that asks for a report about these values."""

    def __init__(self, values):
        self.values = len(values)


def answerer_of(values, question):
    answerer = projection.Answerer(Question(values))
    answerer.question = question
    answerer.result = array("h", values)
    return answerer


def fields(data):
    """n, k, a, b and R of a card."""
    return struct.unpack_from("<BBIIH", data, 5)


def check_draws(data, values, question, stream, symbols, used):
    """These symbols are drawn one after the other, however the bytes arrive; none where one byte is
    missing.
    """
    card = decode(data)
    answerer = answerer_of(values, question)
    out = array("H", (0,))
    for source in (Replay(stream), Drip(stream, 1), Drip(stream, 3)):
        for i, expected in enumerate(symbols):
            answerer.draw(card, source, None, out, 1)
            assert out[0] == expected, (data, values, i)
        assert source.cursor[POSITION] == used, data
    source = Replay(stream[: used - 1])
    for _ in symbols[:-1]:
        answerer.draw(card, source, None, out, 1)
    raises(EntropyError, answerer.draw, card, source, None, out, 1)
    assert out[0] == 0


def test_vectors():
    for case in cases("sampler.json", "projections"):
        data, question, stream = (
            bytes.fromhex(case[name]) for name in ("card", "question", "stream")
        )
        check_draws(data, case["values"], question, stream, case["symbols"], case["bytes_used"])


# The law


class Numbers(Replay):
    """A stream of which two draws make exactly the numbers that are put into it."""

    def put(self, first, bound, second):
        """second: of at most 256."""
        size = (bits(bound - 1) + 7) // 8
        for at in range(size):
            self.pool[at] = first >> 8 * at & 255
        self.pool[size] = second
        self.cursor[POSITION] = 0


def symbols_of(data, values, question, seconds=0):
    """The symbols of all numbers of the first draw, each with all of the second, or with these:
    (first, symbol).

    Larger numbers are drawn again, which changes no probability (tests/unit/test_sums_law.py).
    """
    card = decode(data)
    answerer = answerer_of(values, question)
    out = array("H", (0,))
    stream = Numbers(bytes(9))
    bound = 2 * card.body.radius
    for first in range(bound):
        for second in range(seconds or card.body.total):
            stream.put(first, bound, second)
            answerer.draw(card, stream, None, out, 1)
            yield first, out[0]


def check_law(n, k, a, b, radius, values, question):
    """With the right sign k symbols have a of all numbers, and each other one b; with the wrong one
    their opposites.
    """
    data = projection_card(20_000_000, n, k, a, b, radius)
    size = 1 << n
    counts = [[0] * 2 * size for _ in range(2 * radius)]
    for first, drawn in symbols_of(data, values, question):
        counts[first][drawn] += 1
    v = rotated(values, size, question)
    likely = [j + size * (v[j] < 0) for j in ranked(v)[:k]]
    right = [a if drawn in likely else b for drawn in range(2 * size)]
    wrong = right[size:] + right[:size]
    of_right = radius + min(length(values), radius)
    assert counts == [right] * of_right + [wrong] * (2 * radius - of_right), (
        data,
        values,
        question,
    )


def check_laws(n, d, levels, questions):
    """Of all vectors of d values of these levels, and of two of N values."""
    size = 1 << n
    vectors = [[]]
    for _ in range(d):
        vectors = [vector + [level] for vector in vectors for level in levels]
    for i in range(questions):
        for values in vectors + [[ONE] * size, [-20, 0] * (size >> 1)]:
            for k in {1, size >> 1, size}:
                check_law(n, k, 5, 1, 4, values, bytes([i]) * 32)


def test_the_law_is_exact_on_a_grid():
    """All draws of all vectors of a small grid; of larger ones in
    tests/unit/test_projection_law.py.
    """
    for n, d in ((1, 2), (2, 1)) if MICROPYTHON else ((1, 2), (2, 1), (3, 1)):
        check_laws(n, d, (-20, 0, 12), 1)


def check_sign(radius, values):
    """Of the first draw's 2 R numbers, R + min(L, R) give the sign of the vector: the mean of a
    sign is its length.
    """
    data = projection_card(20_000_000, 1, 1, 3, 1, radius)
    symbols = [drawn for _, drawn in symbols_of(data, values, bytes(32), 1)]
    right = radius + min(length(values), radius)
    assert symbols == [symbols[0]] * right + [symbols[0] ^ 2] * (2 * radius - right), (
        radius,
        values,
    )


# Leaves


def test_a_rotated_vector_can_be_as_long_as_its_bound():
    """... where no sign changes.

    A search that finds nothing returns 0, so the largest value is not the first.
    """
    # A projection card rotates a vector of values (of at most 1 each; ONE stands for 1) before
    # noise is drawn. All of alternating values gather in one, the element 1, which reaches the
    # bound `top` on which the privacy of the card rests.
    for n in range(1, 8):
        size = 1 << n
        vector = array("i", [ONE, -ONE] * (size >> 1))
        rotate(vector, bytes(48), size)
        assert vector[1] == projection.Projection(projection_card(1, n, 1, 1, 1, 1)).top
        assert find(vector, size, 0, vector[1]) == 1


# Rounds
