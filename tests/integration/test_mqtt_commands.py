"""The commands for a fleet on a broker, as users call them."""

import signal
import stat
import urllib.request

import pytest
import rig
from benchmarks import ingest
from harness.arena import CARD, D, K
from harness.raw_client import RawClient, board_client, wait_for

from ternhost.provision import keys
from ternhost.reach.broker.mosquitto import Mosquitto, free_port
from ternhost.store.store import Store
from terntools.boards.attach import attach
from terntools.emulators.unix_fleet import EmulatedFleet


def test_device_commands_add_rotate_list_and_revoke_keys(tmp_path):
    path, new = tmp_path / "store.sqlite", tmp_path / "new"
    where = ("--store", path)
    added = rig.tern("device", "add", "1-3", 9, *where, "--keys", new, "--json").json["added"]
    assert added == [1, 2, 3, 9]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    files = {file.name: file for file in new.iterdir()}
    assert sorted(files) == ["00000001.key", "00000002.key", "00000003.key", "00000009.key"]
    with Store(path) as store:
        assert store.keys() == {
            int(name[:8], 16): file.read_bytes() for name, file in files.items()
        }
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in files.values())
    old = files["00000002.key"].read_bytes()
    rig.tern("device", "rotate", 2, *where, "--keys", new, code=0)
    assert files["00000002.key"].read_bytes() != old
    rig.tern("device", "revoke", 1, *where, code=0)
    devices = rig.tern("device", "list", *where, "--json").json["devices"]
    revoked = [(device["id"], device["revoked"] is not None) for device in devices]
    assert revoked == [(1, True), (2, False), (3, False), (9, False)]
    assert "device 1 has no key" in rig.tern("device", "revoke", 1, *where, code=2).err
    assert "device 1 had a key before" in rig.tern("device", "add", 1, 4, *where, code=0).err
    assert "'x' is not a device" in rig.tern("device", "add", "x", *where, code=2).err
    assert (
        "there is no store" in rig.tern("device", "list", "--store", tmp_path / "none", code=2).err
    )


def test_a_broker_admits_devices_with_keys_and_refuses_revoked_ones(tmp_path):
    path = tmp_path / "store.sqlite"
    rig.tern("device", "add", "1-2", "--store", path, code=0)
    config = (
        "broker",
        "config",
        tmp_path / "broker",
        "--store",
        path,
        "--port",
        free_port(),
        "--json",
    )
    result = rig.tern(*config).json
    assert result["devices"] == 2
    assert "password" not in result
    with Store(path) as store:
        old_keys = store.keys()
    with Mosquitto(tmp_path / "broker") as running:
        access = running.access
        assert [board_client(access, old_keys, device).code for device in old_keys] == [0, 0]
        rig.tern("device", "revoke", 2, "--store", path, code=0)
        rig.tern("device", "rotate", 1, "--store", path, code=0)
        rig.tern(*config, code=0)
        running.reload()
        wait_for(lambda: board_client(access, old_keys, 2).code == 5)
        assert board_client(access, old_keys, 1).code == 5
        with Store(path) as store:
            assert board_client(access, store.keys(), 1).code == 0
        assert RawClient(access, access.user, access.password).code == 0


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
    assert values["tern_boards"] == values['tern_boards_by_state{state="online"}'] == 2
    assert values["tern_connected"] == 1
    rounds, cost = values["tern_rounds_ended"], values["tern_report_epsilon"]
    spent = 40 - values["tern_budget_left_least_epsilon"]
    assert (rounds - 1) * cost <= spent <= (rounds + 1) * cost, "the store is read a little later"
    assert values['tern_frames_total{fate="accepted"}'] >= 6
    assert "round 1: 6 of 6 reports, 0 refusals, complete; 2 boards" in out
    assert "reports of" in out.splitlines()[-4]
    assert out.splitlines()[-2].startswith("gradients were clipped to +-")
    assert out.splitlines()[-1].startswith(
        "this run protects a device with all of its records with epsilon "
    )


def test_the_benchmark_of_ingestion_loses_and_doubles_no_report():
    single = ingest.run(2_000)
    ratio = single["messages_per_s"] / single["client_only_messages_per_s"]
    assert single["ratio"] == pytest.approx(ratio, abs=1e-4)
    result = ingest.run(25_000, batch=32)
    mistakes = ("lost", "counted_twice", "not_counted", "not_as_sent")
    assert {name: result[name] for name in mistakes} == dict.fromkeys(mistakes, 0)
    # 625 frames in a round of 20,000 devices, 157 in the last; every hundredth is sent twice.
    assert (result["rounds"], result["messages"], result["duplicates"]) == (2, 782 + 7, 7 * 32)
    ratio = result["reports_per_s"] / result["single_reports_per_s"]
    assert result["times_single"] == pytest.approx(ratio, abs=0.01)
    assert 1 <= result["stored_bytes_per_report"] <= 8
