"""What `make test` leaves to `make exhaustive`, and that this leaves nothing out."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # pytest starts anew in each
ROOT = Path(__file__).parents[2]


def collected(path, *options):
    """The names of the tests that pytest would run."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--collect-only", *options]
    ended = subprocess.run([*command, path], cwd=ROOT, capture_output=True, text=True, check=True)
    return [line.partition("::")[2] for line in ended.stdout.splitlines() if "::" in line]


def cases(names, test):
    return [name.partition("[")[2].rstrip("]") for name in names if name.startswith(test)]


def test_of_a_sampled_test_the_ends_are_there():
    path, test = "tests/unit/test_optimal.py", "test_the_ends_of_the_range"
    assert cases(collected(path), test) == ["1e-06-4", "20.0-4"]
    assert cases(collected(path, "--exhaustive"), test) == ["1e-06-4", "0.01-3", "12.0-4", "20.0-4"]
    assert cases(collected(path, "-k", "the_ends and 0.01", "--exhaustive"), test) == ["0.01-3"]


def test_an_exhaustive_case_is_left_out():
    path, test = "tests/unit/test_laplace_law.py", "test_enumerated_mass"
    assert cases(collected(path), test) == ["1-1-7", "2-1-6"]
    assert cases(collected(path, "--exhaustive"), test) == ["1-1-7", "2-1-6", "1-3-7"]


@pytest.mark.parametrize(("options", "there"), [((), False), (("--exhaustive",), True)])
def test_a_target_is_spared_what_takes_long(options, there):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--setup-plan", "-rs"]
    command += ["--target", "pico", "--not-on-cpython", "tests/device/test_inference.py", *options]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert ("half a minute" in ended.stdout) is not there
