"""`make test` runs a sample of the tests, and `make exhaustive` runs them all."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # pytest starts anew in each
ROOT = Path(__file__).parents[2]
FILES = ("tests/unit/test_shuffling.py", "tests/unit/test_certify.py")


def planned(*words):
    """The output of pytest with these words, in a process of its own."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def collected(*options):
    """The cases of FILES that pytest would run, by test."""
    cases = {}
    for line in planned("--collect-only", *options, *FILES).splitlines():
        test, _, case = line.partition("::")[2].partition("[")
        cases.setdefault(test, []).append(case.rstrip("]"))
    return cases


def test_a_sample_has_the_first_and_last_case_and_no_exhaustive_one():
    sampled = "test_the_bound_of_a_mechanism_is_between_its_exact_delta_and_the_bound_of_any"
    exhaustive = "test_a_card_with_a_flipped_bit_is_refused_or_keeps_its_epsilon"
    usual, whole = collected(), collected("--exhaustive")
    assert usual[sampled] == ["0", "2", "5"]
    assert whole[sampled] == ["0", "1", "2", "3", "4", "5"]
    assert usual[exhaustive] == ["duchi", "three-outputs"]
    assert whole[exhaustive] == ["duchi", "three-outputs", "pm-sub"]
