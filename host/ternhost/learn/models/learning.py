"""The base of algorithms that learn a linear model: its options, its data, and its result."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from tern.fixed import ONE
from tern.wire import LOGISTIC, MAX_BATCH, MAX_VALUES, SOFTMAX
from ternhost import datasets
from ternhost.count.questions import Averaged, Question, report_bytes
from ternhost.datasets import (
    CLASSIFICATION,
    REGRESSION,
    Dataset,
    Holdings,
    Indices,
)
from ternhost.datasets.holdings import require_enough
from ternhost.datasets.on_devices import DeviceRecords
from ternhost.datasets.schemas.findings import NO_RECORD
from ternhost.errors import UsageError
from ternhost.learn import liar_results
from ternhost.learn.base import Learner, Population, report_summary
from ternhost.learn.data_options import DataOptions
from ternhost.learn.designs import (
    BudgetOptions,
    ReportDesign,
    cheapest_and_dearest,
    stated_epsilon_lines,
)
from ternhost.learn.devices import Turns
from ternhost.learn.models import judging, projections, thresholds
from ternhost.learn.models.optimum import optimum
from ternhost.learn.models.thresholds import Threshold
from ternhost.learn.models.training import Trainer, TrainingPlan
from ternhost.learn.owners import to_owners
from ternhost.learn.parameters import MODELS, SUITED, Floats, Parameters, quantise
from ternhost.learn.record_bound import RecordsOptions, bound_note
from ternhost.options import option, require
from ternhost.text import counted

# What records are for, in words, by their names in "class_records" of a result.
_PURPOSES = {"learning": "to learn from", "judging": "that judges the model"}
_MOST_CLASSES = 10  # whose recall is shown
to_learn = partial(option, group="what to learn")


@dataclass(frozen=True)
class ModelOptions(RecordsOptions, DataOptions):
    """Options of every algorithm that learns a linear model."""

    model: str = to_learn("", choices=tuple(MODELS), shown="by the labels")
    threshold: str = to_learn(str(judging.EVEN), metavar="P")
    seed: int = to_learn(1, metavar="S")

    def check(self) -> None:
        """Raise UsageError for options out of bounds, or that contradict each other."""
        if self.model and self.model not in MODELS:
            raise UsageError(
                f"there is no model {self.model!r}", hint=f"one of: {', '.join(MODELS)}"
            )
        require(self.seed >= 0, "seed", "0 or more", self.seed)
        threshold = Threshold.parse(self.threshold)
        on_devices = self.on_devices
        if on_devices is None:
            return

        if threshold.share is not None:
            text = (
                f"--threshold {self.threshold} is a share of the records that judge the model, "
                "and only the devices have records"
            )
            raise UsageError(text, "name a probability, such as 0.3, or costs, such as 1:5")

        # Without a data set nobody but the user knows the number of classes.
        is_softmax = self.model_name == "softmax"
        if is_softmax and on_devices.classes is None:
            text = "softmax regression needs the number of classes, which only the devices know"
            raise UsageError(text, f"add it to the data: --data {self.data}:CLASSES")
        if on_devices.classes is not None and not is_softmax:
            text = f"--data {self.data} has {on_devices.classes} classes, and a {self.model} model has none"
            raise UsageError(text, "name --model softmax, or leave out the number of classes")

    @property
    def model_name(self) -> str:
        """The name of the model to train: as the user named it, else the one that suits the labels."""
        if self.model:
            return self.model
        if self.on_devices is None:
            return SUITED[datasets.task_of(self.data, self.selection)]
        return SUITED[self.on_devices.task]

    @property
    def derived(self) -> dict[str, Any]:
        """The values that were computed for options left out, for results."""
        return {"model": self.model_name}


@dataclass(frozen=True)
class LearningOptions(BudgetOptions, ModelOptions):
    """Options of algorithms whose reports each have an epsilon."""

    batch: int = to_learn(0, metavar="B")

    def check(self) -> None:
        in_order = 0 <= self.batch <= MAX_BATCH
        require(in_order, "batch", f"0 (all) to {MAX_BATCH} records", self.batch)

    @property
    def records_in_mean(self) -> int:
        """Of how many records a reported gradient is the mean, at most: all of a device, or a batch."""
        if self.batch == 0:
            return self.most_records
        return min(self.batch, self.most_records)


class Learning(Learner):
    """The base of algorithms that learn a linear model.

    A subclass sets `trainer`, which makes the steps of the model, or overrides what uses it, and
    defines `question_for`. A model of `classes` classes has a weight for each class and feature,
    class by class: `d` in all.
    """

    trainer: Trainer
    reserved: Indices | tuple[()] = ()  # positions of records of the data set that no client gets

    def __init__(self, options: Any, population: Population, data: Dataset | None = None) -> None:
        """Load the data set, and find out the size of the model.

        A model has a weight for each feature; a softmax model has that many for each class.

        options: the options of the algorithm, with those of `ModelOptions` among them.
        population: the devices that can be asked.
        data: the data set to learn from, instead of the one that the options name.
        Raises UsageError for a model that does not suit the data, or that has more weights than a
        device computes.
        """
        self.options = options
        self._population = population
        self.model: str = options.model_name
        self.dataset = self._dataset_for(data)  # None: only the devices know their records
        self.records_per_device = self._settle_bound()  # at most; a public number
        # That of the table which the options name; None: there is none.
        self.schema = datasets.schema_of(options.data, options.selection)
        self.classes = self.label_classes = self._class_count()
        self._threshold = self._threshold_to_use()
        features = self._feature_count()
        self.d = self.classes * features  # weights of the model
        if self.d > MAX_VALUES:
            hint = f"a device computes at most {MAX_VALUES:,}: use fewer classes or features"
            text = f"{self.classes} classes of {features} features have {self.d:,} weights"
            raise UsageError(text, hint)
        self.last_gradient: dict[str, Any] | None = None  # of the last round that estimated one
        self._moved_by_liars: dict[str, Any] | None = None  # how far lies could move that
        self._turns: Turns | None = None  # which clients a round asks; made when first needed

    @classmethod
    def suited(
        cls, options: Any, population: Population, data: Dataset | None = None
    ) -> "Learning":
        """Return the learner for these options, or a variant of it that suits the clients better.

        Parameters as of the class itself. Raises UsageError.
        """
        return cls(options, population, data)

    def _dataset_for(self, data: Dataset | None) -> Dataset | None:
        """Return the data set to learn from; None if only the devices know their records.

        data: the data set, instead of the one that the options name.
        Raises UsageError if it does not suit the model or the fleet.
        """
        options = self.options
        dataset = data
        if data is None and options.on_devices is None:
            dataset = options.load(classes=self.model == "softmax")
            judging.require_different_labels(dataset)
        elif data is None and self._population.knows_records:
            text = (
                f"--data {options.data} is for devices with records of their own, "
                "and these are given theirs"
            )
            raise UsageError(text, "name a data set, or a fleet of boards: port:... or mqtt:...")

        has_numeric_labels = dataset is not None and dataset.task == REGRESSION
        if dataset and has_numeric_labels and self.model != SUITED[REGRESSION]:
            text = f"a {self.model} model predicts classes, and the labels of {dataset.name} are numbers"
            raise UsageError(text, f"name --model {SUITED[REGRESSION]}, or leave it out")
        return dataset

    def _settle_bound(self) -> int:
        """Return the most records of a device; set it in the options, and note it if the data say it.

        It is 1 if neither the user nor the data say it. Raises UsageError for options that the number
        contradicts.
        """
        positions = np.arange(0)
        if self.dataset is not None:
            positions = self.dataset.training
        named = self.options.records
        self.options = self.options.with_bound(self.dataset, positions)
        bound: int = self.options.most_records
        self.notes += bound_note(self.dataset, bound, named)
        return bound

    def _class_count(self) -> int:
        """Return how many classes have weights of their own: 1 except in softmax regression."""
        if self.model != "softmax":
            return 1
        if self.dataset:
            return len(self.dataset.classes)
        return int(self.options.on_devices.classes)

    def _threshold_to_use(self) -> Threshold:
        """Return the threshold that the user named.

        Raises UsageError if it is not the usual one, and the model or its records have none.
        """
        threshold = Threshold.parse(self.options.threshold)
        if threshold == Threshold():
            return threshold
        if not self._has_threshold:
            text = (
                "--threshold is about the probability of one of two classes, which --model "
                f"{self.model} does not give"
            )
            hint = "leave --threshold out"
            if self.dataset is None or self.dataset.task == CLASSIFICATION:
                hint = f"name --model logistic, or {hint}"
            raise UsageError(text, hint)
        if self.dataset and (self.dataset.features[:, 0] != ONE).any():
            text = (
                f"a board keeps the threshold in the weight of the constant, and the first feature "
                f"of {self.dataset.name} is not the constant 1"
            )
            raise UsageError(text, "add such a column, or leave --threshold out")
        return threshold

    @property
    def _has_threshold(self) -> bool:
        """Whether the model gives a probability of one of two classes."""
        return MODELS[self.model] == LOGISTIC

    def threshold_of(self, weights: Floats) -> float:
        """Return the probability above which a model predicts label 1.

        It is the usual one, 1/2, for models that have no threshold. weights: those of the model.
        """
        if self._threshold.probability is not None:
            return self._threshold.probability
        assert self.dataset is not None  # which a share is of
        features, _ = self.dataset.judged
        return self._threshold.of(judging.scores(features, weights))

    def _feature_count(self) -> int:
        """Return the number of features of a record, the constant among them."""
        if self.dataset:
            return self.dataset.dimension
        return int(self.options.on_devices.features)

    def _training_records(self, reserved: Indices | tuple[()] = ()) -> Holdings | None:
        """Give the training records to the clients: to their owners, or else in random order.

        A client gets `records_per_device` of them, or, if owners are known, at most that many.

        reserved: positions of records in the data set that no client gets, such as public ones.
        Returns None if the host does not know what clients hold. Raises UsageError if the fleet has
        more clients than there are owners.
        """
        self.reserved = reserved
        if self.dataset is None or not self._population.knows_records:
            return None
        positions = self.dataset.training_without(reserved)
        if self.dataset.owners is not None:
            owned = to_owners(
                self.dataset, positions, self._population.clients, most=self.records_per_device
            )
            self.notes += owned.notes
            return owned.holdings
        order = np.random.default_rng(self.options.seed).permutation(positions)
        records = self.dataset.all_records
        return Holdings(records, order, self.records_per_device)

    def _clients_to_make(self, usual: int) -> int:
        """Return how many clients a run makes where neither the fleet nor the user says their number.

        That is `usual`, or fewer if the data have too few records for so many clients with several
        records each.
        """
        if self.holdings is None or self.records_per_device == 1:
            return usual
        return max(1, min(usual, self.holdings.clients))

    def _require_records(self) -> None:
        """Raise UsageError if the data have too few records for clients that get several each.

        Clients that get one record each may get the same ones, and owners have their own.
        """
        if self.holdings is None or self._has_owners or self.records_per_device == 1:
            return
        assert self.dataset is not None
        clients = self.clients or self._population.clients or 1
        require_enough(self.holdings, clients, self.dataset.name)

    @property
    def _has_owners(self) -> bool:
        """Whether the clients are devices that the data name, with the records of each."""
        return self.holdings is not None and bool(self.holdings.names)

    @property
    def _available_clients(self) -> int:
        """How many clients can be asked; 0: as many as the run needs."""
        if self._has_owners:
            assert self.holdings is not None
            return self.holdings.clients
        return self._population.clients or self._population.devices

    def _turn(self, clients: int, group: int, number: int) -> Indices:
        """Return the clients that a round asks, if all take turns (numbers from 0).

        clients: how many there are. group: how many a round asks. number: the round's, from 0.
        """
        if self._turns is None or self._turns.clients != clients:
            self._turns = Turns(clients, group, self.options.seed)
        return self._turns.group(number)

    # A run

    @property
    def done(self) -> bool:
        return self.trainer.stopped is not None

    @property
    def weights(self) -> Floats:
        """The model so far (d)."""
        return self.trainer.model

    @property
    def averaged(self) -> Averaged:
        """The model so far, in the form in which devices can use it."""
        parameters = quantise(self.weights)
        model = MODELS[self.model]
        if self.classes > 1:
            model = SOFTMAX
        return Averaged(model, parameters.mantissas, parameters.exponent, self.classes)

    @property
    def published(self) -> Averaged:
        return thresholds.for_decisions(self.averaged, self.threshold_of(self.weights))

    def question_for(self, design: ReportDesign) -> Question:
        """The question of the next round for the class of this design."""
        raise NotImplementedError

    def _gradient_question(
        self, parameters: Parameters, design: ReportDesign, range_: int
    ) -> Question:
        """Return the question for the mean gradient of a device at some weights.

        parameters: the weights (d). design: of the reports. range_: values are multiplied by
        2**range_ before they are clipped to [-1, 1].
        """
        return Question(
            model=MODELS[self.model],
            parameters=parameters.mantissas,
            exponent=parameters.exponent,
            card=design.card.data,
            k=design.k,
            batch=self.options.batch,
            classes=self.classes,
            range=range_,
        )

    def state(self) -> dict[str, Any]:
        return {"trainer": self.trainer.state(), "last": self.last_gradient}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.trainer.restore(state["trainer"])
        self.last_gradient = state["last"]

    # Results

    def moved_by_liars(self) -> dict[str, Any] | None:
        return self._moved_by_liars

    def figures(self) -> dict[str, float]:
        if self.dataset is None:
            return {}
        threshold = self.threshold_of(self.weights)
        return judging.figures(self.dataset, MODELS[self.model], self.weights, threshold)

    def references(self) -> dict[str, Any]:
        """Return metrics to compare those of the model with, for JSON: optimum and baseline.

        The optimum is the same model without privacy. The baseline is the answer that knows no
        features. Both are judged on the held-out records, whose number is in the result, too.
        """
        if self.dataset is None:
            return {"measures": []}
        model = MODELS[self.model]
        weights = self.optimum()
        optimum_figures = judging.figures(self.dataset, model, weights, self.threshold_of(weights))
        return {
            "measures": list(optimum_figures),
            "optimum": optimum_figures,
            "baseline": judging.baselines(self.dataset, model),
            "judged": judging.counts(self.dataset),
        }

    def optimum(self) -> Floats:
        """Return the weights of the same model, fitted to all training records without privacy (d).

        Algorithms without regularisation of their own are compared at the usual one: without any,
        records that a line separates have no optimum.
        """
        assert self.dataset is not None
        usual = TrainingPlan.regularisation
        regularisation = getattr(self.options, "regularisation", usual)
        return optimum(MODELS[self.model], self.dataset, regularisation)

    def optimisation(self) -> dict[str, Any]:
        """Return how the model was updated, for JSON.

        It is the optimiser, its rate (of learning) in the last round, and why the training stopped.
        """
        trainer = self.trainer
        return {
            "stopped": trainer.stopped,
            "optimiser": trainer.plan.optimiser,
            "rate": trainer.rate,
        }

    def result(self, history: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return the model, how good it is, and what it cost, for JSON.

        history: an entry for each round, for subclasses whose result depends on it.
        """
        design = self.designs[0]
        question = self.question_for(design)
        return {
            # How good the model is.
            **self._judged(),
            # What a report was, and what it cost.
            **report_summary(design, question),
            "bytes_per_report_float32": report_bytes(4 * self.d),
            "classes": [design.summary(self.times) for design in self.designs],
            **self.optimisation(),
            "levels": design.card.symbols,
            "k": design.k,
            # The model.
            "d": self.d,
            "features": self._feature_names(),
            "labels": self._class_names(),
            "class_names": list(self.class_names),
            "class_records": self._class_records(),
            "label_unit": self._label_unit(),
            "schema": self.schema and self.schema.toml(),
            "weights": self.weights.tolist(),
            "threshold": self.threshold_of(self.weights) if self._has_threshold else None,
            "last_gradient": self.last_gradient,
            "liars": liar_results.of_history(history),
        }

    def _feature_names(self) -> list[str]:
        """Return the names of the features: those of the data, or "x0", "x1" and so on."""
        if self.dataset:
            return list(self.dataset.feature_names)
        if self.options.on_devices.feature_names:
            return list(self.options.on_devices.feature_names)
        return [f"x{i}" for i in range(self._feature_count())]

    def _class_names(self) -> list[str] | None:
        """Return the names of the classes in the order of their weights; None if only one has any."""
        if self.classes == 1:
            return None
        return list(self.class_names) or [str(i) for i in range(self.classes)]

    @property
    def class_names(self) -> Sequence[str]:
        """The names of the classes, as of `Dataset`; empty if they have none."""
        if self.dataset:
            return self.dataset.classes
        on_devices: DeviceRecords | None = self.options.on_devices
        return on_devices.class_names if on_devices else ()

    def _label_unit(self) -> dict[str, Any] | None:
        """Return the unit of numeric labels, as of `Dataset`, for JSON."""
        if self.dataset is None or self.dataset.label_unit is None:
            return None
        return asdict(self.dataset.label_unit)

    def _class_records(self) -> dict[str, list[int]] | None:
        """Return how many records of each class there are, to learn from and to judge the model.

        It is None if the host does not know the records, or if they have no classes.
        """
        dataset = self.dataset
        if dataset is None or dataset.task == REGRESSION:
            return None
        return {
            "learning": dataset.class_counts(dataset.training).tolist(),
            "judging": dataset.class_counts(dataset.test).tolist(),
        }

    def _judged(self) -> dict[str, Any]:
        """Judge the model on the held-out records, for JSON.

        Each metric, such as "auc", has its value under its name, and further values under the name
        with a suffix: "auc_interval", "auc_baseline", "auc_optimum" and "auc_optimum_interval". The
        baseline is the answer that knows no features, and the optimum the same model without
        privacy.
        """
        if self.dataset is None:
            return {"measure": None, "task": None, "decisions": {}, "choices": []}
        model = MODELS[self.model]
        weights = self.weights
        threshold = self.threshold_of(weights)
        optimum = self.optimum()
        its_threshold = self.threshold_of(optimum)
        figures = judging.figures(self.dataset, model, weights, threshold)
        by_suffix: dict[str, Mapping[str, Any]] = {
            "": figures,
            "_interval": judging.intervals(self.dataset, model, weights, threshold),
            "_baseline": judging.baselines(self.dataset, model),
            "_optimum": judging.figures(self.dataset, model, optimum, its_threshold),
            "_optimum_interval": judging.intervals(self.dataset, model, optimum, its_threshold),
        }

        names = list(figures)
        judged = {
            "measure": names[0],
            "measures": names,
            "task": self.dataset.task,
            "decisions": judging.decisions(self.dataset, model, weights, threshold),
            "choices": judging.choices(self.dataset, model, weights),
        }
        for name in names:
            for suffix, values in by_suffix.items():
                judged[f"{name}{suffix}"] = values[name]
        return judged

    @classmethod
    def summary(cls, result: Mapping[str, Any]) -> list[str]:
        return [
            *_metric_lines(result),
            *_decision_lines(result),
            *class_name_lines(result),
            *liar_results.training_lines(result),
            *_report_lines(result),
            *_class_lines(result["classes"]),
        ]


# Results for people


def _metric_lines(result: Mapping[str, Any]) -> list[str]:
    """Return a line for each metric of a model, such as the AUC, and one more if it is no better
    than chance.

    A line has the metric, its interval, and the metrics of the optimum and of the baseline.
    """
    if result["measure"] is None:  # the host has no records to judge the model on
        return []

    lines = []
    width = max(len(judging.WORDS[measure]) for measure in result["measures"])
    for measure in result["measures"]:
        lines.append(
            f"{judging.WORDS[measure]:<{width}} {result[measure]:.4f}   "
            f"({_interval_in_words(result[f'{measure}_interval'])}; without "
            f"privacy {result[f'{measure}_optimum']:.4f}, "
            f"{judging.TRIVIAL[measure]} {result[f'{measure}_baseline']:.4f})"
        )
    chance_lines = _chance_lines(result)
    if not chance_lines:
        chance_lines = _bad_probability_lines(result)
    return [*lines, *_unit_lines(result), *chance_lines]


def _interval_in_words(interval: Sequence[float] | None) -> str:
    """Return words about the interval of a metric; None: a single record was held out."""
    if interval is None:
        return "one held-out record tells no interval"
    low, high = interval
    return f"95 % interval {low:.4f} to {high:.4f} on held-out records"


def _bad_probability_lines(result: Mapping[str, Any]) -> list[str]:
    """Return a line that says that the model's probabilities are worse than the class shares.

    That a model has a good AUC or accuracy does not tell it. There is no line if they are better.
    """
    has_probabilities = judging.LOG_LOSS in result["measures"]
    if not has_probabilities or result["log_loss"] <= result["log_loss_baseline"]:
        return []
    return ["  its probabilities are worse than the class shares: do not rely on them"]


def _decision_lines(result: Mapping[str, Any]) -> list[str]:
    """Return lines about the classes that a model predicts, and about its probabilities.

    Most of them are about the rarer class. There are none for labels that are numbers, and if the
    host has no records to judge the model on.
    """
    decisions: Mapping[str, Any] = result.get("decisions") or {}
    if not decisions:
        return []
    lines = []
    if "recall_of_class" in decisions:
        lines.append(_recall_line(decisions["recall_of_class"]))
        if decisions["never_predicted"]:
            lines.append(f"  never predicts {', '.join(decisions['never_predicted'])}")
        return [*lines, *_calibration_lines(decisions)]
    rarer = decisions["rarer"]
    parts = [f"recall {share_in_words(decisions['recall'])}"]
    if decisions["precision"] is not None:
        parts.append(f"precision {share_in_words(decisions['precision'])}")
    parts.append(f"predicted for {share_in_words(decisions['predicted'])} of the held-out records")
    lines.append(f"rarer class {rarer}: {', '.join(parts)}{_at_threshold(decisions)}")
    return [*lines, *_calibration_lines(decisions), *_never_predicted_lines(result, decisions)]


def _recall_line(recall_of_class: Mapping[str, float | None]) -> str:
    """Return a line with the recall of each class of a softmax model; of many only the lowest."""
    known = {name: recall for name, recall in recall_of_class.items() if recall is not None}
    shown = sorted(known, key=lambda name: known[name])[:_MOST_CLASSES]
    recalls = [f"{name} {share_in_words(known[name])}" for name in known if name in shown]
    what = "recall of each class"
    if len(shown) < len(known):
        what = f"the {_MOST_CLASSES} lowest recalls of {len(known)} classes"
    return f"{what}: {', '.join(recalls)}"


def _calibration_lines(decisions: Mapping[str, Any]) -> list[str]:
    """Return a line that compares the probability of the rarer class with its share."""
    if decisions["mean_probability"] is None:
        return []
    return [
        f"  calibration: the mean probability of {decisions['rarer']} is "
        f"{decisions['mean_probability']:.4f}, its share of the held-out records "
        f"{decisions['share']:.4f}"
    ]


def _never_predicted_lines(result: Mapping[str, Any], decisions: Mapping[str, Any]) -> list[str]:
    """Return a line that says which of two classes the model never predicts, and what helps."""
    negative, positive = result.get("class_names") or judging.SIGNS
    rarer = decisions["rarer"]
    if decisions["predicted"] == 1:
        more_frequent = positive
        if rarer == positive:
            more_frequent = negative
        return [f"  never predicts {more_frequent}"]
    if decisions["predicted"] > 0:
        return []
    line = f"  never predicts {rarer}"
    share = decisions["share"]  # of the rarer class among the held-out records
    has_threshold = decisions["threshold"] is not None
    if has_threshold and 0 < share < 1:
        share_of_positive = share
        if rarer == negative:
            share_of_positive = 1 - share
        line += (
            f": --threshold {100 * share_of_positive:.3g}% makes it predict {positive} "
            "for so many of the held-out records"
        )
    return [line]


def _at_threshold(decisions: Mapping[str, Any]) -> str:
    """Return words about the threshold of a model, if it is not the usual one."""
    if decisions["threshold"] in (None, judging.EVEN):
        return ""
    return f" (threshold {decisions['threshold']:.4g})"


def share_in_words(share: float | None) -> str:
    """Return a share of records in per cent; "unknown" if there were no records."""
    if share is None:
        return "unknown"
    return f"{100 * share:.1f} %"


def _unit_lines(result: Mapping[str, Any]) -> list[str]:
    """Return a line with the usual error of a regression in the unit of its label, if it has one."""
    unit = result.get("label_unit")
    if not unit:
        return []

    def usual_error(suffix: str) -> str:
        """Return the root of a mean squared error in the unit of the label."""
        half_width = (unit["high"] - unit["low"]) / 2  # which is 1 where labels are scaled
        return f"{math.sqrt(result[f'squared_error{suffix}']) * half_width:.3g}"

    what = unit["name"]
    if unit["unit"]:
        what += f" in {unit['unit']}"
    return [
        f"  the usual error of {what} is {usual_error('')} (root of the mean square; without privacy "
        f"{usual_error('_optimum')}, mean label {usual_error('_baseline')})"
    ]


def class_name_lines(result: Mapping[str, Any]) -> list[str]:
    """Return lines that say which class is +1, and which classes no record has."""
    names: Sequence[str] = result.get("class_names") or judging.SIGNS
    lines = []
    if len(names) == 2 and not result["labels"] and set(names) != set(judging.SIGNS):
        negative, positive = names
        lines.append(f"label +1 is {positive}, and -1 is {negative}")
    return lines + _absent_class_lines(result, names)


def _absent_class_lines(result: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """Return lines that say which classes no record has that the model learns from, or that judges it.

    A class that no record has at all is not named again if the run has warned of it. names: of the
    classes.
    """
    absent = {}
    for purpose, counts in (result.get("class_records") or {}).items():
        absent[purpose] = {name for name, count in zip(names, counts, strict=True) if not count}
    if not absent:
        return []
    absent_everywhere = set.intersection(*absent.values())
    lines = []
    was_warned_of = any(each["kind"] == NO_RECORD for each in result.get("data_findings", ()))
    if absent_everywhere and not was_warned_of:
        lines.append(f"  no record is of the class {_in_order(names, absent_everywhere)}")
    for purpose, words in _PURPOSES.items():
        others = absent[purpose] - absent_everywhere
        if others:
            lines.append(f"  no record {words} is of the class {_in_order(names, others)}")
    return lines


def _in_order(names: Sequence[str], chosen: Collection[str]) -> str:
    """Return those of some names that are chosen, in their order."""
    return ", ".join(name for name in names if name in chosen)


def _chance_lines(result: Mapping[str, Any]) -> list[str]:
    """Return a line that says that the model's main metric is no better than chance, and why.

    There is no line if it is better.
    """
    name = result["measure"]  # of the main metric, such as "auc"
    has_own_threshold = result.get("threshold") not in (None, judging.EVEN)
    if has_own_threshold and judging.AUC in result["measures"]:
        name = judging.AUC  # with it, a good model may well be right less often than the majority
    reported_values = result["reports"] * result["k"]
    has_one_record = result.get("records", 1) == 1  # each client; a mean of many tells far more
    if reported_values < result["d"] and has_one_record:  # some weights have no report at all
        noun = "value"
        if result["mechanism"] == projections.NAME:
            noun = "direction"
        return [
            f"  the model has {result['d']} weights, and all reports together "
            f"{counted(reported_values, noun)}: the figure is chance"
        ]

    interval = result[f"{name}_interval"]
    baseline = result[f"{name}_baseline"]
    # A loss of a single record has no interval: nothing tells it from that of the baseline.
    interval_has_baseline = interval is None or interval[0] <= baseline <= interval[1]
    if interval_has_baseline or not judging.is_better(name, result[name], baseline):
        remedy = (
            "devices with many records each tell more (--records N), and a few of them are enough "
            "if each single record is protected (--unit record)"
        )
        if not has_one_record:
            remedy = (
                "more devices or a larger --epsilon tell more, and these devices are enough if each "
                "single record is protected (--unit record)"
            )
        if result.get("unit"):  # the number of records that are protected; 0 is a device
            remedy = "more devices, or a larger --run-epsilon, make it better"
        return [
            f"  {counted(result['reports'], 'report')} at this epsilon cannot tell this model from the "
            f"answer that knows no features: the figure is chance; {remedy}"
        ]
    return []


def _report_lines(result: Mapping[str, Any]) -> list[str]:
    """Return lines for people about how many reports there were, and what each had."""
    values = "coordinates of the gradient"
    clips_to_tau = result["classes"][0]["tau"] is not None
    if clips_to_tau:  # clients train by themselves, and report how far their weights have moved
        values = "weights"
    part = projections.part_in_words(result["mechanism"], result["k"])
    return [
        f"{counted(result['reports'], 'report')} of {result['bytes_per_report']} bytes in "
        f"{counted(result['rounds'], 'round')} and {result['seconds']:.1f} s",
        *stated_epsilon_lines(result),
        f"a report has {part} {result['d']} {values} (mechanism: {result['mechanism']})",
    ]


def _class_lines(classes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line for people about each class of devices, if there are several.

    Of many classes, only those that spend the least and the most have a line.

    classes: the summary of each class, as of `ReportDesign.summary`.
    """
    if len(classes) == 1:
        return []
    lines = []
    shown = cheapest_and_dearest(classes, cost=lambda summary: float(summary["epsilon_paid"]))
    if len(shown) < len(classes):
        lines.append(
            f"  {len(classes)} classes of clients, of which these spend the least and the most:"
        )
    for device_class in shown:
        percentage = 100 * device_class["share"]
        line = f"  {percentage:.3g} % of the clients: epsilon {device_class['epsilon']:g} a report"
        if device_class["tau"] is not None:
            line += f", tau {device_class['tau']:g}"
        lines.append(line)
    return lines
