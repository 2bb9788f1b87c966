"""Updates of MicroPython boards in the field, over a port and over Mosquitto; and updates that
fail.
"""

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
from framing import encoded
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
TAKES = "from tern.update import Update\n"  # in each program: tern update refuses one without it


@pytest.fixture(autouse=True)
def quickly(monkeypatch):
    """Let the host ask often and gather no frames, so that tests wait for boards only."""
    for name, seconds in {"GREETING": 1.0, "ANSWER": 1.0, "POLL": 0.1}.items():
        monkeypatch.setattr(updating, name, seconds)
    monkeypatch.setattr("ternhost.reach.broker.link._GATHER", 0.0)


def tern_update(*arguments, cwd):
    """Run `tern update ... --json`; return (exit code, its object)."""
    done = rig.tern(*arguments, "--json", cwd=cwd)
    assert done.out, done.err
    return done.code, json.loads(done.out)


def kept(directory, more=()):
    """The files that no update may change: path on the board -> content."""
    names = ("/clients.bin", "/records.bin", "/fleet.bin", "/ledger/", "/mqtt.json", *more)
    return {
        path: data for path, data in rig.files_below(directory).items() if path.startswith(names)
    }


def name_of(board):
    """The name in the hello of the running program."""
    with closing(open_link(board.port, SimpleQueue())) as link:
        return link.hello(10.0).text.split(";")[0]


@pytest.fixture
def field_board(site, micropython):
    made = site(clients=1, boards=1)
    field.install(made.directories[0], "old")
    board = field.FieldBoard(micropython, made.directories[0])
    board.store = made.store.path
    yield board
    board.close()


def words(board, program):
    """The command line of `tern update` for a board on a port."""
    return [
        "update",
        "all",
        "--store",
        str(board.store),
        "--board",
        board.port,
        "--machine",
        "emulated",
        "--main",
        str(program),
        "--trial",
        TRIAL,
    ]


def update(board, text, tmp_path):
    program = tmp_path / "product.py"
    program.write_text(TAKES + text)
    return tern_update(*words(board, program), cwd=tmp_path)


def test_a_board_on_a_port_takes_one_update_after_the_other(field_board, tmp_path):
    assert name_of(field_board) == "old"
    before = kept(field_board.directory)
    assert len(before) >= 3
    for count, name in enumerate(("new", "newer", "newest"), 1):
        code, result = update(field_board, field.source(name), tmp_path)
        assert (code, [board["state"] for board in result["boards"]]) == (0, ["confirmed"]), result
        assert name_of(field_board) == name
        assert field.boot(field_board.directory) == (count % 2, 3, result["boards"][0]["package"])
        field_board.kill()
        assert name_of(field_board) == name
    assert kept(field_board.directory) == before
    code, again = update(field_board, field.source("newest"), tmp_path)
    assert (code, again) == (0, result), "the package is there already"


def test_a_program_that_fails_is_rolled_back(field_board, tmp_path):
    before, fails = kept(field_board.directory), "raise ValueError\n"
    for text in (
        fails,
        fails,
        "import tern.nothing\n",
        "",
    ):  # the second package has a number of its own
        code, result = update(field_board, text, tmp_path)
        assert (code, result["boards"][0]["state"]) == (1, "rolled back"), result
        assert field.boot(field_board.directory) == (0, 4, result["boards"][0]["package"])
        assert name_of(field_board) == "old"
    assert kept(field_board.directory) == before
    code, result = update(field_board, field.source("new"), tmp_path)
    assert (code, name_of(field_board)) == (0, "new")


def test_an_update_goes_on_after_power_cuts_from_the_byte_that_it_had_reached(
    field_board, tmp_path
):
    before = kept(field_board.directory)
    staged = field_board.directory / "update.bin"
    with ThreadPoolExecutor() as pool:
        host = pool.submit(update, field_board, field.source("new"), tmp_path)
        for least in (1, 60_000, 120_000):
            wait_for(lambda least=least: staged.exists() and staged.stat().st_size > least)
            field_board.kill()
            assert staged.stat().st_size > least
        code, result = host.result()
    assert (code, result["boards"][0]["state"]) == (0, "confirmed")
    assert field_board.restarts >= 4
    assert name_of(field_board) == "new"
    assert kept(field_board.directory) == before


def test_an_update_goes_on_after_its_host_is_killed(field_board, tmp_path):
    staged = field_board.directory / "update.bin"
    program = tmp_path / "product.py"
    program.write_text(TAKES + field.source("new"))
    host = warm.Popen(
        [*warm.TERN, *words(field_board, program)], cwd=tmp_path, stdout=subprocess.DEVNULL
    )
    wait_for(lambda: staged.exists() and staged.stat().st_size > 60_000)
    host.kill()
    host.wait()
    number = int.from_bytes(staged.read_bytes()[:4], "little")
    code, result = update(field_board, field.source("new"), tmp_path)
    assert (code, result["boards"][0]["package"]) == (0, number)
    assert name_of(field_board) == "new"


# Through tern.app

# A product of tern.app: it records, answers, predicts and takes updates; its hello has its name.
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
    """The text of the application with this name."""
    return APPLICATION.replace("NAME", name)


def all_kept(directory):
    """As `kept`, with the model and the samples of an application."""
    return kept(directory, ("/model.bin", "/samples/"))


@pytest.fixture
def product(site, tmp_path, monkeypatch):
    monkeypatch.setattr(field, "source", application)
    provisioned = site(clients=1, boards=1, budget=10 * rig.COST)
    with closing(Field(tmp_path, provisioned)) as fleet:
        provisioned.store.close()  # for tern serve
        yield fleet


@pytest.mark.slow
def test_an_application_keeps_its_data_over_updates_and_rolls_back_one_that_hangs(product):
    (board,) = product.boards
    product.rounds(1)
    wait_for(lambda: (board.directory / "model.bin").exists())
    before = all_kept(board.directory)
    assert len(before) >= 6
    code, result = product.update(application("new"), "all")
    assert (code, [each["state"] for each in result["boards"]]) == (0, ["confirmed"]), result
    assert product.names() == {1: "new"}
    assert field.boot(board.directory) == (1, wire.CONFIRMED, result["boards"][0]["package"])
    assert all_kept(board.directory) == before

    def give_up():
        wait_for(lambda: field.boot(board.directory)[1] == wire.TRIAL)
        time.sleep(0.5)
        # Stands in for the loader's timer, which only a board has: see test_update_pico.
        board.kill()

    power = threading.Thread(target=give_up)
    power.start()
    code, result = product.update("while True:\n    pass\n", "all")
    power.join()
    assert (code, result["boards"][0]["state"]) == (1, "rolled back"), result
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
        self.directory, self.store = directory, site.store.path
        self.keys = site.store.keys()
        fleet = keys.fleet_key(site.store)
        self.access = configuration.write_configuration(
            directory / "broker", self.keys, configuration.BrokerOptions(port=free_port())
        )
        for board in site.directories:
            field.install(board, "old")
            write_network(board, self.access, fleet.key, epoch=fleet.epoch, longest_pause_ms=500)
        self.broker = Mosquitto(directory / "broker")
        self.boards = [field.FieldBoard(site.micropython, board) for board in site.directories]

    def close(self):
        for board in self.boards:
            board.close()
        self.broker.close()

    def update(self, text, *arguments):
        program = self.directory / "product.py"
        program.write_text(TAKES + text)
        return tern_update(
            "update",
            *arguments,
            "--store",
            self.store,
            "--broker",
            self.directory / "broker",
            "--machine",
            "emulated",
            "--main",
            program,
            "--trial",
            TRIAL,
            cwd=self.directory,
        )

    def rounds(self, until):
        """Serve rounds up to the number `until`, with a model after each."""
        (self.directory / "card").write_bytes(rig.CARD)
        words = ("--rounds", until, "--horizon", 100, "--model-every", 1)
        rig.serving_on_broker(self.directory, self.store, *words).finish()

    def names(self):
        """The names in the hellos of the boards, by device."""
        with closing(RawClient(self.access, self.access.user, self.access.password)) as host:
            host.subscribe("tern/hello/+")
            names = {}
            for topic, payload in host.messages(10.0, len(self.boards)):
                hello = host_frames.Hello(payload[2:])
                assert topic.endswith(mqtt.name(hello.first))
                names[hello.first] = hello.text.split(";")[0]
            return names


def test_an_update_over_a_broker_stops_at_a_failure_and_skips_boards_that_sleep(site, tmp_path):
    """Boards take no package that is not sealed with their key."""
    with closing(Field(tmp_path, site(clients=3, boards=3))) as fleet:
        wait_for(lambda: len(fleet.names()) == 3)
        before = [kept(board.directory) for board in fleet.boards]
        publish_without_a_key(fleet)
        assert not (fleet.boards[0].directory / "update.bin").exists()

        code, result = fleet.update("raise ValueError\n", "all", "--at-once", 2)
        assert (code, len(result["boards"]), result["left"]) == (1, 1, 2)
        code, result = fleet.update("raise ValueError\n", "all", "--at-once", 2, "--keep-going")
        assert (code, [board["state"] for board in result["boards"]]) == (1, ["rolled back"] * 3)
        wait_for(lambda: fleet.names() == {1: "old", 2: "old", 3: "old"})

        code, result = fleet.update(field.source("new"), "2")
        assert (code, result["boards"][0]["device"]) == (0, 2)
        assert fleet.names() == {1: "old", 2: "new", 3: "old"}
        with Store(fleet.store, beside=True) as store:
            sleepers.set_wake(store, 2, 60)
        code, result = fleet.update(field.source("newer"), "all", "--at-once", 2)
        assert (code, result["asleep"]) == (0, [2])
        states = [(board["device"], board["state"]) for board in result["boards"]]
        assert states == [(1, "confirmed"), (3, "confirmed")]
        assert fleet.names() == {1: "newer", 2: "new", 3: "newer"}
        assert [kept(board.directory) for board in fleet.boards] == before


def publish_without_a_key(fleet):
    """Send UPDATEs to board 1 with the host's password, but without the device's key."""
    thief = RawClient(fleet.access, fleet.access.user, fleet.access.password)
    thief.subscribe("tern/up/+")
    for key in (bytes(32), b"", fleet.keys[2]):
        update = encoded(host_frames.encode_update, key, 1, 5, 0, 1000, bytes(500))
        thief.publish("tern/down/00000001", update)
    for _, payload in thief.messages(2.0):
        assert payload[2] == wire.ERROR
    thief.close()
