"""Sums under exact noise on the host: what rho means, the design of cards, and what `tern card`
says of them.
"""

import math
from pathlib import Path

import numpy as np
import pytest

import ternhost
from tern import card as cards
from tern.sums import rho
from ternhost import errors
from ternhost.errors import UsageError
from ternhost.learn.collecting import estimate
from ternhost.privacy import certify, gaussian_curve, sums

PLAIN = {"unit": 1, "radius": 0.5, "clipped": 92, "kept": -36, "units": 500, "values": 29}


def delta_by_zcdp(total, epsilon):
    """Corollary 13 as printed, on a grid of alpha: an independent computation, from above."""
    alpha = 1 + np.logspace(-7, 6, 400_001)
    log = (alpha - 1) * (alpha * total - epsilon) + alpha * np.log1p(-1 / alpha) - np.log(alpha - 1)
    return math.exp(log.min())


@pytest.mark.parametrize(("epsilon", "delta"), [(10, 1e-6), (1, 1e-6), (0.1, 1e-9), (50, 0.01)])
def test_rho_is_the_largest_whose_total_keeps_epsilon_and_delta(epsilon, delta):
    rho_micro = sums.rho_of(epsilon, delta)
    assert delta_by_zcdp(rho_micro / 1e6, epsilon) <= delta
    assert delta_by_zcdp((rho_micro + 1) / 1e6, epsilon) * (1 + 1e-9) > delta
    assert sums.epsilon_of(rho_micro, delta) <= epsilon < sums.epsilon_of(rho_micro + 1, delta)


@pytest.mark.parametrize("epsilon", [0.001, 1, 20])
def test_a_pure_report_has_a_price_in_rho(epsilon):
    exact = 1e6 * epsilon * math.tanh(epsilon / 2)
    price = sums.rho_of_pure(round(1e6 * epsilon))
    assert price == rho(round(1e6 * epsilon))  # of the device
    assert exact <= price <= exact * (1 + 1e-9) + 1


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("cost", [3000, 1_000_000, 20_000_000])
@pytest.mark.parametrize("steps", [2, 128, 1000])
def test_a_designed_sum_keeps_its_cost_and_little_less(norm, cost, steps):
    """A card of a sum states the noise that a device adds; its certified cost never exceeds the
    wanted `cost` (in millionths of epsilon for norm 1, of rho for norm 2), and uses 99.6 % of it.
    Certification is tight: a claim that is one millionth smaller is refused.
    """
    design = sums.design(sums.SumPlan(cost=cost, norm=norm, steps=steps, **PLAIN))
    card = cards.decode(design.card)
    body = sums.of(card)
    assert cards.certify(card) > cards.certify(card, card.epsilon - 1)
    spent = 0.996  # of the wanted cost, at least
    if norm == 1:
        spent = min(spent, 1 - 1 / body.t)  # the scale of Laplace noise is a whole number
    assert cost * spent - 1 <= card.epsilon <= cost


@pytest.mark.parametrize(
    "changed",
    [
        {"cost": 20_000_001},
        {"cost": 1, "steps": 4096},
        {"unit": 65536},
        {"values": 257},
        {"norm": 3},
        {"radius": math.nan},
    ],
    ids=str,
)
def test_impossible_sums_are_refused(changed):
    with pytest.raises(UsageError):
        sums.design(sums.SumPlan(**{"cost": 25_650, **PLAIN, **changed}))


# What the command says of sums


@pytest.fixture(params=[1, 2], ids=["laplace", "gaussian"])
def norm(request):
    return request.param


@pytest.fixture
def files(tmp_path):
    """The file of a card by its norm: 1 for Laplace noise, 2 for Gaussian noise."""
    paths = {1: tmp_path / "laplace.card", 2: tmp_path / "gaussian.card"}
    for norm, path in paths.items():
        path.write_bytes(sums.design(sums.SumPlan(cost=25_650, norm=norm, **PLAIN)).card)
    return paths


@pytest.mark.parametrize(
    ("norm", "measure", "kept", "less"),
    [(2, "rho", "0.025624", "0.025623"), (1, "epsilon", "0.02565", "0.025649")],
)
def test_certify_accepts_what_a_sum_keeps_and_no_less(files, norm, measure, kept, less):
    card = ternhost.Card.load(files[norm])
    assert card.certify(**{measure: kept}).certified
    assert not card.certify(**{measure: less}).certified
    with pytest.raises(UsageError):
        ternhost.Card.load(files[3 - norm]).certify(**{measure: 1})


@pytest.mark.parametrize("norm", [1, 2])
def test_the_command_certifies_a_sum_at_its_own_claim(tern, files, norm):
    tern("card", "certify", str(files[norm]))


@pytest.mark.parametrize(
    "function",
    [
        certify.moments,
        lambda card: certify.distribution(card, 0),
        lambda card: estimate.combine([(card, np.zeros((1, card.symbols), int))]),
    ],
)
def test_what_averages_values_refuses_a_sum(files, function):
    with pytest.raises(UsageError, match="sums under noise"):
        function(cards.decode(files[2].read_bytes()))


def test_account_of_gaussian_sums_is_that_of_their_curve(account, files):
    """Sixty reports with Gaussian noise have no pure epsilon, but an epsilon at each delta. Two are
    stated: the one that rho (zCDP) gives, and the smaller exact one from the normal distribution's
    own privacy curve. The least is the one that counts.
    """
    result = account(f"{files[2]} --rounds 60")  # 2: Gaussian noise
    body = sums.of(cards.decode(files[2].read_bytes()))
    curve = gaussian_curve.epsilon_of(60 * gaussian_curve.rho_of_card(body), 1e-6)
    assert result["epsilon_pure"] is None
    # 0.025624 is the certified rho of the card.
    assert result["epsilon_zcdp"] == sums.epsilon_of(60 * 25_624, 1e-6)
    assert result["epsilon"] == result["epsilon_exact"] == curve < result["epsilon_zcdp"]


@pytest.fixture
def account(tern):
    """`account(words)`: the result of `tern card account` at delta 1e-6."""

    def run(words):
        return tern("card", "account", *words.split(), "--delta", "1e-6", "--json").json

    return run


def test_of_a_budget_the_whole_device_has_the_square_of_its_units(tern):
    """`tern card account` states a budget for three neighbours: a unit (some successive records)
    that is added, one that is replaced, and a device whose 100 units are all replaced. rho grows
    with the square of the number of units, so 100 units cost 10,000 rho.
    """
    words = "card account --budget 10 --delta 1e-6 --rounds 8760 --unit 60 --records 6000 --json"
    result = tern(*words.split()).json
    budget = sums.rho_of(10, 1e-6)
    replaced_record = sums.epsilon_of(2**2 * budget, 1e-6)  # one is removed, another added
    assert result["epsilon_content"] == pytest.approx(replaced_record)
    assert result["epsilon_device"] == pytest.approx(sums.epsilon_of(100**2 * budget, 1e-6))


@pytest.mark.parametrize("records", [1, 8, 60])
def test_a_pure_epsilon_of_a_record_is_as_many_times_that_for_the_device_as_it_has_records(
    account, records
):
    """Zhao et al., Table III: for m records the epsilon of a record gives m epsilon for the device.
    By rho, eight records would have 68.
    """
    result = account(f"three-outputs:1 --unit record --records {records}")
    assert result["epsilon_device_pure"] == pytest.approx(records, rel=1e-5)
    assert result["epsilon_device"] == pytest.approx(records, rel=1e-5)


@pytest.mark.parametrize("words", ["three-outputs:1 --rounds 3", "three-outputs:1 pm:2"])
def test_the_pure_epsilon_of_several_reports_is_also_multiplied_by_the_records(account, words):
    result = account(f"{words} --unit record --records 8")
    assert result["epsilon_device"] == pytest.approx(8 * 3, rel=1e-5)


def test_of_many_small_epsilons_the_smaller_bound_by_rho_is_shown_for_the_device(account):
    result = account("three-outputs:.01 --rounds 10000 --unit record --records 8")
    by_rho = sums.epsilon_of(8**2 * 10_000 * sums.rho_of_pure(10_000), 1e-6)
    assert result["epsilon_device_pure"] == pytest.approx(800)
    assert result["epsilon_device"] <= by_rho < 80


@pytest.mark.parametrize(
    ("words", "lines_with_delta"),
    [
        ("three-outputs:1 --unit record --records 8", 0),
        ("three-outputs:.01 --rounds 10000 --unit record --records 8", 2),
        ("--budget 1 --unit record --records 8", 2),
    ],
)
def test_a_bound_that_needs_no_delta_is_said_without_one(tern, words, lines_with_delta):
    said = tern("card", "account", *words.split()).out
    after_the_table = said[said.index("rho") :]
    assert sum("delta" in line for line in after_the_table.splitlines()) == lines_with_delta


@pytest.mark.parametrize(
    "words",
    [
        "",  # neither a card nor a budget
        "duchi:1 --budget 1",
        "--budget 0.01 --rounds 100000",  # less than a millionth of rho each
        "--budget 1 --records 2",  # of no unit
        "--budget 1 --k 2",
        "gaussian.card --shuffled 100",
    ],
)
def test_an_account_that_makes_no_sense_is_refused(tern, files, monkeypatch, words):
    monkeypatch.chdir(files[2].parent)
    tern("card", "account", "--delta", "1e-6", *words.split(), code=errors.USAGE)


@pytest.mark.parametrize("cost", [1, 7, 63, 1000])
def test_the_epsilon_that_a_hint_names_pays_for_the_cost_and_little_more(cost):
    epsilon = float(sums.epsilon_that_pays(cost, 1e-6))
    assert sums.rho_of(epsilon, 1e-6) >= cost
    assert sums.rho_of(0.85 * epsilon, 1e-6) < cost


KINDS_OF_RECORDS = """x,kind
0.5,a
0.25,b
0.75,a
0.5,b
"""
SCHEMA_OF_KINDS = """[columns.x]
low = 0
high = 1
[columns.kind]
categories = ["a", "b"]
"""


@pytest.mark.usefixtures("here")
def test_a_budget_that_an_error_names_pays_for_the_rounds_of_all_attributes():
    """Numbers and categories are asked for in rounds of their own, which share the budget."""
    Path("kinds.csv").write_text(KINDS_OF_RECORDS)
    Path("kinds.toml").write_text(SCHEMA_OF_KINDS)

    def collect(epsilon):
        question = ternhost.Means(unit="record", records=2, data="kinds.csv", run_epsilon=epsilon)
        return ternhost.collect(question, ternhost.Simulated(2))

    with pytest.raises(UsageError) as caught:
        collect("0.0045")
    named = caught.value.hint.split()[1]
    assert collect(named)["rounds"] == 2
