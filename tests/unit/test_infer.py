"""`tern infer` on simulated fleets, and the options that it refuses."""

import json
import math
from array import array
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from simulating import ask, begin, finished, fleet_of, run

from tern import card as cards
from tern import wire
from tern.fixed import ONE
from tern.inference import Classifier
from ternhost import datasets
from ternhost.count.rounds import COMPLETE, RoundResult
from ternhost.datasets import bundled
from ternhost.errors import RefusedError, UsageError
from ternhost.learn import classifiers, clustering
from ternhost.learn.base import Population
from ternhost.learn.infer import Infer, Options
from ternhost.learn.schedule import Schedule
from ternhost.privacy import cards as card_law
from ternhost.privacy import certify
from ternhost.run import costs
from ternhost.run.device_model import DeviceModel
from ternhost.run.report import inference
from ternhost.vectorised import probabilities

pytestmark = pytest.mark.usefixtures("here")


def test_a_simulated_run_shows_its_score_and_the_exact_one():
    options = {"dataset": "wine", "epsilon": "20", "cluster_client_num": 500}
    result = run("infer", "simulated:600", **options)
    assert (result["reports"], result["classes"], result["features"]) == (500, 3, 14)
    assert (result["epsilon_true"], result["laplace_eval_eps"]) == (20, 10)
    assert result["epsilon_paid"] <= 20
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
    held_out = datasets.held_out(150, 0.5)
    assert set(algorithm.holdings.order) == set(np.flatnonzero(held_out))
    assert (np.sort(algorithm.holdings.order) != algorithm.holdings.order).any()


def test_the_question_is_the_classifier():
    algorithm = begin("infer", 75, epsilon="6")
    ((question, devices),) = algorithm.cohorts(range(1, 76))
    assert (question.model, question.k, question.exponent) == (
        wire.SOFTMAX,
        3,
        algorithm._classifier.exponent,
    )
    assert np.array_equal(question.parameters, algorithm._classifier.mantissas.reshape(-1))
    assert question.card == clustering.noise_card(6_000_000)
    assert len(devices) == 75
    assert algorithm.modules == ("inference",)
    assert algorithm.individual


@pytest.mark.parametrize(("epsilon", "scale"), [("8", "4"), ("1.5", "0.75")])
def test_the_setting_of_mindspore_is_half_of_the_true_epsilon(epsilon, scale):
    mine, theirs = begin("infer", 75, epsilon=epsilon), begin("infer", 75, laplace_eval_eps=scale)
    assert mine.designs[0].card.data == theirs.designs[0].card.data
    assert finished(mine).result([])["epsilon_true"] == float(epsilon)
    assert costs.accounts(theirs, None)[0].user_level == costs.accounts(mine, None)[0].user_level


# MindSpore's guide


@pytest.mark.parametrize(
    "named", [{"laplace_eval_eps": "230260"}, {"noise": 1e-5, "probability": 0.9}]
)
def test_a_simulation_has_noise_that_protects_nothing_and_says_so(named):
    result = run("infer", "simulated:75", **named)
    assert result["laplace_eval_eps"] == pytest.approx(230_260, rel=1e-5)
    assert result["epsilon_true"] == 2 * result["laplace_eval_eps"]
    assert (result["noise"], result["probability"]) == (pytest.approx(1e-5, rel=1e-5), 0.9)
    assert (result["reports"], result["protects"], result["agreement"]) == (0, None, 1)
    assert 0 < abs(result["score"] - result["score_without_noise"]) < 1e-4
    assert "epsilon_paid" not in result
    (words,) = [line for line in Infer.summary(result) if "noise of" in line]
    assert "1e-05 with probability 0.9 protects nothing: a true epsilon of 460,5" in words
    assert "protects nothing: a true epsilon of 460,5" in inference.page(result).lead


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("10.1", "is for simulations only: a true epsilon of 20.2, and no board reports above 20"),
        ("100", "is for simulations only: a true epsilon of 200, and no board reports above 20"),
        ("101", "protects nothing: a true epsilon of 202"),
    ],
)
def test_little_noise_is_not_called_none(setting, words):
    result = run("infer", "simulated:75", laplace_eval_eps=setting)
    assert any(f"{words} (--laplace-eval-eps {setting})" in line for line in Infer.summary(result))
    assert inference.page(result).lead.endswith(f"Their noise {words}.")


def test_the_most_that_a_device_accepts_is_a_setting_of_10():
    assert begin("infer", 75, laplace_eval_eps="10").designs[0].epsilon == 20_000_000
    assert begin("infer", 75, laplace_eval_eps="10.1").designs == []
    for population in (Population(), Population(clients=75, schedule=Schedule(rounds=1))):
        with pytest.raises(UsageError, match=r"true epsilon of 20\.2, above 20"):
            Infer(Options(laplace_eval_eps="10.1"), population)


def test_noise_is_at_most_the_named_one_with_its_probability():
    algorithm = begin("infer", 75, noise=0.25, probability=0.75)
    assert float(algorithm.options.setting) == pytest.approx(math.log(4) / 0.25)
    card = algorithm.designs[0].card
    law, middle = np.array(card_law.distribution(card, 0)), card.symbols // 2
    steps = round(0.25 * 2**card.grid_bits)
    assert law[middle - steps : middle + steps + 1].sum() == pytest.approx(0.75, abs=1e-3)


def test_two_opposite_vectors_tell_twice_the_setting_of_mindspore():
    """Its L1 sensitivity, 1, is that of neither entry's change alone: both change by 1."""
    card = begin("infer", 75, laplace_eval_eps="2").designs[0].card
    one, none = (np.array(card_law.distribution(card, x)) for x in (ONE, 0))
    at = [
        card.symbols // 2 + (x << card.grid_bits) for x in (1, 0)
    ]  # what (1, 0) tells without noise
    ratio = one[at[0]] * none[at[1]] / (none[at[0]] * one[at[1]])
    assert math.log(ratio) == pytest.approx(2 * 2, rel=1e-3)


def test_a_silhouette_may_count_a_point_itself():
    exact = run("infer", "simulated:75", privacy_eval_type="NOT_ENCRYPT")
    itself = run(
        "infer", "simulated:75", privacy_eval_type="NOT_ENCRYPT", eval_type="SILHOUETTE_WITH_ITSELF"
    )
    assert (round(exact["score"], 3), round(itself["score"], 3)) == (0.715, 0.726)


def test_the_silhouette_with_itself_is_that_of_the_guide(monkeypatch):
    rng = np.random.default_rng(3)
    vectors = np.concatenate([rng.normal(size=(30, 3)), [[9, 9, 9]] * 2, [[0, 0, -9]]])
    labels = np.array([*rng.integers(0, 3, 30), 3, 3, 4])
    total = 0.0
    for i, vector in enumerate(vectors):
        means = {
            k: np.mean([np.linalg.norm(vector - v) for v in vectors[labels == k]])
            for k in set(labels)
        }
        a = means.pop(labels[i])
        b = min(means.values())
        total += (b - a) / max(a, b) if a else 0  # the two equal ones, and the one alone
    for chunk in (1 << 22, 100):
        monkeypatch.setattr(clustering, "_CHUNK", chunk)
        assert clustering.score("SILHOUETTE_WITH_ITSELF", vectors, labels) == pytest.approx(
            total / 33
        )


# The model of a run


@pytest.fixture
def learned(here):
    """The result of a run of ten rounds on iris, of softmax regression."""
    options = {"dataset": "iris", "model": "softmax", "epsilon": "8", "reports": 2000, "group": 200}
    return run("fedsgd", "simulated:2000", **options)


def test_the_model_of_a_run_classifies_the_records_that_it_held_out(learned):
    algorithm = begin("infer", 15, classifier=learned["directory"], epsilon="8")
    ((question, _),) = algorithm.cohorts(range(1, 16))
    assert np.array(question.parameters) * 2.0**question.exponent == pytest.approx(
        learned["weights"]
    )
    assert set(algorithm.holdings.order) == set(datasets.load("iris").test)
    assert algorithm.rounds == 1


def test_the_models_of_several_rounds_are_scored_against_their_loss(learned):
    options = {"classifier": learned["directory"], "score_rounds": 4, "epsilon": "20"}
    result = run("infer", "simulated:15", **options)
    losses = {entry["round"]: entry["log_loss"] for entry in learned["history"]}
    assert [row["round"] for row in result["scores"]] == [1, 4, 7, 10]
    assert [row["loss"] for row in result["scores"]] == pytest.approx(
        [losses[i] for i in (1, 4, 7, 10)]
    )
    assert [entry["loss"] for entry in result["history"]] == [
        row["loss"] for row in result["scores"]
    ]
    assert [row["score"] for row in result["scores"]] == [
        entry["score"] for entry in result["history"]
    ]
    assert result["scores"][-1]["score"] == result["score"]
    assert result["epsilon_paid"] == pytest.approx(80, rel=1e-3)  # each model costs its own report
    assert any(
        "score" in line and "from round 1 to round 10" in line for line in Infer.summary(result)
    )
    axes = inference.page(result).pictures["scores"][0].axes[0]
    assert [line.get_xdata().tolist() for line in axes.lines] == [
        [row["loss"] for row in result["scores"]]
    ] * 2
    exact = run("infer", "simulated:15", **{**options, "epsilon": None}, laplace_eval_eps="1000000")
    assert [row["round"] for row in exact["scores"]] == [1, 4, 7, 10]
    pairs = [(row["score"], row["score_without_noise"]) for row in exact["scores"]]
    assert all(score == pytest.approx(without, abs=1e-3) for score, without in pairs)
    every = begin("infer", 15, classifier=learned["directory"], score_rounds=99)
    assert every.rounds == every.times == 10


def test_scores_of_several_models_go_on_from_a_state(learned):
    options = {"classifier": learned["directory"], "score_rounds": 3, "epsilon": "20"}
    whole, part = begin("infer", 15, **options), begin("infer", 15, **options)
    questions = []
    for i in range(1, 4):
        if i == 3:
            part.restore(json.loads(json.dumps(whole.state())))
            assert part.cohorts(range(1, 16))[0][0] == whole.cohorts(range(1, 16))[0][0]
        questions.append(whole.cohorts(range(1, 16)))
        whole.learn(ask(fleet_of(whole), questions[-1], i), range(1, 16))
    part.learn(ask(fleet_of(part), part.cohorts(range(1, 16)), 3), range(1, 16))
    assert part.figures() == whole.figures() != {}
    assert len({tuple(question.parameters) for ((question, _),) in questions}) == 3


def test_a_run_of_two_classes_classifies_by_its_probability(here):
    learned = run("fedsgd", "simulated:500", dataset="breast-cancer", epsilon="8", reports=500)
    algorithm = begin("infer", 57, classifier=learned["directory"], dataset="breast-cancer")
    data, model = datasets.load("breast-cancer"), DeviceModel.of_result(learned)
    clients = np.arange(57)
    positive = model.probability(data.features[algorithm.holdings.positions(clients)[:, 0]])
    assert algorithm._exact(clients)[:, 1] * ONE == pytest.approx(positive, abs=4)


def test_devices_with_records_of_their_own_are_asked_by_the_model_of_a_run(learned):
    options = Options(classifier=learned["directory"], dataset="wine", epsilon="8")
    algorithm = Infer(options, Population(knows_records=False))
    ((question, _),) = algorithm.cohorts([3])
    assert len(question.parameters) == 15
    served = Population(schedule=Schedule(rounds=3), devices=75)
    with pytest.raises(UsageError, match="a served fleet has one classifier"):
        Infer(replace(options, dataset="iris", score_rounds=2), served)


def test_a_run_that_does_not_fit_is_refused(learned, here):
    where = learned["directory"]
    with pytest.raises(UsageError, match="is of other data than wine") as caught:
        begin("infer", 15, classifier=where, dataset="wine")
    assert caught.value.hint == "--dataset iris"
    svm = run("fedsgd", "simulated:50", dataset="iris", model="svm", reports=50)
    means = run("collect", "simulated:50", dataset="wine")
    for other in (svm["directory"], means["directory"]):
        with pytest.raises(UsageError, match="has no model with probabilities"):
            begin("infer", 15, classifier=other)
    (here / "alone").mkdir()
    (here / "alone" / "result.json").write_text(json.dumps({**learned, "store": "gone"}))
    assert begin("infer", 15, classifier="alone/result.json").rounds == 1
    with pytest.raises(UsageError, match=r"neither gone nor alone/store\.sqlite") as caught:
        begin("infer", 15, classifier="alone", score_rounds=2)
    assert caught.value.hint == "leave out --score-rounds, or bring the store back"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"options": None}, "learned a model: "),
        ({"history": [1]}, "learned a model: "),
        ({"weights": [1.0]}, "learned a model: cannot reshape"),
        ({"weights": [float("nan")] * 15}, "learned a model: not a finite number"),
        ({}, "learned a model: there is no 'options'"),
    ],
)
def test_a_file_that_is_not_the_result_of_a_run_is_refused(learned, here, change, message):
    (here / "w.json").write_text(json.dumps({**learned, **change} if change else {"weights": [1]}))
    with pytest.raises(UsageError, match=message) as caught:
        begin("infer", 15, classifier="w.json")
    assert caught.value.hint == "name the directory of a finished run, such as runs/first"


# Labels


def test_a_label_is_asked_for_by_a_window_over_the_classes_and_costs_its_epsilon_once():
    algorithm = begin("infer", 75, epsilon="4", answer="label")
    ((question, _),) = algorithm.cohorts(range(1, 76))
    card = cards.decode(question.card)
    assert (question.model, question.k, question.classes) == (wire.SOFTMAX, 1, 3)
    assert (card.shape, card.window, card.symbols) == (cards.WINDOW, 1, 3)
    assert costs.accounts(algorithm, None)[0].user_level == card.epsilon
    assert algorithm.modules == ("inference",)


@pytest.mark.parametrize(("epsilon", "least", "vectors"), [("1", 0.19, 0.2), ("4", 0.84, 0.52)])
def test_labels_agree_more_often_than_vectors_and_their_shares_are_unbiased(
    epsilon, least, vectors
):
    label = run("infer", "simulated:898", dataset="digits", epsilon=epsilon, answer="label")
    vector = run("infer", "simulated:898", dataset="digits", epsilon=epsilon)
    assert vector["agreement"] < vectors
    assert label["agreement"] > max(least, vector["agreement"])
    assert (label["score"], label["score_without_noise"], label["bytes_per_report"]) == (
        None,
        None,
        18,
    )
    assert sum(share["share"] for share in label["shares"].values()) == pytest.approx(1)
    exact = run(
        "infer", "simulated:898", dataset="digits", answer="label", privacy_eval_type="NOT_ENCRYPT"
    )
    pairs = zip(label["shares"].values(), exact["shares"].values(), strict=True)
    assert sum(share["low"] <= true["share"] <= share["high"] for share, true in pairs) >= 8


def test_labels_are_weighted_by_personalised_budgets():
    result = run(
        "infer", "simulated:898", dataset="digits", epsilons="0.5:0.9,6:0.1", answer="label"
    )
    strict = run("infer", "simulated:898", dataset="digits", epsilon="0.5", answer="label")
    share, strict_share = result["shares"]["3"], strict["shares"]["3"]
    assert share["high"] - share["low"] < 0.5 * (strict_share["high"] - strict_share["low"])


@pytest.mark.parametrize(("answer", "other"), [("label", "vector"), ("vector", "label")])
def test_simulated_clients_refuse_a_card_of_the_other_answer(answer, other):
    algorithm = begin("infer", 75, answer=answer)
    ((question, devices),) = algorithm.cohorts(range(1, 76))
    ((other_question, _),) = begin("infer", 75, answer=other).cohorts(range(1, 76))
    with pytest.raises(RefusedError, match="does not fit this model"):
        ask(fleet_of(algorithm), [(replace(question, card=other_question.card), devices)])


def test_the_agreement_counts_only_clients_that_reported():
    # half of the clients, shuffled: each is compared with its own noiseless result
    algorithm = begin("infer", 75, epsilon="20", dataset="wine", held_out=0.5)
    driver = fleet_of(algorithm)
    ((question, devices),) = algorithm.cohorts(driver.devices)
    reporting = np.random.default_rng(1).permutation(np.asarray(devices))[:40]
    algorithm.learn(ask(driver, [(question, reporting)]), driver.devices)
    result = algorithm.result([])
    assert result["clients"] == 40
    assert result["agreement"] > 0.9


def test_a_round_without_a_report_is_no_result():
    algorithm = begin("infer", 75)
    algorithm.learn(RoundResult(1, COMPLETE, 75, 0, {}, []), range(1, 76))
    assert algorithm.done
    result = algorithm.result([])
    assert (result["clients"], result["score"], result["clusters"]) == (0, None, {})


def test_boards_with_unknown_records_are_asked():
    algorithm = Infer(Options(epsilon="8"), Population(knows_records=False))
    assert (algorithm.holdings, algorithm.clients, algorithm.reports) == (None, None, None)
    ((_, devices),) = algorithm.cohorts([3, 4, 9])
    assert list(devices) == [3, 4, 9]


def test_a_served_fleet_is_evaluated_in_every_round():
    algorithm = Infer(Options(epsilon="8"), Population(schedule=Schedule(rounds=3), devices=75))
    assert (algorithm.rounds, algorithm.times) == (3, 3)
    assert 23_900_000 < costs.accounts(algorithm, None)[0].user_level <= 24_000_000


def test_a_classifier_too_large_for_a_frame(monkeypatch):
    monkeypatch.setattr(wire, "MAX_VALUES", 14)
    with pytest.raises(UsageError, match="3 classes of 5 features are more than the 14 parameters"):
        run("infer", "simulated:50")


def test_the_command(tern):
    command = ["infer", "--fleet", "simulated:200", "--no-report"]
    assert tern(*command, "--laplace-eval-eps", "3", "--json").json["epsilon_true"] == 6
    out, err, _ = tern(*command, "--epsilon", "6")
    assert "this run protects a device with all of its records with epsilon 6" in out
    assert "--laplace-eval-eps 3" in out
    assert "keep their cluster" in out
    assert "one report of one vector of probabilities at epsilon 6" in err
    assert "clients by label: " in tern(*command, "--answer", "label").out
    assert (
        "460,520 (--laplace-eval-eps 230260)" in tern(*command, "--laplace-eval-eps", "230260").out
    )
    tern(
        "train",
        "--dataset",
        "iris",
        "--model",
        "softmax",
        "--fleet",
        "simulated:900",
        "--name",
        "first",
    )
    command[2] = "simulated:15"
    out, err, _ = tern(
        *command, "--classifier", "runs/first", "--score-rounds", "2", "--epsilon", "8"
    )
    assert "each at epsilon 8 (one a round: --score-rounds sets how many)" in err
    assert "log-loss" in out
    assert "keeps its options" in tern("infer", "--resume", "runs", "--seed", "3", code=2).err


# The results of devices, clusters and scores


def _clients(n, seed=1):
    """A model of 3 classes and rows of 2 features in three heaps."""
    rng = np.random.default_rng(seed)
    centres = np.array([[0.7, 0], [-0.6, 0.5], [-0.6, -0.5]])
    x = centres[rng.integers(0, 3, n)] + rng.normal(0, 0.1, (n, 2))
    return (centres * 8 * 4095).astype(np.int16), -12, (np.clip(x, -1, 1) * 16384).astype(np.int16)


@pytest.mark.parametrize("grid_bits", [14, 10, 4])
@pytest.mark.parametrize(("classes", "features"), [(2, 1), (3, 28), (10, 64), (128, 3)])
def test_probabilities_equal_those_of_the_device(classes, features, grid_bits):
    rng = np.random.default_rng(classes)
    for exponent in (-12, -18, -30):
        parameters = rng.integers(-32768, 32768, (classes, features))
        rows = rng.integers(-32768, 32768, (30, features)).astype(np.int16)
        computed = probabilities(parameters, exponent, rows, grid_bits)
        device = Classifier(array("h", parameters.reshape(-1).tolist()), exponent, classes)
        out = array("h", bytes(2 * classes))
        for row, p in zip(rows, computed, strict=True):
            device.probabilities(array("h", row.tolist()), out, grid_bits)
            assert p.tolist() == list(out)
        assert computed.sum(axis=1).max() <= 16384


@pytest.mark.parametrize("epsilon", [2_000, 100_000, 1_000_000, 3_141_593, 20_000_000])
def test_the_card_keeps_its_epsilon_for_whole_vectors(epsilon):
    card = cards.decode(clustering.noise_card(epsilon))
    assert cards.certify(card, epsilon)
    assert certify.bias(card) == 0
    # almost no slack: noise of scale 2 / epsilon
    assert Fraction(card.t, card.s) / (1 << card.grid_bits) == pytest.approx(
        2e6 / epsilon, rel=0.002
    )
    if epsilon >= 100_000:
        assert not cards.certify(card, math.floor(epsilon * 0.998))


@pytest.mark.parametrize(
    "eval_type", ["SILHOUETTE_SCORE", "CALINSKI_HARABASZ", "CALINSKI_HARABASZ_SCORE"]
)
def test_scores_without_noise_equal_those_of_scikit_learn(eval_type):
    from sklearn import metrics

    parameters, exponent, features = _clients(300)
    exact = probabilities(parameters, exponent, features) / 16384
    result = clustering.cluster(eval_type, exact, exact)
    judge = (
        metrics.silhouette_score
        if eval_type == "SILHOUETTE_SCORE"
        else metrics.calinski_harabasz_score
    )
    assert result["score"] == pytest.approx(judge(exact, exact.argmax(axis=1)))
    assert (result["score"], result["agreement"]) == (result["score_without_noise"], 1)
    assert sum(result["clusters"].values()) == 300
    assert len(result["clusters"]) == 3


@pytest.mark.parametrize("eval_type", clustering.SCORES[1:])
def test_the_order_of_reports_changes_no_bit_of_a_score(eval_type):
    source = np.random.default_rng(1)
    vectors = np.round(source.normal(size=(24, 3)) * 1000) / 1024
    orders = [source.permutation(24) for _ in range(50)]
    labels = vectors.argmax(axis=1)
    assert (
        len({clustering.score(eval_type, vectors[order], labels[order]) for order in orders}) == 1
    )


def test_one_cluster_has_no_score():
    assert clustering.score("SILHOUETTE_SCORE", np.zeros((5, 2)), [1] * 5) is None
    assert clustering.score("SILHOUETTE_SCORE", np.zeros((3, 2)), [0, 1, 2]) is None
    assert clustering.score("NOT_EVAL", np.zeros((4, 2)), [0, 1, 0, 1]) is None


def test_without_exact_vectors_there_is_no_exact_score_and_no_agreement():
    parameters, exponent, features = _clients(50)
    vectors = probabilities(parameters, exponent, features) / 16384
    result = clustering.cluster(clustering.SILHOUETTE_SCORE, vectors)
    assert (result["score_without_noise"], result["agreement"]) == (None, None)
    assert result["score"] is not None


@pytest.mark.parametrize("name", ["iris", "wine"])
def test_rounding_does_not_change_the_predictions_of_the_classifier(name):
    from sklearn.linear_model import LogisticRegression

    dataset = bundled.multiclass(name)
    classifier = classifiers.trained(dataset)
    mantissas, exponent = classifier.mantissas, classifier.exponent
    assert np.abs(mantissas.astype(int)).max() <= 32767
    labels = probabilities(mantissas, exponent, dataset.features[dataset.test]).argmax(axis=1)
    model = LogisticRegression(C=1.0, fit_intercept=False, max_iter=2000)
    x = dataset.features / 16384
    model.fit(x[dataset.training], dataset.labels[dataset.training])
    assert np.mean(labels == model.predict(x[dataset.test])) > 0.97


def test_two_classes_have_a_row_each():
    dataset = clustering.load("breast-cancer")
    mantissas = classifiers.trained(dataset).mantissas
    assert mantissas.shape == (2, dataset.dimension)
    assert (mantissas[0] == 0).all()
