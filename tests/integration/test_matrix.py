"""Every algorithm over every link: serial lines, a broker, an emulated chip, simulated clients."""

from contextlib import contextmanager

import pytest
import rig

from ternhost import datasets
from ternhost.errors import OK
from ternhost.privacy.accounting import Policy
from ternhost.run.result import exit_code
from ternhost.run.status import Watcher
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


@contextmanager
def simulated(_):
    yield {"fleet": f"simulated:{CLIENTS}"}


EXHAUSTIVE_PICO = pytest.param(pico, marks=pytest.mark.exhaustive)


@pytest.fixture(scope="module", params=[serial, mqtt, chip, EXHAUSTIVE_PICO, simulated])
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
