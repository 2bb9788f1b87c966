"""The report of a run of protected inference."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ternhost.extensions import Row
from ternhost.learn.inference.noise import weakness
from ternhost.plots import runs
from ternhost.run.report.page import (
    Page,
    common_pictures,
    common_results,
    common_settings,
    guarantee_sentence,
    percent,
)

_CONFIDENCE = 0.95  # of the intervals of shares


def page(result: Mapping[str, Any]) -> Page:
    """Return the report of a run of protected inference, from the run's result.

    In such a run, clients classify records of their own, and report the answers under noise.
    """
    classifier = str(result["options"].get("classifier") or "trained for this")
    settings: list[Row] = [
        ("data set", str(result["data"]), f"{result['classes']} classes"),
        ("classifier", classifier, "the run whose model classified"),
        *common_settings(result),
    ]
    return Page(
        title=f"{result['data']}, protected inference",
        lead=_lead(result),
        pictures=_pictures(result),
        results=common_results(result),
        settings=settings,
        figures=_quality_table(result),
    )


def _lead(result: Mapping[str, Any]) -> str:
    """Write the first paragraph: what clients sent, and what protects it.

    A result without a card is of a simulation with noise that no device draws, or without noise.
    """
    text = f"{result['clients']:,} clients classified a record of their own"
    if "card" in result:
        answer = "the probabilities under noise"
        if _sends_labels(result):
            answer = "its class by randomised response"
        return f"{text}, and sent {answer}. {guarantee_sentence(result)}"
    if result.get("epsilon"):
        return f"{text}. Their noise {weakness(result['epsilon'])}."
    return f"{text}; without noise, which no device does."


def _sends_labels(result: Mapping[str, Any]) -> bool:
    """Return whether a client sent only the class of its record, not every class's probability."""
    return result.get("answer") == "label"


def _pictures(result: Mapping[str, Any]) -> dict[str, tuple[Figure, str]]:
    """Draw the scores, the shares of classes, the clusters, and the privacy, as far as known.

    Return each figure with its caption, by the name of its file.
    """
    pictures = {}
    scored_rounds = [entry for entry in result.get("scores", ()) if entry["score"] is not None]
    if len(scored_rounds) > 1:
        pictures["scores"] = _picture_of_scores(scored_rounds, str(result["score_name"]))
    if "card" in result and result.get("shares"):
        pictures["shares"] = _picture_of_shares(result)
    if result["clusters"]:
        caption = "How many clients fell into each cluster: the class of the largest probability "
        caption += "that they sent."
        if _sends_labels(result):
            caption = "How many clients sent each class, under noise."
        pictures["clusters"] = runs.clusters(result["clusters"]), caption
    if "card" in result:
        title = "discrete Laplace noise on a probability"
        if _sends_labels(result):
            title = "randomised response of a class"
        pictures |= common_pictures(result, result["card"], title)
    return pictures


def _picture_of_scores(
    scored_rounds: Sequence[Mapping[str, Any]], score_name: str
) -> tuple[Figure, str]:
    """Draw the score of the clusters in each round, and write the caption.

    scored_rounds: each has the score, and the loss of the model in that round (None: not known).
    """
    caption = "The score after rounds of the run that learned the model, against the model's loss "
    caption += "there."
    if any(entry["loss"] is None for entry in scored_rounds):
        caption = "The score of each round."
    return runs.scores(scored_rounds, score_name), caption


def _picture_of_shares(result: Mapping[str, Any]) -> tuple[Figure, str]:
    """Draw the estimated share of each class with its interval, and write the caption."""
    quantity = "mean probability"
    if _sends_labels(result):
        quantity = "share of the clients"
    names, estimates = [], []
    for label, estimate in result["shares"].items():
        names.append(label if result.get("class_names") else f"class {label}")
        estimates.append(list(estimate.values()))  # the mean, then both ends of its interval
    mean, low, high = np.array(estimates).T
    figure = runs.gradient(
        names, mean=mean, low=low, high=high, confidence=_CONFIDENCE, across=quantity
    )
    caption = f"The {quantity} of each class, estimated without bias, "
    caption += "with an interval that covers 95 %."
    return figure, caption


def _quality_table(result: Mapping[str, Any]) -> list[Row]:
    """Tabulate how good the answers are, below a head; return nothing if that is not known."""
    rows: list[Row] = []
    if result["score"] is not None:
        rows.append(("score", f"{result['score']:.4f}", str(result["score_name"])))
    if result.get("score_without_noise") is not None:
        exact = f"{result['score_without_noise']:.4f}"
        rows.append(("without noise", exact, "the same of the exact probabilities"))
    if result["agreement"] is not None:
        words = "clients that keep the cluster of their exact result"
        rows.append(("agreement", percent(result["agreement"]), words))
    if not rows:
        return []
    return [("result", "value", "what it means"), *rows]
