"""The host's twin of the device's model: bit for bit the same, whatever rows and parameters; where it comes from."""

import contextlib
import io
import json
from array import array

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ternhost
from tern import host_frames, wire
from tern.fixed import ONE
from tern.model import MODEL, Model
from ternhost import DeviceModel, StorageError, UsageError
from ternhost.cli import main
from ternhost.count.questions import Averaged
from ternhost.datasets import load
from ternhost.learn.schedule import Schedule
from ternhost.run import serve
from ternhost.run.options import RunOptions
from ternhost.store import kept_model
from ternhost.store.store import Store

KINDS = (wire.LINEAR, wire.LOGISTIC, wire.SVM, wire.SOFTMAX)
INT16 = st.integers(-32768, 32767) | st.sampled_from([-32768, 32767, -ONE, ONE, 0, 1, -1])


def on_a_board(folder, own: DeviceModel) -> Model:
    """The device's model, out of a model.bin that the host made."""
    own.save(str(folder) + MODEL)
    device = Model()
    device.open(str(folder))
    assert device.ready
    return device


def assert_the_same(device: Model, own: DeviceModel, rows: np.ndarray) -> None:
    scores, predictions = own.score(rows), own.predict(rows)
    told = own.model in (wire.LOGISTIC, wire.SOFTMAX)
    probabilities = own.probability(rows) if told else None
    for i, values in enumerate(rows.tolist()):
        row = array("h", values)
        labels = range(own.classes)
        assert [device.score(row, j) for j in labels] == np.atleast_1d(scores[i]).tolist()
        assert device.predict(row) == predictions[i]
        if own.model == wire.SOFTMAX:
            assert [device.probability(row, j) for j in labels] == probabilities[i].tolist()
        elif told:
            assert device.probability(row) == probabilities[i] == ONE - device.probability(row, -1)


@pytest.mark.slow
@given(data=st.data())
def test_it_predicts_what_a_device_predicts(tmp_path_factory, data):
    model = data.draw(st.sampled_from(KINDS))
    classes = data.draw(st.integers(2, 12)) if model == wire.SOFTMAX else 1
    d = data.draw(st.sampled_from([1, 2, 5, 13, 28, 64]))
    mantissas = np.array(data.draw(st.lists(INT16, min_size=classes * d, max_size=classes * d)), np.int16)
    exponent = data.draw(st.integers(wire.MIN_EXPONENT, wire.MAX_EXPONENT))
    rows = np.array(
        data.draw(st.lists(st.lists(INT16, min_size=d, max_size=d), min_size=1, max_size=4)), np.int16
    )
    own = DeviceModel(
        model, mantissas.reshape(classes, d), exponent, data.draw(st.integers(1, wire.MAX_ROUND))
    )
    assert_the_same(on_a_board(tmp_path_factory.mktemp("board"), own), own, rows)


@pytest.mark.parametrize("model", KINDS)
def test_at_the_ends(tmp_path, model):
    ends = np.array([[end] * 128 for end in (-32768, -ONE, -1, 0, 1, ONE, 32767)], np.int16)
    for mantissa in (-32768, 32767):
        classes = 8 if model == wire.SOFTMAX else 1
        mantissas = np.full((classes, 128), mantissa, np.int16)
        mantissas[::2] //= 3
        for exponent in (-12, -30):
            own = DeviceModel(model, mantissas, exponent)
            assert_the_same(on_a_board(tmp_path, own), own, ends)


def test_rows_are_integers_or_numbers():
    own = DeviceModel(wire.LINEAR, np.array([[4096, 2048]], np.int16), -12)
    assert own.score([[0.5, -0.25]]).tolist() == own.score([[ONE // 2, -ONE // 4]]).tolist() == [ONE * 3 // 8]
    assert own.score([7.0, -3.0]).tolist() == [ONE // 2]  # cut to [-1, 1]
    for wrong in ([[1, 2, 3]], [1], np.zeros((2, 2, 2)), [[40_000, 0]]):
        with pytest.raises(UsageError):
            own.score(wrong)
    with pytest.raises(UsageError, match="no probabilities"):
        own.probability([[1, 2]])


def test_it_is_judged_as_the_run_judged_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for dataset, model, algorithm, options in (
        ("synthetic-logistic", "logistic", "fedsgd", {"reports": 1000, "group": 100}),
        ("iris", "svm", "fedavg", {"rounds": 3, "clients": 10}),
        ("iris", "softmax", "fedsgd", {"reports": 100, "group": 10}),
        ("synthetic-linear", "linear", "fedsgd", {"reports": 1000, "group": 100}),
    ):
        result = ternhost.train(
            algorithm, fleet="simulated:1000", dataset=dataset, model=model, epsilon=8, **options
        )
        own = result.device_model
        assert np.array_equal(own.weights.ravel(), np.ravel(result.weights))
        assert own.number == result["history"][-1]["round"]
        data = load(dataset, classes=own.classes > 1)
        rows, labels = data.features[data.test], data.labels[data.test]
        if "accuracy" in result["measures"]:
            right = float((own.predict(rows) == labels).mean())
            assert right == pytest.approx(result["accuracy"], abs=2 / len(rows))
        else:
            error = float((((own.predict(rows) - labels) / ONE) ** 2).mean())
            assert error == pytest.approx(result["squared_error"], rel=0.05)
        assert own.file() == DeviceModel.of_run(result.name).file()


def test_of_frames_and_stores(tmp_path):
    key = bytes(range(32))
    averaged = Averaged(wire.SOFTMAX, [1, 2, 3, 4, 5, 6], -14, 3)
    own = DeviceModel.of_frame(averaged.frame(77, key), key)
    assert (own.model, own.number, own.exponent) == (4, 77, -14)
    assert own.mantissas.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert own.frame(key) == averaged.frame(77, key)
    assert DeviceModel.of_frame(own.file()).mantissas.tolist() == own.mantissas.tolist()
    with pytest.raises(UsageError, match="under this key"):
        DeviceModel.of_frame(averaged.frame(77, key), bytes(32))
    with Store(tmp_path / "store.sqlite") as store:
        assert kept_model.kept(store) == b""
        with pytest.raises(UsageError, match="keeps no model"):
            DeviceModel.of_store(store.path)
        out = bytearray(wire.MAX_FRAME)
        n = host_frames.encode_model(out, key, wire.FLEET, 9, wire.SVM, [5, -5], -13)
        store.save_state({"model": bytes(out[: n - wire.TAG_BYTES]).hex()})
        own = DeviceModel.of_store(store.path)
        assert (own.model, own.number, own.mantissas.tolist()) == (wire.SVM, 9, [[5, -5]])
        assert kept_model.for_device(kept_model.kept(store), 7)[1:5] == b"\x07\0\0\0"


def said(*words):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([*map(str, words)])
    return code, out.getvalue(), err.getvalue()


def test_on_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = ternhost.train(fleet="simulated:500", reports=500, dataset="synthetic-logistic", name="mine")
    code, out, _ = said("runs", "--model", "mine")
    assert code == 0
    assert "a logistic model of" in out
    assert result["features"][0] in out
    code, out, _ = said("runs", "--model", "mine", "--save", "model.bin", "--json")
    told = json.loads(out)
    assert code == 0
    assert told["saved"] == "model.bin"
    assert told["model"] == "logistic"
    assert np.array_equal(np.array(told["mantissas"][0]) * 2.0 ** told["exponent"], result.weights)
    assert (tmp_path / "model.bin").read_bytes() == result.device_model.file()
    device = Model()
    device.open(str(tmp_path))
    assert device.ready
    assert device.d == result["d"]
    assert said("runs", "--model", "none")[0] == ternhost.UsageError.exit_code
    assert said("runs", "--save", "model.bin")[0] == ternhost.UsageError.exit_code
    code, _, err = said("runs", "--model", "mine", "--save", "nowhere/model.bin")
    assert code == StorageError.exit_code
    assert "nowhere" in err
    ternhost.collect(fleet="simulated:100", dataset="synthetic-logistic", clients=100, name="other")
    code, _, err = said("runs", "--model", "other")
    assert code == ternhost.UsageError.exit_code
    assert "a run of collect learns no model" in err
    assert ternhost.Result.load("other").device_model is None


def test_a_served_fleet_is_sent_a_model_every_so_many_rounds(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pytest.importorskip("harness.in_process")
    from ternhost.learn.base import ALGORITHMS
    from ternhost.reach.ports.driver import BoardsDriver

    sent = []
    known = BoardsDriver.publish

    def publish(self, averaged):
        known(self, averaged)
        sent.append(DeviceModel.of_store(self._store.path).number)

    monkeypatch.setattr(BoardsDriver, "publish", publish)
    options = ALGORITHMS.named("fedsgd").Options(dataset="synthetic-logistic", epsilon="1")
    schedule = Schedule(rounds=7, model_every=3)
    asked = RunOptions("fedsgd", options, "inprocess:1", schedule=schedule, budget="1000")
    with serve.serve(asked, name="served") as run:
        result = run.run()
        assert DeviceModel.of_store(run.store.path, "served").number == sent[-1]
        run.store.save_run("served", state={**run.store.run("served").state, "first_round": sent[-1] + 1})
        with pytest.raises(UsageError, match="keeps no model"):  # it is an earlier run's
            DeviceModel.of_store(run.store.path, "served")
        numbers = [entry["round"] for entry in result["history"]]
        assert sent == [*numbers[2::3], numbers[-1]]
