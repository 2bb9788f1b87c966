"""Files, flash and ports of emulated boards are open to their owner alone."""

import os
import stat
from pathlib import Path

import numpy as np
import pytest
import rig

from tern import wire
from ternhost.count.questions import Question
from ternhost.learn.schedule import Terms
from ternhost.privacy.accounting import Policy
from ternhost.privacy.mechanisms import design
from ternhost.reach import fleet
from ternhost.reach.broker import configuration
from ternhost.reach.ports.driver import BoardsDriver
from ternhost.store.store import Store
from terntools.boards.attach import attach
from terntools.emulators import catalogue

CARD = design("three-outputs", epsilon_micro=1_000_000).card
FEATURES = 4
TWO_RECORDS = np.zeros((2, FEATURES + 1), np.int16)  # of a device each, with their labels
POLICY = Policy(10_000_000, 100_000_000)


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
    """The folder of an emulated board holds its key and its records. No other user of this computer
    may read them, though the umask would let him, from the first start on and when the files are
    there already.
    """
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
    """Among them is mqtt.json, with the passwords of the Wi-Fi and of the broker."""
    path, (directory,) = rig.provision(tmp_path, TWO_RECORDS, POLICY)
    configuration.configure(tmp_path / "broker", path)

    attach([directory], tmp_path / "broker", path, ssid="air", password="secret")

    assert "mqtt.json" in [path.name for path in directory.iterdir()]
    assert open_to_others(directory) == []


def test_the_port_of_an_emulated_machine_is_closed_to_others():
    with catalogue.boot("rv32") as board:
        folder = Path(board.url.removeprefix("socket://")).parent
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
