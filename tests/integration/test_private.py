"""What tern makes for emulated boards is their owner's alone: files, flash and ports."""

import os
import socket
import stat

import numpy as np
import pytest

from tern import wire
from ternhost.count.questions import Question
from ternhost.errors import DeviceError
from ternhost.learn.schedule import Terms
from ternhost.privacy.accounting import Policy
from ternhost.privacy.mechanisms import design
from ternhost.provision.boards import board_directories, provision_fleet
from ternhost.reach import fleet
from ternhost.reach.broker import configuration
from ternhost.reach.ports.driver import BoardsDriver
from ternhost.reach.ports.link import open_port
from ternhost.store.store import Store
from terntools.boards.attach import attach
from terntools.emulators import catalogue, unix_fleet

CARD = design("three-outputs", epsilon_micro=1_000_000).card
NOBODY = 65534


@pytest.fixture(autouse=True)
def open_umask():
    """As most users have it."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def open_to_others(directory):
    """What of a directory, itself included, somebody else may read, write or enter."""
    paths = (directory, *directory.rglob("*"))
    return [str(path) for path in paths if stat.S_IMODE(path.lstat().st_mode) & 0o077]


@pytest.mark.parametrize(
    "kind", ["emulated", "rv32-emulated", pytest.param("pico-emulated", marks=pytest.mark.exhaustive)]
)
def test_the_files_of_a_board(tmp_path, kind):
    rows = np.zeros((2, 5), np.int16)
    directories = board_directories(tmp_path, 1)
    configuration.configure(tmp_path / "broker", tmp_path / "store.sqlite")
    with Store(tmp_path / "store.sqlite") as store:
        provision_fleet(store, directories, rows, Policy(10_000_000, 100_000_000))
        boards = fleet.parse(f"{kind}:1").boards(directories)
        for number in (1, 2):  # from its second start on it finds what is there
            with BoardsDriver(store, boards, Terms()) as driver:
                driver.open(number, [(Question(wire.SVM, [0] * 4, -12, CARD, 1), driver.devices)])
                assert driver.collect(number).reports == 2
                assert open_to_others(directories[0]) == []
            store.end_round(number, "complete")
    attach(directories, tmp_path / "broker", tmp_path / "store.sqlite", ssid="air", password="secret")
    assert open_to_others(directories[0]) == []


@pytest.mark.parametrize("kind", ["emulated", "rv32-emulated"])
def test_a_fleet_of_an_older_version_is_closed_to_others(tmp_path, kind):
    directories = board_directories(tmp_path, 2)
    with Store(tmp_path / "store.sqlite") as store:
        rows = np.zeros((2, 5), np.int16)
        provision_fleet(store, directories, rows, Policy(10_000_000, 100_000_000))
    for directory in directories:
        directory.chmod(0o755)  # the files below, too, were open
    with fleet.parse(f"{kind}:2").boards(directories):
        assert [stat.S_IMODE(directory.stat().st_mode) for directory in directories] == [0o700, 0o700]


def test_a_flash_of_an_older_version_is_closed_to_others(tmp_path):
    flash = tmp_path / "flash.bin"
    with catalogue.boot("pico", flash):
        pass
    flash.chmod(0o644)
    with catalogue.boot("pico", flash):
        assert stat.S_IMODE(flash.stat().st_mode) == 0o600


def refused(path):
    """The error of another user who connects to a Unix socket, or opens a device; 0: none."""
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


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
@pytest.mark.parametrize("name", ["pico", "rv32"])
def test_the_port_of_an_emulated_board_lets_in_nobody_else(name):
    with catalogue.boot(name) as board:
        path = board.url.removeprefix("socket://")
        assert refused(path) == 13
        with open_port(board.url):
            pass
    assert not os.path.exists(os.path.dirname(path))
    with pytest.raises(DeviceError, match="there is no port"):
        open_port(board.url)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
def test_the_port_of_a_board_in_a_process_lets_in_nobody_else(tmp_path, micropython):
    board = unix_fleet.EmulatedBoard(micropython, tmp_path)
    try:
        assert refused(board.port) == 13
    finally:
        board.close()
