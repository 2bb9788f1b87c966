"""Every algorithm over gateways has the counts of one host that asks the same devices, cell for cell.

The "drawn" boards take their random bytes from the request: to the same request, a device makes the
same report. So a run over three gateways and one over a single host with all their boards must
agree, round by round. Gateways with emulated boards, and with boards on a broker, are compared with
one aggregator that has all keys and all reports.
"""

import hashlib
import shutil
from collections import Counter
from contextlib import ExitStack

import pytest
import rig
from harness import kept
from harness.gateways import recounted
from harness.in_process import InProcess, InProcessLink
from harness.running_gateways import gateways

from tern import card as cards
from tern import wire
from tern.entropy import Stream
from ternhost.count.questions import decode_body
from ternhost.datasets import load
from ternhost.errors import OK
from ternhost.privacy.accounting import Policy
from ternhost.provision.boards import board_directories, new_keys, provision_board
from ternhost.reach.broker import configuration
from ternhost.reach.broker.mosquitto import Mosquitto, free_port
from ternhost.reach.fleet import KINDS
from ternhost.reach.links import SCHEMES
from ternhost.reach.ports.fleet import Ports
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
        self._frame = bytes(frame)
        self._refills = 0

    def refill(self):
        left = self.pool[self.cursor[0] : self.cursor[1]]
        self._refills += 1
        fresh = hashlib.shake_256(self._frame + bytes([self._refills])).digest(2048)
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
SGD = {**IRIS, "reports": ALL, "group": ALL // 2, "epsilon": "4"}  # two rounds of half of them
TWO_EPSILONS = {"epsilons": "1:0.5,4:0.5"}  # each of half of the devices
AVERAGING = {**IRIS, "clients": ALL, "records": 1, "rounds": 2, "share": 0.5}
RUNS = {
    "fedsgd logistic": ("fedsgd", {**SGD, "k": 2}),
    "fedsgd softmax": ("fedsgd", {**SGD, "model": "softmax"}),
    "fedsgd personalised": ("fedsgd", {**IRIS, "reports": ALL, "group": ALL // 2, **TWO_EPSILONS}),
    "fedsgd projection": ("fedsgd", {**SGD, "mechanism": "projection"}),
    "direct": ("direct", {**IRIS, "reports": ALL, "epsilon": "4"}),
    "fedavg": ("fedavg", {**AVERAGING, "epsilon": "8"}),
    "fedavg of the paper": ("fedavg", {**AVERAGING, "choices": "epsilon1,tau3"}),
    "collect values": ("collect", {**IRIS, "epsilon": "8", "clients": ALL}),
    "collect categories": ("collect", {"dataset": "flights-table", "epsilon": "1", "clients": ALL}),
    "infer vector": ("infer", {**IRIS, "answer": "vector", "epsilon": "20"}),
    "infer personalised": ("infer", {**IRIS, "answer": "label", **TWO_EPSILONS}),
}


def options_of(name):
    """The options of a run of that name."""
    return dict(RUNS[name][1])


def sites_for(name, single_results=True):
    """The options of each gateway for a run of that name."""
    site = {
        "fleet": "drawn:2",
        "dataset": options_of(name).get("dataset", "iris"),
        "clients": CLIENTS,
        "budget": "1000",
        "largest": "100",
        "classes": "softmax" in name or "infer" in name,
        "single_results": single_results and name == "infer vector",
    }
    return {name: {**site, "first_id": 1 + 100 * i} for i, name in enumerate(SITES)}


def copied_to_one_host(sites, directory):
    """Give one host copies of all boards and keys of the gateways; return its fleet and store."""
    boards = []
    with Store(directory / "store.sqlite") as store:
        for site in SITES:
            with Store(sites / site / "store.sqlite", beside=True) as site_store:
                store.add_devices(site_store.keys())
            shutil.copytree(sites / site / "fleet", directory / site / "fleet")
            boards += board_directories(directory / site, 2)
    return "port:" + ",".join(f"drawn:{board}" for board in boards), directory / "store.sqlite"


def run(name, fleet, store=None):
    """Run; return the result, and what the store has of each cohort of each round."""
    algorithm, _ = RUNS[name]
    options = {**options_of(name), "fleet": fleet, "store": store, "name": fleet[:4]}
    warnings, cohorts = [], []
    with rig.begin(algorithm, **options, watcher=Watcher(warn=warnings.append)) as begun:
        result = begun.run()
        for row in begun.store.rounds():
            for tally in begun.store.tallies(row.number):
                cohort = {
                    "round": row.number,
                    "question": tally.body,
                    "asked": tally.asked,
                    "reports": tally.reports,
                    "counts": tally.counts.tolist(),
                    "vectors": None if tally.vectors is None else tally.vectors.tolist(),
                }
                cohorts.append(cohort)
    assert warnings == []
    return result, cohorts


# Members of a result in which equal runs differ.
OF_THE_PLACE = {"name", "directory", "store", "fleet", "options", "run"}
OF_THE_CLOCK = {"seconds", "reports_per_second"}
DIFFERENT = OF_THE_PLACE | OF_THE_CLOCK | {"toward_server"}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", RUNS)
def test_a_run_over_three_gateways_equals_a_run_over_one_host(here, name):
    (here / "one").mkdir()
    with gateways(here / "sites", sites_for(name)):
        pass  # makes the boards
    fleet, store = copied_to_one_host(here / "sites", here / "one")

    expected, expected_cohorts = run(name, fleet, store)
    with gateways(here / "sites", sites_for(name)):
        result, cohorts = run(name, f"gateways:{here}/sites")

    assert exit_code(result) == exit_code(expected) == OK
    assert result["reports"] >= ALL
    assert cohorts
    assert cohorts == expected_cohorts
    for member in result.keys() - DIFFERENT:
        assert result[member] == expected[member], member
    for site in SITES:
        ledgers = rig.read_ledgers(board_directories(here / "sites" / site, 2))
        assert len(ledgers) == CLIENTS
        assert ledgers == rig.read_ledgers(board_directories(here / "one" / site, 2))


# Boards that are emulated, and boards on a broker

EMULATED = {"fleet": "emulated:2", "dataset": "iris", "clients": CLIENTS, "first_id": 1}
BUDGET = {"budget": "1000", "largest": "100", "single_results": True}


@pytest.fixture(scope="module")
def real_boards(tmp_path_factory):
    """The directory of two running gateways: `emulated`, and `mqtt` with a board on a broker."""
    if shutil.which("mosquitto") is None:
        pytest.skip("mosquitto is not installed")
    place = tmp_path_factory.mktemp("sites")
    site, ids = place / "mqtt", range(201, 201 + CLIENTS)
    keys, data = new_keys(ids), load("iris")
    (board,) = board_directories(site, 1)
    rows = data.records(data.training)[20 : 20 + CLIENTS]  # not those of the other gateway
    with Store(site / "keys.sqlite") as store:
        store.add_devices(keys)
    policy = Policy(10**8, 9 * 10**8)  # epsilon 100 a report, and 900 in all
    provision_board(board, ids.start, [*keys.values()], rows, policy)
    configuration.configure(site / "broker", site / "keys.sqlite", port=free_port())
    attach([board], site / "broker", site / "keys.sqlite", longest_pause_ms=500)
    sites = {
        "emulated": {**EMULATED, **BUDGET},
        "mqtt": {"fleet": f"mqtt:{site / 'broker'}", "single_results": True},
    }
    with ExitStack() as stack:
        stack.enter_context(Mosquitto(site / "broker"))
        stack.enter_context(EmulatedFleet(find_micropython(), [board]))
        stack.enter_context(gateways(place, sites))
        yield place


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["fedsgd logistic", "direct", "fedavg", "infer vector"])
def test_gateways_of_real_boards_count_what_one_aggregator_counts(real_boards, here, name):
    boards = [
        *board_directories(real_boards / "emulated", 2),
        *board_directories(real_boards / "mqtt", 1),
    ]
    spent_before = kept.spent(boards)
    algorithm, _ = RUNS[name]
    options = options_of(name)
    for option in {"clients", "reports"} & options.keys():
        options[option] = 2 * CLIENTS  # all of both gateways

    with rig.begin(
        algorithm, **options, fleet=f"gateways:{real_boards}", store="host.sqlite"
    ) as begun:
        result = begun.run()
        rounds = begun.store.rounds()
        tallies = {row.number: begun.store.tallies(row.number) for row in rounds}

    assert exit_code(result) == OK
    names = ("emulated/store.sqlite", "mqtt/keys.sqlite")
    stores = [Store(real_boards / name, beside=True) for name in names]
    expected = recounted(here / "recount.sqlite", stores, rounds)
    for row in rounds:
        for tally, cohort in zip(tallies[row.number], expected[row.number].cohorts, strict=True):
            assert tally.counts.tolist() == cohort.counts.tolist()
    costs = costs_of_rounds(rounds)
    for device, spent in kept.spent(boards).items():
        assert spent - spent_before[device] == costs[device]


def costs_of_rounds(rounds):
    """The micro-epsilon that the questions of these rounds cost each device."""
    costs = Counter()
    for row in rounds:
        for cohort in row.cohorts:
            question = decode_body(cohort.body)
            # An answer of a classifier is one vector.
            values = 1 if question.model == wire.SOFTMAX else question.k
            for device in cohort.devices:
                costs[device] += values * cards.decode(bytes(question.card)).epsilon
    return costs
