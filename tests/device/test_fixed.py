"""Fixed-point numbers: saturation, and the lower bound of exp."""

from vectors import load

from tern.fixed import EXP_BITS, MAX_EPSILON, ONE, exp_lower, saturate


def test_saturate_clips_to_one():
    for value, clipped in ((-ONE - 1, -ONE), (-ONE, -ONE), (0, 0), (ONE, ONE), (ONE + 1, ONE)):
        assert saturate(value) == clipped


def test_vectors():
    for case in load("cards.json")["exp_lower"]:
        assert exp_lower(case["epsilon"]) == int(case["exp_lower"], 16), case["epsilon"]


def test_exp_lower_is_a_lower_bound():
    # Devices bound e**epsilon from below in integers of 2**-40, so that a card, the table noise is
    # drawn from, never passes with more privacy loss than it states. Below the exact value, by
    # less than 2**-38 of it.
    for micro, exact in (  # 2**40 * e**x to the unit, from 60-digit arithmetic
        (1, 1099512727288),
        (500_000, 1812788208096),
        (693_147, 2199022858496),
        (1_000_000, 2988782477962),
        (2_000_000, 8124353099063),
        (5_000_000, 163181994148252),
        (MAX_EPSILON, 533444773745279631896),
    ):
        value = exp_lower(micro)
        assert value <= exact
        assert (exact - value) << 38 <= exact  # it errs by at most 2**-38


def test_exp_lower_of_zero_is_one():
    assert exp_lower(0) == 1 << EXP_BITS
