"""The emulated Pico behaves as a Pico towards a host: serial port, flash, resets, power cuts."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import serial
import warm
from harness.raw_client import wait_for

from ternhost import cache
from ternhost.errors import DeviceError, UsageError
from ternhost.reach.ports.link import open_port
from terntools.boards.repl import Repl
from terntools.emulators import catalogue
from terntools.emulators import pico as pico_machine
from terntools.emulators.pico import boot_pico


def ask(url, code, expression):
    with Repl(url) as repl:
        repl.run(code)
        return repl.evaluate(f"({expression})")


def test_the_fast_core_computes_the_same_as_rp2040js(pytestconfig):
    machine = cache.find_entry(pico_machine.MACHINE)
    states = 60 if pytestconfig.getoption("exhaustive") else 2
    command = ["node", Path(__file__).with_name("pico_core.mjs"), machine, str(states)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stdout
    assert int(ended.stdout) > 0.9 * states * 2**16


# Routines of the boot ROM: floats of libgcc, 64-bit conversions, bits.
ARITHMETIC = [
    ("1.5 + 2.25", 3.75),
    ("1.5 - 2.25", -0.75),
    ("3.0 * -0.5", -1.5),
    ("7.0 / 2.0", 3.5),
    ("int(-2.75), int(1e9), int(-1e9)", (-2, 1000000000, -1000000000)),
    ("float(123456789) == 123456792.0, float(-5)", (True, -5.0)),
    ("7.0 // 2.0, -7.0 % 4.0", (3.0, 1.0)),
    ("round(2.5), round(-3.5)", (2, -4)),
    ("__import__('math').sqrt(2.0) * 1000 // 1", 1414.0),
    ("1.0 < 2.0, 2.0 <= 1.0, 1.0 == 1.0, float('inf') > 1e30", (True, False, True, True)),
    ("float('nan') == float('nan')", False),
    ("16777216.0 + 1.0 == 16777216.0", True),
]
STOCK = [
    ("__import__('os').uname().machine", "Raspberry Pi Pico with RP2040"),
    ("__import__('gc').collect() or __import__('gc').mem_free() > 150 * 1024", True),
]


def test_the_stock_firmware_calls_itself_a_pico_and_computes(pico):
    with Repl(pico.url) as repl:
        for expression, value in STOCK + ARITHMETIC:
            assert repl.evaluate(f"({expression})") == value, expression


@pytest.fixture(scope="module")
def pico():
    with boot_pico() as pico:
        yield pico


def test_a_power_cut_loses_only_a_file_that_was_never_closed(tmp_path):
    flash = tmp_path / "flash.bin"
    first = boot_pico(flash)
    with Repl(first.url) as repl:
        repl.write_file("/kept.txt", b"x" * 5000)
        repl.run("file = open('/open.txt', 'w')\nfile.write('never closed')")
        first.cut_power()
    with boot_pico(flash) as again:
        assert ask(again.url, "import os", "os.stat('/kept.txt')[6]") == 5000
        assert "open.txt" not in ask(
            again.url, "", "[name for name in os.listdir('/') if os.stat(name)[6]]"
        )


@pytest.mark.parametrize(("board", "kib"), [("pico", 1408), ("rv32", 2048)])
def test_the_flash_of_another_kind_of_board_is_left_alone(tmp_path, board, kib):
    """QEMU's machines have 1408 KiB of flash; a Pico has 2048 KiB."""
    flash = tmp_path / "other.bin"
    content = bytes(range(256)) * 4 * kib
    flash.write_bytes(content)
    with pytest.raises(UsageError, match=r"other.bin does not have the size of this board's flash"):
        catalogue.boot(board, flash)
    assert flash.read_bytes() == content


def test_one_board_at_a_time_uses_a_flash(tmp_path):
    flash, alias = tmp_path / "flash.bin", tmp_path / "alias.bin"
    alias.symlink_to(flash)
    with boot_pico(flash):
        for name in (flash, alias):
            with pytest.raises(UsageError, match="another emulated board uses"):
                boot_pico(name)
    boot_pico(flash).cut_power()
    boot_pico(flash).close()
    with pytest.raises(UsageError, match="cannot keep a flash"):
        boot_pico(tmp_path / "nowhere" / "flash.bin")


def test_a_reset_closes_the_port_and_keeps_the_flash():
    with boot_pico() as pico:
        with Repl(pico.url) as repl:
            repl.write_file("/kept.txt", b"x")
        assert ask(pico.url, "import machine", "machine.reset_cause() == machine.PWRON_RESET")
        with open_port(pico.url) as port:
            port.timeout = 60
            port.write(b"\r\x03import machine; machine.reset()\r")
            with pytest.raises(serial.SerialException):
                port.read(100_000)
        assert ask(pico.url, "import machine", "machine.reset_cause() == machine.WDT_RESET")
        assert ask(pico.url, "import os", "os.listdir('/')") == ["kept.txt"]


MEASURE = """
import os, time
def measure():
    start = time.ticks_us()
    data = os.urandom(64)
    x = 0.0
    for byte in data:
        x += byte / 3
    return time.ticks_diff(time.ticks_us(), start), data
"""


def test_a_seed_repeats_a_run_to_the_microsecond():
    runs = []
    for seed in (1, 1, 2):
        with boot_pico(seed=seed) as pico:
            runs.append(ask(pico.url, MEASURE, "measure()"))
    assert runs[0][1] == runs[1][1] != runs[2][1]
    assert runs[0][0] == runs[1][0] > 0


def test_every_boot_without_a_file_and_a_seed_is_a_new_board():
    draws = []
    for _ in range(2):
        with boot_pico() as pico:
            files, drawn = ask(pico.url, "import os", "os.listdir('/'), os.urandom(32)")
            assert files == []
            draws.append(drawn)
            ask(pico.url, "open('/kept.txt', 'w').close()", "0")
    assert draws[0] != draws[1]


def test_the_port_has_one_owner(pico):
    with open_port(pico.url) as first:
        first.timeout = 60
        first.write(b"\r\x03\x02")
        assert first.read(1)
        with open_port(pico.url) as second:
            second.timeout = 60
            with pytest.raises(serial.SerialException):
                second.read(1)
    assert ask(pico.url, "", "6 * 7") == 42


def test_the_emulator_ends_with_its_parent():
    code = (
        "import os; from terntools.emulators.pico import boot_pico\n"
        "pico = boot_pico(); print(pico.url, flush=True); os._exit(1)\n"
    )
    url = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ).stdout.strip()

    def gone():
        try:
            open_port(url).close()
        except DeviceError:
            return True

    wait_for(gone)


def test_a_command_runs_a_pico_until_ctrl_c(tmp_path):
    command = [*warm.TERN, "emulator", "run", "--flash", tmp_path / "flash.bin", "--json"]
    with warm.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        try:
            port = json.loads(running.stdout.readline())["port"]
            assert ask(port, "open('/kept.txt', 'w').close()\nimport os", "os.listdir('/')") == [
                "kept.txt"
            ]
        finally:
            running.send_signal(signal.SIGINT)
        assert running.wait(60) == 0
    assert b"kept.txt" in (tmp_path / "flash.bin").read_bytes()
