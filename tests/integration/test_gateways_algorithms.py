"""Every algorithm over gateways counts what one host counts that asks the same devices, cell for cell.

The boards of this file draw by what they are asked: the same device, asked the same, reports the same. So a whole run
over three gateways and one over a single host that has all the boards must be the same run, round by round.
"""

import hashlib
import shutil
from contextlib import contextmanager

import pytest
import rig
from harness.in_process import InProcess, InProcessLink
from harness.local_gateways import gateways

from tern.entropy import Stream
from ternhost.errors import OK, RefusedError
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
