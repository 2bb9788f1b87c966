"""A run that stops anywhere is resumed exactly: the states of algorithms through JSON, and whole
runs.
"""

import json
from itertools import islice

import pytest
import simulating
from simulating import begin, fleet_of, rounds

from ternhost import datasets
from ternhost.datasets import synthetic
from ternhost.errors import UsageError
from ternhost.learn.base import ALGORITHMS, Population
from ternhost.learn.optimisers import OPTIMISERS
from ternhost.learn.schedule import Schedule
from ternhost.reach.simulated.driver import SimulatedDriver
from ternhost.run.options import RunOptions
from ternhost.run.run import Run
from ternhost.store.store import Store

PERSONAL = "1:0.5,2:0.3,4:0.2"
FEDSGD = {"dataset": "toy", "reports": 600, "group": 100}
CASES = {
    **{f"fedsgd with {name}": ("fedsgd", FEDSGD | {"optimiser": name}) for name in OPTIMISERS},
    "personalised fedsgd": ("fedsgd", FEDSGD | {"epsilons": PERSONAL}),
    "svm": ("fedsgd", FEDSGD | {"model": "svm", "mechanism": "pm-sub", "levels": 7, "k": 2}),
    "fedavg": (
        "fedavg",
        {"dataset": "toy", "clients": 60, "rounds": 7, "share": 0.3, "epsilon": "8"},
    ),
    "personalised fedavg": (
        "fedavg",
        {"dataset": "toy", "choices": "both", "rounds": 7, "share": 0.3},
    ),
    "collect": ("collect", {"dataset": "people", "epsilon": "10"}),
    "personalised collect": (
        "collect",
        {"dataset": "people", "epsilons": "4:0.5,10:0.5"},
    ),
    "infer": ("infer", {"dataset": "iris", "epsilon": "8"}),
    "personalised infer": ("infer", {"dataset": "iris", "epsilons": PERSONAL}),
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
    whole = begun(case)
    states, repeated = [json.dumps(whole.state())], 0
    states += [json.dumps(whole.state()) for _ in rounds(whole, fleet_of(whole))]
    assert len(states) == whole.rounds + 1
    expected = result_of(whole)
    cuts = {0, 1, whole.rounds // 2, whole.rounds}
    for cut in cuts:
        part, state = begun(case), states[cut]
        part.restore(json.loads(state))
        assert json.dumps(part.state()) == state
        assert part.done == (cut == whole.rounds)
        repeated += len(list(rounds(part, fleet_of(part), first=cut + 1)))
        assert result_of(part) == expected, cut
        assert json.dumps(part.state()) == states[-1]
    assert repeated == sum(whole.rounds - cut for cut in cuts)


# Fleets that are served


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("fedsgd", {"epsilons": PERSONAL}),
        ("fedavg", {"records": 4}),
        ("collect", {}),
        ("infer", {"dataset": "iris"}),
    ],
)
def test_an_algorithm_of_a_served_fleet_continues_exactly_from_its_state(name, options):
    def serving():
        cls = ALGORITHMS[name]
        share = 1.0 if name in ("collect", "infer") else 0.25  # those ask everybody
        population = Population(schedule=Schedule(rounds=9, share=share), devices=40)
        return cls(cls.Options(**{"dataset": "toy"} | options), population)

    def fleet():
        return SimulatedDriver(serving().holdings, 40, individual=serving().individual)

    whole = serving()
    assert whole.rounds == 9
    asked = [result.asked for result in rounds(whole, fleet())]
    assert asked == [40 if name in ("collect", "infer") else 10] * 9
    first = serving()
    list(islice(rounds(first, fleet()), 4))
    second = serving()
    second.restore(json.loads(json.dumps(first.state())))
    list(rounds(second, fleet(), first=5))
    assert second.state() == whole.state()


@pytest.mark.parametrize(
    "name", [name for name in ALGORITHMS if name not in ("fedsum", "means")]
)  # a budget ends it
def test_an_algorithm_without_an_end_is_never_done(name):
    cls = ALGORITHMS[name]
    options = {"dataset": "iris" if name == "infer" else "toy"}
    share = 1.0 if name in ("collect", "infer") else 0.5
    algorithm = cls(cls.Options(**options), Population(schedule=Schedule(share=share), devices=20))
    driver = SimulatedDriver(algorithm.holdings, 20, individual=algorithm.individual)
    for _ in islice(rounds(algorithm, driver), 12):
        assert not algorithm.done
    assert algorithm.rounds is None
    assert algorithm.reports is None


@pytest.mark.parametrize("case", ["fedsgd with adam", "fedavg"])
def test_the_state_of_another_model_is_refused(case):
    state = begun(case).state()
    name, options = CASES[case]
    few = {"clients": 10} if name == "fedavg" else {"reports": 60, "group": 10}
    on_wine = begin(name, 600, **options | few | {"dataset": "wine"})
    with pytest.raises(UsageError, match="another dimension"):
        on_wine.restore(state)
    if "range" in state:
        del state["range"]["tau"]
        with pytest.raises(UsageError, match="the stored state of the range cannot be read: 'tau'"):
            begin(name, 600, **options | few).restore(state)


# Boards that others filled


def test_devices_with_later_keys_do_not_join_a_run(tmp_path):
    path = tmp_path / "store.sqlite"
    with Store(path) as store:
        store.add_devices({device: bytes(32) for device in range(1, 31)})
    options = ALGORITHMS["fedavg"].Options(dataset="toy")
    with Run.begin(RunOptions("fedavg", options, "port:/dev/null"), store=path, name="own") as run:
        assert (run.algorithm.clients, run.algorithm.times) == (30, 1)
        run.store.add_devices({device: bytes(32) for device in range(31, 61)})
    with Run.resume("own") as run:
        assert (run.algorithm.clients, run.algorithm.times) == (30, 1)


# Runs that cannot be resumed
