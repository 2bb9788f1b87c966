"""Softmax regression on the host: its accuracy, its results, and the options that it refuses."""

import numpy as np
import pytest
from simulating import begin, finished

from tern import model, wire
from tern.fixed import ONE

pytestmark = pytest.mark.usefixtures("here")


@pytest.mark.parametrize(
    ("name", "reports", "least"),
    [("iris", 40_000, 0.8), ("wine", 40_000, 0.85), ("digits", 300_000, 0.85)],
)
def test_classes_are_learned(name, reports, least):
    options = {"dataset": name, "model": "softmax", "reports": reports, "epsilon": "4"}
    accuracies = []
    for seed in range(1, 4):
        algorithm = finished(begin("fedsgd", reports, **options, seed=seed))
        accuracies.append(algorithm.figures()["accuracy"])
    assert np.mean(accuracies) > least


@pytest.mark.parametrize(("name", "least"), [("iris", 0.8), ("wine", 0.85)])
def test_classes_are_learned_by_local_training(name, least):
    run = {"dataset": name, "model": "softmax", "epsilon": "20", "rounds": 20, "share": 1.0}
    local = {"records": 4, "local_rate": 1, "tau": 0.5}
    accuracies = []
    for seed in range(1, 4):
        algorithm = finished(begin("fedavg", **run, **local, seed=seed))
        accuracies.append(algorithm.figures()["accuracy"])
    assert np.mean(accuracies) > least


LOCAL = {"records": 1, "rounds": 9, "share": 1.0, "epsilon": "20"}


@pytest.mark.parametrize(
    ("name", "options"),
    [("fedsgd", {"reports": 2000, "group": 500, "epsilon": "8"}), ("fedavg", LOCAL)],
)
def test_the_model_for_devices_is_a_classifier(name, options):
    key = bytes(wire.KEY_BYTES)
    algorithm = finished(begin(name, 2000, dataset="iris", model="softmax", **options))
    frame = algorithm.averaged.frame(5, key)
    _, number, kind, exponent, classes, parameters = model.decode_model(frame, key)
    assert (number, kind, classes) == (5, wire.SOFTMAX, 3)
    assert np.array(parameters) * 2.0**exponent == pytest.approx(algorithm.weights)

    data = algorithm.dataset
    scores = data.features[data.test] / ONE @ np.reshape(parameters, (3, -1)).T
    right = scores.argmax(axis=1) == data.judged[1]
    assert right.mean() == algorithm.figures()["accuracy"]
