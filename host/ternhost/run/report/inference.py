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
    lead = f"{result['clients']:,} clients classified a record of their own"
    if "card" in result:
        what = "the probabilities under noise"
        if _sends_labels(result):
            what = "its class by randomised response"
        lead += f", and sent {what}. {promised(result)}"
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


def _sends_labels(result: Mapping[str, Any]) -> bool:
    return result.get("answer") == "label"


def _pictures(result: Mapping[str, Any]) -> dict[str, tuple[Figure, str]]:
    pictures = {}
    scored = [row for row in result.get("scores", ()) if row["score"] is not None]
    if len(scored) > 1:
        caption = "The score after rounds of the run that learned the model, against the model's loss there."
        if any(row["loss"] is None for row in scored):
            caption = "The score of each round."
        pictures["scores"] = runs.scores(scored, str(result["eval_type"])), caption
    labels = _sends_labels(result)
    if "card" in result and result.get("shares"):
        pictures["shares"] = _picture_of_shares(result)
    if result["clusters"]:
        caption = "How many clients fell into each cluster: the class of the largest probability that they sent."
        if labels:
            caption = "How many clients sent each class, under noise."
        pictures["clusters"] = runs.clusters(result["clusters"]), caption
    if "card" in result:
        title = "discrete Laplace noise on a probability"
        if labels:
            title = "randomised response of a class"
        pictures |= common_pictures(result, result["card"], title)
    return pictures


def _picture_of_shares(result: Mapping[str, Any]) -> tuple[Figure, str]:
    """The estimated shares of the classes with their intervals, and the caption."""
    what = "share of the clients" if _sends_labels(result) else "mean probability"
    names = [f"class {i}" for i in result["shares"]]
    estimates = [list(share.values()) for share in result["shares"].values()]
    mean, low, high = np.array(estimates).T
    caption = (
        f"The {what} of each class, estimated without bias, with an interval that covers 95 %."
    )
    return runs.gradient(names, mean, low, high, 0.95, what), caption


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
