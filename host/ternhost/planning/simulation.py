"""Algorithms on simulated clients, in memory: a run without store, schedule and interruptions."""

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from ternhost.count.rounds import RoundResult
from ternhost.datasets import Dataset, Fixed, Table
from ternhost.learn import choice, judging
from ternhost.learn.base import Learner, Population
from ternhost.learn.collect import Collect
from ternhost.learn.direct import Direct
from ternhost.learn.fedsgd import FedSGD
from ternhost.learn.learning import Learning
from ternhost.learn.optimum import optimum
from ternhost.learn.parameters import MODELS
from ternhost.learn.training import TrainingPlan
from ternhost.reach.simulated.driver import SimulatedDriver

A = TypeVar("A", bound=Learner)

GROUPS = 100  # of clients: rounds of a run in which each client reports once


def fleet_of(algorithm: Learner, seed: int) -> SimulatedDriver:
    """Return the simulated clients of an algorithm that has dealt records to them.

    seed: of the clients' random draws.
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
    """The algorithm after all its rounds."""
    for _ in rounds(algorithm, fleet_of(algorithm, seed)):
        pass
    return algorithm


def group_of(reports: int) -> int:
    """The number of clients in a round, for GROUPS rounds in all."""
    return max(1, reports // GROUPS)


def repeated(algorithm: A, seeds: Iterable[int]) -> Iterator[A]:
    """Yield the algorithm after all its rounds, for each seed of the same clients' draws."""
    initial = algorithm.state()
    for seed in seeds:
        algorithm.restore(initial)
        yield simulate(algorithm, seed)


def figure_of(learner: Learning) -> float:
    """The most telling figure of a learner's model (`judging.measure`), on the held-out records."""
    return next(iter(learner.figures().values()))


def optimal_figures(dataset: Dataset, model: str) -> dict[str, float]:
    """The figures of the optimal model without privacy."""
    weights = optimum(MODELS[model], dataset, TrainingPlan.regularisation)
    return judging.figures(dataset, MODELS[model], weights)


def sgd(
    dataset: Dataset, reports: int, seed: int, *, clients: int | None = None, **options: Any
) -> FedSGD:
    """Return FedSGD for simulated clients, before its first round.

    reports: in all. clients: how many take turns; by default each reports once. options: of FedSGD;
    `group` is by default such that there are GROUPS rounds (0: tern's choice).
    """
    options = {"group": group_of(reports), **options}
    training = FedSGD.Options(reports=reports, seed=seed, **options)
    return FedSGD(training, Population(clients=clients or reports), dataset)


def default(dataset: Dataset, reports: int, seed: int, model: str, epsilon: str) -> Learning:
    """Return the learner that `tern train` chooses if none is named, before its first round.

    reports: of as many clients. epsilon: of a report.
    """
    if not choice.suits_direct(model, dataset):
        return sgd(dataset, reports, seed, group=0, model=model, epsilon=epsilon)
    options = Direct.Options(reports=reports, seed=seed, model=model, epsilon=epsilon)
    return Direct(options, Population(clients=reports), dataset)


def learned(
    dataset: Dataset, reports: int, seeds: Iterable[int], **options: Any
) -> Iterator[FedSGD]:
    """Yield `sgd` after all its rounds, for each seed; seeds also determine the groups."""
    return (simulate(sgd(dataset, reports, seed, **options), seed) for seed in seeds)


def collection(values: Fixed, learner: type[Collect] = Collect, **options: Any) -> Collect:
    """Return a learner that collects the means of values, before its first round.

    values: clients x d, Q1.14. learner: its class. options: of the learner.
    """
    table = Table("values", tuple(f"x{i}" for i in range(values.shape[1])), values)
    return learner(learner.Options(**options), Population(clients=len(values)), table)


def squared_error(collected: Collect) -> float:
    """The mean squared error of the collected means."""
    return float(collected.result([])["mean_squared_error"])
