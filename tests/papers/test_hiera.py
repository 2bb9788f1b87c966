"""HierA in training and in collecting: reports of level and sign, at their true loss."""

import itertools
import json

import numpy as np
import pytest
from simulating import begin, finished, fleet_of, rounds, run

from tern import card as cards
from tern import wire
from tern.card import T
from tern.fixed import ONE
from ternhost import datasets
from ternhost.errors import USAGE
from ternhost.privacy.mechanisms import design
from ternhost.run.costs import costs

HIERA = {
    "dataset": "synthetic-linear",
    "model": "linear",
    "epsilon": "12",
    "reports": 40_000,
    "group": 4000,
}


@pytest.mark.usefixtures("here")
def test_it_pays_the_true_loss():
    algorithm = begin("hiera", 40_000, **HIERA)
    (design,) = algorithm.designs
    assert (design.card.shape, design.k, design.mechanism) == (cards.HIERARCHY, 1, "lhp")
    assert 11_999_000 < design.cost <= 12_000_000
    assert algorithm.modules == ("lhp",)
    (question, clients), *rest = algorithm.cohorts(range(1, 40_001))
    assert (question.model, question.card, len(clients), rest) == (
        wire.LINEAR,
        design.card.data,
        4000,
        [],
    )

    result = run("hiera", "simulated:40000", **HIERA)
    assert result["epsilon_paid"] == design.cost / 1e6
    assert result["epsilon_stated"] < 8
    assert (result["bytes_per_report"], result["measure"]) == (18, "squared_error")
    assert result["squared_error"] < result["squared_error_baseline"]
    assert "accuracy" not in result


def test_mini_batches_fit_a_regression(monkeypatch):
    rng, n = np.random.default_rng(6), 30_000
    x = np.concatenate([np.ones((n, 1)), rng.uniform(-1, 1, (n, 2))], axis=1)
    y = x @ [0.3, 0.4, -0.2]
    fixed = datasets.to_fixed(x), datasets.to_fixed(y)
    data = datasets.Dataset(
        "line", datasets.REGRESSION, ("1", "a", "b"), *fixed, datasets.held_out(n)
    )
    monkeypatch.setattr(datasets, "load", lambda name, classes=False: data)
    options = {"model": "linear", "epsilon": "8.07", "reports": 25_000, "group": 500}
    learner = finished(begin("hiera", 25_000, **options))
    result = learner.result([])
    assert result["squared_error"] < 0.3 * np.var(y)
    assert result["squared_error_optimum"] < 0.01 * np.var(y)
    assert costs(learner) == [pytest.approx(8_070_000, abs=5000)]
    assert result["epsilon_stated"] == pytest.approx(5, abs=0.01)
    assert result["squared_error_baseline"] == pytest.approx(
        np.var(data.labels[data.test] / ONE), rel=0.01
    )


def test_reuse_of_reports_depends_only_on_the_seed_and_the_round(monkeypatch):
    data = datasets.synthetic.linear(2000, 4)
    monkeypatch.setattr(datasets, "load", lambda name, classes=False: data)
    options = {"model": "linear", "epsilon": "8", "reports": 1000, "group": 250}
    weights = [finished(begin("hiera", 1000, mu=mu, **options)).weights for mu in (3, 3, 1)]
    assert (weights[0] == weights[1]).all()
    assert (weights[0] != weights[2]).any()
    clamped = finished(begin("hiera", 1000, mu=1, clamp=True, **options)).weights
    assert (weights[2] != clamped).any()


def test_softmax_regression_is_learned_by_hiera():
    options = {"dataset": "wine", "model": "softmax", "reports": 5000, "group": 500, "epsilon": "8"}
    result = run("hiera", "simulated:5000", **options)
    assert result["labels"] == ["class_0", "class_1", "class_2"]
    assert result["log_loss_optimum"] < result["log_loss"] < result["log_loss_baseline"]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("hiera", {"mu": 3, "model": "linear"}),
        ("hiera", {"epsilons": "1:0.5,4:0.5"}),
        ("levels", {"mu": 2}),
    ],
)
def test_a_resumed_learner_continues_exactly(name, options, monkeypatch):
    data = datasets.synthetic.logistic(2000, 5, seed=2)
    monkeypatch.setattr(datasets, "load", lambda name, classes=False: data)
    if name == "hiera":
        options = options | {"reports": 600, "group": 100}
    learner = begin(name, 600, **options)
    whole = finished(begin(name, 600, **options))
    driver = fleet_of(learner)
    for _ in itertools.islice(rounds(learner, driver), 0 if name == "levels" else 3):
        pass
    restored = begin(name, 600, **options)
    restored.restore(json.loads(json.dumps(learner.state())))
    assert restored.state() == learner.state()
    for _ in rounds(restored, driver):
        pass
    assert restored.result([])["epsilon_stated"] == whole.result([])["epsilon_stated"]
    assert restored.done


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("train --algorithm hiera --mu 6", "--mu must be 1 to 5, the number of levels, not 6"),
        ("train --algorithm hiera --mu 3 --budgets 2,1", "--mu must be 1 to 2"),
        ("train --algorithm hiera --budgets much", "is not a list of budgets"),
        ("train --algorithm hiera --mu 0.5", "--mu: invalid int value"),
        ("train --algorithm hiera --k 3", "--k belongs to fedsgd"),
        ("train --algorithm hiera --mechanism duchi", "--mechanism belongs to fedsgd"),
        ("train --mu 2", "--mu belongs to hiera"),
        ("collect --mu 2", "--mu belongs to levels"),
        ("collect --method hiera --mechanism duchi", "--mechanism belongs to collect"),
        ("collect --dataset wine --method hiera --budgets 1", "LHP takes 2 to 16"),
        ("card design lhp --epsilon 1 --budgets 1,x", "--budgets must be B,B,..., not '1,x'"),
    ],
)
def test_wrong_options_are_refused(tern, here, words, message):
    assert message in tern(*words.split(), code=USAGE).err


def test_the_option_method_chooses_hiera(tern, here):
    words = "collect --dataset iris --method hiera --fleet simulated:100 --no-report --json"
    result = tern(*words.split()).json
    assert (result["method"], result["algorithm"]) == ("hiera", "levels")


def test_a_collection_by_hiera_has_its_true_loss_beside_the_stated_one():
    options = {"dataset": "iris", "epsilon": "8", "mu": 2}
    result = run("levels", "simulated:50000", **options)
    assert result["epsilon_paid"] == pytest.approx(8, abs=1e-3)
    assert result["epsilon_paid"] <= 8
    assert result["epsilon_stated"] < 5
    assert result["mean_squared_error"] < 0.01
    (part,) = result["parts"]
    card = cards.decode(bytes.fromhex(part["card"]))
    assert (card.shape, card.symbols, part["k"]) == (cards.HIERARCHY, 10, 1)
    assert cards.certify(card)
    assert not cards.certify(card, card.epsilon - 200)


def test_means_by_hiera_are_clamped_on_demand():
    options = {"dataset": "iris", "epsilon": "1", "clients": 8}
    for clamp in (False, True):
        entries = finished(begin("levels", 8, clamp=clamp, **options)).result([])["attributes"]
        assert (max(abs(entry["mean"]) for entry in entries) <= 1) == clamp


def test_lhp_has_at_zero_the_variance_of_the_range_above(tern):
    """With an even number of ranges, 0 is a bound, and devices count it to the range above."""
    result = tern("card", "design", "lhp", "--epsilon", "1", "--budgets", "2,1", "--json").json
    card = cards.decode(design("lhp", 1, budgets=(2, 1)).card)
    assert card.body.level(0) == 0
    value = T / (T - 2 * card.body.value_cards[0].thresholds[1])
    other = T / (T - 2 * card.body.value_cards[1].thresholds[1])
    p = card.body.level_cards[0].threshold / T
    assert result["variance_at_zero"] == pytest.approx(p * value**2 + (1 - p) * other**2)
