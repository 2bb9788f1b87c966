"""The common part of algorithms that learn a linear model: the data that judge it, and the result."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tern.wire import MAX_BATCH, MAX_DIMENSION, MAX_VALUES, SOFTMAX
from ternhost import datasets
from ternhost.count.questions import Averaged, Question, report_bytes
from ternhost.datasets import CLASSIFICATION, REGRESSION, Dataset, Holdings, Indices
from ternhost.errors import UsageError
from ternhost.learn import judging, projections
from ternhost.learn.base import Learner, Population, Turns, report_summary
from ternhost.learn.designs import SEED_HELP, Budgeted, ReportDesign, ends, stated
from ternhost.learn.optimum import optimum
from ternhost.learn.parameters import MODELS, SUITED, Floats, quantise
from ternhost.learn.training import Trainer, TrainingPlan
from ternhost.options import option, require
from ternhost.text import counted

to_learn = partial(option, group="what to learn")


@dataclass(frozen=True)
class ModelOptions:
    """Options of every algorithm that learns a linear model."""

    dataset: str = to_learn(
        "flights",
        f"data set to learn from: {', '.join(datasets.DATASETS)}; or NAME:PATH, in a file",
        metavar="D",
    )
    dimension: int | None = to_learn(
        None,
        "instead of --dataset: number of features, the constant included, of records that only the devices know",
        instead_of=("dataset",),
        metavar="N",
    )
    labels: int | None = to_learn(
        None, "with --dimension, --model softmax: number of classes", metavar="N"
    )
    model: str = to_learn(
        "",
        "model to train; softmax is for several classes",
        choices=tuple(MODELS),
        shown="linear for numeric labels, else logistic",
    )
    seed: int = to_learn(1, SEED_HELP, metavar="S")

    def __post_init__(self) -> None:
        if self.model and self.model not in MODELS:
            raise UsageError(
                f"there is no model {self.model!r}", hint=f"one of: {', '.join(MODELS)}"
            )
        require(self.seed >= 0, "seed", "0 or more", self.seed)
        if self.labels is not None:
            require(
                2 <= self.labels <= MAX_DIMENSION, "labels", f"2 to {MAX_DIMENSION}", self.labels
            )
        if (self.labels is not None) != (self.dimension is not None and self.model == "softmax"):
            text = "--labels is for softmax regression on records that only the devices know, which needs it"
            raise UsageError(text, "name --model softmax, --dimension and --labels together")
        if self.dimension is not None:
            in_order = 1 <= self.dimension <= MAX_DIMENSION
            require(in_order, "dimension", f"1 to {MAX_DIMENSION}", self.dimension)

    @property
    def model_name(self) -> str:
        """The model that was named, else the one that suits the labels."""
        task = CLASSIFICATION if self.dimension is not None else datasets.task_of(self.dataset)
        return self.model or SUITED[task]

    @property
    def derived(self) -> dict[str, Any]:
        return {"model": self.model_name}


@dataclass(frozen=True)
class LearningOptions(Budgeted, ModelOptions):
    """Options of algorithms whose reports each have an epsilon."""

    batch: int = to_learn(0, "records used for a report; 0: all of the device", metavar="B")

    def __post_init__(self) -> None:
        ModelOptions.__post_init__(self)
        super().__post_init__()
        require(
            0 <= self.batch <= MAX_BATCH, "batch", f"0 (all) to {MAX_BATCH} records", self.batch
        )


class Learning(Learner):
    """The base of algorithms that learn a linear model by rounds: `_trainer` has it."""

    _trainer: Trainer

    def __init__(self, options: Any, population: Population, data: Dataset | None = None) -> None:
        """data: to learn from, instead of the data set that the options name."""
        self.options = options
        self._population = population
        self.dataset = data
        self.model: str = options.model_name
        several = self.model == "softmax"
        if data is None and options.dimension is None:
            self.dataset = datasets.load(options.dataset, classes=several)
        elif data is None and population.knows_records:
            text = (
                "--dimension is for devices with records of their own, and these are given theirs"
            )
            raise UsageError(text, "name a --dataset, or a fleet of boards: port:... or mqtt:...")
        if self.dataset and self.dataset.task == REGRESSION and self.model != SUITED[REGRESSION]:
            text = f"a {self.model} model tells classes, and the labels of {self.dataset.name} are numbers"
            raise UsageError(text, f"name --model {SUITED[REGRESSION]}, or leave it out")
        self.classes: int = 1  # of softmax regression: each has a weight a feature
        if several:
            self.classes = len(self.dataset.classes) if self.dataset else options.labels
        features: int = self.dataset.dimension if self.dataset else options.dimension
        self.d = self.classes * features
        if self.d > MAX_VALUES:
            hint = f"a device computes at most {MAX_VALUES:,}: use fewer classes or features"
            raise UsageError(
                f"{self.classes} classes of {features} features have {self.d:,} weights", hint
            )
        self.last: dict[str, Any] | None = None  # the estimate of the last round that had one
        self._turns: Turns | None = None

    def _records(self, each: int = 1, leave_out: Indices | tuple[()] = ()) -> Holdings | None:
        """The training records, `each` to a client; None where the host does not know what clients
        hold.
        """
        if self.dataset is None or not self._population.knows_records:
            return None
        held = np.setdiff1d(self.dataset.training, leave_out)
        order = np.random.default_rng(self.options.seed).permutation(held)
        return Holdings(self.dataset.records(np.arange(len(self.dataset.labels))), order, each)

    def _turn(self, clients: int, group: int, number: int) -> Indices:
        """The clients (from 0) of the group whose turn it is in a round (from 0)."""
        if self._turns is None or self._turns.clients != clients:
            self._turns = Turns(clients, group, self.options.seed)
        return self._turns.asked(number)

    @property
    def done(self) -> bool:
        return self._trainer.stopped is not None

    @property
    def weights(self) -> Floats:
        """The model so far."""
        return self._trainer.model

    @property
    def averaged(self) -> Averaged:
        parameters = quantise(self.weights)
        model = SOFTMAX if self.classes > 1 else MODELS[self.model]
        return Averaged(model, parameters.mantissas, parameters.exponent, self.classes)

    def state(self) -> dict[str, Any]:
        return {"trainer": self._trainer.state(), "last": self.last}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._trainer.restore(state["trainer"])
        self.last = state["last"]

    def figures(self) -> dict[str, float]:
        if self.dataset is None:
            return {}
        return judging.figures(self.dataset, MODELS[self.model], self.weights)

    def references(self) -> dict[str, Any]:
        """The optimum without privacy, the answer that knows no features, and how many records
        judge both.
        """
        if self.dataset is None:
            return {"measures": []}
        model = MODELS[self.model]
        optimum = judging.figures(self.dataset, model, self.optimum())
        baseline, judged = judging.baselines(self.dataset, model), judging.counts(self.dataset)
        return {
            "measures": list(optimum),
            "optimum": optimum,
            "baseline": baseline,
            "judged": judged,
        }

    def optimum(self) -> Floats:
        """The same kind of model without privacy, fitted to all training records with the same
        regularisation. Local training has none, but without any, records that a line separates have
        no optimum.
        """
        assert self.dataset is not None
        regularisation = getattr(self.options, "regularisation", TrainingPlan.regularisation)
        return optimum(MODELS[self.model], self.dataset, regularisation)

    def a_question(self, design: ReportDesign) -> Question:
        """The question of the next round for a class."""
        raise NotImplementedError

    def result(self, history: Sequence[dict[str, Any]]) -> dict[str, Any]:
        design = self.designs[0]
        data = self.dataset
        features = data.feature_names if data else [f"x{i}" for i in range(self.d // self.classes)]
        labels = data.classes if data else map(str, range(self.classes))
        return {
            **self._judged(),
            **report_summary(design, self.a_question(design)),
            "bytes_per_report_float32": report_bytes(4 * self.d),
            "classes": [design.summary(self.times) for design in self.designs],
            **self.how(),
            **{"levels": design.card.symbols, "k": design.k, "d": self.d},
            "features": list(features),
            "labels": list(labels) if self.classes > 1 else None,  # the weights come class by class
            "weights": self.weights.tolist(),
            "last_gradient": self.last,
        }

    def how(self) -> dict[str, Any]:
        """What updated the model, its learning rate in the last round, and why it stopped."""
        trainer = self._trainer
        how = {"stopped": trainer.stopped, "optimiser": trainer.plan.optimiser}
        return {**how, "learning_rate": trainer.rate}

    def _judged(self) -> dict[str, Any]:
        """Each figure of the model, beside the answer that knows no features and the optimum
        without privacy.
        """
        if self.dataset is None:
            return {"measure": None, "task": None}
        model = MODELS[self.model]
        parts: dict[str, dict[str, Any]] = {}
        for of, weights in (("", self.weights), ("_optimum", self.optimum())):
            parts[of] = judging.figures(self.dataset, model, weights)
            parts[f"{of}_interval"] = judging.intervals(self.dataset, model, weights)
            parts.setdefault("_baseline", judging.baselines(self.dataset, model))
        names = list(parts[""])
        judged = {f"{name}{part}": values[name] for name in names for part, values in parts.items()}
        return {"measure": names[0], "measures": names, "task": self.dataset.task, **judged}

    @classmethod
    def summary(cls, result: Mapping[str, Any]) -> list[str]:
        lines = _figures(result)
        unit = (
            "weights" if result["classes"][0]["tau"] is not None else "coordinates of the gradient"
        )
        part = projections.part(result["mechanism"], result["k"])
        lines += [
            f"{counted(result['reports'], 'report')} of {result['bytes_per_report']} bytes in "
            f"{counted(result['rounds'], 'round')} and {result['seconds']:.1f} s",
            *stated(result),
            f"a report has {part} {result['d']} {unit} (mechanism: {result['mechanism']})",
        ]
        classes = result["classes"]
        shown = ends(classes, lambda each: float(each["epsilon_paid"]))
        if len(shown) < len(classes):
            lines.append(
                f"  {len(classes)} classes of clients, of which these spend the least and the most:"
            )
        if len(classes) > 1:
            lines += [_class(each) for each in shown]
        return lines


def _figures(result: Mapping[str, Any]) -> list[str]:
    name = result["measure"]
    if name is None:
        return []
    words = [judging.WORDS[each] for each in result["measures"]]
    wide = max(map(len, words))
    lines = [
        f"{word:<{wide}} {result[each]:.4f}   (95 % interval {low:.4f} to {high:.4f} on held-out records; without "
        f"privacy {result[f'{each}_optimum']:.4f}, {judging.TRIVIAL[each]} {result[f'{each}_baseline']:.4f})"
        for word, each in zip(words, result["measures"], strict=True)
        for low, high in [result[f"{each}_interval"]]
    ]
    told = "direction" if result["mechanism"] == projections.NAME else "value"
    values = result["reports"] * result["k"]
    if values < result["d"]:
        lines.append(
            f"  the model has {result['d']} weights, and all reports together {counted(values, told)}: "
            "the figure is chance"
        )
        return lines
    baseline, (low, high) = result[f"{name}_baseline"], result[f"{name}_interval"]
    if low <= baseline <= high or not judging.better(name, result[name], baseline):
        lines.append(
            f"  {result['reports']:,} reports at this epsilon do not tell this model from the answer that knows no "
            "features: the figure is chance; a few boards with many records each learn with the record as the unit of "
            "privacy: --unit record"
        )
    return lines


def _class(cost: Mapping[str, Any]) -> str:
    tau = "" if cost["tau"] is None else f", tau {cost['tau']:g}"
    return (
        f"  {100 * cost['share']:.3g} % of the clients: epsilon {cost['epsilon']:g} a report{tau}"
    )
