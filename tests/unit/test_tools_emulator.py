"""The interpreter of the emulated device must compute like a board; builds are reproducible and
explain failures.
"""

import hashlib
import subprocess
import sys
from contextlib import closing

import pytest
from harness.waiting import wait_for

from ternhost.errors import UsageError
from terntools.emulators import debian, micropython
from terntools.emulators.debian import BuildError
from terntools.emulators.unix_fleet import LOG_NAME, EmulatedBoard


def test_the_installed_interpreter_is_suitable_and_has_the_heap_of_a_board():
    path = micropython.find_micropython()
    assert micropython.probe(path, "test").faults == ()
    program = "import gc; gc.collect(); print(gc.mem_free() + gc.mem_alloc())"
    command = micropython.device_command(path, "-c", program)
    heap = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert 90 * 1024 < heap <= 192 * 1024


def test_a_program_may_print_more_than_a_port_takes_that_nobody_reads(tmp_path):
    """So it is on a board that has a broker. Its program ends only if nothing blocks it."""
    program = tmp_path / "loud.py"
    program.write_text("for _ in range(2000):\n    print('x' * 99)\nraise SystemExit(3)\n")
    directory = tmp_path / "board"
    directory.mkdir()
    interpreter = micropython.find_micropython()
    board = EmulatedBoard(interpreter, directory, program=program, port_is_read=False)
    with closing(board):
        wait_for(board.failure)
    assert (directory / LOG_NAME).stat().st_size == 2000 * 100


@pytest.mark.parametrize(
    ("script", "fault"),
    [
        ("#!/bin/sh\necho 'no heap' >&2\nexit 1\n", "is not a MicroPython that works: no heap"),
        ("#!/no/such/interpreter\n", "does not run"),
    ],
)
def test_an_interpreter_that_does_not_work_has_a_fault_with_the_reason(tmp_path, script, fault):
    interpreter = tmp_path / "micropython"
    interpreter.write_text(script)
    interpreter.chmod(0o755)
    (reported,) = micropython.probe(interpreter, "test").faults
    assert reported.startswith(fault)


def test_only_the_interpreter_named_by_the_environment_is_used(monkeypatch):
    good = micropython.find_micropython()
    monkeypatch.setenv("TERN_MICROPYTHON", sys.executable)
    with pytest.raises(UsageError, match=r"TERN_MICROPYTHON=.* cannot be used: small ints"):
        micropython.find_micropython()
    monkeypatch.setenv("TERN_MICROPYTHON", str(good))
    assert micropython.find_micropython() == good


def test_a_source_with_another_checksum_is_refused(tmp_path):
    """Emulators are built from sources of other projects. A file that is not byte for byte the
    known one, or is missing, is refused before it is compiled.
    """
    path = tmp_path / "lwip.tar.xz"
    path.write_bytes(b"the known source")
    wanted = {path.name: hashlib.sha256(path.read_bytes()).hexdigest()}
    debian.require_checksums(tmp_path, wanted)  # the known file passes

    for damage in (lambda: path.write_bytes(b"something else"), path.unlink):
        damage()
        with pytest.raises(BuildError, match=r"lwip.tar.xz is not the one"):
            debian.require_checksums(tmp_path, wanted)
