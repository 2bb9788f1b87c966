"""`tern infer`: what it asks and costs, what it computes, and the runs whose models it takes."""

import json
from fractions import Fraction

import numpy as np
import pytest
from simulating import ask, begin, fleet_of, run

from tern import card as cards
from tern import wire
from ternhost import datasets
from ternhost.count.rounds import COMPLETE, RoundResult
from ternhost.errors import UsageError
from ternhost.learn.base import Population
from ternhost.learn.inference import clustering
from ternhost.learn.inference.infer import Infer, Options
from ternhost.privacy import certify
from ternhost.run import costs

pytestmark = pytest.mark.usefixtures("here")

MICRO = 1_000_000
IRIS_CLIENTS = 75  # half of its records: the others teach the classifier


# The question and its cost


def test_a_label_is_asked_for_by_a_window_over_the_classes_and_costs_its_epsilon_once():
    algorithm = begin("infer", IRIS_CLIENTS, epsilon="4", answer="label")
    ((question, _),) = algorithm.cohorts(range(1, 76))
    card = cards.decode(question.card)
    assert (question.model, question.k, question.classes) == (wire.SOFTMAX, 1, 3)
    assert (card.shape, card.window, card.symbols) == (cards.WINDOW, 1, 3)
    assert costs.accounts(algorithm, None)[0].user_level == card.epsilon


# Held-out records: clients classify them, and the others train the classifier


@pytest.mark.parametrize("answer", ["label", "vector"])
@pytest.mark.parametrize("held_out", [0.999, 0.98, 0.003, 0.007])
def test_too_few_records_to_train_or_to_classify_are_refused(held_out, answer):
    """Of the 150 records of iris, 0 and 3 train the classifier, and clients get 0 and 1."""
    with pytest.raises(UsageError):
        begin("infer", 2, epsilon="4", held_out=held_out, answer=answer)


# How many clients are asked


@pytest.mark.parametrize(("wanted", "asked"), [(0, 75), (40, 40), (75, 75), (1000, 75)])
def test_clients_are_the_most_that_are_asked(wanted, asked):
    algorithm = begin("infer", IRIS_CLIENTS, epsilon="4", answer="label", clients=wanted)
    ((_, devices),) = algorithm.cohorts(range(1, 76))
    assert len(devices) == asked == algorithm.reports


@pytest.mark.parametrize(("wanted", "is_said"), [(0, False), (75, False), (1000, True)])
def test_a_run_says_if_there_are_fewer_clients_than_it_was_to_ask(wanted, is_said):
    algorithm = begin("infer", IRIS_CLIENTS, epsilon="4", answer="label", clients=wanted)
    assert any("--clients" in note for note in algorithm.notes) == is_said


# Results


def test_a_simulated_run_shows_its_score_and_the_exact_one():
    result = run("infer", "simulated:600", data="wine", epsilon="20", clients=500)
    assert result["reports"] == 500
    assert result["epsilon_paid"] <= result["epsilon"] == 20
    assert result["score_without_noise"] > 0.7 > result["score"] > 0.4
    assert result["agreement"] > 0.95


def test_the_agreement_counts_only_clients_that_reported():
    """Each client classifies a record of its own and reports the probabilities of the classes,
    under noise. The agreement is the share of clients for which the report gives the same class as
    without noise: of those that reported, here 40. It would be a third if reports were compared
    with other clients' results.
    """
    algorithm = begin("infer", IRIS_CLIENTS, epsilon="20", data="wine", held_out=0.5)
    driver = fleet_of(algorithm)
    ((question, devices),) = algorithm.cohorts(driver.devices)
    reporting = np.random.default_rng(1).permutation(np.asarray(devices))[:40]

    algorithm.learn(ask(driver, [(question, reporting)]), driver.devices)

    result = algorithm.result([])
    assert result["clients"] == 40
    assert result["agreement"] > 0.9


def test_a_round_without_a_report_is_no_result():
    algorithm = begin("infer", IRIS_CLIENTS)
    algorithm.learn(RoundResult(1, COMPLETE, IRIS_CLIENTS, 0, {}, []), range(1, 76))
    assert algorithm.done
    result = algorithm.result([])
    assert (result["clients"], result["score"], result["clusters"]) == (0, None, {})


# Probabilities and scores


@pytest.mark.parametrize("epsilon", [2_000, 3_141_593, 20 * MICRO])
def test_the_card_keeps_its_epsilon_for_whole_vectors(epsilon):
    card = cards.decode(clustering.noise_card(epsilon))
    assert cards.certify(card, epsilon)
    assert certify.bias(card) == 0
    scale = Fraction(card.t, card.s) / (1 << card.grid_bits)
    assert scale == pytest.approx(2 * MICRO / epsilon, rel=0.002)  # of two entries that change by 1


@pytest.fixture
def vectors():
    """Probabilities of three classes, of 300 clients in three heaps."""
    random = np.random.default_rng(1)
    scores = 4 * np.eye(3)[random.integers(0, 3, 300)] + random.normal(size=(300, 3))
    return np.exp(scores) / np.exp(scores).sum(axis=1)[:, None]


@pytest.mark.parametrize(
    ("score", "judge"),
    [("silhouette", "silhouette_score"), ("calinski-harabasz", "calinski_harabasz_score")],
)
def test_scores_without_noise_equal_those_of_scikit_learn(vectors, score, judge):
    from sklearn import metrics

    result = clustering.cluster(score, vectors, vectors)
    expected = getattr(metrics, judge)(vectors, vectors.argmax(axis=1))
    assert result["score"] == result["score_without_noise"] == pytest.approx(expected)


# Less noise than devices add


def test_a_simulation_has_noise_that_protects_nothing_and_says_so():
    result = run("infer", "simulated:75", epsilon="460520")
    assert result["epsilon"] == 460_520
    assert (result["reports"], result["protects"]) == (0, None)
    assert 0 < abs(result["score"] - result["score_without_noise"]) < 1e-4
    assert "protects nothing" in "\n".join(Infer.summary(result))


def test_a_device_accepts_an_epsilon_of_20_and_no_more():
    at_most = begin("infer", IRIS_CLIENTS, epsilon="20")
    assert at_most.designs[0].epsilon == 20 * MICRO
    with pytest.raises(UsageError, match=r"epsilon of 20\.2, above 20"):
        Infer(Options(epsilon="20.2"), Population())


@pytest.mark.parametrize(("measure", "score"), [("silhouette", 0.715), ("silhouette-self", 0.726)])
def test_a_silhouette_may_count_a_point_itself(measure, score):
    result = run("infer", "simulated:75", no_noise=True, score=measure)
    assert result["score"] == pytest.approx(score, abs=5e-4)
    assert (result["epsilon"], result["reports"]) == (None, 0)


# The model of a run


@pytest.fixture
def learned(here):
    """The result of a run of ten rounds on iris, of softmax regression."""
    options = {"data": "iris", "model": "softmax", "epsilon": "8", "reports": 2000, "group": 200}
    return run("fedsgd", "simulated:2000", **options)


def test_the_model_of_a_run_classifies_the_records_that_it_held_out(learned):
    algorithm = begin("infer", 15, classifier=learned["directory"], epsilon="8")
    ((question, _),) = algorithm.cohorts(range(1, 16))
    weights = np.array(question.parameters) * 2.0**question.exponent
    assert weights == pytest.approx(learned["weights"])
    assert set(algorithm.holdings.order) == set(datasets.load("iris").test)
    assert algorithm.rounds == 1


def test_the_models_of_several_rounds_are_scored_against_their_loss(learned):
    options = {"classifier": learned["directory"], "score_rounds": 4, "epsilon": "20"}
    result = run("infer", "simulated:15", **options)
    losses = {entry["round"]: entry["log_loss"] for entry in learned["history"]}
    scored = (1, 4, 7, 10)  # four of ten rounds
    assert [row["loss"] for row in result["scores"]] == pytest.approx([losses[i] for i in scored])
    assert result["epsilon_paid"] == pytest.approx(4 * 20, rel=1e-3)  # each model costs a report


def test_the_model_of_a_run_on_other_data_is_refused(learned):
    with pytest.raises(UsageError, match="is of other data than wine"):
        begin("infer", 15, classifier=learned["directory"], data="wine")


@pytest.mark.parametrize(
    "change", [{"history": [1]}, {"weights": [float("nan")] * 15}], ids=["history", "weights"]
)
def test_a_file_that_is_not_the_result_of_a_run_is_refused(learned, here, change):
    (here / "changed.json").write_text(json.dumps({**learned, **change}))
    with pytest.raises(UsageError, match="learned a model"):
        begin("infer", 15, classifier="changed.json")
