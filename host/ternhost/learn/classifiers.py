"""The classifier of protected inference: trained beforehand, or the model of a finished run, also
after its rounds.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tern.fixed import ONE
from ternhost.datasets import MULTICLASS, Dataset
from ternhost.errors import UsageError
from ternhost.files import read_object
from ternhost.learn.judging import LOG_LOSS
from ternhost.learn.parameters import LARGEST_WEIGHT, Floats, quantise
from ternhost.store import store_file
from ternhost.store.store import Store

_RESULT = "result.json"
_MODELS = ("logistic", "softmax")  # their scores are probabilities


@dataclass(frozen=True)
class Classifier:
    """Softmax of classes x features mantissas of `2**exponent`; the model of a run also has its
    round, and its log-loss on the held-out records.
    """

    mantissas: npt.NDArray[np.int16]
    exponent: int
    round: int | None = None
    loss: float | None = None

    @classmethod
    def of(
        cls, weights: Floats, classes: int, round_: int | None = None, loss: float | None = None
    ) -> "Classifier":
        """From the weights of `classes` classes, one after the other; of a single one, the other's
        are 0.
        """
        parameters = quantise(weights)
        mantissas = np.array(parameters.mantissas, np.int16).reshape(classes, -1)
        if len(mantissas) == 1:
            mantissas = np.concatenate([np.zeros_like(mantissas), mantissas])
        return cls(mantissas, parameters.exponent, round_, loss)


def trained(dataset: Dataset) -> Classifier:
    """A classifier of the training records, by scikit-learn."""
    from sklearn.linear_model import LogisticRegression  # takes a second to import

    x, y = dataset.features[dataset.training] / ONE, dataset.labels[dataset.training]
    weights: Floats = LogisticRegression(C=1.0, fit_intercept=False, max_iter=2000).fit(x, y).coef_
    largest = float(np.abs(weights).max())
    return Classifier.of((weights * min(1.0, LARGEST_WEIGHT / largest)).reshape(-1), len(weights))


@dataclass(frozen=True)
class LearnedBy:
    """A finished run of a model with probabilities, from its directory or its result.json.

    Raises UsageError.
    """

    directory: Path
    name: str
    store: Path
    classes: int  # 1 for the two of logistic regression
    last: Classifier
    losses: dict[int, float | None]  # after its rounds
    data: (
        tuple[str, tuple[str, ...]] | None
    )  # its data set and the features; None: boards had their own

    @classmethod
    def read(cls, text: str) -> "LearnedBy":
        path = Path(text).expanduser()
        path = path if path.suffix == ".json" else path / _RESULT
        result = read_object(
            path, hint := "name the directory of a finished run, such as runs/first"
        )
        try:
            options = result["options"]
            if "weights" not in result or options["model"] not in _MODELS:
                text = f"{path.parent} has no model with probabilities"
                raise UsageError(text, f"name a run of {' or '.join(_MODELS)} regression")
            classes = len(result["labels"] or ()) or 1
            losses = {entry["round"]: entry.get(LOG_LOSS) for entry in result["history"]}
            last = Classifier.of(
                result["weights"], classes, max(losses, default=0), result.get(LOG_LOSS)
            )
            data = (options["dataset"], tuple(result["features"])) if result["measure"] else None
            return cls(
                path.parent, result["run"], Path(result["store"]), classes, last, losses, data
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            why = f"there is no {error}" if isinstance(error, KeyError) else error
            raise UsageError(
                f"{path} is not the result of a run that learned a model: {why}", hint
            ) from error

    def require_for(self, dataset: Dataset) -> None:
        """Raise UsageError for a data set of other features or classes than the model's."""
        several = len(dataset.classes) if dataset.task == MULTICLASS else 1
        name, features = self.data or (None, dataset.feature_names)
        of = self.classes, self.last.mantissas.shape[1], features
        if (several, dataset.dimension, dataset.feature_names) != of:
            hint = name and f"--dataset {name}"
            raise UsageError(
                f"the model of {self.directory} is of other data than {dataset.name}", hint
            )

    def classifiers(self, rounds: int) -> list[Classifier]:
        """The models after so many rounds of the run, evenly spread; the last one is its result.

        Raises UsageError.
        """
        if rounds == 1:
            return [self.last]
        places = self.store, self.directory / store_file.NAME
        path = next((place for place in places if place.is_file()), None)
        if path is None:
            text = f"the models of rounds are in the run's store, which is neither {places[0]} nor {places[1]}"
            raise UsageError(text, "leave out --score-rounds, or bring the store back")
        with Store(path, create=False, beside=True) as store:
            models = store.models(self.name)
        assert self.last.round is not None
        numbers = sorted(models.keys() | {self.last.round})
        if len(numbers) < 2:
            raise UsageError(f"{path} has no models of earlier rounds", "leave out --score-rounds")
        at = np.linspace(0, len(numbers) - 1, min(rounds, len(numbers))).round().astype(int)
        weights = ((numbers[i], np.frombuffer(models[numbers[i]], "<f8")) for i in at[:-1])
        earlier = [
            Classifier.of(each, self.classes, number, self.losses.get(number))
            for number, each in weights
        ]
        return [*earlier, self.last]
