"""The core works without each package beside it, and without each way of reaching devices."""

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
UNIT = TESTS / "unit"
ABOUT_PARTS = (  # of all packages
    "test_figures.py",
    "test_house.py",
    "test_packaging.py",
    "test_without.py",
    "test_words.py",
)
BOARD_VERBS = ("deploy", "flash", "info", "list", "monitor", "provision", "records", "up", "update")
BOARD_COMMANDS = [
    "bench energy",
    "bench latency",
    "bench profile",
    *(f"board {verb}" for verb in BOARD_VERBS),
    "fleet",
    "hil",
    "relay",
]
# By way of reaching devices: the unit tests of its own, and the commands that are lost with it.
WAYS = {
    "ports": ("test_serial_link.py", BOARD_COMMANDS),
    "broker": ("test_broker.py test_sites.py test_hellos.py", ["broker"]),
    "simulated": ("test_simulated.py", ["plan"]),
}


def run_without(part, *arguments):
    """Run tests, or show helps, without a part; return what is printed."""
    words = [sys.executable, "-m", "without", part, *map(str, arguments)]
    ended = subprocess.run(words, capture_output=True, text=True, cwd=TESTS)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def missing_commands(part):
    return run_without(part, 1).splitlines()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "commands"),
    [
        ("terngateway", ["gateway"]),
        ("ternpapers", ["papers"]),
        ("ternviews", []),
        ("ternbench", ["bench"]),
    ],
)
def test_the_core_works_without_a_package_beside_it(package, commands, pytestconfig):
    """Every 200th unit test runs without it; with --exhaustive, all of them."""
    every = 1 if pytestconfig.getoption("exhaustive") else 200
    files = [path for path in sorted(UNIT.glob("test_*.py")) if path.name not in ABOUT_PARTS]
    run_without(package, every, *files)
    assert missing_commands(package) == commands


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_the_other_ways_of_reaching_devices_work_without_one(way, pytestconfig):
    """Every 20th of their tests runs without it; with --exhaustive, all of them."""
    every = 1 if pytestconfig.getoption("exhaustive") else 20
    files = [UNIT / name for other in WAYS if other != way for name in WAYS[other][0].split()]
    run_without(f"ternhost.reach.{way}", every, *files)
    assert missing_commands(f"ternhost.reach.{way}") == WAYS[way][1]
