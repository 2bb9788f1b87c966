"""The records that a plan is made with: which ones they are, and what so few of them can show."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from ternhost import datasets
from ternhost.datasets import REGRESSION, Dataset, Selection, in_memory, own
from ternhost.datasets.holdings import counts_of_owners
from ternhost.datasets.selection import EVERYTHING
from ternhost.datasets.shipped import synthetic
from ternhost.errors import UsageError
from ternhost.learn.models import judging
from ternhost.learn.models.optimum import optimum
from ternhost.learn.models.training import TrainingPlan
from ternhost.learn.parameters import MODELS, SUITED
from ternhost.planning import quality
from ternhost.text import counted

_FEW = 1_000  # fewer records to learn from than this are said to be few
_FEW_TO_JUDGE = 200


def load(
    data: str, model: str | None = None, selection: Selection = EVERYTHING
) -> tuple[Dataset, str]:
    """Return the records to plan with, and the name of the model.

    data: the path of a table, the name of a data set, or devices:FEATURES, for which synthetic
    records stand, as for a schema. model: the name of the model that is to be trained; None for the
    one that suits the labels. selection: as of `datasets.load`. Raises UsageError.
    """
    versions = own.versions(data) if datasets.is_own(data) else ()
    return _load(data, model, selection, versions)


@lru_cache(maxsize=2)
def _load(
    data: str, model: str | None, selection: Selection, _versions: object
) -> tuple[Dataset, str]:
    """Do the work of `load`. The versions of files make the cache forget old ones."""
    on_devices = datasets.on_devices.parse(data)
    if on_devices is None:
        chosen = model or SUITED[datasets.task_of(data, selection)]
        dataset = datasets.load(data, classes=chosen == "softmax", selection=selection)
        judging.require_different_labels(dataset)
        return dataset, chosen

    selection.require_no_columns(data)
    if model == "softmax" or on_devices.classes is not None:
        hint = "name a data set, or a file of records that resemble the devices': --data FILE.csv"
        raise UsageError("synthetic records have two classes", hint)
    if on_devices.features < 2:
        raise UsageError("synthetic records have 2 features or more", "such as --data devices:20")
    chosen = model or SUITED[on_devices.task]
    if chosen == SUITED[REGRESSION]:
        return synthetic.linear(d=on_devices.features), chosen
    return synthetic.logistic(d=on_devices.features), chosen


def owner_count(dataset: Dataset) -> int:
    """Return how many devices hold records to learn from, as the data set says."""
    return len(counts_of_owners(dataset, dataset.training))


def in_words(data: str) -> str:
    """Return in words what a plan was made with. data: as of `load`."""
    if datasets.on_devices.parse(data) is not None:
        return "synthetic records"
    if in_memory.is_name(data):
        return "a table in memory"
    return Path(data).name


def facts(dataset: Dataset, model: str) -> dict[str, Any]:
    """Return how many records a plan has, and what they can show at best, for JSON.

    model: its name. "optimum" is the figure of the model without privacy, and "optimum_interval" its
    95 % interval on records like those that judge it; None for a single one, from which no interval
    follows. Its log-loss and its recall, if it has them, are "log_loss_optimum" and "recall_optimum".
    The recall is that of the class "rarest" (`quality.rarest_class`).
    """
    measure = judging.measure(dataset)
    number = MODELS[model]
    weights = optimum(number, dataset, TrainingPlan.regularisation)
    judged = len(dataset.test)
    interval = None
    if judged > 1:
        interval = judging.intervals(dataset, number, weights)[measure]
    return {
        **quality.of_reference(quality.of_model(dataset, model, weights), "optimum"),
        "optimum_interval": interval,
        **quality.rarest_class(dataset),
        "available": len(dataset.training),
        "judged": judged,
    }


def doubts(result: Mapping[str, Any]) -> list[str]:
    """Return sentences about how uncertain a plan from few records is; none for many records.

    result: that of a plan, with `facts`, and with the number of records that all devices hold.
    """
    lines = []
    available = result["available"]
    if available < min(_FEW, result["held"]):
        lines.append(
            f"There are only {counted(available, 'record')} to learn from, so that several simulated "
            "devices hold the same one. Other records may need more devices, or fewer."
        )
    judged, interval = result["judged"], result["optimum_interval"]
    if judged < _FEW_TO_JUDGE:
        line = f"Only {counted(judged, 'record')} judged the models"
        if interval:
            low, high = interval
            figure = judging.WORDS[result["measure"]]
            line += (
                f". On other records, the {figure} without privacy may be anything from "
                f"{low:.2f} to {high:.2f}"
            )
        lines.append(f"{line}.")
    return lines
