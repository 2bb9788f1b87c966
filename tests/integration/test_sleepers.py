"""Boards that sleep, on Mosquitto: each that wakes within a round is counted once, and pays for no other report."""

import itertools
import json
import subprocess
import threading
import time
from collections import Counter

import numpy as np
import pytest
from harness.arena import CARD, COST, D, K
from rig import read_ledgers
from warm import TERN

from ternhost.privacy.accounting import Policy
from ternhost.provision import keys
from ternhost.provision.boards import board_directories, provision_fleet
from ternhost.reach.broker.attach import attach
from ternhost.reach.broker.configuration import configure
from ternhost.reach.broker.mosquitto import Mosquitto, free_port
from ternhost.store import sleepers, store_file
from ternhost.store.store import Store
from terntools.boards.provision import Broker, Member
from terntools.boards.provision_command import run_provision
from terntools.boards.repl import Repl
from terntools.emulators.pico import boot_pico
from terntools.emulators.unix_fleet import EmulatedFleet

BOARDS = 3
ROUNDS = 4
WAKE = 4  # seconds
AWAKE = 8.0  # on a busy machine it takes long until a board is asked


@pytest.fixture
def place(tmp_path):
    """A store of boards with a device each, all of which sleep; and their folders on a broker."""
    path = tmp_path / store_file.NAME
    boards = board_directories(tmp_path, BOARDS)
    rows = np.full((BOARDS, D + 1), 16384, np.int16)
    with Store(path) as store:
        provision_fleet(store, boards, rows, Policy(4_000_000, 400_000_000))
        keys.fleet_key(store)
        for device in range(1, BOARDS + 1):
            sleepers.set_wake(store, device, WAKE)
    (tmp_path / "card").write_bytes(CARD)
    configure(tmp_path / "broker", path, port=free_port(), tls=False)
    attach(boards, tmp_path / "broker", path)
    return tmp_path, path, boards


def test_a_board_is_provisioned_to_sleep_and_to_wake_up_for_good(tmp_path):
    rows = np.full((1, D + 1), 16384, np.int16)
    policy = Policy(4_000_000, 400_000_000)
    broker = Broker("broker.local", 1883)
    with boot_pico(skip_idle=True) as pico:
        for wake in (3600, None):
            member = Member(7, rows, policy, broker=broker, wake=wake)
            done = run_provision(pico.url, member, tmp_path / store_file.NAME)
            assert done["wake_s"] == wake
            with Repl(pico.url) as repl:
                assert json.loads(repl.read_file("/mqtt.json")).get("wake_s") == wake
            with Store(tmp_path / store_file.NAME) as store:
                assert sleepers.wakes(store) == ({7: wake} if wake else {})


@pytest.mark.parametrize("share", ["1", "0.67"], ids=["announced", "asked one by one"])
def test_boards_that_wake_now_and_then_are_counted_and_pay_for_nothing_else(place, share, micropython):
    folder, path, boards = place
    over = threading.Event()

    def live(board, offset):
        time.sleep(offset)
        while not over.is_set():
            before = read_ledgers([board])
            with EmulatedFleet(micropython, [board]):  # until it has answered; not asked, for a while
                end = time.monotonic() + AWAKE
                while read_ledgers([board]) == before and time.monotonic() < end and not over.is_set():
                    time.sleep(0.1)
            over.wait(WAKE / 2)

    lives = [
        threading.Thread(target=live, args=(board, offset))
        for board, offset in zip(boards, itertools.count(0.0, 1.3), strict=False)
    ]
    command = [*TERN, "serve", "--store", path, "--broker", folder / "broker", "--dimension", D, "--k", K]
    command += ["--card", folder / "card", "--rounds", ROUNDS, "--share", share, "--no-report", "--json"]
    with Mosquitto(folder / "broker"):
        for one in lives:
            one.start()
        try:
            done = subprocess.run(
                list(map(str, command)), capture_output=True, text=True, timeout=200, cwd=folder
            )
        finally:
            over.set()
            for one in lives:
                one.join()
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    ends = [line for line in lines if line["event"] == "end"]
    asked = BOARDS if share == "1" else 2
    assert [(end["asked"], end["reports"], end["refusals"]) for end in ends] == ROUNDS * [(asked, asked, 0)]
    assert any("up to 4 s at a time" in line.get("message", "") for line in lines)
    with Store(path, create=False) as store:
        reporters = [store.reporters(one.number) for one in store.rounds()]
        answered = Counter(itertools.chain.from_iterable(reporters))
        assert answered.total() == ROUNDS * asked
        heard = sleepers.heard(store)
        assert heard.keys() == answered.keys()
        assert all(abs(time.time() - at) < 300 for at in heard.values())
    spent = {device: account[0] for device, account in read_ledgers(boards).items()}
    assert spent == {device: count * COST for device, count in answered.items()}
