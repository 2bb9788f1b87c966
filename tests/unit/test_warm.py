"""Processes of `warm` behave like those of `subprocess`; only their imported modules differ."""

import os
import signal
import subprocess
import sys

import pytest
import warm

PROGRAM = """
import os, sys
print(os.getppid(), os.getcwd(), sys.argv, os.environ["COLOUR"], sys.stdin.read(), "ternhost.cli" in sys.modules)
print("problem", file=sys.stderr)
sys.exit({end})
"""


@pytest.mark.parametrize(
    ("end", "code"), [("0", 0), ("", 0), ("3", 3), ("'words'", 1), ("1 / 0", 1)]
)
def test_a_program_ends_as_it_does_under_subprocess(tmp_path, monkeypatch, end, code):
    monkeypatch.setenv("COLOUR", "plum")
    command = [sys.executable, "-c", PROGRAM.format(end=end), "a", "b"]
    options = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "cwd": tmp_path}
    cold, done = (run(command, **options) for run in (subprocess.run, warm.run))
    assert done.returncode == cold.returncode == code
    assert done.stdout == cold.stdout.replace("False", "True")
    assert done.stdout.startswith(f"{os.getpid()} {tmp_path} ['-c', 'a', 'b'] plum  True")
    errors, expected = done.stderr.splitlines(), cold.stderr.splitlines()
    assert (errors[0], errors[-1]) == (expected[0], expected[-1])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_a_process(number):
    with warm.Popen(
        [sys.executable, "-c", "print(1, flush=True)\nwhile True: pass"], stdout=-1
    ) as process:
        assert process.stdout.readline() == b"1\n"
        process.send_signal(number)
        assert process.wait(60) == -number
