"""A command that runs until it is interrupted ends in order, also where a shell has started it in
the background.
"""

import signal

import pytest
from harness.background import interrupt

from ternhost import errors
from ternhost.reach.broker import configuration
from ternhost.reach.broker.mosquitto import free_port
from terntools.emulators.process import locked


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


@pytest.mark.parametrize("command", ["broker run .", "fleet emulate 1 --clients 1"])
def test_a_long_running_command_in_the_background_heeds_sigint(command, tmp_path):
    configuration.configure(tmp_path, port=free_port())
    ready, code = interrupt(signal.SIGINT, *command.split(), cwd=tmp_path)
    assert ready
    assert code == errors.OK
