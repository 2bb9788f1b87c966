"""The report of a run: one HTML file with everything in it, and its pictures as PNG beside it."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from tern import card as cards
from ternhost.datasets import REGRESSION
from ternhost.errors import StorageError
from ternhost.report import plots

NAME = "report.html"

_MODELS = {"linear": "linear regression", "logistic": "logistic regression", "svm": "linear SVM"}
_STOPPED = {
    "rounds": "all planned rounds were done",
    "converged": "the gradient had become too small to matter",
    "quorum": "too many rounds in a row had too few reports",
}

_INTERVAL = "of that figure, for records like the held-out ones"
_MOST_COORDINATES = 40  # in the picture of a gradient

Row = tuple[str, str, str]


def write(result: Mapping[str, Any], directory: str | Path) -> Path:
    """Write report.html and its pictures for the result of a run (`Session.run`) and return the report's path.

    Raises StorageError if the directory cannot be written.
    """
    directory = Path(directory)
    pictures = figures(result)
    for name, (figure, _) in pictures.items():
        plots.save(figure, directory / f"{name}.png")
    path = directory / NAME
    try:
        path.write_text(render(result, pictures), encoding="utf-8")
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror}", hint="make room for it") from error
    return path


def figures(result: Mapping[str, Any]) -> dict[str, tuple[Figure, str]]:
    """The pictures of a run, by file name, each with its caption."""
    history: Sequence[Mapping[str, Any]] = result["history"]
    card = cards.decode(bytes.fromhex(result["card"]))
    epsilon, k, d = result["epsilon_per_client"], result["k"], result["d"]
    overhead = result["bytes_per_report_float32"] - 4 * d
    report, floats = result["bytes_per_report"], result["bytes_per_report_float32"]
    spent = _spent(result)
    return {
        "accuracy": (
            plots.accuracy(
                [entry["accuracy"] for entry in history],
                [entry["accuracy_nonprivate"] for entry in history if "accuracy_nonprivate" in entry],
                result["accuracy_baseline"],
                reports=list(accumulate(entry["reports"] for entry in history)),
                label=f"private, epsilon {epsilon:.6g}",
                measure=f"{_measure(result)} on held-out records",
                floor="always the mean" if _is_regression(result) else "always the majority",
            ),
            f"The {_measure(result)} on held-out records after every round. The dashed line is the same optimiser on "
            "the same groups with exact gradients: the gap between the two, close up below, is what privacy costs. "
            "The dotted line is the least that a model must beat.",
        ),
        "bytes": (
            plots.frame_bytes(
                [
                    plots.Frame(f"this report\n{k} of {d} coordinates", overhead, report - overhead),
                    plots.Frame(
                        f"float32 gradient\n{d} coordinates",
                        overhead,
                        4 * d,
                        f"{floats / report:.1f} times as many",
                    ),
                ]
            ),
            "What a client sends in a round, beside the plain gradient in the same kind of frame. Header and tag are "
            "the price of knowing who sent it; the content is all that the data decides.",
        ),
        **({"gradient": _gradient(result)} if result["last_gradient"] else {}),
        "card": (
            plots.card_distribution(card, f"{result['mechanism']}, epsilon {card.epsilon / 1e6:.6g}"),
            "The mechanism itself, computed from the integers that the clients obeyed, not from a formula. Above: "
            "the probability of each reported value for five inputs. Below: how far any output can move the odds "
            "between two inputs; no output may pass the dashed line, and each client checked that itself.",
        ),
        "epsilon": (
            plots.epsilon_spent(spent, result["k"] * card.epsilon / 1e6),
            "What each client has spent of its privacy, from first to last. "
            + (
                "Read from the clients' own ledgers after the run."
                if result["epsilon_spent"]
                else "One report a client, each at the certified epsilon of its card."
            ),
        ),
    }


def _gradient(result: Mapping[str, Any]) -> tuple[Figure, str]:
    last: Mapping[str, Any] = result["last_gradient"]
    weights = np.abs(result["weights"])
    shown = np.sort(np.argsort(-weights, kind="stable")[:_MOST_COORDINATES])
    mean, low, high = (np.array(last[key], np.float64)[shown] for key in ("mean", "low", "high"))
    features = result["features"]
    which = f" ({len(shown)} of {len(weights)} coordinates, those of the largest weights)"
    return (
        plots.gradient([features[i] for i in shown], mean, low, high, last["confidence"]),
        f"What the host could tell from one round, the last: the mean gradient of its {sum(last['reports']):,} "
        f"reported values{which if len(shown) < len(weights) else ''}. An interval covers the mean of all clients at "
        "the model of that round. Where it holds 0 the round alone tells nothing; the model is the sum of all rounds.",
    )


def _spent(result: Mapping[str, Any]) -> dict[float, int]:
    if ledgers := result["epsilon_spent"]:
        return {float(epsilon): int(clients) for epsilon, clients in ledgers}
    asked = sum(entry["asked"] for entry in result["history"])
    spent = {result["epsilon_per_client"]: result["reports"]}
    if silent := asked - result["reports"]:
        spent[0.0] = silent
    return spent


def render(result: Mapping[str, Any], pictures: Mapping[str, tuple[Figure, str]]) -> str:
    """The HTML of a report, with its pictures inside."""
    options: Mapping[str, Any] = result["options"]
    title = f"{options['dataset']}, {_MODELS.get(options['model'], options['model'])}, {result['mechanism']}"
    body = [
        f"<h1>{_text(title)}</h1>",
        f"<p class=lead>{_text(_summary(result))}</p>",
        *(_picture(name, *pictures[name]) for name in pictures),
        "<h2>Results</h2>",
        _table(("result", "value", "what it means"), _results(result)),
        "<h2>Settings</h2>",
        _table(("setting", "value", "what it means"), _settings(result)),
        "<h2>The model</h2>",
        f"<p>A prediction is {'' if _is_regression(result) else 'the sign of '}the sum of weight times feature. "
        "Features lie in [-1, 1].</p>",
        _weights(result["features"], result["weights"]),
    ]
    return _PAGE.format(title=_text(title), style=_STYLE, body="\n".join(body))


def _is_regression(result: Mapping[str, Any]) -> bool:
    return bool(result.get("task") == REGRESSION)


def _measure(result: Mapping[str, Any]) -> str:
    return "mean squared error" if _is_regression(result) else "accuracy"


def _summary(result: Mapping[str, Any]) -> str:
    sent = (
        f"{result['reports']:,} clients sent one report of {result['bytes_per_report']} bytes each and gave away "
        f"at most epsilon {result['epsilon_per_client']:.6g}. "
    )
    figures = [result[key] for key in ("accuracy", "accuracy_nonprivate", "accuracy_baseline")]
    if _is_regression(result):
        private, exact, baseline = (f"{figure:.4g}" for figure in figures)
        return sent + (
            f"The model's mean squared error on the records that were held out is {private}; without any noise it "
            f"would be {exact}, and that of always answering the mean is {baseline}."
        )
    private, exact, baseline = (f"{100 * figure:.1f} %" for figure in figures)
    return sent + (
        f"The model is right on {private} of the records that were held out; without any noise it would be on {exact}, "
        f"and always answering the majority is on {baseline}."
    )


def _judged(result: Mapping[str, Any]) -> list[Row]:
    figures = [result[key] for key in ("accuracy", "accuracy_nonprivate", "accuracy_baseline")]
    low, high = result["accuracy_interval"]
    if _is_regression(result):
        private, exact, baseline = (f"{figure:.4g}" for figure in figures)
        return [
            (
                "error",
                private,
                "mean squared error of the private model on held-out records; labels lie in [-1, 1]",
            ),
            ("95 % interval", f"{low:.4g} to {high:.4g}", _INTERVAL),
            ("without noise", exact, "the same optimiser with exact gradients"),
            ("mean", baseline, "always the mean of the labels"),
        ]
    private, exact, baseline = (_percent(figure) for figure in figures)
    return [
        ("accuracy", private, "share of held-out records that the private model gets right"),
        ("95 % interval", f"{_percent(low)} to {_percent(high)}", _INTERVAL),
        ("without noise", exact, "the same optimiser with exact gradients"),
        ("majority", baseline, "always the more frequent answer"),
    ]


def _results(result: Mapping[str, Any]) -> list[Row]:
    rows = [
        *_judged(result),
        ("reports", f"{result['reports']:,}", "accepted, each counted once"),
        ("rounds", f"{result['rounds']}", _STOPPED.get(result["stopped"], str(result["stopped"]))),
        ("bytes a report", f"{result['bytes_per_report']}", "header and tag included, before COBS"),
        ("bytes in float32", f"{result['bytes_per_report_float32']}", "the same frame with a plain gradient"),
        ("bytes a request", f"{result['bytes_per_request']}", "parameters and card, from host to client"),
        (
            "epsilon a client",
            f"{result['epsilon_per_client']:.6g}",
            "certified: no report makes any input more than exp(epsilon) times as likely as another",
        ),
    ]
    if ledgers := result["epsilon_spent"]:
        most = max(epsilon for epsilon, _ in ledgers)
        rows.append(("most spent", f"{most:.6g}", "the largest epsilon in any client's ledger"))
    return [
        *rows,
        ("duration", f"{result['seconds']:,.1f} s", f"{result['reports_per_second']:,.0f} reports a second"),
    ]


def _settings(result: Mapping[str, Any]) -> list[Row]:
    options: Mapping[str, Any] = result["options"]
    rate = options["learning_rate"]
    return [
        ("data set", str(options["dataset"]), "each client holds one record of it"),
        ("model", str(options["model"]), _MODELS.get(options["model"], "")),
        ("mechanism", str(result["mechanism"]), f"card {result['card_hash']}, {result['levels']} outputs"),
        ("epsilon", str(options["epsilon"]), "asked for; the card keeps no more than that"),
        (
            "coordinates",
            f"{result['k']} of {result['d']}",
            "reported by a client; which ones depends on no data",
        ),
        ("fleet", str(options["fleet"]), "where the clients run"),
        ("group", f"{options['group']:,}", "clients asked in a round; each takes part once"),
        (
            "learning rate",
            "automatic" if rate is None else f"{rate:g}",
            "automatic: from the noise of the card",
        ),
        ("regularisation", f"{options['regularisation']:g}", "times the weights, added by the host"),
        ("quorum", _percent(options["quorum"]), "share of a group that ends a round"),
        ("seed", str(options["seed"]), "deals the groups; no client's noise depends on it"),
    ]


def _weights(names: Sequence[str], weights: Sequence[float]) -> str:
    largest = max((abs(weight) for weight in weights), default=0.0) or 1.0
    rows = []
    for name, weight in sorted(zip(names, weights, strict=True), key=lambda pair: -abs(pair[1])):
        side = "up" if weight >= 0 else "down"
        bar = f"<i class={side} style='width:{50 * abs(weight) / largest:.1f}%'></i>"
        rows.append(f"<tr><td>{_text(name)}<td class=number>{weight:+.3f}<td class=bar>{bar}")
    return f"<div class=wide><table class=model>{''.join(rows)}</table></div>"


def _picture(name: str, figure: Figure, caption: str) -> str:
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=plots.DPI)
    data = base64.b64encode(buffer.getvalue()).decode()
    return (
        f"<figure><img src='data:image/png;base64,{data}' alt='{_text(name)}: {_text(caption)}'>"
        f"<figcaption>{_text(caption)}</figcaption></figure>"
    )


def _table(head: Iterable[str], rows: Iterable[Row]) -> str:
    header = "".join(f"<th scope=col>{_text(cell)}" for cell in head)
    lines = "".join(
        f"<tr><th scope=row>{_text(name)}<td>{_text(value)}<td>{_text(meaning)}"
        for name, value, meaning in rows
    )
    return f"<div class=wide><table><thead><tr>{header}</thead><tbody>{lines}</tbody></table></div>"


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %" if share < 1 else "100 %"


def _text(value: str) -> str:
    return html.escape(value, quote=True)


_STYLE = """
:root { color-scheme: light; }
body { margin: 0 auto; max-width: 44rem; padding: 1.5rem 1rem 4rem; background: #fff; color: #222;
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: .5rem 0; }
h2 { font-size: 1.2rem; margin: 2.5rem 0 .5rem; }
.lead { font-size: 1.1rem; }
figure { margin: 2rem 0; }
img { display: block; width: 100%; height: auto; }
figcaption { color: #555; font-size: .9rem; margin-top: .5rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; }
th, td { border-bottom: 1px solid #ddd; padding: .35rem .6rem .35rem 0; text-align: left; vertical-align: top; }
th { font-weight: 600; }
tbody td:nth-child(2) { font-variant-numeric: tabular-nums; white-space: nowrap; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
.model td { padding-top: .15rem; padding-bottom: .15rem; }
.bar { width: 45%; min-width: 8rem; }
.bar i { display: block; height: .8rem; background: #14406b; margin-left: 50%; }
.bar .down { background: repeating-linear-gradient(135deg, #c46a1b 0 3px, #fff 3px 5px); margin-left: auto;
  margin-right: 50%; }
@media (max-width: 30rem) { table { font-size: .85rem; } }
"""

_PAGE = """<!doctype html>
<html lang=en>
<head>
<meta charset=utf-8>
<meta name=viewport content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""
