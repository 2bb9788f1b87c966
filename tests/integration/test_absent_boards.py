"""Ways in which a board fails to appear on its broker: each is told with its reason within 15 s, at
the host or by the board (at its port, in its file, and in its next HELLO), and no other reason is
told. Real Mosquitto, emulated boards, and the real commands.
"""

import json
import shutil
import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from datetime import datetime
from queue import SimpleQueue
from typing import NamedTuple

import pytest
import rig
from harness.waiting import wait_for

from tern import absence as A
from tern import storage, wire
from ternhost.errors import NO_DEVICE, TernError
from ternhost.provision import keys
from ternhost.reach import certificates
from ternhost.reach.absence import REASONS
from ternhost.reach.broker import configuration
from ternhost.reach.broker.broker_log import TEXTS
from ternhost.reach.broker.mosquitto import Mosquitto, free_port
from ternhost.reach.links import open_link
from ternhost.store.boards import hello_fields
from ternhost.store.store import Store
from terntools.boards import software
from terntools.emulators import flash_image, qemu
from terntools.emulators.unix_fleet import EmulatedFleet

SOON = 15.0  # seconds
NO_REASON = 0  # of a board that has not been absent yet

# What the host may say of a board, by a short name.
SAYS = {part: words.partition("{at} ")[2] for part, (words, _) in TEXTS["refused"].items()} | {
    "password": "the broker does not have the password of its key",
    "login": "no login at this broker",
    "ended": "its connection ended",
    "hello": "connected, but its hello does not arrive",
    "shared": "several boards log in as",
    "key": "this store has no key for device",
    "version": "its library is of another version",
    "store": "has no device yet",
    "down": "does not answer",
    "gone": "is gone; waiting for it",
    "expired": "certificate has expired",
}


def absent(port):
    """What the HELLO at `port` tells: (reason, whether the absence goes on)."""
    with closing(open_link(port, SimpleQueue())) as link:
        fields = hello_fields(link.hello(15))
    return fields["absent"], fields["absent_now"]


def change(directory, **members):
    """Change mqtt.json; None takes a member away."""
    path = directory / "mqtt.json"
    config = json.loads(path.read_text()) | members
    path.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))


class Place:
    """A provisioned board, its broker, and `tern serve`: each is started once, by a way or after
    it.
    """

    def __init__(self, folder, stack, micropython):
        self.folder, self.stack, self.micropython = folder, stack, micropython
        row = [1000] * (rig.D + 1)
        self.path, (self.board,) = rig.on_broker(folder, 1, row, longest_pause_ms=500)
        self.directory = folder / "broker"
        self.running = self.port = None
        self.lines = []
        self.began = 0.0  # time of the failure, or of the host's start

    def broker(self):
        self.running = self.running or self.stack.enter_context(Mosquitto(self.directory))

    def start(self, *more):
        """Start the board, and more boards, on their directories."""
        if not self.port:
            fleet = EmulatedFleet(self.micropython, [self.board, *more])
            self.emulated = self.stack.enter_context(fleet).boards[0]
            self.port = self.emulated.port

    def serve(self):
        if self.began:
            return
        places = (
            "--store",
            self.path,
            "--fleet",
            f"mqtt:{self.directory}",
            "--card",
            self.folder / "card",
        )
        self.began = time.monotonic()
        options = (*places, "--data", f"devices:{rig.D}", "--k", 1, "--every", 0, "--json")
        serving = rig.Train(*options, cwd=self.folder, command="serve").process
        streams = serving.stdout, serving.stderr
        readers = [threading.Thread(target=self.lines.extend, args=(stream,)) for stream in streams]
        for reader in readers:
            reader.start()

        def end():
            with suppress(ProcessLookupError):
                serving.send_signal(signal.SIGINT)
            serving.wait(60)
            for reader in readers:
                reader.join()

        self.stack.callback(end)

    def all_well(self):
        self.broker()
        self.start()
        self.serve()
        wait_for(lambda: self.told('"event": "round"'), 60)
        self.began = time.monotonic()

    def told(self, words):
        """Whether the host has said these words."""
        return any(words in line for line in list(self.lines))

    def store(self):
        return Store(self.path, beside=True)


def settings(**members):
    return lambda place: change(place.board, **members)


def broker_killed(place):
    place.all_well()
    place.running.kill()


def power_cut(place):
    place.all_well()
    place.emulated.kill()


def not_configured(place):
    """As `tern board provision` with a store of which the broker has no passwords yet."""
    with place.store() as store:
        new_key = keys.rotate(store, [1])[1]
    path = place.board / storage.CLIENTS
    clients = path.read_bytes()
    key = slice(4, 4 + wire.KEY_BYTES)  # behind the id of the device
    path.write_bytes(clients[: key.start] + new_key + clients[key.stop :])


def another_store(place):
    place.path = place.folder / "other.sqlite"
    with place.store() as store:
        keys.add(store, [2])


def two_of_one_name(place):
    shutil.copytree(place.board, place.folder / "twin")
    place.broker()
    place.start(place.folder / "twin")


def other_authority(place):
    configuration.write_configuration(
        place.folder / "other", {}, configuration.BrokerOptions(port=1)
    )
    change(place.board, authority="authority.der")
    shutil.copy(place.folder / "other" / "authority.der", place.board)


def certificate_expired(place):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(certificates, "_NOT_AFTER", datetime(2020, 1, 1))
        certificates.write_certificates(place.directory, ["localhost"])


class Way(NamedTuple):
    """A way to be absent from the broker, and what is told of it."""

    prepare: Callable[[Place], object]  # brings it about
    host: set[str]  # names of the SAYS that the host tells
    board: set[int] = frozenset()  # reasons of which the board tells one; none: it tells nothing


WAYS = {
    "broker stopped": Way(broker_killed, {"gone"}, {A.REFUSED, A.LOST}),
    "wrong password": Way(
        settings(password="0" * 32), {"not authorised", "login"}, {A.CREDENTIALS}
    ),
    "broker not configured": Way(not_configured, {"password", "not authorised"}, {A.CREDENTIALS}),
    "certificate expired": Way(certificate_expired, {"expired"}, {A.DATES}),
    "another store": Way(another_store, {"key", "password"}),
    "other prefix": Way(settings(prefix="other"), {"hello"}),
    "two of one name": Way(two_of_one_name, {"shared"}, {A.LOST}),
    "plain at a port with TLS": Way(
        settings(authority=None), {"wrong version number", "login"}, {A.CLOSED, A.NO_BROKER}
    ),
    "other authority": Way(other_authority, {"alert unknown ca", "login"}, {A.CERTIFICATE}),
    "power cut": Way(power_cut, {"ended"}),
}


def test_a_board_says_at_its_port_why_it_is_not_on_its_broker(tmp_path, micropython):
    """The broker of this board does not run. Whoever asks the board over its serial port is told
    so, and which command starts a broker.
    """
    _, directories = rig.on_broker(tmp_path, 1, longest_pause_ms=500)
    with EmulatedFleet(micropython, directories) as fleet:
        (port,) = fleet.ports
        # Its connections are refused, and this goes on.
        wait_for(lambda: absent(port) == (A.REFUSED, True), SOON)
        text = rig.tern("board", "info", port).out

    assert REASONS[A.REFUSED][0] in text
    assert "tern broker run" in text


def told_of(place, expected, seconds):
    """What the host has said and the reasons that the board has told, once all is told as expected.

    After so many seconds: what has been told by then.
    """
    said, reasons = set(), set()

    def is_all_told():
        for name, words in SAYS.items():
            if place.told(words):
                said.add(name)
        if expected.board and not reasons & expected.board:
            with suppress(TernError):
                reason, _ = absent(place.port)
                reasons.add(reason)
        return said >= expected.host and (not expected.board or reasons & expected.board)

    with suppress(AssertionError):
        wait_for(is_all_told, seconds)
    return said, reasons - {NO_REASON}


@pytest.mark.sampled(4)
@pytest.mark.slow
@pytest.mark.parametrize("name", WAYS)
@pytest.mark.usefixtures("mosquitto")
def test_a_missing_board_is_told_with_its_reason_and_no_other(tmp_path, micropython, name):
    """WAYS lists the causes for which a board fails to appear on its message broker, such as a
    wrong password. For each, the host's messages and the reasons that the board itself tells at its
    serial port are exactly the listed ones, within 15 seconds: an owner who gets a wrong reason, or
    none, searches in the wrong place.
    """
    expected = WAYS[name]
    with ExitStack() as stack:
        place = Place(tmp_path, stack, micropython)
        expected.prepare(place)  # brings the failure about
        place.broker()  # starts what is not running yet
        place.start()
        place.serve()

        said, reasons = told_of(place, expected, seconds=3 * SOON)
        seconds = time.monotonic() - place.began

        assert said == expected.host, place.lines
        # By the board: at least one of the reasons that fit, if there are any, and no other.
        assert bool(reasons) == bool(expected.board)
        assert reasons <= expected.board
        assert seconds <= SOON


@pytest.mark.slow
def test_provision_waits_until_the_broker_hears_the_board_and_says_why_it_does_not(tmp_path):
    """`tern board provision` gives a board its key and the address of its broker. It ends well only after
    the board has logged in there: the same command fails without the broker, and succeeds with it.
    """
    port = free_port()
    # An emulated board reaches this computer under the second name.
    names = ("--host", "localhost", "--host", "10.0.2.2")
    rig.tern("broker", "config", "my-broker", "--port", port, *names, cwd=tmp_path, code=0)
    flash_image.fill("rv32", tmp_path / "flash.bin", software.library_files)
    with qemu.boot("rv32", tmp_path / "flash.bin") as board:
        options = ["--device", "8", "--data", "flights", "--broker", "my-broker", "--ssid", "air"]
        words = ("board", "provision", board.url, *options)
        unheard = rig.tern(*words, cwd=tmp_path, code=NO_DEVICE).err
        assert "its broker does not hear it" in unheard
        assert "tern broker run" in unheard
        with Mosquitto(tmp_path / "my-broker"):
            heard = rig.tern(*words, cwd=tmp_path, code=0).out
            assert "its broker hears it" in heard
