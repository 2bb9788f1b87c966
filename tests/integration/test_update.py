"""Updates of real MicroPython boards in the field, over a port and over Mosquitto; and those that go wrong."""

import json
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from queue import SimpleQueue

import field
import pytest
import rig
import warm
from harness.raw_client import RawClient, wait_for

from tern import host_frames, wire
from tern.links import mqtt
from ternhost.provision import keys
from ternhost.reach.broker import configuration
from ternhost.reach.broker.mosquitto import Mosquitto, free_port
from ternhost.reach.links import open_link
from ternhost.store import sleepers
from ternhost.store.store import Store
from terntools.boards import update as updating
from terntools.boards.attach import write_network

TRIAL = "20"
TAKES = "from tern.update import Update\n"  # of each program: tern update refuses another


@pytest.fixture(autouse=True)
def quickly(monkeypatch):
    """A host that asks often, and gathers no frames: what is waited for is the boards alone."""
    for name, seconds in {"GREETING": 1.0, "ANSWER": 1.0, "POLL": 0.1}.items():
        monkeypatch.setattr(updating, name, seconds)
    monkeypatch.setattr("ternhost.reach.broker.link._GATHER", 0.0)


def tern_update(*arguments, cwd):
    """`tern update ... --json`: (exit code, its object)."""
    done = rig.tern(*arguments, "--json", cwd=cwd)
    assert done.out, done.err
    return done.code, json.loads(done.out)


def kept(directory):
    """What no update may touch, byte for byte."""
    return {
        path: path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
        and path.relative_to(directory).parts[0]
        in ("clients.bin", "records.bin", "fleet.bin", "ledger", "mqtt.json")
    }


def name_of(board):
    """What the program that runs calls itself."""
    link = open_link(board.port, SimpleQueue())
    try:
        return link.hello(10.0).text.split(";")[0]
    finally:
        link.close()


@pytest.fixture
def field_board(site, micropython):
    made = site(clients=1, boards=1)
    field.install(made.directories[0], "old")
    board = field.FieldBoard(micropython, made.directories[0])
    board.store = made.store.path
    yield board
    board.close()


def words(board, program):
    """Those of `tern update` for the board on a port."""
    return [
        "update", "all", "--store", str(board.store), "--board", board.port, "--machine", "emulated", "--main",
        str(program), "--trial", TRIAL,
    ]  # fmt: skip


def update(board, text, tmp_path):
    program = tmp_path / "product.py"
    program.write_text(TAKES + text)
    return tern_update(*words(board, program), cwd=tmp_path)


def test_over_a_port(field_board, tmp_path):
    assert name_of(field_board) == "old"
    before = kept(field_board.directory)
    assert len(before) >= 3
    for count, name in enumerate(("new", "newer", "newest"), 1):
        code, said = update(field_board, field.source(name), tmp_path)
        assert (code, [one["state"] for one in said["boards"]]) == (0, ["confirmed"]), said
        assert name_of(field_board) == name
        assert field.boot(field_board.directory) == (count % 2, 3, said["boards"][0]["package"])
        field_board.kill()
        assert name_of(field_board) == name
    assert kept(field_board.directory) == before
    code, again = update(field_board, field.source("newest"), tmp_path)
    assert (code, again) == (0, said), "there already"


def test_one_that_fails_is_rolled_back(field_board, tmp_path):
    before = kept(field_board.directory)
    again = "raise ValueError\n"
    for text in (again, again, "import tern.nothing\n", ""):  # the second time under another number
        code, said = update(field_board, text, tmp_path)
        assert (code, said["boards"][0]["state"]) == (1, "rolled back"), said
        assert field.boot(field_board.directory) == (0, 4, said["boards"][0]["package"])
        assert name_of(field_board) == "old"
    assert kept(field_board.directory) == before
    code, said = update(field_board, field.source("new"), tmp_path)
    assert (code, name_of(field_board)) == (0, "new")


def test_power_cuts_in_the_midst(field_board, tmp_path):
    """The package goes on from the byte that it had reached; nothing is lost but time."""
    before = kept(field_board.directory)
    staged = field_board.directory / "update.bin"
    with ThreadPoolExecutor() as pool:
        host = pool.submit(update, field_board, field.source("new"), tmp_path)
        for least in (1, 60_000, 120_000):
            wait_for(lambda least=least: staged.exists() and staged.stat().st_size > least)
            field_board.kill()
            assert staged.stat().st_size > least
        code, said = host.result()
    assert (code, said["boards"][0]["state"]) == (0, "confirmed")
    assert field_board.restarts >= 4
    assert name_of(field_board) == "new"
    assert kept(field_board.directory) == before


def test_a_host_that_is_killed_goes_on_where_it_was(field_board, tmp_path):
    staged = field_board.directory / "update.bin"
    program = tmp_path / "product.py"
    program.write_text(TAKES + field.source("new"))
    host = warm.Popen([*warm.TERN, *words(field_board, program)], cwd=tmp_path, stdout=subprocess.DEVNULL)
    wait_for(lambda: staged.exists() and staged.stat().st_size > 60_000)
    host.kill()
    host.wait()
    number = int.from_bytes(staged.read_bytes()[:4], "little")
    code, said = update(field_board, field.source("new"), tmp_path)
    assert (code, said["boards"][0]["package"]) == (0, number)
    assert name_of(field_board) == "new"


# Through tern.app

# A product of tern.app: it records, answers and predicts, takes updates, and says what it is.
APPLICATION = """
import asyncio
import os
from array import array
from tern.app import App
from tern.boards.emulated import Board
from tern.model import Model
from tern.recorder import Recorder
from tern.update import Update

board = Board(os.getcwd())
board.name = "NAME"
recorder = Recorder(6, capacity=64)
node = App(board, recorder, Model(), Update(board))
for i in range(16 - recorder.count):
    recorder.append(array("h", range(i, i + 6)), 16384)
asyncio.run(node.run())
"""


def application(name):
    """The text of such a program that calls itself so."""
    return APPLICATION.replace("NAME", name)


def all_kept(directory):
    """What no update may touch: of the application, too."""
    found = kept(directory)
    for path in [directory / "model.bin", *sorted((directory / "samples").iterdir())]:
        found[path] = path.read_bytes()
    return found


@pytest.fixture
def product(site, tmp_path, monkeypatch):
    monkeypatch.setattr(field, "source", application)
    one = site(clients=1, boards=1, budget=10 * rig.COST)
    with closing(Field(tmp_path, one)) as made:
        one.store.close()  # tern serve has it to itself
        yield made


@pytest.mark.slow
def test_through_the_application(product):
    """A good package takes effect; one that hangs is rolled back; what it has collected stays."""
    (board,) = product.boards
    product.rounds(1)
    wait_for(lambda: (board.directory / "model.bin").exists())
    before = all_kept(board.directory)
    assert len(before) >= 6
    code, said = product.update(application("new"), "all")
    assert (code, [one["state"] for one in said["boards"]]) == (0, ["confirmed"]), said
    assert product.names() == {1: "new"}
    assert field.boot(board.directory) == (1, wire.CONFIRMED, said["boards"][0]["package"])
    assert all_kept(board.directory) == before

    def give_up():
        wait_for(lambda: field.boot(board.directory)[1] == wire.TRIAL)
        time.sleep(0.5)
        # Instead of the loader's timer, which a computer lacks: the emulated Pico has it (test_update_pico).
        board.kill()

    power = threading.Thread(target=give_up)
    power.start()
    code, said = product.update("while True:\n    pass\n", "all")
    power.join()
    assert (code, said["boards"][0]["state"]) == (1, "rolled back"), said
    wait_for(lambda: product.names() == {1: "new"})
    assert all_kept(board.directory) == before
    product.rounds(2)
    ((spent, last, _),) = rig.read_ledgers([board.directory]).values()
    assert (spent, last) == (2 * rig.COST, 2)
    assert all_kept(board.directory) != before


# Over a broker


class Field:
    """Three boards on a broker."""

    def __init__(self, directory, site):
        self.directory = directory
        self.store = site.store.path
        self.keys = site.store.keys()
        fleet = keys.fleet_key(site.store)
        self.access = configuration.write_configuration(directory / "broker", self.keys, port=free_port())
        for board in site.directories:
            field.install(board, "old")
            write_network(board, self.access, fleet.key, epoch=fleet.epoch, longest_pause_ms=500)
        self.broker = Mosquitto(directory / "broker")
        self.boards = [field.FieldBoard(site.micropython, board) for board in site.directories]

    def close(self):
        for board in self.boards:
            board.close()
        self.broker.stop()

    def update(self, text, *arguments):
        program = self.directory / "product.py"
        program.write_text(TAKES + text)
        return tern_update(
            "update", *arguments, "--store", self.store, "--broker", self.directory / "broker", "--machine", "emulated",
            "--main", program, "--trial", TRIAL, cwd=self.directory,
        )  # fmt: skip

    def rounds(self, until):
        """Serve them until that one, with a model after each."""
        (self.directory / "card").write_bytes(rig.CARD)
        words = ("--rounds", until, "--horizon", 100, "--model-every", 1)
        code, _, err = rig.serving_on_broker(self.directory, self.store, *words).finish()
        assert code == 0, err

    def names(self):
        """What the boards say of themselves, by device."""
        host = RawClient(self.access, self.access.user, self.access.password)
        host.subscribe("tern/hello/+")
        try:
            found = {}
            for topic, payload in host.messages(10.0, len(self.boards)):
                hello = host_frames.Hello(payload[2:])
                assert topic.endswith(mqtt.name(hello.first))
                found[hello.first] = hello.text.split(";")[0]
            return found
        finally:
            host.close()


def test_over_a_broker(site, tmp_path):
    """Packages of others are not taken, one that fails is not sent on, a good one comes to all that do not sleep."""
    with closing(Field(tmp_path, site(clients=3, boards=3))) as fleet:
        wait_for(lambda: len(fleet.names()) == 3)
        before = [kept(board.directory) for board in fleet.boards]
        publish_without_a_key(fleet)
        assert not (fleet.boards[0].directory / "update.bin").exists()

        code, said = fleet.update("raise ValueError\n", "all", "--at-once", 2)
        assert (code, len(said["boards"]), said["left"]) == (1, 1, 2)
        code, said = fleet.update("raise ValueError\n", "all", "--at-once", 2, "--keep-going")
        assert (code, [one["state"] for one in said["boards"]]) == (1, ["rolled back"] * 3)
        wait_for(lambda: fleet.names() == {1: "old", 2: "old", 3: "old"})

        code, said = fleet.update(field.source("new"), "2")
        assert (code, said["boards"][0]["device"]) == (0, 2)
        assert fleet.names() == {1: "old", 2: "new", 3: "old"}
        with Store(fleet.store, beside=True) as store:
            sleepers.set_wake(store, 2, 60)
        code, said = fleet.update(field.source("newer"), "all", "--at-once", 2)
        assert (code, said["asleep"]) == (0, [2])
        assert [(one["device"], one["state"]) for one in said["boards"]] == [
            (1, "confirmed"),
            (3, "confirmed"),
        ]
        assert fleet.names() == {1: "newer", 2: "new", 3: "newer"}
        assert [kept(board.directory) for board in fleet.boards] == before


def publish_without_a_key(fleet):
    """Send UPDATEs to board 1 as somebody who has the host's password, but not the device's key."""
    thief = RawClient(fleet.access, fleet.access.user, fleet.access.password)
    thief.subscribe("tern/up/+")
    out = bytearray(wire.MAX_FRAME)
    for key in (bytes(32), b"", fleet.keys[2]):
        n = host_frames.encode_update(out, key, 1, 5, 0, 1000, bytes(500))
        thief.publish("tern/down/00000001", bytes(out[:n]))
    for _, payload in thief.messages(2.0):
        assert payload[2] == wire.ERROR
    thief.close()
