"""Sums under exact noise on the host: what rho means, the design of cards, and what `tern card`
says of them.
"""

import math
import re
from pathlib import Path

import numpy as np
import pytest

from tern import card as cards
from tern.sums import rho
from ternhost import errors
from ternhost.errors import UsageError
from ternhost.learn import estimate
from ternhost.privacy import base, certify, gaussian_curve, sums
from ternhost.privacy import cards as cards_file

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


def test_conversions_hold_at_their_ends():
    assert sums.rho_of(1e-5, 1e-12) == sums.epsilon_of(0, 1e-6) == sums.epsilon_of(1, 0.5) == 0
    assert sums.epsilon_of(10**15, 1e-6) > 1e9
    for bad in ((1, 0), (1, 1), (1, -1), (1, math.nan), (0, 0.1), (math.inf, 0.1), (math.nan, 0.1)):
        with pytest.raises(UsageError, match="must be"):
            sums.rho_of(*bad)


def test_pure_reports_and_whole_devices_have_a_price():
    for epsilon in (0.001, 0.5, 1, 4, 20):
        exact, price = (
            1e6 * epsilon * math.tanh(epsilon / 2),
            sums.rho_of_pure(round(1e6 * epsilon)),
        )
        assert exact <= price == rho(round(1e6 * epsilon)) <= exact * (1 + 1e-9) + 1
    assert sums.group(2000, 10) == 0.02
    assert sums.group(2000, 10, 1e-6) == sums.epsilon_of(200_000, 1e-6)


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("cost", [3000, 25_650, 1_000_000, 20_000_000])
@pytest.mark.parametrize("steps", [2, 128, 1000])
def test_a_designed_sum_keeps_its_cost_and_little_less(norm, cost, steps):
    made = sums.design(sums.SumPlan(cost=cost, norm=norm, steps=steps, **PLAIN))
    card = cards.decode(made.card)
    body = sums.of(card)
    assert cards.certify(card) > cards.certify(card, card.epsilon - 1)
    assert cost >= card.epsilon >= cost * (0.996 if norm == 2 else min(0.996, 1 - 1 / body.t)) - 1
    assert (body.radius, body.unit, body.reach, made.range) == (steps, 1, 1 << 17, 4)
    sigma = math.sqrt(sums.variance(body))
    assert body.coarse == 0 or 2**body.coarse <= sigma / 2 < 2 ** (body.coarse + 1) + 1
    assert (made.sigma, made.step) == pytest.approx(
        (sigma * 0.5 / steps, 2**body.coarse * 0.5 / steps)
    )
    fits = 500 * max(steps, 92) + 8 * sigma < 2 ** (body.bits - 1 + body.coarse) * 1.001
    assert body.bits == 12 or (fits and 8 <= body.bits < 12)
    assert norm == 1 or (
        body.t & (body.t - 1) == body.m & (body.m - 1) == 0 and 0.7 < body.t / sigma < 1.42
    )
    made = sums.design(
        sums.SumPlan(cost=cost, norm=norm, steps=steps, **PLAIN | {"radius": 6000.0})
    )
    assert (made.range, sums.of(cards.decode(made.card)).reach) == (3, 6000 << 17)


@pytest.mark.parametrize(
    ("says", "changed"),
    [
        ("cannot cost", {"cost": 0}),
        ("cannot cost", {"cost": 20_000_001}),
        ("too little", {"cost": 1, "steps": 4096}),
        ("out of bounds", {"steps": 4097}),
        ("out of bounds", {"kept": -5000}),
        ("65535", {"unit": 65536}),
        ("65535", {"units": 0}),
        ("do not fit", {"values": 257}),
        ("do not fit", {"values": 0}),
        ("do not fit", {"values": 200, "bits": 11}),
        ("do not fit", {"bits": 17}),
        ("no such sum", {"norm": 3}),
        ("cannot be 0", {"radius": 0.0}),
        ("be nan", {"radius": math.nan}),
        ("be 70000", {"radius": 70000.0}),
    ],
)
def test_impossible_sums_are_refused_with_the_reason(says, changed):
    with pytest.raises(UsageError, match=says) as error:
        sums.design(sums.SumPlan(**{"cost": 25_650, **PLAIN, **changed}))
    assert error.value.hint


@pytest.fixture
def files(tmp_path):
    for norm in (1, 2):
        (tmp_path / str(norm)).write_bytes(
            sums.design(sums.SumPlan(cost=25_650, norm=norm, **PLAIN)).card
        )
    return {norm: str(tmp_path / str(norm)) for norm in (1, 2)}


def _said(tern, words):
    said = tern("card", *words.split(), code=None)
    return said.code, said.json if "--json" in words else said.out or said.err


def test_show_and_certify_say_what_a_sum_keeps_and_costs(tern, files):
    text = _said(tern, f"show {files[2]}")[1]
    for words in [
        "0.025624 certified",
        "one record of a device",
        "a ledger in epsilon refuses it",
        "0.5 at range 4",
        "█",
    ]:
        assert words in text
    result = _said(tern, f"show {files[2]} --json")[1]
    assert (result["shape"], result["epsilon_certified"], result["rho_certified"]) == (
        "sum",
        None,
        0.025624,
    )
    assert "0.02565 of a ledger in epsilon" in _said(tern, f"show {files[1]}")[1]
    for norm, name, kept, less in (
        (2, "rho", 0.025624, 0.025623),
        (1, "epsilon", 0.02565, 0.025649),
    ):
        assert _said(tern, f"certify {files[norm]}")[0] == errors.OK
        assert _said(tern, f"certify {files[norm]} --{name} {kept}")[0] == errors.OK
        code, text = _said(tern, f"certify {files[norm]} --{name} {less}")
        assert (code, f"it keeps {name} {kept}, not {less}" in text) == (errors.FAILED, True)
        assert f"not {name}" in _said(tern, f"certify {files[3 - norm]} --{name} 1")[1]


def test_what_averages_values_refuses_a_sum(tern, files):
    card = cards.decode(Path(files[2]).read_bytes())
    for refused in (
        certify.moments,
        certify.values,
        certify.scale,
        certify.bias,
        certify.levels,
        lambda one: certify.distribution(one, 0),
        lambda one: base.single_valued(one, "it"),
        lambda one: estimate.combine([(one, np.zeros((1, one.symbols), int))]),
    ):
        with pytest.raises(UsageError, match="sums under noise"):
            refused(card)
    code, text = _said(tern, f"account {files[2]} --reports 100 --delta 1e-6")
    assert (code, "sums under noise" in text) == (errors.USAGE, True)
    code, text = _said(tern, f"account {files[1]} --reports 100 --rounds 2 --delta 1e-6")
    assert (code, "sums under noise" in text) == (errors.USAGE, True)


@pytest.mark.parametrize("norm", [1, 2])
def test_the_law_of_a_sum_is_drawn_around_what_a_unit_adds(files, norm):
    card = cards.decode(Path(files[norm]).read_bytes())
    values = np.array(cards_file.output_values(card))
    for x in (-16384, 0, 16384):
        law = np.array(cards_file.distribution(card, x))
        assert law.sum() == pytest.approx(1)
        assert law @ values == pytest.approx(x / 16384, abs=0.01)
        width = math.sqrt(sums.variance(sums.of(card))) / sums.of(card).radius
        assert math.sqrt(law @ values**2 - (law @ values) ** 2) == pytest.approx(width, rel=0.05)


LIFE = "--delta 1e-6 --rounds 8760 --unit 60 --units 100"


def test_account_says_what_a_budget_means_for_a_run_and_for_a_whole_device(tern):
    text = _said(tern, f"account --epsilon 10 {LIFE}")[1]
    assert (
        "rho 1.53928 in total, for one run of 60 consecutive records of a device epsilon 10 at delta 1e-06 (that it "
        "was there) and 23.5 (what it says)"
    ) in text
    assert "of a pure mechanism each has epsilon 0.0187" in text
    assert "a whole device has 100 units: epsilon 16,311 at delta 1e-06 (that it was there)" in text


def test_account_reckons_a_budget_in_rho(tern):
    result = _said(tern, f"account --epsilon 10 {LIFE} --json")[1]
    budget = sums.rho_of(10, 1e-6)
    names = ("epsilon", "epsilon_content", "epsilon_device", "epsilon_device_content")
    steps = [sums.group(budget, n, 1e-6) for n in (1, 2, 100, 200)]
    assert [result[name] for name in names] == steps
    assert (
        rho(round(1e6 * result["epsilon_each_pure"]))
        <= 1e6 * result["rho_each"]
        <= 1_539_278 / 8760
    )
    assert _said(tern, f"account --rho 1.539278 {LIFE} --json")[1] == result


def test_account_of_gaussian_sums_is_that_of_their_curve(tern, files):
    """Without a pure epsilon, the least that is proved is the curve of the normal distribution."""
    by_card = _said(tern, f"account {files[2]} --delta 1e-6 --rounds 60 --json")[1]
    assert (by_card["rho"], by_card["protects"]) == (
        round(60 * 0.025624, 6),
        "one record of a device",
    )
    assert by_card["epsilon_pure"] is None
    assert by_card["epsilon_zcdp"] == sums.epsilon_of(60 * 25_624, 1e-6)
    normal = 60 * gaussian_curve.rho_of_card(sums.of(cards.decode(Path(files[2]).read_bytes())))
    assert by_card["epsilon"] == by_card["epsilon_exact"] == gaussian_curve.epsilon_of(normal, 1e-6)
    assert by_card["epsilon"] < by_card["epsilon_zcdp"]


def test_account_of_both_kinds_of_noise_shows_the_least_that_is_proved(tern, files):
    """Exactly, it is no more than the epsilons of each kind together; by zCDP it is less where
    reports are many.
    """
    words = f"account {files[1]} {files[2]} --delta 1e-6 --rounds 60,3"
    both = _said(tern, f"{words} --json")[1]
    laplace = _said(tern, f"account {files[1]} --delta 1e-6 --rounds 60 --json")[1]
    gaussian = _said(tern, f"account {files[2]} --delta 1e-6 --rounds 3 --json")[1]
    assert both["epsilon_pure"] is None
    assert both["rho"] == pytest.approx(laplace["rho"] + gaussian["rho"], abs=1e-6)
    assert both["epsilon_zcdp"] == pytest.approx(sums.epsilon_of(1e6 * both["rho"], 1e-6), rel=1e-4)
    assert (
        laplace["epsilon_exact"]
        < both["epsilon_exact"]
        <= laplace["epsilon_pure"] + gaussian["epsilon_exact"]
    )
    assert both["epsilon"] == both["epsilon_zcdp"] < both["epsilon_exact"]
    assert re.search(r"\n +63 +- +2\.11 +2\.63\n", _said(tern, words)[1])


def test_account_prices_each_value_of_a_pure_card(tern):
    pure = _said(tern, "account duchi --epsilon 1 --delta 1e-6 --values 2 --json")[1]
    assert pure["rho"] == 2 * rho(1_000_000) / 1e6


@pytest.mark.parametrize(("units", "device"), [(1, 1), (8, 8), (60, 60)])
def test_group_privacy_of_a_pure_card_adds_epsilons(tern, units, device):
    """By rho eight units would have 68: the smaller bound is shown."""
    words = f"account three-outputs --epsilon 1 --delta 1e-6 --unit record --units {units} --json"
    found = _said(tern, words)[1]
    assert found["epsilon_device"] == pytest.approx(device, rel=1e-5)
    assert found["epsilon_device_content"] is None


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ("", "what is spent is missing"),
        ("--rho 0", "rho 0 is not a number"),
        ("--rho 1 --epsilon 1", "exclude"),
        ("--rho 1 --rounds 0", "--rounds must be from 1"),
        ("--rho 1e-6 --rounds 2", "at least a millionth"),
        ("--rho 1 --units 2", "--units must be 1 where"),
        ("--rho 1 --unit 65536", "--unit must be device, record"),
        ("--rho 1 --plot a.png", "shuffler"),
        ("--epsilon 1 --reports 9 --unit 60", "--unit is about a ledger"),
    ],
)
def test_an_account_that_makes_no_sense_is_a_message(tern, argv, says):
    code, text = _said(tern, f"account --delta 1e-6 {argv}")
    assert (code, says in text) == (errors.USAGE, True)
