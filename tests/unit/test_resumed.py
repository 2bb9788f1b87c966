"""A run that stops anywhere is resumed exactly: the states of algorithms through JSON, and whole
runs.
"""

import json

import pytest
import simulating
from simulating import begin, fleet_of, rounds

from ternhost import datasets
from ternhost.datasets.shipped import synthetic
from ternhost.errors import UsageError
from ternhost.learn.base import ALGORITHMS
from ternhost.learn.models.optimisers import OPTIMISERS
from ternhost.run.begin import Place
from ternhost.run.options import RunOptions
from ternhost.run.run import Run
from ternhost.store.store import Store

PERSONAL = "1:0.5,2:0.3,4:0.2"
CHOSEN = "0.125:2:0.5,0.25:8:0.3,0.5:16:0.2"  # with a clipping bound of each class
FEDSGD = {"data": "toy", "reports": 600, "group": 100}
CASES = {
    **{f"fedsgd with {name}": ("fedsgd", FEDSGD | {"optimiser": name}) for name in OPTIMISERS},
    "personalised fedsgd": ("fedsgd", FEDSGD | {"epsilons": PERSONAL}),
    "svm": ("fedsgd", FEDSGD | {"model": "svm", "mechanism": "pm-sub", "k": 2}),
    "fedavg": (
        "fedavg",
        {"data": "toy", "clients": 60, "rounds": 7, "share": 0.3, "epsilon": "8"},
    ),
    "personalised fedavg": (
        "fedavg",
        {"data": "toy", "epsilons": CHOSEN, "rounds": 7, "share": 0.3},
    ),
    "values": ("values", {"data": "people", "epsilon": "10"}),
    "personalised values": (
        "values",
        {"data": "people", "epsilons": "4:0.5,10:0.5"},
    ),
    "quantiles": ("quantiles", {"data": "people", "epsilon": "2", "bins": 64}),
    "infer": ("infer", {"data": "iris", "epsilon": "8"}),
    "personalised infer": ("infer", {"data": "iris", "epsilons": PERSONAL}),
}


@pytest.fixture(autouse=True)
def toy(monkeypatch, tmp_path):
    data = synthetic.logistic(2000, 5, seed=2)
    real = datasets.load
    monkeypatch.setattr(
        datasets, "load", lambda name, **of: data if name == "toy" else real(name, **of)
    )
    monkeypatch.setitem(datasets.TABLES, "people", lambda: simulating.PEOPLE)
    monkeypatch.chdir(tmp_path)


def begun(case):
    name, options = CASES[case]
    return begin(name, 600, **options)


def result_of(algorithm):
    """The result of an algorithm as JSON."""
    return json.dumps(algorithm.result([algorithm.chosen()] * algorithm.rounds))


@pytest.mark.parametrize("case", CASES)
def test_an_algorithm_continues_exactly_from_its_state(case):
    """After every round, an algorithm gives its state as JSON. A new one that is restored from any
    of these states asks the remaining rounds, and has in the end the state and result of one that
    was never stopped.
    """
    whole = begun(case)
    states = [json.dumps(whole.state())]  # before the first round, and after each
    for _ in rounds(whole, fleet_of(whole)):
        states.append(json.dumps(whole.state()))

    for stopped_after in {0, 1, whole.rounds // 2, whole.rounds}:
        resumed = begun(case)
        resumed.restore(json.loads(states[stopped_after]))
        assert json.dumps(resumed.state()) == states[stopped_after]
        assert resumed.done == (stopped_after == whole.rounds)

        further = list(rounds(resumed, fleet_of(resumed), first=stopped_after + 1))
        assert len(further) == whole.rounds - stopped_after
        assert json.dumps(resumed.state()) == states[-1]
        assert result_of(resumed) == result_of(whole)


@pytest.mark.parametrize("case", ["fedsgd with adam", "fedavg"])
def test_the_state_of_another_model_is_refused(case):
    name, options = CASES[case]
    few_clients = {"clients": 10} if name == "fedavg" else {"reports": 60, "group": 10}
    on_wine = begin(name, 600, **options | few_clients | {"data": "wine"})
    with pytest.raises(UsageError, match="another dimension"):
        on_wine.restore(begun(case).state())


# Boards that others filled


def test_devices_with_later_keys_do_not_join_a_run(tmp_path):
    """A run promises each device what its report costs, which depends on how many devices share the
    rounds. So devices whose keys are made after its begin do not count in it, also when it is
    resumed.
    """
    path = tmp_path / "store.sqlite"
    with Store(path) as store:
        store.add_devices({device: bytes(32) for device in range(1, 31)})
    options = ALGORITHMS["fedavg"].Options(data="toy")
    with Run.begin(
        RunOptions("fedavg", options, "port:/dev/null"), Place("own", store=path)
    ) as run:
        # 30 clients, each asked once.
        assert (run.algorithm.clients, run.algorithm.times) == (30, 1)
        run.store.add_devices({device: bytes(32) for device in range(31, 61)})
    with Run.resume("own") as run:
        assert (run.algorithm.clients, run.algorithm.times) == (30, 1)
