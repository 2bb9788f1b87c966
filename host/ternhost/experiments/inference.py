"""Protected inference: scores of clusters of noisy class probabilities against the true epsilon of a result.

A softmax classifier, trained beforehand on the training records and known to all, classifies a record on each client.
"""

from __future__ import annotations

from ternhost.algorithms import inference as system
from ternhost.algorithms.inference import CALINSKI_HARABASZ, SILHOUETTE_SCORE, Settings
from ternhost.experiments.base import Curve, Options, Outcome, Panel, Row, draw, mean_and_error

SUMMARY = "cluster scores of protected inference results against the true epsilon"


def run(options: Options) -> Outcome:
    name = options.dataset or "digits"
    dataset = system.load(name)
    weights = system.train_classifier(dataset)
    parameters, exponent = weights.mantissas, weights.exponent
    clients = len(dataset.features)
    features = dataset.features
    if clients > 2000:
        features = features[dataset.test][:2000]
        clients = len(features)
    runs = options.runs_or(10, 2)
    rows: list[Row] = []
    for eval_type in (SILHOUETTE_SCORE, CALINSKI_HARABASZ):
        for eps in (
            ("0.5", "2", "8") if options.quick else ("0.25", "0.5", "1", "2", "3", "4", "6", "8", "10")
        ):
            options.progress(f"{eval_type}, laplace_eval_eps {eps}")
            settings = Settings(laplace_eval_eps=eps, cluster_client_num=clients, eval_type=eval_type)
            found = [
                system.evaluate(settings, parameters, exponent, features, options.seed + i)
                for i in range(runs)
            ]
            mean, error = mean_and_error([result.score or 0.0 for result in found])
            agreement, agreement_error = mean_and_error([result.agreement or 0.0 for result in found])
            assert settings.epsilon is not None
            rows.append(
                {
                    "data": name,
                    "clients": clients,
                    "eval_type": eval_type,
                    "laplace_eval_eps": float(eps),
                    "epsilon_true": settings.epsilon / 1e6,
                    "score": mean,
                    "standard_error": error,
                    "score_without_noise": found[0].score_without_noise,
                    "agreement": agreement,
                    "agreement_standard_error": agreement_error,
                    "runs": runs,
                }
            )
    panels = [
        Panel(
            f"{eval_type}: {clients:,} clients of {name}",
            "true epsilon of a result (twice laplace_eval_eps)",
            "score",
            [
                _curve(
                    "under noise",
                    [row for row in rows if row["eval_type"] == eval_type],
                    "score",
                    "standard_error",
                )
            ],
            log_x=True,
            log_y=eval_type == CALINSKI_HARABASZ,
            lines={
                "without noise": next(r["score_without_noise"] for r in rows if r["eval_type"] == eval_type)
            },
        )
        for eval_type in (SILHOUETTE_SCORE, CALINSKI_HARABASZ)
    ]
    first = [row for row in rows if row["eval_type"] == SILHOUETTE_SCORE]
    panels.append(
        Panel(
            "Clients that keep the cluster of their noiseless result",
            "true epsilon of a result (twice laplace_eval_eps)",
            "share of clients",
            [_curve("under noise", first, "agreement", "agreement_standard_error")],
            log_x=True,
        )
    )
    return Outcome(
        "inference",
        {"dataset": name, "clients": clients, "runs": runs, "classes": len(parameters)},
        {"inference": rows},
        {"inference": draw(panels)},
        [
            f"{row['eval_type']}, true epsilon {row['epsilon_true']:g} (laplace_eval_eps {row['laplace_eval_eps']:g}): "
            f"{row['score']:.4g}, {row['score_without_noise']:.4g} without noise"
            for row in rows
        ],
    )


def _curve(label: str, rows: list[Row], what: str, error: str) -> Curve:
    return Curve(
        label,
        [row["epsilon_true"] for row in rows],
        [row[what] for row in rows],
        [row[error] for row in rows],
    )
