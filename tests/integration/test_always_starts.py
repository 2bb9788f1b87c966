"""A board whose program a command has stopped runs it again by itself, however the command ended."""

import random
import shutil
import subprocess
import time
from contextlib import closing, contextmanager, suppress
from queue import SimpleQueue

import pytest
import rig
import warm
from spec.files import uf2_file

from ternhost.errors import REFUSED, STORAGE, USAGE, DeviceError
from ternhost.reach.links import open_link
from terntools.boards import deploy, uf2
from terntools.boards.repl import Repl, SilenceError
from terntools.emulators import flash_image
from terntools.emulators.pico import boot_pico

PATIENCE = 120.0  # seconds; 30 on a machine that is not busy
TIMER = 12.0  # seconds after which a board at its prompt resets, unless its host comes back
# The shares of a command's time after which it is killed: without --exhaustive the first.
SHARES = (0.5, *[number / 20 for number in range(20)])


def member(folder, *words):
    """The options that make a board device 7 of the fleet in this folder."""
    store = f"--store {folder}/fleet.sqlite --device 7 --dataset flights --count 9"
    return [*store.split(), *words]


def deploy_words(url, folder, n):
    return ["deploy", url, "--whole"] if n % 2 else ["deploy", url]


def up_words(url, folder, n):
    whole = ["--whole"] if n % 2 else []
    return ["up", url, *member(folder, "--yes", "--pause", n % 2), *whole]


def records_words(url, folder, n):
    return ["device", "records", url, "--fill", folder / "mine.csv"]


def flash_words(url, folder, n):
    return ["flash", url, "--firmware", folder / "other.uf2"]


def provision_words(url, folder, n):
    return ["provision", url, *member(folder, "--largest", 1 + n % 2)]


# The command line of each command in its n-th run: every run has something to write. Without
# --exhaustive the first is killed: what it leaves half done costs a board its program.
COMMANDS = {
    "deploy": deploy_words,
    "up": up_words,
    "records": records_words,
    "flash": flash_words,
    "provision": provision_words,
}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A folder with the flash of a Pico that is a member of a fleet, and the store."""
    folder = tmp_path_factory.mktemp("prepared")
    flash_image.fill("pico", folder / "flash.bin", deploy.library_files)
    with boot_pico(folder / "flash.bin") as pico:
        rig.tern("provision", pico.url, *member(folder), code=0)
    (folder / "other.uf2").write_bytes(uf2_file(bytes(512), uf2.RP2350_ARM))
    (folder / "mine.csv").write_text("0.5,0.5,0.5,1\n" * 40)
    return folder


@contextmanager
def running(prepared, folder):
    """The port of a Pico of its own that answers, on a copy of the prepared folder."""
    shutil.copytree(prepared, folder)
    with boot_pico(folder / "flash.bin") as pico:
        wait_until_it_answers(pico.url)
        yield pico.url


def wait_until_it_answers(url):
    """Wait until the board says that it is device 7; return the seconds that this takes."""
    start = time.monotonic()
    while time.monotonic() - start < PATIENCE:
        with suppress(DeviceError), closing(open_link(url, SimpleQueue())) as link:
            if link.hello(20.0).first == 7:
                return time.monotonic() - start
        time.sleep(0.2)
    raise AssertionError("the board stays silent")


def kill_after(seconds, words):
    """Begin a command, and kill it after some seconds if it has not ended."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = warm.Popen([*warm.TERN, *map(str, words)], **quiet)
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    process.kill()
    process.wait()


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_board_answers_again_after_its_command_is_killed_at_any_moment(
    name, prepared, tmp_path, sampled
):
    command, folder = COMMANDS[name], tmp_path / "board"
    with running(prepared, folder) as url:
        start = time.monotonic()
        kill_after(40, command(url, folder, 0))
        whole = time.monotonic() - start
        wait_until_it_answers(url)
        for n, share in enumerate(sampled(SHARES, 1), 1):
            seconds = whole * (share + random.random() / 20)
            kill_after(seconds, command(url, folder, n))
            print(f"{name}: killed after {seconds:.1f} s,", wait_until_it_answers(url))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("one") / "board"


@pytest.fixture(scope="module")
def url(prepared, folder):
    """The port of a board that the following tests share."""
    with running(prepared, folder) as its_url:
        yield its_url


REFUSALS = {  # the words of a command, and its exit code
    "a larger budget": (
        lambda url, folder: ["up", url, *member(folder, "--budget", 500, "--yes")],
        USAGE,
    ),
    "another device": (
        lambda url, folder: ["provision", url, *member(folder)[:3], 8, "--dataset", "flights"],
        REFUSED,
    ),
    "firmware for another chip": (lambda url, folder: flash_words(url, folder, 0), USAGE),
    "no room for records": (
        lambda url, folder: [*records_words(url, folder, 0), "--output", "/nowhere/records.csv"],
        STORAGE,
    ),
}


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("reason", REFUSALS)
def test_a_board_answers_again_after_a_refusal(url, folder, reason):
    words, code = REFUSALS[reason]
    rig.tern(*words(url, folder), code=code)
    wait_until_it_answers(url)


@pytest.mark.slow
def test_a_host_that_works_renews_the_timer_of_a_board(url):
    with Repl(url, visits=True) as repl:
        repl.run("kept = 1")  # until a reset
        time.sleep(TIMER + 2)
        assert repl.evaluate("kept") == 1
        repl.run(f"import time; time.sleep({TIMER + 2})")
        assert repl.evaluate("kept") == 1, "code that runs is waited for"


def halfway(sent, total):
    """The progress of a deployment that breaks off halfway."""
    if sent > total / 2:
        raise SilenceError("stopped", "")


@pytest.mark.slow
def test_a_deployment_that_breaks_off_leaves_the_program_before(url):
    with Repl(url, visits=True) as repl:
        before = repl.hashes(list(repl.directory("/lib")))
        machine, changes = deploy.plan(repl, more=["local", "softmax"])
        with pytest.raises(SilenceError):
            deploy.install(repl, machine, changes, halfway)
    wait_until_it_answers(url)
    with Repl(url, visits=True) as repl:
        assert before.items() <= repl.hashes(list(repl.directory("/lib"))).items()
