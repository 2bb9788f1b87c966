"""Figures of MindSpore Federated's guide to the protection of inference results.

They show the density of its noise, and how well results can be clustered, while a model learns and
by epsilon. A client's result is the probabilities of classes that a model gives to its record.

The guide's noise has the scale 1 / laplace_eval_eps, which costs twice laplace_eval_eps. Its
silhouette counts the distance of a result to itself.
"""

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
from scipy.integrate import trapezoid

from tern.fixed import ONE
from ternhost.datasets import Floats, Indices, held_out
from ternhost.learn.base import Population
from ternhost.learn.inference import clustering
from ternhost.learn.inference.clustering import CALINSKI_HARABASZ, SILHOUETTE, SILHOUETTE_SELF
from ternhost.learn.inference.infer import Infer
from ternhost.planning.cells import Cell, Row
from ternhost.planning.simulation import repeated
from ternhost.planning.statistics import grouped, pick
from ternpapers import baseline
from ternpapers.base import Options
from ternpapers.datasets import stand_ins
from ternpapers.figure import NO_NOISE, RUNS, Axis, Figure
from ternpapers.formula import curves, figure_of_formula
from ternpapers.mindspore_settings import true_epsilon
from ternpapers.verdicts import Verdict, every

_GUIDE = 230_260  # laplace_eval_eps of the guide: noise of at most 1e-5 with probability .9
_NOISE, _PROBABILITY = 1e-5, 0.9
_TOLERANCE = 0.005  # of a probability that is integrated on a grid
_GUIDE_CURVE = f"laplace_eval_eps {_GUIDE}"
_STEPS, _RATE = 40, 0.25  # the steps and the learning rate of gradient descent
_CLIENTS = 1000
_WITH_NOISE = "with noise"  # a curve
_AGREEMENT = "share of clients in the same cluster"  # a panel


def _densities() -> list[Row]:
    """Return the density of the noise at three settings, within five of its scales."""
    rows = []
    for setting in (1, 8, _GUIDE):
        xs = (np.linspace(-5, 5, 201) / setting).tolist()
        laws = {"noise": partial(_laplace_density, setting)}
        rows += curves(f"laplace_eval_eps {setting}", "x", "density", laws, xs)
    return rows


def _laplace_density(setting: int, x: float) -> float:
    """Return the density at x of Laplace noise of scale 1 / setting."""
    return setting / 2 * math.exp(-abs(x) * setting)


def _is_small_enough(rows: Sequence[Row]) -> Verdict:
    """Test whether the noise of the guide's setting is at most 1e-5 with a probability of 0.9."""
    guide_rows = pick(rows, panel=_GUIDE_CURVE)
    small = [row for row in guide_rows if abs(row["x"]) <= _NOISE]
    densities = [row["density"] for row in small]
    probability = float(trapezoid(densities, [row["x"] for row in small]))
    return Verdict(
        abs(probability - _PROBABILITY) < _TOLERANCE, f"the probability is {probability:.3f}"
    )


def _learning(options: Options) -> list[Cell]:
    """Return the cells of scores while a model learns, by setting of the noise and kind of score."""
    name = options.data or stand_ins.PICTURES
    clustering.load(name)  # raises if it cannot be loaded
    return Cell.for_each_combination(
        table=RUNS,
        work=_learned,
        common={"name": name, "seeds": options.seeds(default=5, quick=2, paper=20)},
        setting=(None, _GUIDE, 8),
        score_name=(SILHOUETTE, SILHOUETTE_SELF),
    )


def _learned(name: str, setting: int | None, score_name: str, seeds: Sequence[int]) -> list[Row]:
    """Train a softmax regression, and return the score of clusters of results after each step.

    The results are the noisy probabilities of held-out records, one of each client. name: the data
    set. setting: laplace_eval_eps of the noise; None for no noise. score_name: the kind of score.
    """
    data = clustering.load(name)
    data = data.divided(held_out(len(data.labels), 0.5))
    features = data.features[data.training] / ONE
    _, codes = np.unique(data.labels, return_inverse=True)  # classes counted from 0
    labels = codes[data.training]
    one_hot = np.eye(int(labels.max()) + 1)[labels]  # records x classes
    curve = NO_NOISE
    if setting:
        curve = f"laplace_eval_eps {setting}"

    rows: list[Row] = []
    for run, seed in enumerate(seeds):
        rng = baseline.generator(seed)
        records = rng.permutation(data.test)[:_CLIENTS]  # one of each client
        clients = data.features[records] / ONE
        weights = np.zeros((features.shape[1], one_hot.shape[1]))
        for _ in range(_STEPS):
            # The gradient of the log-loss is X^T (P - Y) / n.
            probabilities = _probabilities(features @ weights)
            weights -= _RATE * features.T @ (probabilities - one_hot) / len(features)
            loss = _log_loss(features @ weights, labels)

            results = _probabilities(clients @ weights)
            if setting:
                results = results + rng.laplace(0, 1 / setting, results.shape)
            score = clustering.cluster(score_name, results, None)["score"]
            row = {"panel": score_name, "curve": curve, "run": run}
            # Clusters that cannot be judged have no score.
            rows.append({**row, "loss": round(loss, 9), "score": score or 0.0})
    return rows


def _probabilities(scores: Floats) -> Floats:
    """Return the softmax of scores (n x classes), without overflow."""
    exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis=1, keepdims=True))


def _log_loss(scores: Floats, labels: Indices) -> float:
    """Return the mean log-loss of softmax scores (n x classes)."""
    probability_of_label = _probabilities(scores)[np.arange(len(labels)), labels]
    return -float(np.log(probability_of_label).mean())


def _scores(rows: Sequence[Row], curve: str) -> list[list[float]]:
    """Return the silhouette scores of a curve in each run, from the worst model on."""
    runs = grouped(pick(rows, panel=SILHOUETTE, curve=curve), "run").values()
    return [[row["score"] for row in run] for run in runs]


def _rises(rows: Sequence[Row]) -> Verdict:
    """Test whether the score is higher for the best model than for the worst one, in every run."""
    return every(scores[-1] > scores[0] for scores in _scores(rows, _GUIDE_CURVE))


def _is_unchanged(rows: Sequence[Row]) -> Verdict:
    """Test whether the noise of the guide's setting changes no score."""
    scores = _scores(rows, _GUIDE_CURVE)
    return Verdict(bool(np.allclose(scores, _scores(rows, NO_NOISE), atol=1e-3)))


def _by_epsilon(options: Options) -> list[Cell]:
    """Return the cells of scores by epsilon, for two kinds of score."""
    name = options.data or stand_ins.PICTURES
    clustering.load(name)  # raises if it cannot be loaded
    return Cell.for_each_combination(
        table=RUNS,
        work=_inferred,
        common={"name": name, "seeds": options.seeds(default=10, quick=2)},
        score_name=(SILHOUETTE, CALINSKI_HARABASZ),
        setting=("0.25", "0.5", "1", "2", "3", "4", "6", "8", "10"),
    )


def _inferred(name: str, score_name: str, setting: str, seeds: range) -> list[Row]:
    """Return the score of the clusters of devices' results, with and without noise, in each run.

    With the silhouette, there is also the share of clients that keep their cluster in spite of the
    noise. setting: laplace_eval_eps of the noise. score_name: the kind of score.
    """
    epsilon = true_epsilon(setting)
    options = Infer.Options(data=name, epsilon=epsilon, score=score_name, seed=seeds[0])
    learner = Infer(options, Population())
    rows: list[Row] = []
    for run, algorithm in enumerate(repeated(learner, seeds)):
        result = algorithm.result([])
        scores = [
            (score_name, _WITH_NOISE, result["score"] or 0.0),
            (score_name, NO_NOISE, result["score_without_noise"]),
        ]
        if score_name == SILHOUETTE:
            scores.append((_AGREEMENT, _WITH_NOISE, result["agreement"] or 0.0))
        for panel, curve, score in scores:
            row = {"panel": panel, "curve": curve, "score": score}
            rows.append({**row, "epsilon": result["epsilon"], "run": run})
    return rows


_LOSS, _SCORE = Axis("loss", "log-loss of the model"), Axis("score", "score", larger=True)
_EPSILON = Axis("epsilon", "true epsilon of a result (twice laplace_eval_eps)", log=True)
FIGURES: dict[str, Figure] = {
    "pdf": figure_of_formula(
        "density of the noise",
        Axis("x", "noise of a probability"),
        Axis("density", "density"),
        _densities,
        {
            "noise of the guide's setting is at most 1e-5 with a probability of 0.9": _is_small_enough
        },
    ),
    "silhouette": Figure(
        "score of clusters against the loss, while a model learns",
        _LOSS,
        _SCORE,
        _learning,
        statements={
            "the score rises as the loss falls": _rises,
            "noise of the guide's setting changes no score": _is_unchanged,
        },
    ),
    "epsilons": Figure("score of clusters by epsilon", _EPSILON, _SCORE, _by_epsilon, columns=3),
}
