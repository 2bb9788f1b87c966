"""Device tests on boards at ports and on boards that start from a flash of the cache."""

import subprocess
import sys

import pytest

from terntools.emulators import catalogue


@pytest.mark.parametrize("name", ["rv32", pytest.param("pico", marks=pytest.mark.exhaustive)])
def test_device_tests_run_on_a_board_at_a_port(tmp_path, name):
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
    assert ended.returncode == 1
    assert "test_it.py::test_where PASSED" in ended.stdout
    assert "test_it.py::test_where[board] FAILED" in ended.stdout
    assert "assert sys.implementation.name == 'cpython'\nAssertionError" in ended.stdout
    assert "test_it.py::test_library[board] PASSED" in ended.stdout
    assert "test_it.py::test_other[board] SKIPPED (thousands" in ended.stdout
