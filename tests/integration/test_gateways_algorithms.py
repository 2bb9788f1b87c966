"""Every algorithm over gateways counts what one host counts that asks the same devices, cell for cell.

The drawn boards of this file draw by what they are asked: the same device, asked the same, reports the same. So a whole
run over three gateways and one over a single host that has all the boards must be the same run, round by round.

Other devices are emulated boards, simulated clients and boards on a broker, each behind a gateway. What those with keys
told is counted again by one aggregator with one store that has all of these keys and all of their reports; what the
simulated ones told is what a simulated fleet tells that is asked the same without a gateway. Flower carries bytes and
knows of no algorithm: these runs go over it with --exhaustive, one always (`test_gateways_soak.py`).
"""

import hashlib
import shutil
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import numpy as np
import pytest
import rig
from harness.gateways import recounted
from harness.in_process import InProcess, InProcessLink
from harness.local_gateways import gateways
from harness.raw_client import wait_for

from tern import card as cards
from tern.entropy import Stream
from ternhost.count.questions import decode_body, question_of
from ternhost.count.rounds import Cohort
from ternhost.datasets import load
from ternhost.errors import OK, RefusedError
from ternhost.privacy.accounting import Policy
from ternhost.provision.boards import board_directories, new_keys, provision_board
from ternhost.reach.broker import configuration
from ternhost.reach.broker.mosquitto import Mosquitto, free_port
from ternhost.reach.fleet import KINDS
from ternhost.reach.gateway.site_fleet import SiteFleet
from ternhost.reach.links import SCHEMES
from ternhost.reach.ports.fleet import Ports
from ternhost.reach.simulated.driver import SimulatedDriver
from ternhost.run.result import exit_code
from ternhost.run.status import Watcher
from ternhost.store.store import Store
from terntools.boards.attach import attach
from terntools.emulators.micropython import find_micropython
from terntools.emulators.unix_fleet import EmulatedFleet

CLIENTS = 8  # of a gateway
SITES = ("east", "north", "south")
ALL = CLIENTS * len(SITES)


class Drawn(Stream):
    """Random bytes that follow from a frame."""

    state = 1

    def __init__(self, frame):
        super().__init__(bytearray(4096))
        self._frame = bytes(frame)
        self._pools = 0

    def refill(self):
        left = self.pool[self.cursor[0] : self.cursor[1]]
        self._pools += 1
        fresh = hashlib.shake_256(self._frame + bytes([self._pools])).digest(2048)
        self.pool[: len(left) + len(fresh)] = left + fresh
        self.pool.extend(bytes(4096 - len(self.pool)))
        self.cursor[0], self.cursor[1] = 0, len(left) + len(fresh)

    def end_report(self):
        pass


class DrawnLink(InProcessLink):
    def send(self, frame):
        self._client.entropy = Drawn(frame)
        super().send(frame)


class DrawnBoards(InProcess):
    form, about = "drawn:N", "boards in this process that draw by what they are asked"

    def boards(self, directories, modules=(), whole=False):
        return Ports([f"drawn:{directory}" for directory in directories])


SCHEMES.register("drawn", DrawnLink)
KINDS.register("drawn", DrawnBoards)

IRIS = {"dataset": "iris"}
OWN = {"dimension": 5}  # what devices hold is their own business
GROUPS = {"reports": ALL, "group": ALL // 2}
RUNS = {
    "fedsgd logistic": ("fedsgd", {**IRIS, **GROUPS, "epsilon": "4"}),
    "fedsgd linear": ("fedsgd", {**OWN, **GROUPS, "model": "linear", "epsilon": "4"}),
    "fedsgd svm": ("fedsgd", {**IRIS, **GROUPS, "model": "svm", "epsilon": "4", "k": 2}),
    "fedsgd softmax": ("fedsgd", {**IRIS, **GROUPS, "model": "softmax", "epsilon": "4"}),
    "fedsgd personalised": ("fedsgd", {**IRIS, **GROUPS, "epsilons": "1:0.5,4:0.5"}),
    "fedavg": ("fedavg", {**IRIS, "epsilon": "8", "clients": ALL, "records": 1, "rounds": 2, "share": 0.5}),
    "hiera": ("hiera", {**IRIS, "epsilon": "9", "budgets": "3,2,1", "reports": ALL, "group": ALL}),
    "collect values": ("collect", {**IRIS, "epsilon": "8", "clients": ALL}),
    "collect personalised": ("collect", {**IRIS, "epsilons": "1:0.5,4:0.5"}),
    "collect categories": ("collect", {"dataset": "flights-table", "epsilon": "1", "clients": ALL}),
    "infer label": ("infer", {**IRIS, "answer": "label", "epsilon": "4"}),
    "infer vector": ("infer", {**IRIS, "answer": "vector", "epsilon": "20"}),
    "infer personalised": ("infer", {**IRIS, "answer": "label", "epsilons": "1:0.5,4:0.5"}),
}


def runs_of(name):
    """What each gateway runs, for a run of that name."""
    dataset = RUNS[name][1].get("dataset", "iris")
    made = {"fleet": "drawn:2", "dataset": dataset, "clients": CLIENTS, "budget": "1000", "largest": "100"}
    made["classes"] = "softmax" in name or "infer" in name
    return {
        site: {**made, "first_id": 1 + 100 * i, "single_results": name == "infer vector"}
        for i, site in enumerate(SITES)
    }


@contextmanager
def one_host(sites, place):
    """(fleet, store) of one host that has copies of the gateways' boards, and all their keys."""
    boards = []
    with Store(place / "store.sqlite") as store:
        for site in SITES:
            with Store(sites / site / "store.sqlite", beside=True) as own:
                store.add_devices(own.keys())
            shutil.copytree(sites / site / "fleet", place / site / "fleet")
            boards += board_directories(place / site, 2)
    yield "port:" + ",".join(f"drawn:{board}" for board in boards), place / "store.sqlite"


def ran(name, fleet, store=None):
    """The result of a run, and what its store has of its rounds."""
    algorithm, options = RUNS[name]
    told = []
    watcher = Watcher(warn=told.append)
    with rig.begin(algorithm, **options, fleet=fleet, store=store, watcher=watcher, name=fleet[:4]) as run:
        result = run.run()
        assert told == []
        rounds = [asked.number for asked in run.store.rounds()]
        tallies = [
            (number, i, own.body, own.asked, own.reports, own.counts.tolist())
            for number in rounds
            for i, own in enumerate(run.store.tallies(number))
        ]
    return result, tallies


# Of a result, what differs from one run to the other though all is the same.
OTHER = ("name", "directory", "store", "seconds", "reports_per_second", "fleet", "options", "run")


@pytest.mark.parametrize("name", RUNS)
def test_a_run_over_three_gateways_is_that_of_one_host(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    sites = tmp_path / "sites"
    (tmp_path / "one").mkdir()
    with gateways(sites, runs_of(name)):
        pass  # the boards are made
    with one_host(sites, tmp_path / "one") as (fleet, store):
        expected, cells = ran(name, fleet, store)
    with gateways(sites, runs_of(name)):
        result, found = ran(name, f"local:{sites}")
    assert exit_code(result) == exit_code(expected) == OK
    assert result["reports"] == expected["reports"] >= ALL
    assert len(found) == len(cells) > 0
    assert found == cells
    same = result.keys() - {key for key in result if key in OTHER}
    assert {key: result[key] for key in same if result[key] != expected[key]} == {}
    for site in SITES:
        ledgers = rig.read_ledgers(board_directories(sites / site, 2))
        alone = rig.read_ledgers(board_directories(tmp_path / "one" / site, 2))
        assert ledgers == alone
        assert len(ledgers) == CLIENTS


def test_vectors_are_refused_where_gateways_do_not_pass_on_single_results(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runs = {site: {**own, "single_results": False} for site, own in runs_of("infer vector").items()}
    told = []
    watcher = Watcher(warn=told.append)
    options = RUNS["infer vector"][1]
    with gateways(tmp_path / "sites", runs), pytest.raises(RefusedError, match="single devices") as problem:
        rig.finish("infer", **options, fleet=f"local:{tmp_path / 'sites'}", watcher=watcher)
    assert "--single-results" in problem.value.hint
    assert sum("the round goes on without it" in warning for warning in told) == 3


# Gateways of every kind

OPTIONS = {"dataset": "iris", "clients": CLIENTS, "budget": "1000", "largest": "100", "single_results": True}
MADE = {
    "emulated": {**OPTIONS, "fleet": "emulated:2", "first_id": 1},
    "simulated": {**OPTIONS, "fleet": f"simulated:{CLIENTS}", "first_id": 101},
}
SOME = [
    *("fedsgd logistic", "fedsgd personalised", "fedavg", "hiera"),
    *("collect values", "infer label", "infer vector"),
]


@contextmanager
def running(place, serve=None):
    """Three gateways below `place`; serve: what brings questions to them, by default a socket of each."""
    if shutil.which("mosquitto") is None:
        pytest.skip("mosquitto is not installed")
    site = place / "mqtt"
    ids = range(201, 201 + CLIENTS)
    keys = new_keys(ids)
    data = load("iris")
    rows = data.records(data.training)[20 : 20 + CLIENTS]
    (board,) = board_directories(site, 1)
    with Store(site / "keys.sqlite") as store:
        store.add_devices(keys)
    provision_board(board, ids.start, [keys[device] for device in ids], rows, Policy(10**8, 9 * 10**8))
    configuration.configure(site / "broker", site / "keys.sqlite", port=free_port())
    attach([board], site / "broker", site / "keys.sqlite", longest_pause_ms=500)
    mqtt = {"fleet": f"mqtt:{site / 'broker'}", "single_results": True}
    with ExitStack() as stack:
        stack.enter_context(Mosquitto(site / "broker"))
        stack.enter_context(EmulatedFleet(find_micropython(), [board]))
        stack.enter_context(gateways(place, {**MADE, "mqtt": mqtt}, serve=serve))
        yield


@pytest.fixture(scope="module")
def beside(tmp_path_factory):
    """The directory of three gateways that run, each behind a socket of this machine."""
    place = tmp_path_factory.mktemp("beside")
    with running(place):
        yield place


@pytest.fixture(scope="module")
def over_flower(tmp_path_factory):
    """The directory of three gateways that run, with Flower's SuperLink between them and the host."""
    pytest.importorskip("flwr")
    from ternhost.reach.gateway.flower import serve_site, superlink
    from ternhost.reach.gateway.flower.files import write_gateways

    place = tmp_path_factory.mktemp("federation")
    server = write_gateways(place, ["emulated:1-100", "simulated:101-200", "mqtt:201-300"], port=free_port())
    with superlink(server) as link, running(place, serve_site):
        wait_for(lambda: list(link.sites.values()) == [True] * 3, 120)
        yield place


def stores(place):
    return [
        Store(path, beside=True) for path in (place / "emulated/store.sqlite", place / "mqtt/keys.sqlite")
    ]


def counted_by_one(place, asked, directory):
    """The cohorts of a round, as one host counts them that has every key and every report."""
    path = directory / f"one-{asked.number}.sqlite"
    simulated = SiteFleet(**MADE["simulated"])
    driver = SimulatedDriver(
        simulated.holdings(), CLIENTS, simulated.seed + (simulated.first_id << 32), first=simulated.first_id
    )
    parts = [(cohort.body, np.asarray(cohort.devices, np.int64)) for cohort in asked.cohorts]
    made = np.isin
    bodies = [(body, ids[~made(ids, driver.devices)]) for body, ids in parts]
    real = [Cohort(body, ids) for body, ids in bodies if len(ids)]
    result = recounted(path, stores(place), [replace(asked, cohorts=real)])[asked.number]
    told = [cohort.counts for cohort in result.cohorts]
    counts = [told.pop(0) if len(ids) else 0 for _, ids in bodies]
    mine = [(body, np.sort(ids[made(ids, driver.devices)])) for body, ids in parts]
    driver.open(asked.number, [(question_of(decode_body(body)), ids) for body, ids in mine if len(ids)])
    told = [cohort.counts for cohort in driver.collect(asked.number).cohorts]
    return [own + (told.pop(0) if len(ids) else 0) for own, (_, ids) in zip(counts, mine, strict=True)]


@pytest.mark.parametrize("name", SOME)
def test_every_algorithm_over_gateways_of_every_kind(beside, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    count(f"local:{beside}", beside, tmp_path, name)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", SOME)
def test_every_algorithm_over_flower(over_flower, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    count(f"flower:{over_flower}", over_flower, tmp_path, name)


def count(fleet, federation, tmp_path, name):
    """Run an algorithm over gateways, and count again what their devices have reported."""
    algorithm, options = RUNS[name]
    before = rig.read_ledgers(
        [*board_directories(federation / "emulated", 2), *board_directories(federation / "mqtt", 1)]
    )
    warnings = []
    with rig.begin(
        algorithm,
        **options,
        fleet=fleet,
        store=tmp_path / "server.sqlite",
        watcher=Watcher(warn=warnings.append),
    ) as run:
        result = run.run()
        rounds = [(asked, run.store.tallies(asked.number)) for asked in run.store.rounds()]
    assert exit_code(result) == OK
    # Each run has a store of its own, and the gateways have been asked before.
    assert all(own.startswith("gateways were asked round") for own in warnings)
    assert len(warnings) <= 1
    assert result["reports"] == ALL
    cost = dict.fromkeys(before, 0)
    for asked, tallies in rounds:
        found = [tally.counts.tolist() for tally in tallies]
        assert found == [counts.tolist() for counts in counted_by_one(federation, asked, tmp_path)]
        for cohort in asked.cohorts:
            question = decode_body(cohort.body)
            price = cards.decode(bytes(question.card)).epsilon * (1 if algorithm == "infer" else question.k)
            for device in cohort.devices:
                if device in cost:
                    cost[device] += price
    after = rig.read_ledgers(
        [*board_directories(federation / "emulated", 2), *board_directories(federation / "mqtt", 1)]
    )
    assert {device: after[device][0] - before[device][0] for device in before} == cost
