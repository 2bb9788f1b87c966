"""The classifier of protected inference: trained beforehand, or the model of a finished run."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tern.fixed import ONE
from tern.wire import LOGISTIC
from ternhost.count.questions import Averaged
from ternhost.datasets import MULTICLASS, Dataset
from ternhost.errors import UsageError
from ternhost.files import read_object
from ternhost.learn.models.judging import EVEN, LOG_LOSS
from ternhost.learn.models.thresholds import for_decisions
from ternhost.learn.parameters import LARGEST_WEIGHT, Floats, quantise
from ternhost.text import counted

_RESULT = "result.json"
_MODELS = ("logistic", "softmax")  # their scores are probabilities


@dataclass(frozen=True)
class Classifier:
    """A softmax classifier, with weights that devices can use."""

    mantissas: npt.NDArray[np.int16]  # the weights (classes x features), in units of 2**exponent
    exponent: int
    round: int | None = None  # of the run, after which it was the model
    loss: float | None = None  # its log-loss on the held-out records in that run

    @classmethod
    def of(
        cls, weights: Floats, classes: int, round_: int | None = None, loss: float | None = None
    ) -> "Classifier":
        """Make a classifier of the weights of a model, rounded as devices need it.

        In logistic regression only one of two classes has weights; those of the other one are 0.

        weights: class by class (classes * features).
        classes: the number of classes that have weights.
        round_, loss: the round of a run after which these were its weights, and their log-loss.
        """
        parameters = quantise(weights)
        mantissas = np.array(parameters.mantissas, np.int16).reshape(classes, -1)
        if len(mantissas) == 1:
            mantissas = np.concatenate([np.zeros_like(mantissas), mantissas])
        return cls(mantissas, parameters.exponent, round_, loss)

    def deciding(self, threshold: float) -> "Classifier":
        """Return the classifier whose most probable class is what a model predicts.

        Its probabilities are no longer those of the model.

        threshold: of a logistic model: the probability above which it predicts the second class.
        """
        if threshold == EVEN:
            return self
        averaged = Averaged(LOGISTIC, self.mantissas[1].tolist(), self.exponent)
        weights = for_decisions(averaged, threshold).weights.reshape(-1)
        return Classifier.of(weights, 1, self.round, self.loss)


def trained(dataset: Dataset) -> Classifier:
    """Train a classifier on the training records of a data set, by scikit-learn.

    If a weight is too large for a device, all are scaled down, which keeps the predicted classes.
    Raises UsageError unless there is a training record of each class.
    """
    _require_all_classes(dataset)
    from sklearn.linear_model import LogisticRegression  # takes a second to import

    features = dataset.features[dataset.training] / ONE
    labels = dataset.labels[dataset.training]
    regression = LogisticRegression(C=1.0, fit_intercept=False, max_iter=2000)
    weights: Floats = regression.fit(features, labels).coef_
    largest = float(np.abs(weights).max())
    scaled = weights * min(1.0, LARGEST_WEIGHT / largest)
    return Classifier.of(scaled.reshape(-1), classes=len(weights))


def _require_all_classes(dataset: Dataset) -> None:
    """Raise UsageError unless the training records have each class of a data set."""
    names = dataset.classes
    expected = set(range(len(names)))  # labels are the numbers of classes
    if dataset.task != MULTICLASS:
        names = names or ("-1", "1")
        expected = {-ONE, ONE}
    labels = {int(label) for label in dataset.labels[dataset.training]}
    missing = []
    for label, name in zip(sorted(expected), names, strict=True):
        if label not in labels:
            missing.append(name)
    if missing:
        records = counted(len(dataset.training), "record")
        text = f"the classifier learns from {records} of {dataset.name}, and none is of the class "
        hint = "use a smaller --held-out, so that more records train the classifier"
        if len(np.unique(dataset.labels)) < len(names):
            hint = "no record has it at all: use records of each class"
        raise UsageError(text + " or ".join(missing), hint)


@dataclass(frozen=True)
class LearnedBy:
    """A finished run of a model with probabilities."""

    directory: Path
    name: str
    store: Path
    classes: int  # 1 for the two of logistic regression
    last: Classifier
    losses: dict[int, float | None]  # after its rounds
    dataset: str | None = None  # None: boards had their own records
    features: tuple[str, ...] | None = None
    class_names: tuple[str, ...] = ()  # as of Dataset
    threshold: float = EVEN  # of a logistic model

    @classmethod
    def read(cls, place: str) -> "LearnedBy":
        """Read the result of a finished run. Raises UsageError if there is none.

        place: the directory of the run, or its result.json.
        """
        path = Path(place).expanduser()
        if path.suffix != ".json":
            path /= _RESULT
        hint = "name the directory of a finished run, such as runs/first"
        result = read_object(path, hint)
        try:
            return cls._of_result(path.parent, result)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            reason = f"there is no {error}" if isinstance(error, KeyError) else error
            text = f"{path} is not the result of a run that learned a model: {reason}"
            raise UsageError(text, hint) from error

    @classmethod
    def _of_result(cls, directory: Path, result: Mapping[str, Any]) -> "LearnedBy":
        """Take what is needed from the result of a run.

        directory: the directory of the run. result: the object in its result.json.
        Raises UsageError if its model has no probabilities, and KeyError, TypeError and the like if
        the object is not the result of a run that learned a model.
        """
        options = result["options"]
        if "weights" not in result or options["model"] not in _MODELS:
            text = f"{directory} has no model with probabilities"
            raise UsageError(text, f"name a run of {' or '.join(_MODELS)} regression")

        classes = 1  # that have weights: of two classes in logistic regression only one has
        if result["labels"]:  # the names of several classes
            classes = len(result["labels"])
        losses: dict[int, float | None] = {}  # of the model after each round
        for entry in result["history"]:
            losses[entry["round"]] = entry.get(LOG_LOSS)
        last_round = max(losses, default=0)
        dataset, features = None, None
        if result["measure"]:  # the model was judged on a data set
            dataset, features = options["data"], tuple(result["features"])
        return cls(
            directory=directory,
            name=result["run"],
            store=Path(result["store"]),
            classes=classes,
            last=Classifier.of(result["weights"], classes, last_round, result.get(LOG_LOSS)),
            losses=losses,
            dataset=dataset,
            features=features,
            class_names=tuple(result.get("class_names") or result["labels"] or ()),
            threshold=float(result.get("threshold") or EVEN),
        )

    def require_for(self, dataset: Dataset) -> None:
        """Raise UsageError if a data set has other features or classes than the model."""
        classes = 1  # that have weights: of two classes only one has
        if dataset.task == MULTICLASS:
            classes = len(dataset.classes)
        _, model_dimension = self.last.mantissas.shape
        suits = classes == self.classes and dataset.dimension == model_dimension
        # The names of the features are known if the model was judged on a data set.
        if self.features and dataset.feature_names != self.features:
            suits = False
        if not suits:
            hint = self.dataset  # None: no data set is known that suits
            if self.dataset:
                hint = f"--data {self.dataset}"
            text = f"the model of {self.directory} is of other data than {dataset.name}"
            raise UsageError(text, hint)

    def classifiers(self, rounds: int) -> list[Classifier]:
        """Return the models after some rounds of the run, evenly spread; the last is its result.

        rounds: how many models to return; there are fewer if the run's store has fewer.
        Raises UsageError if the store is missing or has no models.
        """
        from ternhost.store.store import Store  # slow to load

        if rounds == 1:
            return [self.last]
        # Without a lock (beside), as the process that serves the fleet may have the store open.
        path = self._existing_store()
        with Store(path, create=False, beside=True) as store:
            models = store.models(self.name)  # by round
        assert self.last.round is not None
        numbers = sorted(models.keys() | {self.last.round})  # of rounds that have a model
        if len(numbers) < 2:
            raise UsageError(f"{path} has no models of earlier rounds", "leave out --score-rounds")

        evenly_spread = np.linspace(0, len(numbers) - 1, min(rounds, len(numbers)))
        indices = evenly_spread.round().astype(int)
        classifiers = []
        for index in indices[:-1]:
            number = numbers[index]
            weights = np.frombuffer(models[number], "<f8")  # stored as little-endian doubles
            loss = self.losses.get(number)
            classifiers.append(Classifier.of(weights, self.classes, number, loss))
        return [*classifiers, self.last]

    def _existing_store(self) -> Path:
        """Return the store of the run, which may have been moved together with its directory.

        Raises UsageError if it is gone.
        """
        from ternhost.store import store_file  # slow to load

        own_path = self.directory / store_file.NAME
        for path in (self.store, own_path):
            if path.is_file():
                return path
        places = f"neither {self.store} nor {own_path}"
        text = f"the models of rounds are in the run's store, which is {places}"
        raise UsageError(text, "leave out --score-rounds, or bring the store back")
