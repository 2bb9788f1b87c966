"""Sums under exact noise on the host: what rho means, the design of cards, and what `tern card` says of them."""

import math

import numpy as np
import pytest

from tern import card as cards
from tern.sums import rho
from ternhost.errors import UsageError
from ternhost.privacy import sums

PLAIN = {"unit": 1, "radius": 0.5, "clipped": 92, "kept": -36, "units": 500, "values": 29}


def _delta(total, epsilon):
    """Corollary 13 as printed, on a grid of alpha: an independent computation, from above."""
    alpha = 1 + np.logspace(-7, 6, 400_001)
    log = (alpha - 1) * (alpha * total - epsilon) + alpha * np.log1p(-1 / alpha) - np.log(alpha - 1)
    return math.exp(log.min())


@pytest.mark.parametrize(
    ("epsilon", "delta", "known"),
    [(10, 1e-6, 1.539), (1, 1e-6, 0.02436), (4, 1e-6, None), (0.1, 1e-9, None), (50, 0.01, None)],
)
def test_rho_is_the_largest_whose_total_keeps_epsilon_and_delta(epsilon, delta, known):
    found = sums.rho_of(epsilon, delta)
    assert known is None or found / 1e6 == pytest.approx(known, abs=5e-4 if known > 1 else 5e-6)
    assert _delta(found / 1e6, epsilon) <= delta < _delta((found + 1) / 1e6, epsilon) * (1 + 1e-9)
    assert sums.epsilon_of(found, delta) <= epsilon < sums.epsilon_of(found + 1, delta)
    assert delta * 0.98 < sums.delta_of(found, epsilon) <= delta < sums.delta_of(found + 1, epsilon)


def test_conversions_hold_at_their_ends():
    assert sums.rho_of(1e-5, 1e-12) == sums.epsilon_of(0, 1e-6) == sums.epsilon_of(1, 0.5) == 0
    assert sums.epsilon_of(10**15, 1e-6) > 1e9
    assert sums.delta_of(10**12, 1) == 1
    for bad in (0, 1, -1, math.nan):
        with pytest.raises(UsageError, match="delta"):
            sums.epsilon_of(1, bad)
    for bad in (0, -1, math.inf, math.nan):
        with pytest.raises(UsageError, match="epsilon"):
            sums.rho_of(bad, 1e-6)


def test_pure_reports_and_whole_devices_have_a_price():
    for epsilon in (0.001, 0.5, 1, 4, 20):
        exact = 1e6 * epsilon * math.tanh(epsilon / 2)
        assert (
            exact
            <= sums.rho_of_pure(round(1e6 * epsilon))
            == rho(round(1e6 * epsilon))
            <= exact * (1 + 1e-9) + 1
        )
    assert sums.group(2000, 10) == 0.02
    assert sums.group(2000, 10, 1e-6) == sums.epsilon_of(200_000, 1e-6)


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("cost", [3000, 25_650, 1_000_000, 20_000_000])
@pytest.mark.parametrize("steps", [2, 128, 1000])
def test_a_designed_sum_keeps_its_cost_and_little_less(norm, cost, steps):
    made = sums.design(cost=cost, norm=norm, steps=steps, **PLAIN)
    card = cards.decode(made.card)
    body = sums.of(card)
    assert cards.certify(card)
    assert card.epsilon <= cost
    assert not cards.certify(card, card.epsilon - 1)
    assert card.epsilon >= cost * (0.996 if norm == 2 else min(0.996, 1 - 1 / body.t)) - 1
    assert (body.radius, body.unit, body.reach, made.range) == (steps, 1, 1 << 17, 4)
    sigma = math.sqrt(sums.variance(body))
    assert body.coarse == 0 or 2**body.coarse <= sigma / 2 < 2 ** (body.coarse + 1) + 1
    assert made.sigma == pytest.approx(sigma * 0.5 / steps)
    assert made.step == 2**body.coarse * 0.5 / steps
    fits = 500 * max(steps, 92) + 8 * sigma < 2 ** (body.bits - 1 + body.coarse) * 1.001
    assert body.bits == 12 or (fits and 8 <= body.bits < 12)
    if norm == 2:
        assert body.t & (body.t - 1) == body.m & (body.m - 1) == 0
        assert 0.7 < body.t / sigma < 1.42 or body.t == 1


def test_a_large_radius_takes_a_smaller_range():
    made = sums.design(cost=50_000, **PLAIN | {"radius": 6000.0})
    assert (made.range, sums.of(cards.decode(made.card)).reach) == (3, 6000 << 17)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"cost": 0}, "cannot cost 0"),
        ({"cost": 20_000_001}, "cannot cost"),
        ({"cost": 1, "steps": 4096}, "too little"),
        ({"steps": 4097}, "out of bounds"),
        ({"kept": -5000}, "out of bounds"),
        ({"unit": 65536}, "65535"),
        ({"units": 0}, "65535"),
        ({"values": 257}, "do not fit"),
        ({"values": 0}, "do not fit"),
        ({"values": 200, "bits": 11}, "do not fit"),
        ({"bits": 17}, "do not fit"),
        ({"radius": 0.0}, "cannot be 0"),
        ({"radius": math.nan}, "cannot be nan"),
        ({"radius": 70000.0}, "cannot be 70000"),
        ({"norm": 3}, "no such sum"),
    ],
)
def test_impossible_sums_are_refused_with_the_reason(changed, says):
    with pytest.raises(UsageError, match=says) as error:
        sums.design(**{"cost": 25_650, **PLAIN, **changed})
    assert error.value.hint
    assert sums.of(cards.decode(sums.design(cost=25_650, **PLAIN | {"values": 200}).card)).bits == 10
