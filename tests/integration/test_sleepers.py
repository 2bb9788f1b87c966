"""Boards that sleep, on Mosquitto: each that wakes in a round is counted once, and pays for one
report.
"""

import itertools
import json
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import rig

from ternhost.privacy.accounting import Policy
from ternhost.reach.broker.mosquitto import Mosquitto
from ternhost.store import sleepers, store_file
from ternhost.store.store import Store
from terntools.boards.member import Member
from terntools.boards.network import Broker
from terntools.boards.provision_command import run_provision
from terntools.boards.repl import Repl
from terntools.emulators import catalogue
from terntools.emulators.unix_fleet import EmulatedFleet

BOARDS, ROUNDS = 3, 4
WAKE = 4  # seconds
AWAKE = 8.0  # seconds: on a busy machine, a request may come late


@pytest.fixture
def place(tmp_path):
    """(folder, path of the store, directories) of boards on a broker; all of them sleep."""
    path, boards = rig.on_broker(tmp_path, BOARDS, row=[16384] * (rig.D + 1), tls=False)
    with Store(path) as store:
        for device in range(1, BOARDS + 1):
            sleepers.set_wake(store, device, WAKE)
    return tmp_path, path, boards


def test_a_board_is_provisioned_to_sleep_and_later_to_stay_awake(tmp_path):
    rows = np.full((1, 2), 16384, np.int16)
    policy, broker = Policy(4_000_000, 400_000_000), Broker("broker.local", 1883)
    with catalogue.boot("rv32") as board:
        for wake in (3600, None):
            member = Member(7, rows, policy, broker=broker, wake=wake)
            done = run_provision(board.url, member, tmp_path / store_file.NAME)
            assert done["wake_s"] == wake
            with Repl(board.url) as repl:
                assert json.loads(repl.read_file("/mqtt.json")).get("wake_s") == wake
            with Store(tmp_path / store_file.NAME) as store:
                assert sleepers.wakes(store) == ({7: wake} if wake else {})


@pytest.mark.sampled(1)
@pytest.mark.parametrize("share", ["1", "0.67"], ids=["announced", "asked one by one"])
def test_boards_that_wake_now_and_then_pay_for_their_counted_reports_only(
    place, share, micropython
):
    folder, path, boards = place
    over = threading.Event()

    def live(board, offset):
        time.sleep(offset)
        while not over.is_set():
            before = rig.read_ledgers([board])
            with EmulatedFleet(micropython, [board]):  # until it has answered, or for AWAKE
                end = time.monotonic() + AWAKE
                while (
                    rig.read_ledgers([board]) == before
                    and time.monotonic() < end
                    and not over.is_set()
                ):
                    time.sleep(0.1)
            over.wait(WAKE / 2)

    with Mosquitto(folder / "broker"), ThreadPoolExecutor() as lives:
        lived = lives.map(live, boards, itertools.count(0.0, 1.3))
        try:
            host = rig.serving_on_broker(folder, path, "--rounds", ROUNDS, "--share", share)
            out, _ = host.finish()
        finally:
            over.set()
        list(lived)  # raises their problems
    lines = [json.loads(line) for line in out.splitlines()]
    ends = [line for line in lines if line["event"] == "end"]
    asked = BOARDS if share == "1" else 2
    assert [(end["asked"], end["reports"], end["refusals"]) for end in ends] == ROUNDS * [
        (asked, asked, 0)
    ]
    assert any("up to 4 s at a time" in line.get("message", "") for line in lines)
    with Store(path, create=False) as store:
        reporters = [store.reporters(row.number) for row in store.rounds()]
        answered = Counter(itertools.chain.from_iterable(reporters))
        assert answered.total() == ROUNDS * asked
        heard = sleepers.heard(store)
        assert heard.keys() == answered.keys()
        assert all(abs(time.time() - at) < 300 for at in heard.values())
    spent = {device: account[0] for device, account in rig.read_ledgers(boards).items()}
    assert spent == {device: count * rig.COST for device, count in answered.items()}
