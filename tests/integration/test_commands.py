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
        assert first["clients"] == 40
        assert (first["first_device"], second["first_device"]) == (1, 41)
        assert first["epsilon_left"] == second["epsilon_left"] == 4
        assert rig.tern(*train, "--fleet", fleet, "--store", store).json["reports"] == 80

    with emulated(*arguments) as (fleet, _):  # the same boards
        boards = rig.tern("device", "info", "--fleet", fleet, "--json").json["boards"]
        left = [board["epsilon_left"] for board in boards]
        assert left == pytest.approx([2, 2], abs=5e-4)  # a card costs a little less than asked


def test_a_small_demo_writes_a_page_and_pictures(here, micropython):
    result = rig.tern("demo", "--boards", 1, "--reports", 200, "--epsilon", 20, "--json").json
    assert result["options"]["dataset"] == "flights-planned"
    assert result["reports"] == 200
    directory = here / result["directory"]
    pictures = {"auc.png", "card.png", "epsilon.png", "bytes.png"}
    assert pictures <= {path.name for path in directory.iterdir()}
    page = (directory / "report.html").read_text()
    assert page.count("<svg") == len(pictures) + 1
    assert 'src="http' not in page
