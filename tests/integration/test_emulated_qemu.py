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
from harness.waiting import wait_for

from ternhost.reach.broker import mosquitto
from ternhost.store.store import Store
from terntools.boards import file_changes, installing, software
from terntools.boards.repl import Repl
from terntools.emulators import flash_image, qemu

WIRELESS = ("rv32", "xtensa")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", WIRELESS)
def test_the_board_module_of_an_esp32_switches_the_radio_on_for_its_seed(name):
    """The random numbers of an ESP32 are good only while its radio is on. So the board module
    switches it on while it seeds the generator of the noise, and leaves it afterwards as it was.
    """
    code = """
import network
from tern.boards.this import this_board
station = network.WLAN(network.STA_IF)
board = this_board()
generator = board.generator()
on_after_a_seed = station.active()
station.active(True)
board.generator()
still_on = station.active()
"""
    with qemu.boot(name) as machine, Repl(machine.url) as repl:
        _, changes = installing.plan(repl, whole=True)  # the whole library
        file_changes.apply(repl, changes)
        repl.soft_reset()
        repl.run(code)

        assert repl.evaluate("type(board).__module__") == "tern.boards.esp32"
        assert repl.evaluate("generator.state") == 1, "CTR_DRBG, by the AES of the chip"
        assert repl.evaluate("(on_after_a_seed, still_on)") == (False, True)
        # Other facts of this board: its temperature in thousandths of a degree, and a file system,
        # LittleFS, in which a file can be changed in place.
        assert repl.evaluate("board.temperature()") == 25_000
        assert repl.evaluate("board.in_place")
        random_bytes = "bytes([board.generator().byte() for _ in range(16)])"
        assert repl.evaluate(random_bytes) != repl.evaluate(random_bytes), "seeds differ"


def test_boards_answer_rounds_over_wifi_and_tls(tmp_path):
    """Two emulated boards, one of each instruction set, connect to a real broker (Mosquitto) over
    Wi-Fi and TLS by the code of a real ESP32. Both report in each of two rounds.
    """
    row = [1000] * (rig.D + 1)
    path, directories = rig.on_broker(tmp_path, 2, row, **rig.WIFI, wifi_password="x" * 8)
    with mosquitto.Mosquitto(tmp_path / "broker"), ExitStack() as stack:
        for name, directory in zip(WIRELESS, directories, strict=True):
            provisioned = rig.files_below(directory)
            flash = directory / "flash.bin"
            flash_image.fill(name, flash, software.library_files)
            flash_image.add(flash, provisioned)
            stack.enter_context(qemu.boot(name, flash))
        rig.serving_on_broker(tmp_path, path, "--rounds", 2, "--deadline", 600).finish()

    with Store(path) as store:
        for number in (1, 2):
            devices_that_reported = sorted(dict(store.reports(number)))
            assert devices_that_reported == [1, 2]


def test_the_emulator_ends_with_its_host_and_leaves_no_files():
    """A program that runs an emulated board kills itself (-9), so that it cannot clean up. The
    emulator's process ends all the same, and removes its folder.
    """
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
