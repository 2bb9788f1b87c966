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

import figures
import pytest
import rig
import warm

import tern
from terntools.bench import latency
from terntools.boards import device
from terntools.boards.monitor import Monitor
from terntools.testing import hil
from terntools.testing.hardware import read_map


@pytest.mark.parametrize(
    ("fleet", "reports"),
    [("rv32-emulated:2", 40), pytest.param("pico-emulated:1", 20, marks=pytest.mark.slow)],
)
def test_a_fleet_of_emulated_boards_trains(here, fleet, reports):
    result = rig.finish(fleet=fleet, reports=reports, group=reports, epsilon="2")
    assert (result["rounds"], result["reports"]) == (1, reports)
    assert result["epsilon_spent"] == [[pytest.approx(2, abs=1e-4), reports]]  # from the boards' own ledgers


def test_measured_figures_agree_with_the_file():
    """Bytes agree exactly. Times depend a little on where the heap has room, and those of plain floats, which allocate
    with every operation, depend on it more.
    """
    measured, whole = figures.on_the_emulated_pico()
    kept = json.loads(figures.KEPT.read_text())["pico_emulated"]
    assert measured.keys() == kept.keys()
    for name, value in kept.items():
        tolerance = 0.002 if name.startswith("us_") else 0
        if name == "us_per_coordinate_plain_float":
            tolerance = 0.1
        agrees = measured[name] == pytest.approx(value, rel=tolerance)
        assert agrees, f"{name} {measured[name]}, not {value}: intended? python tests/figures.py --keep"
    in_c = whole["us_per_coordinate_native_c"]["three-outputs"]
    assert 0 < measured["us_per_coordinate"] < 1.5 * in_c
    report = whole["us_per_report"]
    assert sum(report["breakdown"].values()) == pytest.approx(report["median"], rel=0.01)
    assert set(report["breakdown"]) == {*latency.PARTS, "steps", "link"}
    assert whole["heap"]["free"] > 150 * 1024


@pytest.mark.slow
def test_a_monitor_shows_and_passes_frames():
    lines = []
    with (
        device.boards("pico-emulated:1") as (port,),
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
    assert state.temperature_celsius == 27
    assert state.frames["HELLO"] >= 2
    assert any(line.startswith("> HELLO_REQUEST") for line in lines)
    assert any(line.startswith("< HELLO rp2040") for line in lines)


def hil_folder(folder, board_map, tests):
    """Write a hardware map and a test file into a folder; return the arguments of hil.run."""
    (folder / "map.yaml").write_text(board_map)
    (folder / "tests").mkdir()
    (folder / "tests/test_it.py").write_text(tests)
    return folder / "map.yaml", folder, [folder / "tests"]


def test_hil_tests_the_boards_of_a_map_and_reports_them(tmp_path):
    board_map = (
        "- {connected: true, id: one, platform: rv32-emulated, notes: left}\n"
        "- {connected: true, id: two, platform: rv32-emulated}\n"
        "- {connected: true, id: three, platform: pico, serial: /dev/no-such-port}\n"
        "- {connected: false, id: away, platform: pico, serial: /dev/ttyACM7}\n"
    )
    tests = (
        "import pytest\n"
        "def test_adds(dut):\n    with dut.repl() as repl:\n        assert repl.evaluate('2 + 2') == 4\n"
        "@pytest.mark.hardware(fixture='ppk2')\ndef test_energy(dut):\n    raise AssertionError\n"
        "@pytest.mark.trial\n"
        "def test_name(dut, record_testsuite_property):\n"
        "    record_testsuite_property('board', dut.board.id)\n    assert dut.board.id == 'one', dut.board.id\n"
    )
    arguments = hil_folder(tmp_path, board_map, tests)
    assert [board.id for board in read_map(arguments[0])] == ["one", "two", "three"]
    results = hil.run(*arguments)
    codes = [(result.board.id, result.code) for result in results]
    assert codes == [("one", hil.PASSED), ("two", hil.FAILED), ("three", hil.LOST)]
    assert "no-such-port" in results[2].lost
    assert results[0].cases[0][0].endswith("test_name[one]")
    assert results[1].counts == {"passed": 1, "failed": 1, "skipped": 1}
    assert "no board has ppk2" in [message for _, _, message in results[0].cases]
    assert hil.worst(results) == hil.FAILED
    page = (tmp_path / "report.html").read_text()
    assert "FAILED" in page
    assert "left" in page
    xml = (tmp_path / "junit.xml").read_text()
    assert xml.count("<testsuite ") == 3
    assert 'failures="1"' in xml
    assert xml.count("<error ") == 1


def test_hil_gives_up_a_board_after_its_timeout(tmp_path):
    tests = "import time\ndef test_sleeps():\n    time.sleep(600)\n"
    board_map = "- {connected: true, id: one, platform: rv32-emulated}\n"
    arguments = hil_folder(tmp_path, board_map, tests)
    (result,) = hil.run(*arguments, timeout=5)
    assert result.code == hil.LOST
    assert "timed out" in result.lost
    assert hil.worst([result]) == 2


@pytest.mark.exhaustive
@pytest.mark.slow
def test_hil_names_the_commit_that_moved_a_figure(here):
    """Two commits of the device library, measured on an emulated Pico; the second takes 2 kB of heap more."""
    shutil.copytree(Path(tern.__file__).parent, here / "tern", ignore=shutil.ignore_patterns("__pycache__"))
    (here / ".gitignore").write_text("boards.history.*\nsessions\n")
    (here / "test_it.py").write_text("def test_it():\n    pass\n")
    (here / "figures.yaml").write_text("heap-bytes: {value: 67332, tolerance: 1%}\nenergy-uj: 400\n")
    desk = "- {connected: true, id: desk, platform: pico-emulated, expect: figures.yaml}\n"
    (here / "boards.yaml").write_text(desk)
    environment = {**os.environ, "PYTHONPATH": str(here), "PYTHONDONTWRITEBYTECODE": "1"}
    hil_command = [Path(sys.executable).with_name("tern"), "hil", "--hardware-map", "boards.yaml"]

    def git(*words):
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words]
        return subprocess.check_output(command, text=True).strip()

    def run(*words):
        return subprocess.run([*hil_command, *words], env=environment, capture_output=True, text=True)

    git("init", "--quiet")
    commits, client = [], here / "tern/client.py"
    before = client.read_text()
    for code, text in enumerate((before, before.replace("(wire.MAX_FRAME)", "(wire.MAX_FRAME + 2000)"))):
        client.write_text(text)
        git("add", ".")
        git("commit", "--quiet", "-m", "x")
        commits.append(git("rev-parse", "--short=12", "HEAD"))
        done = run("--tests", "test_it.py", *(["--json"] if code == 0 else []))
        assert done.returncode == code, done.stderr
        if code == 0:
            (board,) = json.loads(done.stdout)["boards"]
            (figure,) = board["figures"]
            assert (figure["commit"], figure["figure"], figure["passed"]) == (commits[0], "heap-bytes", True)
            assert board["skipped"] == 1  # the energy: no meter
    (moved,) = [line for line in done.stdout.splitlines() if line.startswith("desk: heap-bytes")]
    assert "expected at most 68,005.3" in moved
    assert f"since commit {commits[1]}; it was {figure['value']:,.6g} at {commits[0]}" in moved
    (session,) = sorted(here.glob("sessions/*"))[-1:]
    cases = {case.get("name"): case for case in ElementTree.parse(session / "junit.xml").iter("testcase")}
    case = cases["test_figure[desk-heap-bytes]"]
    assert "heap-bytes is" in case.find("failure").get("message")
    properties = {each.get("name"): each.get("value") for each in case.iter("property")}
    assert float(properties["value"]) > 68_000
    assert "add meter:" in cases["test_figure[desk-energy-uj]"].find("skipped").get("message")
    shown = run("--history")
    assert shown.returncode == 0
    assert moved in shown.stdout
    assert (here / "boards.history.png").read_bytes().startswith(b"\x89PNG")
