"""The public Python API, which `ternhost` exports: runs, their results, and cards."""

from __future__ import annotations

import difflib
import logging
import operator
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ternhost import extras
from ternhost.errors import UsageError
from ternhost.learn.base import ALGORITHMS, Learner, algorithms_of
from ternhost.options import Option, options_of
from ternhost.privacy import cards, mechanisms
from ternhost.privacy.matrix import certify as certify  # exported
from ternhost.privacy.mechanisms import Design
from ternhost.run import directory as run_directory
from ternhost.run import result as results
from ternhost.run.begin import Place
from ternhost.run.device_model import DeviceModel
from ternhost.run.guarantees import ClassGuarantees, classes_of
from ternhost.run.options import RunOptions, classes_of_run
from ternhost.run.plugins import learner_of
from ternhost.run.run import Run
from ternhost.run.status import Status, Watcher

if TYPE_CHECKING:
    import pandas as pd

_LOG = logging.getLogger("ternhost")
# Figures that exist only at the end of a run.
_AT_THE_END = ("mean_squared_error", "score", "score_without_noise", "agreement")

OnStatus = Callable[[Status], None]
Card = str | Path | bytes | Design


class Result(Mapping[str, Any]):
    """The result of a run: the content of its result.json, and the most used parts as attributes."""

    def __init__(self, result: Mapping[str, Any]) -> None:
        self._result = dict(result)

    @classmethod
    def load(cls, run: str | Path, directory: str | Path = run_directory.RUNS) -> Result:
        """Load the result of a finished run.

        run: its name in `directory`, its own directory, or its result.json. Raises UsageError if
        there is no such result, StorageError if it cannot be read.
        """
        return cls(results.load(run, Path(directory)))

    def __getitem__(self, name: str) -> Any:
        return self._result[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._result)

    def __len__(self) -> int:
        return len(self._result)

    def __str__(self) -> str:
        return "\n".join([*learner_of(self).summary(self), *results.privacy_words(self)])

    def __repr__(self) -> str:
        return f"<Result of the run {self.name}: {self['algorithm']}, {self['reports']} reports>"

    @property
    def name(self) -> str:
        """The run's name."""
        return str(self["run"])

    @property
    def directory(self) -> Path:
        """The run's directory, which contains result.json."""
        return Path(self["directory"])

    @property
    def figures(self) -> dict[str, float]:
        """Figures by name, such as `accuracy`, `accuracy_baseline` and `accuracy_optimum`.

        They are those of the last round, and those that exist only at the end of a run.
        """
        last_round = None
        if self["history"]:
            last_round = self["history"][-1]
        figures = run_directory.figures_of(last_round)
        for measure in self.get("measures", ()):
            for name in (measure, f"{measure}_baseline", f"{measure}_optimum"):
                figures[name] = self[name]
        for name in _AT_THE_END:
            if self.get(name) is not None:
                figures[name] = self[name]
        return figures

    @property
    def guarantees(self) -> list[ClassGuarantees]:
        """The privacy guarantees that the run gives to the devices of each class.

        Each class has a guarantee of a single `report`, one of the whole `run`, and one of the
        `life` of a device so far. The list is empty if the devices reported nothing that is
        protected.
        """
        return classes_of(self)

    @property
    def weights(self) -> npt.NDArray[np.float64] | None:
        """The model's weights in the order of `result["features"]`, shape (features,).

        Softmax regression has a row for each of `result["labels"]`: shape (labels, features). None
        if the run learned no model.
        """
        if "weights" not in self:
            return None
        weights = np.array(self["weights"], np.float64)
        labels = self.get("labels")
        if labels:
            return weights.reshape(len(labels), -1)
        return weights

    @property
    def device_model(self) -> DeviceModel | None:
        """The model as devices use it, with the predictions that they make.

        None if the run learned no model.
        """
        if "weights" not in self:
            return None
        return DeviceModel.of_result(self)

    @property
    def history(self) -> pd.DataFrame:
        """A table with a row for each round. Needs pandas.

        It has the columns `round` (its number), `ended` (how it ended), `asked` (the number of
        devices), `reports` and `refusals`, and one for each figure of the model.
        """
        return _frame(self["history"])

    @property
    def attributes(self) -> pd.DataFrame:
        """A table with a row for each collected attribute. Needs pandas.

        It has the columns `name`, `mean`, `low` and `high`, which are the 95 % interval of the
        mean, `reports`, and `true`, which is the true mean if it is known. A categorical attribute
        has a row for each `category`, with its `frequency` instead of a mean.
        """
        rows: list[dict[str, Any]] = []
        for attribute in self.get("attributes", []):
            rows += _rows_of_attribute(attribute)
        return _frame(rows)

    @property
    def missing(self) -> str | None:
        """How many reports are missing, and why. None if all arrived."""
        return results.missing_words(self)

    def report(self) -> Path:
        """Write report.html and its pictures into the run's directory, and return its path.

        Raises StorageError.
        """
        return Path(results.draw(self)["report"])


def _rows_of_attribute(attribute: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of an attribute in the table: one, or one for each of its categories.

    attribute: an element of "attributes" in result.json.
    """
    common_columns = {}
    for name in ("reports", "true"):
        if name in attribute:
            common_columns[name] = attribute[name]

    if "frequencies" not in attribute:
        low, high = attribute["interval"] or (None, None)
        row = {"name": attribute["name"], "mean": attribute["mean"], "low": low, "high": high}
        return [{**row, **common_columns}]

    rows = []
    for index, category in enumerate(attribute["categories"]):
        low, high = None, None
        if attribute["intervals"]:
            low, high = attribute["intervals"][index]
        row = {
            "name": attribute["name"],
            "category": category,
            "frequency": attribute["frequencies"][index],
            "low": low,
            "high": high,
            **common_columns,
        }
        if "true" in attribute:  # here a list: the true frequency of each category
            row["true"] = attribute["true"][index]
        rows.append(row)
    return rows


def _frame(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Return rows as a table of pandas. Raises UsageError if pandas is not installed."""
    extras.require("pandas")
    import pandas as pd

    return pd.DataFrame(rows)


# Runs


def train(
    algorithm: str | None = None,
    *,
    fleet: str | None = None,
    directory: str | Path = run_directory.RUNS,
    name: str | None = None,
    store: str | Path | None = None,
    anew: bool = False,
    on_status: OnStatus | None = None,
    **options: Any,
) -> Result:
    """Train a model on a fleet under local differential privacy, as `tern train` does.

    - algorithm: direct, fedsgd, fedavg, fedsum, hiera, or another that is registered; by default
      direct for two classes with public rows, else fedsgd
    - fleet: the devices, in a form that `tern fleet kinds` lists; by default emulated boards
    - directory, name: the run gets its own directory of this name there, by default named after
      the time
    - store: the file with the fleet's keys and rounds, which its runs share; by default the fleet's
      own, or one in the run's directory
    - anew: abandon an unfinished run of that store
    - on_status: called with a `Status` as each round begins, progresses and ends

    options: those of the command line as keywords, such as `epsilon=2, reports=20_000, silence=10`;
    `card` may also be bytes or a `Design`. Raises TypeError for an unknown option or a value of the
    wrong type, UsageError for a value that makes no sense, and other kinds of `TernError`. Warnings
    and notes go to the logger `ternhost`.
    """
    place = Place(name=name, parent=Path(directory), store=store, anew=anew)
    return _run("train", algorithm, fleet, options, place, on_status)


def collect(
    algorithm: str | None = None,
    *,
    fleet: str | None = None,
    directory: str | Path = run_directory.RUNS,
    name: str | None = None,
    store: str | Path | None = None,
    anew: bool = False,
    on_status: OnStatus | None = None,
    **options: Any,
) -> Result:
    """Estimate means and frequencies of attributes, as `tern collect` does.

    algorithm: values, means, levels, or another that is registered; by default chosen by the options.
    Other arguments and errors: as for `train`.
    """
    place = Place(name=name, parent=Path(directory), store=store, anew=anew)
    return _run("collect", algorithm, fleet, options, place, on_status)


def infer(
    algorithm: str = "infer",
    *,
    fleet: str | None = None,
    directory: str | Path = run_directory.RUNS,
    name: str | None = None,
    store: str | Path | None = None,
    anew: bool = False,
    on_status: OnStatus | None = None,
    **options: Any,
) -> Result:
    """Classify records on the devices, as `tern infer` does.

    Arguments and errors: as for `train`.
    """
    place = Place(name=name, parent=Path(directory), store=store, anew=anew)
    return _run("infer", algorithm, fleet, options, place, on_status)


def resume(
    run: str | Path,
    *,
    fleet: str | None = None,
    after_round: int | None = None,
    directory: str | Path = run_directory.RUNS,
    on_status: OnStatus | None = None,
) -> Result:
    """Resume an interrupted run, and run it to its end.

    run: its name in `directory`, its own directory, or its store. fleet: the new place of its
    boards, if they have moved. after_round: continue after this round number, if the store was
    restored from a backup and boards have already seen later rounds. Raises TernError.
    """
    watcher = _watcher(on_status)
    with Run.resume(str(run), watcher, fleet, after_round, Path(directory)) as resumed:
        return _finished(resumed)


def list_runs(place: str | Path = run_directory.RUNS) -> list[dict[str, Any]]:
    """List the runs in a directory or in a store (a file), oldest first, as `tern runs` does.

    `pandas.DataFrame` turns the list into a table. Raises UsageError if `place` does not exist.
    """
    return run_directory.list_runs(run_directory.existing_place(place))


def _run(
    command: str,
    algorithm: str | None,
    fleet: str | None,
    options: Mapping[str, Any],
    place: Place,
    on_status: OnStatus | None,
) -> Result:
    """Begin a run of a command's algorithm, and run it to its end.

    command: "train", "collect" or "infer". algorithm: its name; None for the default of the
    command. Other arguments: as for `train`. Raises UsageError if the algorithm belongs to another
    command.
    """
    if algorithm is not None:
        command_of_algorithm = ALGORITHMS.named(algorithm).command
        if command_of_algorithm != command:
            text = f"ternhost.{command} does not run {algorithm}"
            raise UsageError(text, hint=f"call ternhost.{command_of_algorithm}")
    if fleet is not None:
        options = {**options, "fleet": fleet}
    algorithms = algorithms_of(command)
    values = _typed(command, algorithms, options)
    run_options = RunOptions.parse(algorithm, values, algorithms)
    with Run.begin(run_options, place, _watcher(on_status)) as run:
        return _finished(run)


def _finished(run: Run) -> Result:
    """Carry out a run to its end; return its result, and warn if reports are missing."""
    result = Result(run.run())
    if result.missing:
        _LOG.warning(result.missing)
    return result


def _watcher(on_status: OnStatus | None) -> Watcher:
    """Return a watcher of a run that calls `on_status`, and logs warnings and notes."""
    if on_status is None:
        on_status = Watcher().status  # which does nothing
    return Watcher(on_status, _LOG.warning, _LOG.info)


# Options


def _typed(
    function: str, algorithms: Mapping[str, type[Learner]], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Convert keyword arguments into option values, each of its type.

    function: the name of the called function, for messages. Raises TypeError for a value of another
    type and for an unknown option.
    """
    option_classes = [algorithm.Options for algorithm in algorithms.values()]
    option_classes += classes_of_run()
    known_options: dict[str, Option] = {}
    for option_class in option_classes:
        for option in options_of(option_class):
            known_options[option.name] = option

    values: dict[str, Any] = {}
    for name, value in options.items():
        if name == "card" and value is None:
            values[name] = None
        elif name == "card":
            values[name] = _card(value)
        elif name in known_options:
            values[name] = _value(known_options[name], value)
        else:
            text = f"{function}() has no option {name!r}"
            similar = difflib.get_close_matches(name, known_options, 1)
            if similar:
                text += f"; did you mean {similar[0]!r}?"
            raise TypeError(text)
    return values


_KINDS: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    str: "a text or a number",
}


def _value(option: Option, value: Any) -> Any:
    """Convert the value of an option to the option's type. Raises TypeError if it has another type."""
    if value is None and option.default is None:
        return None
    try:
        return _converted(option.type, value)
    except TypeError:
        must = _KINDS[option.type]
        raise TypeError(f"{option.name} must be {must}, not {value!r}") from None


def _converted(wanted_type: Any, value: Any) -> Any:
    """Convert a value to a type without changing what it means; raise TypeError otherwise.

    A number may stand for a text, but a bool does not stand for a number, although Python counts it
    as an integer.
    """
    is_bool = isinstance(value, bool)
    if is_bool != (wanted_type is bool):
        raise TypeError
    if wanted_type is int:
        return operator.index(value)  # raises TypeError unless it is an integer
    if wanted_type is float:
        return float(value + 0)  # the sum raises TypeError for a text
    if wanted_type is str and isinstance(value, int | float | Decimal | np.number):
        return str(value)
    if not isinstance(value, wanted_type):
        raise TypeError
    return value


def _card(card: Card) -> str:
    """Return a card in hexadecimal digits. Raises UsageError if its file cannot be read."""
    if isinstance(card, Design):
        return card.card.hex()
    if isinstance(card, bytes):
        return card.hex()
    try:
        return cards.load(str(card)).hex()
    except OSError as error:
        text = f"{card}: {error.strerror}"
        raise UsageError(text, hint="give a card file, bytes or a Design") from error


# Cards


def design(
    mechanism: str, epsilon: str | int | float | Decimal, levels: int | None = None, **options: Any
) -> Design:
    """Design a certified, exactly unbiased card, as `tern card design` does: its bytes are `.card`.

    mechanism: three-outputs, pm-sub, auto or another that `tern card list` shows. levels: number of
    outputs, if the mechanism leaves a choice. options: the mechanism's own. Raises UsageError.
    """
    return mechanisms.design(mechanism, epsilon, levels, **options)
