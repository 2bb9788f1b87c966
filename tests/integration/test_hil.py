"""`tern hil`: tests of many boards by a hardware map, on emulated boards."""

import subprocess
import sys
from xml.etree import ElementTree

import pytest

from terntools.emulators import catalogue
from terntools.testing import hil
from terntools.testing.board_run import FAILED, LOST, PASSED, Plan


def hil_plan(folder, board_map, tests, **options):
    """Write a hardware map and a file of tests into a folder; return the plan to run them."""
    (folder / "map.yaml").write_text(board_map)
    (folder / "tests").mkdir()
    (folder / "tests/test_it.py").write_text(tests)
    return Plan(folder / "map.yaml", folder, [folder / "tests"], **options)


NOTE_OF_ONE = "on the left shelf"
BOARD_MAP = f"""
- {{connected: true, id: one, platform: rv32-emulated, notes: {NOTE_OF_ONE}}}
- {{connected: true, id: two, platform: rv32-emulated}}
- {{connected: true, id: three, platform: pico, serial: /dev/no-such-port}}
- {{connected: false, id: away, platform: pico, serial: /dev/ttyACM7}}
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
    """`tern hil` runs TESTS on all boards that a file (BOARD_MAP) lists as connected: one passes,
    one fails a test, and one is missing at its port. The energy test is left out, for lack of a
    meter.
    """
    assert hil_results.keys() == {"one", "two", "three"}
    assert hil_results["one"].code == PASSED
    assert hil_results["two"].code == FAILED
    assert hil_results["two"].counts == {"passed": 1, "failed": 1, "skipped": 1}
    assert hil_results["three"].code == LOST
    assert hil.worst(list(hil_results.values())) == FAILED


def test_the_page_of_hil_shows_failed_boards_and_the_notes_of_the_map(hil_results, hil_folder):
    page = (hil_folder / "report.html").read_text()
    assert "FAILED" in page
    assert NOTE_OF_ONE in page


def test_the_junit_file_of_hil_counts_the_failures_and_errors_of_each_board(
    hil_results, hil_folder
):
    """JUnit's format is for programs. It has a suite of tests for each connected board."""
    counts = []
    for suite in ElementTree.parse(hil_folder / "junit.xml").findall("testsuite"):
        counts.append({"failures": suite.get("failures", "0"), "errors": suite.get("errors")})
    all_passed = {"failures": "0", "errors": "0"}
    one_test_failed = {"failures": "1", "errors": "0"}
    board_is_missing = {"failures": "0", "errors": "1"}
    assert counts == [all_passed, one_test_failed, board_is_missing]


def test_hil_gives_up_a_board_after_its_timeout(tmp_path):
    tests = "import time\ndef test_sleeps():\n    time.sleep(600)\n"
    board_map = "- {connected: true, id: one, platform: rv32-emulated}\n"
    (result,) = hil.run(hil_plan(tmp_path, board_map, tests, timeout=5))
    assert result.code == LOST
    assert "timed out" in result.lost


# Device tests on a board at a port


@pytest.mark.parametrize("name", ["rv32", pytest.param("pico", marks=pytest.mark.exhaustive)])
def test_device_tests_run_on_a_board_at_a_port(tmp_path, name):
    """Device tests run on this computer, and with --port also on a board. The file of this test has
    a test that passes only here, one that passes on both, and one that is left out on boards, since
    flash endures only so many writes.
    """
    (tmp_path / "pytest.ini").write_text("[pytest]\ntern_device_tests = .\n")
    (tmp_path / "test_it.py").write_text(
        "import sys\nfrom tern.fixed import saturate\nNEEDS = {'test_other': 'endurance'}\n\n"
        "def test_where():\n    assert sys.implementation.name == 'cpython'\n\n"
        "def test_library():\n    assert saturate(99999) == 16384\n\n"
        "def test_other():\n    pass\n"
    )
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "--target", ""]
    with catalogue.boot(name) as board:
        command += ["--port", board.url, "--rootdir", tmp_path, tmp_path]
        ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)

    assert ended.returncode == 1, "a test has failed"
    # test_where runs on CPython, but fails on the board, with the line that failed there.
    assert "test_it.py::test_where PASSED" in ended.stdout
    assert "test_it.py::test_where[board] FAILED" in ended.stdout
    assert "assert sys.implementation.name == 'cpython'\nAssertionError" in ended.stdout
    assert "test_it.py::test_library[board] PASSED" in ended.stdout
    assert "test_it.py::test_other[board] SKIPPED (thousands" in ended.stdout
