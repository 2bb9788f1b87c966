"""HierA in training and in collecting: reports of level and sign, at their true loss."""

import argparse
import itertools
import json

import pytest
from simulating import begin, finished, fleet_of, rounds, run

from tern import card as cards
from ternhost import datasets
from ternhost.cli import running
from ternhost.cli.tree import build_parser
from ternhost.errors import USAGE, UsageError
from ternhost.learn.base import ALGORITHMS, algorithms_of

LINEAR = {"data": "synthetic-linear", "model": "linear"}


@pytest.mark.usefixtures("here")
def test_a_report_pays_the_true_loss():
    options = {**LINEAR, "epsilon": "12", "reports": 40_000, "group": 4000}
    result = run("hiera", "simulated:40000", **options)
    assert 11.999 < result["epsilon_paid"] <= 12
    assert result["epsilon_stated"] < 8
    assert result["squared_error"] < result["squared_error_baseline"]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("hiera", {"mu": 3, "model": "linear", "reports": 600, "group": 100}),
        ("hiera", {"epsilons": "1:0.5,4:0.5", "reports": 600, "group": 100}),
        ("levels", {"mu": 2}),
    ],
)
def test_a_resumed_learner_continues_exactly(name, options, monkeypatch):
    """Training with HierA of Hao et al. can be interrupted: its state, stored as JSON, goes on to
    the same result as a run without interruption. mu: how often a report counts; epsilons: classes
    of privacy, with their shares of the devices.
    """
    data = datasets.synthetic.logistic(2000, 5, seed=2)
    monkeypatch.setattr(datasets, "load", lambda name, classes=False, selection=None: data)
    learner = begin(name, 600, **options)
    driver = fleet_of(learner)
    before_resuming = 0 if name == "levels" else 3  # levels ask one round
    for _ in itertools.islice(rounds(learner, driver), before_resuming):
        pass

    # As after a restart of the host.
    restored = begin(name, 600, **options)
    restored.restore(json.loads(json.dumps(learner.state())))
    assert restored.state() == learner.state()
    for _ in rounds(restored, driver, first=1 + before_resuming):
        pass

    whole = finished(begin(name, 600, **options))
    assert restored.state() == whole.state()


@pytest.mark.parametrize(
    ("words", "option"),
    [
        ("train hiera --mu 3 --proportions 2,1", "--mu must be 1 to 2"),
        ("train hiera --mechanism duchi", "--mechanism is an option of fedsgd"),
        ("collect --data wine levels --proportions 1", "LHP takes 2 to 16"),
        ("card design lhp --epsilon 1 --proportions 1,x", "--proportions must be B,B,..."),
    ],
)
def test_wrong_options_of_hiera_are_refused(tern, here, words, option):
    assert option in tern(*words.split(), code=USAGE).err


def test_a_bound_of_clipping_is_refused_since_nothing_is_clipped_to_it():
    with pytest.raises(UsageError, match="bounds"):
        ALGORITHMS["hiera"].Options(epsilons="0.5:2:0.5,1:2:0.5")


@pytest.mark.parametrize(("command", "learner"), [("train", "hiera"), ("collect", "levels")])
def test_an_option_of_levels_chooses_their_learner(command, learner):
    words = [command, "--proportions", "5,4,3,2,1"]
    args = build_parser(words).parse_args(words, argparse.Namespace(from_project={}))
    assert running.parsed(args, algorithms_of(command)).algorithm == learner


@pytest.mark.usefixtures("here")
def test_a_collection_by_hiera_has_its_true_loss_beside_the_stated_one():
    """HierA of Hao et al. states a smaller privacy loss (epsilon) than a report has.

    A result has both; devices pay the true one. `certify` is the device's own check of the loss.
    """
    result = run("levels", "simulated:20000", data="iris", epsilon="8", mu=2)
    assert 7.999 < result["epsilon_paid"] <= 8
    assert result["epsilon_stated"] < 5
    assert result["mean_squared_error"] < 0.025
    card = cards.decode(bytes.fromhex(result["parts"][0]["card"]))
    assert cards.certify(card)
    assert not cards.certify(card, card.epsilon - 200)  # micro-epsilon less
