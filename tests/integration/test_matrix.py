"""Every algorithm over every link: serial lines, a broker, an emulated chip, simulated clients."""

from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import rig
from spec import arithmetic

from tern import wire
from ternhost import datasets
from ternhost.count.questions import Question
from ternhost.datasets import Holdings
from ternhost.errors import OK
from ternhost.learn.schedule import Terms
from ternhost.privacy.accounting import Policy
from ternhost.privacy.mechanisms import design
from ternhost.reach import fleet as fleets
from ternhost.reach.fleet import RunContext, SimulatedClients
from ternhost.run.result import exit_code
from ternhost.run.status import Watcher
from ternhost.store.store import Store
from terntools.emulators.firmware_fleet import FirmwareFleet
from terntools.emulators.micropython import find_micropython
from terntools.emulators.unix_fleet import EmulatedFleet

CLIENTS = 20
POLICY = Policy(30_000_000, 900_000_000)  # micro-epsilon: of a report, and for life

# Name -> algorithm, its options, its number of rounds.
RUNS = {
    "fedsgd": ("fedsgd", {"epsilon": "4", "reports": CLIENTS, "group": CLIENTS // 2}, 2),
    "personalised fedsgd": (
        "fedsgd",
        {"epsilons": "1:0.5,4:0.5", "reports": CLIENTS, "group": CLIENTS},
        1,
    ),
    "fedavg": (
        "fedavg",
        {"epsilon": "8", "clients": CLIENTS, "records": 1, "rounds": 2, "share": 0.5},
        2,
    ),
    "values": ("values", {"epsilon": "8", "clients": CLIENTS}, 1),
    "quantiles": ("quantiles", {"epsilon": "1", "clients": CLIENTS}, 1),
    "infer": ("infer", {"epsilon": "20", "clients": CLIENTS}, 1),
}


def records():
    iris = datasets.load("iris")
    return iris.records(iris.training[:CLIENTS])


# Each yields the options that name the running fleet.


@contextmanager
def serial(directory):
    path, directories = rig.provision(directory, records(), POLICY, boards=2)
    with EmulatedFleet(find_micropython(), directories) as boards:
        yield {"fleet": "port:" + ",".join(boards.ports), "store": path}


@contextmanager
def mqtt(directory):
    with rig.OnBroker(directory, find_micropython(), 2, CLIENTS) as fleet:
        yield {"fleet": fleet.name, "store": fleet.path}


@contextmanager
def chip(directory, name="rv32"):
    path, directories = rig.provision(directory, records(), POLICY)
    with FirmwareFleet(name, directories, whole=True) as boards:
        yield {"fleet": "port:" + boards.ports[0], "store": path}


def pico(directory):
    return chip(directory, "pico")


def xtensa(directory):
    return chip(directory, "xtensa")


@contextmanager
def simulated(_):
    yield {"fleet": f"simulated:{CLIENTS}"}


LINKS = [serial, mqtt, chip, simulated]
for slow_link in (pico, xtensa):
    LINKS.append(pytest.param(slow_link, marks=pytest.mark.exhaustive))


@pytest.fixture(scope="module", params=LINKS)
def fleet(request, tmp_path_factory):
    with request.param(tmp_path_factory.mktemp(request.param.__name__)) as options:
        yield options


@pytest.mark.slow
@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("name", RUNS)
def test_every_algorithm_gets_all_reports_over_every_link(fleet, name):
    """Each way of learning (RUNS) gets one report of each of 20 devices over each way of reaching
    them: serial ports, a broker, an emulated chip, a simulation. Nothing is refused, nothing is
    lost, and nobody is warned.
    """
    algorithm, options, rounds = RUNS[name]
    warnings, counts = [], []
    watcher = Watcher(warn=warnings.append)
    with rig.begin(algorithm, data="iris", **options, **fleet, watcher=watcher) as run:
        learn = run.algorithm.learn

        def learn_and_keep(result, devices):
            """Keep how many values the algorithm gets in each round."""
            counts.append(sum(cohort.counts.sum() for cohort in result.cohorts))
            learn(result, devices)

        run.algorithm.learn = learn_and_keep

        result = run.run()

    assert warnings == []
    assert (exit_code(result), result["refusals"], result["rounds"]) == (OK, 0, rounds)
    assert result["reports"] == result["asked"] == CLIENTS
    assert len(counts) == rounds
    assert sum(counts) >= CLIENTS, "each report has one value or more"


# Bins of numbers. A report by this card differs from what the device holds with a probability below
# a millionth, so that the counts of a round are certain.
CARD_OF_16 = design("grr", "20", 16).card
QUESTIONS = {
    "as many bins as symbols": Question(
        wire.CATEGORIES, parameters=[0, 0, 1, 0, 0], exponent=4, card=CARD_OF_16, k=1
    )
}
QUESTIONS["more bins than symbols"] = replace(QUESTIONS["as many bins as symbols"], exponent=6)
QUESTIONS["hashed bins"] = replace(QUESTIONS["more bins than symbols"], range=1, categories=64)


def counts_of_round(question, fleet, directory):
    """The number of a round that asks all devices of a running fleet this question, and how often
    each symbol was reported.
    """
    with Store(fleet.get("store", directory / "store.sqlite")) as store:
        context = RunContext(
            store=store,
            directory=directory,
            run="bins",
            terms=Terms(),
            warn=pytest.fail,
            clients=SimulatedClients(Holdings(records(), np.arange(CLIENTS))),
        )
        with fleets.parse(fleet["fleet"]).driver(context) as driver:
            number = driver.next_round(1)
            driver.open(number, [(question, driver.devices)])
            result = driver.collect(number)
            store.end_round(number, result.ended)
    (cohort,) = result.cohorts
    return number, cohort.counts[0].tolist()


@pytest.mark.slow
@pytest.mark.parametrize("name", QUESTIONS)
def test_bins_are_counted_over_every_link_as_the_devices_hold_them(fleet, name, tmp_path):
    question = QUESTIONS[name]
    number, counts = counts_of_round(question, fleet, tmp_path)

    held = []
    for device, record in enumerate(records().tolist(), start=1):
        (symbol,) = arithmetic.collected(
            question.model,
            question.parameters,
            record[:-1],
            question.range,
            symbols=16,
            device=device,
            number=number,
            e=question.exponent,
        )
        held.append(symbol)
    assert counts == np.bincount(held, minlength=16).tolist()
