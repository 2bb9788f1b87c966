"""Which algorithm a command runs where nobody names one, and why."""

from collections.abc import Mapping
from typing import Any

from ternhost import datasets
from ternhost.datasets import CLASSIFICATION
from ternhost.learn.base import Learner
from ternhost.learn.schedule import Schedule, Terms
from ternhost.options import flag, names_of

_DIRECT, _FEDSGD = "direct", "fedsgd"
_ROUNDS = "many rounds (--algorithm fedsgd)"


def suits_direct(model: str, dataset: datasets.Dataset) -> bool:
    """Whether one answer of each device is enough for a model of a data set, with the public rows that it declares."""
    return model == "logistic" and dataset.task == CLASSIFICATION and len(dataset.public) > 0


def of(
    named: Mapping[str, Any], algorithms: Mapping[str, type[Learner]], of_runs: set[str], made: bool = True,
    served: bool = False,
) -> tuple[str, str]:  # fmt: skip
    """(algorithm, reason) for these named options. of_runs: names of those that any algorithm takes. made: the devices
    are made for the run, so that they have each module. The reason is empty where there was no choice."""
    if "unit" in named:
        for name, cls in algorithms.items():
            if "unit" in names_of(cls.Options):
                return name, ""
    first = next(iter(algorithms))
    if served or first != _FEDSGD:
        return first, ""
    common = of_runs | names_of(Terms) | names_of(Schedule) | names_of(algorithms[_DIRECT].Options)
    if others := sorted(named.keys() - common):
        return _FEDSGD, f"{_ROUNDS}: {flag(others[0])} is an option of it"
    if not made:
        hint = "boards with the module projection can do with one answer: --algorithm direct"
        return _FEDSGD, f"{_ROUNDS}; {hint}"
    if "dimension" in named and named.get("public", "none") == "none":
        return _FEDSGD, f"{_ROUNDS}: no public rows are known (--public FILE)"
    model, dataset = named.get("model"), named.get("dataset", "flights")
    if model not in (None, "", "logistic") or (
        "dimension" not in named and datasets.task_of(dataset) != CLASSIFICATION
    ):
        return _FEDSGD, f"{_ROUNDS}: one answer of each device is for two classes (--model logistic)"
    if "public" not in named and not suits_direct("logistic", datasets.load(dataset)):
        return _FEDSGD, f"{_ROUNDS}: {dataset} declares no public rows (--public FILE|N)"
    if named.get("public") == "none" and "moments" not in named:
        return _FEDSGD, f"{_ROUNDS}: there are to be no public rows"
    return _DIRECT, "one answer of each device (--algorithm direct): two classes, and public rows are known"
