"""The core works without each package beside it, and without each way of reaching devices."""

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
UNIT = TESTS / "unit"
ABOUT_PARTS = ("test_house.py", "test_without.py", "test_packaging.py")  # of all packages
BOARD_COMMANDS = "bench deploy device devices flash fleet hil monitor provision relay up update"
# By way of reaching devices: the unit tests of its own, and the commands that are lost with it.
WAYS = {
    "ports": ("test_serial_link.py", BOARD_COMMANDS),
    "broker": ("test_broker.py test_sites.py test_hellos.py", "broker"),
    "simulated": ("test_simulated.py", "experiment plan"),
}


def run_without(part, every, files):
    """Run every n-th test of these files without a part; return the commands that are missing."""
    words = [sys.executable, "-m", "without", part, str(every), *map(str, files)]
    ended = subprocess.run(words, capture_output=True, text=True, cwd=TESTS)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    _, _, missing = ended.stdout.strip().splitlines()[-1].partition("missing:")
    return missing.split()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "command"),
    [("terngateway", "gateway"), ("ternpapers", "experiment"), ("ternbench", "bench")],
)
def test_the_core_works_without_a_package_beside_it(package, command, pytestconfig):
    """Every 60th unit test runs without it; with --exhaustive, all of them."""
    every = 1 if pytestconfig.getoption("exhaustive") else 60
    files = [path for path in sorted(UNIT.glob("test_*.py")) if path.name not in ABOUT_PARTS]
    assert run_without(package, every, files) == [command]


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_the_other_ways_of_reaching_devices_work_without_one(way, pytestconfig):
    """Every eighth of their tests runs without it; with --exhaustive, all of them."""
    every = 1 if pytestconfig.getoption("exhaustive") else 8
    files = [UNIT / name for other in WAYS if other != way for name in WAYS[other][0].split()]
    assert run_without(f"ternhost.reach.{way}", every, files) == WAYS[way][1].split()
