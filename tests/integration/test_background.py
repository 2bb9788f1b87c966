"""A command that stays until it is interrupted ends in order, also where a shell started it in the background."""

import json
import signal
import subprocess

import pytest
from warm import TERN

from ternhost import errors
from ternhost.reach.broker import configuration
from ternhost.reach.broker.mosquitto import free_port
from ternhost.reach.gateway.flower.files import write_gateways
from terntools.emulators.process import locked


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, errors.OK), (signal.SIGTERM, errors.TERMINATED)]
)
def test_an_emulated_board_of_the_background_ends_in_order(number, code, tmp_path):
    flash = tmp_path / "flash.bin"
    # A shell without job control ignores SIGINT for what it starts with &.
    background = ["sh", "-c", "trap '' INT; exec \"$@\"", "sh"]
    words = ("emulator", "run", "--what", "rv32", "--flash", str(flash), "--json")
    process = subprocess.Popen([*background, *TERN, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["port"]
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, said) == (code, b"")
    with locked(flash, flash.stat().st_size):
        pass  # no process has it any more


@pytest.mark.parametrize(
    "words",
    [
        ("broker", "run", "."),
        ("fleet", "emulate", "1", "--clients", "1"),
        ("gateway", "superlink", "."),
        ("gateway", "run", "north", "--fleet", "simulated:10", "--dataset", "flights"),
    ],
)
def test_what_stays_until_ctrl_c_heeds_it_in_the_background(words, tmp_path):
    if words[0] == "broker":
        configuration.configure(tmp_path, port=free_port())
    if words[0] == "gateway":
        pytest.importorskip("flwr")
        write_gateways(tmp_path, ["north"], port=free_port())
    background = ["sh", "-c", "trap '' INT; exec \"$@\"", "sh"]
    process = subprocess.Popen(
        [*background, *TERN, *words, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path
    )
    try:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, said) == (errors.OK, b"")
