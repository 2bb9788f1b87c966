"""FedSGD: its questions, its model and results, and its accuracy on a fleet."""

from functools import lru_cache

import numpy as np
import pytest
from simulating import begin, finished, fleet_of, rounds, run

from tern import wire
from tern.fixed import ONE
from ternhost import datasets
from ternhost.count.rounds import COMPLETE, RoundResult
from ternhost.datasets import CLASSIFICATION, REGRESSION, Dataset, held_out, to_fixed
from ternhost.errors import UsageError
from ternhost.learn import judging, training
from ternhost.learn.base import Population
from ternhost.learn.fedsgd import FedSGD, Options
from ternhost.learn.optimum import optimum
from ternhost.learn.schedule import Schedule
from ternhost.options import check_named
from ternhost.run import costs


@pytest.fixture(scope="module", autouse=True)
def loaded_once():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets, "load", lru_cache(datasets.load))
        yield


def toy(monkeypatch, data):
    monkeypatch.setattr(datasets, "load", lambda name, classes=False: data)
    return data


def synthetic(task, n=20_000, d=8, seed=5):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, d))
    x[:, 0] = 1
    truth = rng.uniform(-0.5, 0.5, d)
    truth[0] /= 10
    truth /= np.abs(truth).sum()
    z = x @ truth
    y = np.where(z > rng.logistic(0, 0.05, n), 1, -1) if task == CLASSIFICATION else z
    names = tuple(f"x{j}" for j in range(d))
    return Dataset("synthetic", task, names, to_fixed(x), to_fixed(y), held_out(n)), truth


# Groups and clients


def test_every_client_is_asked_once_in_groups(monkeypatch):
    toy(monkeypatch, synthetic(CLASSIFICATION, 400)[0])
    algorithm = begin("fedsgd", 103, reports=103, group=10, epsilon="1")
    assert (algorithm.rounds, algorithm.reports, algorithm.clients, algorithm.times) == (
        11,
        103,
        103,
        1,
    )
    groups = []
    while not algorithm.done:
        ((question, group),) = algorithm.cohorts(range(1, 104))
        assert (question.model, question.k, question.batch) == (wire.LOGISTIC, 1, 0)
        assert question.card == algorithm.designs[0].card.data
        groups.append(group.tolist())
        algorithm.learn(RoundResult(len(groups), COMPLETE, len(group), 0, {}, []), range(1, 104))
        algorithm.trainer.stopped = None if len(groups) < 11 else training.ROUNDS
    assert [len(group) for group in groups] == [10] * 10 + [3]
    assert sorted(np.concatenate(groups)) == list(range(1, 104))


def test_the_seed_deals_training_records_to_clients(monkeypatch):
    data = toy(monkeypatch, synthetic(CLASSIFICATION, 400)[0])
    order, same, changed = (
        begin("fedsgd", 300, reports=300, seed=s).holdings.order for s in (1, 1, 2)
    )
    assert (order == same).all()
    assert (order != changed).any()
    assert sorted(order) == sorted(data.training)
    assert not data.held_out[order].any()


def test_more_reports_than_clients_are_refused():
    records = len(datasets.load("flights").training)
    with pytest.raises(UsageError, match=f"there are {records:,} clients") as caught:
        FedSGD(Options(reports=300_000), Population())
    assert f"--reports {records}" in caught.value.hint


@pytest.mark.parametrize(
    ("devices", "options", "reports", "group", "rounds", "times"),
    [
        (1000, {}, 1000, 500, 2, 1),
        (30_000, {}, 20_000, 500, 40, 1),
        (0, {}, 20_000, 500, 40, 1),
        (1, {"reports": 10}, 10, 1, 10, 10),
        (3, {"reports": 10}, 10, 3, 4, 4),
        (3, {"rounds": 4}, 12, 3, 4, 4),
        (300, {"reports": 301, "group": 200}, 301, 200, 2, 2),
        (300, {"reports": 300, "rounds": 3}, 300, 100, 3, 1),
        (300, {"reports": 100, "group": 20}, 100, 20, 5, 1),
    ],
)
def test_few_devices_report_in_several_rounds_and_pay_for_each(
    devices, options, reports, group, rounds, times
):
    """Nobody is asked twice in a round, and nobody more often than the cost says."""
    population = Population(devices=devices, knows_records=False)
    algorithm = FedSGD(Options(**options), population)
    assert (algorithm.reports, algorithm.options.group, algorithm.rounds) == (
        reports,
        group,
        rounds,
    )
    assert algorithm.times == times
    assert costs.accounts(algorithm, None)[0].user_level == 2_000_000 * times
    asked = [algorithm._group_of(algorithm.clients, number) for number in range(rounds)]
    assert all(len(np.unique(one)) == len(one) <= group for one in asked)
    often = np.bincount(np.concatenate(asked), minlength=algorithm.clients)
    assert (often.sum(), often.max()) == (reports, times)
    assert often.min() >= times - 1


def test_more_clients_than_records_share_the_records(monkeypatch):
    data = toy(monkeypatch, synthetic(CLASSIFICATION, 4000)[0])
    algorithm = begin("fedsgd", 20_000, reports=12_000, group=1000)
    held = algorithm.holdings.positions(np.arange(algorithm.clients))[:, 0]
    times = np.bincount(held, minlength=4000)
    assert set(times[data.training]) == {3, 4}
    assert not times[data.test].any()


def test_a_group_is_no_larger_than_the_run():
    assert Options(reports=100).planned(0).group == 100
    with pytest.raises(UsageError, match="--group must be 1 to 100"):
        Options(reports=100, group=101)


# A fleet that is served


def test_a_served_fleet_is_asked_by_turns_a_share_at_a_time(monkeypatch):
    toy(monkeypatch, synthetic(CLASSIFICATION, 400)[0])
    population = Population(schedule=Schedule(rounds=8, share=0.25), devices=20)
    algorithm = FedSGD(Options(epsilon="4"), population)
    assert (algorithm.rounds, algorithm.reports, algorithm.clients, algorithm.times) == (
        8,
        None,
        None,
        2,
    )
    assert [result.asked for result in rounds(algorithm, fleet_of(algorithm, clients=20))] == [
        5
    ] * 8
    assert algorithm.trainer.stopped == training.ROUNDS


def test_a_served_fleet_without_an_end_goes_on_and_takes_in_new_devices(monkeypatch):
    toy(monkeypatch, synthetic(CLASSIFICATION, 400)[0])
    schedule = Schedule(horizon=50, share=0.5)
    algorithm = FedSGD(Options(epsilon="4"), Population(schedule=schedule, devices=20))
    fifty = FedSGD(Options(epsilon="4"), Population(schedule=Schedule(50, share=0.5), devices=20))
    assert algorithm.trainer.plan.learning_rate == fifty.trainer.plan.learning_rate
    for clients in (20, 20, 30, 30):
        assert next(rounds(algorithm, fleet_of(algorithm, clients))).asked == clients // 2
    assert not algorithm.done
    assert algorithm.times == 1  # in a round: the number of rounds is unknown
    for number in range(6):  # no device answers, which is no reason to stop
        algorithm.learn(RoundResult(number, COMPLETE, 10, 0, {}, []), range(1, 21))
    assert not algorithm.done


# Records that only the devices know


def test_with_a_dimension_instead_of_a_data_set_the_same_model_is_learned(monkeypatch):
    population = Population(devices=50, knows_records=False)
    options = Options(dimension=8, reports=50, group=10, epsilon="8")
    algorithm = FedSGD(options, population)
    assert (algorithm.d, algorithm.holdings, algorithm.dataset) == (8, None, None)
    toy(monkeypatch, synthetic(CLASSIFICATION, 400)[0])
    with_records = begin("fedsgd", 50, dimension=None, reports=50, group=10, epsilon="8")
    for _ in rounds(algorithm, fleet_of(with_records)):
        assert algorithm.figures() == {}
    result = algorithm.result([])
    assert (result["measure"], result["task"], result["d"]) == (None, None, 8)
    assert result["features"] == [f"x{i}" for i in range(8)]
    assert not {"accuracy", "squared_error"} & result.keys()
    assert (algorithm.weights == finished(with_records).weights).all()


def test_a_dimension_is_for_devices_with_records_of_their_own():
    with pytest.raises(UsageError, match="--dimension is for devices") as caught:
        FedSGD(Options(dimension=8), Population(clients=50))
    assert "--dataset" in caught.value.hint
    for wrong in (0, 129):
        with pytest.raises(UsageError, match=f"--dimension must be 1 to 128, not {wrong}"):
            Options(dimension=wrong)
    with pytest.raises(UsageError, match="--dimension and --dataset exclude each other"):
        check_named(Options, {"dimension": 3, "dataset": "iris"})


# Results


def test_small_groups_whose_estimate_is_often_zero_use_all_reports(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    toy(monkeypatch, synthetic(CLASSIFICATION, 400)[0])
    result = run("fedsgd", "simulated:300", reports=300, group=1, epsilon="1")
    assert (result["reports"], result["stopped"]) == (300, "rounds")


def test_the_gradient_of_the_last_round_has_its_intervals(monkeypatch):
    toy(monkeypatch, synthetic(CLASSIFICATION, 400)[0])
    result = finished(begin("fedsgd", 300, reports=300, group=100)).result([])
    last = result["last_gradient"]
    assert last["round"] == 3
    assert sum(last["reports"]) == 100
    for low, mean, high, n in zip(
        *(last[key] for key in ("low", "mean", "high", "reports")), strict=True
    ):
        assert (low < mean < high) if n else mean is None
    low, high = result["accuracy_interval"]
    assert low < result["accuracy"] < high


@pytest.mark.parametrize(
    ("dataset", "model", "name", "foreign"),
    [
        ("diabetes", "linear", "squared_error", "accuracy"),
        ("breast-cancer", "logistic", "accuracy", "squared_error"),
    ],
)
def test_a_result_has_its_interval_and_its_baseline(dataset, model, name, foreign):
    algorithm = begin("fedsgd", 300, dataset=dataset, model=model, reports=300)
    result = finished(algorithm).result([])
    assert result["measure"] == name
    assert not any(key.startswith(foreign) for key in result)
    assert set(result["measures"]) == {name} | (
        {"auc", "log_loss"} if model == "logistic" else set()
    )
    low, high = result[f"{name}_interval"]
    assert low < result[name] < high
    assert result[f"{name}_baseline"] == judging.baselines(datasets.load(dataset))[name]
    assert result["task"] == datasets.load(dataset).task


def test_the_model_follows_from_the_labels_unless_it_is_named():
    assert begin("fedsgd", 300, dataset="diabetes", reports=300).model == "linear"
    assert begin("fedsgd", 300, dataset="breast-cancer", reports=300).model == "logistic"
    assert (
        begin("fedsgd", 300, dataset="breast-cancer", model="linear", reports=300).model == "linear"
    )
    message = "logistic model tells classes, and the labels of diabetes are numbers"
    with pytest.raises(UsageError, match=message):
        begin("fedsgd", 300, dataset="diabetes", model="logistic", reports=300)


def test_a_result_has_the_figures_of_the_optimum_without_privacy(monkeypatch):
    data = toy(monkeypatch, synthetic(CLASSIFICATION, 4000)[0])
    algorithm = finished(begin("fedsgd", 3000, reports=3000, group=300, epsilon="8"))
    result = algorithm.result([])
    best = optimum(wire.LOGISTIC, data, 1e-4)
    for name, value in judging.figures(data, wire.LOGISTIC, best).items():
        assert result[f"{name}_optimum"] == value
        low, high = result[f"{name}_optimum_interval"]
        assert low < value < high
    assert result["log_loss_optimum"] < result["log_loss"] < result["log_loss_baseline"]
    assert algorithm.figures() == {name: result[name] for name in result["measures"]}


# Accuracy


def trained(seed, k=1, **options):
    return finished(begin("fedsgd", k=k, seed=seed, **options))


def accuracy(dataset, weights):
    return judging.figures(dataset, wire.LOGISTIC, weights)["accuracy"]


def test_every_seed_learns_from_20_000_flights_at_epsilon_2():
    flights = datasets.load("flights")
    for seed in range(20):
        algorithm = trained(seed, reports=20_000, group=1_000, epsilon="2")
        assert accuracy(flights, algorithm.weights) >= 0.89
    assert judging.baselines(flights)["accuracy"] == pytest.approx(0.763, abs=0.001)
    assert accuracy(flights, algorithm.optimum()) >= 0.9


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("epsilon", "least"), [("1", 0.885), ("2", 0.890)])
def test_a_model_is_learned_from_one_report_of_each_flight(epsilon, least):
    flights = datasets.load("flights")
    options = {"reports": len(flights.training), "group": 2_000, "epsilon": epsilon}
    reached = [accuracy(flights, trained(seed, **options).weights) for seed in range(5)]
    assert np.mean(reached) >= least


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("mechanism", "epsilon", "reports", "group", "k", "least"),
    [
        ("duchi", "1", 20_000, 1_000, 1, 0.88),
        ("pm-sub", "2", 20_000, 1_000, 1, 0.89),
        ("three-outputs", "0.5", 20_000, 1_000, 1, 0.88),
        ("three-outputs", "2", 20_000, 100, 1, 0.89),
        ("three-outputs", "2", 20_000, 20_000, 1, 0.89),
        ("three-outputs", "2", 2_000, 200, 1, 0.88),
        ("three-outputs", "4", 20_000, 1_000, 4, 0.89),  # each coordinate at 1
    ],
)
def test_the_defaults_do_well_with_other_cards_and_groups(
    mechanism, epsilon, reports, group, k, least
):
    flights = datasets.load("flights")
    for seed in range(3):
        algorithm = trained(
            seed, k, mechanism=mechanism, epsilon=epsilon, reports=reports, group=group
        )
        assert accuracy(flights, algorithm.weights) >= least


@pytest.mark.parametrize("model", ["logistic", "svm"])
def test_a_synthetic_classification_is_learned(monkeypatch, model):
    data, truth = synthetic(CLASSIFICATION, n=60_000)
    toy(monkeypatch, data)
    best = accuracy(data, truth)
    algorithm = trained(1, model=model, reports=50_000, group=2_500, epsilon="2")
    assert accuracy(data, algorithm.optimum()) >= best - 0.005
    assert accuracy(data, algorithm.weights) >= best - 0.03


def test_a_synthetic_regression_is_learned(monkeypatch):
    data, _ = synthetic(REGRESSION, n=60_000)
    toy(monkeypatch, data)
    spread = float(np.var(data.labels[data.test] / ONE))
    algorithm = trained(1, model="linear", reports=50_000, group=2_500, epsilon="2")
    assert judging.figures(data, wire.LINEAR, algorithm.optimum())["squared_error"] <= 0.1 * spread
    assert judging.figures(data, wire.LINEAR, algorithm.weights)["squared_error"] <= 0.2 * spread
    assert judging.baselines(data)["squared_error"] == pytest.approx(spread, rel=0.01)
