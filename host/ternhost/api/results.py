"""The results of runs, as Python programs and notebooks get them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from html import escape
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from tern.wire import LOGISTIC
from ternhost.api import arguments
from ternhost.api.frames import frame
from ternhost.api.histograms import Histogram, Quantile, quantiles_of
from ternhost.api.json_object import JsonObject
from ternhost.errors import UsageError
from ternhost.learn.collecting import estimate_rows
from ternhost.learn.collecting.attribute_results import in_unit
from ternhost.learn.distributions.distribution_entries import distributions_of
from ternhost.run import directory as run_directory
from ternhost.run import result as results
from ternhost.run.device_model import DeviceModel
from ternhost.run.guarantees import ClassGuarantees, classes_of
from ternhost.run.plugins import learner_of
from ternhost.text import counted

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_MOST_ESTIMATES = 24  # rows of the table in a notebook
# Figures that exist only at the end of a run.
_AT_THE_END = ("mean_squared_error", "score", "score_without_noise", "agreement")


@dataclass(frozen=True, eq=False, repr=False)
class Result(JsonObject):
    """The result of a run. As a mapping it has the members of the run's result.json.

    - name: of the run
    - learner: its name, such as "fedsgd"
    - directory: of the run's files
    - reports: how many arrived; asked: how many the run asked for
    - missing: how many its rounds needed but did not get; refusals: how many devices refused
    - rounds: how many have ended; seconds: how long they took
    - figures: the numbers that judge the result, by name, such as "accuracy" and, for comparison,
      "accuracy_optimum" (without privacy) and "accuracy_baseline" (without any report)
    - guarantees: for each class of devices, the guarantee of one `report`, of the `run`, and of the
      `life` of a device so far; empty if nothing is protected
    """

    name: str
    learner: str
    directory: Path
    reports: int
    asked: int
    missing: int
    refusals: int
    rounds: int
    seconds: float
    figures: Mapping[str, float]
    guarantees: Sequence[ClassGuarantees]
    _json: Mapping[str, Any] = field(repr=False)

    @classmethod
    def of(cls, json: Mapping[str, Any]) -> Result:
        """Make the result of a run from the object in its result.json.

        It is a `TrainResult`, a `CollectResult` or an `InferResult`, by what it contains.
        """
        kind = Result
        for each in (TrainResult, CollectResult, InferResult):
            if each.KEY in json:
                kind = each
        return kind._of(json)

    @classmethod
    def _of(cls, json: Mapping[str, Any]) -> Self:
        """Make a result of this class."""
        return cls(
            name=str(json["run"]),
            learner=str(json["algorithm"]),
            directory=Path(json["directory"]),
            reports=json["reports"],
            asked=json["asked"],
            missing=json["missing"],
            refusals=json["refusals"],
            rounds=json["rounds"],
            seconds=json["seconds"],
            figures=_figures(json),
            guarantees=tuple(classes_of(json)),
            _json=dict(json),
        )

    @classmethod
    def load(cls, run: str | Path, directory: str | Path = run_directory.RUNS) -> Self:
        """Load the result of a finished run.

        run: its name in `directory`, its own directory, or its result.json. Raises UsageError if
        there is no such result or it is one of another kind, StorageError if it cannot be read.
        """
        result = Result.of(
            results.load(arguments.path(run, "run"), Path(arguments.path(directory, "directory")))
        )
        if not isinstance(result, cls):
            kind = type(result).__name__
            raise UsageError(
                f"{run} has a result of the kind {kind}, not {cls.__name__}", f"call {kind}.load"
            )
        return result

    # For people

    def __str__(self) -> str:
        """The result in a few lines, as the commands print it."""
        return "\n".join([*learner_of(self).summary(self), *results.privacy_words(self)])

    def __repr__(self) -> str:
        lines = [
            f"<{type(self).__name__} {self.name}: {self.learner}, {counted(self.reports, 'report')}>"
        ]
        with suppress(UsageError):  # the package of the learner may not be installed here
            for line in str(self).splitlines():
                lines.append(f"  {line}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """The result as a table of HTML, which notebooks show."""
        title = f"{self.learner}, {counted(self.reports, 'report')} ({self.name})"
        rows = ""
        for name, value in self.figures.items():
            rows += f"<tr><th>{escape(name)}</th><td>{value:.4f}</td></tr>"
        for what, estimate in self._estimates():
            rows += f"<tr><th>{escape(what)}</th><td>{escape(estimate)}</td></tr>"
        for sentence in results.privacy_words(self):
            rows += f"<tr><th>privacy</th><td>{escape(sentence)}</td></tr>"
        if self.missing_words:
            rows += f"<tr><th>missing</th><td>{escape(self.missing_words)}</td></tr>"
        return f"<table><caption>{escape(title)}</caption><tbody>{rows}</tbody></table>"

    def _estimates(self) -> Iterator[tuple[str, str]]:
        """Yield what the table of a notebook shows beside the figures: names and values."""
        yield from ()

    @property
    def missing_words(self) -> str | None:
        """How many reports are missing, and why. None if all arrived."""
        return results.missing_words(self)

    # Tables and pictures

    @property
    def history(self) -> pd.DataFrame:
        """A table with a row for each round. Needs pandas.

        It has the columns `round` (its number), `ended` (how it ended), `asked` (the number of
        devices), `reports` and `refusals`, and one for each figure.
        """
        return frame(self["history"])

    def to_frame(self) -> pd.DataFrame:
        """Return what was learned as a table. Needs pandas."""
        return self.history

    def plot(self, name: str | None = None) -> Figure:
        """Draw a picture of the result.

        name: one of `pictures`; None: the first one, which says most about a result of this kind.
        Raises UsageError if there is no such picture.
        """
        figures = self._figures()
        if name is None:
            name = next(iter(figures), "")
        if not isinstance(name, str) or name not in figures:
            hint = f"its pictures: {', '.join(figures) or 'none'}"
            raise UsageError(f"this result has no such picture: {name}", hint=hint)
        return figures[name]

    @property
    def pictures(self) -> Sequence[str]:
        """The names of the pictures that `plot` draws."""
        return tuple(self._figures())

    def _figures(self) -> dict[str, Figure]:
        """Draw all pictures of the report, by name."""
        from ternhost.run.report import page_of  # here, since importing matplotlib takes a second

        pictures = page_of(self).pictures
        return {name: figure for name, (figure, _caption) in pictures.items()}

    def report(self) -> Path:
        """Write report.html and its pictures into the run's directory, and return its path.

        Raises StorageError.
        """
        return Path(results.draw(self)["report"])

    def figure(self, name: str) -> float:
        """Return one of `figures`. Raises UsageError if this result is not judged by it."""
        if not isinstance(name, str) or name not in self.figures:
            known = ", ".join(self.figures) or "none"
            raise UsageError(f"this run has no figure {name!r}", hint=f"its figures: {known}")
        return self.figures[name]


class TrainResult(Result):
    """The result of a run that has trained a model."""

    KEY = "weights"  # of the member that only these results have

    @property
    def accuracy(self) -> float:
        """The share of the held-out records that the model classifies right.

        Raises UsageError for a regression, whose figure is `squared_error`, and if no records are
        known.
        """
        return self.figure("accuracy")

    @property
    def auc(self) -> float:
        """The area under the ROC curve of a model of two classes. Raises UsageError for others."""
        return self.figure("auc")

    @property
    def log_loss(self) -> float:
        """The mean log-loss of a model of classes. Raises UsageError for a regression."""
        return self.figure("log_loss")

    @property
    def squared_error(self) -> float:
        """The mean squared error of a regression. Raises UsageError for a model of classes."""
        return self.figure("squared_error")

    @property
    def features(self) -> Sequence[str]:
        """The names of the features, in the order of the weights."""
        return tuple(self["features"])

    @property
    def labels(self) -> Sequence[str]:
        """The names of the classes of softmax regression; empty for other models."""
        return tuple(self.get("labels") or ())

    @property
    def weights(self) -> npt.NDArray[np.float64]:
        """The model's weights in the order of `features`, shape (features,).

        Softmax regression has a row for each of `labels`: shape (labels, features).
        """
        weights = np.array(self["weights"], np.float64)
        if self.labels:
            return weights.reshape(len(self.labels), -1)
        return weights

    @property
    def threshold(self) -> float | None:
        """The probability above which the model predicts label 1; None if it has no threshold.

        Only logistic regression has one. To predict with another one, use
        `device_model.with_threshold`.
        """
        if self.device_model.model != LOGISTIC:
            return None
        return self.device_model.threshold

    @property
    def decisions(self) -> Mapping[str, Any]:
        """How the model decides on the held-out records, mostly about the rarer class.

        The members are `rarer`, `recall`, `precision`, `predicted`, `mean_probability`, `share` and
        `threshold`, as in result.json. It is empty for a regression, and if no records are known.
        """
        return dict(self.get("decisions") or {})

    @property
    def choices(self) -> Sequence[Mapping[str, Any]]:
        """Other thresholds of a logistic model, by what they find of the rarer class.

        Each has a `threshold`, and the `recall`, `precision` and `predicted` at it on the held-out
        records, as in `decisions`. It is empty for other models, and if no records are known.
        """
        return list(self.get("choices") or ())

    @property
    def device_model(self) -> DeviceModel:
        """The model as devices use it, with the predictions that they make."""
        return DeviceModel.of_result(self)


@dataclass(frozen=True)
class Attribute:
    """What a run has collected about an attribute, or about one category of it.

    - name: of the attribute; category: None for a number
    - estimate: the mean of a number, or the frequency of the category; None if nobody reported it.
      A mean is in the unit of its column if the schema of the data has its bounds; else it is
      scaled, so that -1 and 1 stand for the bounds
    - low, high: the 95 % interval of the estimate; None if it is not known
    - reports: how many reports the estimate rests on
    - true: what the clients hold, if that is known
    """

    name: str
    category: str | None
    estimate: float | None
    low: float | None
    high: float | None
    reports: int | None
    true: float | None


class CollectResult(Result):
    """The result of a run that has collected means and frequencies, or quantiles and histograms."""

    KEY = "attributes"  # of the member that only these results have

    def _estimates(self) -> Iterator[tuple[str, str]]:
        for row in islice(estimate_rows.rows_of(self["attributes"]), _MOST_ESTIMATES):
            value = row.value
            if row.interval is not None:
                value += f" (95 %: {row.interval})"
            yield row.what, value

    @property
    def attributes(self) -> Sequence[Attribute]:
        """The estimates: one for each number, and one for each category of other attributes.

        It is empty for a run of quantiles.
        """
        estimates: list[Attribute] = []
        for attribute in self["attributes"]:
            if "frequencies" in attribute:
                estimates += _categories_of(attribute)
            elif "mean" in attribute:
                estimates.append(_number_of(attribute))
        return tuple(estimates)

    @property
    def quantiles(self) -> Sequence[Quantile]:
        """The quantiles of all attributes that a run of `Quantiles` has estimated; else empty."""
        quantiles: list[Quantile] = []
        for collected in distributions_of(self["attributes"]):
            quantiles += quantiles_of(collected)
        return tuple(quantiles)

    @property
    def histograms(self) -> Mapping[str, Histogram]:
        """The distributions that a run of `Quantiles` has estimated, by attribute; else empty."""
        histograms = {}
        for collected in distributions_of(self["attributes"]):
            histograms[collected.name] = Histogram.of(collected)
        return histograms

    @property
    def limits(self) -> Sequence[int] | None:
        """The limits that boards got from a run with `publish`; None if they got none.

        There is one for each feature of a record, in Q1.14, in which 16384 stands for 1. A feature
        with 32767 has no limit. `first_unusual` compares rows with them, as boards do.
        """
        limits: Sequence[int] | None = self.get("published", {}).get("limits")
        return limits

    def to_frame(self) -> pd.DataFrame:
        """Return a table with a row for each of `attributes`, or of `quantiles`. Needs pandas.

        Its columns are the fields of these.
        """
        rows: Sequence[Attribute | Quantile] = self.quantiles or self.attributes
        return frame([vars(row) for row in rows])


class InferResult(Result):
    """The result of a run of protected inference."""

    KEY = "score_without_noise"  # of the member that only these results have

    @property
    def score(self) -> float:
        """How well the reported vectors form clusters, with noise."""
        return self.figure("score")

    @property
    def agreement(self) -> float:
        """The share of the clients that keep their cluster under noise."""
        return self.figure("agreement")


def _figures(json: Mapping[str, Any]) -> dict[str, float]:
    """Return the figures of a result: those of the last round, and those known only at the end."""
    last_round = None
    if json["history"]:
        last_round = json["history"][-1]
    figures = run_directory.figures_of(last_round)
    for measure in json.get("measures", ()):
        for name in (measure, f"{measure}_baseline", f"{measure}_optimum"):
            figures[name] = json[name]
    for name in _AT_THE_END:
        if json.get(name) is not None:
            figures[name] = json[name]
    return figures


def _number_of(attribute: Mapping[str, Any]) -> Attribute:
    """Return the estimate of a numeric attribute, an element of "attributes" in result.json."""
    low, high = attribute["interval"] or (None, None)
    scaled = {
        "estimate": attribute["mean"],
        "low": low,
        "high": high,
        "true": attribute.get("true"),
    }
    numbers = {
        name: None if number is None else in_unit(attribute, number)
        for name, number in scaled.items()
    }
    return Attribute(
        name=attribute["name"], category=None, reports=attribute.get("reports"), **numbers
    )


def _categories_of(attribute: Mapping[str, Any]) -> list[Attribute]:
    """Return the estimates of the categories of an attribute, an element of "attributes"."""
    estimates = []
    for index, category in enumerate(attribute["categories"]):
        low, high = None, None
        if attribute["intervals"]:
            low, high = attribute["intervals"][index]
        true = None
        if "true" in attribute:  # here a list: the true frequency of each category
            true = attribute["true"][index]
        estimate = Attribute(
            name=attribute["name"],
            category=str(category),
            estimate=attribute["frequencies"][index],
            low=low,
            high=high,
            reports=attribute.get("reports"),
            true=true,
        )
        estimates.append(estimate)
    return estimates
