"""The report of a run that has trained a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ternhost.learn.judging import WORDS
from ternhost.run.report import plots
from ternhost.run.report.page import (
    Page,
    Row,
    common_pictures,
    common_results,
    common_settings,
    percent,
    text,
)
from ternhost.text import clipped

_MODELS = {
    "linear": "linear regression",
    "logistic": "logistic regression",
    "svm": "linear SVM",
    "softmax": "softmax regression",
}
_STOPPED = {
    "rounds": "all planned rounds were done",
    "converged": "the gradient had become too small to matter",
    "quorum": "too many rounds in a row had no report",
    None: "it was stopped",
}
_TRIVIAL = {
    "accuracy": "always the majority",
    "auc": "guessing",
    "log_loss": "always the shares of the classes",
    "squared_error": "always the mean",
}
_OPTIMUM = "the same kind of model, fitted to all training records without privacy"
_INTERVAL = "on held-out records; intervals are for records like these"
_MOST_COORDINATES = 40  # in the picture of a gradient


def page(result: Mapping[str, Any]) -> Page:
    """The page of its result."""
    options: Mapping[str, Any] = result["options"]
    title = f"{options['dataset']}, {_MODELS[options['model']]}, {result['mechanism']}"
    prediction = "the sign of the sum of weight times feature"
    if result.get("labels"):
        prediction = "the class with the largest sum of its weights times features"
    elif result["measure"] == "squared_error":
        prediction = "the sum of weight times feature"
    return Page(
        title,
        _lead(result),
        _pictures(result),
        [*_judged(result), *_results(result)],
        _settings(result),
        (
            "<h2>The model</h2>",
            f"<p>A prediction is {prediction}. Features lie in [-1, 1].</p>",
            _weights_of_classes(result["labels"], result["features"], result["weights"])
            if result.get("labels")
            else _weights(result["features"], result["weights"]),
        ),
    )


def _pictures(result: Mapping[str, Any]) -> dict[str, tuple[Figure, str]]:
    k, d = result["k"], result["d"]
    overhead = result["bytes_per_report_float32"] - 4 * d
    return {
        **_curve(result),
        "bytes": (
            plots.frame_bytes(
                {
                    f"this report\n{k} of {d} coordinates": result["bytes_per_report"] - overhead,
                    f"float32 gradient\n{d} coordinates": 4 * d,
                },
                overhead,
            ),
            "What a client sends in a round, beside the plain gradient in the same kind of frame. Header and tag are "
            "the price of knowing who sent it; the content is all that the data decides.",
        ),
        **({"gradient": _gradient(result)} if result["last_gradient"] else {}),
        **common_pictures(
            result,
            result["card"],
            f"{result['mechanism']}, epsilon {result['epsilon_per_client']:.6g}",
            "Read from the clients' own ledgers after the run."
            if result["epsilon_spent"]
            else "One report a client, each at the certified epsilon of its card.",
        ),
    }


def _gradient(result: Mapping[str, Any]) -> tuple[Figure, str]:
    last: Mapping[str, Any] = result["last_gradient"]
    weights = np.abs(result["weights"])
    shown = np.sort(np.argsort(-weights, kind="stable")[:_MOST_COORDINATES])
    mean, low, high = (np.array(last[key], np.float64)[shown] for key in ("mean", "low", "high"))
    features = _coordinates(result)
    which = f" ({len(shown)} of {len(weights)} coordinates, those of the largest weights)"
    return (
        plots.gradient([features[i] for i in shown], mean, low, high, last["confidence"]),
        f"What the host could tell from one round, the last: the mean gradient of its {sum(last['reports']):,} "
        f"reported values{which if len(shown) < len(weights) else ''}. An interval covers the mean of all clients at "
        "the model of that round. Where it holds 0 the round alone tells nothing; the model is the sum of all rounds.",
    )


def _coordinates(result: Mapping[str, Any]) -> list[str]:
    """A name for each weight."""
    features: Sequence[str] = result["features"]
    labels = result.get("labels")
    return [f"{label}: {name}" for label in labels for name in features] if labels else list(features)


def _curve(result: Mapping[str, Any]) -> dict[str, tuple[Figure, str]]:
    name = result["measure"]
    if name is None:
        return {}
    history: Sequence[Mapping[str, Any]] = result["history"]
    words = f"{WORDS[name]} on held-out records"
    figure = plots.judged(
        [entry[name] for entry in history],
        result[f"{name}_optimum"],
        result[f"{name}_baseline"],
        reports=list(accumulate(entry["reports"] for entry in history)),
        label=f"private, epsilon {result['epsilon_per_client']:.6g}",
        measure=words,
        floor=_TRIVIAL[name],
    )
    return {
        name: (
            figure,
            f"The {words} after every round. The dashed line is the same kind of model at its optimum, fitted to all "
            "training records without privacy: the gap is what privacy costs. The dotted line is what an answer "
            "reaches that knows no features.",
        )
    }


def _lead(result: Mapping[str, Any]) -> str:
    sent = (
        f"{result['reports']:,} reports of {result['bytes_per_report']} bytes each; a client gave away at most epsilon "
        f"{result['epsilon_per_client']:.6g}. "
    )
    name = result["measure"]
    if name is None:
        return sent
    return sent + (
        f"On the records that were held out, the model's {WORDS[name]} is {_figure(name, result[name])}; without any "
        f"privacy it would be {_figure(name, result[f'{name}_optimum'])}, and "
        f"{_TRIVIAL[name]} {_figure(name, result[f'{name}_baseline'])}."
    )


def _judged(result: Mapping[str, Any]) -> list[Row]:
    rows: list[Row] = []
    for name in result.get("measures", ()):
        for part, title, words in (
            ("", "", "of the private model"),
            ("_optimum", " without privacy", _OPTIMUM),
            ("_baseline", " of no features", _TRIVIAL[name]),
        ):
            if interval := result.get(f"{name}{part}_interval"):
                words += f"; 95 % interval {' to '.join(_figure(name, end) for end in interval)}"
            rows.append((f"{WORDS[name]}{title}", _figure(name, result[f"{name}{part}"]), words))
    if rows:
        rows.append(("judged by", ", ".join(WORDS[name] for name in result["measures"]), _INTERVAL))
    return rows


def _figure(name: str, value: float) -> str:
    return percent(value) if name == "accuracy" else f"{value:.4g}"


def _results(result: Mapping[str, Any]) -> list[Row]:
    return [
        *common_results(result),
        ("stopped", str(result["stopped"]), _STOPPED.get(result["stopped"], "")),
        ("bytes a report", f"{result['bytes_per_report']}", "header and tag included, before COBS"),
        ("bytes in float32", f"{result['bytes_per_report_float32']}", "the same frame with a plain gradient"),
        ("bytes a request", f"{result['bytes_per_request']}", "parameters and card, from host to client"),
    ]


def _settings(result: Mapping[str, Any]) -> list[Row]:
    options: Mapping[str, Any] = result["options"]
    rows: list[Row] = [
        ("algorithm", str(result["algorithm"]), "how the model is learnt"),
        ("data set", str(options["dataset"]), "what the clients hold"),
        ("model", str(options["model"]), _MODELS[options["model"]]),
        ("mechanism", str(result["mechanism"]), f"card {result['card_hash']}, {result['levels']} outputs"),
        (
            "epsilon",
            str(options["epsilons"] or options["epsilon"]),
            "asked for; the card keeps no more than that",
        ),
        (
            "coordinates",
            f"{result['k']} of {result['d']}",
            "reported by a client; which ones depends on no data",
        ),
        ("optimiser", str(result["optimiser"]), f"at a learning rate of {result['learning_rate']:.4g}"),
    ]
    if result.get("taus"):
        rows.append(("range", str(options["range"]), f"{clipped(result['taus'])} (tau)"))
    if "group" in options:
        rows.append(("group", f"{options['group']:,}", "clients asked in a round"))
    return [*rows, *common_settings(result)]


def _weights(names: Sequence[str], weights: Sequence[float]) -> str:
    largest = max((abs(weight) for weight in weights), default=0.0) or 1.0
    rows = []
    for name, weight in sorted(zip(names, weights, strict=True), key=lambda pair: -abs(pair[1])):
        side = "up" if weight >= 0 else "down"
        bar = f"<i class={side} style='width:{50 * abs(weight) / largest:.1f}%'></i>"
        rows.append(f"<tr><td>{text(name)}<td class=number>{weight:+.3f}<td class=bar>{bar}")
    return f"<div class=wide><table class=model>{''.join(rows)}</table></div>"


def _weights_of_classes(labels: Sequence[str], names: Sequence[str], weights: Sequence[float]) -> str:
    """A row a feature, a column a class; the larger a weight, the more of its colour."""
    matrix = np.reshape(weights, (len(labels), len(names)))
    largest = float(np.abs(matrix).max(initial=0.0)) or 1.0
    rows = ["<tr><th>feature" + "".join(f"<th>{text(label)}" for label in labels)]
    for name, column in zip(names, matrix.T, strict=True):
        cells = [
            f"<td class=number style='background:rgba({'0,90,160' if value > 0 else '160,60,0'},"
            f"{abs(value) / largest / 2:.2f})'>{value:+.2f}"
            for value in column
        ]
        rows.append(f"<tr><td>{text(name)}{''.join(cells)}")
    return f"<div class=wide><table class=model>{''.join(rows)}</table></div>"
