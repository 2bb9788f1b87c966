"""Every algorithm over every link: serial lines, a broker, an emulated Pico, simulated clients.

The boards on serial lines, on the broker and the Pico have the same keys. A device chooses its
coordinates by its key and the round, so all three must report the same coordinates equally often.
"""

import shutil
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest
import rig

from ternhost import datasets
from ternhost.errors import OK
from ternhost.privacy.accounting import Policy
from ternhost.provision.boards import board_directories, provision_board
from ternhost.reach.broker import configuration
from ternhost.reach.broker.mosquitto import Mosquitto, free_port
from ternhost.run.result import exit_code
from ternhost.run.status import Watcher
from ternhost.store.store import Store
from terntools.boards.attach import attach
from terntools.emulators.firmware_fleet import FirmwareFleet
from terntools.emulators.micropython import find_micropython
from terntools.emulators.unix_fleet import EmulatedFleet

CLIENTS, BOARDS = 20, 2
POLICY = Policy(30_000_000, 900_000_000)
IRIS = {"dataset": "iris"}

# The order counts: it gives the numbers of the rounds, from which the coordinates follow.
RUNS = {
    "fedsgd": ("fedsgd", {"epsilon": "4", "reports": CLIENTS, "group": CLIENTS // 2}),
    "personalised fedsgd": (
        "fedsgd",
        {"epsilons": "1:0.5,4:0.5", "reports": CLIENTS, "group": CLIENTS},
    ),
    "fedavg": (
        "fedavg",
        {"epsilon": "8", "clients": CLIENTS, "records": 1, "rounds": 2, "share": 0.5},
    ),
    "collect": ("collect", {"epsilon": "8", "clients": CLIENTS}),
    "infer": ("infer", {"epsilon": "20", "cluster_client_num": CLIENTS}),
}
LINKS = ("serial", "mqtt", "pico", "simulated")


def rows():
    dataset = datasets.load("iris")
    return dataset.records(
        np.sort(np.random.default_rng(1).permutation(dataset.training)[:CLIENTS])
    )


@pytest.fixture(scope="module")
def provisioned(tmp_path_factory):
    """The directory of a store and of its boards, which have answered no round yet."""
    directory = tmp_path_factory.mktemp("provisioned")
    path, _ = rig.provision(directory, rows(), POLICY, BOARDS)
    with Store(path) as store:
        keys = store.keys()
    provision_board(
        directory / "pico", 1, [keys[device] for device in sorted(keys)], rows(), POLICY
    )
    return directory


@contextmanager
def serial(directory):
    with EmulatedFleet(find_micropython(), board_directories(directory, BOARDS)) as boards:
        yield "port:" + ",".join(boards.ports)


@contextmanager
def mqtt(directory):
    broker, store = directory / "broker", directory / "store.sqlite"
    boards = board_directories(directory, BOARDS)
    configuration.configure(broker, store, port=free_port())
    attach(boards, broker, store, longest_pause_ms=500)
    with Mosquitto(broker), EmulatedFleet(find_micropython(), boards):
        yield f"mqtt:{broker}"


@contextmanager
def pico(directory):
    with FirmwareFleet("pico", [directory / "pico"], whole=True) as boards:
        yield "port:" + boards.ports[0]


@contextmanager
def simulated(directory):
    yield f"simulated:{CLIENTS}"


class Ran:
    """All runs over one link, by name: (result, counts by round and cohort).

    Each begins when it is first needed.
    """

    def __init__(self, fleet, store):
        self._fleet, self._store, self._results = fleet, store, {}

    def __getitem__(self, name):
        for earlier in RUNS:
            if earlier not in self._results:
                self._results[earlier] = self._run(earlier)
            if earlier == name:
                return self._results[name]
        raise KeyError(name)

    def _run(self, name):
        algorithm, options = RUNS[name]
        options = {
            **IRIS,
            **options,
            "fleet": self._fleet,
            "after_round": 10 * (1 + [*RUNS].index(name)),
        }
        warnings, counts = [], []
        with rig.begin(
            algorithm, **options, store=self._store, watcher=Watcher(warn=warnings.append)
        ) as run:
            learn = run.algorithm.learn

            def keep(result, devices):
                counts.append([cohort.counts for cohort in result.cohorts])
                learn(result, devices)

            run.algorithm.learn = keep
            result = run.run()
        assert warnings == []
        return result, counts


def begin(link, provisioned, directory, monkeypatch):
    monkeypatch.chdir(directory)
    here = shutil.copytree(provisioned, directory / "fleet")
    return globals()[link](here), None if link == "simulated" else here / "store.sqlite"


@pytest.fixture(scope="module")
def over(provisioned, tmp_path_factory):
    """`over(link)`: the runs over it, on boards that stay until the tests of this file have ended."""
    runs_by_link = {}
    with pytest.MonkeyPatch.context() as patch, ExitStack() as fleets:

        def runs(link):
            if link not in runs_by_link:
                fleet, store = begin(link, provisioned, tmp_path_factory.mktemp(link), patch)
                runs_by_link[link] = Ran(fleets.enter_context(fleet), store)
            return runs_by_link[link]

        yield runs


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("link", LINKS)
def test_every_algorithm_gets_all_reports_over_every_link(over, link, name):
    result, counts = over(link)[name]
    algorithm, options = RUNS[name]
    assert exit_code(result) == OK
    assert (result["algorithm"], result["refusals"], result["missing"]) == (algorithm, 0, 0)
    assert result["reports"] == result["asked"] == CLIENTS
    assert len(counts) == result["rounds"] == (2 if name in ("fedsgd", "fedavg") else 1)
    k = 3 if name == "infer" else counts[0][0].sum() / (result["asked"] / result["rounds"])
    if name != "personalised fedsgd":
        assert [part.sum() for parts in counts for part in parts] == [
            k * CLIENTS / len(counts)
        ] * len(counts)
    if algorithm in ("fedsgd", "fedavg"):
        assert 0 <= result["accuracy_interval"][0] <= result["accuracy"] <= 1
        assert any(result["weights"])
        assert len(result["classes"]) == len(counts[0]) == (2 if "epsilons" in options else 1)
    elif algorithm == "collect":
        assert all(
            abs(entry["mean"]) < 2 for entry in result["attributes"]
        )  # values in [-1, 1], with noise
        assert sum(entry["reports"] for entry in result["attributes"]) == counts[0][0].sum()
    else:
        assert sum(result["clusters"].values()) == CLIENTS


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_the_same_devices_choose_the_same_coordinates_over_every_link(over, name):
    chosen = {
        link: [[part.sum(axis=1).tolist() for part in parts] for parts in over(link)[name][1]]
        for link in ("serial", "mqtt", "pico")
    }
    # Coordinates follow from the question, and the next question from the model, whose noise
    # differs.
    same = slice(1 if name in ("fedsgd", "fedavg") else None)
    assert chosen["serial"][same] == chosen["mqtt"][same] == chosen["pico"][same]
    reports = np.sum([part for parts in chosen["serial"] for part in parts], axis=0)
    assert name == "infer" or min(reports) < CLIENTS, "devices chose coordinates"
