"""The tables of what tern learns on foreign sets, and which promises its figures keep."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from foreign.runs import DEFAULT, DEVICE, FLEETS, NAMED, NONE, RECORD, Setting
from foreign.sets import PUBLIC_ROWS, RIGHT, SETS, STATION_AND_WEEK
from ternhost.learn.models.judging import ACCURACY, AUC, LOG_LOSS, SQUARED_ERROR, WORDS, is_better
from ternhost.planning.cells import Row
from ternhost.planning.statistics import mean_and_error

# The promises.
BEYOND_NOISE = 2.0  # standard errors
LONG_LIFE = "20"  # epsilon of a life at which the record's unit costs nearly nothing
NEAR_OPTIMUM = 0.03  # of the log-loss
WITHIN_PLAN = 0.9  # share of the runs

REFUSED = "refused"
_DIGITS = {SQUARED_ERROR: 5}
_LOSSES = (LOG_LOSS, SQUARED_ERROR)  # what is compared with the answer that knows no features
UNIT_IN_WORDS = {RECORD: "record", DEVICE: "device"}


@dataclass(frozen=True)
class Outcome:
    """What runs of a setting gave.

    - references: the row of `runs.references`
    - plan: the row of `runs.planned`; None where no plan was made
    - runs: rows of `runs.trained` by public rows, one for each seed
    """

    references: Row
    plan: Row | None
    runs: Mapping[str, Sequence[Row]]

    @property
    def first_measure(self) -> str:
        """The measure that a user sees first, such as the AUC."""
        return str(self.references["measures"][0])

    @property
    def loss(self) -> str:
        """The measure by which a model is compared with the answer that knows no features."""
        return next(name for name in self.references["measures"] if name in _LOSSES)

    @property
    def quality(self) -> str | None:
        """The AUC of two classes, or the accuracy of several; None for labels that are numbers."""
        for measure in (AUC, ACCURACY):
            if measure in self.references["measures"]:
                return measure
        return None

    @property
    def planned_measures(self) -> list[str]:
        """The measures of which a plan has an interval: the one that comes first, and the loss."""
        return list(dict.fromkeys((self.first_measure, self.loss)))

    def values(self, measure: str, public: str = DEFAULT) -> list[float]:
        """Return a figure of all runs. public: as of `runs.trained`."""
        return [row[measure] for row in self.runs[public]]

    def is_refused(self, public: str) -> bool:
        """Tell whether tern refused these public rows."""
        return any(REFUSED in row for row in self.runs[public])

    def within_plan(self, measure: str) -> float | None:
        """Return the share of runs that lie within the plan's interval; None if there is none."""
        if self.plan is None or f"{measure}_low" not in self.plan:
            return None
        low, high = self.plan[f"{measure}_low"], self.plan[f"{measure}_high"]
        values = self.values(measure)
        return sum(low <= value <= high for value in values) / len(values)

    def gain(self, measure: str, public: str) -> tuple[float, float]:
        """Return by how much public rows make a figure better than none, and the standard error.

        Runs of the same seed are compared, since they have the same records on the same devices.
        """
        sign = 1 if is_better(measure, 1, 0) else -1
        pairs = zip(self.values(measure, public), self.values(measure, NONE), strict=True)
        return mean_and_error([sign * (of_rows - of_none) for of_rows, of_none in pairs])


def number(measure: str, value: float) -> str:
    """Return a figure as text."""
    return f"{value:.{_DIGITS.get(measure, 3)}f}"


def with_error(measure: str, values: Sequence[float]) -> str:
    """Return the mean of several runs as text, with its standard error in brackets."""
    mean, error = mean_and_error(values)
    return f"{number(measure, mean)} ({number(measure, error)})"


def _share(value: float | None) -> str:
    """Return a share in per cent, or what stands for none."""
    if value is None:
        return "-"
    return f"{100 * value:.0f} %"


def of_unit(unit: str, outcomes: Mapping[Setting, Outcome]) -> list[list[str]]:
    """Return the table of all sets at a unit, the heading first."""
    budget = "epsilon of a board's life" if unit == RECORD else "epsilon of a report"
    head = [
        "data set",
        budget,
        "AUC (segment: accuracy)",
        "AUC without privacy",
        "log-loss (randhie: squared error)",
        "log-loss of the class shares",
        "log-loss without privacy",
        "rarer class found",
        "runs within the plan",
    ]
    rows = [head]
    for setting, outcome in outcomes.items():
        if setting.unit == unit:
            rows.append([setting.name, setting.epsilon, *_figures(outcome)])
    return rows


def _figures(outcome: Outcome) -> list[str]:
    """Return the cells of a row of `of_unit` that are measured."""
    loss = outcome.loss
    quality, best_quality = "-", "-"
    if outcome.quality:
        quality = with_error(outcome.quality, outcome.values(outcome.quality))
        best_quality = number(outcome.quality, outcome.references[f"optimum_{outcome.quality}"])
    recall = None
    if "recall" in outcome.runs[DEFAULT][0]:
        recall, _ = mean_and_error(outcome.values("recall"))
    within = [_share(outcome.within_plan(name)) for name in outcome.planned_measures]
    return [
        quality,
        best_quality,
        with_error(loss, outcome.values(loss)),
        number(loss, outcome.references[f"baseline_{loss}"]),
        number(loss, outcome.references[f"optimum_{loss}"]),
        _share(recall),
        ", ".join(within),
    ]


def of_public_rows(outcomes: Mapping[Setting, Outcome]) -> list[list[str]]:
    """Return the table of the losses with public rows of each kind, the heading first."""
    head = ["data set", "unit", "epsilon", "none", "right", "another part"]
    head += ["times 0.1", "times 0.0001", "zeros"]
    rows = [head]
    for setting, outcome in outcomes.items():
        if NONE not in outcome.runs:
            continue
        losses = []
        for public in (NONE, *PUBLIC_ROWS):
            text = REFUSED
            if not outcome.is_refused(public):
                text = with_error(outcome.loss, outcome.values(outcome.loss, public))
            losses.append(text)
        rows.append([setting.name, UNIT_IN_WORDS[setting.unit], setting.epsilon, *losses])
    return rows


def of_many(outcomes: Mapping[Setting, Outcome]) -> list[list[str]]:
    """Return the table of fleets of devices with many records each, the heading first."""
    head = [
        "data set",
        "devices",
        "epsilon",
        "device protected, share of the classes named, right public rows: AUC",
        "log-loss",
        "share asked, right public rows: AUC",
        "log-loss",
        "share asked, no public rows: AUC",
        "log-loss",
        "record protected: AUC",
        "log-loss",
        "without privacy: AUC",
        "log-loss",
        "log-loss of the class shares",
    ]
    rows = [head]
    for setting, of_device in outcomes.items():
        if setting.unit == RECORD:
            continue
        of_record = outcomes[replace(setting, unit=RECORD)]
        cells = []
        of_device_by_rows = [(of_device, public) for public in (NAMED, RIGHT, NONE)]
        for outcome, public in (*of_device_by_rows, (of_record, NONE)):
            for measure in (AUC, LOG_LOSS):
                cells.append(with_error(measure, outcome.values(measure, public)))
        references = of_device.references
        for name in (f"optimum_{AUC}", f"optimum_{LOG_LOSS}", f"baseline_{LOG_LOSS}"):
            cells.append(number(AUC, references[name]))
        fleet = FLEETS[setting.name]
        words = f"{fleet.devices} x {fleet.records} records"
        if fleet.by == STATION_AND_WEEK:
            words = "each the hours of a week at an airport"
        rows.append([setting.name, words, setting.epsilon, *cells])
    return rows


def of_sets(outcomes: Mapping[Setting, Outcome]) -> list[list[str]]:
    """Return the table that says what the sets are, the heading first."""
    references = {}
    for setting, outcome in outcomes.items():
        references[setting.name] = outcome.references
    rows = [["data set", "a record, and the question", "records of each of 20 boards", "devices"]]
    for name, row in references.items():
        boards, devices = f"{row['records_of_board']:,}", f"{row['devices']:,}"
        rows.append([name, SETS[name].about, boards, devices])
    return rows


# Promises


def broken(outcomes: Mapping[Setting, Outcome]) -> Iterator[str]:
    """Yield a sentence for each promise that the figures do not keep."""
    for setting, outcome in outcomes.items():
        place = f"{setting.name}, unit {setting.unit}, epsilon {setting.epsilon}"
        for sentence in [*_of_losses(setting, outcome), *_of_rows(outcome)]:
            yield f"{place}: {sentence}"
    yield from _of_plans(outcomes)


def _of_losses(setting: Setting, outcome: Outcome) -> Iterator[str]:
    """Yield sentences on losses that are too large, with each kind of public rows."""
    loss = outcome.loss
    baseline = outcome.references[f"baseline_{loss}"]
    optimum = outcome.references[f"optimum_{loss}"]
    for public in outcome.runs:
        if outcome.is_refused(public):
            continue
        mean, error = mean_and_error(outcome.values(loss, public))
        text = f"{WORDS[loss]} {number(loss, mean)} ({number(loss, error)}), rows {public}"
        if mean > baseline + BEYOND_NOISE * error:
            yield f"{text}, is above {number(loss, baseline)} without features"
        is_long = setting.unit == RECORD and setting.epsilon == LONG_LIFE
        if is_long and loss == LOG_LOSS and mean > optimum + NEAR_OPTIMUM:
            yield f"{text}, is not within {NEAR_OPTIMUM} of the optimum, {number(loss, optimum)}"


def _of_plans(outcomes: Mapping[Setting, Outcome]) -> Iterator[str]:
    """Yield sentences on the intervals of plans, if all of them together hold too few runs.

    A single plan's interval is computed from a few runs, and so is sometimes too short by chance.
    """
    figures, losses = [], []
    for outcome in outcomes.values():
        figures.append(outcome.within_plan(outcome.first_measure))
        if outcome.loss != outcome.first_measure:
            losses.append(outcome.within_plan(outcome.loss))
    for what, shares in (("figure that comes first", figures), ("log-loss", losses)):
        of_plans = [share for share in shares if share is not None]
        if of_plans and sum(of_plans) / len(of_plans) < WITHIN_PLAN:
            mean = _share(sum(of_plans) / len(of_plans))
            yield f"the plans' intervals of the {what} hold {mean} of the runs"


def _of_rows(outcome: Outcome) -> Iterator[str]:
    """Yield sentences on public rows with which a model is worse than without."""
    if NONE not in outcome.runs:
        return
    for public in PUBLIC_ROWS:
        if public not in outcome.runs or outcome.is_refused(public):
            continue
        for measure in outcome.references["measures"]:
            if measure not in (AUC, *_LOSSES):
                continue
            gain, error = outcome.gain(measure, public)
            if gain < -BEYOND_NOISE * error and not math.isclose(gain, 0, abs_tol=1e-9):
                change = f"{gain:.5f} ({error:.5f})"
                yield f"public rows, {public}, change the {WORDS[measure]} for the worse: {change}"
