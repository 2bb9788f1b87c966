"""Which algorithm a command runs where nobody names one, and why."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from ternhost import datasets
from ternhost.datasets import CLASSIFICATION
from ternhost.learn.base import Learner
from ternhost.learn.schedule import Terms
from ternhost.options import choices_of, flag, names_of

_DIRECT, _FEDSGD = "direct", "fedsgd"
_ONCE = "one answer of each device (--algorithm direct)"
_ROUNDS = "many rounds (--algorithm fedsgd)"
_TWO_CLASSES = ": one answer of each device is for two classes (--model logistic)"


class Chosen(NamedTuple):
    """An algorithm, and why it was chosen: empty if there was no choice."""

    algorithm: str
    reason: str


def choose(
    named: Mapping[str, Any],
    algorithms: Mapping[str, type[Learner]],
    run_options: set[str],
    made: bool = True,
    served: bool = False,
) -> Chosen:
    """Choose the algorithm that suits the options that the user named.

    named: their values by name. algorithms: those of the command, by name. run_options: the names
    of the options that every algorithm takes. made: whether the devices are made for the run, so
    that they have each module. served: whether the fleet is served.
    """
    implied = _implied_algorithm(named, algorithms)
    if implied is not None:
        return Chosen(implied, "")
    first = next(iter(algorithms))
    if served or first != _FEDSGD:
        return Chosen(first, "")

    direct_options = names_of(algorithms[_DIRECT].Options)
    fedsgd_options = names_of(algorithms[_FEDSGD].Options)
    only_direct = named.keys() & (direct_options - fedsgd_options)
    if named.get("public") == "none":  # both algorithms can do without
        only_direct -= {"public"}
    only_fedsgd = named.keys() - (run_options | names_of(Terms) | direct_options)

    obstacle = None
    if only_fedsgd:
        obstacle = f": {flag(min(only_fedsgd))} is an option of it"
    elif not made and not only_direct:
        obstacle = "; boards with the module projection can do with one answer: --algorithm direct"
    elif not _has_two_classes(named):
        obstacle = _TWO_CLASSES
    elif not only_direct:
        obstacle = _missing_rows(named)

    if obstacle:
        return Chosen(_FEDSGD, f"{_ROUNDS}{obstacle}")
    if only_direct:
        return Chosen(_DIRECT, f"{_ONCE}: {flag(min(only_direct))} is an option of it")
    return Chosen(_DIRECT, f"{_ONCE}: two classes, and public rows are known")


def _implied_algorithm(
    named: Mapping[str, Any], algorithms: Mapping[str, type[Learner]]
) -> str | None:
    """Return the first algorithm that has the named unit or method; None if neither is named."""
    if "unit" in named:
        for name, learner in algorithms.items():
            if "unit" in names_of(learner.Options):
                return name
    if "method" in named:
        for name, learner in algorithms.items():
            if named["method"] in choices_of(learner.Options, "method"):
                return name
    return None


def suits_direct(model: str, dataset: datasets.Dataset) -> bool:
    """Whether one answer of each device is enough: for two classes, with declared public rows."""
    return model == "logistic" and dataset.task == CLASSIFICATION and len(dataset.public) > 0


def _has_two_classes(named: Mapping[str, Any]) -> bool:
    """Whether the model that the options imply is one of two classes."""
    if named.get("model") not in (None, "", "logistic"):
        return False
    return "dimension" in named or datasets.task_of(_dataset(named)) == CLASSIFICATION


def _missing_rows(named: Mapping[str, Any]) -> str | None:
    """Say why no public rows are known; None if there are some."""
    if "public" in named:
        return ": there are to be no public rows"
    if "dimension" in named:
        return ": no public rows are known (--public FILE)"
    name = _dataset(named)
    if not suits_direct("logistic", datasets.load(name)):
        return f": {name} declares no public rows (--public FILE|N)"
    return None


def _dataset(named: Mapping[str, Any]) -> str:
    """Return the name of the data set: as named, or the default."""
    name: str = named.get("dataset", "flights")
    return name
