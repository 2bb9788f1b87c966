"""A run that stops anywhere is resumed exactly: the states of algorithms through JSON, and whole
runs.
"""

import json
from itertools import islice

import pytest
import simulating
from simulating import begin, finished, fleet_of, rounds

from ternhost import datasets
from ternhost.datasets import synthetic
from ternhost.errors import InterruptedByUser, UsageError
from ternhost.learn.base import ALGORITHMS, Population
from ternhost.learn.optimisers import OPTIMISERS
from ternhost.learn.schedule import Schedule
from ternhost.reach.simulated.driver import SimulatedDriver
from ternhost.run.options import RunOptions
from ternhost.run.run import Run
from ternhost.run.status import END, Watcher
from ternhost.store.store import Store

PERSONAL = "1:0.5,2:0.3,4:0.2"
FEDSGD = {"dataset": "toy", "reports": 600, "group": 100}
CASES = {
    **{f"fedsgd with {name}": ("fedsgd", FEDSGD | {"optimiser": name}) for name in OPTIMISERS},
    "personalised fedsgd": ("fedsgd", FEDSGD | {"epsilons": PERSONAL}),
    "svm": ("fedsgd", FEDSGD | {"model": "svm", "mechanism": "pm-sub", "levels": 7, "k": 2}),
    "fedavg": ("fedavg", {"dataset": "toy", "clients": 60, "rounds": 7, "epsilon": "8"}),
    "fedavg that chooses": (
        "fedavg",
        {"dataset": "toy", "choices": "both", "rounds": 7, "share": 0.3},
    ),
    "collect": ("collect", {"dataset": "people", "epsilon": "10"}),
    "personalised collect": ("collect", {"dataset": "people", "epsilons": "4:0.5,10:0.5"}),
    "infer": ("infer", {"dataset": "iris", "epsilon": "8"}),
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
    states = [json.dumps(whole.state())]
    for _ in rounds(whole, fleet_of(whole)):
        states.append(json.dumps(whole.state()))

    for rounds_before in {0, 1, whole.rounds // 2, whole.rounds}:
        part, state = begun(case), states[rounds_before]
        part.restore(json.loads(state))
        assert json.dumps(part.state()) == state
        for _ in rounds(part, fleet_of(part), first=rounds_before + 1):
            pass
        assert json.dumps(part.state()) == states[-1]
        assert result_of(part) == result_of(whole)


@pytest.mark.parametrize("case", ["fedsgd with adam", "fedavg", "collect", "infer"])
def test_another_seed_is_another_run(case):
    name, options = CASES[case]
    first, second = (finished(begin(name, 600, **options, seed=seed)) for seed in (1, 2))
    assert json.dumps(first.state()) != json.dumps(second.state())


@pytest.mark.sampled(4)
@pytest.mark.parametrize("case", CASES)
def test_an_interrupted_run_ends_with_the_same_result(case):
    name, options = CASES[case]
    run_options = RunOptions(name, ALGORITHMS[name].Options(**options), "simulated:600")
    with Run.begin(run_options, name="whole") as run:
        whole = run.run()

    def stop_half_way(status):
        if status.event == END and status.round == max(1, run.algorithm.rounds // 2):
            raise KeyboardInterrupt

    run = Run.begin(run_options, name="cut", watcher=Watcher(status=stop_half_way))
    with run, pytest.raises(InterruptedByUser):
        run.run()
    with Run.resume("cut") as run:
        resumed = run.run()
    varying = dict.fromkeys(("run", "directory", "store", "seconds", "reports_per_second"))
    assert resumed | varying == whole | varying


# Fleets that are served


@pytest.mark.parametrize(
    ("name", "options", "share"),
    [
        ("fedsgd", {"epsilons": PERSONAL}, 0.25),
        ("fedavg", {"records": 4}, 0.25),
        ("collect", {}, 1.0),  # these two ask everybody
        ("infer", {"dataset": "iris"}, 1.0),
    ],
)
def test_an_algorithm_of_a_served_fleet_continues_exactly_from_its_state(name, options, share):
    cls = ALGORITHMS[name]
    learning = cls.Options(**{"dataset": "toy"} | options)
    population = Population(schedule=Schedule(rounds=9, share=share), devices=40)

    def fleet(algorithm):
        return SimulatedDriver(algorithm.holdings, 40, individual=algorithm.individual)

    whole = cls(learning, population)
    asked = [result.asked for result in rounds(whole, fleet(whole))]
    assert asked == [40 * share] * 9
    first, second = cls(learning, population), cls(learning, population)
    for _ in islice(rounds(first, fleet(first)), 4):
        pass
    second.restore(json.loads(json.dumps(first.state())))
    for _ in rounds(second, fleet(second), first=5):
        pass
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


def test_a_run_that_does_not_exist_is_not_resumed(tmp_path):
    Store(tmp_path / "store.sqlite").close()
    with pytest.raises(UsageError, match="holds no run"):
        Run.resume(str(tmp_path))
    with pytest.raises(UsageError, match="no run 'nothing'"):
        Run.resume("nothing")
