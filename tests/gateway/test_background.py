"""Commands of gateways that a shell has started in the background end in order."""

import signal

import pytest
from harness.background import interrupt
from harness.running_gateways import with_nats

from terngateway.nats.directories import write_gateways
from ternhost import errors
from ternhost.reach.broker.mosquitto import free_port

RUN = "gateway run north --fleet simulated:10 --dataset flights"


@pytest.mark.parametrize("command", ["gateway server .", RUN])
def test_a_command_in_the_background_heeds_sigint(command, tmp_path):
    with_nats()
    write_gateways(tmp_path, ["north"], port=free_port())
    ready, code = interrupt(signal.SIGINT, *command.split(), cwd=tmp_path)
    assert ready
    assert code == errors.OK
