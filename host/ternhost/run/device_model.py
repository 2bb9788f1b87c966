"""A trained model on the host, as devices have it: its predictions equal those of tern.model bit
for bit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tern import frames, wire
from tern.fixed import ONE
from tern.model import decode_model
from ternhost import vectorised
from ternhost.count.questions import Averaged
from ternhost.datasets.base import to_fixed
from ternhost.errors import UsageError
from ternhost.files import storage_errors, write_file
from ternhost.learn.parameters import MODELS, quantise
from ternhost.run import directory as run_directory
from ternhost.run import result as results
from ternhost.store import kept_model
from ternhost.store.store import Store

_WORDS = {
    wire.LINEAR: "linear",
    wire.LOGISTIC: "logistic",
    wire.SVM: "svm",
    wire.SOFTMAX: "softmax",
}
_NO_EPOCH = 2  # of a model.bin: a MODEL of any round replaces it
_ROUND_BYTES = slice(5, 9)  # of a MODEL, behind its type and its device

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class DeviceModel:
    """A model as in a MODEL frame (wire.md), made after round `number`.

    model: 1, 2, 3 (linear, logistic, SVM) or 4 (softmax). mantissas: classes x d, of `2**exponent`.
    Rows of features, n x d, are in Q1.14 if they are integers; others are clipped to [-1, 1] and
    rounded to it.
    """

    model: int
    mantissas: npt.NDArray[np.int16]
    exponent: int
    number: int = 1
    features: Sequence[str] = ()
    labels: Sequence[str] = ()

    @classmethod
    def of(cls, averaged: Averaged, number: int = 1, **names: Sequence[str]) -> Self:
        """Take the model of a learner, made after round `number`.

        names: the `features` and `labels`, where they are known.
        """
        mantissas = np.array(averaged.parameters, np.int16).reshape(averaged.classes, -1)
        return cls(averaged.model, mantissas, averaged.exponent, number, **names)

    @classmethod
    def of_frame(cls, frame: bytes, key: bytes = b"") -> Self:
        """Decode a MODEL under `key`, or with the empty key the model.bin of a board.

        Raises UsageError.
        """
        try:
            _, number, model, exponent, classes, parameters = decode_model(frame, key)
        except frames.FrameError as error:
            raise UsageError(f"this is not a model under this key: {error}") from error
        return cls.of(Averaged(model, parameters, exponent, classes), number)

    @classmethod
    def of_result(cls, result: Mapping[str, Any]) -> Self:
        """Take the model of the result of a run. Raises UsageError if the run learned none."""
        if "weights" not in result:
            raise UsageError(
                f"a run of {result['algorithm']} learns no model", hint="'tern train' does"
            )
        # Exact: the weights of a result are mantissas of one exponent.
        parameters = quantise(result["weights"])
        labels = result.get("labels") or ()
        if labels:
            model, classes = wire.SOFTMAX, len(labels)
        else:
            model, classes = MODELS[result["options"]["model"]], 1
        history = result["history"]
        number = history[-1]["round"] if history else 1
        averaged = Averaged(model, parameters.mantissas, parameters.exponent, classes)
        return cls.of(averaged, number, features=result["features"], labels=labels)

    @classmethod
    def of_store(cls, path: str | Path, run: str | None = None) -> Self:
        """Take the last model that the host of a store has sent to devices.

        run: the name of a run; a model from before it began does not count. Raises UsageError if
        there is none, StorageError.
        """
        with Store(path, create=False, beside=True) as store:
            frame = kept_model.kept(store)  # without its tag; empty if there is none
            stored_run = None if run is None else store.run(run)
        first_round = 1
        if stored_run is not None:
            first_round = max(1, stored_run.state["first_round"])
        if int.from_bytes(frame[_ROUND_BYTES], "little") < first_round:
            hint = "a run sends one as it ends, or goes on: --model-every"
            raise UsageError(f"{path} keeps no model yet", hint)
        return cls.of_frame(frame + bytes(frames.tag(b"", frame)))

    @classmethod
    def of_run(cls, run: str | Path, parent: str | Path = run_directory.RUNS) -> Self:
        """Take the model of a run: that of its result, or the last one sent to devices.

        The latter is for a run that has not finished.

        run: its name in `parent` (a directory or a store), its own directory, or its result.json.
        Raises UsageError, StorageError.
        """
        try:
            result = results.load(run, Path(parent))
        except UsageError:
            for summary in run_directory.list_runs(run_directory.existing_place(parent)):
                has_name = summary["run"] == str(run)
                has_path = Path(summary["directory"]).resolve() == Path(run).resolve()
                if "store" in summary and (has_name or has_path):
                    return cls.of_store(summary["store"], summary["run"])
            raise
        return cls.of_result(result)

    # Predictions

    @property
    def classes(self) -> int:
        """The number of classes; 1 except for softmax."""
        return len(self.mantissas)

    @property
    def d(self) -> int:
        """The number of features, the constant one included."""
        return int(self.mantissas.shape[1])

    @property
    def weights(self) -> npt.NDArray[np.float64]:
        """The weights as numbers, classes x d."""
        return np.asarray(self.mantissas, np.float64) * 2.0**self.exponent

    def score(self, rows: npt.ArrayLike) -> Integers:
        """Return the product of the weights and each row, in units of 2**-14.

        rows: n x d. The result has n scores; for softmax it is n x classes. Raises UsageError for
        rows of another width.
        """
        fixed = np.atleast_2d(np.asarray(rows))
        if not np.issubdtype(fixed.dtype, np.integer):
            fixed = to_fixed(fixed)
        if fixed.ndim != 2 or fixed.shape[1] != self.d:
            text = f"the model has {self.d} features, not rows of {fixed.shape[-1]}"
            raise UsageError(text, hint="the constant one is among them, and the label is not")
        if fixed.size and not -ONE * 2 <= fixed.min() <= fixed.max() < ONE * 2:
            raise UsageError(f"integers are Q1.14: {ONE} is 1", hint="give other numbers as floats")
        scores = vectorised.scores(self.mantissas, self.exponent, fixed)
        return scores if self.classes > 1 else scores[:, 0]

    def probability(self, rows: npt.ArrayLike) -> Integers:
        """Return the probability of label 1 for each row (n), in Q1.14.

        For softmax it is the probability of every class (n x classes). Raises UsageError for a
        model without probabilities, and as `score` does.
        """
        scores = self.score(rows)
        if self.model == wire.LOGISTIC:
            return vectorised.sigmoids(scores)
        if self.model != wire.SOFTMAX:
            raise UsageError(
                f"a {_WORDS[self.model]} model has no probabilities", hint="ask for its scores"
            )
        return vectorised.class_probabilities(scores).astype(np.int64)

    def predict(self, rows: npt.ArrayLike) -> Integers:
        """Return the predicted label of each row.

        Linear regression predicts a number in Q1.14; logistic regression and the SVM predict 1 or
        -1 in Q1.14; softmax predicts a class from 0 on, the first one with the largest score.
        Raises UsageError as `score` does.
        """
        scores = self.score(rows)
        if self.model == wire.LINEAR:
            return np.clip(scores, -ONE, ONE)
        if self.model == wire.SOFTMAX:
            return np.asarray(scores.argmax(axis=1), np.int64)
        return np.where(scores > 0, ONE, -ONE)

    # For a board, and for people

    def file(self) -> bytes:
        """A board's model.bin (storage.md).

        There the next MODEL replaces it, whatever its round.
        """
        return self.frame(b"", _NO_EPOCH)

    def frame(self, key: bytes, device: int = wire.FLEET) -> bytes:
        """Encode a MODEL under the key of that device, or of the fleet."""
        averaged = Averaged(
            self.model, self.mantissas.ravel().tolist(), self.exponent, self.classes
        )
        return averaged.frame(self.number, key, device)

    def summary(self) -> dict[str, Any]:
        """Return the model as a dict for JSON."""
        return {
            "model": _WORDS[self.model],
            "round": self.number,
            "classes": self.classes,
            "d": self.d,
            "exponent": self.exponent,
            "mantissas": self.mantissas.tolist(),
            "features": list(self.features),
            "labels": list(self.labels) or None,
        }

    def save(self, path: str | Path) -> None:
        """Write `file()` to a path. Raises StorageError."""
        with storage_errors("name a place that you may write to", path):
            write_file(Path(path), self.file())

    def __str__(self) -> str:
        size = f"{self.d} features"
        if self.classes > 1:
            size += f" and {self.classes} classes"
        return f"a {_WORDS[self.model]} model of {size}, made after round {self.number}"
