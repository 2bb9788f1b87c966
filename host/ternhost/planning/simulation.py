"""Runs algorithms on simulated clients, in memory.

Such a run has no store, no schedule and no interruptions. The *figure* of a model is its most
telling measure on held-out records, such as its accuracy or its mean squared error.
"""

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from ternhost.count.rounds import RoundResult
from ternhost.datasets import Dataset, Fixed, Table
from ternhost.learn import choice
from ternhost.learn.base import Learner, Population
from ternhost.learn.collecting.collect import Values
from ternhost.learn.models import judging
from ternhost.learn.models.fedsgd import FedSGD
from ternhost.learn.models.learning import Learning
from ternhost.learn.models.optimum import optimum
from ternhost.learn.models.training import TrainingPlan
from ternhost.learn.one_answer.direct import Direct
from ternhost.learn.parameters import MODELS
from ternhost.reach.simulated.driver import SimulatedDriver

A = TypeVar("A", bound=Learner)

# Clients that report once each are divided into so many groups, each of which answers one round.
GROUPS = 100


def fleet_of(algorithm: Learner, seed: int) -> SimulatedDriver:
    """Return the simulated clients of an algorithm that has dealt records to them.

    seed: that of the clients' random draws.
    """
    assert algorithm.holdings is not None
    return SimulatedDriver(
        algorithm.holdings, algorithm.clients, seed, individual=algorithm.individual
    )


def rounds(algorithm: Learner, driver: SimulatedDriver) -> Iterator[RoundResult]:
    """Run rounds until the algorithm is done, and yield each result after it learned from it.

    driver: the simulated clients that answer.
    """
    number = 0
    while not algorithm.done:
        number = driver.next_round(number + 1)
        driver.open(number, algorithm.cohorts(driver.devices))
        result = driver.collect(number)
        assert result is not None  # only a stopped driver returns None
        algorithm.learn(result, driver.devices)
        yield result


def simulate(algorithm: A, seed: int) -> A:
    """Run all rounds of an algorithm on simulated clients; return the algorithm.

    seed: that of the clients' random draws.
    """
    for _ in rounds(algorithm, fleet_of(algorithm, seed)):
        pass
    return algorithm


def group_of(reports: int) -> int:
    """Return the number of clients in a round, so that there are GROUPS rounds of one report each."""
    return max(1, reports // GROUPS)


def repeated(algorithm: A, seeds: Iterable[int]) -> Iterator[A]:
    """Run the algorithm again for each seed, and yield it after all its rounds.

    It begins from the same state each time, with the same records at the same clients; the seeds
    are those of the clients' random draws.
    """
    initial = algorithm.state()
    for seed in seeds:
        algorithm.restore(initial)
        yield simulate(algorithm, seed)


def figure_of(learner: Learning) -> float:
    """Return the most telling figure of a learner's model (`judging.measure`).

    The model is judged on the held-out records.
    """
    return next(iter(learner.figures().values()))


def optimal_figures(dataset: Dataset, model: str) -> dict[str, float]:
    """Return the figures of the best model without privacy, by their names."""
    weights = optimum(MODELS[model], dataset, TrainingPlan.regularisation)
    return judging.figures(dataset, MODELS[model], weights)


def sgd(
    dataset: Dataset, reports: int, seed: int, *, clients: int | None = None, **options: Any
) -> FedSGD:
    """Return FedSGD for simulated clients, before its first round.

    reports: their number in all rounds. clients: how many of them share these reports; by default
    each client reports once. options: those of FedSGD. Its `group`, the number of clients in a
    round, is by default such that there are GROUPS rounds; 0 stands for the choice of FedSGD.
    """
    if clients is None:
        clients = reports
    options.setdefault("group", group_of(reports))
    training = FedSGD.Options(reports=reports, seed=seed, **options)
    return FedSGD(training, Population(clients=clients), dataset)


def default(dataset: Dataset, reports: int, seed: int, model: str, epsilon: str) -> Learning:
    """Return the learner that `tern train` chooses if none is named, before its first round.

    reports: the number of clients, each of which reports once. model: its name. epsilon: that of a
    report.
    """
    if not choice.suits_direct(model, dataset):
        return sgd(dataset, reports, seed, group=0, model=model, epsilon=epsilon)
    options = Direct.Options(reports=reports, seed=seed, model=model, epsilon=epsilon)
    return Direct(options, Population(clients=reports), dataset)


def learned(
    dataset: Dataset, reports: int, seeds: Iterable[int], **options: Any
) -> Iterator[FedSGD]:
    """Train by FedSGD once for each seed, and yield the learner after all its rounds.

    A seed determines the groups of clients and their random draws. Other arguments: as of `sgd`.
    """
    for seed in seeds:
        yield simulate(sgd(dataset, reports, seed, **options), seed)


def collection(values: Fixed, learner: type[Values] = Values, **options: Any) -> Values:
    """Return a learner that collects the means of values, before its first round.

    values: those of each client (clients x d, Q1.14). learner: the class of the learner. options:
    those of the learner.
    """
    names = [f"x{i}" for i in range(values.shape[1])]
    table = Table(name="values", numeric_names=tuple(names), numeric=values)
    return learner(learner.Options(**options), Population(clients=len(values)), table)


def squared_error(collected: Values) -> float:
    """Return the mean squared error of the collected means, over the values."""
    return float(collected.result([])["mean_squared_error"])
