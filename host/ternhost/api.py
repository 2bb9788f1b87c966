"""The public Python API: runs from beginning to end, their results, and cards. `ternhost` exports it."""

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
from ternhost.learn.schedule import Terms
from ternhost.options import Option, options_of
from ternhost.privacy import cards, mechanisms
from ternhost.privacy.mechanisms import Design
from ternhost.run import directory as places
from ternhost.run import result as results
from ternhost.run.device_model import DeviceModel
from ternhost.run.options import RunOptions
from ternhost.run.plugins import learner_of
from ternhost.run.run import Run
from ternhost.run.status import Status, Watcher

if TYPE_CHECKING:
    import pandas as pd

_LOG = logging.getLogger("ternhost")
# Numbers that algorithms find at the end, beside those of every round.
_AT_THE_END = ("mean_squared_error", "score", "score_without_noise", "agreement")

OnStatus = Callable[[Status], None]
Card = str | Path | bytes | Design


class Result(Mapping[str, Any]):
    """The result of a run: a mapping of its result.json, with the most wanted parts as attributes."""

    def __init__(self, result: Mapping[str, Any]) -> None:
        self._result = dict(result)

    @classmethod
    def load(cls, run: str | Path, directory: str | Path = places.RUNS) -> Result:
        """The result of a run that has finished: its name in `directory`, or its own directory, or its result.json.

        Raises UsageError where there is none, StorageError where it cannot be read.
        """
        return cls(results.load(run, Path(directory)))

    def __getitem__(self, name: str) -> Any:
        return self._result[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._result)

    def __len__(self) -> int:
        return len(self._result)

    def __str__(self) -> str:
        return "\n".join(learner_of(self).summary(self))

    def __repr__(self) -> str:
        return f"<Result of the run {self.name}: {self['algorithm']}, {self['reports']} reports>"

    @property
    def name(self) -> str:
        """The run's name."""
        return str(self["run"])

    @property
    def directory(self) -> Path:
        """The run's directory, with result.json."""
        return Path(self["directory"])

    @property
    def figures(self) -> dict[str, float]:
        """The figures by name, such as `accuracy`, `accuracy_baseline` and `accuracy_optimum`."""
        figures = places.figures_of(self["history"][-1] if self["history"] else None)
        for measure in self.get("measures", ()):
            figures |= {
                f"{measure}{part}": self[f"{measure}{part}"] for part in ("", "_baseline", "_optimum")
            }
        return figures | {name: self[name] for name in _AT_THE_END if self.get(name) is not None}

    @property
    def weights(self) -> npt.NDArray[np.float64] | None:
        """The model: weights in the order of `result["features"]`, of softmax regression a row for each of
        `result["labels"]`; None where the run learnt none."""
        if "weights" not in self:
            return None
        weights = np.array(self["weights"], np.float64)
        return weights.reshape(len(self["labels"]), -1) if self.get("labels") else weights

    @property
    def device_model(self) -> DeviceModel | None:
        """The model as devices have it, with their predictions; None where the run learnt none."""
        return DeviceModel.of_result(self) if "weights" in self else None

    @property
    def history(self) -> pd.DataFrame:
        """A row a round: its number, how it ended, asked, reports, refusals, and its figures. Wants pandas."""
        return _frame(self["history"])

    @property
    def attributes(self) -> pd.DataFrame:
        """A row for each attribute that was collected: name, mean, low, high, reports, and `true` where it is known.

        A categorical attribute has a row for each category: name, category, frequency, low, high. Wants pandas.
        """
        return _frame([row for entry in self.get("attributes", []) for row in _rows(entry)])

    @property
    def missing(self) -> str | None:
        """How many reports are missing, and why; None where all came."""
        return results.missing_words(self)

    def report(self) -> Path:
        """Write report.html and its pictures into the run's directory; returns its path. Raises StorageError."""
        return Path(results.draw(self)["report"])


def _rows(entry: Mapping[str, Any]) -> list[dict[str, Any]]:
    if "frequencies" not in entry:
        low, high = entry["interval"] or (None, None)
        row = {"name": entry["name"], "mean": entry["mean"], "low": low, "high": high}
        return [row | {name: entry[name] for name in ("reports", "true") if name in entry}]
    rows = []
    for i, category in enumerate(entry["categories"]):
        low, high = entry["intervals"][i] if entry["intervals"] else (None, None)
        row = {"name": entry["name"], "category": category, "frequency": entry["frequencies"][i]}
        row |= {"low": low, "high": high, "reports": entry["reports"]}
        rows.append(row | ({"true": entry["true"][i]} if "true" in entry else {}))
    return rows


def _frame(rows: list[dict[str, Any]]) -> pd.DataFrame:
    extras.require("pandas")
    import pandas as pd

    return pd.DataFrame(rows)


# Runs


def train(
    algorithm: str = "fedsgd",
    *,
    fleet: str | None = None,
    directory: str | Path = places.RUNS,
    name: str | None = None,
    store: str | Path | None = None,
    anew: bool = False,
    on_status: OnStatus | None = None,
    **options: Any,
) -> Result:
    """Train a model on a fleet under local differential privacy: `tern train`.

    algorithm: fedsgd, fedavg, hiera, or another that is registered. fleet: the devices, as `tern fleet kinds` lists
    them; by default emulated boards. directory: where the run gets a directory of its own, named `name`, or by the
    time. store: keys and rounds of the fleet, of many runs. anew: give up a run of that store that has not finished.
    on_status: hears of every round as it begins, goes on and ends.

    options: those of the command line, as keywords (`epsilon=2, reports=20_000, local_rate=3, silence=10`); `card` may
    also be bytes or a `Design`. Raises TypeError for an option that there is not or a value of another type, UsageError
    for one that makes no sense, and what else `TernError` stands for. What is worth telling goes to the logger
    `ternhost`.
    """
    place: dict[str, Any] = {"directory": directory, "name": name, "store": store, "anew": anew}
    return _run("train", algorithm, fleet=fleet, on_status=on_status, **place, **options)


def collect(algorithm: str = "collect", **arguments: Any) -> Result:
    """Estimate means and frequencies of what the devices hold: `tern collect`. Arguments and errors as of `train`."""
    return _run("collect", algorithm, **arguments)


def infer(algorithm: str = "infer", **arguments: Any) -> Result:
    """Classify on the devices, and cluster what they send: `tern infer`. Arguments and errors as of `train`."""
    return _run("infer", algorithm, **arguments)


def resume(
    run: str | Path,
    *,
    fleet: str | None = None,
    after_round: int | None = None,
    directory: str | Path = places.RUNS,
    on_status: OnStatus | None = None,
) -> Result:
    """Go on with a run that was interrupted: its name in `directory`, its own directory, or its store.

    fleet: where its boards are, if elsewhere by now. after_round: ask no round up to this number, where its store was
    restored from a copy and boards know later rounds. Raises TernError.
    """
    with Run.resume(str(run), _watcher(on_status), fleet, after_round, Path(directory)) as going:
        return _finished(going)


def list_runs(place: str | Path = places.RUNS) -> list[dict[str, Any]]:
    """The runs below a directory, or of a store (a file), the oldest first: `tern runs`. `pandas.DataFrame` takes it.

    Raises UsageError where there is no such place.
    """
    return places.listed(places.existing(place))


def _run(
    command: str,
    algorithm: str,
    *,
    fleet: str | None = None,
    directory: str | Path = places.RUNS,
    name: str | None = None,
    store: str | Path | None = None,
    anew: bool = False,
    on_status: OnStatus | None = None,
    **options: Any,
) -> Result:
    cls = ALGORITHMS.named(algorithm)
    if cls.command != command:
        raise UsageError(f"{algorithm} is not for ternhost.{command}", hint=f"call ternhost.{cls.command}")
    algorithms = algorithms_of(command)
    named = _typed(command, algorithms, options if fleet is None else {**options, "fleet": fleet})
    run_options = RunOptions.parse(algorithm, named, algorithms)
    place: dict[str, Any] = {"parent": Path(directory), "name": name, "store": store, "anew": anew}
    with Run.begin(run_options, watcher=_watcher(on_status), **place) as going:
        return _finished(going)


def _finished(going: Run) -> Result:
    result = Result(going.run())
    if result.missing:
        _LOG.warning(result.missing)
    return result


def _watcher(on_status: OnStatus | None) -> Watcher:
    return Watcher(on_status or Watcher().status, _LOG.warning, _LOG.info)


# Options


def _typed(
    function: str, algorithms: Mapping[str, type[Learner]], options: Mapping[str, Any]
) -> dict[str, Any]:
    """The options with values of their types. Raises TypeError for others, and for options that there are not."""
    parts = (*(cls.Options for cls in algorithms.values()), Terms, RunOptions)
    known = {option.name: option for part in parts for option in options_of(part)}
    values = {}
    for name, value in options.items():
        if name == "card":
            values[name] = None if value is None else _card(value)
        elif name in known:
            values[name] = _value(known[name], value)
        elif name == "mechanism_options":
            values[name] = value
        else:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; is {near[0]!r} meant?" if near else ""
            raise TypeError(f"{function}() has no option {name!r}{hint}")
    return values


def _value(option: Option, value: Any) -> Any:
    kind: Any = option.type
    if value is None and option.default is None:
        return None
    try:
        if isinstance(value, bool) != (kind is bool):
            raise TypeError
        if kind is int:
            return operator.index(value)
        if kind is float:
            return float(value + 0)  # of a number: a text is refused
        if kind is str and isinstance(value, int | float | Decimal | np.number):
            return str(value)
        if not isinstance(value, kind):
            raise TypeError
    except TypeError:
        words = {int: "a whole number", float: "a number", bool: "True or False", str: "a text or a number"}
        raise TypeError(f"{option.name} must be {words[kind]}, not {value!r}") from None
    return value


def _card(card: Card) -> str:
    if isinstance(card, Design):
        card = card.card
    if isinstance(card, bytes):
        return card.hex()
    try:
        return cards.load(str(card)).hex()
    except OSError as error:
        raise UsageError(f"{card}: {error.strerror}") from error


# Cards


def design(
    mechanism: str, epsilon: str | int | float | Decimal, levels: int | None = None, **options: Any
) -> Design:
    """Design a certified, exactly unbiased card: `tern card design`. Its bytes are `.card`, its table `.decode()`.

    mechanism: three-outputs, pm-sub, optimal, auto, ... as `tern card list` has them. levels: how many outputs, where
    the mechanism has a choice. options: the mechanism's own. Raises UsageError.
    """
    return mechanisms.design(mechanism, epsilon, levels, **options)
