"""Softmax regression on the host: its accuracy, its results, and the options that it refuses."""

import numpy as np
import pytest
from simulating import begin, finished, run

import ternhost
from tern import model, wire
from tern.fixed import ONE
from ternhost import datasets
from ternhost.run.report import page as report
from ternhost.run.report import training

pytestmark = pytest.mark.usefixtures("here")


@pytest.mark.parametrize(
    ("name", "reports", "least"),
    [("iris", 40_000, 0.8), ("wine", 40_000, 0.85), ("digits", 300_000, 0.85)],
)
def test_classes_are_learned(name, reports, least):
    accuracies = []
    for seed in range(1, 4):
        options = {
            "dataset": name,
            "model": "softmax",
            "reports": reports,
            "epsilon": "4",
            "seed": seed,
        }
        accuracies.append(finished(begin("fedsgd", reports, **options)).figures()["accuracy"])
    assert np.mean(accuracies) > least


@pytest.mark.parametrize(("name", "least"), [("iris", 0.8), ("wine", 0.85), ("digits", 0.65)])
def test_classes_are_learned_by_local_training(name, least):
    accuracies = []
    for seed in range(1, 4):
        options = {
            "records": 4,
            "rounds": 20,
            "share": 1.0,
            "local_rate": 1,
            "tau": 0.5,
            "epsilon": "20",
        }
        algorithm = finished(begin("fedavg", dataset=name, model="softmax", seed=seed, **options))
        accuracies.append(algorithm.figures()["accuracy"])
    assert np.mean(accuracies) > least


GROUPS = {"reports": 5000, "group": 500, "epsilon": "8"}
LOCAL = {"records": 1, "rounds": 9, "share": 1.0, "epsilon": "20"}


@pytest.mark.parametrize(("algorithm", "more"), [("fedsgd", GROUPS), ("fedavg", LOCAL)])
def test_a_result_names_its_classes(algorithm, more):
    clients = 5000 if algorithm != "fedavg" else 140
    result = run(algorithm, f"simulated:{clients}", dataset="wine", model="softmax", **more)
    d = datasets.load("wine").dimension
    assert (result["task"], result["measures"]) == ("multiclass", ["accuracy", "log_loss"])
    assert result["labels"] == ["class_0", "class_1", "class_2"]
    assert len(result["features"]) == d
    assert len(result["weights"]) == result["d"] == 3 * d
    assert ternhost.Result(result).weights.shape == (3, d)
    assert {"accuracy", "log_loss"} <= result["history"][-1].keys()
    assert result["log_loss_optimum"] < result["log_loss"] < result["log_loss_baseline"]
    text = report.render(training.page(result))
    for words in ("softmax regression", "the class with the largest sum", "<th>class_2"):
        assert words in text


@pytest.mark.parametrize(
    ("name", "options"),
    [("fedsgd", {"reports": 2000, "group": 500, "epsilon": "8"}), ("fedavg", LOCAL)],
)
def test_the_model_for_devices_is_a_classifier(name, options):
    algorithm = finished(begin(name, 2000, dataset="iris", model="softmax", **options))
    frame = algorithm.averaged.frame(5, bytes(wire.KEY_BYTES))
    _, number, kind, exponent, classes, parameters = model.decode_model(
        frame, bytes(wire.KEY_BYTES)
    )
    assert (number, kind, classes) == (5, wire.SOFTMAX, 3)
    assert np.array(parameters) * 2.0**exponent == pytest.approx(algorithm.weights)
    x = algorithm.dataset.features[algorithm.dataset.test] / ONE
    scores = x @ np.reshape(parameters, (3, -1)).T
    assert (
        np.mean(scores.argmax(axis=1) == algorithm.dataset.judged[1])
        == algorithm.figures()["accuracy"]
    )
