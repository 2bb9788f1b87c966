"""Certification: exact figures of cards.

The firmware's sampler is run down every branch of its draws.
"""

import random
from array import array
from collections import Counter
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import partial
from types import SimpleNamespace

import pytest
import sampler_walk
from branches import walk
from designing import shipped_card
from hypothesis import given, settings
from hypothesis import strategies as st
from spec import arithmetic as spec
from streams import Replay, uniform

from tern import card as cards
from tern import collect, wire
from tern.card import CardError, T
from tern.fixed import ONE
from tern.sampler import sample, sample_categories
from ternhost.errors import UsageError
from ternhost.privacy import base, certify, matrix, mechanisms

SMALL = 1 << 22  # thresholds in multiples of this are decided by one byte: T reduced to 256


def exp_decimal(micro):
    """e**epsilon to 60 digits, by another method than the certificate's."""
    with localcontext(prec=60):
        return Fraction((Decimal(micro) / 10**6).exp())


def designed(name, epsilon="2", levels=None):
    return cards.decode(mechanisms.design(name, epsilon, levels).card)


def reduced_table(levels, rows):
    """A table card from rows that add up to 256."""
    return cards.decode(base.table(levels, [[n * SMALL for n in row] for row in rows]))


ENDS = reduced_table((-1, 0, 1), ((150, 56, 50), (50, 56, 150)))
PAIR = cards.decode(base.window(2, 1, 160 * SMALL))
THREE_KNOTS = reduced_table((-1, 0, 1), ((150, 56, 50), (60, 136, 60), (50, 56, 150)))
FIVE_KNOTS = reduced_table(
    (-3, -1, 1, 3),
    ((96, 80, 48, 32), (80, 80, 64, 32), (64, 64, 64, 64), (32, 64, 80, 80), (32, 48, 80, 96)),
)
MIXTURE = cards.decode(base.mixture(100 * SMALL, ENDS.data, PAIR.data))

KNOTS = tuple(range(-ONE, ONE + 1, ONE // 2))
BETWEEN = (1 - ONE, -9, 1, 4097, ONE - 1)
OF_TABLES = (-ONE, 0, ONE, *BETWEEN)
OF_WINDOWS = (-ONE, ONE)  # between window starts there are too many branches


@pytest.mark.parametrize(
    ("card", "inputs"),
    [
        (THREE_KNOTS, OF_TABLES),
        (FIVE_KNOTS, OF_TABLES),
        (PAIR, (-ONE, 0, ONE, 1 - ONE)),
        (cards.decode(base.window(5, 2, 200 * SMALL)), OF_WINDOWS),
        (cards.decode(base.window(9, 3, 130 * SMALL)), OF_WINDOWS),
        (designed("pm-sub", "1.5"), OF_WINDOWS),  # designed tables: test_draws
        pytest.param(MIXTURE, OF_WINDOWS, marks=pytest.mark.slow),
    ],
)
def test_cards_are_drawn_with_their_distribution(card, inputs):
    for v in inputs:
        drawn = sampler_walk.outputs(card, v)
        assert sum(drawn) == 1
        assert drawn == certify.distribution(card, v)


@pytest.mark.parametrize("levels", [3, 9, 255])
def test_a_window_start_is_rounded_exactly(levels):
    """After the rounding all bytes are zero, which draw the start itself in a window of one."""
    card = cards.decode(base.window(levels, 1, T // 2))
    values, symbols = array("h", (0,)), array("H", (0,))

    def start(branch):
        given = branch.cursor[1]
        branch.pool[given : given + 4] = bytes(4)
        branch.begin(given + 4)
        sample(card, branch, values, symbols, 1)
        if branch.cursor[0] > given + 1:  # the rounding has read more bytes than it was given
            raise sampler_walk.OutOfBytes
        return symbols[0]

    for v in (*range(-ONE, ONE, 1311), *KNOTS, *BETWEEN):
        values[0] = v
        # The value lies between the starts `lower` and `lower + 1`, at rest / (2 ONE) of the way.
        lower, rest = divmod((v + ONE) * (levels - 1), 2 * ONE)
        if rest == 0:  # it is a start: nothing is read for the rounding
            branch = sampler_walk.Branch()
            assert (start(branch), branch.cursor[0]) == (lower, 1)
            continue
        law = [Fraction(0)] * levels
        law[lower] = Fraction(2 * ONE - rest, 2 * ONE)
        law[lower + 1] = Fraction(rest, 2 * ONE)
        assert sampler_walk.outputs(card, v, start) == law


@pytest.mark.slow
def test_from_each_window_start_symbols_are_drawn_with_their_distribution():
    """All sequences of bytes that the sampler may read are enumerated: the probabilities of its
    symbols are exactly the stated ones. A window start is drawn from the input alone (above); here
    each start is given, as a category is.
    """
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


def drawn_for_number(card, exponent, number, hashed):
    """The exact distribution of what a device with this number reports about its bin."""
    request = SimpleNamespace(
        model=wire.CATEGORIES, range=hashed, exponent=exponent, round=1, d=1, asked=[1], k=1
    )
    answerer = collect.Answerer(request)
    assert answerer.cost(card) == card.epsilon

    def read(index, row):
        row[0] = number

    client = SimpleNamespace(device=7, start=0, records=1)
    values = answerer.values(client, SimpleNamespace(read=read), card)
    out = array("H", (0,))

    def draw(stream):
        answerer.draw(card, stream, values, out, 1)
        return out[0]

    return sampler_walk.outputs(card, 0, draw)


@pytest.mark.parametrize("hashed", [False, True])
@pytest.mark.parametrize("exponent", [1, 2, 3, 12])
def test_a_report_about_the_bin_of_any_number_keeps_the_epsilon_of_the_card(exponent, hashed):
    """The device's own code is enumerated for numbers at the borders of bins and beyond -1 and 1,
    from the number to the symbol. The card has as many symbols as 4 bins; other numbers of bins are
    clipped or hashed to them.
    """
    # Its thresholds are decided by a byte, so that there are few branches.
    card = cards.decode(base.window(4, 1, 160 * SMALL))
    borders = range(-ONE, ONE + 1, ONE // 2)
    numbers = {-32768, 32767}.union(*({at - 1, at, at + 1} for at in borders))
    laws = {}
    for number in sorted(numbers):
        features = [number]
        (symbol,) = spec.collected(
            wire.CATEGORIES, [1], features, hashed, card.symbols, device=7, number=1, e=exponent
        )
        laws[number] = drawn_for_number(card, exponent, number, hashed)
        assert laws[number] == certify.at_knot(card, symbol)

    assert sampler_walk.ratio_of(list(laws.values())) <= exp_decimal(card.epsilon)


def test_the_enumeration_detects_a_wrong_sampler():
    """Enumeration of all byte sequences is worth something only if it finds a sampler that is
    slightly wrong.
    """
    card = cards.decode(base.window(5, 2, 200 * SMALL))

    def sample_without_rejection(stream):
        """A byte modulo the number of symbols: the first ones are too likely."""
        if stream.below(card.threshold):
            return stream.byte() % card.window
        return card.window + stream.byte() % (card.symbols - card.window)

    drawn = sampler_walk.outputs(card, -ONE, sample_without_rejection)
    assert sum(drawn) == 1
    assert drawn != certify.distribution(card, -ONE)


def flipped(data, bit):
    """The bytes with one bit flipped."""
    altered = bytearray(data)
    altered[bit // 8] ^= 1 << bit % 8
    return bytes(altered)


def require_epsilon(card):
    """The sampler of the firmware draws by the stated law, and keeps the epsilon of the card."""
    # The ends, and the middle of a table with a knot there, tell the most.
    has_middle = card.shape == cards.TABLE and card.knot_bits
    inputs = (-ONE, 0, ONE) if has_middle else (-ONE, ONE)
    drawn = [sampler_walk.outputs(card, v) for v in inputs]
    assert drawn == [certify.distribution(card, v) for v in inputs]
    assert sampler_walk.ratio_of(drawn) <= exp_decimal(card.epsilon)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["duchi", "three-outputs", pytest.param("pm-sub", marks=pytest.mark.exhaustive)]
)
def test_a_card_with_a_flipped_bit_is_refused_or_keeps_its_epsilon(name, sampled):
    """A damaged card must never protect less than it claims: it cannot be decoded, is not
    certified, or is still as good as it says.
    """
    data = mechanisms.design(name, "2").card
    verdicts = Counter()
    for bit in sampled(range(8 * len(data)), 90):
        try:
            card = cards.decode(flipped(data, bit))
        except CardError:
            verdicts["undecodable"] += 1
            continue
        if not cards.certify(card):
            verdicts["uncertified"] += 1
            continue
        verdicts["certified"] += 1
        require_epsilon(card)
    assert verdicts.keys() == {"undecodable", "uncertified", "certified"}, "each happens"


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
    """Mean, second moment and worst variance of a card are computed by formulas. They equal the
    sums over its exact distribution, and the mean is unbiased.
    """
    width = data.draw(st.integers(1, levels - 1))
    threshold = data.draw(st.integers(T * width // levels + 1, T - 200))
    card = cards.decode(base.window(levels, width, threshold))
    moments = certify.moments(card)
    v = data.draw(st.integers(-ONE, ONE))
    x = Fraction(v, ONE)

    mean = second_moment = Fraction(0)
    for p, value in zip(certify.distribution(card, v), certify.values(card), strict=True):
        mean += p * value
        second_moment += p * value**2
    assert mean == x
    assert second_moment == moments.second_moment(x)
    worst, _ = moments.worst_variance()
    assert moments.variance(x) <= worst


def test_a_biased_card_has_no_values():
    card = reduced_table((-1, 0, 1), ((150, 56, 50), (61, 135, 60), (50, 56, 150)))
    for figure in (certify.scale, certify.values, certify.bias, certify.moments):
        with pytest.raises(certify.Biased):
            figure(card)
    assert certify.epsilon_certified(card) is not None


# The laplace sampler has no finite depth. Its exactness is shown in two steps:
#
# 1. `reference` states the algorithm (Canonne, Kamath, Steinke 2020, Algorithms 1 and 2) in terms of
#    uniform(n) alone. The firmware's sampler gives the same symbols and reads as many bytes, on many
#    random streams.
# 2. The two parts of `reference` are walked over every outcome of their draws, down to a small rest
#    of probability. The stated probabilities lie within that rest.


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


LAPLACE = [
    cards.decode(base.laplace(0, 1, 1, -3, 3)),
    cards.decode(base.laplace(1, 3, 1, -6, 8)),
    cards.decode(base.laplace(2, 5, 2, -9, 9)),
    cards.decode(base.laplace(14, 50_700, 3, -20000, 20000)),
    designed("laplace", "1"),
    designed("laplace", "1.234567"),
]


def laplace_name(card):
    return f"{card.grid_bits}-{card.t}-{card.s}"


def rounding_up_by(stream):
    """`rounds_up(fraction, bits)` of the reference, which reads bytes until they decide."""

    def rounds_up(fraction, bits):
        threshold, low, unit = Fraction(fraction, 1 << bits), Fraction(0), Fraction(1)
        while low < threshold < low + unit:
            unit /= 256
            low += stream.byte() * unit
        return low < threshold

    return rounds_up


@pytest.mark.parametrize("card", LAPLACE, ids=laplace_name)
def test_the_sampler_gives_the_symbols_of_the_reference(card):
    """The device's sampler of Laplace noise draws the same symbols from the same bytes as the
    reference in the specification, and reads as many bytes.
    """
    source = random.Random(5)
    values, symbols = array("h", (0,)), array("H", (0,))
    for _ in range(1500):
        data = source.randbytes(4000)
        v = source.randint(-ONE, ONE)
        of_sampler, of_reference = Replay(data), Replay(data)

        values[0] = v
        sample(card, of_sampler, values, symbols, 1)

        rounds_up = rounding_up_by(of_reference)
        assert symbols[0] == reference(card, v, partial(uniform, of_reference), rounds_up)
        assert of_sampler.cursor[0] == of_reference.cursor[0], "as many bytes are read"


def uniform_by(choose):
    return lambda n: choose([Fraction(1, n)] * n) if n > 1 else 0


def exp_minus(a, b):
    """exp(-a / b) to 12 digits."""
    with localcontext(prec=12):
        return Fraction((-Decimal(a) / b).exp())


@pytest.mark.parametrize(("a", "b"), [(0, 1), (1, 1), (1, 3), (4, 5)])
def test_bernoulli_exp_has_its_probability(a, b):
    law = walk(lambda choose: bernoulli_exp(uniform_by(choose), a, b), Fraction(1, 10**7))
    rest = 1 - sum(law.values())
    rounding = Fraction(1, 10**11)
    assert rest < Fraction(1, 200)
    assert law[True] - rounding <= exp_minus(a, b) <= law[True] + rest + rounding


@pytest.mark.slow
@pytest.mark.parametrize("card", LAPLACE[:3], ids=laplace_name)
@pytest.mark.parametrize("v", [-ONE, 0, ONE])
def test_the_reference_has_the_stated_distribution(card, v):
    """The reference sampler is walked through all of its choices but the least likely ones. What
    remains unwalked, `rest`, may fall on any symbol.
    """

    def run(choose):
        def bernoulli(_, a, b):
            p = exp_minus(a, b)
            return choose([1 - p, p])

        return reference(card, v, uniform_by(choose), None, bernoulli)

    law = walk(run, Fraction(1, 10**5))
    rest = 1 - sum(law.values())
    rounding = Fraction(1, 10**8)
    assert rest < Fraction(1, 10)
    for symbol, p in enumerate(certify.distribution(card, v)):
        assert law[symbol] - rounding <= p <= law[symbol] + rest + rounding


@pytest.mark.parametrize("card", [*LAPLACE[:3], *LAPLACE[4:]], ids=laplace_name)
def test_the_stated_distribution_has_the_stated_mean_and_variance(card):
    """Laplace noise is unbiased at every input, up to the rounding of the probabilities to 180
    bits.
    """
    values, moments = certify.values(card), certify.moments(card)
    for v in (-ONE, -ONE // 3, 0, 77, ONE):
        law = list(zip(certify.distribution(card, v), values, strict=True))
        x = Fraction(v, ONE)
        assert abs(sum(p for p, _ in law) - 1) < Fraction(1, 2**180)
        assert abs(sum(p * value for p, value in law) - x) < Fraction(1, 2**160)
        second = sum(p * value**2 for p, value in law)
        assert abs(second - moments.second_moment(x)) < Fraction(1, 2**150)


# Tables of probabilities


@pytest.mark.parametrize(
    ("name", "levels"), [("duchi", None), ("3r", None), ("optimal", 4), ("grr", 5)]
)
def test_a_card_as_a_table_has_the_epsilon_bias_and_variance_of_the_card(name, levels):
    """The same mechanism, written as a matrix of probabilities for users' own mechanisms, is judged
    as the card is.
    """
    card = designed(name, "1.5", levels)
    knots = certify.knots(card)
    table = [certify.at_knot(card, i) for i in range(len(knots))]
    found = matrix.certify(table, certify.values(card), knots)
    assert found.epsilon == certify.epsilon_certified(card)
    assert found.bias == 0
    assert found.variance == max(certify.moments(card).variance(x) for x in knots)


def test_lhp_costs_more_than_its_published_price():
    """See shared_specs/errata.md."""
    lhp = shipped_card("lhp", 4)
    table = [certify.at_knot(lhp, i) for i in range(len(certify.knots(lhp)))]
    published = max(value_card.epsilon for value_card in certify.hierarchy(lhp).value_cards)
    assert not matrix.certify(table).keeps(published)
    assert matrix.certify(table).epsilon == lhp.epsilon


def test_delta_is_exact():
    with_zeros = matrix.certify([["1/2", "1/2", 0], [0, Decimal("0.5"), Fraction(1, 2)]])
    assert (with_zeros.ratio, with_zeros.delta(20_000_000)) == (None, Fraction(1, 2))
    response = matrix.certify([["3/4", "1/4"], ["1/4", "3/4"]])
    assert response.delta(1_098_613) == 0  # ln 3, rounded up
    exact = Fraction(3, 4) - exp_decimal(1_000_000) / 4
    assert 0 < response.delta(1_000_000) - exact < Fraction(1, 1 << 36)


def test_floats_are_refused_as_probabilities():
    with pytest.raises(UsageError, match="exactly"):
        matrix.certify([[0.5, 0.5], [0.5, 0.5]])
