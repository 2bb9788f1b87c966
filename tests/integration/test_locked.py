"""A board locked by `tern board provision --lock` answers its host, and never gives out its console."""

import contextlib
import itertools
import shutil
import socket
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
import rig
import serial

from tern import wire
from ternhost.errors import REFUSED, USAGE, UsageError
from ternhost.reach.ports.link import open_port
from ternhost.store.store import Store
from terntools.boards import lock, machines, mpy, provision, repl, software, starting
from terntools.boards.member import Member, dataset_records
from terntools.boards.network import Broker
from terntools.boards.policy import policy
from terntools.boards.provision_command import run_provision
from terntools.boards.repl import Repl
from terntools.emulators import catalogue, flash_image
from terntools.emulators.pico import boot_pico

PROMPTS = (b">>>", b"raw REPL", b"KeyboardInterrupt")
CTRL_C, RETURN_AND_CTRL_C = b"\x03", b"\r\x03"
TO_RAW_REPL, TO_REPL_AND_RESET = b"\x03\x03\r\x01", b"\r\x03\r\x02\r\x04"
BEHIND_A_FRAME = bytes(65) + b"\r\x03\r\x01"
KEYS = (CTRL_C, RETURN_AND_CTRL_C, TO_RAW_REPL, TO_REPL_AND_RESET, BEHIND_A_FRAME)
PRESSES = 30  # of each key while a board starts, which takes some seconds


def member(**options):
    return Member(7, dataset_records("iris", 7, 1), policy("2", "100"), **options)


@pytest.fixture(scope="module")
def deployed(tmp_path_factory):
    """The flash of a Pico with the library."""
    path = tmp_path_factory.mktemp("deployed") / "flash.bin"
    flash_image.fill("pico", path, software.library_files)
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
            prompt.files.write("/boot.py", b"import os\n")
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
    flash_image.fill(
        "rv32", flash, lambda machine: {**software.library_files(machine), "/lock": b""}
    )
    with catalogue.boot("rv32", flash) as board:
        starting.wait_for_hello(board.url)
        yield board.url


@pytest.fixture
def quickly(monkeypatch):
    """The host does not try again and again to get a prompt."""
    monkeypatch.setattr(repl, "ENTER_TRIES", 1)
    monkeypatch.setattr(repl, "LOCKED_PATIENCE", 60.0)


@pytest.mark.usefixtures("quickly")
def test_a_deployment_says_that_a_board_is_locked(locked):
    refused = rig.tern("board", "deploy", locked, code=REFUSED)
    assert "is locked" in refused.err
    assert "erase its flash" in refused.err


class Typist:
    """Types keys at a Pico while it starts, as soon as its port appears below a folder."""

    def __init__(self, folder, keys):
        self.output = b""  # of the board
        self.typed = 0  # keys
        self._folder, self._keys = folder, keys
        self._over = threading.Event()

    def type_until_stopped(self):
        with socket.socket(socket.AF_UNIX) as line:
            while not self._over.is_set() and not self._connects(line):
                time.sleep(0.001)
            line.settimeout(0.01)
            for key in itertools.cycle(self._keys):
                if self._over.is_set():
                    return
                with contextlib.suppress(TimeoutError):
                    line.sendall(key)
                    self.typed += 1
                self._over.wait(0.02)
                with contextlib.suppress(TimeoutError):
                    self.output += line.recv(4096)

    def _connects(self, line):
        for port in self._folder.glob("*/port"):
            with contextlib.suppress(OSError):
                line.connect(str(port))
                return True
        return False

    def stop(self):
        self._over.set()


@contextlib.contextmanager
def booted_while_typing(flash, keys, monkeypatch, until):
    """Boot a board while these keys are typed at it, until `until(typist)` is true, or two minutes.

    Yields the typist and the board.
    """
    with tempfile.TemporaryDirectory() as folder:
        typist = Typist(Path(folder), keys)
        with monkeypatch.context() as patched, ThreadPoolExecutor() as pool:
            typing = pool.submit(typist.type_until_stopped)
            try:
                patched.setenv("TMPDIR", folder)
                board, end = boot_pico(flash), time.monotonic() + 120
                while not until(typist) and time.monotonic() < end:
                    time.sleep(0.02)
            finally:
                typist.stop()
        typing.result()
        with board:
            yield typist, board


def test_no_key_opens_the_console_of_a_locked_board(flash, monkeypatch):
    """An owner locks a board so that nobody who finds it can read its keys over USB. All keys that
    open the console of MicroPython are typed at it, while it starts and afterwards: no prompt
    appears, and the board still serves its host.
    """

    def has_typed_all(typist):
        return typist.typed > PRESSES * len(KEYS)

    with booted_while_typing(flash, KEYS, monkeypatch, has_typed_all) as (typist, board):
        output_at_start = typist.output
        output = output_at_start + type_keys(board.url, b"".join(KEYS), times=20)

        assert not any(prompt in output for prompt in PROMPTS), output
        assert starting.wait_for_hello(board.url).text.startswith("rp2040"), "it still serves"


def test_the_same_keys_open_the_console_of_a_board_that_is_not_locked(copied, monkeypatch):
    def has_prompt(typist):
        return any(prompt in typist.output for prompt in PROMPTS)

    with booted_while_typing(copied, [RETURN_AND_CTRL_C], monkeypatch, has_prompt) as (typist, _):
        assert has_prompt(typist), typist.output


@pytest.fixture(scope="module")
def quick():
    """A board that starts quickly."""
    with catalogue.boot("rv32") as board:
        yield board


@pytest.fixture
def prompt(quick):
    with Repl(quick.url) as opened:
        for path in opened.files.sizes("/"):
            opened.files.remove(path)
        yield opened


@pytest.fixture
def updatable(prompt):
    """This board with a loader, which starts main.py or an update; and `boot.bin` as it says."""
    files = software.library_files(machines.Machine.of(prompt), more=[software.UPDATE])
    for path in (software.PROGRAM, software.MAIN):
        prompt.files.write(path, files[path])

    def with_boot_file(proven, state):
        prompt.files.write("/boot.bin", b"TBT1" + bytes((proven, state)) + bytes(8))
        return prompt

    return with_boot_file


@pytest.mark.parametrize(
    ("proven", "state"),
    [(0, wire.RESTARTING), (0, wire.TRIAL), (1, wire.CONFIRMED)],
    ids=["before its trial", "on trial", "confirmed in the field"],
)
def test_a_board_whose_loader_may_start_an_update_is_not_locked(updatable, proven, state):
    """An update that the board has got may not keep the console closed. So `tern board provision --lock`
    refuses while the loader would start one instead of main.py.
    """
    with pytest.raises(UsageError, match="does not start"):
        lock.check(updatable(proven, state), network=False)


def test_a_board_whose_update_was_rolled_back_can_be_locked(updatable):
    lock.check(updatable(proven=0, state=wire.ROLLED_BACK), network=False)


def test_locking_needs_a_confirmation(quick, tmp_path):
    """A lock can be undone only by erasing the flash, so the user has to say --yes."""
    words = f"--store {tmp_path}/s.sqlite --device 7 --data flights --lock".split()
    refused = rig.tern("board", "provision", quick.url, *words, code=USAGE)
    assert "Undo: erase the whole flash" in refused.err
    assert "add --yes" in refused.err


def test_a_locked_board_with_a_broker_closes_its_port(copied):
    """It talks to its host over the network, so it prints nothing at its USB port."""
    config = Broker("broker.example", 1883).files()
    flash_image.add(copied, {**config, **lock.files(network=True)})
    with boot_pico(copied) as board:
        assert type_keys(board.url, b"\r\x03\r\x01", times=20) == b""


# An interrupt that comes before main.py has turned Ctrl-C off gets no prompt from a locked board.


LONG_CALLS = b"from hashlib import sha256\ndata = bytes(30000)\n" + b"sha256(data)\n" * 100
SHORT_CALLS = b"def nothing():\n    pass\n" + b"nothing()\n" * 300
SECONDS = 10  # that the key is pressed, unless the board ends before
END = b"Traceback"  # a program has ended: after this there is a prompt
# What takes an early Ctrl-C in main.py.
TAKES_KEY = b"for _ in (0, 1):"
PROGRAMS = {"main.py": mpy.MAIN, "the loader": mpy.FIRMWARE / "trial" / "main.py"}


def interrupted(program, folder, files):
    """What a board prints that starts with this program while somebody presses Ctrl-C."""
    flash_image.write(
        "rv32",
        folder / "flash.bin",
        {"/main.py": LONG_CALLS + SHORT_CALLS + program.read_bytes(), **files},
    )
    printed = b""
    with catalogue.boot("rv32", folder / "flash.bin") as board, open_port(board.url) as port:
        port.timeout = 0.01
        end = time.monotonic() + SECONDS
        with suppress(serial.SerialException):  # a reset hangs up
            while time.monotonic() < end and END not in printed:
                port.write(b"\x03")
                printed += port.read(port.in_waiting or 1)
    return printed


@pytest.mark.sampled(1)
@pytest.mark.parametrize("program", PROGRAMS)
def test_files_with_the_names_of_modules_do_not_open_a_locked_board(tmp_path, program):
    """A root may hold files of the user's that MicroPython finds before its own modules."""
    hiding = {"/lock": b"", "/os.py": b"raise SystemExit\n", "/machine.py": b"raise SystemExit\n"}
    assert END not in interrupted(PROGRAMS[program], tmp_path, hiding)


def test_a_main_py_that_does_not_expect_an_early_key_would_give_its_prompt(tmp_path):
    """So the key does come early."""
    text = PROGRAMS["main.py"].read_bytes()
    assert TAKES_KEY in text
    unprepared = tmp_path / "main.py"
    unprepared.write_bytes(text.replace(TAKES_KEY, b"for _ in ():"))
    assert END in interrupted(unprepared, tmp_path, {"/lock": b""})
