"""Certification: exact figures of cards, and the firmware's sampler run down every branch of its draws."""

from array import array
from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
import sampler_walk
from hypothesis import given, settings
from hypothesis import strategies as st

from tern import card as cards
from tern.card import CardError, T
from tern.fixed import ONE
from tern.sampler import sample, sample_categories
from ternhost.privacy import base, certify, mechanisms

SMALL = 1 << 22  # thresholds in multiples of this are decided by one byte: T reduced to 256


def exp_decimal(micro: int) -> Fraction:
    """e**epsilon to 60 digits, by another way than the certificate's."""
    with localcontext() as context:
        context.prec = 60
        return Fraction((Decimal(micro) / 10**6).exp())


def designed(name: str, epsilon: str = "2", levels: int | None = None, **options: str) -> cards.Card:
    return cards.decode(mechanisms.design(name, epsilon, levels, **options).card)


def reduced_table(levels, rows):
    """A table card from rows that add up to 256."""
    return cards.decode(base.table(levels, [[n * SMALL for n in row] for row in rows]))


REDUCED = [
    reduced_table((-1, 1), ((200, 56), (56, 200))),
    reduced_table((-1, 0, 1), ((150, 56, 50), (60, 136, 60), (50, 56, 150))),
    reduced_table(
        (-3, -1, 1, 3),
        ((96, 80, 48, 32), (80, 80, 64, 32), (64, 64, 64, 64), (32, 64, 80, 80), (32, 48, 80, 96)),
    ),
    cards.decode(base.window(2, 1, 160 * SMALL)),
    cards.decode(base.window(3, 1, 128 * SMALL)),
    cards.decode(base.window(5, 2, 200 * SMALL)),
    cards.decode(base.window(9, 3, 130 * SMALL)),
    cards.decode(
        base.mixture(
            100 * SMALL,
            base.table((-1, 0, 1), [[n * SMALL for n in row] for row in ((150, 56, 50), (50, 56, 150))]),
            base.window(2, 1, 160 * SMALL),
        )
    ),
]


KNOTS = tuple(range(-ONE, ONE + 1, ONE // 2))
BETWEEN = (1 - ONE, -9, 1, 4097, ONE - 1)


@pytest.mark.parametrize(
    "card",
    [*REDUCED[:-1], pytest.param(REDUCED[-1], marks=pytest.mark.slow)],
    ids=lambda card: f"shape{card.shape}-{card.symbols}",
)
def test_reduced_cards(card):
    between = BETWEEN if card.shape == cards.TABLE else BETWEEN[:1] if card.symbols == 2 else ()
    for v in KNOTS[::2] + between:
        if card.shape != cards.TABLE and card.symbols > 2 and abs(v) < ONE:
            continue
        drawn = sampler_walk.outputs(card, v)
        assert sum(drawn) == 1
        assert drawn == certify.distribution(card, v)


@pytest.mark.parametrize("levels", [3, 9, 255])
def test_a_window_start_is_rounded_exactly(levels):
    # All that follows the rounding is fixed: zero bytes, which draw the start itself when W = 1.
    card = cards.decode(base.window(levels, 1, T // 2))
    others = levels - 1
    xs, out = array("h", (0,)), array("H", (0,))

    def start(branch):
        given = branch.cursor[1]
        branch.pool[given : given + 4] = bytes(4)
        branch.begin(given + 4)
        sample(card, branch, xs, out, 1)
        if branch.cursor[0] > given + 1:  # the rounding itself has read beyond what was given
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
def test_designed_cards_of_full_precision(name, levels, inputs):
    card = designed(name, "1.5", levels)
    for v in inputs:
        assert sampler_walk.outputs(card, v) == certify.distribution(card, v)


@pytest.mark.slow
def test_window_starts_between_the_ends():
    # A window start is drawn from the input alone (above); here each start is given, as a category is.
    card = designed("pm-sub", "2", 15)
    starts, out = array("h", (0,)), array("H", (0,))
    for start in range(card.symbols - card.window + 1):
        starts[0] = start

        def draw(stream):
            sample_categories(card, stream, starts, out, 1)
            return out[0]

        assert sampler_walk.outputs(card, 0, draw) == certify.at_knot(card, start)


def test_an_enumeration_sees_a_sampler_that_is_wrong():
    card = cards.decode(base.window(5, 2, 200 * SMALL))
    out = array("H", (0,))

    def modulo(stream):  # what a hasty sampler does: no rejection
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


@pytest.mark.parametrize(
    ("name", "levels"),
    [("duchi", None), ("three-outputs", None), pytest.param("pm-sub", None, marks=pytest.mark.exhaustive)],
)
def test_every_single_bit_of_a_card(name, levels):
    data = mechanisms.design(name, "2", levels).card
    kept = {"undecodable": 0, "uncertified": 0, "true": 0}
    drawn_before: dict[bytes, list[list[Fraction]]] = {}
    for bit in range(8 * len(data)):
        altered = bytearray(data)
        altered[bit // 8] ^= 1 << bit % 8
        try:
            card = cards.decode(bytes(altered))
        except CardError:
            kept["undecodable"] += 1
            continue
        if not cards.certify(card):
            kept["uncertified"] += 1
            continue
        kept["true"] += 1
        body = bytes(altered[5:])  # the epsilon that a card claims changes no draw
        if body not in drawn_before:
            inputs = (-ONE, 0, ONE) if card.shape == cards.TABLE and card.knot_bits else (-ONE, ONE)
            drawn_before[body] = [sampler_walk.outputs(card, v) for v in inputs]
            assert drawn_before[body] == [certify.distribution(card, v) for v in inputs]
        ratio = certify.ratio_of_distributions(drawn_before[body])
        assert ratio == certify.likelihood_ratio(card)  # the ends (and the middle) tell the most
        assert ratio <= exp_decimal(card.epsilon)
    assert sum(kept.values()) == 8 * len(data)
    assert all(kept.values())


@given(st.integers(1, 20_000_000), st.sampled_from(("duchi", "three-outputs", "pm-sub", "3r", "rr3")))
@settings(max_examples=60)
def test_certified_epsilon_is_the_smallest_and_true(epsilon, name):
    design = mechanisms.design(name, epsilon_micro=epsilon)
    card = cards.decode(design.card)
    assert card.epsilon == certify.epsilon_certified(card) <= epsilon
    assert not cards.certify(card, card.epsilon - 1)
    assert certify.likelihood_ratio(card) <= exp_decimal(card.epsilon)
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
    assert sum(p * value**2 for p, value in zip(row, values, strict=True)) == moments.second_moment(x)
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
    for ask in (certify.scale, certify.values, certify.bias, certify.moments):
        with pytest.raises(certify.Biased):
            ask(card)
    assert certify.epsilon_certified(card) is not None
    with pytest.raises(certify.Biased):
        certify.scale(cards.decode(base.window(4, 2, T // 3)))
