"""Processes of `warm` are those of `subprocess`: they differ in what they have imported alone."""

import os
import signal
import subprocess
import sys

import pytest
import warm

SAYS = """
import os, sys
print(os.getppid(), os.getcwd(), sys.argv, os.environ["COLOUR"], sys.stdin.read(), "ternhost.cli" in sys.modules)
print("problem", file=sys.stderr)
sys.exit({end})
"""


@pytest.mark.parametrize(("end", "code"), [("0", 0), ("", 0), ("3", 3), ("'words'", 1), ("1 / 0", 1)])
def test_a_program(tmp_path, monkeypatch, end, code):
    monkeypatch.setenv("COLOUR", "plum")
    command = [sys.executable, "-c", SAYS.format(end=end), "a", "b"]
    cold, done = (
        one(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=tmp_path)
        for one in (subprocess.run, warm.run)
    )
    assert done.returncode == cold.returncode == code
    assert done.stdout == cold.stdout.replace("False", "True")
    assert done.stdout.startswith(f"{os.getpid()} {tmp_path} ['-c', 'a', 'b'] plum  True")
    assert (done.stderr.splitlines()[0], done.stderr.splitlines()[-1]) == (
        cold.stderr.splitlines()[0], cold.stderr.splitlines()[-1],
    )  # fmt: skip


def test_a_script_and_its_folder(tmp_path):
    (tmp_path / "beside.py").write_text("text = 'is there'\n")
    (tmp_path / "script.py").write_text("import sys, beside\nprint(__name__, sys.argv[1:], beside.text)\n")
    done = warm.run([sys.executable, str(tmp_path / "script.py"), "x"], capture_output=True, text=True)
    assert done.stdout == "__main__ ['x'] is there\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal(number):
    with warm.Popen([sys.executable, "-c", "print(1, flush=True)\nwhile True: pass"], stdout=-1) as process:
        assert process.stdout.readline() == b"1\n"
        process.send_signal(number)
        assert process.wait(60) == -number


def test_what_runs_for_too_long_is_killed():
    with pytest.raises(subprocess.TimeoutExpired):
        warm.run([sys.executable, "-c", "while True: pass"], timeout=0.2)
