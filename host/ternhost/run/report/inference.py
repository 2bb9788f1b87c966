"""The report of a run of protected inference."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ternhost.extensions import Row
from ternhost.learn.noise import weakness
from ternhost.plots import runs
from ternhost.run.report.page import (
    Page,
    common_pictures,
    common_results,
    common_settings,
    percent,
    promised,
)


def page(result: Mapping[str, Any]) -> Page:
    """The page of its result."""
    protected, labels = "card" in result, result.get("answer") == "label"
    lead = f"{result['clients']:,} clients classified a record of their own"
    sent = "its class by randomised response" if labels else "the probabilities under noise"
    if protected:
        lead += f", and sent {sent}. {promised(result)}"
    elif result.get("epsilon_true"):
        lead += f". Their noise {weakness(result['epsilon_true'])}."
    else:
        lead += "; without noise, which no device does."
    title = f"{result['dataset']}, protected inference"
    data: Row = ("data set", str(result["dataset"]), f"{result['classes']} classes")
    classifier = str(result["options"].get("classifier") or "trained for this")
    settings = [
        data,
        ("classifier", classifier, "the run whose model classified"),
        *common_settings(result),
    ]
    return Page(title, lead, _pictures(result), common_results(result), settings, _judged(result))


def _pictures(result: Mapping[str, Any]) -> dict[str, tuple[Figure, str]]:
    pictures = {}
    scored = [row for row in result.get("scores", ()) if row["score"] is not None]
    if len(scored) > 1:
        caption = "The score after rounds of the run that learned the model, against the model's loss there."
        if any(row["loss"] is None for row in scored):
            caption = "The score of each round."
        pictures["scores"] = runs.scores(scored, str(result["eval_type"])), caption
    labels = result.get("answer") == "label"
    if "card" in result and result.get("shares"):
        what = "share of the clients" if labels else "mean probability"
        mean, low, high = np.array([[*share.values()] for share in result["shares"].values()]).T
        names = [f"class {i}" for i in result["shares"]]
        caption = (
            f"The {what} of each class, estimated without bias, with an interval that covers 95 %."
        )
        pictures["shares"] = runs.gradient(names, mean, low, high, 0.95, what), caption
    if result["clusters"]:
        fell = "How many clients fell into each cluster: the class of the largest probability that they sent."
        caption = "How many clients sent each class, under noise." if labels else fell
        pictures["clusters"] = runs.clusters(result["clusters"]), caption
    if "card" in result:
        what = (
            "randomised response of a class"
            if labels
            else "discrete Laplace noise on a probability"
        )
        pictures |= common_pictures(result, result["card"], what)
    return pictures


def _judged(result: Mapping[str, Any]) -> list[Row]:
    rows: list[Row] = []
    if result["score"] is not None:
        rows.append(("score", f"{result['score']:.4f}", str(result["eval_type"])))
    if result.get("score_without_noise") is not None:
        exact = f"{result['score_without_noise']:.4f}"
        rows.append(("without noise", exact, "the same of the exact probabilities"))
    if result["agreement"] is not None:
        words = "clients that keep the cluster of their exact result"
        rows.append(("agreement", percent(result["agreement"]), words))
    return [("result", "value", "what it means"), *rows] if rows else []
