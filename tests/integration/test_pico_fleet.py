"""Emulated boards as a fleet: they train, keep their ledgers, are measured, watched and tested."""

import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from xml.etree import ElementTree

import pytest
import rig
import warm

import tern
from terntools.boards import device
from terntools.boards.monitor import Monitor
from terntools.testing import hil
from terntools.testing.board_run import FAILED, LOST, PASSED, Plan


@pytest.mark.parametrize(
    ("fleet", "reports"),
    [("rv32-emulated:2", 40), pytest.param("pico-emulated:1", 20, marks=pytest.mark.exhaustive)],
)
def test_a_fleet_of_emulated_boards_trains(here, fleet, reports):
    result = rig.finish(fleet=fleet, reports=reports, group=reports, epsilon="2")
    assert (result["rounds"], result["reports"]) == (1, reports)
    assert result["epsilon_spent"] == [
        [pytest.approx(2, abs=1e-4), reports]
    ]  # from the boards' own ledgers


@pytest.mark.slow
def test_a_monitor_shows_and_passes_frames():
    lines = []
    with (
        device.boards("rv32-emulated:1") as (port,),
        closing(Monitor(port, lines.append, hello_every=0.5)) as monitor,
    ):
        end = time.monotonic() + 60
        while monitor.state.frames["HELLO"] < 2:
            assert time.monotonic() < end
            monitor.run(time.monotonic() + 0.1)
        command = [*warm.TERN, "device", "info", str(monitor.tap), "--json"]
        info = warm.Popen(command, stdout=subprocess.PIPE, text=True)
        while info.poll() is None:
            monitor.run(time.monotonic() + 0.1)
        (board,) = json.load(info.stdout)["boards"]
        info.stdout.close()
    state = monitor.state
    assert state.board == board["build"]
    assert state.clients == board["clients"] == 1
    assert state.temperature_celsius == 25
    assert state.frames["HELLO"] >= 2
    assert any(line.startswith("> HELLO_REQUEST") for line in lines)
    assert any(line.startswith(f"< HELLO {board['board']}") for line in lines)


def hil_plan(folder, board_map, tests, **options):
    """Write a hardware map and a file of tests into a folder; return the plan to run them."""
    (folder / "map.yaml").write_text(board_map)
    (folder / "tests").mkdir()
    (folder / "tests/test_it.py").write_text(tests)
    return Plan(folder / "map.yaml", folder, [folder / "tests"], **options)


BOARD_MAP = """
- {connected: true, id: one, platform: rv32-emulated, notes: left}
- {connected: true, id: two, platform: rv32-emulated}
- {connected: true, id: three, platform: pico, serial: /dev/no-such-port}
- {connected: false, id: away, platform: pico, serial: /dev/ttyACM7}
"""
TESTS = """
import pytest

def test_adds(dut):
    with dut.repl() as repl:
        assert repl.evaluate("2 + 2") == 4

@pytest.mark.hardware(fixture="ppk2")
def test_energy(dut):
    raise AssertionError

@pytest.mark.trial
def test_is_board_one(dut):
    assert dut.board.id == "one"
"""


@pytest.fixture(scope="module")
def hil_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("hil")


@pytest.fixture(scope="module")
def hil_results(hil_folder):
    """The results of TESTS on the connected boards of BOARD_MAP, by their ids."""
    results = hil.run(hil_plan(hil_folder, BOARD_MAP, TESTS))
    return {result.board.id: result for result in results}


def test_hil_says_how_the_tests_of_each_connected_board_went(hil_results):
    codes = {board_id: result.code for board_id, result in hil_results.items()}
    assert codes == {"one": PASSED, "two": FAILED, "three": LOST}
    assert hil_results["two"].counts == {"passed": 1, "failed": 1, "skipped": 1}
    assert hil.worst(list(hil_results.values())) == FAILED


def test_hil_runs_the_trial_of_a_board_first(hil_results):
    assert hil_results["one"].cases[0].name.endswith("test_is_board_one[one]")


def test_hil_skips_a_test_whose_fixture_no_board_has(hil_results):
    messages = [case.message for case in hil_results["one"].cases]
    assert "no board has ppk2" in messages


def test_hil_says_why_a_board_is_lost(hil_results):
    assert "no-such-port" in hil_results["three"].lost


def test_hil_writes_a_page_and_a_junit_file_of_all_boards(hil_results, hil_folder):
    page = (hil_folder / "report.html").read_text()
    assert "FAILED" in page
    assert "left" in page  # a note of the map
    suites = ElementTree.parse(hil_folder / "junit.xml").findall("testsuite")
    errors = [(suite.get("failures", "0"), suite.get("errors")) for suite in suites]
    assert errors == [("0", "0"), ("1", "0"), ("0", "1")]


def test_hil_gives_up_a_board_after_its_timeout(tmp_path):
    tests = "import time\ndef test_sleeps():\n    time.sleep(600)\n"
    board_map = "- {connected: true, id: one, platform: rv32-emulated}\n"
    (result,) = hil.run(hil_plan(tmp_path, board_map, tests, timeout=5))
    assert result.code == LOST
    assert "timed out" in result.lost


@pytest.mark.exhaustive
@pytest.mark.slow
def test_hil_names_the_commit_that_moved_a_figure(here):
    """Two commits of the device library, measured on an emulated Pico; the second takes 2 kB of
    heap more.
    """
    shutil.copytree(
        Path(tern.__file__).parent, here / "tern", ignore=shutil.ignore_patterns("__pycache__")
    )
    (here / ".gitignore").write_text("boards.history.*\nsessions\n")
    (here / "test_it.py").write_text("def test_it():\n    pass\n")
    (here / "figures.yaml").write_text(
        "heap-bytes: {value: 67332, tolerance: 1%}\nenergy-uj: 400\n"
    )
    desk = "- {connected: true, id: desk, platform: pico-emulated, expect: figures.yaml}\n"
    (here / "boards.yaml").write_text(desk)
    environment = {**os.environ, "PYTHONPATH": str(here), "PYTHONDONTWRITEBYTECODE": "1"}
    hil_command = [Path(sys.executable).with_name("tern"), "hil", "--hardware-map", "boards.yaml"]

    def git(*words):
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words]
        return subprocess.check_output(command, text=True).strip()

    def run(*words):
        return subprocess.run(
            [*hil_command, *words], env=environment, capture_output=True, text=True
        )

    git("init", "--quiet")
    commits, client = [], here / "tern/client.py"
    before = client.read_text()
    for code, text in enumerate(
        (before, before.replace("(wire.MAX_FRAME)", "(wire.MAX_FRAME + 2000)"))
    ):
        client.write_text(text)
        git("add", ".")
        git("commit", "--quiet", "-m", "x")
        commits.append(git("rev-parse", "--short=12", "HEAD"))
        done = run("--tests", "test_it.py", *(["--json"] if code == 0 else []))
        assert done.returncode == code, done.stderr
        if code == 0:
            (board,) = json.loads(done.stdout)["boards"]
            (figure,) = board["figures"]
            assert (figure["commit"], figure["figure"], figure["passed"]) == (
                commits[0],
                "heap-bytes",
                True,
            )
            assert board["skipped"] == 1  # the energy: no meter
    (moved,) = [line for line in done.stdout.splitlines() if line.startswith("desk: heap-bytes")]
    assert "expected at most 68,005.3" in moved
    assert f"since commit {commits[1]}; it was {figure['value']:,.6g} at {commits[0]}" in moved
    (session,) = sorted(here.glob("sessions/*"))[-1:]
    cases = {
        case.get("name"): case for case in ElementTree.parse(session / "junit.xml").iter("testcase")
    }
    case = cases["test_figure[desk-heap-bytes]"]
    assert "heap-bytes is" in case.find("failure").get("message")
    properties = {each.get("name"): each.get("value") for each in case.iter("property")}
    assert float(properties["value"]) > 68_000
    assert "add meter:" in cases["test_figure[desk-energy-uj]"].find("skipped").get("message")
    shown = run("--history")
    assert shown.returncode == 0
    assert moved in shown.stdout
    assert (here / "boards.history.png").read_bytes().startswith(b"\x89PNG")
