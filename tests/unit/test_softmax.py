"""Protected inference: the device's results, the true epsilon of MindSpore's setting, clusters and scores."""

import math
from array import array
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from simulating import finished
from sklearn import metrics
from sklearn.linear_model import LogisticRegression

from tern import card as cards
from tern.inference import Classifier
from tern.streams import Replay
from ternhost.count import estimate
from ternhost.datasets import bundled
from ternhost.errors import UsageError
from ternhost.learn import softmax
from ternhost.learn.base import Population
from ternhost.learn.infer import Infer, Options
from ternhost.privacy import certify
from ternhost.vectorised import RandomLanes, ReplayLanes, probabilities, random_bits, sample


def _clients(n: int, seed: int = 1) -> tuple[np.ndarray, int, np.ndarray]:
    """A model of 3 classes and rows of 2 features in three heaps."""
    rng = np.random.default_rng(seed)
    centres = np.array([[0.7, 0], [-0.6, 0.5], [-0.6, -0.5]])
    x = centres[rng.integers(0, 3, n)] + rng.normal(0, 0.1, (n, 2))
    features = (np.clip(x, -1, 1) * 16384).astype(np.int16)
    return (centres * 8 * 4095).astype(np.int16), -12, features


def _noised(
    card: cards.Card, lanes: Any, parameters: np.ndarray, exponent: int, rows: np.ndarray
) -> np.ndarray:
    """The symbols that clients send: of each class's probability, one after the other."""
    return sample(card, lanes, probabilities(parameters, exponent, rows, card.grid_bits))


def _evaluate(
    epsilon: int | None,
    parameters: np.ndarray,
    exponent: int,
    rows: np.ndarray,
    eval_type: str = softmax.SILHOUETTE_SCORE,
) -> dict[str, Any]:
    """An evaluation of simulated clients at a true epsilon (micro), or without noise."""
    exact = probabilities(parameters, exponent, rows) / 16384
    if epsilon is None:
        return softmax.cluster(eval_type, exact, exact)
    card = cards.decode(softmax.noise_card(epsilon))
    symbols = _noised(card, RandomLanes(random_bits(1), len(rows)), parameters, exponent, rows)
    return softmax.cluster(eval_type, estimate.symbol_values(card)[symbols], exact)


@pytest.mark.parametrize("grid_bits", [14, 10, 4])
@pytest.mark.parametrize(("classes", "features"), [(2, 1), (3, 28), (10, 64), (128, 3)])
def test_probabilities_are_the_devices(classes: int, features: int, grid_bits: int) -> None:
    rng = np.random.default_rng(classes)
    for exponent in (-12, -18, -30):
        parameters = rng.integers(-32768, 32768, (classes, features))
        rows = rng.integers(-32768, 32768, (30, features)).astype(np.int16)
        found = probabilities(parameters, exponent, rows, grid_bits)
        device = Classifier(array("h", parameters.reshape(-1).tolist()), exponent, classes)
        out = array("h", bytes(2 * classes))
        for row, p in zip(rows, found, strict=True):
            device.probabilities(array("h", row.tolist()), out, grid_bits)
            assert p.tolist() == list(out)
        assert found.sum(axis=1).max() <= 16384


def test_noised_results_are_the_devices() -> None:
    parameters, exponent, features = _clients(40)
    card = cards.decode(softmax.noise_card(2_000_000))
    streams = np.random.default_rng(2).integers(0, 256, (40, 3000), np.uint8)
    found = _noised(card, ReplayLanes(streams), parameters, exponent, features)
    device = Classifier(array("h", parameters.reshape(-1).tolist()), exponent, 3)
    for i in range(40):
        out = array("H", bytes(6))
        device.noised(card, Replay(streams[i].tobytes()), array("h", features[i].tolist()), out)
        assert found[i].tolist() == list(out)


@pytest.mark.parametrize("epsilon", [2_000, 100_000, 1_000_000, 3_141_593, 20_000_000])
def test_the_card_keeps_its_epsilon_for_whole_vectors(epsilon: int) -> None:
    card = cards.decode(softmax.noise_card(epsilon))
    assert cards.certify(card, epsilon)
    # no slack worth speaking of: noise of scale 2 / epsilon
    scale = Fraction(card.t, card.s) / (1 << card.grid_bits)
    assert scale == pytest.approx(2e6 / epsilon, rel=0.002)
    if epsilon >= 100_000:
        assert not cards.certify(card, math.floor(epsilon * 0.998))


def test_the_loss_of_two_opposite_vectors_is_the_epsilon() -> None:
    # (1, 0) against (0, 1): the worst outputs have probabilities whose ratio is e**epsilon, no more
    card = cards.decode(softmax.noise_card(8_000_000))
    zero, one = certify.at_knot(card, 1 << card.grid_bits), certify.at_knot(card, 2 << card.grid_bits)
    worst = max(p / q for p, q in zip(one, zero, strict=True))
    assert 2 * math.log(worst) <= 8
    assert 2 * math.log(worst) == pytest.approx(8, rel=0.002)


def test_too_small_an_epsilon() -> None:
    with pytest.raises(UsageError, match="too small"):
        softmax.noise_card(10)


def test_noise_is_unbiased() -> None:
    parameters, exponent, features = _clients(1)
    card = cards.decode(softmax.noise_card(4_000_000))
    rows = np.repeat(features, 100_000, axis=0)
    symbols = _noised(card, RandomLanes(random_bits(4), len(rows)), parameters, exponent, rows)
    values = estimate.symbol_values(card)[symbols]
    exact = probabilities(parameters, exponent, features, card.grid_bits)[0] / 16384
    assert abs(values.mean(axis=0) - exact).max() < 5 * math.sqrt(2) * 0.5 / math.sqrt(100_000)
    assert values.std(axis=0) == pytest.approx(math.sqrt(2) * 0.5, rel=0.02)


def test_the_setting_means_twice_its_epsilon() -> None:
    assert Options(laplace_eval_eps="0.75").classes() == [(1_500_000, 1.0)]
    assert Options(epsilon="1.5").classes() == [(1_500_000, 1.0)]
    assert Options(privacy_eval_type=softmax.NOT_ENCRYPT).epsilon is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"privacy_eval_type": "RSA"},
        {"eval_type": "ACCURACY"},
        {"cluster_client_num": 1},
        {"laplace_eval_eps": "230260"},
        {"laplace_eval_eps": "much"},
        {"laplace_eval_eps": "-1"},
    ],
)
def test_options_that_cannot_be(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Options(**wrong)


@pytest.mark.parametrize("eval_type", ["SILHOUETTE_SCORE", "CALINSKI_HARABASZ", "CALINSKI_HARABASZ_SCORE"])
def test_scores_without_noise_are_scikit_learns(eval_type: str) -> None:
    parameters, exponent, features = _clients(300)
    found = _evaluate(None, parameters, exponent, features, eval_type)
    exact = probabilities(parameters, exponent, features) / 16384
    judge = metrics.silhouette_score if eval_type == "SILHOUETTE_SCORE" else metrics.calinski_harabasz_score
    assert found["score"] == found["score_without_noise"] == pytest.approx(judge(exact, exact.argmax(axis=1)))
    assert found["agreement"] == 1
    assert sum(found["clusters"].values()) == 300
    assert len(found["clusters"]) == 3


def test_less_noise_scores_better() -> None:
    parameters, exponent, features = _clients(1000)
    scores = []
    for epsilon in (1_000_000, 8_000_000, 20_000_000):
        found = _evaluate(epsilon, parameters, exponent, features)
        scores.append((found["score"], found["agreement"]))
    assert scores == sorted(scores)
    assert scores[-1][1] > 0.95
    assert found["score"] < found["score_without_noise"]


def test_the_result_shows_the_true_epsilon() -> None:
    learner = Infer(Options(laplace_eval_eps="2"), Population(clients=50))
    found = finished(learner).result([])
    assert found["laplace_eval_eps"] == 2
    assert found["epsilon_true"] == 4
    assert found["accounting"]["epsilon_user_level"] == 4


@pytest.mark.parametrize("eval_type", [softmax.SILHOUETTE_SCORE, softmax.CALINSKI_HARABASZ_SCORE])
def test_the_order_of_reports_changes_no_bit_of_a_score(eval_type: str) -> None:
    source = np.random.default_rng(1)
    vectors = np.round(source.normal(size=(24, 3)) * 1000) / 1024
    orders = [source.permutation(24) for _ in range(50)]
    assert len({softmax.score(eval_type, vectors[own], vectors[own].argmax(axis=1)) for own in orders}) == 1


def test_one_cluster_has_no_score() -> None:
    assert softmax.score("SILHOUETTE_SCORE", np.zeros((5, 2)), [1] * 5) is None
    assert softmax.score("SILHOUETTE_SCORE", np.zeros((3, 2)), [0, 1, 2]) is None
    assert softmax.score("NOT_EVAL", np.zeros((4, 2)), [0, 1, 0, 1]) is None


def test_what_is_not_known_of_the_clients_is_not_told() -> None:
    parameters, exponent, features = _clients(50)
    vectors = probabilities(parameters, exponent, features) / 16384
    found = softmax.cluster(softmax.SILHOUETTE_SCORE, vectors)
    assert (found["score_without_noise"], found["agreement"]) == (None, None)
    assert found["score"] is not None


@pytest.mark.parametrize("load", [bundled.iris, bundled.wine])
def test_the_classifier_is_as_good_as_it_was_before_it_was_rounded(load: Any) -> None:
    dataset = load()
    weights = softmax.train_classifier(dataset)
    assert np.abs(weights.mantissas.astype(int)).max() <= 32767
    rows = dataset.features[dataset.test]
    found = probabilities(weights.mantissas, weights.exponent, rows).argmax(axis=1)
    model = LogisticRegression(C=1.0, fit_intercept=False, max_iter=2000)
    x = dataset.features / 16384
    model.fit(x[dataset.training], dataset.labels[dataset.training])
    assert np.mean(found == model.predict(x[dataset.test])) > 0.97


def test_two_classes_have_a_row_each() -> None:
    dataset = softmax.load("breast-cancer")
    weights = softmax.train_classifier(dataset)
    assert weights.mantissas.shape == (2, dataset.dimension)
    assert (weights.mantissas[0] == 0).all()
    with pytest.raises(UsageError, match="has no classes"):
        softmax.load("diabetes")
