"""The audit finds a broken sampler, and no fault in a correct one, from its draws alone."""

import math
import random
from array import array

import pytest
from streams import Keyed

from tern import card as cards
from tern.fixed import ONE
from tern.sampler import sample
from ternhost.privacy import mechanisms
from terntests.hil.audit import audit, lower, upper


def drawer(data, seed, shift=None):
    """draw(x, n) of the device's sampler with this card; `shift`: the index of a threshold and its
    factor.
    """
    card = cards.decode(data)
    if shift is not None:
        index, factor = shift
        card.thresholds[index] = int(card.thresholds[index] * factor)
    stream = Keyed(b"", bytes([seed]))

    def draw(x, n):
        counts = [0] * card.symbols
        xs, out = array("h", [x] * 1000), array("H", bytes(2 * 1000))
        for start in range(0, n, 1000):
            some = min(1000, n - start)
            sample(card, stream, xs, out, some)
            for symbol in out[:some]:
                counts[symbol] += 1
        return counts

    return draw


def test_the_bounds_are_those_of_clopper_and_pearson():
    # By tables, the exact 95 % interval for 3 of 10 is 0.0667 to 0.6525.
    assert lower(3, 10, 0.975) == pytest.approx(0.0667, abs=1e-4)
    assert upper(3, 10, 0.975) == pytest.approx(0.6525, abs=1e-4)
    assert (lower(0, 10, 0.99), upper(10, 10, 0.99)) == (0.0, 1.0)


def test_a_correct_sampler_passes_and_the_bound_is_near_its_epsilon():
    data = mechanisms.design("duchi", "1").card
    verdict = audit(data, drawer(data, 1), 60_000)
    assert verdict.passed
    assert 0.93 < verdict.epsilon_lower <= 1


def test_the_bound_holds_as_often_as_stated():
    """The audit of a sampler fails by chance in 1 % of all cases at most. Counts of a correct
    sampler are binomial, which is nearly normal for 100,000 draws.
    """
    data = mechanisms.design("duchi", "0.5").card
    of_low, of_high = [threshold / cards.T for threshold in cards.decode(data).thresholds]
    source, failures = random.Random(5), 0

    def draw(x, n):
        share = of_low if x < 0 else of_high
        zeros = round(source.gauss(n * share, math.sqrt(n * share * (1 - share))))
        return [zeros, n - zeros]

    for _ in range(400):
        if not audit(data, draw, 100_000).passed:
            failures += 1
    assert failures <= 12  # 1 % of 400 are 4; more than 12 has a probability below 1e-3


def test_one_threshold_shifted_by_2_percent_is_caught():
    data = mechanisms.design("duchi", "1").card
    verdict = audit(data, drawer(data, 2, shift=(1, 0.98)), 400_000)
    assert not verdict.passed
    assert verdict.inputs == (-ONE, ONE)
