"""QEMU's machines as boards: MicroPython on their instruction set, flash, radio and network; and
fleets of them.
"""

import os
import signal
import subprocess
import sys
from contextlib import ExitStack

import pytest
import rig
from harness.raw_client import wait_for

from ternhost.errors import UsageError
from ternhost.reach.broker import mosquitto
from ternhost.store.store import Store
from terntools.boards import deploy
from terntools.boards.deploy import Machine
from terntools.boards.repl import Repl
from terntools.emulators import flash_image, qemu

NAMES = ("rv32", "xtensa", "m33")
WIRELESS = ("rv32", "xtensa")
PROCESSORS = {"rv32": "rv32imc", "xtensa": "xtensawin", "m33": "armv7emsp"}


def ask(url, code, expression):
    with Repl(url) as repl:
        repl.soft_reset()
        repl.run(code)
        return repl.evaluate(expression)


@pytest.fixture(scope="module", params=NAMES)
def machine(request):
    with qemu.boot(request.param) as running:
        yield request.param, running.url


def test_the_machine_has_a_boards_processor_memory_and_flash(machine):
    name, url = machine
    with Repl(url) as repl:
        board = Machine.of(repl)
    assert (board.processor, board.version) == (PROCESSORS[name], "1.25.0")
    assert board.platform == ("esp32" if name in WIRELESS else "qemu")
    assert (board.network, board.aes) == (name in WIRELESS, True)
    assert ask(url, "import sys", "sys.maxsize") == 2**31 - 1
    assert ask(url, "", "16777216.0 + 1.0 == 16777216.0")
    assert 150_000 < ask(url, "import gc\ngc.collect()", "gc.mem_free()") <= 192 * 1024
    assert ask(url, "import os\ns = os.statvfs('/')", "s[0] * s[2]") == 352 * 4096


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", NAMES)
def test_the_flash_outlives_a_power_cut_and_belongs_to_one_board(tmp_path, name):
    flash = tmp_path / "flash.bin"
    with qemu.boot(name, flash) as first:
        assert flash.stat().st_mode & 0o777 == 0o600
        with Repl(first.url) as repl:
            repl.write_file("/kept.txt", b"kept" * 3000)
        with pytest.raises(UsageError, match="another emulated board uses"):
            qemu.boot(name, flash)
        first.cut_power()
    with qemu.boot(name, flash) as again, Repl(again.url) as repl:
        assert repl.read_file("/kept.txt") == b"kept" * 3000


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", WIRELESS)
def test_the_board_module_of_an_esp32_switches_the_radio_on_for_its_seed(name):
    code = """
import network
from tern.boards.this import this_board
station = network.WLAN(network.STA_IF)
board = this_board()
generator = board.generator()
after = station.active()
station.active(True)
board.generator()
kept = station.active()
"""
    with qemu.boot(name) as machine, Repl(machine.url) as repl:
        deploy.apply(repl, deploy.plan(repl, whole=True)[1])
        repl.soft_reset()
        repl.run(code)
        assert repl.evaluate("type(board).__module__") == "tern.boards.esp32"
        assert repl.evaluate("generator.state") == 1  # CTR_DRBG
        assert repl.evaluate("(after, kept)") == (False, True)
        assert repl.evaluate("board.temperature()") == 25_000
        assert repl.evaluate("board.in_place")  # LittleFS
        seeds = [
            repl.evaluate("bytes([board.generator().byte() for _ in range(16)])") for _ in range(2)
        ]
        assert seeds[0] != seeds[1]


def test_boards_answer_rounds_over_wifi_and_tls(tmp_path):
    """Two boards behind Mosquitto, one of each instruction set, through the ESP32's own board
    module.
    """
    row = [1000] * (rig.D + 1)
    path, directories = rig.on_broker(tmp_path, 2, row, **rig.WIFI, wifi_password="x" * 8)
    with mosquitto.Mosquitto(tmp_path / "broker"), ExitStack() as stack:
        for name, directory in zip(WIRELESS, directories, strict=True):
            provisioned = rig.files_below(directory)
            flash = directory / "flash.bin"
            flash_image.fill(name, flash, deploy.library_files)
            flash_image.add(flash, provisioned)
            stack.enter_context(qemu.boot(name, flash))
        rig.serving_on_broker(tmp_path, path, "--rounds", 2, "--deadline", 600).finish()
    with Store(path) as store:
        assert [sorted(dict(store.reports(number))) for number in (1, 2)] == [[1, 2], [1, 2]]


def test_the_emulator_ends_with_its_host_and_leaves_no_files():
    program = (
        "import os; from terntools.emulators import qemu\n"
        "board = qemu.boot('rv32'); pid = board._process.pid\n"
        "print(pid, os.readlink(f'/proc/{pid}/cwd'), flush=True); os.kill(os.getpid(), 9)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.returncode == -signal.SIGKILL
    pid, folder = ended.stdout.split()
    wait_for(lambda: not os.path.exists(f"/proc/{pid}"), 10)
    assert not os.path.exists(folder)
