"""A board whose program a command has stopped runs it again by itself, however the command ended."""

import random
import shutil
import subprocess
import time
from contextlib import contextmanager, suppress

import pytest
import rig
import warm
from harness.waiting import wait_for_board
from spec.files import uf2_file

from ternhost.errors import REFUSED, STORAGE, USAGE
from terntools.boards import software, uf2
from terntools.boards.repl import Repl
from terntools.emulators import flash_image
from terntools.emulators.pico import boot_pico

TIMER_S = 12.0  # after which a board at its prompt resets, unless its host comes back
DEVICE = 7


def member(folder, *words):
    """The options that make a board device 7 of the fleet in this folder."""
    store = f"--store {folder}/fleet.sqlite --device {DEVICE} --data flights --records 9"
    return [*store.split(), *words]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A folder with the flash of a Pico that is a member of a fleet, and the store."""
    folder = tmp_path_factory.mktemp("prepared")
    flash_image.fill("pico", folder / "flash.bin", software.library_files)
    with boot_pico(folder / "flash.bin") as pico:
        rig.tern("board", "provision", pico.url, *member(folder), code=0)
    (folder / "other.uf2").write_bytes(uf2_file(bytes(512), uf2.RP2350_ARM))
    (folder / "mine.csv").write_text("0.5,0.5,0.5,1\n" * 40)
    return folder


@contextmanager
def running(prepared, folder):
    """The port of a Pico of its own that answers, on a copy of the prepared folder."""
    shutil.copytree(prepared, folder)
    with boot_pico(folder / "flash.bin") as pico:
        wait_for_board(pico.url, DEVICE)
        yield pico.url


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("one") / "board"


@pytest.fixture(scope="module")
def url(prepared, folder):
    """The port of a board that several tests share."""
    with running(prepared, folder) as its_url:
        yield its_url


def kill_after(seconds, words):
    """Begin a command, and kill it after some seconds if it has not ended."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = warm.Popen([*warm.TERN, *map(str, words)], **quiet)
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    process.kill()
    process.wait()


REFUSALS = {  # the words of a command, and its exit code
    "no room for records": (
        "board records URL --data FOLDER/mine.csv --output /nowhere/records.csv",
        STORAGE,
    ),
    "a larger budget": (
        f"up URL --store FOLDER/fleet.sqlite --device {DEVICE} --data flights --records 9 "
        "--budget 500 --yes",
        USAGE,
    ),
    "another device": (
        "board provision URL --store FOLDER/fleet.sqlite --device 8 --data flights",
        REFUSED,
    ),
    "firmware for another chip": ("flash URL --firmware FOLDER/other.uf2", USAGE),
}


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("reason", REFUSALS)
def test_a_board_answers_again_after_a_refusal(url, folder, reason):
    """A command stops the program of a board before it finds a reason to refuse (REFUSALS); the
    program runs again afterwards.
    """
    words, code = REFUSALS[reason]

    rig.tern(*words.replace("URL", url).replace("FOLDER", str(folder)).split(), code=code)

    wait_for_board(url, DEVICE)


@pytest.mark.slow
def test_a_host_that_works_renews_the_timer_of_a_board(url):
    """While a host works at the prompt of a board, the board's own program is stopped. A timer on
    the board resets it after 12 s, so that it never stays stopped if the host dies. A host that is
    alive renews the timer, and so is not disturbed.
    """
    with Repl(url, visits=True) as repl:
        repl.run("kept = 1")  # a reset would lose this variable

        time.sleep(TIMER_S + 2)  # the host is idle
        assert repl.evaluate("kept") == 1

        repl.run(f"import time; time.sleep({TIMER_S + 2})")  # the board is busy
        assert repl.evaluate("kept") == 1


@pytest.mark.slow
def test_a_board_answers_again_after_its_deployment_was_killed(url):
    """The host dies while it replaces the library of a board: the board starts again by itself."""
    seconds_until_modules_are_written = 6.0
    kill_after(seconds_until_modules_are_written, ["board", "deploy", url, "--whole"])
    wait_for_board(url, DEVICE)


# The command line of each command in its n-th run: every run has something to write.
COMMANDS = {
    "deploy": lambda url, folder, n: ["board", "deploy", url, *["--whole"] * (n % 2)],
    "up": lambda url, folder, n: [
        *("board", "up", url, *member(folder, "--yes", "--pause", n % 2)),
        *["--whole"] * (n % 2),
    ],
    "records": lambda url, folder, n: ["board", "records", url, "--data", folder / "mine.csv"],
    "flash": lambda url, folder, n: ["board", "flash", url, "--firmware", folder / "other.uf2"],
    "provision": lambda url, folder, n: [
        "board",
        "provision",
        url,
        *member(folder, "--max-epsilon", 1 + n % 2),
    ],
}


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("name", COMMANDS)
def test_a_board_answers_again_after_its_command_is_killed_at_any_moment(name, prepared, tmp_path):
    """Commands stop the program of a board for a while. Killed at 20 moments spread over its whole
    duration, no command leaves a board that stays stopped.
    """
    command, folder = COMMANDS[name], tmp_path / "board"
    with running(prepared, folder) as url:
        # A whole run first, to learn how long it takes.
        start = time.monotonic()
        kill_after(40, command(url, folder, 0))
        whole_seconds = time.monotonic() - start
        wait_for_board(url, DEVICE)

        for n in range(1, 21):
            seconds = whole_seconds * (n - random.random()) / 20
            kill_after(seconds, command(url, folder, n))
            wait_for_board(url, DEVICE)
