"""Every algorithm over gateways has the counts of one host that asks the same devices, cell for
cell.

The "drawn" boards take their random bytes from the request: to the same request, a device makes the
same report. So a run over three gateways and one over a single host with all their boards must
agree, round by round.

Other gateways have emulated boards, simulated clients and boards on a broker. One aggregator, with
all keys and all reports of the boards, counts their reports again; a simulated fleet without a
gateway gives the counts of the simulated clients.
"""

import hashlib
import shutil
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import reduce

import numpy as np
import pytest
import rig
from harness.gateways import recounted
from harness.in_process import InProcess, InProcessLink
from harness.running_gateways import gateways

from tern import card as cards
from tern.entropy import Stream
from terngateway.site_fleet import SiteFleet
from ternhost.count.questions import decode_body, question_of
from ternhost.count.rounds import StoredCohort
from ternhost.datasets import load
from ternhost.errors import OK, RefusedError
from ternhost.privacy.accounting import Policy
from ternhost.provision.boards import board_directories, new_keys, provision_board
from ternhost.reach.broker import configuration
from ternhost.reach.broker.mosquitto import Mosquitto, free_port
from ternhost.reach.fleet import KINDS
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
    """Random bytes derived from a frame."""

    state = 1

    def __init__(self, frame):
        super().__init__(bytearray(4096))
        self._frame, self._pools = bytes(frame), 0

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
    form, about = "drawn:N", "boards in this process whose random bytes follow from the request"

    def boards(self, directories, modules=(), whole=False):
        return Ports([f"drawn:{directory}" for directory in directories])


SCHEMES.register("drawn", DrawnLink)
KINDS.register("drawn", DrawnBoards)

IRIS = {"dataset": "iris"}
OWN = {"dimension": 5}  # the server need not know the data of devices
GROUPS = {"reports": ALL, "group": ALL // 2}
RUNS = {
    "fedsgd logistic": ("fedsgd", {**IRIS, **GROUPS, "epsilon": "4"}),
    "fedsgd linear": ("fedsgd", {**OWN, **GROUPS, "model": "linear", "epsilon": "4"}),
    "fedsgd svm": ("fedsgd", {**IRIS, **GROUPS, "model": "svm", "epsilon": "4", "k": 2}),
    "fedsgd softmax": ("fedsgd", {**IRIS, **GROUPS, "model": "softmax", "epsilon": "4"}),
    "fedsgd personalised": ("fedsgd", {**IRIS, **GROUPS, "epsilons": "1:0.5,4:0.5"}),
    "fedsgd projection": ("fedsgd", {**IRIS, **GROUPS, "epsilon": "4", "mechanism": "projection"}),
    "direct": ("direct", {**IRIS, "reports": ALL, "epsilon": "4"}),
    "direct personalised": (
        "direct",
        {**IRIS, "reports": ALL, "epsilons": "1:0.5,4:0.5", "then": "fedsgd"},
    ),
    "fedavg": (
        "fedavg",
        {**IRIS, "epsilon": "8", "clients": ALL, "records": 1, "rounds": 2, "share": 0.5},
    ),
    "fedavg softmax": (
        "fedavg",
        {
            **IRIS,
            "model": "softmax",
            "epsilon": "8",
            "clients": ALL,
            "records": 1,
            "rounds": 2,
            "share": 0.5,
        },
    ),
    "fedavg of the paper": (
        "fedavg",
        {
            **IRIS,
            "choices": "epsilon1,tau3",
            "clients": ALL,
            "records": 1,
            "rounds": 2,
            "share": 0.5,
        },
    ),
    "collect values": ("collect", {**IRIS, "epsilon": "8", "clients": ALL}),
    "collect personalised": ("collect", {**IRIS, "choices": "0.5:1:0.5,1:4:0.5"}),
    "collect categories": ("collect", {"dataset": "flights-table", "epsilon": "1", "clients": ALL}),
    "infer label": ("infer", {**IRIS, "answer": "label", "epsilon": "4"}),
    "infer vector": ("infer", {**IRIS, "answer": "vector", "epsilon": "20"}),
    "infer personalised": ("infer", {**IRIS, "answer": "label", "epsilons": "1:0.5,4:0.5"}),
}


def runs_of(name):
    """The options of each gateway for a run of that name."""
    dataset = RUNS[name][1].get("dataset", "iris")
    options = {
        "fleet": "drawn:2",
        "dataset": dataset,
        "clients": CLIENTS,
        "budget": "1000",
        "largest": "100",
    }
    options["classes"] = "softmax" in name or "infer" in name
    return {
        site: {**options, "first_id": 1 + 100 * i, "single_results": name == "infer vector"}
        for i, site in enumerate(SITES)
    }


def one_host(sites, directory):
    """Give one host copies of all boards of the gateways, and their keys; return (fleet, path of
    its store).
    """
    boards = []
    with Store(directory / "store.sqlite") as store:
        for site in SITES:
            with Store(sites / site / "store.sqlite", beside=True) as site_store:
                store.add_devices(site_store.keys())
            shutil.copytree(sites / site / "fleet", directory / site / "fleet")
            boards += board_directories(directory / site, 2)
    return "port:" + ",".join(f"drawn:{board}" for board in boards), directory / "store.sqlite"


def ran(name, fleet, store=None):
    """Run; return the result, and the counts of each round and cohort in its store."""
    algorithm, options = RUNS[name]
    warnings = []
    watcher = Watcher(warn=warnings.append)
    with rig.begin(
        algorithm, **options, fleet=fleet, store=store, watcher=watcher, name=fleet[:4]
    ) as run:
        result = run.run()
        assert warnings == []
        tallies = [
            (row.number, i, tally.body, tally.asked, tally.reports, numbers(tally))
            for row in run.store.rounds()
            for i, tally in enumerate(run.store.tallies(row.number))
        ]
    return result, tallies


def numbers(cohort):
    """The counts of a cohort, and of a projection the vectors that its symbols stand for."""
    return cohort.counts.tolist(), None if cohort.vectors is None else cohort.vectors.tolist()


# Members of a result in which equal runs differ.
DIFFERENT = (
    "name",
    "directory",
    "store",
    "seconds",
    "reports_per_second",
    "fleet",
    "options",
    "run",
    "toward_server",
)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", RUNS)
def test_a_run_over_three_gateways_equals_a_run_over_one_host(here, name):
    sites = here / "sites"
    (here / "one").mkdir()
    with gateways(sites, runs_of(name)):
        pass  # makes the boards
    expected, expected_tallies = ran(name, *one_host(sites, here / "one"))
    with gateways(sites, runs_of(name)):
        result, tallies = ran(name, f"gateways:{sites}")
    assert exit_code(result) == exit_code(expected) == OK
    assert result["reports"] == expected["reports"] >= ALL
    assert tallies == expected_tallies != []
    same = result.keys() - {*DIFFERENT}
    assert {key: result[key] for key in same if result[key] != expected[key]} == {}
    for site in SITES:
        ledgers = rig.read_ledgers(board_directories(sites / site, 2))
        assert ledgers == rig.read_ledgers(board_directories(here / "one" / site, 2))
        assert len(ledgers) == CLIENTS


def test_vectors_are_refused_where_gateways_do_not_pass_on_single_results(here):
    runs = {
        site: {**options, "single_results": False}
        for site, options in runs_of("infer vector").items()
    }
    warnings = []
    fleet, watcher = f"gateways:{here}/sites", Watcher(warn=warnings.append)
    with (
        gateways(here / "sites", runs),
        pytest.raises(RefusedError, match="single devices") as problem,
    ):
        rig.finish("infer", **RUNS["infer vector"][1], fleet=fleet, watcher=watcher)
    assert "--single-results" in problem.value.hint
    assert sum("the round goes on without it" in warning for warning in warnings) == 3


# Gateways of every kind

OPTIONS = {
    "dataset": "iris",
    "clients": CLIENTS,
    "budget": "1000",
    "largest": "100",
    "single_results": True,
}
MADE = {
    "emulated": {**OPTIONS, "fleet": "emulated:2", "first_id": 1},
    "simulated": {**OPTIONS, "fleet": f"simulated:{CLIENTS}", "first_id": 101},
}
SOME = [
    *("fedsgd logistic", "fedsgd personalised", "direct", "fedavg"),
    *("collect values", "infer label", "infer vector"),
]


@contextmanager
def running(place):
    """Run three gateways below `place`."""
    if shutil.which("mosquitto") is None:
        pytest.skip("mosquitto is not installed")
    site, ids = place / "mqtt", range(201, 201 + CLIENTS)
    keys, data = new_keys(ids), load("iris")
    rows = data.records(data.training)[20 : 20 + CLIENTS]
    (board,) = board_directories(site, 1)
    with Store(site / "keys.sqlite") as store:
        store.add_devices(keys)
    provision_board(
        board, ids.start, [keys[device] for device in ids], rows, Policy(10**8, 9 * 10**8)
    )
    configuration.configure(site / "broker", site / "keys.sqlite", port=free_port())
    attach([board], site / "broker", site / "keys.sqlite", longest_pause_ms=500)
    mqtt = {"fleet": f"mqtt:{site / 'broker'}", "single_results": True}
    with ExitStack() as stack:
        stack.enter_context(Mosquitto(site / "broker"))
        stack.enter_context(EmulatedFleet(find_micropython(), [board]))
        stack.enter_context(gateways(place, {**MADE, "mqtt": mqtt}))
        yield


@pytest.fixture(scope="module")
def beside(tmp_path_factory):
    """The directory of three running gateways."""
    place = tmp_path_factory.mktemp("beside")
    with running(place):
        yield place


def counted_by_one(place, row, directory):
    """The numbers of a round's cohorts, by one host that has every key and every report."""
    path = directory / f"one-{row.number}.sqlite"
    site = SiteFleet(**MADE["simulated"])
    seed = site.seed + (site.first_id << 32)
    driver = SimulatedDriver(site.holdings(), CLIENTS, seed, first=site.first_id)
    cohorts = [(cohort.body, np.asarray(cohort.devices, np.int64)) for cohort in row.cohorts]
    is_simulated = [np.isin(ids, driver.devices) for _, ids in cohorts]
    real = [
        StoredCohort(body, ids[~s]) for (body, ids), s in zip(cohorts, is_simulated, strict=True)
    ]
    stores = [
        Store(place / name, beside=True) for name in ("emulated/store.sqlite", "mqtt/keys.sqlite")
    ]
    result = recounted(path, stores, [replace(row, cohorts=[c for c in real if len(c.devices)])])
    counted = iter(result[row.number].cohorts)
    simulated = [
        (body, np.sort(ids[s])) for (body, ids), s in zip(cohorts, is_simulated, strict=True)
    ]
    driver.open(
        row.number, [(question_of(decode_body(body)), ids) for body, ids in simulated if len(ids)]
    )
    drawn = iter(driver.collect(row.number).cohorts)
    sources = [[counted] * (not s.all()) + [drawn] * bool(s.any()) for s in is_simulated]
    return [numbers(reduce(merged, map(next, some))) for some in sources]


def merged(one, other):
    vectors = None if one.vectors is None else one.vectors + other.vectors
    return replace(one, counts=one.counts + other.counts, vectors=vectors)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", SOME)
def test_gateways_of_every_kind_count_what_one_host_counts(beside, here, name):
    count(f"gateways:{beside}", beside, here, name)


def count(fleet, federation, tmp_path, name):
    """Run an algorithm over gateways, and count the reports of their devices again."""
    algorithm, options = RUNS[name]
    boards = [
        *board_directories(federation / "emulated", 2),
        *board_directories(federation / "mqtt", 1),
    ]
    before, warnings = rig.read_ledgers(boards), []
    where = {"fleet": fleet, "store": tmp_path / "server.sqlite"}
    with rig.begin(algorithm, **options, **where, watcher=Watcher(warn=warnings.append)) as run:
        result = run.run()
        rounds = [(row, run.store.tallies(row.number)) for row in run.store.rounds()]
    assert exit_code(result) == OK
    # Each run has a store of its own, and the gateways have been asked before, so that their boards
    # have paid.
    expected = (
        "gateways were asked round",
        "boards have paid for rounds that this store does not know",
    )
    assert all(warning.startswith(expected) for warning in warnings)
    assert len(warnings) <= 2
    assert result["reports"] == ALL
    cost = dict.fromkeys(before, 0)
    for row, tallies in rounds:
        assert [numbers(tally) for tally in tallies] == counted_by_one(federation, row, tmp_path)
        for cohort in row.cohorts:
            question = decode_body(cohort.body)
            price = cards.decode(bytes(question.card)).epsilon * (
                1 if algorithm == "infer" else question.k
            )
            for device in cohort.devices:
                if device in cost:
                    cost[device] += price
    after = rig.read_ledgers(boards)
    assert {device: after[device][0] - before[device][0] for device in before} == cost
