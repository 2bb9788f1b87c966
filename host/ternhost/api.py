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
        history = self["history"]
        figures = run_directory.figures_of(history[-1] if history else None)
        for measure in self.get("measures", ()):
            for name in (measure, f"{measure}_baseline", f"{measure}_optimum"):
                figures[name] = self[name]
        for name in _AT_THE_END:
            if self.get(name) is not None:
                figures[name] = self[name]
        return figures

    @property
    def guarantees(self) -> list[ClassGuarantees]:
        """What the run promises the devices of each class.

        Each has guarantees of a `report`, of the `run`, and of the `life` of a device so far. Empty
        if the devices reported nothing that is protected.
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
        return weights.reshape(len(labels), -1) if labels else weights

    @property
    def device_model(self) -> DeviceModel | None:
        """The model as devices use it, with the predictions that they make.

        None if the run learned no model.
        """
        return DeviceModel.of_result(self) if "weights" in self else None

    @property
    def history(self) -> pd.DataFrame:
        """A row for each round: `round`, `ended` (how), `asked`, `reports`, `refusals`, figures.

        Needs pandas.
        """
        return _frame(self["history"])

    @property
    def attributes(self) -> pd.DataFrame:
        """A row for each collected attribute. Needs pandas.

        `name`, `mean`, its 95 % interval `low` to `high`, `reports`, and `true`, the true mean, if
        it is known. A categorical attribute has a row for each `category`, with its `frequency`
        instead of a mean.
        """
        rows: list[dict[str, Any]] = []
        for entry in self.get("attributes", []):
            rows += _rows(entry)
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


def _rows(entry: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of an attribute in a table: one, or one for each category.

    entry: the attribute in result.json.
    """
    common_columns = {name: entry[name] for name in ("reports", "true") if name in entry}
    if "frequencies" not in entry:
        low, high = entry["interval"] or (None, None)
        return [
            {
                "name": entry["name"],
                "mean": entry["mean"],
                "low": low,
                "high": high,
                **common_columns,
            }
        ]
    rows = []
    for index, category in enumerate(entry["categories"]):
        low, high = entry["intervals"][index] if entry["intervals"] else (None, None)
        row = {
            "name": entry["name"],
            "category": category,
            "frequency": entry["frequencies"][index],
        }
        row |= {"low": low, "high": high, **common_columns}
        if "true" in entry:
            row["true"] = entry["true"][index]
        rows.append(row)
    return rows


def _frame(rows: list[dict[str, Any]]) -> pd.DataFrame:
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

    algorithm: direct, fedsgd, fedavg, fedsum, hiera, or another that is registered; by default
    direct for two classes with public rows, else fedsgd. fleet: the devices, in a form that `tern
    fleet kinds` lists; default: emulated boards. directory: the run gets its own directory there,
    called `name` (default: the time). store: file with the fleet's keys and rounds, which its runs
    share; default: the fleet's own, or one in the run's directory. anew: abandon an unfinished run
    of that store. on_status: called with a `Status` as each round begins, progresses and ends.

    options: those of the command line as keywords, such as `epsilon=2, reports=20_000, silence=10`;
    `card` may also be bytes or a `Design`. Raises TypeError for an unknown option or a value of the
    wrong type, UsageError for a value that makes no sense, and other kinds of `TernError`. Warnings
    and notes go to the logger `ternhost`.
    """
    place = Place(name, Path(directory), store, anew)
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

    algorithm: collect, means, or another that is registered; by default chosen by the options. Other
    arguments and errors: as for `train`.
    """
    place = Place(name, Path(directory), store, anew)
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
    place = Place(name, Path(directory), store, anew)
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
    with Run.resume(str(run), _watcher(on_status), fleet, after_round, Path(directory)) as resumed:
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

    Raises UsageError if the algorithm belongs to another command.
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
    result = Result(run.run())
    if result.missing:
        _LOG.warning(result.missing)
    return result


def _watcher(on_status: OnStatus | None) -> Watcher:
    return Watcher(on_status or Watcher().status, _LOG.warning, _LOG.info)


# Options


def _typed(
    function: str, algorithms: Mapping[str, type[Learner]], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Convert keyword arguments into option values, each of its type.

    function: the name of the called function, for messages. Raises TypeError for a value of another
    type and for an unknown option.
    """
    known_options: dict[str, Option] = {}
    for option_class in (*[cls.Options for cls in algorithms.values()], *classes_of_run()):
        known_options |= {option.name: option for option in options_of(option_class)}
    values = {}
    for name, value in options.items():
        if name == "card":
            values[name] = None if value is None else _card(value)
        elif name in known_options:
            values[name] = _value(known_options[name], value)
        elif name == "mechanism_options":
            values[name] = value
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

    A bool is no number, and a number may stand for a text.
    """
    if isinstance(value, bool) != (wanted_type is bool):
        raise TypeError
    if wanted_type is int:
        return operator.index(value)
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
