"""A command that runs until it is interrupted ends in order, also where a shell has started it in
the background.
"""

import json
import signal
import subprocess

import pytest
from harness.running_gateways import with_nats
from warm import TERN

from terngateway.nats.directories import write_gateways
from ternhost import errors
from ternhost.reach.broker import configuration
from ternhost.reach.broker.mosquitto import free_port
from terntools.emulators.process import locked


def interrupt(number, *words, **options):
    """Start a command in the background, send it a signal once it has printed a line; return (that
    line, exit code).
    """
    # A shell without job control ignores SIGINT for processes that it starts with &.
    command = ["sh", "-c", "trap '' INT; exec \"$@\"", "sh", *TERN, *words, "--json"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options
    ) as process:
        try:
            first = json.loads(process.stdout.readline())
            process.send_signal(number)
            assert process.communicate(timeout=60)[1] == b""
        finally:
            process.kill()
    return first, process.returncode


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, errors.OK), (signal.SIGTERM, errors.TERMINATED)]
)
def test_an_emulated_board_in_the_background_ends_in_order(number, code, tmp_path):
    flash = tmp_path / "flash.bin"
    ready, ended = interrupt(number, "emulator", "run", "--what", "rv32", "--flash", str(flash))
    assert ready["port"]
    assert ended == code
    with locked(flash, flash.stat().st_size):
        pass  # no process holds it


GATEWAY = "gateway run north --fleet simulated:10 --dataset flights"


@pytest.mark.parametrize(
    "command", ["broker run .", "fleet emulate 1 --clients 1", "gateway server .", GATEWAY]
)
def test_a_long_running_command_in_the_background_heeds_sigint(command, tmp_path):
    if command.startswith("broker"):
        configuration.configure(tmp_path, port=free_port())
    if command.startswith("gateway"):
        with_nats()
        write_gateways(tmp_path, ["north"], port=free_port())
    ready, code = interrupt(signal.SIGINT, *command.split(), cwd=tmp_path)
    assert ready
    assert code == errors.OK
