"""The commands for a fleet on a broker, as their users call them."""

import json
import os
import signal
import stat
import subprocess
import urllib.request

import pytest
import rig
import warm
from bench import ingest
from harness.arena import CARD, D, K
from harness.raw_client import RawClient, board_client, wait_for
from warm import TERN

from ternhost.provision import keys
from ternhost.reach.broker.mosquitto import Mosquitto, free_port
from ternhost.store.store import Store
from terntools.boards.attach import attach
from terntools.emulators.unix_fleet import EmulatedFleet


def tern(*words, code=0):
    """Run a command; return its JSON object, or its message if it is to fail."""
    done = rig.tern(*words)
    assert done.code == code, done.err
    return json.loads(done.out) if code == 0 else done.err


def test_keys(tmp_path):
    store = tmp_path / "store.sqlite"
    assert tern("device", "add", "1-3", 9, "--store", store, "--keys", tmp_path / "new", "--json")[
        "added"
    ] == [1, 2, 3, 9]
    assert stat.S_IMODE(store.stat().st_mode) == 0o600
    files = {path.name: path for path in (tmp_path / "new").iterdir()}
    assert sorted(files) == ["00000001.key", "00000002.key", "00000003.key", "00000009.key"]
    with Store(store) as made:
        assert made.keys() == {int(name[:8], 16): path.read_bytes() for name, path in files.items()}
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in files.values())
    old = files["00000002.key"].read_bytes()
    tern("device", "rotate", 2, "--store", store, "--keys", tmp_path / "new", "--json")
    assert files["00000002.key"].read_bytes() != old
    tern("device", "revoke", 1, "--store", store, "--json")
    listed = tern("device", "list", "--store", store, "--json")["devices"]
    assert {device["id"]: device["revoked"] is None for device in listed} == {
        1: False,
        2: True,
        3: True,
        9: True,
    }
    assert "device 1 has no key" in tern("device", "revoke", 1, "--store", store, code=2)
    assert "'x' is not a device" in tern("device", "add", "x", "--store", store, code=2)
    assert "there is no store" in tern("device", "list", "--store", tmp_path / "none", code=5)


def test_a_broker_lets_in_who_has_a_key_and_forgets_who_is_revoked(tmp_path):
    store = tmp_path / "store.sqlite"
    tern("device", "add", "1-2", "--store", store, "--json")
    port = free_port()
    result = tern("broker", "config", tmp_path / "broker", "--store", store, "--port", port, "--json")
    assert result["devices"] == 2
    assert "password" not in result
    with Store(store) as made:
        known = made.keys()
    with Mosquitto(tmp_path / "broker") as running:
        access = running.access
        assert [board_client(access, known, device).code for device in known] == [0, 0]
        tern("device", "revoke", 2, "--store", store, "--json")
        tern("device", "rotate", 1, "--store", store, "--json")
        tern("broker", "config", tmp_path / "broker", "--store", store, "--port", port, "--json")
        running.reload()
        wait_for(lambda: board_client(access, known, 2).code == 5)
        assert board_client(access, known, 1).code == 5, "the old key"
        with Store(store) as made:
            assert board_client(access, made.keys(), 1).code == 0
        assert RawClient(access, access.user, access.password).code == 0


def two_boards(place, micropython):
    """Two boards of three clients, not yet on a broker: (store, directories)."""
    site = rig.make_site(place, micropython, 6, 2, largest=4_000_000, budget=40_000_000)
    keys.fleet_key(site.store)
    site.store.close()
    (place / "card").write_bytes(CARD)
    return site.store.path, site.directories


@pytest.fixture
def fleet(tmp_path, micropython):
    return two_boards(tmp_path, micropython)


def serve(path, broker_name, *words):
    command = [*TERN, "serve", "--store", str(path), "--fleet", f"mqtt:{broker_name}", "--dimension", str(D)]
    command += ["--card", str(path.parent / "card"), "--k", str(K), *words]
    return warm.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=path.parent)


@pytest.fixture
def serving():
    """`serve`, whose processes end with the test, however it ends."""
    begun = []

    def begin(*words):
        begun.append(serve(*words))
        return begun[-1]

    yield begin
    for process in begun:
        if process.poll() is None:
            process.kill()
            process.communicate()


def test_serve_for_people_and_for_prometheus(fleet, micropython, serving):
    path, boards = fleet
    port, metrics = free_port(), free_port()
    tern("broker", "config", path.parent / "broker", "--store", path, "--port", port, "--json")
    attach(boards, path.parent / "broker", path)
    with Mosquitto(path.parent / "broker"), EmulatedFleet(micropython, boards):
        process = serving(path, path.parent / "broker", "--interval", "1", "--metrics", str(metrics))

        def figures():
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{metrics}/metrics", timeout=60) as answer:
                    text = answer.read().decode()
            except OSError:
                return None
            found = dict(line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("tern_"))
            return found if float(found.get("tern_rounds_ended", 0)) >= 1 else None

        found = wait_for(figures)
        assert float(found["tern_boards"]) == 2
        assert float(found["tern_connected"]) == 1
        assert float(found['tern_boards_by_state{state="online"}']) == 2
        rounds, cost = float(found["tern_rounds_ended"]), float(found["tern_report_epsilon"])
        left = float(found["tern_budget_left_least_epsilon"])
        assert 40 - (rounds + 1) * cost <= left <= 40 - (rounds - 1) * cost, (
            "the store is read a little later"
        )
        assert float(found['tern_frames_total{fate="accepted"}']) >= 6
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "round 1: 6 of 6 reports, 0 refusals, complete; 2 boards" in out
    assert "reports of" in out.splitlines()[-3]
    assert out.splitlines()[-1].startswith("gradients were clipped to +-")


def test_bench_ingest():
    alone = ingest.run(2_000)
    assert alone["ratio"] == pytest.approx(
        alone["messages_per_s"] / alone["client_only_messages_per_s"], abs=1e-4
    )
    result = ingest.run(25_000, batch=32)
    mistakes = ("lost", "counted_twice", "not_counted", "not_as_sent")
    assert {name: result[name] for name in mistakes} == dict.fromkeys(mistakes, 0)
    # 625 frames in a round of 20,000 devices, 157 in the last; every hundredth is sent twice.
    assert (result["rounds"], result["messages"], result["duplicates"]) == (2, 782 + 7, 7 * 32)
    assert result["times_single"] == pytest.approx(
        result["reports_per_s"] / result["single_reports_per_s"], abs=0.01
    )
    assert 1 <= result["stored_bytes_per_report"] <= 8
