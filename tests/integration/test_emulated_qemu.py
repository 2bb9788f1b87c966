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

from ternhost.reach.broker import mosquitto
from ternhost.store.store import Store
from terntools.boards import deploy
from terntools.boards.repl import Repl
from terntools.emulators import flash_image, qemu

WIRELESS = ("rv32", "xtensa")


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
