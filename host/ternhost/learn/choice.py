"""Which algorithm a command runs where nobody names one, and why."""

from collections.abc import Mapping
from typing import Any

from ternhost import datasets
from ternhost.datasets import CLASSIFICATION
from ternhost.learn.base import Learner
from ternhost.learn.schedule import Terms
from ternhost.options import choices_of, flag, names_of

_DIRECT, _FEDSGD = "direct", "fedsgd"
_ONCE, _ROUNDS = (
    "one answer of each device (--algorithm direct)",
    "many rounds (--algorithm fedsgd)",
)


def suits_direct(model: str, dataset: datasets.Dataset) -> bool:
    """Whether one answer of each device is enough for a model of a data set, with the public rows
    that it declares.
    """
    return model == "logistic" and dataset.task == CLASSIFICATION and len(dataset.public) > 0


def of(
    named: Mapping[str, Any],
    algorithms: Mapping[str, type[Learner]],
    of_runs: set[str],
    made: bool = True,
    served: bool = False,
) -> tuple[str, str]:
    """(algorithm, reason) for these named options. of_runs: names of those that any algorithm
    takes. made: the devices are made for the run, so that they have each module. The reason is
    empty where there was no choice.
    """
    if "unit" in named:
        for name, cls in algorithms.items():
            if "unit" in names_of(cls.Options):
                return name, ""
    if "method" in named:
        for name, cls in algorithms.items():
            if named["method"] in choices_of(cls.Options, "method"):
                return name, ""
    first = next(iter(algorithms))
    if served or first != _FEDSGD:
        return first, ""
    direct, fedsgd = (names_of(algorithms[name].Options) for name in (_DIRECT, _FEDSGD))
    if others := sorted(named.keys() - (of_runs | names_of(Terms) | direct)):
        return _FEDSGD, f"{_ROUNDS}: {flag(others[0])} is an option of it"
    without = {"public"} if named.get("public") == "none" else set()
    wanted = sorted((named.keys() & (direct - fedsgd)) - without)
    if not made and not wanted:
        hint = "boards with the module projection can do with one answer: --algorithm direct"
        return _FEDSGD, f"{_ROUNDS}; {hint}"
    model, dataset = named.get("model"), named.get("dataset", "flights")
    if model not in (None, "", "logistic") or (
        "dimension" not in named and datasets.task_of(dataset) != CLASSIFICATION
    ):
        return (
            _FEDSGD,
            f"{_ROUNDS}: one answer of each device is for two classes (--model logistic)",
        )
    if wanted:
        return _DIRECT, f"{_ONCE}: {flag(wanted[0])} is an option of it"
    if "public" in named:
        return _FEDSGD, f"{_ROUNDS}: there are to be no public rows"
    if "dimension" in named:
        return _FEDSGD, f"{_ROUNDS}: no public rows are known (--public FILE)"
    if not suits_direct("logistic", datasets.load(dataset)):
        return _FEDSGD, f"{_ROUNDS}: {dataset} declares no public rows (--public FILE|N)"
    return _DIRECT, f"{_ONCE}: two classes, and public rows are known"
