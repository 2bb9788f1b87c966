"""Which algorithm a command runs where nobody names one, and why."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from ternhost import datasets
from ternhost.datasets import CLASSIFICATION, Selection
from ternhost.learn.base import Learner
from ternhost.learn.data_options import DataOptions
from ternhost.learn.parameters import SUITED
from ternhost.learn.record_bound import bound_on_records
from ternhost.learn.schedule import Schedule, Terms
from ternhost.options import flag, names_of, options_of
from ternhost.privacy import projection

_DIRECT, _FEDSGD = "direct", "fedsgd"
_ONCE = "tern asks each device once (tern train direct)"
_ROUNDS = "tern asks in many rounds (tern train fedsgd)"
_TWO_CLASSES = ": one answer about one record of each device is for two classes (--model logistic)"


class Chosen(NamedTuple):
    """An algorithm, and why it was chosen: empty if there was no choice."""

    algorithm: str
    reason: str


def choose_algorithm(
    named: Mapping[str, Any],
    algorithms: Mapping[str, type[Learner]],
    run_options: set[str],
    made: bool = True,
    served: bool = False,
) -> Chosen:
    """Choose the algorithm that suits the options that the user named, and say why.

    Between two algorithms there is a choice: "direct", where each device answers once, and
    "fedsgd", with many rounds. Direct is chosen if nothing speaks against it. Without public rows many
    rounds are better, unless a device has several records and the model is of two classes.

    named: the options that the user named: values by name.
    algorithms: those of the command, by name; the first is the default.
    run_options: the names of the options that every algorithm takes.
    made: whether tern makes the devices for the run, so that they have each module of the library.
    served: whether the fleet is asked round after round without an end.
    """
    implied = _implied_algorithm(named, algorithms, run_options)
    if implied is not None:
        return Chosen(implied, "")
    default = next(iter(algorithms))
    if not served:
        owner = _owner_of_all(named, algorithms, run_options | names_of(Terms))
        if owner is not None:
            return Chosen(owner, "")
    has_choice = default == _FEDSGD and not served
    if not has_choice:
        return Chosen(default, "")

    return _direct_or_fedsgd(named, algorithms, made)


def _direct_or_fedsgd(
    named: Mapping[str, Any], algorithms: Mapping[str, type[Learner]], made: bool
) -> Chosen:
    """Choose one answer of each device, if nothing speaks against it, or many rounds; say why.

    named, algorithms, made: as of `choose_algorithm`.
    """
    # Which options that the user named does only one of the two algorithms have?
    direct_options = names_of(algorithms[_DIRECT].Options)
    fedsgd_options = names_of(algorithms[_FEDSGD].Options)
    only_fedsgd = named.keys() & (fedsgd_options - direct_options)
    only_direct = named.keys() & (direct_options - fedsgd_options)
    if named.get("public") == "none":  # both algorithms can do without public rows
        only_direct -= {"public"}
    wants_direct = bool(only_direct)

    if only_fedsgd:
        return Chosen(
            _FEDSGD, f"{_ROUNDS}: {flag(min(only_fedsgd))} is an option of this algorithm"
        )
    if not made and not wants_direct:
        hint = "if the boards have the module projection, you can ask each device only once instead"
        return Chosen(_FEDSGD, f"{_ROUNDS}; {hint}: tern train direct")

    most_records = _most_records(named)  # of a device
    if most_records > 1:
        obstacle = _obstacle_to_means(named, wants_direct)
    else:
        obstacle = _obstacle_to_single_records(named, wants_direct)
    if obstacle is not None:
        return Chosen(_FEDSGD, f"{_ROUNDS}{obstacle}")
    if wants_direct:
        return Chosen(_DIRECT, f"{_ONCE}: {flag(min(only_direct))} is an option of this algorithm")
    if most_records > 1:
        return Chosen(
            _DIRECT, f"{_ONCE}: an answer is about all records of a device, up to {most_records:,}"
        )
    return Chosen(_DIRECT, f"{_ONCE}: the model is for two classes, and public rows are known")


def _obstacle_to_means(named: Mapping[str, Any], wants_direct: bool) -> str | None:
    """Say why not to ask each device once about many records, as the end of a sentence; or None.

    One answer about the mean of many records tells far more than about a single record. So two
    classes are learned well by it even without public rows. Other models are then no better than by
    many rounds.

    named: the options that the user named, by name. wants_direct: whether one of them is an option
    of direct alone.
    """
    on_devices = datasets.on_devices.parse(_data(named))
    if on_devices is not None:
        features, classes = on_devices.features, on_devices.classes or 1
    else:
        data = _load(named)
        features, classes = data.dimension, len(data.classes)
    obstacle = _unsuited_to_means(_model(named), features, classes)
    if obstacle is not None or wants_direct or _model(named) == "logistic":
        return obstacle
    return _missing_rows(named)


def _obstacle_to_single_records(named: Mapping[str, Any], wants_direct: bool) -> str | None:
    """Say why not to ask each device once about a single record. The rest as of the function above."""
    if not _has_two_classes(named):
        return _TWO_CLASSES
    if wants_direct:
        return None
    return _missing_rows(named)


def _implied_algorithm(
    named: Mapping[str, Any], algorithms: Mapping[str, type[Learner]], shared: set[str]
) -> str | None:
    """Return the algorithm that an option implies which only some algorithms have, or None.

    The option is the unit of privacy, as in `--unit record`. Of the algorithms that have it, the
    first one is returned that has all other named options, too; if none has, the first one.
    `--unit device` implies none, since every algorithm can protect devices.

    named: the options that the user named, by name.
    algorithms: those of the command, by name.
    shared: the names of the options that every algorithm takes.
    """
    if named.get("unit", "device") == "device":
        return None
    with_unit = [name for name in algorithms if "unit" in names_of(algorithms[name].Options)]
    needed = named.keys() - shared - names_of(Terms) - names_of(Schedule)
    for name in with_unit:
        if needed <= names_of(algorithms[name].Options):
            return name
    return next(iter(with_unit), None)


def _owner_of_all(
    named: Mapping[str, Any], algorithms: Mapping[str, type[Learner]], shared: set[str]
) -> str | None:
    """Return the first algorithm that has all named options, if direct and fedsgd do not; or None.

    An algorithm that by default protects less than a device is chosen only if the unit is named;
    and if it is not, the options that such an algorithm has choose no other one either.

    named: the options that the user named, by name. algorithms: those of the command, by name.
    shared: the names of the options that every algorithm takes.
    """
    needed = named.keys() - shared
    owners = []
    for name, learner in algorithms.items():
        missing = needed - names_of(learner.Options)
        if named.get("public") == "none":  # every algorithm can do without public rows
            missing -= {"public"}
        if names_device(named):  # every algorithm protects devices
            missing -= {"unit"}
        if not missing:
            owners.append(name)
    default = next(iter(algorithms))
    if default in owners or (default == _FEDSGD and _DIRECT in owners):
        return None
    if "unit" not in named and any(_protects_less(algorithms[name]) for name in owners):
        return None
    return next(iter(owners), None)


def _protects_less(algorithm: type[Learner]) -> bool:
    """Tell whether an algorithm protects less than a device where the user names no unit."""
    for option in options_of(algorithm.Options):
        if option.name == "unit":
            return bool(option.default != "device")
    return False


def names_device(named: Mapping[str, Any]) -> bool:
    """Tell whether the user wants devices protected, as every learner does by default.

    named: the options that the user named, by name, whose values may still be of any type.
    """
    unit = named.get("unit")
    return isinstance(unit, str) and unit == "device"


def suits_direct(
    model: str, dataset: datasets.Dataset, records: int = 1, has_rows: bool | None = None
) -> bool:
    """Tell whether one answer of each device is enough to learn a model of a data set.

    Where a device has several records, that is so for two classes, and with public rows for other
    models but an SVM, if one symbol can stand for the gradient. Where it has one, that is so for two
    classes, if there are public rows.

    records: the most records of a device. has_rows: whether there are public rows; None: as the data
    set declares.
    """
    if has_rows is None:
        has_rows = len(dataset.public) > 0
    if records > 1:
        obstacle = _unsuited_to_means(model, dataset.dimension, len(dataset.classes))
        return obstacle is None and (model == "logistic" or has_rows)
    return model == "logistic" and dataset.task == CLASSIFICATION and has_rows


def _most_records(named: Mapping[str, Any]) -> int:
    """Return the most records of a device: as the user says, or else the data; 1 if neither does.

    named: the options that the user named, by name, whose values may still be of any type.
    """
    records = named.get("records")
    if isinstance(records, int):
        return records
    if datasets.on_devices.parse(_data(named)) is not None:
        return 1
    data = _load(named)
    return max(1, bound_on_records(data, data.training, named=None))


def _has_two_classes(named: Mapping[str, Any]) -> bool:
    """Tell whether the options that the user named imply a model of two classes."""
    if named.get("model") not in (None, "", "logistic"):
        return False
    return _task(named) == CLASSIFICATION


def _unsuited_to_means(model: str, features: int, classes: int) -> str | None:
    """Say why no model follows from one mean gradient of each device, as the end of a sentence.

    Returns None if one does.

    model: its name. features: of a record. classes: of the labels, which softmax regression needs.
    """
    if model == "svm":
        return ": one answer of each device cannot train an svm"
    weights = features
    if model == "softmax":
        weights = features * classes
    if weights > projection.MOST_VALUES:
        return (
            f": one answer of each device tells of at most {projection.MOST_VALUES} weights, and "
            f"the model has {weights:,}"
        )
    return None


def _missing_rows(named: Mapping[str, Any]) -> str | None:
    """Say why no public rows are known, as the end of a sentence; None if there are some.

    Public rows are features of records that are nobody's secret. An algorithm that learns from one
    answer of each device needs them. The user has not named a source of them, so that they can only
    be those that a data set declares to be public.

    named: the options that the user named, and their values.
    """
    if "public" in named:  # --public none, as another value would be a source
        return ": there are to be no public rows"
    name = _data(named)
    if datasets.on_devices.parse(name) is not None:
        return ": no public rows are known (--public FILE)"
    if not len(_load(named).public):
        return f": {name} declares no public rows (--public FILE|N)"
    return None


def _data(named: Mapping[str, Any]) -> str:
    """Return what the devices hold: as named, or the default."""
    data: str = named.get("data", "flights")
    return data


def _task(named: Mapping[str, Any]) -> str:
    """Return what suits the labels of the named data, such as CLASSIFICATION."""
    on_devices = datasets.on_devices.parse(_data(named))
    if on_devices is not None:
        return on_devices.task
    return datasets.task_of(_data(named), _selection(named))


def _model(named: Mapping[str, Any]) -> str:
    """Return the name of the model to train: as named, else the one that suits the labels."""
    return named.get("model") or SUITED[_task(named)]


def _load(named: Mapping[str, Any]) -> datasets.Dataset:
    """Load the named data for the model to train. Raises UsageError."""
    has_class_numbers = _model(named) == "softmax"
    return datasets.load(_data(named), classes=has_class_numbers, selection=_selection(named))


def _selection(named: Mapping[str, Any]) -> Selection:
    """Return which device holds which records, as named. Raises UsageError for wrong values."""
    names = names_of(DataOptions) & named.keys()
    return DataOptions(**{name: named[name] for name in names}).selection
