"""Commands on a system without Unix's modules, and the names and errors of ports on Windows and
macOS.

No test here runs on Windows: a process hides what Windows' Python lacks before it imports any
module of tern.
"""

import json
import subprocess
import sys

import pytest

WITHOUT_UNIX = """
import asyncio, concurrent.futures.process, contextlib, io, json, multiprocessing, os, select, shutil, signal, socket
import ssl, subprocess, sys, tempfile
import numpy, scipy.optimize, serial, serial.tools.list_ports

HIDDEN = {"fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty"}

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name in HIDDEN:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

for name in HIDDEN:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Hidden())
ABSENT = {
    os: "fork forkpty openpty ttyname killpg setsid mkfifo getuid geteuid getgid getpgid fchmod sched_getaffinity",
    signal: "SIGHUP SIGKILL SIGUSR1 SIGUSR2 SIGALRM SIGCHLD SIGPIPE",
    socket: "AF_UNIX",
    select: "poll epoll",
}
for module, attributes in ABSENT.items():
    for attribute in attributes.split():
        delattr(module, attribute)

from ternhost.cli import main

for command in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = main(command.split("|"))
    print(json.dumps([code, out.getvalue(), err.getvalue()]))
"""


@pytest.fixture
def without_unix(tmp_path):
    """Runs commands, whose words are separated by |, in one process without Unix's modules, in a
    folder with a space and an umlaut. Returns (exit code, standard output, standard error) of each.
    """
    folder = tmp_path / "Eigene Geräte"
    folder.mkdir()

    def run(*commands):
        words = [sys.executable, "-c", WITHOUT_UNIX, json.dumps(commands)]
        ended = subprocess.run(
            words, cwd=folder, capture_output=True, text=True, timeout=300, check=False
        )
        assert ended.returncode == 0, ended.stderr
        return [json.loads(line) for line in ended.stdout.splitlines()]

    return run


TRAIN = "train|--fleet|simulated:200|--reports|200|--group|100|--data|synthetic-logistic"
WITHOUT_BOARDS = (
    "card|design|duchi|--epsilon|1|--output|mein é.card",
    "card|show|mein é.card",
    "fleet|kinds",
    f"{TRAIN}|--name|first",
    "runs",
    "watch|--once|runs/first",
    "keys|add|1-3|--store|keys.sqlite",
    "keys|list|keys.sqlite",
    "board|list",
)


def test_cards_simulated_fleets_and_stores_need_no_module_of_unix(without_unix):
    results = without_unix(*WITHOUT_BOARDS)
    for command, (code, _, errors) in zip(WITHOUT_BOARDS, results, strict=True):
        assert code == 0, f"{command}: {errors}"


def test_the_help_of_a_command_for_boards_needs_no_module_of_unix(without_unix):
    assert without_unix("board|up|--help") == []  # help ends the process, with exit code 0


def test_a_command_that_needs_unix_says_so(without_unix):
    ended = without_unix("train|--fleet|emulated:2|--reports|10", "board|monitor|COM3")
    for code, _, err in ended:
        assert code == 2
        assert "needs Linux or macOS" in err
