"""The report of a run that has trained a model."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ternhost.datasets import on_devices
from ternhost.extensions import Row
from ternhost.learn import liar_results
from ternhost.learn.models import projections
from ternhost.learn.models.judging import EVEN, SIGNS, WORDS, logit, never_predicted
from ternhost.learn.models.learning import share_in_words
from ternhost.plots import runs
from ternhost.privacy.units import DEVICE, protected
from ternhost.run.report.page import (
    Page,
    common_pictures,
    common_results,
    common_settings,
    epsilon_words,
    guarantee_sentence,
    liar_rows,
    percent,
)
from ternhost.text import as_html, clipped, counted

_MODELS = {
    "linear": "linear regression",
    "logistic": "logistic regression",
    "svm": "linear SVM",
    "softmax": "softmax regression",
}
_STOPPED = {
    "rounds": "all planned rounds were done",
    "converged": "the gradient had become too small to matter",
    "close": "the last round moved no weight of the model by more than --tolerance",
    "quorum": "too many rounds in a row had no report",
    None: "it was stopped",
}
_TRIVIAL = {
    "accuracy": "always the majority",
    "auc": "guessing",
    "log_loss": "always the shares of the classes",
    "squared_error": "always the mean",
}
# Of the names of figures: of the model, of one fitted without privacy, of one without features.
_SUFFIXES = ("", "_optimum", "_baseline")
_MOST_COORDINATES = 40  # in the picture of a gradient
_FLOAT32_BYTES = 4


def page(result: Mapping[str, Any]) -> Page:
    """Return the report of a run that has trained a model, from the run's result."""
    options: Mapping[str, Any] = result["options"]
    data = on_devices.in_words(options["data"])
    title = f"{data}, {_MODELS[options['model']]}, {result['mechanism']}"
    prediction = f"<p>A prediction is {_prediction(result)}. Features lie in [-1, 1].</p>"
    return Page(
        title=title,
        lead=_lead(result),
        pictures=_pictures(result),
        results=_results(result),
        settings=_settings(result),
        figures=_quality_table(result),
        more={"The model": prediction + _weights(result)},
    )


def _prediction(result: Mapping[str, Any]) -> str:
    """Return in HTML how the model predicts from features: what stands after "A prediction is"."""
    total = "the sum of weight times feature"
    if result.get("labels"):
        return "the class with the largest sum of its weights times features"
    if result["measure"] == "squared_error":
        return total
    names: Sequence[str] = result.get("class_names") or ()
    has_names = len(names) == 2
    negative, positive = (as_html(name) for name in (names if has_names else SIGNS))
    threshold = result.get("threshold") or EVEN
    if threshold != EVEN:
        at_threshold = f"{logit(threshold):.4g} (a probability of {threshold:.4g})"
        return f"{positive} if {total} is above {at_threshold}, else {negative}"
    if has_names:
        return f"the sign of {total}: {positive} if it is positive, else {negative}"
    return f"the sign of {total}"


def _pictures(result: Mapping[str, Any]) -> dict[str, tuple[Figure, str]]:
    """Draw the learning curve, the size of reports, the last gradient, and the privacy.

    Return each figure with its caption, by the name of its file.
    """
    pictures = _curve(result)
    pictures["bytes"] = _frame_sizes(result)
    if result["last_gradient"]:
        pictures["gradient"] = _gradient(result)
    title = f"{result['mechanism']}, {epsilon_words(result)}"
    note = "By the accepted reports, as if all clients had reported equally often."
    if result["epsilon_spent"]:
        note = "Read from the clients' own ledgers after the run."
    return pictures | common_pictures(result, result["card"], title, note)


def _frame_sizes(result: Mapping[str, Any]) -> tuple[Figure, str]:
    """Draw the size of a report beside that of a plain gradient, and write the caption."""
    d = result["d"]
    # A plain gradient in the same frame has d numbers of four bytes; the rest is the frame's.
    overhead = result["bytes_per_report_float32"] - _FLOAT32_BYTES * d
    part = projections.part_in_words(result["mechanism"], result["k"])
    sizes = {
        f"this report\n{part} {d} coordinates": result["bytes_per_report"] - overhead,
        f"float32 gradient\n{d} coordinates": _FLOAT32_BYTES * d,
    }
    caption = "What a client sends in a round, and the plain gradient in such a frame."
    return runs.frame_bytes(sizes, overhead), caption


def _gradient(result: Mapping[str, Any]) -> tuple[Figure, str]:
    """Draw the last mean gradient with its confidence intervals, and write the caption.

    If it has many coordinates, only those with the largest weights are drawn, in their order.
    """
    gradient: Mapping[str, Any] = result["last_gradient"]
    weights = np.abs(result["weights"])
    by_weight = np.argsort(-weights, kind="stable")  # the largest first
    shown = np.sort(by_weight[:_MOST_COORDINATES])
    all_names = _coordinate_names(result)
    figure = runs.gradient(
        names=[all_names[coordinate] for coordinate in shown],
        mean=np.array(gradient["mean"], np.float64)[shown],
        low=np.array(gradient["low"], np.float64)[shown],
        high=np.array(gradient["high"], np.float64)[shown],
        confidence=gradient["confidence"],
    )

    source = _gradient_source(result)
    if len(shown) < len(weights):
        source += f" ({len(shown)} of {len(weights)} coordinates, those of the largest weights)"
    caption = f"The mean gradient that the host estimated from the {source}. "
    caption += "An interval that holds 0 tells nothing"
    if result["optimiser"] == "direct":
        caption += "."
    else:
        caption += "; the model is the sum of all rounds."
    return figure, caption


def _gradient_source(result: Mapping[str, Any]) -> str:
    """Say from how many reports the last gradient was estimated."""
    reports: Sequence[int] = result["last_gradient"]["reports"]  # of each coordinate
    is_projection = result["mechanism"] == projections.NAME
    continues_with_descent = bool(result.get("then"))  # whose reports are about single coordinates
    if is_projection and not continues_with_descent:
        # Each report is about all coordinates at once.
        return f"{counted(reports[0], 'report')} of the last round"
    return f"{sum(reports):,} reported values of the last round"


def _coordinate_names(result: Mapping[str, Any]) -> list[str]:
    """Return a name for each weight of the model: its feature, after its class if there are any."""
    features: Sequence[str] = result["features"]
    labels = result.get("labels")
    if not labels:
        return list(features)
    names = []
    for label in labels:
        names += [f"{label}: {feature}" for feature in features]
    return names


def _curve(result: Mapping[str, Any]) -> dict[str, tuple[Figure, str]]:
    """Draw the quality of the model after each round, beside that of a model without privacy.

    Return the figure and its caption, by the name of the quality measure, which is also that of the
    picture's file. Return nothing if there are no held-out records on which to measure it.
    """
    name = result["measure"]
    if name is None:
        return {}
    history: Sequence[Mapping[str, Any]] = result["history"]
    measure = f"{WORDS[name]} on held-out records"
    reports_by_round = [entry["reports"] for entry in history]
    figure = runs.judged(
        private=[entry[name] for entry in history],
        optimum=result[f"{name}_optimum"],
        baseline=runs.Reference(result[f"{name}_baseline"], _TRIVIAL[name]),
        reports=list(accumulate(reports_by_round)),
        label=f"private, {epsilon_words(result)}",
        measure=measure,
    )
    caption = f"The {measure} after every round."
    caption += " Dashed: the same kind of model, fitted without privacy."
    return {name: (figure, caption)}


def _lead(result: Mapping[str, Any]) -> str:
    """Write the first paragraph: what was sent, what is guaranteed, and how good the model is."""
    size = result["bytes_per_report"]
    text = f"{counted(result['reports'], 'report')} of {size} bytes each. {guarantee_sentence(result)} "
    name = result["measure"]
    if name is None:
        return text
    private = _number(name, result[name])
    best = _number(name, result[f"{name}_optimum"])
    trivial = _number(name, result[f"{name}_baseline"])
    text += f"On the records that were held out, the model's {WORDS[name]} is {private}; "
    text += f"without any privacy it would be {best}, and {_TRIVIAL[name]} {trivial}."
    return text


def _quality_table(result: Mapping[str, Any]) -> list[list[str]]:
    """Tabulate how good the model is, beside a model without privacy and one without features.

    The first row is the head of the table; each other row is about a measure of quality. Return
    nothing if there are no held-out records on which to measure it.
    """
    rows = [["held-out records", "private", "without privacy", "no features"]]
    for name in result.get("measures", ()):
        cells = []
        for suffix in _SUFFIXES:
            cell = _number(name, result[f"{name}{suffix}"])
            interval = result.get(f"{name}{suffix}_interval")
            if interval:
                low, high = interval
                cell += f"\n{_number(name, low)} to {_number(name, high)}"
            cells.append(cell)
        cells[-1] += f"\n{_TRIVIAL[name]}"
        rows.append([WORDS[name], *cells])
    has_only_head = len(rows) == 1
    if has_only_head:
        return []
    return rows


def _number(name: str, value: float) -> str:
    """Write the value of a measure of quality; an accuracy is written in per cent."""
    if name == "accuracy":
        return percent(value)
    return f"{value:.4g}"


def _results(result: Mapping[str, Any]) -> list[Row]:
    """Tabulate the results: those of any run, why this one stopped, and the size of messages.

    Each row has a name, a value, and what it means.
    """
    stopped = result["stopped"]
    report_size = f"{result['bytes_per_report']}"
    plain_size = f"{result['bytes_per_report_float32']}"
    request_size = f"{result['bytes_per_request']}"
    return [
        *common_results(result),
        *liar_rows(liar_results.training_lines(result)),
        ("intervals", "95 %", "of the figures above, for records like the held-out ones"),
        *_decisions(result),
        ("stopped", str(stopped), _STOPPED.get(stopped, "")),
        ("bytes a report", report_size, "header and tag included, before COBS"),
        ("bytes in float32", plain_size, "the same frame with a plain gradient"),
        ("bytes a request", request_size, "parameters and card, from host to client"),
    ]


def _decisions(result: Mapping[str, Any]) -> list[Row]:
    """Tabulate which classes the model predicts on the held-out records, and its calibration.

    Most rows are about the rarer class. There are none if there are no classes, or no records.
    """
    decisions: Mapping[str, Any] = result.get("decisions") or {}
    if not decisions:
        return []
    rarer = decisions["rarer"]
    rows: list[Row] = [
        (
            "recall",
            share_in_words(decisions["recall"]),
            f"of the rarer class {rarer}, by the model",
        ),
        ("predicted", share_in_words(decisions["predicted"]), f"of the records to be {rarer}"),
        ("real share", share_in_words(decisions["share"]), f"of {rarer} in these records"),
    ]
    if decisions["mean_probability"] is not None:
        mean = share_in_words(decisions["mean_probability"])
        rows.append(("mean probability", mean, f"that the model gives to {rarer}"))
    if decisions["threshold"] is not None:
        what = "probability above which label 1 is predicted"
        rows.append(("threshold", f"{decisions['threshold']:.4g}", what))
    missed = never_predicted(decisions)
    if missed:
        rows.append(("never predicts", ", ".join(missed), "although records have it"))
    return rows


def _settings(result: Mapping[str, Any]) -> list[Row]:
    """Tabulate the settings: those of the algorithm, then those of any run.

    Each row has a name, a value, and what it means.
    """
    options: Mapping[str, Any] = result["options"]
    model = str(options["model"])
    mechanism = str(result["mechanism"])
    card = f"card {result['card_hash']}, {result['levels']} outputs"
    coordinates = f"{projections.part_in_words(mechanism, result['k'])} {result['d']}"
    rate_text = ""
    if result["rate"] is not None:
        rate_text = f"at a learning rate of {result['rate']:.4g}"
    rows: list[Row] = [
        ("algorithm", str(result["algorithm"]), result.get("reason") or "how the model is learnt"),
        ("data", on_devices.in_words(options["data"]), "what the clients hold"),
        ("model", model, _MODELS[model]),
        ("mechanism", mechanism, card),
        ("protects", result.get("protects", protected(DEVICE)), "what the guarantee is about"),
        ("epsilon", _epsilon_option(options), "as it was asked for"),
        ("coordinates", coordinates, "reported by a client, chosen independently of data"),
        ("optimiser", str(result["optimiser"]), rate_text),
    ]
    if result.get("records", 1) > 1:
        rows.append(("records", f"{result['records']:,}", "of a client, at most; public"))
    public = result.get("public_rows")
    if public:
        misfit = "not used"
        if "misfit" not in public and public["suited"]:
            misfit = "they explain the answers"
        elif public.get("misfit") is not None:
            misfit = f"misfit {public['misfit']:.1f}, about 1 for rows of the same population"
        rows.append(("public rows", public["from"] or "none", misfit))
    if result.get("taus"):
        range_text = str(options.get("clip", "auto"))
        rows.append(("range", range_text, f"{clipped(result['taus'])} (tau)"))
    if "group" in options:
        rows.append(("group", f"{options['group']:,}", "clients asked in a round"))
    return [*rows, *common_settings(result)]


def _epsilon_option(options: Mapping[str, Any]) -> str:
    """Return the epsilon that the user asked for.

    It is that of each class of devices, else that of a report, else that of a device's whole life.
    """
    for name in ("epsilons", "epsilon"):
        if options.get(name):
            return str(options[name])
    return f"{options['run_epsilon']} at delta {options['delta']}"


def _weights(result: Mapping[str, Any]) -> str:
    """Return an HTML table of the model's weights: a row for each feature, with a bar.

    The largest weight comes first, and has the longest bar.
    """
    names, weights = result["features"], result["weights"]
    if result.get("labels"):
        return _weights_of_classes(result["labels"], names, weights)
    largest = max(map(abs, weights), default=0.0)
    if largest == 0:
        largest = 1.0  # against division by 0; all bars are empty
    by_size = sorted(zip(names, weights, strict=True), key=lambda pair: -abs(pair[1]))
    rows = []
    for name, weight in by_size:
        side = "up" if weight >= 0 else "down"
        width = 50 * abs(weight) / largest  # per cent: each side has half of the cell
        bar = f"<i class={side} style='width:{width:.1f}%'></i>"
        rows.append(f"<tr><td>{as_html(name)}<td class=number>{weight:+.3f}<td class=bar>{bar}")
    return f"<div class=wide><table class=model>{''.join(rows)}</table></div>"


def _weights_of_classes(
    labels: Sequence[str], names: Sequence[str], weights: Sequence[float]
) -> str:
    """Return an HTML table of a softmax model's weights: a row a feature, a column a class.

    The larger a weight is, the stronger is the colour of its cell.

    labels: of the classes. names: of the features. weights: those of the first class in the order
    of the features, then those of the second one, and so on.
    """
    weights_by_class = np.reshape(weights, (len(labels), len(names)))
    largest = float(np.abs(weights_by_class).max(initial=0.0))
    if largest == 0:
        largest = 1.0  # against division by 0; no cell is coloured
    head = "<tr><th>feature"
    for label in labels:
        head += f"<th>{as_html(label)}"
    rows = [head]
    for name, weights_of_feature in zip(names, weights_by_class.T, strict=True):
        row = f"<tr><td>{as_html(name)}"
        for weight in weights_of_feature:
            colour = "up" if weight > 0 else "down"
            opacity = abs(weight) / largest / 2  # at most half: the number stays legible
            style = f"background:rgba(var(--{colour}),{opacity:.2f})"
            row += f"<td class=number style='{style}'>{weight:+.2f}"
        rows.append(row)
    return f"<div class=wide><table class=model>{''.join(rows)}</table></div>"
