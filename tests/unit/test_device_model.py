"""The host's twin of the device's model gives the same bits for all rows and parameters.

It is read from runs, frames, files and stores.
"""

import itertools
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
from ternhost.learn.schedule import Schedule
from ternhost.run import serve
from ternhost.run.options import RunOptions
from ternhost.store import kept_model
from ternhost.store.store import Store

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


@pytest.mark.parametrize("model", KINDS)
def test_the_twin_is_the_same_at_the_ends_of_int16(tmp_path, model):
    ends = np.array([[end] * 128 for end in (-32768, -ONE, -1, 0, 1, ONE, 32767)], np.int16)
    for mantissa, exponent in itertools.product((-32768, 32767), (-12, -30)):
        mantissas = np.full((8 if model == wire.SOFTMAX else 1, 128), mantissa, np.int16)
        mantissas[::2] //= 3
        check_predictions(tmp_path, DeviceModel(model, mantissas, exponent), ends)


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
def test_the_twin_has_the_figures_of_its_run():
    for dataset, model, algorithm, options in (
        ("synthetic-logistic", "logistic", "fedsgd", {"reports": 1000, "group": 100}),
        ("iris", "svm", "fedavg", {"rounds": 3, "clients": 10}),
        ("iris", "softmax", "fedsgd", {"reports": 100, "group": 10}),
        ("synthetic-linear", "linear", "fedsgd", {"reports": 1000, "group": 100}),
    ):
        common = {"dataset": dataset, "model": model, "epsilon": 8, "fleet": "simulated:1000"}
        result = ternhost.train(algorithm, **common, **options)
        twin = result.device_model
        assert np.array_equal(twin.weights.ravel(), np.ravel(result.weights))
        assert twin.number == result["history"][-1]["round"]
        data = load(dataset, classes=twin.classes > 1)
        rows, labels = data.features[data.test], data.labels[data.test]
        if "accuracy" in result["measures"]:
            accuracy = float((twin.predict(rows) == labels).mean())
            assert accuracy == pytest.approx(result["accuracy"], abs=2 / len(rows))
        else:
            error = float((((twin.predict(rows) - labels) / ONE) ** 2).mean())
            assert error == pytest.approx(result["squared_error"], rel=0.05)
        assert twin.file() == DeviceModel.of_run(result.name).file()


def test_the_twin_is_read_from_frames_and_stores(tmp_path):
    key = bytes(range(32))
    frame = Averaged(wire.SOFTMAX, [1, 2, 3, 4, 5, 6], -14, 3).frame(77, key)
    twin = DeviceModel.of_frame(frame, key)
    assert (twin.model, twin.number, twin.exponent) == (4, 77, -14)
    assert twin.mantissas.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert twin.frame(key) == frame
    assert DeviceModel.of_frame(twin.file()).mantissas.tolist() == twin.mantissas.tolist()
    with pytest.raises(UsageError, match="under this key"):
        DeviceModel.of_frame(frame, bytes(32))
    with Store(tmp_path / "store.sqlite") as store:
        assert kept_model.kept(store) == b""
        with pytest.raises(UsageError, match="keeps no model"):
            DeviceModel.of_store(store.path)
        made = encoded(host_frames.encode_model, key, wire.FLEET, 9, wire.SVM, [5, -5], -13)
        store.save_state({"model": made[: -wire.TAG_BYTES].hex()})
        twin = DeviceModel.of_store(store.path)
        assert (twin.model, twin.number, twin.mantissas.tolist()) == (wire.SVM, 9, [[5, -5]])
        assert kept_model.for_device(kept_model.kept(store), 7)[1:5] == b"\x07\0\0\0"


@pytest.mark.usefixtures("here")
def test_a_served_fleet_is_sent_a_model_every_few_rounds_and_at_the_end(monkeypatch):
    pytest.importorskip("harness.in_process")
    from ternhost.learn.base import ALGORITHMS
    from ternhost.reach.ports.driver import BoardsDriver

    sent, publish = [], BoardsDriver.publish

    def publish_and_note(self, averaged):
        publish(self, averaged)
        sent.append(DeviceModel.of_store(self._store.path).number)

    monkeypatch.setattr(BoardsDriver, "publish", publish_and_note)
    learning = ALGORITHMS.named("fedsgd").Options(dataset="synthetic-logistic", epsilon="1")
    schedule = Schedule(rounds=7, model_every=3)
    options = RunOptions("fedsgd", learning, "inprocess:1", schedule=schedule, budget="1000")
    with serve.serve(options, name="served") as run:
        result = run.run()
        assert DeviceModel.of_store(run.store.path, "served").number == sent[-1]
        run.store.save_run(
            "served", state={**run.store.run("served").state, "first_round": sent[-1] + 1}
        )
        with pytest.raises(UsageError, match="keeps no model"):  # it is an earlier run's
            DeviceModel.of_store(run.store.path, "served")
        numbers = [entry["round"] for entry in result["history"]]
        assert sent == [*numbers[2::3], numbers[-1]]
