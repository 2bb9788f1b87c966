"""MindSpore Federated's guide to the protection of inference results: the law of its noise, and the
score of clusters while a model learns, and by epsilon.

The guide's noise has the scale 1 / laplace_eval_eps, which costs twice laplace_eval_eps. Its
silhouette counts the distance of a result to itself.
"""

import math
from collections.abc import Sequence

import numpy as np

from tern.fixed import ONE
from ternhost.datasets import Floats, held_out
from ternhost.learn import clustering
from ternhost.learn.base import Population
from ternhost.learn.clustering import CALINSKI_HARABASZ, SILHOUETTE_SCORE, SILHOUETTE_WITH_ITSELF
from ternhost.learn.infer import Infer
from ternhost.planning.cells import Cell, Row
from ternhost.planning.simulation import repeated
from ternhost.planning.statistics import pick
from ternpapers import baseline
from ternpapers.base import Options
from ternpapers.figure import NO_NOISE, RUNS, Axis, Figure, Trends
from ternpapers.formula import curves, formula

_DATASET = "digits"
_GUIDE = 230_260  # laplace_eval_eps of the guide: noise of at most 1e-5 with probability .9
_STEPS, _RATE = 40, 0.25  # of gradient descent
_CLIENTS = 1000


def _densities() -> list[Row]:
    rows = []
    for setting in (1, 8, _GUIDE):

        def law(x: float, setting: int = setting) -> float:
            return setting / 2 * math.exp(-abs(x) * setting)

        xs = (np.linspace(-5, 5, 201) / setting).tolist()
        rows += curves(f"laplace_eval_eps {setting}", "x", "density", {"noise": law}, xs)
    return rows


def _learning(options: Options) -> list[Cell]:
    name = options.dataset or _DATASET
    clustering.load(name)  # raises if it cannot be loaded
    common = {"name": name, "seeds": options.seeds(5, 2, paper=20)}
    types = (SILHOUETTE_SCORE, SILHOUETTE_WITH_ITSELF)
    return Cell.each(RUNS, _learned, common, setting=(None, _GUIDE, 8), eval_type=types)


def _learned(name: str, setting: int | None, eval_type: str, seeds: Sequence[int]) -> list[Row]:
    """The score of the held-out records' probabilities, with noise, after each step of softmax
    regression.
    """
    data = clustering.load(name)
    data = data.divided(held_out(len(data.labels), 0.5))
    x, y = (
        data.features[data.training] / ONE,
        np.unique(data.labels, return_inverse=True)[1][data.training],
    )
    classes = np.eye(int(y.max()) + 1)[y]
    rows: list[Row] = []
    for i, seed in enumerate(seeds):
        rng = baseline.generator(seed)
        clients = data.features[rng.permutation(data.test)[:_CLIENTS]] / ONE
        weights = np.zeros((x.shape[1], classes.shape[1]))
        for _ in range(_STEPS):
            means = _probabilities(x @ weights)
            weights -= _RATE * x.T @ (means - classes) / len(x)
            loss = -float(np.log(_probabilities(x @ weights)[np.arange(len(y)), y]).mean())
            told = _probabilities(clients @ weights)
            if setting:
                told = told + rng.laplace(0, 1 / setting, told.shape)
            found = clustering.cluster(eval_type, told, None)
            curve = f"laplace_eval_eps {setting}" if setting else NO_NOISE
            score = {"loss": round(loss, 9), "score": found["score"] or 0.0}
            rows.append({"panel": eval_type, "curve": curve, "run": i, **score})
    return rows


def _probabilities(scores: Floats) -> Floats:
    each = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(each / each.sum(axis=1, keepdims=True))


def _as_the_guide(rows: Sequence[Row]) -> Trends:
    chosen = pick(rows, panel=SILHOUETTE_SCORE)
    of_guide, exact = (
        [row["score"] for row in pick(chosen, curve=curve)]
        for curve in (f"laplace_eval_eps {_GUIDE}", NO_NOISE)
    )
    return {
        "the score rises as the loss falls": of_guide[-1] > of_guide[0],
        "noise of the guide's setting changes no score": bool(
            np.allclose(of_guide, exact, atol=1e-3)
        ),
    }


def _by_epsilon(options: Options) -> list[Cell]:
    name = options.dataset or _DATASET
    clustering.load(name)  # raises if it cannot be loaded
    common = {"name": name, "seeds": options.seeds(10, 2)}
    settings = ("0.25", "0.5", "1", "2", "3", "4", "6", "8", "10")
    return Cell.each(
        RUNS, _inferred, common, eval_type=(SILHOUETTE_SCORE, CALINSKI_HARABASZ), setting=settings
    )


def _inferred(name: str, eval_type: str, setting: str, seeds: range) -> list[Row]:
    """The score of the clusters of what devices report, and the share of clients that keep their
    cluster.
    """
    options = Infer.Options(
        dataset=name, laplace_eval_eps=setting, eval_type=eval_type, seed=seeds[0]
    )
    rows: list[Row] = []
    for i, algorithm in enumerate(repeated(Infer(options, Population()), seeds)):
        result = algorithm.result([])
        row = {"epsilon": result["epsilon_true"], "run": i}
        rows.append(
            {"panel": eval_type, "curve": "with noise", "score": result["score"] or 0.0, **row}
        )
        rows.append(
            {"panel": eval_type, "curve": NO_NOISE, "score": result["score_without_noise"], **row}
        )
        if eval_type == SILHOUETTE_SCORE:
            row |= {"panel": "share of clients in the same cluster", "curve": "with noise"}
            rows.append({**row, "score": result["agreement"] or 0.0})
    return rows


_LOSS, _SCORE = Axis("loss", "log-loss of the model"), Axis("score", "score", larger=True)
_EPSILON = Axis("epsilon", "true epsilon of a result (twice laplace_eval_eps)", log=True)
FIGURES: dict[str, Figure] = {
    "pdf": formula(
        "density of the noise",
        Axis("x", "noise of a probability"),
        Axis("density", "density"),
        _densities,
    ),
    "silhouette": Figure(
        "score of clusters against the loss, while a model learns",
        _LOSS,
        _SCORE,
        _learning,
        trends=_as_the_guide,
    ),
    "epsilons": Figure("score of clusters by epsilon", _EPSILON, _SCORE, _by_epsilon, columns=3),
}
