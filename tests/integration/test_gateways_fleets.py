"""Every algorithm over three gateways, of emulated, simulated and MQTT boards, counts what was reported.

Flower carries bytes and knows of no algorithm: these runs go over it with --exhaustive, one always
(`test_gateways_soak.py`).

What the devices with keys told is counted again by one aggregator with one store that has all of these keys and all of
their reports; what the simulated ones told is what a simulated fleet tells that is asked the same without a gateway.
"""

import shutil
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import numpy as np
import pytest
import rig
from harness.gateways import recounted
from harness.local_gateways import gateways
from harness.raw_client import wait_for

from tern import card as cards
from ternhost.count.questions import decode_body, question_of
from ternhost.count.rounds import Cohort
from ternhost.datasets import load
from ternhost.errors import OK
from ternhost.privacy.accounting import Policy
from ternhost.provision.boards import board_directories, new_keys, provision_board
from ternhost.reach.broker import configuration
from ternhost.reach.broker.attach import attach
from ternhost.reach.broker.mosquitto import Mosquitto, free_port
from ternhost.reach.gateway.flower.files import write_gateways
from ternhost.reach.gateway.site_fleet import SiteFleet
from ternhost.reach.simulated.driver import SimulatedDriver
from ternhost.run.result import exit_code
from ternhost.run.status import Watcher
from ternhost.store.store import Store
from terntools.emulators.micropython import find_micropython
from terntools.emulators.unix_fleet import EmulatedFleet

CLIENTS = 10
ALL = 3 * CLIENTS
MADE = {"dataset": "iris", "clients": CLIENTS, "budget": "1000", "largest": "100"}
SITES = {
    "emulated": {**MADE, "fleet": "emulated:2", "first_id": 1, "single_results": True},
    "simulated": {**MADE, "fleet": f"simulated:{CLIENTS}", "first_id": 101, "single_results": True},
}
IRIS = {"dataset": "iris"}
RUNS = {
    "fedsgd": ("fedsgd", {**IRIS, "epsilon": "4", "reports": ALL, "group": ALL // 2}),
    "personalised": ("fedsgd", {**IRIS, "epsilons": "1:0.5,4:0.5", "reports": ALL, "group": ALL}),
    "fedavg": ("fedavg", {**IRIS, "epsilon": "8", "clients": ALL, "records": 1, "rounds": 2, "share": 0.5}),
    "hiera": ("hiera", {**IRIS, "epsilon": "9", "budgets": "3,2,1", "reports": ALL, "group": ALL}),
    "collect": ("collect", {**IRIS, "epsilon": "8", "clients": ALL}),
    "label": ("infer", {**IRIS, "answer": "label", "epsilon": "4"}),
    "vector": ("infer", {**IRIS, "answer": "vector", "epsilon": "20"}),
}


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
        stack.enter_context(gateways(place, {**SITES, "mqtt": mqtt}, serve=serve))
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
    simulated = SiteFleet(**SITES["simulated"])
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


@pytest.mark.parametrize("name", RUNS)
def test_every_algorithm_over_gateways_of_every_kind(beside, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    count(f"local:{beside}", beside, tmp_path, name)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", RUNS)
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
