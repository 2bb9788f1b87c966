"""Updates of MicroPython boards in the field, over a port and over Mosquitto; and updates that
fail.
"""

import json
import os
import shlex
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from queue import SimpleQueue

import pytest
import rig
from framing import encoded
from harness.guide import commands
from harness.operated import GUIDE
from harness.raw_client import RawClient, retained
from harness.waiting import wait_for

from tern import __version__, host_frames, wire
from tern.update import BOOT, BOOT_FIELDS
from ternhost.errors import OK, USAGE
from ternhost.provision import keys
from ternhost.reach.broker import configuration
from ternhost.reach.broker.mosquitto import Mosquitto, free_port
from ternhost.reach.links import open_link
from terntools.boards import api, program, update_command
from terntools.boards import update as updating
from terntools.boards.attach import write_network
from terntools.emulators.unix_fleet import FIRMWARE, EmulatedBoard

LOADER = FIRMWARE / "trial" / "main.py"
NOWHERE = Path(os.devnull)  # the library is in /lib of the board

# A program of a product: it answers rounds and takes updates; its hello has its name.
PRODUCT = """
import os
from tern import frames, wire
from tern.boards.emulated import Board
from tern.client import Client
from tern.storage import CLIENTS, Clients
from tern.update import Update

board = Board(os.getcwd())
board.name = "NAME"
update = Update(board)
link = board.open_link()
link.admit(wire.UPDATE)
client = Client(board)
key = Clients(board.directory + "/" + CLIENTS).key
sent = False
while True:
    frame = link.receive(100)
    if sent:
        if update.restart:
            raise SystemExit
        update.confirm()
    if frame is None:
        continue
    sent = len(frame) > 0 and frame[0] == wire.HELLO_REQUEST
    if len(frame) and frame[0] == wire.UPDATE:
        n = update.take(frame, key, client.reply)
        link.send(client.reply, n)
        sent = update.restart
    else:
        client.respond(frame, link.send)
"""


def source(name):
    """The text of the program of a product with this name."""
    return PRODUCT.replace("NAME", name)


def install(directory, name):
    """Put the program with this name and its library into /lib of a board, as `tern board deploy` does."""
    path = directory / "first.py"
    path.write_text(source(name))
    for name, data in program.program_files(program.EMULATED, program.read(path)).items():
        target = directory / "lib" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    path.unlink()


def boot(directory):
    """(proven, state, number) of a board's boot.bin."""
    return struct.unpack_from(BOOT_FIELDS, (directory / BOOT).read_bytes())[1:]


class FieldBoard(EmulatedBoard):
    """A board whose loader starts again whenever its program ends; `restarts` counts how often."""

    def __init__(self, binary, directory):
        self.restarts, self._going = 0, True
        super().__init__(binary, directory, firmware=NOWHERE, program=LOADER)
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def _watch(self):
        while self._going:
            time.sleep(0.05)
            process = self._process
            if process and process.poll() is not None and self._going:
                self.restarts += 1
                self.start()

    def kill(self):
        """Cut the power, which comes back at once."""
        if self._process:
            self._process.kill()
            self._process.wait()

    def close(self):
        self._going = False
        if hasattr(self, "_watcher"):
            self._watcher.join()
        super().close()


PROGRAM = ("--machine", "emulated", "--main")
TAKES = (
    "from tern.update import Update\n"  # in each program: tern board update refuses one without it
)


@pytest.fixture(autouse=True)
def quickly(monkeypatch):
    """Let the host ask often and gather no frames, so that tests wait for boards only."""
    for name, seconds in {"GREETING": 1.0, "ANSWER": 1.0, "POLL": 0.1}.items():
        monkeypatch.setattr(updating, name, seconds)
    monkeypatch.setattr(update_command, "TRIAL", 20.0)
    monkeypatch.setattr("ternhost.reach.broker.link._GATHER_SECONDS", 0.0)


def tern_update(*arguments, cwd):
    """Run `tern board update ... --json`; return (exit code, its object)."""
    done = rig.tern("board", "update", *arguments, "--json", cwd=cwd)
    assert done.out, done.err
    return done.code, json.loads(done.out)


def kept(directory):
    """The files that no update may change: path on the board -> content."""
    names = ("/clients.bin", "/records.bin", "/fleet.bin", "/ledger/", "/mqtt.json")
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
    install(made.directories[0], "old")
    board = FieldBoard(micropython, made.directories[0])
    board.store = made.store.path
    yield board
    board.close()


def update(board, text, tmp_path):
    program = tmp_path / "product.py"
    program.write_text(TAKES + text)
    where = ("--store", board.store, "--board", board.port)
    return tern_update("all", *where, *PROGRAM, program, cwd=tmp_path)


def test_a_board_on_a_port_takes_one_update_after_the_other(field_board, tmp_path):
    """A board has two places for programs, which take turns: a new program goes into the other
    place, is tried, and is then confirmed. Two updates in a row leave keys, records and ledgers as
    they are.
    """
    files_before = kept(field_board.directory)
    for name, place in (("new", 1), ("newer", 0)):
        code, result = update(field_board, source(name), tmp_path)

        (board,) = result["boards"]
        assert code == 0
        assert board["state"] == "confirmed"
        assert boot(field_board.directory) == (place, wire.CONFIRMED, board["package"])
        field_board.kill()  # a power cut, after which the new program starts again
        assert name_of(field_board) == name
    assert kept(field_board.directory) == files_before


def test_a_user_s_program_updates_a_board(field_board, tmp_path):
    """`terntools.boards.api.update` does for a program what `tern board update` does."""
    product = tmp_path / "product.py"
    product.write_text(TAKES + source("new"))
    options = api.UpdateOptions(
        str(product), board=field_board.port, store=str(field_board.store), machine="emulated"
    )

    updated = api.update(None, options)

    assert [board.state for board in updated.boards] == ["confirmed"]
    assert not updated.failed
    assert name_of(field_board) == "new"


@pytest.mark.parametrize("text", ["raise ValueError\n", ""], ids=["raises", "ends"])
def test_a_program_that_fails_is_rolled_back(field_board, tmp_path, text):
    """The new program of an update raises an error, or just ends. The board goes back to the old
    one by itself, and `tern board update` says so.
    """
    files_before = kept(field_board.directory)

    code, result = update(field_board, text, tmp_path)

    (board,) = result["boards"]
    assert code == 1
    assert board["state"] == "rolled back"
    first_place = 0
    assert boot(field_board.directory) == (first_place, wire.ROLLED_BACK, board["package"])
    assert name_of(field_board) == "old"
    assert kept(field_board.directory) == files_before


def test_an_update_goes_on_after_power_cuts_from_the_byte_that_it_had_reached(
    field_board, tmp_path
):
    """A package arrives piece by piece in update.bin on the board. Three power cuts on the way cost
    nothing that has arrived, and the update ends well.
    """
    files_before = kept(field_board.directory)
    staged = field_board.directory / "update.bin"

    def has_staged(size):
        return staged.exists() and staged.stat().st_size > size

    with ThreadPoolExecutor() as pool:
        host = pool.submit(update, field_board, source("new"), tmp_path)
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

BROKER = "my-broker"  # its directory
*_, FIRST_UPGRADE = commands(GUIDE, "Upgrade")  # of boards, whose kind the store does not know yet
FIRST_UPGRADE = FIRST_UPGRADE.replace("pico-w", "emulated")
NEXT_UPGRADE = FIRST_UPGRADE.replace(" --machine emulated", "")
OLD_RELEASE = "0.0.9"


def give_old_library(directory):
    """Let the library of a board be that of an earlier release, as far as its hello tells."""
    path = directory / "lib/tern/__init__.py"
    path.write_text(path.read_text().replace(__version__, OLD_RELEASE))


class Field:
    """Three boards on a broker, with the library of an earlier release."""

    def __init__(self, directory, site):
        self.directory, self.store = directory, site.store.path
        self.keys = site.store.keys()
        fleet = keys.fleet_key(site.store)
        site.store.close()
        self.access = configuration.configure(directory / BROKER, site.store.path, port=free_port())
        for board in site.directories:
            install(board, "old")
            give_old_library(board)
            write_network(board, self.access, fleet.key, epoch=fleet.epoch, longest_pause_ms=500)
        self.broker = Mosquitto(directory / BROKER)
        self.boards = [FieldBoard(site.micropython, board) for board in site.directories]

    def close(self):
        for board in self.boards:
            board.close()
        self.broker.close()

    def hellos(self):
        """The hellos of the boards that are connected, once all of them are."""
        frames = wait_for(lambda: self._all(retained(self.access, "tern/hello/+")))
        return [host_frames.Hello(frame) for frame in frames]

    def _all(self, messages):
        frames = list(messages.values())
        return frames if len(frames) == len(self.boards) else None

    def releases(self):
        return {".".join(map(str, hello.release)) for hello in self.hellos()}

    def names(self):
        """The names of the programs that the boards run."""
        return {hello.text.split(";")[0] for hello in self.hellos()}

    def update(self, text, *arguments):
        program = self.directory / "product.py"
        program.write_text(TAKES + text)
        where = ("--store", self.store, "--broker", self.directory / BROKER)
        return tern_update(*arguments, *where, *PROGRAM, program, cwd=self.directory)


@pytest.fixture
def fleet(site, tmp_path):
    """Three boards on a broker, which run the program "old"."""
    with closing(Field(tmp_path, site(clients=3, boards=3))) as running:
        running.hellos()
        yield running


def words_of(command):
    """The arguments of a command of the guide."""
    program, *words = shlex.split(command)
    assert program == "tern"
    return words


def test_the_library_of_every_board_is_upgraded_by_the_command_of_the_guide(fleet):
    """The second time, the store knows the kind of the boards."""
    assert fleet.releases() == {OLD_RELEASE}
    for command, name in ((FIRST_UPGRADE, "new"), (NEXT_UPGRADE, "newer")):
        (fleet.directory / "product.py").write_text(TAKES + source(name))
        rig.tern(*words_of(command), cwd=fleet.directory, code=OK)
        assert [boot(board.directory)[1] for board in fleet.boards] == [wire.CONFIRMED] * 3
        assert fleet.releases() == {__version__}
        assert fleet.names() == {name}


def test_boards_whose_kind_is_unknown_are_not_upgraded(fleet):
    """The error names the option that is missing."""
    (fleet.directory / "product.py").write_text(TAKES + source("new"))
    refused = rig.tern(*words_of(NEXT_UPGRADE), cwd=fleet.directory, code=USAGE)
    assert "--machine" in refused.err
    assert fleet.names() == {"old"}


def test_an_update_over_a_broker_stops_at_a_failure(fleet):
    """The program of this update ends with an error. One board tries it first; as it fails there,
    the two others are spared.
    """
    code, result = fleet.update("raise ValueError\n", "all", "--at-once", 2)
    assert code == 1
    assert len(result["boards"]) == 1
    assert result["left"] == 2


def test_boards_take_no_package_that_is_not_sealed_with_their_key(fleet):
    """A package is a new program for a board. A thief has the host's password at the broker, but
    not the key of board 1: neither with no key, nor with that of board 2, does the board keep a
    byte of what he sends.
    """
    with closing(RawClient(fleet.access, fleet.access.user, fleet.access.password)) as thief:
        thief.subscribe("tern/up/+")
        for key in (bytes(32), b"", fleet.keys[2]):
            half_a_package = encoded(
                host_frames.encode_update,
                key,
                device=1,
                number=5,
                offset=0,
                total=1000,
                data=bytes(500),
            )
            thief.publish("tern/down/00000001", half_a_package)

        for _, payload in thief.messages(2.0):
            frame = payload[2:]  # behind the packet's number
            assert frame[0] == wire.ERROR

    assert not (fleet.boards[0].directory / "update.bin").exists()
