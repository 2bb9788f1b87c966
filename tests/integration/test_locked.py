"""A board locked by `tern provision --lock` answers its host, and never gives out its console."""

import contextlib
import itertools
import shutil
import socket
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
import rig
import serial

from tern import wire
from ternhost.errors import REFUSED, USAGE, UsageError
from ternhost.reach.ports.link import open_port
from ternhost.store.store import Store
from terntools.boards import deploy, devices, lock, mpy, provision, repl
from terntools.boards.member import Member, dataset_records
from terntools.boards.network import Broker
from terntools.boards.policy import policy
from terntools.boards.provision_command import run_provision
from terntools.boards.repl import Repl, SilenceError
from terntools.emulators import catalogue, flash_image
from terntools.emulators.pico import boot_pico

PROMPTS = (b">>>", b"raw REPL", b"KeyboardInterrupt")
KEYS = (b"\x03", b"\r\x03", b"\x03\x03\r\x01", b"\r\x03\r\x02\r\x04", bytes(65) + b"\r\x03\r\x01")
PRESSES = 30  # of each key while a board starts, which takes some seconds


def member(**options):
    return Member(7, dataset_records("iris", 7, 1), policy("2", "100"), **options)


@pytest.fixture(scope="module")
def deployed(tmp_path_factory):
    """The flash of a Pico with the library."""
    path = tmp_path_factory.mktemp("deployed") / "flash.bin"
    flash_image.fill("pico", path, deploy.library_files)
    return path


@pytest.fixture
def copied(deployed, tmp_path):
    """A copy of the flash `deployed`."""
    return Path(shutil.copy(deployed, tmp_path))


@pytest.fixture(scope="module")
def flash(deployed, tmp_path_factory):
    """The flash of a locked Pico, first provisioned without a lock."""
    folder = tmp_path_factory.mktemp("locked")
    shutil.copy(deployed, folder)
    with boot_pico(folder / "flash.bin") as board:
        with Repl(board.url) as prompt, Store(folder / "store.sqlite", beside=True) as store:
            prompt.write_file("/boot.py", b"import os\n")
            provision.apply(prompt, provision.plan(prompt, member(), store), member(), store)
        done = run_provision(board.url, member(lock=True), folder / "store.sqlite")
        assert (done["written"], done["removed"]) == (["/lock"], ["/boot.py"])
        assert done["locked"]
    return folder / "flash.bin"


def type_keys(url, keys, times):
    """Send keys to a board; return its output, until a reset if there is one."""
    output = b""
    with contextlib.suppress(serial.SerialException), open_port(url) as port:
        for _ in range(times):
            port.write(keys)
            output += port.read(port.in_waiting or 1)
        end = time.monotonic() + 1
        while time.monotonic() < end:
            output += port.read(port.in_waiting or 1)
    return output


@pytest.fixture(scope="module")
def locked(tmp_path_factory):
    """The port of a locked board that starts quickly."""
    flash = tmp_path_factory.mktemp("quick") / "flash.bin"
    flash_image.fill("rv32", flash, lambda machine: {**deploy.library_files(machine), "/lock": b""})
    with catalogue.boot("rv32", flash) as board:
        deploy.wait_for_hello(board.url)
        yield board.url


@pytest.fixture
def quickly(monkeypatch):
    """The host does not try again and again to get a prompt."""
    monkeypatch.setattr(repl, "ENTER_TRIES", 1)
    monkeypatch.setattr(repl, "HELLO_WAIT", 60.0)


@pytest.mark.usefixtures("quickly")
def test_a_deployment_says_that_a_board_is_locked(locked):
    refused = rig.tern("deploy", locked, code=REFUSED)
    assert "is locked" in refused.err
    assert "erase its flash" in refused.err


@pytest.mark.usefixtures("quickly")
def test_the_records_of_a_locked_board_are_not_read(locked):
    refused = rig.tern("device", "records", locked, code=REFUSED)
    assert "is locked: its records cannot be read" in refused.err
    assert refused.out == ""


def test_a_locked_board_still_says_who_it_is(locked):
    assert devices.identify(locked).tern


def fire_at(folder, keys, fire, end):
    """Send keys to a Pico while it starts, as soon as its port appears in a folder below this one."""
    with socket.socket(socket.AF_UNIX) as line:
        while not end.is_set():
            try:
                line.connect(str(next(folder.glob("*/port"))))
                break
            except (StopIteration, OSError):
                time.sleep(0.001)
        line.settimeout(0.01)
        for key in itertools.cycle(keys):
            if end.is_set():
                return
            with contextlib.suppress(TimeoutError):
                line.sendall(key)
                fire.sent += 1
            end.wait(0.02)
            with contextlib.suppress(TimeoutError):
                fire.output += line.recv(4096)


@contextlib.contextmanager
def boot_under_fire(flash, keys, monkeypatch, until):
    """Boot a board under a fire of keys, which lasts until `until(fire)` is true, or two minutes;
    yield the fire, with the output and the number of keys sent, and the board.
    """
    fire, over = SimpleNamespace(output=b"", sent=0), threading.Event()
    with tempfile.TemporaryDirectory() as folder:
        with monkeypatch.context() as patched, ThreadPoolExecutor() as pool:
            firing = pool.submit(fire_at, Path(folder), keys, fire, over)
            try:
                patched.setenv("TMPDIR", folder)
                board, end = boot_pico(flash), time.monotonic() + 120
                while not until(fire) and time.monotonic() < end:
                    time.sleep(0.02)
            finally:
                over.set()
        firing.result()
        with board:
            yield fire, board


@pytest.mark.parametrize(
    "keys", [KEYS, *(pytest.param([key], marks=pytest.mark.exhaustive) for key in KEYS)]
)
def test_no_key_opens_the_console_of_a_locked_board(flash, keys, monkeypatch):
    def until(fire):
        return fire.sent > PRESSES * len(keys)

    with boot_under_fire(flash, keys, monkeypatch, until) as (fire, board):
        output = fire.output + type_keys(board.url, b"".join(keys), 20)
        assert not any(prompt in output for prompt in PROMPTS), output
        assert deploy.wait_for_hello(board.url).text.startswith("rp2040")


def test_the_same_keys_open_the_console_of_a_board_that_is_not_locked(copied, monkeypatch):
    def has_prompt(fire):
        return any(prompt in fire.output for prompt in PROMPTS)

    with boot_under_fire(copied, KEYS[1:2], monkeypatch, has_prompt) as (fire, _):
        assert has_prompt(fire), fire.output


@pytest.fixture(scope="module")
def quick():
    """A board that starts quickly."""
    with catalogue.boot("rv32") as board:
        yield board


@pytest.fixture
def prompt(quick):
    with Repl(quick.url) as opened:
        for path in opened.directory("/"):
            opened.remove(path)
        yield opened


def put(prompt, files):
    """Write the programs among these files; the loader starts one of them."""
    assert files[deploy.MAIN] == mpy.LOADER.read_bytes()
    for path in (deploy.PROGRAM, deploy.MAIN):
        prompt.write_file(path, files[path])


def test_a_board_that_does_not_start_terns_main_is_not_locked(prompt):
    with pytest.raises(UsageError, match=r"does not start main\.py of this tern") as caught:
        lock.check(prompt, network=False)
    assert "tern deploy" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("proven", "state", "starts_main"),
    [
        (0, wire.ROLLED_BACK, True),
        (0, wire.RESTARTING, False),
        (0, wire.TRIAL, False),
        (1, wire.CONFIRMED, False),  # it starts what came in the field
    ],
)
def test_a_board_whose_loader_may_start_an_update_is_not_locked(prompt, proven, state, starts_main):
    put(prompt, deploy.library_files(deploy.Machine.of(prompt), more=[deploy.UPDATE]))
    prompt.write_file("/boot.bin", b"TBT1" + bytes((proven, state)) + bytes(8))
    if starts_main:
        lock.check(prompt, network=False)
    else:
        with pytest.raises(UsageError, match="does not start"):
            lock.check(prompt, network=False)


def test_locking_needs_a_confirmation(quick, tmp_path):
    words = f"--store {tmp_path}/s.sqlite --device 7 --dataset flights --lock".split()
    refused = rig.tern("provision", quick.url, *words, code=USAGE)
    assert "Undo: erase the whole flash" in refused.err
    assert "add --yes" in refused.err


def test_a_locked_board_with_a_broker_closes_its_port(copied):
    config = Broker("broker.example", 1883).files()
    flash_image.add(copied, {**config, **lock.files(network=True)})
    with boot_pico(copied) as board:
        assert type_keys(board.url, b"\r\x03\r\x01", 20) == b""


WATCHED = """
import time
from tern import compat
from tern.boards.this import this_board
board = this_board()
"""


def test_the_watchdog_of_a_pico_resets_it_unless_fed_and_keeps_its_counts(copied):
    with boot_pico(copied, skip_idle=True) as board:
        with Repl(board.url) as prompt:
            # In one call: while no code runs, hours pass at once.
            fed = "board.watch()\nfor _ in range(10):\n    compat.feed()\n    time.sleep(2)\n"
            prompt.run(WATCHED + fed + "board.unwatch()\ntime.sleep(30)", timeout=60)
            assert prompt.evaluate("board.keep(0x30002)") == 0
            with pytest.raises(SilenceError):
                prompt.run("board.watch()\ntime.sleep(60)", timeout=60)
        with Repl(board.url) as prompt:
            prompt.run(WATCHED + "import machine")
            assert prompt.evaluate("machine.reset_cause() == machine.WDT_RESET")
            assert prompt.evaluate("board.keep()") >> 16 == 3
