"""Certification: exact figures of cards.

The firmware's sampler is run down every branch of its draws.
"""

import random
from array import array
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import partial

import pytest
import sampler_walk
from designing import shipped_card
from hypothesis import given, settings
from hypothesis import strategies as st
from streams import Replay, uniform

from tern import card as cards
from tern.card import CardError, T
from tern.fixed import ONE
from tern.sampler import sample, sample_categories
from ternhost.errors import UsageError
from ternhost.privacy import base, certify, matrix, mechanisms

SMALL = 1 << 22  # thresholds in multiples of this are decided by one byte: T reduced to 256


def exp_decimal(micro: int) -> Fraction:
    """e**epsilon to 60 digits, by another method than the certificate's."""
    with localcontext() as context:
        context.prec = 60
        return Fraction((Decimal(micro) / 10**6).exp())


def designed(
    name: str, epsilon: str = "2", levels: int | None = None, **options: str
) -> cards.Card:
    return cards.decode(mechanisms.design(name, epsilon, levels, **options).card)


def reduced_table(levels, rows):
    """A table card from rows that add up to 256."""
    return cards.decode(base.table(levels, [[n * SMALL for n in row] for row in rows]))


ENDS = reduced_table((-1, 0, 1), ((150, 56, 50), (50, 56, 150)))
PAIR = cards.decode(base.window(2, 1, 160 * SMALL))
REDUCED = [
    reduced_table((-1, 1), ((200, 56), (56, 200))),
    reduced_table((-1, 0, 1), ((150, 56, 50), (60, 136, 60), (50, 56, 150))),
    reduced_table(
        (-3, -1, 1, 3),
        ((96, 80, 48, 32), (80, 80, 64, 32), (64, 64, 64, 64), (32, 64, 80, 80), (32, 48, 80, 96)),
    ),
    PAIR,
    cards.decode(base.window(3, 1, 128 * SMALL)),
    cards.decode(base.window(5, 2, 200 * SMALL)),
    cards.decode(base.window(9, 3, 130 * SMALL)),
    cards.decode(base.mixture(100 * SMALL, ENDS.data, PAIR.data)),
]


KNOTS = tuple(range(-ONE, ONE + 1, ONE // 2))
BETWEEN = (1 - ONE, -9, 1, 4097, ONE - 1)


@pytest.mark.parametrize(
    "card",
    [*REDUCED[:-1], pytest.param(REDUCED[-1], marks=pytest.mark.slow)],
    ids=lambda card: f"shape{card.shape}-{card.symbols}",
)
def test_reduced_cards_are_drawn_with_their_distribution(card):
    between = BETWEEN if card.shape == cards.TABLE else BETWEEN[:1] if card.symbols == 2 else ()
    for v in KNOTS[::2] + between:
        if card.shape != cards.TABLE and card.symbols > 2 and abs(v) < ONE:
            continue
        drawn = sampler_walk.outputs(card, v)
        assert sum(drawn) == 1
        assert drawn == certify.distribution(card, v)


@pytest.mark.parametrize("levels", [3, 9, 255])
def test_a_window_start_is_rounded_exactly(levels):
    # After the rounding all bytes are zero, which draw the start itself when W = 1.
    card = cards.decode(base.window(levels, 1, T // 2))
    others = levels - 1
    xs, out = array("h", (0,)), array("H", (0,))

    def start(branch):
        given = branch.cursor[1]
        branch.pool[given : given + 4] = bytes(4)
        branch.begin(given + 4)
        sample(card, branch, xs, out, 1)
        if branch.cursor[0] > given + 1:  # the rounding has read more bytes than it was given
            raise sampler_walk.OutOfBytes
        return out[0]

    for v in (*range(-ONE, ONE, 1311), *KNOTS, *BETWEEN):
        xs[0] = v
        low, rest = divmod((v + ONE) * others, 2 * ONE)
        if rest == 0:  # nothing is read
            branch = sampler_walk.Branch()
            assert (start(branch), branch.cursor[0]) == (low, 1)
            continue
        expected = [Fraction(0)] * levels
        expected[low] = Fraction(2 * ONE - rest, 2 * ONE)
        expected[low + 1] = Fraction(rest, 2 * ONE)
        assert sampler_walk.outputs(card, v, start) == expected


@pytest.mark.parametrize(
    ("name", "levels", "inputs"),
    [
        ("duchi", None, (-ONE, ONE, 12345)),
        ("three-outputs", None, (-ONE, 0, ONE, 5000)),
        ("rr3", None, (-ONE, 0, ONE)),
        pytest.param("3r", None, (*range(-ONE, ONE + 1, ONE // 16), 333), marks=pytest.mark.slow),
        ("pm-sub", 15, (-ONE, ONE)),
        ("pm-sub", None, (-ONE, ONE)),
    ],
)
def test_designed_cards_are_drawn_with_their_distribution(name, levels, inputs):
    card = designed(name, "1.5", levels)
    for v in inputs:
        assert sampler_walk.outputs(card, v) == certify.distribution(card, v)


@pytest.mark.slow
def test_from_each_window_start_symbols_are_drawn_with_their_distribution():
    # A window start is drawn from the input alone (above). Here each start is given, as a category
    # is.
    card = cards.decode(base.window(7, 2, 160 * SMALL))
    starts, out = array("h", (0,)), array("H", (0,))
    for start in range(card.symbols - card.window + 1):
        starts[0] = start

        def draw(stream):
            sample_categories(card, stream, starts, out, 1)
            return out[0]

        assert sampler_walk.outputs(card, 0, draw) == certify.at_knot(card, start)


def test_the_enumeration_detects_a_wrong_sampler():
    card = cards.decode(base.window(5, 2, 200 * SMALL))
    out = array("H", (0,))

    def modulo(stream):  # a sampler without rejection
        inside = stream.below(card.threshold)
        count = card.window if inside else card.symbols - card.window
        symbol = stream.byte() % count
        out[0] = symbol if inside or symbol < 0 else symbol + card.window
        return out[0]

    drawn = sampler_walk.outputs(card, -ONE, modulo)
    assert sum(drawn) == 1
    assert drawn != certify.distribution(card, -ONE)


def test_inputs_beyond_the_ends_are_saturated_by_the_sampler():
    card = REDUCED[1]
    assert sampler_walk.outputs(card, 32767) == certify.distribution(card, ONE)
    assert sampler_walk.outputs(card, -32768) == certify.distribution(card, -ONE)
    with pytest.raises(ValueError, match="outside"):
        certify.distribution(card, ONE + 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "levels"),
    [
        ("duchi", None),
        ("three-outputs", None),
        pytest.param("pm-sub", None, marks=pytest.mark.exhaustive),
    ],
)
def test_a_card_with_a_flipped_bit_is_refused_or_keeps_its_epsilon(name, levels):
    data = mechanisms.design(name, "2", levels).card
    verdicts = {"undecodable": 0, "uncertified": 0, "true": 0}
    drawn_before: dict[bytes, list[list[Fraction]]] = {}
    for bit in range(8 * len(data)):
        altered = bytearray(data)
        altered[bit // 8] ^= 1 << bit % 8
        try:
            card = cards.decode(bytes(altered))
        except CardError:
            verdicts["undecodable"] += 1
            continue
        if not cards.certify(card):
            verdicts["uncertified"] += 1
            continue
        verdicts["true"] += 1
        body = bytes(altered[5:])  # the epsilon that a card claims changes no draw
        if body not in drawn_before:
            inputs = (-ONE, 0, ONE) if card.shape == cards.TABLE and card.knot_bits else (-ONE, ONE)
            drawn_before[body] = [sampler_walk.outputs(card, v) for v in inputs]
            assert drawn_before[body] == [certify.distribution(card, v) for v in inputs]
        ratio = sampler_walk.ratio_of(drawn_before[body])
        assert ratio == sampler_walk.likelihood_ratio(
            card
        )  # the ends (and the middle) reveal the most
        assert ratio <= exp_decimal(card.epsilon)
    assert sum(verdicts.values()) == 8 * len(data)
    assert all(verdicts.values())


@given(
    st.integers(1, 20_000_000), st.sampled_from(("duchi", "three-outputs", "pm-sub", "3r", "rr3"))
)
@settings(max_examples=60)
def test_the_certified_epsilon_holds_and_is_the_smallest(epsilon, name):
    design = mechanisms.design(name, epsilon_micro=epsilon)
    card = cards.decode(design.card)
    assert card.epsilon == certify.epsilon_certified(card) <= epsilon
    assert not cards.certify(card, card.epsilon - 1)
    assert sampler_walk.likelihood_ratio(card) <= exp_decimal(card.epsilon)
    assert certify.bias(card) == 0


@given(st.integers(2, 60), st.data())
@settings(max_examples=40)
def test_window_moments_equal_those_of_the_distribution(levels, data):
    width = data.draw(st.integers(1, levels - 1))
    threshold = data.draw(st.integers(T * width // levels + 1, T - 200))
    card = cards.decode(base.window(levels, width, threshold))
    moments = certify.moments(card)
    values = certify.values(card)
    v = data.draw(st.integers(-ONE, ONE))
    x = Fraction(v, ONE)
    row = certify.distribution(card, v)
    assert sum(p * value for p, value in zip(row, values, strict=True)) == x
    assert sum(p * value**2 for p, value in zip(row, values, strict=True)) == moments.second_moment(
        x
    )
    assert moments.variance(x) <= moments.worst_variance()[0]


def test_the_worst_variance_is_found_between_knots():
    card = designed("three-outputs", "2")
    moments = certify.moments(card)
    worst, at = moments.worst_variance()
    assert moments.variance(at) == worst
    assert 0 < abs(at) < 1
    assert all(moments.variance(Fraction(i, 1000)) <= worst for i in range(-1000, 1001))


def test_a_biased_card_has_no_values():
    card = reduced_table((-1, 0, 1), ((150, 56, 50), (61, 135, 60), (50, 56, 150)))
    for figure in (certify.scale, certify.values, certify.bias, certify.moments):
        with pytest.raises(certify.Biased):
            figure(card)
    assert certify.epsilon_certified(card) is not None
    with pytest.raises(certify.Biased):
        certify.scale(cards.decode(base.window(4, 2, T // 3)))


def test_a_mixture_at_its_knots_is_the_mixture_of_its_cards():
    card = cards.decode(base.mixture(T // 4, REDUCED[1].data, REDUCED[-2].data))
    assert certify.knots(card)[2:4] == [Fraction(-1, 3), 0]
    third = certify.at_knot(card, 2)
    left, right = (certify.at_knot(card.first, i) for i in (0, 1))
    assert third[:3] == [(a + 2 * b) / 12 for a, b in zip(left, right, strict=True)]
    assert third[3:] == [3 * p / 4 for p in certify.at_knot(card.second, 2)]
    assert certify.at_knot(card, 3) == certify.distribution(card, 0)


# The laplace sampler has no finite depth. Its exactness is shown in two steps:
#
# 1. `reference` states the algorithm (Canonne, Kamath, Steinke 2020, Algorithms 1 and 2) in terms of uniform(n) alone.
#    The firmware's sampler gives the same symbols and reads as many bytes, on many random streams.
# 2. The two parts of `reference` are walked over every outcome of their draws, down to a small rest of probability.
#    The stated probabilities lie within that rest.


def bernoulli_exp(uniform, a, b):
    """True with probability exp(-a/b), 0 <= a <= b."""
    k = 1
    while uniform(b) < a and (k == 1 or uniform(k) == 0):
        k += 1
    return k % 2 == 1


def reference(card, v, uniform, rounds_up, bernoulli=bernoulli_exp):
    """The symbol for the Q1.14 input v.

    `rounds_up(f, bits)` is true with probability f / 2**bits.
    """
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
    return min(max(y - card.lowest, 0), card.symbols - 1)


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
def test_the_sampler_gives_the_symbols_of_the_reference(card):
    rng = random.Random(5)
    xs, out = array("h", (0,)), array("H", (0,))
    for _ in range(4000):
        data = rng.randbytes(4000)
        xs[0] = v = rng.randint(-ONE, ONE)
        stream, same = Replay(data), Replay(data)
        sample(card, stream, xs, out, 1)

        def rounds_up(fraction, bits, same=same):
            threshold, low, unit = Fraction(fraction, 1 << bits), Fraction(0), Fraction(1)
            while low < threshold < low + unit:
                unit /= 256
                low += same.byte() * unit
            return low < threshold

        assert reference(card, v, partial(uniform, same), rounds_up) == out[0]
        assert same.cursor[0] == stream.cursor[0]


class _Branches(Exception):
    """The path ends here; `args` are the probabilities of the outcomes that follow."""


def walk(run, least):
    """The distribution of run(choose) over all paths more likely than `least`, and the probability
    left out.

    choose(weights) gives one of 0..len(weights)-1 with these probabilities.
    """
    law, rest = {}, 0
    open_paths = [((), Fraction(1))]
    while open_paths:
        path, p = open_paths.pop()
        step = iter(path)

        def choose(weights, step=step):
            for outcome in step:
                return outcome
            raise _Branches(*weights)

        try:
            result = run(choose)
            law[result] = law.get(result, 0) + p
        except _Branches as branches:
            for outcome, weight in enumerate(branches.args):
                if p * weight < least:
                    rest += p * weight
                else:
                    open_paths.append(((*path, outcome), p * weight))
    return law, rest


def uniform_by(choose):
    return lambda n: choose([Fraction(1, n)] * n) if n > 1 else 0


def exp_minus(a, b):
    with localcontext() as context:
        context.prec = 12
        return Fraction((-Decimal(a) / b).exp())


@pytest.mark.parametrize(("a", "b"), [(0, 1), (1, 1), (1, 3), (2, 3), (1, 5), (4, 5)])
def test_bernoulli_exp_has_its_probability(a, b):
    law, rest = walk(lambda choose: bernoulli_exp(uniform_by(choose), a, b), Fraction(1, 10**7))
    assert rest < Fraction(1, 200)
    low = law.get(True, 0)
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

        law, rest = walk(run, Fraction(1, 10**5))
        assert rest < Fraction(1, 10)
        for symbol, p in enumerate(certify.distribution(card, v)):
            low = law.get(symbol, 0)
            assert low - Fraction(1, 10**8) <= p <= low + rest + Fraction(1, 10**8)


def test_the_stated_distribution_has_the_stated_mean_and_variance():
    for card in CARDS[:3] + CARDS[5:]:
        values, moments = certify.values(card), certify.moments(card)
        for v in (-ONE, -ONE // 3, 0, 77, ONE):
            row = certify.distribution(card, v)
            x = Fraction(v, ONE)
            assert abs(sum(row) - 1) < Fraction(1, 2**180)
            assert abs(sum(p * value for p, value in zip(row, values, strict=True)) - x) < Fraction(
                1, 2**160
            )
            second = sum(p * value**2 for p, value in zip(row, values, strict=True))
            assert abs(second - moments.second_moment(x)) < Fraction(1, 2**150)


def test_the_ratio_of_a_laplace_card_is_the_certified_one():
    card = CARDS[1]
    rows = [certify.distribution(card, v) for v in (-ONE, ONE)]
    ratio = float(sampler_walk.ratio_of(rows))
    assert ratio == pytest.approx(2.718281828459045 ** (card.epsilon / 1e6), rel=1e-5)
    assert not cards.certify(card, card.epsilon - 1)


@pytest.mark.parametrize(
    ("name", "levels"),
    [
        *((name, None) for name in ("duchi", "three-outputs", "rr3", "3r")),
        ("optimal", 4),
        ("grr", 5),
    ],
)
def test_a_card_as_a_table_has_the_epsilon_bias_and_variance_of_the_card(name, levels):
    card = designed(name, "1.5", levels)
    knots = certify.knots(card)
    table = [certify.at_knot(card, i) for i in range(len(knots))]
    found = matrix.certify(table, certify.values(card), knots)
    assert found.epsilon == certify.epsilon_certified(card)
    assert found.bias == 0
    assert found.variance == max(certify.moments(card).variance(x) for x in knots)


@pytest.mark.parametrize("k", [2, 3, 10])
def test_randomised_response_as_a_table_is_certified_at_its_epsilon(k):
    for odds in (2, 3, Fraction(7, 5)):
        p, q = odds / (odds + k - Fraction(1)), 1 / (odds + k - Fraction(1))
        found = matrix.certify([[p if i == j else q for j in range(k)] for i in range(k)])
        assert (found.ratio, found.bias, found.variance) == (odds, None, None)
        assert Fraction(odds) <= exp_decimal(found.epsilon) <= odds * Fraction(1_000_002, 1_000_000)


def test_the_laplace_table_that_ends_somewhere_and_lhp_at_its_published_price_are_caught():
    """Both are in shared_specs/errata.md: noise from a table that ends keeps no epsilon, and LHP
    costs more.
    """
    noise = [Fraction(n, 16) for n in (1, 3, 8, 3, 1)]
    ended = matrix.certify([[*noise, 0], [0, *noise]], inputs=["low", "high"], values=range(6))
    assert (ended.ratio, ended.epsilon, ended.pair) == (None, None, ("low", "high"))
    lhp = shipped_card("lhp", 4)
    table = [certify.at_knot(lhp, i) for i in range(len(certify.knots(lhp)))]
    paper = max(value_card.epsilon for value_card in certify.hierarchy(lhp).value_cards)
    assert not matrix.certify(table).keeps(paper)
    assert matrix.certify(table).epsilon == lhp.epsilon


def test_delta_is_exact_and_floats_are_refused():
    found = matrix.certify([["1/2", "1/2", 0], [0, Decimal("0.5"), Fraction(1, 2)]])
    assert (found.ratio, found.delta(20_000_000)) == (None, Fraction(1, 2))
    rr = matrix.certify([["3/4", "1/4"], ["1/4", "3/4"]])
    assert rr.delta(1_098_613) == 0
    assert (
        0
        < rr.delta(1_000_000) - (Fraction(3, 4) - exp_decimal(1_000_000) / 4)
        < Fraction(1, 1 << 36)
    )
    with pytest.raises(UsageError, match=r"0\.5 is not a probability that can be taken exactly"):
        matrix.certify([[0.5, 0.5], [0.5, 0.5]])
