"""The commands that talk to boards, over ptys with real MicroPython."""

import json
import signal
import subprocess
from contextlib import contextmanager

import pytest
import rig
import warm


@contextmanager
def emulated(*words):
    """Run `tern fleet emulate`; yield the fleet (`port:PORTS`) and the path of its store."""
    command = [*warm.TERN, "fleet", "emulate", *map(str, words), "--json"]
    with warm.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            ready = json.loads(process.stdout.readline())
            yield "port:" + ",".join(ready["ports"]), ready["store"]
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=120)
            assert (process.returncode, out) == (0, "")
        finally:
            process.kill()


def test_an_emulated_fleet_keeps_what_its_boards_have_spent(here, micropython):
    arguments = (2, "--clients", 80, "--budget", 4, "--largest", 2, "--dir", here / "fleet")
    train = ("train", "--reports", 80, "--group", 40, "--no-report", "--json")
    with emulated(*arguments) as (fleet, store):
        first, second = rig.tern("device", "info", "--fleet", fleet, "--json").json["boards"]
        assert (first["first_device"], first["clients"], second["first_device"]) == (1, 40, 41)
        assert (first["epsilon_left"], f"port:{first['port']},{second['port']}") == (4, fleet)
        assert first["entropy"] == "CTR_DRBG AES-256"
        refused = rig.tern(*train, "--fleet", fleet, "--store", store, "--epsilon", 3, code=4)
        assert "more than they allow for one, 2" in refused.err
        result = rig.tern(*train, "--fleet", fleet, "--store", store).json
        assert (result["reports"], result["epsilon_spent"]) == (80, [])
    with emulated(*arguments) as (fleet, _):  # the same boards
        boards = rig.tern("device", "info", "--fleet", fleet, "--json").json["boards"]
        assert [round(board["epsilon_left"], 3) for board in boards] == [2, 2]


def test_a_round_that_no_device_can_answer_does_not_end_a_run(here, micropython):
    train = ("train", "--reports", 6, "--group", 1, "--no-report", "--json")
    with emulated(1, "--clients", 6, "--dir", here / "fleet") as (fleet, store):
        (damaged,) = here.glob("fleet/**/ledger/00000003")
        damaged.write_bytes(damaged.read_bytes()[:-1])
        done = rig.tern(*train, "--fleet", fleet, "--store", store, code=4)
    assert "1 of 1 devices refuse: their ledger cannot be read or written" in done.err
    assert "1 of 6 reports that were asked for are missing: 1 were refused" in done.err
    result = json.loads(done.out)
    assert (result["reports"], result["rounds"]) == (5, 6)


def test_device_ping_and_info_show_an_emulated_board(here, micropython):
    pinged = rig.tern("device", "ping", "--fleet", "emulated:1", "--count", 3, "--json").json
    assert pinged["boards"][0]["ms"]["n"] == 3
    lines = rig.tern("device", "info", "--fleet", "emulated:1", code=0).out.splitlines()
    assert "; tern " in lines[0]
    assert lines[1].startswith("  device 1; epsilon left 1, spent 0; heap free ")


@pytest.mark.parametrize(
    ("action", "fleet", "code", "message"),
    [
        ("info", "port:/dev/nothing", 3, "there is no port"),
        ("ping", "port:/dev/null", 3, "is not a serial port"),
        ("ping", "port:gopher://x", 2, "is not a port"),
        ("info", "nobody", 2, "there is no fleet"),
    ],
)
def test_device_commands_name_what_is_wrong_with_a_port(here, action, fleet, code, message):
    done = rig.tern("device", action, "--fleet", fleet, code=code)
    assert done.out == ""
    assert message in done.err
    assert "\n  " in done.err, "there is a hint"
    assert "Traceback" not in done.err


def test_a_small_demo_learns_and_writes_a_page_and_pictures(here, micropython):
    result = rig.tern("demo", "--boards", 2, "--reports", 8000, "--epsilon", 20, "--json").json
    assert (result["algorithm"], result["options"]["dataset"]) == ("fedsgd", "flights-planned")
    assert (
        result["auc"] > 0.6
    )  # .67 as a rule (standard deviation .006); with 1,000 reports .64 (.02)
    last = rig.tern("demo", "--boards", 1, "--reports", 50).out.splitlines()[-1]
    assert last.startswith(
        "the same devices could have answered once, about their whole gradient: AUC 0."
    )
    directory = here / result["directory"]
    assert {"report.html", "result.json", "auc.png", "card.png", "epsilon.png", "bytes.png"} <= {
        path.name for path in directory.iterdir()
    }
    page = (directory / "report.html").read_text()
    assert 'src="http' not in page
    assert page.count("<svg") == 5
    assert "<img" not in page
