"""HierA in training and in collecting: reports of level and sign, at their true loss."""

import itertools
import json

import numpy as np
import pytest
from simulating import begin, finished, fleet_of, rounds, run

from tern import card as cards
from tern.card import T
from ternhost import datasets
from ternhost.errors import USAGE
from ternhost.privacy.mechanisms import design
from ternhost.run.costs import costs

LINEAR = {"dataset": "synthetic-linear", "model": "linear"}


@pytest.mark.usefixtures("here")
def test_a_report_pays_the_true_loss():
    options = {**LINEAR, "epsilon": "12", "reports": 40_000, "group": 4000}
    result = run("hiera", "simulated:40000", **options)
    assert 11.999 < result["epsilon_paid"] <= 12
    assert result["epsilon_stated"] < 8
    assert result["squared_error"] < result["squared_error_baseline"]


@pytest.fixture
def line(monkeypatch):
    """A data set of 30,000 records on a line: the targets."""
    rng, n = np.random.default_rng(6), 30_000
    x = np.concatenate([np.ones((n, 1)), rng.uniform(-1, 1, (n, 2))], axis=1)
    y = x @ [0.3, 0.4, -0.2]
    fixed = datasets.to_fixed(x), datasets.to_fixed(y)
    names = ("1", "a", "b")
    data = datasets.Dataset("line", datasets.REGRESSION, names, *fixed, datasets.held_out(n))
    monkeypatch.setattr(datasets, "load", lambda name, classes=False: data)
    return y


def test_mini_batches_fit_a_regression(line):
    learner = begin("hiera", 25_000, model="linear", epsilon="8.07", reports=25_000, group=500)
    result = finished(learner).result([])
    assert result["squared_error"] < 0.3 * np.var(line)
    assert costs(learner) == [pytest.approx(8_070_000, abs=5000)]
    assert result["epsilon_stated"] == pytest.approx(5, abs=0.01)  # the paper's figure for 8.07


def weights_with(**options):
    options = {"model": "linear", "epsilon": "8", "reports": 1000, "group": 250, **options}
    return finished(begin("hiera", 1000, **options)).weights.tolist()


def test_reuse_of_reports_depends_only_on_the_seed_and_the_round(line):
    assert weights_with(mu=3) == weights_with(mu=3)
    assert weights_with(mu=3) != weights_with(mu=1)
    assert weights_with(mu=1) != weights_with(mu=1, clamp=True)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("hiera", {"mu": 3, "model": "linear", "reports": 600, "group": 100}),
        ("hiera", {"epsilons": "1:0.5,4:0.5", "reports": 600, "group": 100}),
        ("levels", {"mu": 2}),
    ],
)
def test_a_resumed_learner_continues_exactly(name, options, monkeypatch):
    data = datasets.synthetic.logistic(2000, 5, seed=2)
    monkeypatch.setattr(datasets, "load", lambda name, classes=False: data)
    learner = begin(name, 600, **options)
    driver = fleet_of(learner)
    before_resuming = 0 if name == "levels" else 3  # levels ask one round
    for _ in itertools.islice(rounds(learner, driver), before_resuming):
        pass
    restored = begin(name, 600, **options)
    restored.restore(json.loads(json.dumps(learner.state())))
    assert restored.state() == learner.state()
    finished(restored, driver)
    whole = finished(begin(name, 600, **options))
    assert restored.result([])["epsilon_stated"] == whole.result([])["epsilon_stated"]


@pytest.mark.parametrize(
    ("words", "option"),
    [
        ("train --algorithm hiera --mu 6", "--mu must be 1 to 5"),
        ("train --algorithm hiera --mu 3 --budgets 2,1", "--mu must be 1 to 2"),
        ("train --algorithm hiera --budgets much", "is not a list of budgets"),
        ("train --algorithm hiera --mechanism duchi", "--mechanism belongs to fedsgd"),
        ("train --mu 2", "--mu belongs to hiera"),
        ("collect --mu 2", "--mu belongs to levels"),
        ("collect --method hiera --mechanism duchi", "--mechanism belongs to collect"),
        ("collect --dataset wine --method hiera --budgets 1", "LHP takes 2 to 16"),
        ("card design lhp --epsilon 1 --budgets 1,x", "--budgets must be B,B,..."),
    ],
)
def test_wrong_options_are_refused(tern, here, words, option):
    assert option in tern(*words.split(), code=USAGE).err


@pytest.mark.usefixtures("here")
def test_a_collection_by_hiera_has_its_true_loss_beside_the_stated_one():
    result = run("levels", "simulated:20000", dataset="iris", epsilon="8", mu=2)
    assert 7.999 < result["epsilon_paid"] <= 8
    assert result["epsilon_stated"] < 5
    assert result["mean_squared_error"] < 0.025
    card = cards.decode(bytes.fromhex(result["parts"][0]["card"]))
    assert cards.certify(card)
    assert not cards.certify(card, card.epsilon - 200)


@pytest.mark.parametrize("clamp", [False, True])
def test_means_by_hiera_are_clamped_on_demand(clamp):
    """Of eight devices, at epsilon 1, some means lie beyond 1."""
    learner = begin("levels", 8, dataset="iris", epsilon="1", clients=8, clamp=clamp)
    means = [entry["mean"] for entry in finished(learner).result([])["attributes"]]
    assert (np.abs(means).max() <= 1) == clamp


def test_lhp_has_at_zero_the_variance_of_the_range_above(tern):
    """With an even number of ranges, 0 is a bound, and devices count it to the range above."""
    result = tern("card", "design", "lhp", "--epsilon", "1", "--budgets", "2,1", "--json").json
    card = cards.decode(design("lhp", 1, budgets=(2, 1)).card)
    assert card.body.level(0) == 0
    own, other = (T / (T - 2 * each.thresholds[1]) for each in card.body.value_cards)
    likely = card.body.level_cards[0].threshold / T
    expected = likely * own**2 + (1 - likely) * other**2
    assert result["variance_at_zero"] == pytest.approx(expected)
