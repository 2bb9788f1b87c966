"""Device tests on boards at ports and on boards that start from a flash of the cache."""

import subprocess
import sys

import pytest

from terntools.boards import deploy
from terntools.boards.repl import Repl
from terntools.emulators import catalogue, flash_image
from terntools.testing import prepared_flash


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


def test_a_flash_is_prepared_once_and_again_for_another_compiler(tmp_path, monkeypatch):
    firmware = prepared_flash._firmware("rv32")
    monkeypatch.setenv("TERN_CACHE", str(tmp_path))
    monkeypatch.setattr(prepared_flash, "_firmware", lambda name: firmware)
    monkeypatch.setattr("terntools.emulators.qemu.MachineType.firmware", lambda machine: firmware)
    first = prepared_flash.deployed("rv32")
    made = first.flash.stat().st_mtime_ns
    assert prepared_flash.deployed("rv32") == first
    assert first.flash.stat().st_mtime_ns == made
    monkeypatch.setattr("terntools.boards.mpy.compiler_version", lambda: "another compiler")
    assert prepared_flash.deployed("rv32").flash != first.flash
    for number in range(prepared_flash._KEPT + 1):
        monkeypatch.setattr(
            "terntools.boards.mpy.compiler_version", lambda number=number: str(number)
        )
        monkeypatch.setattr(
            prepared_flash,
            "_deploy",
            lambda name, processor, flash: flash.touch() or {"processor": "none"},
        )
        prepared_flash.deployed("rv32")
    assert (
        len([path for path in tmp_path.glob("flash-rv32-*") if path.is_dir()])
        == prepared_flash._KEPT
    )


@pytest.mark.parametrize("name", ["rv32", "pico"])
def test_files_can_be_added_to_a_flash_that_a_board_has_written(tmp_path, name):
    flash = tmp_path / "flash.bin"
    with catalogue.boot(name, flash) as board, Repl(board.url) as repl:
        repl.write_file("/kept/before.txt", b"before" * 1000)
    flash_image.add(flash, {"/kept/added.txt": b"added" * 1000})
    with catalogue.boot(name, flash) as board, Repl(board.url) as repl:
        assert repl.hashes(["/kept/before.txt", "/kept/added.txt"]) == {
            "/kept/before.txt": deploy.digest(b"before" * 1000),
            "/kept/added.txt": deploy.digest(b"added" * 1000),
        }


def test_a_flash_from_the_cache_holds_the_library_and_no_program(tmp_path):
    kept, flash = prepared_flash.deployed("rv32"), tmp_path / "flash.bin"
    flash.write_bytes(kept.flash.read_bytes())
    with catalogue.boot("rv32", flash) as board, Repl(board.url) as repl:
        machine = deploy.Machine.of(repl)
        assert machine.processor == kept.processor
        wanted = prepared_flash.library_files(machine)
        assert list(deploy.compare(repl, wanted, prune=deploy.LIBRARY).write) == [deploy.MAIN]
