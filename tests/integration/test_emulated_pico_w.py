"""The emulated Pico W: MicroPython in rp2040py, and a network that ends at this computer.

MicroPython for a Pico W cannot be built here, since the software of its Wi-Fi chip is not free to
pass on. The tests of Wi-Fi need such a firmware: name its .uf2 file in PICO_W_FIRMWARE. The others
boot the firmware of the emulated Pico, or send frames to the network without a board.
"""

import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from harness.waiting import wait_for

from ternhost.errors import USAGE, UsageError
from ternhost.reach.broker import configuration
from terntools.boards.repl import Repl
from terntools.emulators import pico, pico_w

FIRMWARE = os.environ.get("PICO_W_FIRMWARE")
needs_pico_w_firmware = pytest.mark.skipif(
    not FIRMWARE, reason="PICO_W_FIRMWARE names no MicroPython for a Pico W"
)
SECONDS = 900  # the emulated board is about 20 times slower than a real one


@pytest.fixture(scope="module")
def pico_firmware(tmp_path_factory):
    """The path of MicroPython for a Pico, which has no Wi-Fi chip."""
    path = tmp_path_factory.mktemp("firmware") / "pico.uf2"
    path.write_bytes(pico.firmware_file())
    return path


@pytest.fixture(scope="module")
def board(pico_firmware):
    """A running board with MicroPython for a Pico."""
    with pico_w.boot(pico_firmware) as board:
        yield board


def test_the_firmware_answers_at_the_port(board):
    with Repl(board.url) as repl:
        assert repl.evaluate("6 * 7", SECONDS) == 42


def test_the_clock_of_a_board_that_waits_is_not_faster_than_that_of_this_computer(board):
    """A board whose clock is late, by a second at most, catches up while it waits."""
    with Repl(board.url) as repl:
        repl.run("import time", SECONDS)
        started = time.monotonic()
        repl.run("time.sleep_ms(3000)", SECONDS)
        assert time.monotonic() - started >= 2


def test_the_ring_oscillator_gives_zeros_and_ones(board):
    """Of 64 random bits, all are the same with a probability of 2**-63."""
    read = "import machine\nbits = [machine.mem32[0x4006001C] for _ in range(64)]"
    with Repl(board.url) as repl:
        repl.run(read, SECONDS)
        assert repl.evaluate("sorted(set(bits))", SECONDS) == [0, 1]


def test_files_survive_a_power_cut(pico_firmware, tmp_path):
    flash = tmp_path / "flash.bin"
    first = pico_w.boot(pico_firmware, flash)
    with Repl(first.url) as repl:
        repl.files.write("/kept.txt", b"kept")
        first.cut_power()
    with pico_w.boot(None, flash) as again, Repl(again.url) as repl:
        assert repl.evaluate("open('/kept.txt').read()", SECONDS) == "kept"


def test_a_flash_in_use_is_refused(pico_firmware, tmp_path):
    flash = tmp_path / "flash.bin"
    with pico_w.boot(pico_firmware, flash), pytest.raises(UsageError, match="another emulated"):
        pico_w.boot(None, flash)


def test_the_emulator_ends_with_the_process_that_started_it(pico_firmware):
    program = f"""
from pathlib import Path
from terntools.emulators import pico_w
board = pico_w.boot(Path({str(pico_firmware)!r}))
print(board.url, flush=True)
input()
"""
    command = [sys.executable, "-c", program]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        port = Path(process.stdout.readline().strip().removeprefix("socket://"))
        assert port.exists()
        process.send_signal(signal.SIGKILL)
    wait_for(lambda: not port.parent.exists())


# Which firmware is accepted


def test_a_board_without_a_firmware_says_where_to_get_one(tern):
    refused = tern("emulator", "run", "pico-w", code=USAGE)
    assert "--firmware FILE" in refused.err
    assert "https://micropython.org/download/RPI_PICO_W/" in refused.err


def test_a_file_that_does_not_exist_is_named(tern):
    refused = tern("emulator", "run", "pico-w", "--firmware", "missing.uf2", code=USAGE)
    assert "cannot read missing.uf2" in refused.err


def test_the_firmware_of_a_pico_without_wi_fi_is_refused(tern, pico_firmware):
    refused = tern("emulator", "run", "pico-w", "--firmware", str(pico_firmware), code=USAGE)
    assert "pico.uf2 is not MicroPython for a Pico W" in refused.err


def test_another_board_takes_no_firmware(tern, pico_firmware):
    refused = tern("emulator", "run", "rv32", "--firmware", str(pico_firmware), code=USAGE)
    assert "--firmware is for pico-w, not rv32" in refused.err


def test_a_flash_that_has_a_firmware_takes_no_second_one(pico_firmware, tmp_path):
    flash = tmp_path / "flash.bin"
    flash.write_bytes(b"\xff" * pico_w.FLASH_BYTES)
    with pytest.raises(UsageError, match=r"flash\.bin has a firmware already"):
        pico_w.boot_pico_w(pico_firmware, flash)


# With MicroPython for a Pico W

JOIN = """
import network, time
station = network.WLAN(network.STA_IF)
station.active(True)
station.connect("air", "any password")
while not station.isconnected():
    time.sleep_ms(50)
"""
CONNECT = """
import socket
connection = socket.socket()
connection.settimeout(10)
try:
    connection.connect((%r, %d))
    outcome = "connected"
except OSError as error:
    outcome = error.errno
connection.close()
"""
ECONNRESET = 104


@pytest.fixture(scope="module")
def wireless_board():
    """The port of a running Pico W that has joined the network."""
    with pico_w.boot_pico_w(Path(FIRMWARE)) as board:
        with Repl(board.url) as repl:
            repl.run(JOIN, SECONDS)
        yield board.url


@pytest.fixture
def server():
    """A server on the loopback interface of this computer."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def outcome_of_connecting(board, address, port):
    """What happens if the board connects to an address: "connected", or the number of an error."""
    with Repl(board) as repl:
        repl.run(CONNECT % (address, port), SECONDS)
        return repl.evaluate("outcome", SECONDS)


@needs_pico_w_firmware
def test_the_board_gets_its_address(wireless_board):
    with Repl(wireless_board) as repl:
        repl.run(JOIN, SECONDS)
        assert repl.evaluate("station.ifconfig()[0]", SECONDS) == "10.0.2.15"


@needs_pico_w_firmware
def test_the_board_reaches_a_server_of_this_computer(wireless_board, server):
    port = server.getsockname()[1]
    assert outcome_of_connecting(wireless_board, "10.0.2.2", port) == "connected"


@pytest.fixture
def tls_server(tmp_path):
    """A server with TLS on the loopback interface, which sends b"hello": its port, its authority."""
    configuration.write_configuration(tmp_path, {})
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "broker.pem", tmp_path / "broker.key")
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet():
            connection, _ = server.accept()
            with context.wrap_socket(connection, server_side=True) as secured:
                secured.sendall(b"hello")

        threading.Thread(target=greet, daemon=True).start()
        yield server.getsockname()[1], (tmp_path / "authority.der").read_bytes()


READ_BY_TLS = """
import socket, tls
context = tls.SSLContext(tls.PROTOCOL_TLS_CLIENT)
context.verify_mode = tls.CERT_REQUIRED
context.load_verify_locations(%r)
connection = socket.socket()
connection.connect(("10.0.2.2", %d))
secured = context.wrap_socket(connection, server_hostname="localhost")
"""


@needs_pico_w_firmware
def test_the_board_makes_a_connection_with_tls_and_checks_the_certificate(
    wireless_board, tls_server
):
    port, authority = tls_server
    with Repl(wireless_board) as repl:
        repl.run(READ_BY_TLS % (authority, port), SECONDS)
        assert repl.evaluate("secured.read(5)", SECONDS) == b"hello"


@needs_pico_w_firmware
def test_the_board_reaches_no_other_computer(wireless_board, server):
    port = server.getsockname()[1]
    assert outcome_of_connecting(wireless_board, "192.0.2.1", port) == ECONNRESET
