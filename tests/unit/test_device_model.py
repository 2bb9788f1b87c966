"""The host's twin of the device's model gives the same bits for all rows and parameters.

It is read from runs, frames, files and stores.
"""

from array import array

import numpy as np
import pytest
from framing import encoded
from hypothesis import given
from hypothesis import strategies as st

import ternhost
from tern import host_frames, wire
from tern.fixed import ONE
from tern.model import MODEL, Model
from ternhost import DeviceModel, UsageError
from ternhost.count.questions import Averaged
from ternhost.datasets import load

KINDS = (wire.LINEAR, wire.LOGISTIC, wire.SVM, wire.SOFTMAX)
INT16 = st.integers(-32768, 32767) | st.sampled_from([-32768, 32767, -ONE, ONE, 0, 1, -1])


def opened(folder):
    """The device's model, from the model.bin in a folder."""
    device = Model()
    device.open(str(folder))
    assert device.ready
    return device


def check_predictions(folder, twin, rows):
    """The device predicts what its twin does, from a model.bin that the host wrote."""
    twin.save(str(folder) + MODEL)
    device = opened(folder)
    scores, predictions = twin.score(rows), twin.predict_numbers(rows)
    probabilities = twin.probability(rows) if twin.model in (wire.LOGISTIC, wire.SOFTMAX) else None
    for i, values in enumerate(rows.tolist()):
        row, labels = array("h", values), range(twin.classes)
        assert [device.score(row, j) for j in labels] == np.atleast_1d(scores[i]).tolist()
        assert device.predict(row) == predictions[i]
        if twin.model == wire.SOFTMAX:
            assert [device.probability(row, j) for j in labels] == probabilities[i].tolist()
        elif twin.model == wire.LOGISTIC:
            assert device.probability(row) == probabilities[i] == ONE - device.probability(row, -1)


@pytest.mark.slow
@given(data=st.data())
def test_the_twin_predicts_what_a_device_predicts(tmp_path_factory, data):
    """A device predicts in 16-bit fixed point: its weights are mantissas (integers) times a power
    of two. The twin does the same on the host with NumPy. Their scores, predictions and
    probabilities are equal, bit for bit, for any weights and rows.
    """
    model = data.draw(st.sampled_from(KINDS))
    classes = data.draw(st.integers(2, 12)) if model == wire.SOFTMAX else 1
    features = data.draw(st.sampled_from([1, 2, 5, 13, 28, 64]))
    count = classes * features
    mantissas = np.array(data.draw(st.lists(INT16, min_size=count, max_size=count)), np.int16)
    exponent = data.draw(st.integers(wire.MIN_EXPONENT, wire.MAX_EXPONENT))
    row = st.lists(INT16, min_size=features, max_size=features)
    rows = data.draw(st.lists(row, min_size=1, max_size=4))
    number = data.draw(st.integers(1, wire.MAX_ROUND))

    twin = DeviceModel(model, mantissas.reshape(classes, features), exponent, number)
    check_predictions(tmp_path_factory.mktemp("board"), twin, np.array(rows, np.int16))


def test_the_twin_of_a_run_has_its_weights_and_its_accuracy(here):
    """A run gives its model as a twin, which computes on the host as devices do with the same
    weights. It is right as often on the test set as the run says, but for one row, which rounding
    may move.
    """
    options = {"data": "iris", "model": "softmax", "epsilon": 8, "reports": 100, "group": 10}
    result = ternhost.train(ternhost.FedSGD(**options), "simulated:100")

    twin = result.device_model

    assert np.array_equal(twin.weights.ravel(), np.ravel(result.weights))
    data = load("iris", classes=True)
    right = twin.predict_numbers(data.features[data.test]) == data.labels[data.test]
    assert right.mean() == pytest.approx(result["accuracy"], abs=1 / len(right))
    assert twin.file() == DeviceModel.of_run(result.name).file(), "by its name, too"


KEY = bytes(range(32))


def test_the_twin_is_read_from_a_frame_under_its_key():
    """A host sends devices a trained model in a frame whose tag only the fleet's key makes. The
    twin is read from such a frame, makes the same frame again, and refuses another key.
    """
    three_classes = Averaged(wire.SOFTMAX, [1, 2, 3, 4, 5, 6], -14, 3)  # of two features each
    frame = three_classes.frame(77, KEY)  # of round 77

    twin = DeviceModel.of_frame(frame, KEY)

    assert (twin.model, twin.number, twin.exponent) == (wire.SOFTMAX, 77, -14)
    assert twin.mantissas.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert twin.frame(KEY) == frame
    with pytest.raises(UsageError, match="under this key"):
        DeviceModel.of_frame(frame, bytes(32))


def test_the_twin_is_read_from_a_store(store):
    frame = encoded(host_frames.encode_model, KEY, wire.FLEET, 9, wire.SVM, [5, -5], -13)
    store.save_state({"model": frame[: -wire.TAG_BYTES].hex()})
    twin = DeviceModel.of_store(store.path)
    assert (twin.model, twin.number) == (wire.SVM, 9)
    assert twin.mantissas.tolist() == [[5, -5]]
