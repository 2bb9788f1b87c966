"""`tern infer` on simulated fleets, and what it refuses."""

import json
from dataclasses import replace

import numpy as np
import pytest
from simulating import ask, begin, finished, fleet_of, run

from tern import card as cards
from tern import wire
from ternhost.cli import main
from ternhost.count.rounds import COMPLETE, RoundResult
from ternhost.errors import RefusedError, UsageError
from ternhost.learn import softmax
from ternhost.learn.base import Population
from ternhost.learn.infer import Infer, Options
from ternhost.learn.schedule import Schedule
from ternhost.run import costs

pytestmark = pytest.mark.usefixtures("here")


def test_simulated_clients_score_beside_the_exact_result():
    options = {"dataset": "wine", "epsilon": "20", "cluster_client_num": 500}
    result = run("infer", "simulated:600", **options)
    assert (result["reports"], result["classes"], result["features"]) == (500, 3, 14)
    assert (result["epsilon_true"], result["laplace_eval_eps"]) == (20, 10)
    assert result["epsilon_per_client"] <= 20
    assert result["score_without_noise"] > 0.7 > result["score"] > 0.4
    assert result["agreement"] > 0.95
    assert result["accounting"][0]["epsilon_user_level"] == pytest.approx(20, rel=1e-3)
    with open(f"{result['directory']}/result.json") as file:
        assert json.load(file) == result
    assert run("infer", "simulated:600", **options)["score"] == result["score"]


def test_without_noise_a_simulation_shows_the_exact_score():
    options = {"privacy_eval_type": "NOT_ENCRYPT", "eval_type": "CALINSKI_HARABASZ"}
    result = run("infer", "simulated:75", **options)
    assert result["score"] == result["score_without_noise"] > 50
    assert result["agreement"] == 1
    assert result["epsilon_true"] is None
    assert result["reports"] == 0
    assert "card" not in result


def test_clients_hold_records_that_the_classifier_has_not_seen():
    algorithm = begin("infer", 75)
    assert set(algorithm.holdings.order) == set(algorithm._dataset.test)
    assert not set(algorithm.holdings.order) & set(algorithm._dataset.training)
    assert (np.sort(algorithm.holdings.order) != algorithm.holdings.order).any()


def test_the_question_is_the_classifier():
    algorithm = begin("infer", 75, epsilon="6")
    ((question, devices),) = algorithm.cohorts(range(1, 76))
    weights = algorithm._weights
    assert (question.model, question.k, question.exponent) == (wire.SOFTMAX, 3, weights.exponent)
    assert np.array_equal(question.parameters, weights.mantissas.reshape(-1))
    assert question.card == softmax.noise_card(6_000_000)
    assert len(devices) == 75
    assert algorithm.modules == ("inference",)
    assert algorithm.individual


def test_a_vector_costs_its_epsilon_once():
    algorithm = begin("infer", 75, epsilon="6")
    (account,) = costs.accounts(algorithm, None)
    assert 5_990_000 < account.user_level <= 6_000_000
    (policy,) = set(costs.policies(algorithm, np.arange(1, 76), None))
    assert (policy.largest, policy.budget) == (6_000_000, 6_000_000)


@pytest.mark.parametrize(("epsilon", "scale"), [("8", "4"), ("1.5", "0.75")])
def test_the_setting_of_mindspore_is_half_of_the_true_epsilon(epsilon, scale):
    mine, theirs = begin("infer", 75, epsilon=epsilon), begin("infer", 75, laplace_eval_eps=scale)
    assert mine.designs[0].card.data == theirs.designs[0].card.data
    assert finished(mine).result([])["epsilon_true"] == float(epsilon)
    assert costs.accounts(theirs, None)[0].user_level == costs.accounts(mine, None)[0].user_level


def test_a_label_is_asked_for_by_a_window_over_the_classes_and_costs_its_epsilon_once():
    algorithm = begin("infer", 75, epsilon="4", answer="label")
    ((question, _),) = algorithm.cohorts(range(1, 76))
    card = cards.decode(question.card)
    assert (question.model, question.k, question.classes) == (wire.SOFTMAX, 1, 3)
    assert (card.shape, card.window, card.symbols) == (cards.WINDOW, 1, 3)
    assert costs.accounts(algorithm, None)[0].user_level == card.epsilon
    assert algorithm.modules == ("inference",)


@pytest.mark.parametrize(("epsilon", "least", "vectors"), [("1", 0.19, 0.2), ("4", 0.84, 0.52)])
def test_labels_of_digits_agree_far_more_often_than_vectors_and_their_shares_are_unbiased(
    epsilon, least, vectors
):
    label = run("infer", "simulated:898", dataset="digits", epsilon=epsilon, answer="label")
    vector = run("infer", "simulated:898", dataset="digits", epsilon=epsilon)
    assert vector["agreement"] < vectors
    assert label["agreement"] > max(least, vector["agreement"])
    assert (label["score"], label["score_without_noise"], label["bytes_per_report"]) == (None, None, 18)
    assert sum(own["share"] for own in label["shares"].values()) == pytest.approx(1)
    exact = run("infer", "simulated:898", dataset="digits", answer="label", privacy_eval_type="NOT_ENCRYPT")
    truth = [own["share"] for own in exact["shares"].values()]
    inside = [
        own["low"] <= true <= own["high"] for own, true in zip(label["shares"].values(), truth, strict=True)
    ]
    assert sum(inside) >= 8


def test_labels_of_personalised_budgets_are_weighed():
    result = run("infer", "simulated:898", dataset="digits", epsilons="0.5:0.9,6:0.1", answer="label")
    own = run("infer", "simulated:898", dataset="digits", epsilon="0.5", answer="label")
    width = [entry["high"] - entry["low"] for entry in (result["shares"]["3"], own["shares"]["3"])]
    assert width[0] < 0.5 * width[1]


@pytest.mark.parametrize("k", [1, 3])
def test_simulated_clients_refuse_the_other_answers_card(k):
    label, vector = (begin("infer", 75, answer=own) for own in ("label", "vector"))
    ((asked, devices),) = (label, vector)[k == 3].cohorts(range(1, 76))
    ((other, _),) = (vector, label)[k == 3].cohorts(range(1, 76))
    with pytest.raises(RefusedError, match="none for this model"):
        ask(fleet_of(label), [(replace(asked, card=other.card), devices)])


def test_the_agreement_is_of_those_that_were_heard():
    # half of the clients, in an order of their own: each is compared with its own noiseless result
    algorithm = begin("infer", 75, epsilon="20", dataset="wine", held_out=0.5)
    driver = fleet_of(algorithm)
    ((question, devices),) = algorithm.cohorts(driver.devices)
    heard = np.random.default_rng(1).permutation(np.asarray(devices))[:40]
    algorithm.learn(ask(driver, [(question, heard)]), driver.devices)
    result = algorithm.result([])
    assert result["clients"] == 40
    assert result["agreement"] > 0.9


def test_a_round_without_a_report_is_no_result():
    algorithm = begin("infer", 75)
    algorithm.learn(RoundResult(1, COMPLETE, 75, 0, {}, []), range(1, 76))
    assert algorithm.done
    result = algorithm.result([])
    assert (result["clients"], result["score"], result["clusters"]) == (0, None, {})


def test_boards_that_hold_what_nobody_knows():
    algorithm = Infer(Options(epsilon="8"), Population(knows_records=False))
    assert (algorithm.holdings, algorithm.clients, algorithm.reports) == (None, None, None)
    ((_, devices),) = algorithm.cohorts([3, 4, 9])
    assert list(devices) == [3, 4, 9]


def test_a_served_fleet_is_evaluated_over_and_over():
    algorithm = Infer(Options(epsilon="8"), Population(schedule=Schedule(rounds=3), devices=75))
    assert (algorithm.rounds, algorithm.times) == (3, 3)
    assert 23_900_000 < costs.accounts(algorithm, None)[0].user_level <= 24_000_000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"held_out": 1.0}, "--held-out must be above 0 and below 1"),
        ({"epsilon": "21"}, "epsilon"),
        ({"laplace_eval_eps": "11"}, "at most 10, half of the true epsilon"),
        ({"eval_type": "F1"}, "--eval-type must be NOT_EVAL or"),
        ({"cluster_client_num": 1}, "--cluster-client-num must be 2 or more"),
        ({"cluster_client_num": -3}, "--cluster-client-num must be 2 or more"),
        ({"seed": -1}, "--seed must be 0 or more"),
        ({"epsilon": "1", "privacy_eval_type": "NOT_ENCRYPT"}, "--epsilon says how much noise"),
        ({"epsilons": "1:1", "privacy_eval_type": "NOT_ENCRYPT"}, "--epsilons says how much noise"),
    ],
)
def test_options_that_are_refused(options, message):
    with pytest.raises(UsageError, match=message):
        Options(**options)


@pytest.mark.parametrize(
    ("fleet", "options", "message"),
    [
        ("simulated:75", {"dataset": "diabetes"}, "has no classes"),
        ("emulated:2", {"cluster_client_num": 76}, "there are 75"),
        ("emulated:80", {}, "leave boards without one"),
        ("simulated:75", {"epsilon": "0.000001"}, "too small"),
        ("emulated:1", {"privacy_eval_type": "NOT_ENCRYPT"}, "no device sends"),
        ("emulated", {}, "number of boards"),
    ],
)
def test_runs_that_are_refused(fleet, options, message):
    with pytest.raises(UsageError, match=message):
        run("infer", fleet, **options)


def test_a_classifier_too_large_for_a_frame(monkeypatch):
    monkeypatch.setattr(wire, "MAX_VALUES", 14)
    with pytest.raises(UsageError, match="3 classes of 5 features are more than the 14 parameters"):
        run("infer", "simulated:50")


def test_the_command(capsys):
    own = ["infer", "--fleet", "simulated:200", "--no-report"]
    assert main([*own, "--laplace-eval-eps", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["epsilon_true"] == 6
    assert main([*own, "--epsilon", "6"]) == 0
    out = capsys.readouterr().out
    assert "true epsilon 6 a client (laplace_eval_eps 3)" in out
    assert "keep their cluster" in out
    assert main(["infer", "--epsilon", "1", "--laplace-eval-eps", "1"]) == 2
    assert "say the same" in capsys.readouterr().err
    assert main(["infer", "--resume", "runs", "--seed", "3"]) == 2
    assert "keeps its options" in capsys.readouterr().err
