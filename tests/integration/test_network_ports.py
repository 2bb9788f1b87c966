"""Boards at a port of another computer: by plain TCP (socket://), and by RFC 2217.

docs/guides/platforms.md says what works.
"""

import contextlib
import queue

import pytest
from harness.network_ports import PortServer, Rfc2217Server
from harness.waiting import wait_for

from ternhost.errors import NO_DEVICE, DeviceError
from ternhost.reach.broker.mosquitto import free_port
from ternhost.reach.links import open_link
from ternhost.reach.ports.link import open_port
from terntools.emulators import catalogue

SERVERS = [PortServer, Rfc2217Server]


def hello_of(url):
    with contextlib.closing(open_link(url, queue.SimpleQueue())) as link:
        return link.hello(5)


@pytest.fixture(scope="module")
def board():
    """The port of an emulated board."""
    with catalogue.boot("rv32") as machine:
        yield machine.url


@pytest.fixture(params=SERVERS, ids=lambda server: server.scheme)
def url(request, board):
    """The port of the same board on the network."""
    with request.param(board) as server:
        yield server.url


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """The file with the keys of the board."""
    return str(tmp_path_factory.mktemp("fleet") / "fleet.sqlite")


def test_a_board_on_the_network_is_set_up_and_sends_a_report(url, store, here, tern):
    member = ["--store", store, "--device", "1", "--data", "flights"]
    tern("board", "up", url, *member, "--yes")
    fleet = ["--fleet", f"port:{url}", "--store", store]
    result = tern("train", *fleet, "--reports", "1", "--json").json
    assert result["reports"] == 1


def test_the_records_of_a_board_on_the_network_are_read(url, here, tern):
    tern("board", "deploy", url)
    tern("board", "records", url, "--output", str(here / "records.csv"))


def test_a_board_on_the_network_is_monitored(url, tern):
    tern("board", "deploy", url)

    def is_heard():
        seen = tern("board", "monitor", url, "--seconds", "5", "--json", code=None).json
        return seen["frames"].get("HELLO", 0) >= 1

    wait_for(is_heard)


def test_a_second_program_is_refused_while_the_first_uses_the_board(url):
    with open_port(url), pytest.raises(DeviceError):
        hello_of(url)


@pytest.mark.parametrize("scheme", ["socket", "rfc2217"])
def test_a_server_that_is_not_there_is_an_error_of_the_device(scheme, tern):
    tern("board", "info", f"{scheme}://127.0.0.1:{free_port()}", code=NO_DEVICE)


def test_a_server_of_plain_bytes_is_not_taken_for_one_of_rfc_2217(board, tern):
    with PortServer(board) as server:
        url = server.url.replace("socket", "rfc2217")
        refused = tern("board", "info", url, code=NO_DEVICE)
    assert "socket://" in refused.err
