"""Every algorithm over gateways has the counts of one host that asks the same devices, cell for cell.

The "drawn" boards take their random bytes from the request: to the same request, a device makes the
same report. So a run over three gateways and one over a single host with all their boards must
agree, round by round. Of emulated boards, test_soak.py shows the same: their gateways count what one
aggregator with all keys and all reports counts.
"""

import hashlib
import shutil

import pytest
import rig
from harness.in_process import InProcess, InProcessLink
from harness.running_gateways import gateways

from tern.entropy import Stream
from ternhost.errors import OK
from ternhost.provision.boards import board_directories
from ternhost.reach.fleet import KINDS
from ternhost.reach.links import SCHEMES
from ternhost.reach.ports.fleet import Ports
from ternhost.run.result import exit_code
from ternhost.run.status import Watcher
from ternhost.store.store import Store

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

IRIS = {"data": "iris"}
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
    "fedavg personalised": ("fedavg", {**AVERAGING, "epsilons": "1.8:2:0.5,2:4:0.5"}),
    "collect values": ("values", {**IRIS, "epsilon": "8", "clients": ALL}),
    "collect categories": ("values", {"data": "flights-table", "epsilon": "1", "clients": ALL}),
    "collect quantiles": ("quantiles", {**IRIS, "epsilon": "1", "bins": 64, "clients": ALL}),
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
        "data": options_of(name).get("data", "iris"),
        "budget": "1000",
        "single_results": single_results and name == "infer vector",
    }
    return {
        name: {**site, "ids": f"{100 * i + 1}-{100 * i + CLIENTS}"} for i, name in enumerate(SITES)
    }


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
