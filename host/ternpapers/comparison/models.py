"""Models that are trained by LDP-FedSGD with several mechanisms.

A run holds out a fold of the records and trains on the others. Runs with the same number have the
same fold, the same clients in the same order, and the same random numbers, so that a small
difference between two mechanisms shows in few runs. Their means, errors and verdicts are about the
records of the data set: given these, each run draws a division, clients and noise of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

from ternhost.datasets import CLASSIFICATION, REGRESSION
from ternhost.errors import UsageError
from ternhost.learn.models.judging import SQUARED_ERROR
from ternhost.planning.cells import Cell, Row
from ternpapers.base import Options, load
from ternpapers.comparison.contest import EPSILON, OUTPUTS, Case, Contest, cases, compared
from ternpapers.comparison.reports import TUPLES
from ternpapers.comparison.training import LINEAR_MODEL, Setting, error_of, trained_weights
from ternpapers.cross_validation import require_records
from ternpapers.datasets import stand_ins
from ternpapers.experiments import erm
from ternpapers.figure import NON_PRIVATE, RUNS, UNROUNDED, Axis, Figure
from ternpapers.perturbing import WINDOWED
from ternpapers.verdicts import Check

MISCLASSIFICATION = Axis("misclassification", "misclassification rate")
LINEAR_ERROR = Axis(SQUARED_ERROR, "mean squared error", log=True)
_ERROR = Axis("error", "misclassification rate, or mean squared error", log=True)
# The numbers of outputs that are tried, in Algorithm 5 of Zhao et al.
NUMBERS_OF_OUTPUTS = (3, 5, 9, 17, 33, 65, 129, 257, 513, 1025, 2001)
_COST_OF_TUPLES = 2.5  # how much longer reports of Duchi's tuples take than others
_RUNS, _QUICK_RUNS = 400, 60
_TITLES = {"logistic": "logistic regression", "svm": "SVM", LINEAR_MODEL: "linear regression"}


@dataclass(frozen=True)
class Learning:
    """Which model is trained, on which data sets.

    model: its name. Linear models are judged by the squared error of their scores, others by how
    often the sign of their score is wrong. sources: the names of bundled data sets.
    """

    model: str
    sources: Sequence[str]

    @property
    def y(self) -> Axis:
        """The axis of its errors."""
        if self.model == LINEAR_MODEL:
            return LINEAR_ERROR
        return MISCLASSIFICATION

    @property
    def title(self) -> str:
        """The model in words."""
        return _TITLES[self.model]

    @property
    def hint(self) -> str:
        """What to do if the labels of a data set do not suit the model."""
        if self.model == LINEAR_MODEL:
            return (
                "name a --data whose labels are numbers; of an extract of IPUMS: "
                "ipums-regression:FILE.csv"
            )
        return "name a --data whose labels are two classes"

    def suits(self, source: str) -> bool:
        """Return whether the labels of a data set are those that the model predicts.

        Raises UsageError if it cannot be loaded.
        """
        task = CLASSIFICATION
        if self.model == LINEAR_MODEL:
            task = REGRESSION
        return load(source).task == task


LOGISTIC = Learning("logistic", stand_ins.TWO_CLASSES)
SVM = Learning("svm", stand_ins.TWO_CLASSES)
LINEAR = Learning("linear", stand_ins.NUMBERS)


@dataclass(frozen=True)
class Folds:
    """Some folds of a cross-validation.

    - first: the number of the first fold, as in `erm.fold`
    - count: how many folds there are
    - seed: the seed of the divisions into folds, and of all draws
    - reports: how many clients report in a run
    """

    first: int
    count: int
    seed: int
    reports: int


@dataclass(frozen=True)
class Trial:
    """A curve in a panel. A cell computes some of its runs.

    - panel: the title of the panel
    - column: the column of the rows that gets the errors
    - model: the name of the model, as in `Learning`
    - mechanism: the name of what perturbs the gradients, or NON_PRIVATE
    - cases: the points of the curve, all of the same data set
    - is_rounded: whether the reports are rounded to as many outputs as the case says
    """

    panel: str
    column: str
    model: str
    mechanism: str
    cases: Sequence[Case]
    is_rounded: bool

    @property
    def curve(self) -> str:
        """The name of the curve."""
        if self.is_rounded:
            return self.mechanism
        return self.mechanism + UNROUNDED


def figure_of_models(
    learning: Learning, mechanisms: Sequence[str], statements: Mapping[str, Check]
) -> Figure:
    """Return a figure of the errors of models by epsilon, with a panel for each data set.

    mechanisms: with which the models are trained; another one is trained without privacy.
    statements: as of `Figure`.
    """
    contest = Contest(mechanisms, learning.sources)
    cells = partial(_cells_of_sets, learning, contest)
    return Figure(f"{learning.title} by epsilon", EPSILON, learning.y, cells, statements)


def figure_of_models_by_outputs(
    learning: Learning,
    mechanisms: Sequence[str],
    epsilon: float,
    statements: Mapping[str, Check],
) -> Figure:
    """Return a figure of the errors of models by the number of outputs of a report.

    The reports of the mechanisms that have windows are rounded to so many outputs, by Algorithm 5
    of Zhao et al. Beside their curves are those before rounding. The other arguments are as of
    `figure_of_models`.
    """
    title = f"{learning.title} by the number of outputs, at epsilon {epsilon:g}"
    contest = _by_outputs(learning.sources, mechanisms, epsilon)
    cells = partial(_cells_of_sets, learning, contest)
    return Figure(title, OUTPUTS, learning.y, cells, statements)


def figure_of_several_models_by_outputs(
    learnings: Sequence[Learning],
    mechanisms: Sequence[str],
    epsilon: float,
    statements: Mapping[str, Check],
) -> Figure:
    """Return a figure like `figure_of_models_by_outputs`, with a panel for each model.

    It is trained on the first of its data sets. A data set of the user has panels of the models
    that its labels suit.
    """
    contests = {}
    for learning in learnings:
        contests[learning] = _by_outputs(learning.sources[:1], mechanisms, epsilon)
    titles = " and ".join(learning.title for learning in learnings)
    labels = {learning.title: learning.y.label for learning in learnings}
    return Figure(
        f"{titles} by the number of outputs, at epsilon {epsilon:g}",
        OUTPUTS,
        _ERROR,
        partial(_cells_of_models, contests),
        statements,
        y_labels=labels,
    )


def _by_outputs(sources: Sequence[str], mechanisms: Sequence[str], epsilon: float) -> Contest:
    """Return what is compared by the number of outputs, at this epsilon."""
    return Contest(mechanisms, sources, {"epsilon": (epsilon,), "outputs": NUMBERS_OF_OUTPUTS})


def _cells_of_sets(learning: Learning, contest: Contest, options: Options) -> list[Cell]:
    """Return the cells of a figure with a panel for each data set.

    Raises UsageError if the labels of a data set do not suit the model, or it has too few records.
    """
    contest = contest.on(options)
    for source in contest.sources:
        if not learning.suits(source):
            text = f"the labels of {source} do not suit a {learning.model} model"
            raise UsageError(text, hint=learning.hint)
    cells = []
    for source in contest.sources:
        one_source = replace(contest, sources=(source,))
        cells += _cells(
            panel=source,
            column=learning.y.column,
            learning=learning,
            contest=one_source,
            options=options,
        )
    return cells


def _cells_of_models(contests: Mapping[Learning, Contest], options: Options) -> list[Cell]:
    """Return the cells of a figure with a panel for each model.

    contests: what is compared, by the model. They have models of classes and of numbers, so that
    each data set has labels for one of them. Raises UsageError if one has too few records.
    """
    cells = []
    for learning, contest in contests.items():
        contest_here = contest.on(options)
        (source,) = contest_here.sources
        if learning.suits(source):
            cells += _cells(
                panel=learning.title,
                column=_ERROR.column,
                learning=learning,
                contest=contest_here,
                options=options,
            )
    return cells


def _cells(
    panel: str, column: str, learning: Learning, contest: Contest, options: Options
) -> list[Cell]:
    """Return the cells of a panel: ten runs of a curve in each.

    panel, column: as of `Trial`. contest: with one source. Raises UsageError if it has too few
    records.
    """
    points = cases(contest, options)
    trials = []
    for mechanism in (*compared(contest.mechanisms, options), NON_PRIVATE):
        trial = Trial(
            panel=panel,
            column=column,
            model=learning.model,
            mechanism=mechanism,
            cases=points,
            is_rounded=True,
        )
        trials.append(trial)
        if mechanism in WINDOWED and points[0].outputs:
            trials.append(replace(trial, is_rounded=False))

    (source,) = contest.sources
    require_records(load(source), erm.FOLDS)
    reports = _number_of_reports(source, options)
    runs = options.runs_or(default=_RUNS, quick=_QUICK_RUNS, paper=5 * erm.FOLDS)
    cells = []
    for trial, first in product(trials, range(0, runs, erm.FOLDS)):
        folds = Folds(first, min(erm.FOLDS, runs - first), options.seed, reports)
        cells.append(Cell(RUNS, _trained, {"trial": trial, "folds": folds}, _cost(trial)))
    return cells


def _number_of_reports(source: str, options: Options) -> int:
    """Return how many clients report in a run. With --in-full, each training record has one."""
    dataset = load(source)
    reports = erm.reports_of(dataset, options.quick)
    if options.in_full:
        return max(reports, len(dataset.labels) * (erm.FOLDS - 1) // erm.FOLDS)
    return reports


def _cost(trial: Trial) -> float:
    """Return the relative duration of a run of all cases."""
    models_trained = len({_setting(trial, case) for case in trial.cases})
    if trial.mechanism == TUPLES:
        return _COST_OF_TUPLES * models_trained
    return models_trained


def _setting(trial: Trial, case: Case) -> Setting:
    """Return the setting of the model that is trained in a case."""
    if trial.mechanism == NON_PRIVATE:
        return Setting(trial.model, NON_PRIVATE)
    outputs = None
    if trial.is_rounded and trial.mechanism in WINDOWED:
        outputs = case.outputs
    return Setting(trial.model, trial.mechanism, case.epsilon, outputs)


def _trained(trial: Trial, folds: Folds) -> list[Row]:
    """Train models, and return their errors on the held-out folds: a row for each fold and case."""
    rows = []
    for run in range(folds.first, folds.first + folds.count):
        fold = erm.fold(trial.cases[0].source, run, folds.seed)
        errors = {}  # of the models of this fold, by their settings
        for case in trial.cases:
            setting = _setting(trial, case)
            if setting not in errors:
                weights = trained_weights(setting, fold, folds.reports, folds.seed + run)
                errors[setting] = error_of(trial.model, fold, weights)
            row = {"panel": trial.panel, "curve": trial.curve, "epsilon": case.epsilon}
            rows.append({**row, "outputs": case.outputs, "run": run, trial.column: errors[setting]})
    return rows
