"""The commands for a fleet on a broker, as users call them."""

import signal
import urllib.request

import pytest
import rig
from benchmarks import ingest
from harness.arena import CARD, D, K
from harness.raw_client import wait_for

from ternhost.provision import keys
from ternhost.reach.broker.mosquitto import Mosquitto, free_port
from terntools.boards.attach import attach
from terntools.emulators.unix_fleet import EmulatedFleet


def two_boards(directory, micropython):
    """Provision two boards of three clients, not yet on a broker; return (path of the store,
    boards).
    """
    site = rig.make_site(directory, micropython, 6, 2, largest=4_000_000, budget=40_000_000)
    keys.fleet_key(site.store)
    site.store.close()
    (directory / "card").write_bytes(CARD)
    return site.store.path, site.directories


@pytest.fixture
def fleet(tmp_path, micropython):
    return two_boards(tmp_path, micropython)


def serve(path, broker, *words):
    """`tern serve` for these boards, as a process."""
    words = ("--dimension", D, "--card", path.parent / "card", "--k", K, *words)
    return rig.Train(
        "--store", path, "--fleet", f"mqtt:{broker}", *words, cwd=path.parent, command="serve"
    )


@pytest.fixture
def serving():
    """`serve`, whose processes end with the test, however it ends."""
    hosts = []

    def begin(*words):
        hosts.append(serve(*words))
        return hosts[-1]

    yield begin
    for host in hosts:
        if host.process.poll() is None:
            host.process.kill()
            host.process.communicate()


def test_serve_prints_rounds_and_serves_metrics(fleet, micropython, serving):
    path, boards = fleet
    broker, metrics = path.parent / "broker", free_port()
    rig.tern("broker", "config", broker, "--store", path, "--port", free_port(), code=0)
    attach(boards, broker, path)
    with Mosquitto(broker), EmulatedFleet(micropython, boards):
        host = serving(path, broker, "--interval", "1", "--metrics", metrics)

        def scrape():
            try:
                with urllib.request.urlopen(
                    f"http://127.0.0.1:{metrics}/metrics", timeout=60
                ) as answer:
                    lines = answer.read().decode().splitlines()
            except OSError:
                return None
            values = dict(line.rsplit(" ", 1) for line in lines if line.startswith("tern_"))
            return values if float(values.get("tern_rounds_ended", 0)) >= 1 else None

        values = {name: float(value) for name, value in wait_for(scrape).items()}
        host.signal(signal.SIGINT)
        out, _ = host.finish()
    assert values['tern_boards_by_state{state="online"}'] == 2
    assert values["tern_connected"] == 1
    assert values['tern_frames_total{fate="accepted"}'] >= 6
    rounds, cost = values["tern_rounds_ended"], values["tern_report_epsilon"]
    spent = 40 - values["tern_budget_left_least_epsilon"]
    assert abs(spent - rounds * cost) <= cost, "the store is read a little later"
    assert "round 1: 6 of 6 reports" in out
    assert "this run protects a device with all of its records with epsilon " in out


def test_the_benchmark_of_ingestion_loses_and_doubles_no_report():
    result = ingest.run(6_400, batch=32)  # 200 frames
    for mistake in ("lost", "counted_twice", "not_counted", "not_as_sent"):
        assert result[mistake] == 0
    assert result["duplicates"] > 0, "every hundredth frame is sent twice"
    assert result["stored_bytes_per_report"] <= 8
