"""A board whose program a command has stopped runs it again by itself, however the command ended."""

import itertools
import random
import shutil
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from importlib.util import find_spec
from queue import SimpleQueue

import pytest
import rig
import warm
from spec.files import uf2_file

from ternhost.errors import FAILED, INTERRUPTED, REFUSED, STORAGE, USAGE, DeviceError
from ternhost.reach.links import open_link
from terntools.boards import deploy, uf2
from terntools.boards.repl import Repl, SilenceError
from terntools.emulators import flash_image
from terntools.emulators.pico import boot_pico

PATIENCE = 120.0  # seconds; 30 on a machine that is not busy
BOARDS = 2  # side by side
MOMENTS = 20


def member(folder, *words):
    return [
        "--store",
        folder / "fleet.sqlite",
        "--device",
        7,
        "--dataset",
        "flights",
        "--count",
        9,
        *words,
    ]


# What each command says, in the n-th run: every run has something to write. Without --exhaustive
# the first and the last of them are killed: what they leave half done costs a board its program, or
# its key and its ledger.
COMMANDS = {
    "deploy": lambda url, folder, n: ["deploy", url, *["--whole"] * (n % 2)],
    "up": lambda url, folder, n: [
        "up",
        url,
        *member(folder, "--yes", "--pause", n % 2),
        *["--whole"] * (n % 2),
    ],
    "records": lambda url, folder, n: ["device", "records", url, "--fill", folder / "mine.csv"],
    "flash": lambda url, folder, n: ["flash", url, "--firmware", folder / "other.uf2"],
    "hil": lambda url, folder, n: [
        "hil",
        "--hardware-map",
        folder / "map.yaml",
        "--tests",
        folder / "test_it.py",
        "--sessions",
        folder / "out",
    ],
    "provision": lambda url, folder, n: ["provision", url, *member(folder, "--largest", 1 + n % 2)],
}
if find_spec("ternbench"):
    COMMANDS["bench"] = lambda url, folder, n: [
        "bench",
        "latency",
        url,
        "--sessions",
        folder / "sessions",
    ]
TESTS = """
def test_computes(dut):
    dut.deploy("bench")
    with dut.repl() as repl:
        for n in range(20):
            assert repl.evaluate(f"{n} + {n}") == 2 * n
            repl.run("import time; time.sleep(0.2)")
"""


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """The flash of a Pico that is a member of a fleet, with the store."""
    folder = tmp_path_factory.mktemp("prepared")
    flash_image.fill("pico", folder / "flash.bin", deploy.library_files)
    with boot_pico(folder / "flash.bin") as pico:
        rig.tern("provision", pico.url, *member(folder), code=0)
    (folder / "other.uf2").write_bytes(uf2_file(bytes(512), uf2.RP2350_ARM))
    (folder / "mine.csv").write_text("0.5,0.5,0.5,1\n" * 40)
    (folder / "test_it.py").write_text(TESTS)
    return folder


@contextmanager
def board(prepared, tmp_path, number=0):
    """The port of a Pico of its own that answers, and its folder."""
    folder = tmp_path / str(number)
    shutil.copytree(prepared, folder)
    with boot_pico(folder / "flash.bin") as pico:
        board_map = f"- {{connected: true, id: one, platform: pico, serial: '{pico.url}'}}\n"
        (folder / "map.yaml").write_text(board_map)
        until_it_answers(pico.url)
        yield pico.url, folder


def until_it_answers(url, seconds=PATIENCE):
    """The seconds until the board says that it is device 7."""
    start = time.monotonic()
    while True:
        try:
            with closing(open_link(url, SimpleQueue())) as link:
                if link.hello(20.0).first == 7:  # a bench answers once more, as device 1
                    return time.monotonic() - start
        except DeviceError:
            pass
        assert time.monotonic() - start < seconds, "the board stays silent"
        time.sleep(0.2)


def begin(words):
    command = [*warm.TERN, *map(str, words)]
    return warm.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )


def kill_at(words, seconds, how=signal.SIGKILL):
    """Begin a command and kill it then; return its exit code."""
    process = begin(words)
    time.sleep(seconds)
    process.send_signal(how)
    return process.wait(60)


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_a_board_answers_again_after_its_command_is_killed_at_any_moment(
    name, prepared, tmp_path, sampled
):
    """Each board is visited again and again; the moments are spread over the time that the command
    takes.
    """
    made = COMMANDS[name]
    moments = sampled(range(MOMENTS), BOARDS)

    def visits(number):
        spent = []
        with board(prepared, tmp_path, number) as (url, folder):
            runs, start = itertools.count(), time.monotonic()
            process = begin(made(url, folder, next(runs)))
            with suppress(subprocess.TimeoutExpired):  # a bench takes minutes
                process.wait(40)
            process.kill()
            process.wait()
            whole = time.monotonic() - start
            until_it_answers(url)
            for moment in moments[number::BOARDS]:
                kill_at(made(url, folder, next(runs)), whole * (moment + random.random()) / MOMENTS)
                spent.append(until_it_answers(url))
        return spent

    with ThreadPoolExecutor(BOARDS) as pool:
        spent = [one for of_board in pool.map(visits, range(BOARDS)) for one in of_board]
    print(f"{name}: {len(spent)} of {len(moments)} answered, slowest after {max(spent):.1f} s")
    assert len(spent) == len(moments)


@pytest.fixture(scope="module")
def one(prepared, tmp_path_factory):
    with board(prepared, tmp_path_factory.mktemp("one")) as its:
        yield its


@pytest.mark.slow
def test_a_board_answers_again_after_a_refusal(one):
    url, folder = one
    for words, code in (
        (["provision", url, *member(folder)[:3], 8, "--dataset", "flights"], REFUSED),
        (["provision", url, *member(folder, "--budget", 500)], USAGE),
        (["up", url, *member(folder, "--budget", 500, "--yes")], USAGE),
        (COMMANDS["flash"](url, folder, 0), USAGE),
        ([*COMMANDS["records"](url, folder, 0), "--output", "/nowhere/records.csv"], STORAGE),
    ):
        rig.tern(*words, code=code)
        until_it_answers(url)


@pytest.mark.slow
def test_a_board_answers_again_after_ctrl_c_and_a_kill(one):
    """Ctrl-C starts the program at once; after a kill the board's timer does, and no ledger is
    lost.
    """
    url, folder = one
    for how, seconds in ((signal.SIGINT, 1.5), (signal.SIGINT, 4.0), (signal.SIGKILL, 3.0)):
        code = kill_at(COMMANDS["provision"](url, folder, 0), seconds, how)
        assert code in (0, INTERRUPTED, -signal.SIGKILL)
        until_it_answers(url)
    with Repl(url, visits=True) as repl:
        repl.run("kept = 1")  # until a reset
        time.sleep(14)  # longer than the timer: a host that works renews it
        assert repl.evaluate("kept") == 1
    with Repl(url, visits=True) as repl:
        repl.run("import time; time.sleep(14)")  # nor does code that runs
    until_it_answers(url)


@pytest.mark.slow
def test_a_deployment_that_is_killed_leaves_the_program_before(one):
    url, _ = one
    with Repl(url, visits=True) as repl:
        before = repl.hashes(list(repl.directory("/lib")))
        machine, changes = deploy.plan(repl, whole=True)
        with pytest.raises(SilenceError):
            deploy.install(repl, machine, changes, pull)
    until_it_answers(url)
    with Repl(url, visits=True) as repl:
        assert before.items() <= repl.hashes(list(repl.directory("/lib"))).items()


def pull(sent, total):
    """Stop a deployment halfway."""
    if sent > total / 2:
        raise SilenceError("stopped", "")


@pytest.mark.slow
def test_a_program_that_crashes_at_once_is_no_success(one, monkeypatch):
    url, folder = one
    monkeypatch.setattr(deploy, "_FIRST_SECONDS", PATIENCE)
    (folder / "bad.py").write_text("import tern\n\n\ndef go():\n    return 1 / 0\n\n\ngo()\n")
    ended = rig.tern("deploy", url, "--main", folder / "bad.py", code=FAILED)
    assert "stopped as soon as it was started" in ended.err
    assert 'File "main.py", line 5, in go\n  ZeroDivisionError: divide by zero' in ended.err
    assert f"tern deploy {url} --main" in ended.err
    rig.tern("deploy", url, code=0)
    until_it_answers(url)
