"""A trained model on the host, as devices have it: its predictions equal those of tern.model bit
for bit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from tern import frames, wire
from tern.fixed import ONE
from tern.model import decode_model
from ternhost import vectorised
from ternhost.count.questions import Averaged
from ternhost.datasets.base import CONSTANT
from ternhost.datasets.frames import FALSE, TRUE
from ternhost.datasets.rows import RowForm
from ternhost.datasets.schemas.columns import Numeric
from ternhost.datasets.schemas.schema import Schema
from ternhost.errors import UsageError
from ternhost.files import storage_errors, write_file
from ternhost.learn.models.judging import EVEN
from ternhost.learn.models.thresholds import Threshold, for_decisions, require_threshold
from ternhost.learn.parameters import MODELS, quantise
from ternhost.options import Number
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
# Names of a first feature that is the constant: of data sets, and of records that boards made.
_CONSTANTS = (CONSTANT, "x0")
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")
_NO_EPOCH = 2  # in place of a device id: the file is older than the model of any round
_ROUND_BYTES = slice(5, 9)  # of a MODEL frame: type u8 | device u32 | round u32 | ...

if TYPE_CHECKING:
    import pandas as pd

    Rows: TypeAlias = npt.ArrayLike | pd.DataFrame | Mapping[str, Sequence[Any]]

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class DeviceModel:
    """A trained model, as devices get it in a MODEL frame (wire.md).

    Its weights are int16 mantissas with a common exponent: mantissa * 2**exponent.

    model: the kind, as in wire.py: LINEAR, LOGISTIC, SVM or SOFTMAX. mantissas: classes x d, with
    one row unless it is a softmax model; d is the number of features. number: of the round after
    which the model was made. features: their names, if known. labels: the names of the classes of a
    softmax model, if known. class_names: these, or for a model of two classes the name of label -1
    and that of label 1. schema: that of the table of the run, if there was one. threshold: a
    logistic model predicts label 1 if its probability is larger; `with_threshold` changes it. The
    model that a board gets keeps its threshold in the weight of the constant: that is `on_board`.
    None: the model is one that boards have, and does not tell its threshold. It predicts by it all
    the same, but in its probabilities 1/2 stands for the threshold.

    Methods take rows of features, in one of two forms:

    - a data frame or a dict of columns, which are found by their names. Columns are in the units of
      the schema, if there was one: `model.predict(pandas.read_csv("new.csv"))`. Without a schema
      they are numbers in [-1, 1].
    - an array, n x d, or n x (d - 1) without the constant. An array of the type int16 has numbers
      in Q1.14, in which 2**14 stands for 1. Floats and bools are numbers, which are clipped to
      [-1, 1] and rounded to Q1.14; with a schema, floats beyond [-1, 1] are an error. Other
      whole numbers are taken for Q1.14 unless they may be something else: then that is an error.
    """

    model: int
    mantissas: npt.NDArray[np.int16]
    exponent: int
    number: int = 1
    features: Sequence[str] = ()
    labels: Sequence[str] = ()
    class_names: Sequence[str] = ()
    schema: Schema | None = None
    threshold: float | None = EVEN

    def __post_init__(self) -> None:
        """Raise UsageError for a threshold that is none, or that this model cannot have."""
        if self.threshold in (None, EVEN):
            return
        require_threshold(self.threshold)
        if self.model != wire.LOGISTIC:
            text = (
                f"a {_WORDS[self.model]} model has no threshold: it gives no probability of label 1"
            )
            raise UsageError(text, "only logistic models of two classes do")
        if self.features and self.features[0] not in _CONSTANTS:
            text = "the threshold is kept in the weight of the constant, which this model lacks"
            raise UsageError(text, "compare its probabilities with a number of your own")

    @classmethod
    def of(cls, averaged: Averaged, number: int = 1, **known: Any) -> Self:
        """Make a device model of the model that a learner has averaged from reports.

        number: of the round after which it was made. known: other fields.
        """
        mantissas = np.array(averaged.parameters, np.int16).reshape(averaged.classes, -1)
        return cls(averaged.model, mantissas, averaged.exponent, number, **known)

    @classmethod
    def of_frame(cls, frame: bytes, key: bytes = b"") -> Self:
        """Decode a MODEL frame, the message in which a host sends a trained model to devices.

        key: the key with which the frame was authenticated. A board's file model.bin is such a
        frame under the empty key. The threshold of a logistic model is None: a frame does not
        tell it. Raises UsageError for an invalid frame or another key.
        """
        try:
            fields = decode_model(frame, key)
            frames.require(fields[2] != wire.LIMITS, "it has limits of features")
        except frames.FrameError as error:
            raise UsageError(f"this is not a model under this key: {error}") from error
        _device, number, model, exponent, classes, parameters = fields
        averaged = Averaged(model, parameters, exponent, classes)
        threshold = None if model == wire.LOGISTIC else EVEN
        return cls.of(averaged, number, threshold=threshold)

    @classmethod
    def of_result(cls, result: Mapping[str, Any]) -> Self:
        """Return the model in the result of a run. Raises UsageError if the run learned none."""
        if "weights" not in result:
            raise UsageError(
                f"a run of {result['algorithm']} learns no model", hint="'tern train' does"
            )
        # The weights of a result are integers (mantissas) times one power of two, as devices have
        # them, so that this loses nothing.
        parameters = quantise(result["weights"])
        labels = result.get("labels") or ()
        if labels:
            model = wire.SOFTMAX
            classes = len(labels)
        else:
            model = MODELS[result["options"]["model"]]
            classes = 1
        number = 1  # the round after which the model was made
        history = result["history"]
        if history:
            number = history[-1]["round"]
        averaged = Averaged(model, parameters.mantissas, parameters.exponent, classes)
        return cls.of(
            averaged,
            number,
            features=result["features"],
            labels=labels,
            class_names=result.get("class_names") or labels,
            schema=_schema_of(result),
            threshold=result.get("threshold") or EVEN,  # results of older versions have none
        )

    @classmethod
    def of_store(cls, path: str | Path, run: str | None = None) -> Self:
        """Return the last model that was sent to devices from the store at `path`.

        It is `on_board`: a threshold of the run is in the weight of the constant. So the threshold
        of a logistic model is None, unless the run is named and was begun with the usual one.

        run: the name of a run; then a model from before this run does not count. Raises UsageError
        if there is no model, and StorageError if the store cannot be read.
        """
        # beside=True: only to read, while another process may write the store.
        with Store(path, create=False, beside=True) as store:
            frame = kept_model.kept(store)  # a MODEL frame without its tag; empty if there is none
            stored_run = None
            if run is not None:
                stored_run = store.run(run)
        first_round = 1
        if stored_run is not None:
            first_round = max(1, stored_run.state["first_round"])
        round_of_model = int.from_bytes(frame[_ROUND_BYTES], "little")  # 0 of an empty frame
        if round_of_model < first_round:
            hint = "a run sends one as it ends, or goes on: --model-every"
            raise UsageError(f"{path} keeps no model yet", hint)
        # `of_frame` checks an authentication tag, so the frame gets one under the empty key.
        no_key = b""
        model = cls.of_frame(frame + bytes(frames.tag(no_key, frame)))
        if stored_run is None:
            return model
        threshold = model.threshold
        named = stored_run.asked["learning"].get("threshold")  # None: by an older version
        if named is None or Threshold.parse(named) == Threshold():
            threshold = EVEN
        class_names = stored_run.asked.get("class_names") or ()
        return replace(model, class_names=class_names, threshold=threshold)

    @classmethod
    def of_run(cls, run: str | Path, parent: str | Path = run_directory.RUNS) -> Self:
        """Return the model of a run: the one in its result, or else the last one sent to devices.

        The latter is for a run that has not finished. run: its name in `parent` (a directory or a
        store), its own directory, or its result.json. Raises UsageError, StorageError.
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

    # The threshold

    def with_threshold(self, threshold: Number) -> Self:
        """Return the same logistic model with another threshold, for host and boards.

        threshold: a probability, such as 0.3, or the costs of a false alarm and of a miss, as
        "1:5". Raises UsageError for others, for a model that has no threshold, and for one that
        does not tell which threshold is in the weight of its constant.
        """
        named = Threshold.parse(str(threshold))
        if named.probability is None:
            text = (
                f"{threshold} is a share of the records that judge a model, which it does not keep"
            )
            hint = (
                "name a probability, such as 0.3; 'tern runs --model-of RUN' shows what share of the "
                "records some of them predict"
            )
            raise UsageError(text, hint)
        if self.threshold is None:
            text = (
                "this model is as boards have it, perhaps with a threshold in the weight of its "
                "constant, and does not tell which one"
            )
            raise UsageError(text, "take the model of the run's result, after the run has finished")
        return replace(self, threshold=named.probability)

    @property
    def on_board(self) -> Self:
        """The model as a board gets it, which compares the score with 0.

        Its score is lower than that of this model by the score at the threshold, so that it makes
        the same predictions. Its probabilities are shifted: 1/2 stands for the threshold.
        """
        if self.threshold in (None, EVEN):
            return self
        averaged = for_decisions(self._averaged, self.threshold)
        mantissas = np.array(averaged.parameters, np.int16).reshape(self.mantissas.shape)
        return replace(self, mantissas=mantissas, exponent=averaged.exponent, threshold=None)

    @property
    def _averaged(self) -> Averaged:
        parameters = self.mantissas.ravel().tolist()
        return Averaged(self.model, parameters, self.exponent, self.classes)

    # Predictions

    @property
    def classes(self) -> int:
        """The number of classes of a softmax model; 1 for other models."""
        return len(self.mantissas)

    @property
    def d(self) -> int:
        """The number of features, including the constant one."""
        return int(self.mantissas.shape[1])

    @property
    def weights(self) -> npt.NDArray[np.float64]:
        """The weights as floats, classes x d."""
        return np.asarray(self.mantissas, np.float64) * 2.0**self.exponent

    def score(self, rows: Rows) -> Integers:
        """Return the scalar product of the weights and each row, in units of 2**-14.

        rows: n rows of features, in one of the forms above. The result has n numbers; for a softmax
        model it is n x classes. Raises UsageError for rows of another form, and for whole numbers
        that may be Q1.14 or not.
        """
        form = RowForm(self.d, tuple(self.features), self.schema)
        scores = vectorised.scores(self.mantissas, self.exponent, form.fixed(rows))
        if self.classes == 1:
            return scores[:, 0]
        return scores

    def probability(self, rows: Rows) -> Integers:
        """Return the probability of label 1 for each row, in Q1.14.

        rows: as of `score`. The result has n numbers; for a softmax model it has the probability of
        every class (n x classes). Raises UsageError for a model that has no probabilities, and
        where `score` does.
        """
        scores = self.score(rows)
        if self.model == wire.LOGISTIC:
            return vectorised.sigmoids(scores)
        if self.model == wire.SOFTMAX:
            return vectorised.class_probabilities(scores).astype(np.int64)
        raise UsageError(
            f"a {_WORDS[self.model]} model has no probabilities", hint="use its scores"
        )

    def predict(self, rows: Rows) -> npt.NDArray[Any]:
        """Return the prediction for each row, in words of the table that the model was trained on.

        It is the name of a class, if the names are known. Names that are whole numbers or bools are
        returned as such, as tables have them. A linear model predicts a number in the unit of the
        label's column, if the schema is known. Otherwise the prediction is the number of
        `predict_numbers`. rows: as of `score`. Raises UsageError where `score` does.
        """
        numbers = self.predict_numbers(rows)
        if self.model == wire.LINEAR:
            label = self.schema and self.schema.label_column
            return label.values_of(numbers) if isinstance(label, Numeric) else numbers
        if not self.class_names:
            return numbers
        codes = numbers
        if self.model != wire.SOFTMAX:
            codes = np.asarray(numbers > 0, np.int64)
        return _in_their_type(self.class_names)[codes]

    def predict_numbers(self, rows: Rows) -> Integers:
        """Return the predicted label of each row in the numbers of devices.

        Linear regression predicts a number from -1 to 1 in Q1.14; logistic regression and the SVM
        predict 1 or -1 in Q1.14, the former by its threshold; softmax predicts a class, counted
        from 0: the first one that has the largest score.

        rows: as of `score`. Raises UsageError where `score` does.
        """
        scores = self.on_board.score(rows)
        if self.model == wire.LINEAR:
            return np.clip(scores, -ONE, ONE)
        if self.model == wire.SOFTMAX:
            return np.asarray(scores.argmax(axis=1), np.int64)
        return np.where(scores > 0, ONE, -ONE)

    # For a board, and for people

    def file(self) -> bytes:
        """Return the contents of a board's file model.bin (storage.md) with this model.

        On the board, the model of any later MODEL frame replaces it, whatever its round.
        """
        return self.frame(b"", _NO_EPOCH)

    def frame(self, key: bytes, device: int = wire.FLEET) -> bytes:
        """Return the MODEL frame that carries this model to a device.

        key: of the device, or of the fleet. device: its id; wire.FLEET: the frame is for all
        devices.
        """
        return self.on_board._averaged.frame(self.number, key, device)

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
            "class_names": list(self.class_names),
            "threshold": self.threshold,
        }

    def save(self, path: str | Path) -> None:
        """Write a board's file model.bin with this model to `path`. Raises StorageError."""
        with storage_errors("name a place that you may write to", path):
            write_file(Path(path), self.file())

    def __str__(self) -> str:
        size = f"{self.d} features"
        if self.classes > 1:
            size += f" and {self.classes} classes"
        text = f"a {_WORDS[self.model]} model of {size}, made after round {self.number}"
        if self.threshold is None:
            text += ", as boards have it: its threshold, if it has one, is in the constant"
        elif self.threshold != EVEN:
            text += f", with the threshold {self.threshold:.4g}"
        return text


def _schema_of(result: Mapping[str, Any]) -> Schema | None:
    """Return the schema of the table of a run, which its result keeps; None if there was none."""
    text = result.get("schema")
    if text is None:
        return None
    return Schema.of_text(text, "the schema of the run")


def _in_their_type(names: Sequence[str]) -> npt.NDArray[Any]:
    """Return names of classes as whole numbers or bools if all of them are, else as texts."""
    if set(names) <= {TRUE, FALSE}:
        return np.array([name == TRUE for name in names])
    if all(_WHOLE.fullmatch(name) for name in names):
        return np.array([int(name) for name in names])
    return np.array(names)
