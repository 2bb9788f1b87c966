"""The host's twin of the device's model gives the same bits for all rows and parameters.

It is read from runs, frames, files and stores.
"""

from array import array
from pathlib import Path

import numpy as np
import pytest
from framing import encoded
from harness import in_process  # noqa: F401, registers inprocess:N
from hypothesis import given
from hypothesis import strategies as st

import ternhost
from tern import host_frames, wire
from tern.fixed import ONE
from tern.model import MODEL, Model
from ternhost import DeviceModel, UsageError
from ternhost.count.questions import Averaged
from ternhost.datasets import load
from ternhost.learn.base import ALGORITHMS
from ternhost.learn.schedule import Schedule
from ternhost.reach.ports.driver import BoardsDriver
from ternhost.run import serve
from ternhost.run.options import RunOptions

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
    scores, predictions = twin.score(rows), twin.predict(rows)
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
    model = data.draw(st.sampled_from(KINDS))
    classes = data.draw(st.integers(2, 12)) if model == wire.SOFTMAX else 1
    d = data.draw(st.sampled_from([1, 2, 5, 13, 28, 64]))
    mantissas = np.array(
        data.draw(st.lists(INT16, min_size=classes * d, max_size=classes * d)), np.int16
    )
    exponent = data.draw(st.integers(wire.MIN_EXPONENT, wire.MAX_EXPONENT))
    rows = data.draw(st.lists(st.lists(INT16, min_size=d, max_size=d), min_size=1, max_size=4))
    number = data.draw(st.integers(1, wire.MAX_ROUND))
    twin = DeviceModel(model, mantissas.reshape(classes, d), exponent, number)
    check_predictions(tmp_path_factory.mktemp("board"), twin, np.array(rows, np.int16))


def test_rows_may_be_fixed_point_integers_or_floats():
    twin = DeviceModel(wire.LINEAR, np.array([[4096, 2048]], np.int16), -12)
    assert twin.score([[0.5, -0.25]]).tolist() == [ONE * 3 // 8]
    assert twin.score([[ONE // 2, -ONE // 4]]).tolist() == [ONE * 3 // 8]
    assert twin.score([7.0, -3.0]).tolist() == [ONE // 2]  # cut to [-1, 1]
    for wrong in ([[1, 2, 3]], [1], np.zeros((2, 2, 2)), [[40_000, 0]]):
        with pytest.raises(UsageError):
            twin.score(wrong)
    with pytest.raises(UsageError, match="no probabilities"):
        twin.probability([[1, 2]])


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("dataset", "model", "algorithm", "options"),
    [
        ("iris", "logistic", "fedsgd", {"reports": 100, "group": 10}),
        ("iris", "svm", "fedavg", {"rounds": 3, "clients": 10}),
        ("iris", "softmax", "fedsgd", {"reports": 100, "group": 10}),
    ],
)
def test_the_twin_has_the_accuracy_of_its_run(dataset, model, algorithm, options):
    common = {"dataset": dataset, "model": model, "epsilon": 8, "fleet": "simulated:100"}
    result = ternhost.train(algorithm, **common, **options)
    twin = result.device_model
    assert np.array_equal(twin.weights.ravel(), np.ravel(result.weights))
    assert twin.number == result["history"][-1]["round"]
    assert twin.file() == DeviceModel.of_run(result.name).file()
    data = load(dataset, classes=twin.classes > 1)
    rows, labels = data.features[data.test], data.labels[data.test]
    accuracy = float((twin.predict(rows) == labels).mean())
    # Of weights that are rounded to 16 bits, two rows may lie on the other side.
    assert accuracy == pytest.approx(result["accuracy"], abs=2 / len(rows))


def test_the_twin_is_read_from_a_frame():
    key = bytes(range(32))
    frame = Averaged(wire.SOFTMAX, [1, 2, 3, 4, 5, 6], -14, 3).frame(77, key)
    twin = DeviceModel.of_frame(frame, key)
    assert (twin.model, twin.number, twin.exponent) == (wire.SOFTMAX, 77, -14)
    assert twin.mantissas.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert twin.frame(key) == frame
    assert DeviceModel.of_frame(twin.file()).mantissas.tolist() == twin.mantissas.tolist()
    with pytest.raises(UsageError):
        DeviceModel.of_frame(frame, bytes(32))


def test_the_twin_is_read_from_a_store(store):
    with pytest.raises(UsageError):
        DeviceModel.of_store(store.path)
    key = bytes(range(32))
    frame = encoded(host_frames.encode_model, key, wire.FLEET, 9, wire.SVM, [5, -5], -13)
    store.save_state({"model": frame[: -wire.TAG_BYTES].hex()})
    twin = DeviceModel.of_store(store.path)
    assert (twin.model, twin.number, twin.mantissas.tolist()) == (wire.SVM, 9, [[5, -5]])


@pytest.mark.usefixtures("here")
def test_the_command_shows_and_saves_the_model_of_a_run(tern):
    result = ternhost.train(fleet="simulated:100", reports=100, dataset="iris", name="mine")
    text = tern("runs", "--model", "mine").out
    assert "a logistic model of" in text
    assert result["features"][0] in text
    model = tern("runs", "--model", "mine", "--save", "model.bin", "--json").json
    assert model["saved"] == "model.bin"
    assert Path("model.bin").read_bytes() == result.device_model.file()
    weights = np.array(model["mantissas"][0]) * 2.0 ** model["exponent"]
    assert np.array_equal(weights, result.weights)


@pytest.mark.usefixtures("here")
def test_a_run_without_a_model_shows_none(tern):
    other = ternhost.collect(fleet="simulated:100", dataset="iris", clients=100, name="other")
    assert other.device_model is None
    tern("runs", "--model", "other", code=UsageError.exit_code)
    tern("runs", "--save", "model.bin", code=UsageError.exit_code)


@pytest.mark.usefixtures("here")
def test_a_served_fleet_is_sent_a_model_every_few_rounds_and_at_the_end(monkeypatch):
    sent, publish = [], BoardsDriver.publish

    def publish_and_note(self, averaged):
        publish(self, averaged)
        sent.append(DeviceModel.of_store(self._store.path).number)

    monkeypatch.setattr(BoardsDriver, "publish", publish_and_note)
    learning = ALGORITHMS.named("fedsgd").Options(dataset="iris", epsilon="1")
    schedule = Schedule(rounds=7, model_every=3)
    options = RunOptions("fedsgd", learning, "inprocess:1", schedule=schedule, budget="1000")
    with serve.serve(options, name="served") as run:
        numbers = [entry["round"] for entry in run.run()["history"]]
        assert sent == [*numbers[2::3], numbers[-1]]
        assert DeviceModel.of_store(run.store.path, "served").number == sent[-1]
