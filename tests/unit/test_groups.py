"""Groups of devices, some of which are dishonest: the hypergeometric law."""

from fractions import Fraction
from itertools import combinations
from math import comb, pi

import pytest

from ternhost.privacy.groups import Group, dishonest_of, most_dishonest


def chance_of_more(pool, dishonest, asked, most):
    """The probability that a group with an honest device has more than `most` dishonest ones,
    exactly.
    """
    marked = min(dishonest, pool - 1)
    ways = 0
    for drawn in range(most + 1, min(asked - 1, marked) + 1):
        ways += comb(marked, drawn) * comb(pool - 1 - marked, asked - 1 - drawn)
    return Fraction(ways, comb(pool - 1, asked - 1))


@pytest.mark.parametrize("tail", [0.3, 1e-3, 1e-9])
@pytest.mark.parametrize(
    ("pool", "dishonest", "asked"),
    [
        (10, 1, 2),
        (10, 3, 10),
        (50, 5, 3),
        (50, 49, 20),
        (1000, 100, 500),
        (6666, 667, 167),
        (300, 0, 7),
    ],
)
def test_a_group_has_more_dishonest_devices_with_at_most_the_tail(pool, dishonest, asked, tail):
    most = most_dishonest(pool, dishonest, asked, tail)
    assert chance_of_more(pool, dishonest, asked, most) <= Fraction(tail)
    if most:
        assert chance_of_more(pool, dishonest, asked, most - 1) > Fraction(tail) * Fraction(
            999, 1000
        )


def test_no_tail_means_the_worst_group():
    assert most_dishonest(pool=1000, dishonest=100, asked=500, tail=0.0) == 100
    assert most_dishonest(pool=1000, dishonest=100, asked=50, tail=0.0) == 49


def test_the_law_is_that_of_drawing_groups():
    """Of seven devices, 0, 1 and 2 are dishonest and 6 is honest. Groups of four are drawn, and
    those with device 6 are looked at: `chance_of_more` gives the probability of more than `most`
    dishonest ones in them. Compared with a list of all such groups.
    """
    dishonest, honest = {0, 1, 2}, 6
    groups = [set(group) for group in combinations(range(7), 4) if honest in group]

    for most in range(4):
        beyond = [group for group in groups if len(group & dishonest) > most]
        share = Fraction(len(beyond), len(groups))
        assert chance_of_more(pool=7, dishonest=3, asked=4, most=most) == share


@pytest.mark.parametrize(
    ("devices", "share", "dishonest"),
    [(1000, 0.9, 100), (1001, 0.9, 101), (7, 1.0, 0), (3, 0.95, 1)],
)
def test_dishonest_devices_are_rounded_up(devices, share, dishonest):
    assert dishonest_of(devices, share) == dishonest


def test_a_chosen_group_may_have_all_dishonest_devices_of_the_site():
    chosen = Group(site=1000, asked=150)  # of 1,000 devices, 100 are dishonest
    assert chosen.honest(150, 0.9, delta=1e-7) == 150 - 100
    assert chosen.honest(120, 0.9, delta=1e-7) == 120 - 100


def test_all_draws_together_miss_with_at_most_their_delta():
    """A round asks a group that is drawn at random, and counts on so many honest devices in it;
    that may fail with a small probability, the tail. The tails of all draws ever, which fall as 1 /
    i**2, are to sum to at most delta.
    """
    delta, draws, dishonest = 1e-3, 400, 100
    missed = 0.0
    tails = 0.0  # as shares of delta; their sum for all i is 1, as that of 1 / i**2 is pi**2 / 6
    for i in range(1, draws + 1):
        group = Group(site=1000, asked=100, pool=1000, draw=i)
        most_counted = 100 - group.honest(100, 0.9, delta)  # if 90 % of all are honest
        missed += float(chance_of_more(1000, dishonest, 100, most_counted))
        tails += 6 / (pi * i) ** 2
    of_later_draws = delta * (1 - tails)
    assert missed + of_later_draws <= delta


def test_later_draws_count_on_no_more_honest_devices():
    honest = []
    for i in (1, 10, 1000, 10**6):
        group = Group(site=1000, asked=100, pool=1000, draw=i)
        honest.append(group.honest(100, 0.9, delta=1e-7))
    assert honest == sorted(honest, reverse=True)
    assert honest[-1] > 50
