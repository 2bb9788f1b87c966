"""The runner of device tests reports every way in which a test can fail on a device as a failure."""

import json
import subprocess
import sys
from contextlib import contextmanager

import pytest

from terntools.boards import mpy
from terntools.emulators import webassembly
from terntools.emulators.webassembly import plain_words
from terntools.testing import device_tests, webassembly_lacks
from terntools.testing.device_tests import Target, Transcript, UnixTarget
from terntools.testing.folders import DEVICE


def run(tmp_path, text, timeout=60.0):
    path = tmp_path / "test_it.py"
    path.write_text(text)
    return device_tests.run_file(UnixTarget(), path, device_tests.selected(path), timeout)


def test_a_failure_does_not_stop_the_others_and_shows_its_line(tmp_path):
    """Test functions run on a device one by one, and what each printed comes back. A failure shows
    the line of source, which the device itself does not have.
    """
    text = (
        "def test_one():\n    print('so far')\n    assert 1 + 1 == 3\n\ndef test_two():\n    pass\n"
    )

    one, two = run(tmp_path, text)

    assert (one.passed, two.passed) == (False, True)
    shown = device_tests.with_source(one.output, tmp_path / "test_it.py")
    assert "so far" in shown
    assert "line 3, in test_one\n    assert 1 + 1 == 3\nAssertionError" in shown


@pytest.mark.parametrize(
    "body",
    [
        "raise SystemExit(0)",
        "import micropython; micropython.heap_lock(); x = [1] * 1000",
        "x = bytearray(10_000_000)",
        "print('@tern-00000000 pass test_first'); raise ValueError",
    ],
)
def test_a_test_that_dies_does_not_pass(tmp_path, body):
    file = f"def test_first():\n    {body}\n\ndef test_second():\n    pass\n"
    first, second = run(tmp_path, file)
    assert not first.passed
    assert second.passed


def test_a_file_that_cannot_be_imported_fails_every_test(tmp_path):
    outcomes = run(tmp_path, "import no_such_module\ndef test_a(): pass\ndef test_b(): pass\n")
    assert [outcome.passed for outcome in outcomes] == [False, False]
    assert "ImportError: no module named 'no_such_module'" in outcomes[0].output


@pytest.mark.slow
def test_a_test_that_hangs_fails_with_a_time_out(tmp_path):
    hangs = "def test_b():\n    print('before')\n    time.sleep(60)\n"
    text = f"import time\ndef test_a(): pass\n{hangs}def test_c(): pass\n"
    outcomes = run(tmp_path, text, timeout=3.0)  # enough to reach the hang
    assert [outcome.passed for outcome in outcomes] == [True, False, True]
    assert outcomes[1].output == "before\nno answer in time"


class Scripted(Target):
    """A target with a fixed output for each test, in which MARK stands for the mark of the run;
    None: it is gone.
    """

    name = "scripted"

    def __init__(self, *texts):
        self.texts = list(texts)

    @contextmanager
    def prepared(self, path):
        yield self.run

    def run(self, mark, name, timeout):
        text = self.texts.pop(0)
        if text is None:
            return Transcript("", gone=True)
        return Transcript(text.replace("MARK", mark))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "@tern-1234 start test_a\n@tern-1234 pass test_a\n",  # of another run
        "MARK pass test_a\n",  # without a start
        "MARK start test_b\nMARK pass test_a\n",
        "MARK start test_b\nMARK pass test_b\n",
        "MARK start test_a\n",
        "MARK start test_a\nMARK fail test_a\nMARK pass test_a\n",
    ],
)
def test_only_a_verdict_of_this_run_counts(tmp_path, text):
    (outcome,) = device_tests.run_file(Scripted(text), tmp_path / "test_it.py", ["test_a"])
    assert not outcome.passed


def test_pytest_runs_each_test_on_cpython_and_on_the_device(tmp_path):
    """The pytest plugin runs each function of a device test twice: on CPython, and on MicroPython
    for unix. A function that holds on CPython alone passes there, and fails on the other.
    """
    (tmp_path / "test_it.py").write_text(
        "import sys\n\ndef test_same():\n    assert 1 + 1 == 2\n\n"
        "def test_cpython_only():\n    assert sys.implementation.name == 'cpython'\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\ntern_device_tests = .\n")
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider"]

    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)

    assert "test_it.py::test_same PASSED" in ended.stdout
    assert "test_it.py::test_same[unix] PASSED" in ended.stdout
    assert "test_it.py::test_cpython_only PASSED" in ended.stdout
    assert "test_it.py::test_cpython_only[unix] FAILED" in ended.stdout


def test_a_sample_of_vectors_has_at_least_four_cases_of_a_group():
    forty_cases = ",\n".join(f'  {{"n": {number}}}' for number in range(40))
    text = f'{{\n "cases": [\n{forty_cases}\n ]\n}}\n'
    sample = json.loads(device_tests.sample(text, one_of=16))
    assert [case["n"] for case in sample["cases"]] == [0, 10, 20, 30]


def test_each_test_that_webassembly_lacks_is_there():
    """A test that was renamed would run where it cannot, and the table would keep its old name."""
    for test in webassembly_lacks.TESTS:
        file, name = test.split("::")
        assert name in device_tests.selected(DEVICE / file), test


def test_plain_twins_have_no_machine_code_and_the_same_lines():
    """MicroPython for WebAssembly refuses viper functions."""
    for path in mpy.LIBRARY.rglob("*.py"):
        text = path.read_text()
        twin = webassembly.plain_twin(text)
        decorators = [line for line in twin.splitlines() if line.lstrip().startswith("@")]
        assert not any("micropython" in decorator for decorator in decorators), path
        assert len(twin.splitlines()) == len(text.splitlines())


def test_a_plain_twin_takes_words_from_its_own_module():
    twin = webassembly.plain_twin((mpy.LIBRARY / "compat.py").read_text())
    assert "from plain_words import ptr8, ptr16, ptr32" in twin


def test_plain_words_are_those_of_a_cast():
    data = bytearray(range(120, 136))
    words = plain_words.ptr32(data)
    assert [words[index] for index in range(4)] == memoryview(data).cast("i").tolist()


def test_a_plain_word_fills_four_bytes():
    data = bytearray(b"\xa5" * 8)
    plain_words.ptr32(data)[1] = 0
    assert data == b"\xa5" * 4 + bytes(4)
