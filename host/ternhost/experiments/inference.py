"""Protected inference: scores of clusters of noisy class probabilities by the true epsilon of a result.

Each client classifies a record with a public softmax classifier, trained beforehand on the training records."""

from ternhost.experiments.base import Options, Outcome
from ternhost.experiments.cells import Cell, Row, Tables
from ternhost.experiments.pictures import Curve, Panel, draw
from ternhost.experiments.rounds import repeated
from ternhost.experiments.statistics import averaged, mean_and_error, pick
from ternhost.learn import clustering
from ternhost.learn.base import Population
from ternhost.learn.clustering import CALINSKI_HARABASZ, SILHOUETTE_SCORE
from ternhost.learn.infer import Infer

_SCORES = (SILHOUETTE_SCORE, CALINSKI_HARABASZ)


def cells(options: Options) -> list[Cell]:
    epsilons = ("0.5", "2", "8") if options.quick else ("0.25", "0.5", "1", "2", "3", "4", "6", "8", "10")
    name = options.dataset or "digits"
    clustering.load(name)  # raises if it cannot be loaded
    common = {"name": name, "seeds": options.seeds(10, 2)}
    return Cell.each("inference", _inferred, common, eval_type=_SCORES, eps=epsilons)


def _inferred(name: str, eval_type: str, eps: str, seeds: range) -> list[Row]:
    options = Infer.Options(dataset=name, laplace_eval_eps=eps, eval_type=eval_type, seed=seeds[0])
    results = [algorithm.result([]) for algorithm in repeated(Infer(options, Population()), seeds)]
    agreement, agreement_error = mean_and_error([result["agreement"] or 0.0 for result in results])
    setting = {"data": name, "eval_type": eval_type, "laplace_eval_eps": float(eps)}
    common = {key: results[0][key] for key in ("clients", "classes", "epsilon_true", "score_without_noise")}
    scores = averaged("score", [result["score"] or 0.0 for result in results])
    agreed = {"agreement": agreement, "agreement_standard_error": agreement_error}
    return [{**setting, **common, **scores, **agreed}]


def outcome(options: Options, tables: Tables) -> Outcome:
    rows = tables["inference"]
    x_label = "true epsilon of a result (twice laplace_eval_eps)"
    panels = []
    for eval_type in _SCORES:
        title = f"{eval_type}: {rows[0]['clients']:,} clients of {rows[0]['data']}"
        scored, log_y = pick(rows, eval_type=eval_type), eval_type == CALINSKI_HARABASZ
        curves, lines = [_noisy(scored, "score")], {"without noise": scored[0]["score_without_noise"]}
        panels.append(Panel(title, x_label, "score", curves, log_x=True, log_y=log_y, lines=lines))
    silhouettes = pick(rows, eval_type=SILHOUETTE_SCORE)
    curves = [_noisy(silhouettes, "agreement", "agreement_standard_error")]
    title = "Clients in the same cluster as without noise"
    panels.append(Panel(title, x_label, "share of clients", curves, log_x=True))
    text = "{eval_type}, true epsilon {epsilon_true:g} (laplace_eval_eps {laplace_eval_eps:g}): {score:.4g}, "
    text += "{score_without_noise:.4g} without noise"
    settings = {name: rows[0][name] for name in ("data", "clients", "runs", "classes")}
    told = [text.format(**row) for row in rows]
    return Outcome(settings, {"inference": rows}, {"inference": draw(panels)}, told)


def _noisy(rows: list[Row], figure: str, error: str = "standard_error") -> Curve:
    return Curve.of("with noise", rows, "epsilon_true", figure, error)
