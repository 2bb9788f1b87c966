"""Softmax regression learns the classes of small data sets."""

import numpy as np
import pytest
from simulating import begin, finished

pytestmark = pytest.mark.usefixtures("here")


@pytest.mark.parametrize(
    ("name", "reports", "least"),
    [("iris", 40_000, 0.8), ("wine", 40_000, 0.85), ("digits", 300_000, 0.85)],
)
def test_classes_are_learned(name, reports, least):
    options = {"data": name, "model": "softmax", "reports": reports, "epsilon": "4"}
    accuracies = []
    for seed in range(1, 4):
        algorithm = finished(begin("fedsgd", reports, **options, seed=seed))
        accuracies.append(algorithm.figures()["accuracy"])
    assert np.mean(accuracies) > least


@pytest.mark.parametrize(("name", "least"), [("iris", 0.8), ("wine", 0.85)])
def test_classes_are_learned_by_local_training(name, least):
    """In federated averaging (fedavg), clients train on their own records and report how weights
    moved. With little noise, a softmax model of three classes learns well; the mean of three seeds.
    """
    run = {"data": name, "model": "softmax", "epsilon": "20", "rounds": 20, "share": 1.0}
    local = {"records": 4, "local_rate": 1, "tau": 0.5}
    accuracies = []
    for seed in range(1, 4):
        algorithm = finished(begin("fedavg", **run, **local, seed=seed))
        accuracies.append(algorithm.figures()["accuracy"])
    assert np.mean(accuracies) > least
