"""An algorithm on simulated clients, in memory: the loop of a run without its store, schedule and interruptions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from ternhost.count.rounds import RoundResult
from ternhost.datasets import Dataset, Fixed, Table
from ternhost.learn import judging
from ternhost.learn.base import Learner, Population
from ternhost.learn.collect import Collect
from ternhost.learn.fedsgd import FedSGD
from ternhost.learn.learning import Learning
from ternhost.learn.optimum import optimum
from ternhost.learn.parameters import MODELS
from ternhost.learn.training import TrainingPlan
from ternhost.reach.simulated.driver import SimulatedDriver

A = TypeVar("A", bound=Learner)

GROUPS = 100  # rounds of a run that learns from single reports


def fleet_of(algorithm: Learner, seed: int) -> SimulatedDriver:
    """The simulated clients of an algorithm with known holdings; `seed` is that of their draws."""
    assert algorithm.holdings is not None
    return SimulatedDriver(algorithm.holdings, algorithm.clients, seed, individual=algorithm.individual)


def rounds(algorithm: Learner, driver: SimulatedDriver) -> Iterator[RoundResult]:
    """Run rounds until the algorithm is done; yields each result after the algorithm has learned from it."""
    number = 0
    while not algorithm.done:
        number = driver.next_round(number + 1)
        driver.open(number, algorithm.cohorts(driver.devices))
        result = driver.collect(number)
        assert result is not None  # nobody stops it
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
    """The algorithm after all its rounds, started again for each of these seeds: the same clients, other draws."""
    begun = algorithm.state()
    for seed in seeds:
        algorithm.restore(begun)
        yield simulate(algorithm, seed)


def figure_of(learner: Learning) -> float:
    """The main figure of a learner's model (`judging.measure`), on the held-out records."""
    return next(iter(learner.figures().values()))


def optimal_figures(dataset: Dataset, model: str) -> dict[str, float]:
    """The figures of the optimum of a model without privacy."""
    of = MODELS[model]
    return judging.figures(dataset, of, optimum(of, dataset, TrainingPlan.regularisation))


def sgd(dataset: Dataset, reports: int, seed: int, **options: Any) -> FedSGD:
    """FedSGD with these options, for so many clients of a data set, in GROUPS groups (`group` 0: tern's choice)."""
    training = FedSGD.Options(reports=reports, seed=seed, **{"group": group_of(reports), **options})
    return FedSGD(training, Population(clients=reports), dataset)


def learned(dataset: Dataset, reports: int, seeds: Iterable[int], **options: Any) -> Iterator[FedSGD]:
    """`sgd` after all its rounds, once for each of these seeds, which also draw the groups."""
    return (simulate(sgd(dataset, reports, seed, **options), seed) for seed in seeds)


def collection(values: Fixed, **options: Any) -> Collect:
    """Collecting the means of values (clients x d, Q1.14), with these options."""
    names = tuple(f"x{i}" for i in range(values.shape[1]))
    return Collect(
        Collect.Options(**options), Population(clients=len(values)), Table("values", names, values)
    )


def squared_error(collected: Collect) -> float:
    """The mean squared error of the collected means."""
    return float(collected.result([])["mean_squared_error"])
