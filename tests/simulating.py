"""Helpers for tests of algorithms on simulated fleets."""

import numpy as np

from ternhost import datasets
from ternhost.learn.base import ALGORITHMS, Population
from ternhost.reach.simulated.driver import SimulatedDriver
from ternhost.run.options import RunOptions
from ternhost.run.run import Run

# A table of numbers and categories that no other test changes: ages and hours of 600 people.
AGES = datasets.to_fixed([[i % 60 / 60, i % 90 / 90] for i in range(600)])
CODES = np.array([[i % 2, i % 4 // 2, i % 5 // 2] for i in range(600)], np.int16)
PEOPLE = datasets.Table(
    "people",
    ("age", "hours"),
    AGES,
    ("sex", "married", "region"),
    CODES,
    (("f", "m"), ("no", "yes"), ("north", "middle", "south")),
)


def begin(name, there=None, **options):
    """The algorithm `name` with these options; there: the number of clients."""
    cls = ALGORITHMS[name]
    return cls(cls.Options(**options), Population(clients=there))


def fleet_of(algorithm, clients=None, seed=None):
    """The driver of a simulated fleet for an algorithm."""
    seed = algorithm.options.seed if seed is None else seed
    clients = clients or algorithm.clients
    return SimulatedDriver(algorithm.holdings, clients, seed, individual=algorithm.individual)


def ask(driver, cohorts, number=1):
    """Run a round of a driver."""
    driver.open(number, cohorts)
    return driver.collect(number)


def rounds(algorithm, driver, first=1):
    """Run rounds of an algorithm until it is done; yield each result after the algorithm has
    learned from it.
    """
    number = first
    while not algorithm.done:
        result = ask(driver, algorithm.cohorts(driver.devices), number)
        algorithm.learn(result, driver.devices)
        yield result
        number += 1


def finished(algorithm, driver=None):
    """Run all rounds of an algorithm, and return it."""
    for _ in rounds(algorithm, driver or fleet_of(algorithm)):
        pass
    return algorithm


def run(name, fleet, watcher=None, where=None, **options):
    """Run an algorithm below the present directory, and return the result."""
    options = RunOptions(name, ALGORITHMS[name].Options(**options), fleet, **(where or {}))
    with Run.begin(options, watcher=watcher) as begun:
        return begun.run()
