"""FedSGD: its questions, its model and results, and its accuracy on a fleet."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pytest
from simulating import begin, finished, fleet_of, rounds, run

from tern import wire
from ternhost import datasets
from ternhost.count.rounds import COMPLETE, RoundResult
from ternhost.datasets import CLASSIFICATION, Dataset, held_out, to_fixed
from ternhost.errors import UsageError
from ternhost.learn.base import Population
from ternhost.learn.models import judging, training
from ternhost.learn.models.fedsgd import FedSGD, Options
from ternhost.learn.schedule import Schedule
from ternhost.run import costs


@pytest.fixture(scope="module", autouse=True)
def loaded_once():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets, "load", lru_cache(datasets.load))
        yield


def toy(monkeypatch, data):
    monkeypatch.setattr(datasets, "load", lambda name, classes=False, selection=None: data)
    return data


def synthetic(n):
    """Two classes: n records of eight features with noisy labels, and the weights behind them."""
    random = np.random.default_rng(5)
    features = random.uniform(-1, 1, (n, 8))
    features[:, 0] = 1
    weights = random.uniform(-0.5, 0.5, 8)
    weights[0] /= 10
    weights /= np.abs(weights).sum()
    labels = np.where(features @ weights > random.logistic(0, 0.05, n), 1, -1)
    names = tuple(f"x{j}" for j in range(8))
    fixed = to_fixed(features), to_fixed(labels)
    return Dataset("synthetic", CLASSIFICATION, names, *fixed, held_out(n)), weights


# Groups and clients


def test_every_client_is_asked_once_in_groups(monkeypatch):
    """With as many reports as clients, each of 103 clients is asked in one round: ten groups of
    ten, and the three that are left.
    """
    toy(monkeypatch, synthetic(400)[0])
    clients = range(1, 104)
    algorithm = begin("fedsgd", 103, reports=103, group=10, epsilon="1")
    groups = []
    for number in range(1, algorithm.rounds + 1):
        ((_, group),) = algorithm.cohorts(clients)
        groups.append(group.tolist())
        nobody_answers = RoundResult(number, COMPLETE, len(group), 0, {}, [])
        algorithm.learn(nobody_answers, clients)
        algorithm.trainer.stopped = None  # without answers it would stop after some rounds

    assert [len(group) for group in groups] == [10] * 10 + [3]
    assert sorted(np.concatenate(groups)) == list(clients)


class Plan(NamedTuple):
    """The numbers of a plan."""

    reports: int
    group: int
    rounds: int
    times: int


PLANS = pytest.mark.parametrize(
    ("devices", "options", "planned"),
    [
        (30_000, {}, Plan(reports=20_000, group=500, rounds=40, times=1)),
        (1, {"reports": 10}, Plan(reports=10, group=1, rounds=10, times=10)),
        (3, {"rounds": 4}, Plan(reports=12, group=3, rounds=4, times=4)),
        (300, {"reports": 301, "group": 200}, Plan(301, group=200, rounds=2, times=2)),
        (300, {"reports": 100, "group": 20}, Plan(100, group=20, rounds=5, times=1)),
        (300, {"records": 50}, Plan(300, group=15, rounds=20, times=1)),
        (18_000, {"records": 50}, Plan(18_000, group=500, rounds=36, times=1)),
    ],
    ids=[
        "defaults",
        "one device",
        "three devices",
        "one more than all",
        "a third",
        "several records",
        "several records of many",
    ],
)


@PLANS
def test_few_devices_report_in_several_rounds_and_pay_for_each(devices, options, planned):
    algorithm = FedSGD(Options(**options), Population(devices=devices, knows_records=False))
    group = algorithm.options.group
    assert planned == (algorithm.reports, group, algorithm.rounds, algorithm.times)
    (account, *_) = costs.accounts(algorithm, None)
    assert account.user_level == 2_000_000 * planned.times  # micro-epsilon, 2 a report by default


@PLANS
def test_no_device_is_asked_twice_in_a_round_or_more_often_than_it_pays_for(
    devices, options, planned
):
    """The plan of a run says how often a device may be asked (`times`), from which its cost
    follows. Groups of all rounds keep to it, and take turns as evenly as possible.
    """
    algorithm = FedSGD(Options(**options), Population(devices=devices, knows_records=False))

    groups = [algorithm._group_of(algorithm.clients, i) for i in range(planned.rounds)]

    for clients in groups:
        assert len(np.unique(clients)) == len(clients) <= planned.group

    times_asked = np.bincount(np.concatenate(groups), minlength=algorithm.clients)
    assert times_asked.sum() == planned.reports
    assert times_asked.max() == planned.times
    assert times_asked.min() >= planned.times - 1


def test_steps_by_means_of_several_records_allow_for_values_that_are_clipped():
    """A clipped value is 1 in units of the range. So a step expects more noise than that of 0."""
    options = {"data": "iris", "epsilon": "4", "batch": 1}
    people = Population(clients=30)
    single = FedSGD(Options(**options), people).trainer.plan
    learner = FedSGD(Options(**{**options, "batch": 0, "records": 2}), people)
    means = learner.trainer.plan
    of_value = single.noise.variance * single.expected
    assert means.noise.variance * means.expected == pytest.approx(of_value + 1)


# A fleet that is served


def test_a_served_fleet_without_an_end_takes_in_new_devices_and_goes_on_without_answers(
    monkeypatch,
):
    """A served run stands for as long as its fleet. It asks half of the devices that there are in a
    round, and does not give up when nobody answers, as another run would after a few rounds.
    """
    toy(monkeypatch, synthetic(400)[0])
    schedule = Schedule(horizon=50, share=0.5)  # a device is asked in half of the rounds
    population = Population(schedule=schedule, devices=20)
    algorithm = FedSGD(Options(epsilon="4"), population)

    for clients in (20, 30):
        result = next(rounds(algorithm, fleet_of(algorithm, clients)))
        assert result.asked == clients // 2

    for number in range(6):  # more than the failures that end another run
        nobody_answers = RoundResult(number, COMPLETE, 10, 0, {}, [])
        algorithm.learn(nobody_answers, range(1, 21))
    assert not algorithm.done


# The end of a run


def test_a_run_that_hardly_moves_the_model_ends_and_asks_no_further_device(monkeypatch):
    toy(monkeypatch, synthetic(2000)[0])
    options = {"reports": 1000, "group": 50, "epsilon": "8"}
    to_the_end = finished(begin("fedsgd", 1000, **options))
    early = begin("fedsgd", 1000, **options, tolerance=0.1)
    asked = [result.asked for result in rounds(early, fleet_of(early))]

    assert (to_the_end.trainer.stopped, to_the_end.trainer.round) == (training.ROUNDS, 20)
    assert early.trainer.stopped == training.CLOSE
    assert asked == [50] * early.trainer.round
    assert 1 < len(asked) < 20


def test_a_served_fleet_is_not_asked_again_after_a_round_that_hardly_moved_the_model(monkeypatch):
    toy(monkeypatch, synthetic(400)[0])
    population = Population(schedule=Schedule(horizon=50, share=1), devices=20)
    algorithm = FedSGD(Options(epsilon="4", tolerance=100.0), population)
    next(rounds(algorithm, fleet_of(algorithm, 20)))
    assert algorithm.done


@pytest.mark.parametrize(("tolerance", "is_said"), [(0.0, False), (100.0, True)])
def test_a_result_says_after_which_round_the_model_hardly_moved(tolerance, is_said, here):
    result = run("fedsgd", "simulated:100", data="iris", epsilon="8", tolerance=tolerance, group=50)
    said = [line for line in FedSGD.summary(result) if "--tolerance" in line]
    assert bool(said) == is_said
    assert all("round 1 of 2" in line for line in said)


@pytest.mark.parametrize("tolerance", [-0.1, -1e-9])
def test_a_tolerance_below_0_is_refused(tolerance):
    with pytest.raises(UsageError, match="--tolerance"):
        Options(tolerance=tolerance)


# Records that only the devices know


def test_with_a_dimension_instead_of_a_data_set_the_same_model_is_learned(monkeypatch):
    """A host whose devices have records that it has never seen needs to know only how many features
    these have. It learns the same model, but has no test set to judge it by.
    """
    common = {"reports": 50, "group": 10, "epsilon": "8"}
    population = Population(devices=50, knows_records=False)
    without_data = FedSGD(Options(data="devices:8", **common), population)
    toy(monkeypatch, synthetic(400)[0])
    with_records = begin("fedsgd", 50, **common)

    finished(without_data, fleet_of(with_records))

    result = without_data.result([])
    assert result["d"] == 8
    assert result["measure"] is None, "it cannot be judged"
    assert (without_data.weights == finished(with_records).weights).all()


# Accuracy


def trained(seed, **options):
    return finished(begin("fedsgd", **{"k": 1, "seed": seed, **options}))


def accuracy(dataset, weights):
    return judging.figures(dataset, wire.LOGISTIC, weights)["accuracy"]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("options", "least"),
    [
        ({"epsilon": "1"}, 0.885),
        ({"epsilon": "1", "mechanism": "duchi"}, 0.88),
        ({"epsilon": "0.5"}, 0.88),
        ({"group": 100}, 0.89),
        ({"group": 20_000}, 0.89),
        ({"reports": 2_000, "group": 200}, 0.88),
        ({"epsilon": "4", "k": 4}, 0.89),  # each coordinate at 1
    ],
    ids=str,
)
def test_models_of_flights_are_accurate_with_the_other_options_at_their_defaults(options, least):
    """The optimum without privacy is about 0.9."""
    plan = {"mechanism": "three-outputs", "epsilon": "2", "reports": 20_000, "group": 1_000}
    flights = datasets.load("flights")
    for seed in range(2):
        assert accuracy(flights, trained(seed, **plan | options).weights) >= least


def test_a_support_vector_machine_is_learned(monkeypatch):
    data, true_weights = synthetic(n=60_000)
    toy(monkeypatch, data)
    learner = trained(1, model="svm", reports=50_000, group=2_500, epsilon="2")
    assert accuracy(data, learner.weights) >= accuracy(data, true_weights) - 0.03
