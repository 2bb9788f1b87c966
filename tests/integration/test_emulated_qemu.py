"""QEMU's machines as boards: MicroPython on their instruction set, flash, radio and network; and
fleets of them.
"""

import functools
import http.server
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack

import pytest
import rig
from harness.raw_client import wait_for

from ternhost import cache
from ternhost.errors import DeviceError, UsageError
from ternhost.reach.broker import mosquitto
from ternhost.reach.fleet import parse
from ternhost.reach.ports.link import open_port
from ternhost.store.store import Store
from terntools.boards import deploy, device
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


COMPUTED = [
    ("", "1.5 * 3.25 - 0.125", 4.75),
    ("", "7 ** 40 % 1000000007", pow(7, 40, 1000000007)),
    ("", "-(2 ** 70) // 3", -(2**70) // 3),
    ("", "'%.3f %d' % (2.5, -7)", "2.500 -7"),
    ("import hashlib", "hashlib.sha256(b'abc').digest()[:4]", b"\xba\x78\x16\xbf"),
    (
        "def f(n): return f(n - 1) + 1 if n else 1 / n\ntry: f(30)\nexcept ZeroDivisionError: r = 3",
        "r",
        3,
    ),
    (
        "r = []\ndef g():\n try:\n  yield 1\n finally:\n  r.append(2)\nfor x in g(): r.append(x)",
        "r",
        [1, 2],
    ),
    (
        "import asyncio\nasync def m():\n await asyncio.sleep_ms(5)\n return 6\nr = asyncio.run(m())",
        "r",
        6,
    ),
    (
        "import time\nt = time.ticks_ms()\ntime.sleep_ms(50)",
        "50 <= time.ticks_ms() - t < 5000",
        True,
    ),
]


def test_micropython_computes_keeps_time_and_can_be_interrupted(machine):
    with Repl(machine[1]) as repl:
        for code, expression, value in COMPUTED:
            repl.run(code)
            assert repl.evaluate(expression) == value
        repl.run("import time")
        assert abs(repl.evaluate("time.time()") - time.time()) < 60  # the clock of this computer
        repl._paste("while True: pass")
        repl.enter()
        assert repl.evaluate("1 + 1") == 2, "a loop is interrupted"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", NAMES)
def test_the_flash_outlives_a_power_cut_and_belongs_to_one_board(tmp_path, name):
    flash = tmp_path / "flash.bin"
    with qemu.boot(name, flash) as first:
        assert flash.stat().st_mode & 0o777 == 0o600
        with Repl(first.url) as repl:
            repl.write_file("/kept.txt", b"kept" * 3000)
        assert flash.read_bytes()[-4096:] == bytes([0xFF]) * 4096, (
            "erased, as NOR flash is before a write"
        )
        with pytest.raises(UsageError, match="another emulated board uses"):
            qemu.boot(name, flash)
        first.cut_power()
    with qemu.boot(name, flash) as again, Repl(again.url) as repl:
        assert repl.read_file("/kept.txt") == b"kept" * 3000
    with qemu.boot(name) as fresh:
        assert ask(fresh.url, "import os", "os.listdir('/')") == []


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", NAMES)
def test_a_reset_keeps_the_flash_and_the_clock(name):
    with qemu.boot(name) as board:
        with Repl(board.url) as repl:
            repl.write_file("/kept.txt", b"kept")
            assert repl.evaluate(
                "__import__('machine').reset_cause() == __import__('machine').PWRON_RESET"
            )
            before = repl.evaluate("__import__('time').time_ns()")
        with open_port(board.url) as port:
            port.write(b"import machine; machine.reset()\r")
            banner = b"MicroPython v"
            port.timeout = 20
            assert port.read_until(banner).endswith(banner)
        with Repl(board.url) as repl:
            assert repl.evaluate(
                "__import__('machine').reset_cause() == __import__('machine').HARD_RESET"
            )
            assert (
                repl.read_file("/kept.txt") == b"kept"
            )  # though no file of this computer is its flash
            after = repl.evaluate("__import__('time').time_ns()")
            assert before < after < before + 20e9  # the clock goes on


def test_no_block_before_or_behind_the_flash_can_be_used(machine):
    setup = "from flash import Flash\nflash = Flash()\nbuffer = bytearray(4096)"
    calls = "[flash.ioctl(6, at), flash.readblocks(at, buffer), flash.writeblocks(at, buffer)]"
    with Repl(machine[1]) as repl:
        repl.run(setup)
        assert repl.evaluate(f"[{calls} for at in (-1, 352, 0x100000)]") == [[-22, -22, -22]] * 3
        assert repl.evaluate("flash.writeblocks(351, bytearray(4097))") == -22
        assert repl.evaluate("flash.ioctl(6, 351)") == 0


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", WIRELESS)
def test_a_board_can_connect_to_itself(name):
    program = (
        "import socket\nserver = socket.socket()\nserver.bind(('127.0.0.1', 8000))\nserver.listen(1)\n"
        "client = socket.socket()\nclient.connect(('127.0.0.1', 8000))\nother, _ = server.accept()\n"
        "client.send(b'hello')"
    )
    with qemu.boot(name) as board:
        assert ask(board.url, program, "other.recv(5)") == b"hello"


@pytest.mark.parametrize("name", NAMES)
def test_a_crash_ends_the_machine_with_its_output_in_the_error(name):
    astray = "import machine\nmachine.mem32[0xfff00000] = 1"
    if name == "xtensa":  # a store that is not aligned, which the chip lacks, too
        astray = (
            "import micropython\n@micropython.viper\ndef f(p):\n q = ptr32(uint(ptr8(p)) + 1)\n q[0] = 1\n"
            "f(bytearray(8))"
        )
    with qemu.boot(name) as board, Repl(board.url) as repl:
        with pytest.raises(DeviceError, match="is gone") as caught:
            repl.run(astray)
        assert "crash: exception" in caught.value.output
        wait_for(lambda: not board.is_running, 10)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", NAMES)
def test_a_seed_repeats_the_random_bytes(name):
    code = (
        "import os\ntry:\n import network\n network.WLAN(0).active(True)\nexcept ImportError: pass"
    )
    draws = []
    for seed in (1, 1, 2, None, None):
        with qemu.boot(name, seed=seed) as board:
            draws.append(ask(board.url, code, "os.urandom(32)"))
    assert draws[0] == draws[1]
    assert len(set(draws)) == 4


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", WIRELESS)
def test_without_the_radio_the_random_bytes_are_the_same_after_every_start(name):
    weak = []
    for _ in range(2):
        with qemu.boot(name) as board:
            weak.append(ask(board.url, "import os", "os.urandom(32)"))
    assert weak[0] == weak[1]


@pytest.mark.parametrize("name", WIRELESS)
def test_a_board_reaches_a_server_of_this_computer_over_wifi(tmp_path, name):
    content = bytes(range(256)) * 64
    (tmp_path / "content").write_bytes(content)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path)
    server = http.server.HTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    code = f"""
import network, socket, time
station = network.WLAN(network.STA_IF)
try:
    station.connect("air", "secret")
    early = None
except OSError as error:
    early = str(error)
station.active(True)
station.connect("air", "secret")
while not station.isconnected():
    time.sleep_ms(10)
s = socket.socket()
s.connect(socket.getaddrinfo("10.0.2.2", {server.server_port})[0][-1])
s.write(b"GET /content HTTP/1.0\\r\\n\\r\\n")
data = b""
while part := s.read(1000):
    data += part
s.close()
"""
    try:
        with qemu.boot(name) as board, Repl(board.url) as repl:
            repl.run(code)
            assert repl.evaluate("early") == "Wifi Not Started"
            assert repl.evaluate("data.endswith(bytes(range(256)) * 64)")
            assert repl.evaluate("station.ifconfig()[0]") == "10.0.2.15"
    finally:
        server.shutdown()
        server.server_close()


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


def test_device_info_names_a_board_without_a_module_of_its_own():
    """The other machines are ESP32s, whose module is tested above."""
    assert parse("m33-emulated:1").provisions
    with device.boards("m33-emulated:1") as (port,):
        info = device.info(port)
    assert (info["board"], info["entropy"]) == ("emulated", "CTR_DRBG AES-256")
    assert info["clients"] == 1


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
        rig.serving_on_broker(tmp_path, path, "--rounds", 2, "--deadline", 120).finish()
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


def test_a_blank_board_must_be_a_pico():
    assert (
        "need a Pico, not rv32"
        in rig.tern("emulator", "run", "--what", "rv32", "--blank", code=2).err
    )


def test_a_board_that_is_not_built_names_the_command_that_builds_it(monkeypatch, tmp_path):
    monkeypatch.setenv("TERN_CACHE", str(tmp_path))
    for name, build in (
        ("rv32", "esp32"),
        ("xtensa", "esp32"),
        ("m33", "m33"),
        ("rv32-newest", "newest"),
    ):
        with pytest.raises(DeviceError, match="is not built yet") as caught:
            qemu.boot(name)
        assert caught.value.hint == f"make it: tern emulator build --what {build}"


def test_a_qemu_that_does_not_start_says_why(monkeypatch, tmp_path):
    broken = tmp_path / "qemu-system-riscv32"
    broken.write_text("#!/bin/sh\necho 'no such machine' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(DeviceError, match="does not start the emulated rv32: no such machine"):
        qemu.boot("rv32")


def test_the_record_of_a_build_names_pinned_sources_and_compilers():
    record = cache.read_record(qemu.ESP32.recipe)
    assert record is not None
    assert any(name.startswith("micropython_1.25.0+ds") for name in record["built_with"])
    assert {"compiler of rv32", "compiler of xtensa"} <= set(record["built_with"])
