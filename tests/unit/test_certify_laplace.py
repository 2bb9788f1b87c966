"""The laplace sampler has no finite depth, so it is shown to be exact in two steps.

1. `reference` states the algorithm (Canonne, Kamath, Steinke 2020, Algorithms 1 and 2) in terms of uniform(n)
   alone. The firmware's sampler gives the same symbols and reads as many bytes, on many random streams.
2. The two parts of `reference` are walked over every outcome of their draws, down to a small rest of probability: what
   is stated lies within that rest.
"""

import random
from array import array
from decimal import Decimal, localcontext
from fractions import Fraction

import pytest

from tern import card as cards
from tern.fixed import ONE
from tern.sampler import sample
from tern.streams import Replay
from ternhost.privacy import base, certify, mechanisms


def bernoulli_exp(uniform, a, b):
    """True with probability exp(-a/b), 0 <= a <= b."""
    k = 1
    while uniform(b) < a and (k == 1 or uniform(k) == 0):
        k += 1
    return k % 2 == 1


def reference(card, v, uniform, rounds_up, bernoulli=bernoulli_exp):
    """The symbol for the Q1.14 input v. `rounds_up(f, bits)` is true with probability f / 2**bits."""
    shift = 14 - card.grid_bits
    low, fraction = divmod(v + ONE, 1 << shift)
    y = low - (1 << card.grid_bits)
    if fraction and rounds_up(fraction, shift):
        y += 1
    while True:
        offset = uniform(card.t)
        if not bernoulli(uniform, offset, card.t):
            continue
        whole = 0
        while bernoulli(uniform, 1, 1):
            whole += 1
        magnitude = (offset + card.t * whole) // card.s
        negative = uniform(2)
        if magnitude or not negative:
            break
    y += -magnitude if negative else magnitude
    return min(max(y, card.lowest), card.highest) - card.lowest


CARDS = [
    cards.decode(base.laplace(0, 1, 1, -3, 3)),
    cards.decode(base.laplace(1, 3, 1, -6, 8)),
    cards.decode(base.laplace(2, 5, 2, -9, 9)),
    cards.decode(base.laplace(14, 50_700, 3, -20000, 20000)),
    cards.decode(base.laplace(8, 70001, 9, -1000, 1000)),
    cards.decode(mechanisms.design("laplace", "1").card),
    cards.decode(mechanisms.design("laplace", "1.234567").card),
]


@pytest.mark.parametrize("card", CARDS, ids=lambda card: f"{card.grid_bits}-{card.t}-{card.s}")
def test_the_sampler_is_the_reference_draw_for_draw(card):
    rng = random.Random(5)
    xs, out = array("h", (0,)), array("H", (0,))
    for _ in range(4000):
        data = rng.randbytes(4000)
        xs[0] = v = rng.randint(-ONE, ONE)
        stream, again = Replay(data), Replay(data)
        sample(card, stream, xs, out, 1)

        def rounds_up(fraction, bits, again=again):
            threshold, low, unit = Fraction(fraction, 1 << bits), Fraction(0), Fraction(1)
            while low < threshold < low + unit:
                unit /= 256
                low += again.byte() * unit
            return low < threshold

        assert reference(card, v, again.uniform, rounds_up) == out[0]
        assert again.cursor[0] == stream.cursor[0]


class _Walked(Exception):
    pass


def walk(run, least):
    """The distribution of run(choose) over all paths more likely than `least`, and the probability left out.

    choose(weights) gives one of 0..len(weights)-1 with these probabilities.
    """
    found, rest = {}, 0
    open_paths = [((), Fraction(1))]
    while open_paths:
        path, p = open_paths.pop()
        step = iter(path)
        asked = []

        def choose(weights, step=step, asked=asked):
            for outcome in step:
                return outcome
            asked.append(weights)
            raise _Walked

        try:
            result = run(choose)
            found[result] = found.get(result, 0) + p
        except _Walked:
            for outcome, weight in enumerate(asked[0]):
                if p * weight < least:
                    rest += p * weight
                else:
                    open_paths.append(((*path, outcome), p * weight))
    return found, rest


def uniform_by(choose):
    return lambda n: choose([Fraction(1, n)] * n) if n > 1 else 0


def exp_minus(a, b):
    with localcontext() as context:
        context.prec = 12
        return Fraction((-Decimal(a) / b).exp())


@pytest.mark.parametrize(("a", "b"), [(0, 1), (1, 1), (1, 3), (2, 3), (1, 5), (4, 5)])
def test_bernoulli_exp(a, b):
    found, rest = walk(lambda choose: bernoulli_exp(uniform_by(choose), a, b), Fraction(1, 10**7))
    assert rest < Fraction(1, 200)
    low = found.get(True, 0)
    assert low - Fraction(1, 10**11) <= exp_minus(a, b) <= low + rest + Fraction(1, 10**11)


@pytest.mark.slow
@pytest.mark.parametrize("card", CARDS[:3], ids=lambda card: f"{card.grid_bits}-{card.t}-{card.s}")
def test_the_reference_has_the_stated_distribution(card):
    for v in (-ONE, 0, ONE):

        def run(choose, v=v):
            def bernoulli(_, a, b):
                p = exp_minus(a, b)
                return choose([1 - p, p])

            return reference(card, v, uniform_by(choose), None, bernoulli)

        found, rest = walk(run, Fraction(1, 10**5))
        assert rest < Fraction(1, 10)
        for symbol, p in enumerate(certify.distribution(card, v)):
            low = found.get(symbol, 0)
            assert low - Fraction(1, 10**8) <= p <= low + rest + Fraction(1, 10**8)


def test_stated_distribution_mean_and_variance():
    for card in CARDS[:3] + CARDS[5:]:
        values, moments = certify.values(card), certify.moments(card)
        for v in (-ONE, -ONE // 3, 0, 77, ONE):
            row = certify.distribution(card, v)
            x = Fraction(v, ONE)
            assert abs(sum(row) - 1) < Fraction(1, 2**180)
            assert abs(sum(p * value for p, value in zip(row, values, strict=True)) - x) < Fraction(1, 2**160)
            second = sum(p * value**2 for p, value in zip(row, values, strict=True))
            assert abs(second - moments.second_moment(x)) < Fraction(1, 2**150)


def test_laplace_ratio_is_what_is_certified():
    card = CARDS[1]
    rows = [certify.distribution(card, v) for v in (-ONE, ONE)]
    ratio = float(certify.ratio_of_distributions(rows))
    assert ratio == pytest.approx(2.718281828459045 ** (card.epsilon / 1e6), rel=1e-5)
    assert not cards.certify(card, card.epsilon - 1)
