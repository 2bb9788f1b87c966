"""Files, flash and ports of emulated boards are open to their owner alone."""

import errno
import os
import socket
import stat
from contextlib import closing

import numpy as np
import pytest
import rig

from tern import wire
from ternhost.count.questions import Question
from ternhost.errors import DeviceError
from ternhost.learn.schedule import Terms
from ternhost.privacy.accounting import Policy
from ternhost.privacy.mechanisms import design
from ternhost.reach import fleet
from ternhost.reach.broker import configuration
from ternhost.reach.ports.driver import BoardsDriver
from ternhost.reach.ports.link import open_port
from ternhost.store.store import Store
from terntools.boards.attach import attach
from terntools.emulators import catalogue, unix_fleet

CARD = design("three-outputs", epsilon_micro=1_000_000).card
FEATURES = 4
TWO_RECORDS = np.zeros((2, FEATURES + 1), np.int16)  # of a device each, with their labels
POLICY = Policy(10_000_000, 100_000_000)
NOBODY = 65534  # the id of a user without rights
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")


@pytest.fixture(autouse=True)
def open_umask():
    """The umask of most users."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def open_to_others(directory):
    """The paths from a directory on, itself included, that another user may read, write or enter."""
    paths = (directory, *directory.rglob("*"))
    return [str(path) for path in paths if stat.S_IMODE(path.lstat().st_mode) & 0o077]


@pytest.mark.parametrize(
    "kind",
    ["emulated", "rv32-emulated", pytest.param("pico-emulated", marks=pytest.mark.exhaustive)],
)
def test_the_files_of_a_board_are_closed_to_others(tmp_path, kind):
    path, (directory,) = rig.provision(tmp_path, TWO_RECORDS, POLICY)
    question = Question(wire.SVM, parameters=[0] * FEATURES, exponent=-12, card=CARD, k=1)
    with Store(path) as store:
        boards = fleet.parse(f"{kind}:1").boards([directory])
        for number in (1, 2):  # the second start finds the files of the first
            with BoardsDriver(store, boards, Terms()) as driver:
                driver.open(number, [(question, driver.devices)])
                assert driver.collect(number).reports == len(TWO_RECORDS)
                assert open_to_others(directory) == []
            store.end_round(number, "complete")


def test_the_network_files_of_a_board_are_closed_to_others(tmp_path):
    path, (directory,) = rig.provision(tmp_path, TWO_RECORDS, POLICY)
    configuration.configure(tmp_path / "broker", path)

    attach([directory], tmp_path / "broker", path, ssid="air", password="secret")

    assert "mqtt.json" in [path.name for path in directory.iterdir()]
    assert open_to_others(directory) == []


def error_of_another_user(path):
    """The error number of another user who connects to a Unix socket, or opens a device; 0: none."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 0
    try:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        if path.startswith("/dev/"):
            os.open(path, os.O_RDWR)
        else:
            socket.socket(socket.AF_UNIX).connect(path)
    except OSError as error:
        code = error.errno
    finally:
        os._exit(code)


@needs_root
@pytest.mark.parametrize("name", ["rv32", pytest.param("pico", marks=pytest.mark.exhaustive)])
def test_no_other_user_can_open_the_port_of_an_emulated_machine(name):
    with catalogue.boot(name) as board:
        path = board.url.removeprefix("socket://")
        assert error_of_another_user(path) == errno.EACCES
        with open_port(board.url):
            pass  # its owner can
    assert not os.path.exists(os.path.dirname(path))
    with pytest.raises(DeviceError, match="there is no port"):
        open_port(board.url)


@needs_root
def test_no_other_user_can_open_the_port_of_a_board_in_a_process(tmp_path, micropython):
    with closing(unix_fleet.EmulatedBoard(micropython, tmp_path)) as board:
        assert error_of_another_user(board.port) == errno.EACCES
