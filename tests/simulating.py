"""Algorithms on simulated fleets: what their tests share."""

from ternhost.learn.base import ALGORITHMS, Population
from ternhost.reach.simulated.driver import SimulatedDriver
from ternhost.run.options import RunOptions
from ternhost.run.run import Run


def begin(name, there=None, **options):
    """The algorithm of that name with these options, where so many clients are there."""
    cls = ALGORITHMS[name]
    return cls(cls.Options(**options), Population(clients=there))


def fleet_of(algorithm, clients=None, seed=None):
    """The simulated fleet of an algorithm."""
    return SimulatedDriver(
        algorithm.holdings,
        clients or algorithm.clients,
        algorithm.options.seed if seed is None else seed,
        individual=algorithm.individual,
    )


def ask(driver, cohorts, number=1):
    """One round of a driver."""
    driver.open(number, cohorts)
    return driver.collect(number)


def rounds(algorithm, driver, first=1):
    """Go on with an algorithm until it is done; the result of each round, once it has been learned from."""
    number = first
    while not algorithm.done:
        result = ask(driver, algorithm.cohorts(driver.devices), number)
        algorithm.learn(result, driver.devices)
        yield result
        number += 1


def finished(algorithm, driver=None):
    """The algorithm, when it is done."""
    for _ in rounds(algorithm, driver or fleet_of(algorithm)):
        pass
    return algorithm


def run(name, fleet, watcher=None, where=None, **options):
    """The result of a whole run below the present directory."""
    cls = ALGORITHMS[name]
    with Run.begin(RunOptions(name, cls.Options(**options), fleet, **(where or {})), watcher=watcher) as one:
        return one.run()
