"""Updates of MicroPython boards in the field, over a port and over Mosquitto; and updates that
fail.
"""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from queue import SimpleQueue

import field
import pytest
import rig
from framing import encoded
from harness.raw_client import RawClient, wait_for

from tern import host_frames, wire
from tern.links import mqtt
from ternhost.provision import keys
from ternhost.reach.broker import configuration
from ternhost.reach.broker.mosquitto import Mosquitto, free_port
from ternhost.reach.links import open_link
from terntools.boards import update as updating
from terntools.boards.attach import write_network

PROGRAM = ("--machine", "emulated", "--trial", 20, "--main")
TAKES = "from tern.update import Update\n"  # in each program: tern update refuses one without it


@pytest.fixture(autouse=True)
def quickly(monkeypatch):
    """Let the host ask often and gather no frames, so that tests wait for boards only."""
    for name, seconds in {"GREETING": 1.0, "ANSWER": 1.0, "POLL": 0.1}.items():
        monkeypatch.setattr(updating, name, seconds)
    monkeypatch.setattr("ternhost.reach.broker.link._GATHER_SECONDS", 0.0)


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
    where = f"--store {board.store} --board {board.port}"
    return ["update", "all", *where.split(), *PROGRAM, program]


def update(board, text, tmp_path):
    program = tmp_path / "product.py"
    program.write_text(TAKES + text)
    return tern_update(*words(board, program), cwd=tmp_path)


def test_a_board_on_a_port_takes_one_update_after_the_other(field_board, tmp_path):
    """The two places of programs on a board take turns."""
    files_before = kept(field_board.directory)
    for name, place in (("new", 1), ("newer", 0)):
        code, result = update(field_board, field.source(name), tmp_path)

        (board,) = result["boards"]
        assert code == 0
        assert board["state"] == "confirmed"
        assert field.boot(field_board.directory) == (place, wire.CONFIRMED, board["package"])
        field_board.kill()
        assert name_of(field_board) == name
    assert kept(field_board.directory) == files_before


@pytest.mark.parametrize("text", ["raise ValueError\n", ""], ids=["raises", "ends"])
def test_a_program_that_fails_is_rolled_back(field_board, tmp_path, text):
    files_before = kept(field_board.directory)

    code, result = update(field_board, text, tmp_path)

    (board,) = result["boards"]
    assert code == 1
    assert board["state"] == "rolled back"
    first_place = 0
    assert field.boot(field_board.directory) == (first_place, wire.ROLLED_BACK, board["package"])
    assert name_of(field_board) == "old"
    assert kept(field_board.directory) == files_before


def test_an_update_goes_on_after_power_cuts_from_the_byte_that_it_had_reached(
    field_board, tmp_path
):
    files_before = kept(field_board.directory)
    staged = field_board.directory / "update.bin"

    def has_staged(size):
        return staged.exists() and staged.stat().st_size > size

    with ThreadPoolExecutor() as pool:
        host = pool.submit(update, field_board, field.source("new"), tmp_path)
        for size in (1, 60_000, 120_000):
            wait_for(lambda size=size: has_staged(size))
            field_board.kill()
            assert has_staged(size), "what has arrived stays"
        code, _ = host.result()

    assert code == 0
    assert field_board.restarts >= 3 + 1  # the power cuts, and the update's own
    assert name_of(field_board) == "new"
    assert kept(field_board.directory) == files_before


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
        where = ("--store", self.store, "--broker", self.directory / "broker")
        return tern_update("update", *arguments, *where, *PROGRAM, program, cwd=self.directory)

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


@pytest.fixture
def fleet(site, tmp_path):
    """Three boards on a broker, which run the program "old"."""
    with closing(Field(tmp_path, site(clients=3, boards=3))) as running:
        wait_for(lambda: len(running.names()) == 3)
        yield running


def test_an_update_over_a_broker_stops_at_a_failure(fleet):
    code, result = fleet.update("raise ValueError\n", "all", "--at-once", 2)
    assert (code, len(result["boards"]), result["left"]) == (1, 1, 2)


def test_boards_take_no_package_that_is_not_sealed_with_their_key(fleet):
    """With the host's password, but without the key of board 1."""
    with closing(RawClient(fleet.access, fleet.access.user, fleet.access.password)) as thief:
        thief.subscribe("tern/up/+")
        for key in (bytes(32), b"", fleet.keys[2]):
            package = encoded(host_frames.encode_update, key, 1, 5, 0, 1000, bytes(500))
            thief.publish("tern/down/00000001", package)
        for _, payload in thief.messages(2.0):
            assert payload[2] == wire.ERROR
    assert not (fleet.boards[0].directory / "update.bin").exists()
