"""Ways in which a board fails to appear on its broker: each is told with its reason within 15 s, at the host or by the
board, and no other reason is told. Real Mosquitto, emulated boards, and the command `tern serve`.
"""

import json
import shutil
import signal
import socket
import subprocess
import threading
import time
from contextlib import ExitStack, suppress
from datetime import datetime
from pathlib import Path

import pytest
import rig
from harness.raw_client import board_client, wait_for
from test_absence import AIR, absent, change

from tern import absence, wire
from tern import ledger as ledgers
from ternhost.errors import TernError
from ternhost.provision import keys
from ternhost.reach import certificates
from ternhost.reach.absence import REASONS
from ternhost.reach.broker import configuration
from ternhost.reach.broker.access import CONFIG, HOST, Access
from ternhost.reach.broker.broker_log import TEXTS
from ternhost.reach.broker.mosquitto import Mosquitto, free_port, listener, listens
from ternhost.store.store import Store
from terntools.boards import deploy
from terntools.emulators import flash_image, qemu
from terntools.emulators.unix_fleet import EmulatedFleet

SOON = 15.0  # seconds
_AIR_NETWORK = Path(__file__).with_name("air_network.py")

# What the host may say of a board, by a short name.
SAYS = {part: words.partition("{at} ")[2] for part, (words, _) in TEXTS["refused"].items()} | {
    "no password": "the broker does not have the password of its key",
    "no login": "no login at this broker",
    "ended": "its connection ended",
    "no hello": "connected, but its hello does not arrive",
    "shared": "several boards log in as",
    "no key": "this store has no key for device",
    "version": "its library is of another version",
    "site": "the broker of site lab is not connected",
    "store": "has no device yet",
    "no log": "the log of this broker is not on this machine",
    "down": "does not answer",
    "gone": "is gone; waiting for it",
    "expired": "certificate has expired",
    "not yet valid": "certificate is not yet valid",
    "no configuration": "make it: tern broker config",
    "budget": "their budget is spent",
}


class Place:
    """A provisioned board, its broker, and `tern serve`."""

    def __init__(self, folder, stack, micropython, tls=True, **network):
        self.folder, self.stack, self.micropython = folder, stack, micropython
        self.store, (self.board,) = rig.on_broker(
            folder, 1, [1000] * (rig.D + 1), tls, longest_pause_ms=500, **network
        )
        self.directory = folder / "broker"
        self.fleet = f"mqtt:{self.directory}"
        self.lines = []
        self.began = 0.0

    def broker(self):
        self.running = self.stack.enter_context(Mosquitto(self.directory))
        return self.running

    def boards(self, *directories):
        (emulated, *_) = self.stack.enter_context(
            EmulatedFleet(self.micropython, directories or [self.board])
        ).boards
        self.emulated = emulated
        return emulated

    def edit(self, name, *changes):
        text = (self.directory / name).read_text()
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        (self.directory / name).write_text(text)

    def serve(self):
        options = ("--store", self.store, "--fleet", self.fleet, "--dimension", rig.D, "--k", 1)
        options += ("--card", self.folder / "card", "--no-report", "--json")
        self.began = time.monotonic()
        serving = rig.Train(*options, cwd=self.folder, command="serve")
        readers = [
            threading.Thread(target=lambda stream=stream: self.lines.extend(stream))
            for stream in (serving.process.stdout, serving.process.stderr)
        ]

        def end():
            with suppress(ProcessLookupError):
                serving.process.send_signal(signal.SIGINT)
            serving.process.wait(60)
            for reader in readers:
                reader.join()

        for reader in readers:
            reader.start()
        self.stack.callback(end)

    def wait_for_hello(self):
        wait_for(lambda: not absent(self.emulated.port)[1], 30)


def same_store(place):
    return Store(place.store, create=False, beside=True)


def no_broker(place):
    place.boards()


def stopped_broker(place):
    running = place.broker()
    place.boards()
    place.wait_for_hello()
    place.serve()
    wait_for(lambda: any('"round"' in line for line in place.lines), 60)
    place.began = time.monotonic()
    running.kill()


def with_settings(**members):
    def way(place):
        change(place.board, **members)
        place.broker()
        place.boards()

    return way


def swallowed(place, answers=True):
    """A proxy that accepts connections and passes nothing on; without answers, nor accepts them."""
    server = place.stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
    if not answers:
        for _ in range(3):  # what the system accepts by itself
            client = place.stack.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(server.getsockname())
    change(place.board, port=server.getsockname()[1])
    place.broker()
    place.boards()


def not_configured(place):
    with same_store(place) as store:
        keys.rotate(store, [1])
        key = store.keys()[1]
    clients = bytearray((place.board / "clients.bin").read_bytes())
    clients[4:36] = key
    (place.board / "clients.bin").write_bytes(clients)
    place.broker()
    place.boards()


def rotated(place):
    with same_store(place) as store:
        keys.rotate(store, [1])
    configuration.configure(place.directory)
    place.broker()
    place.boards()


def revoked(place, configured=True):
    with same_store(place) as store:
        keys.revoke(store, [1])
    if configured:
        configuration.configure(place.directory)
    place.broker()
    place.boards()


def another_store(place):
    place.store = place.folder / "other.sqlite"
    with Store(place.store) as store:
        keys.add(store, [2])
    place.broker()
    place.boards()


def topic_refused(place):
    place.edit("access", ("pattern write tern/hello/%u\n", ""))
    place.broker()
    place.boards()


def two_of_one_name(place):
    shutil.copytree(place.board, place.folder / "twin")
    place.broker()
    place.boards(place.board, place.folder / "twin")


def other_authority(place):
    configuration.write_configuration(place.folder / "other", {}, port=1)
    shutil.copy(place.folder / "other" / "authority.der", place.board / "authority.der")
    place.broker()
    place.boards()


def certified(before=datetime(1970, 1, 1), after=datetime(2049, 12, 31)):
    def way(place):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(certificates, "_NOT_BEFORE", before)
            patched.setattr(certificates, "_NOT_AFTER", after)
            certificates.write_certificates(place.directory, ["localhost"])
        place.broker()
        place.boards()

    return way


def another_version(place):
    place.broker()
    with same_store(place) as store:
        client = board_client(Access.load(place.directory / HOST), store.keys(), 1)
    place.stack.callback(client.close)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(wire, "SCHEMA", bytes(len(wire.SCHEMA)))
        client.publish("tern/hello/00000001", rig.hello(1, 1), retain=True)


def spent_budget(place):
    (ledger,) = (place.board / "ledger").iterdir()
    ledger.unlink()
    ledgers.create(str(ledger), rig.COST - 1)
    place.broker()
    place.boards()


def power_cut(place):
    place.broker()
    board = place.boards()
    place.wait_for_hello()
    place.serve()
    wait_for(lambda: any('"round"' in line for line in place.lines), 60)
    place.began = time.monotonic()
    board.kill()


def crashed(place):
    (place.board / "crash.py").write_text("raise ValueError\n")
    place.broker()
    place.stack.enter_context(
        EmulatedFleet(place.micropython, [place.board], program=place.board / "crash.py")
    )


def wrong_directory(place):
    place.fleet = "mqtt:nowhere"


def full(place):
    place.edit(CONFIG, ("allow_anonymous", "max_connections 2\nallow_anonymous"))
    place.broker()
    place.serve()
    wait_for(lambda: place.lines, 60)
    for _ in range(2):
        place.stack.enter_context(socket.create_connection(listener(place.directory)))
    place.boards()


def site_down(place):
    site = configuration.add_site(place.directory, "lab", bridge=True, port=free_port())
    place.broker()
    with Mosquitto(place.directory / "sites" / "lab"):
        change(place.board, port=site.port)
        place.boards()
        place.wait_for_hello()


def unknown_log(place):
    command = [
        shutil.which("mosquitto", path="/usr/sbin:/usr/bin:/usr/local/sbin"),
        "-c",
        place.directory / CONFIG,
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    place.stack.callback(process.wait)
    place.stack.callback(process.terminate)
    wait_for(lambda: listens(*listener(place.directory)))


def empty_store(place):
    place.store = place.folder / "empty.sqlite"
    place.broker()


# Way -> how it comes about; what the host says, and the board; what may be said besides.
A = absence
WAYS = {
    "broker not started": (no_broker, {"down"}, {A.REFUSED}),
    "broker stopped": (stopped_broker, {"gone"}, {A.REFUSED, A.LOST}),
    "port closed": (with_settings(port=1), {"no login"}, {A.REFUSED}),
    "address silent": (lambda place: swallowed(place, answers=False), {"no login"}, {A.SILENT}),
    "firewall swallows": (swallowed, {"no login"}, {A.SILENT}),
    "name unknown": (with_settings(host="nobody.invalid"), {"no login"}, {A.NO_NAME}),
    "wrong password": (with_settings(password="0" * 32), {"not authorised", "no login"}, {A.CREDENTIALS}),
    "unknown user": (with_settings(user="0000abcd"), {"not authorised", "no login"}, {A.CREDENTIALS}),
    "broker not configured": (not_configured, {"no password", "not authorised"}, {A.CREDENTIALS}),
    "key rotated": (rotated, {"not authorised", "no login"}, {A.CREDENTIALS}),
    "revoked": (revoked, {"not authorised", "store"}, {A.CREDENTIALS}),
    "revoked, broker not configured": (lambda place: revoked(place, False), {"no key", "store"}, set()),
    "another store": (another_store, {"no key", "no password"}, set()),
    "topic refused": (topic_refused, {"no hello"}, set()),
    "other prefix": (with_settings(prefix="other"), {"no hello"}, set()),
    "two of one name": (two_of_one_name, {"shared"}, {A.LOST}),
    "plain at a port with TLS": (
        with_settings(authority=None), {"wrong version number", "no login"}, {A.CLOSED, A.NO_BROKER}),
    "other authority": (other_authority, {"alert unknown ca", "no login"}, {A.CERTIFICATE}),
    "other host name": (
        with_settings(server="other.local"), {"alert bad certificate", "no login"}, {A.CERTIFICATE}),
    "certificate expired": (certified(after=datetime(2020, 1, 1)), {"expired"}, {A.DATES}),
    "certificate not valid yet": (certified(before=datetime(2040, 1, 1)), {"not yet valid"}, {A.DATES}),
    "other version": (another_version, {"version"}, set()),
    "budget spent": (spent_budget, {"budget"}, set()),
    "power cut": (power_cut, {"ended"}, set()),
    "program crashed": (crashed, {"no login"}, set()),
    "wrong directory": (wrong_directory, {"no configuration"}, set()),
    "broker full": (full, {"max_connections", "no login"}, {A.CLOSED}),
    "site down": (site_down, {"site"}, {A.REFUSED, A.LOST}),
    "log elsewhere": (unknown_log, {"no log"}, set()),
    "store without devices": (empty_store, {"store"}, set()),
}  # fmt: skip
PLAIN = {
    "TLS at a plain port": (
        lambda place: (change(place.board, authority="authority.der"), other_authority(place)),
        {"protocol error", "no login"}, {A.CLOSED, A.NO_BROKER}),
}  # fmt: skip
WIRELESS = {
    "no Wi-Fi settings": ({}, {"ssid": None}, A.NO_SETTINGS),
    "other Wi-Fi name": ({}, {"ssid": "other"}, A.NO_NETWORK),
    "other Wi-Fi password": ({}, {"wifi_password": "y" * 8}, A.WIFI_KEY),
    "no lease": ({"lease": False}, {}, A.NO_LEASE),
    "name server silent": ({"name_server": "10.0.2.77"}, {"host": "broker.local"}, A.NAME_SILENT),
}


def told(place, host, board, wireless=None):
    """Wait until all that is wanted is told; assert that it took at most SOON, and that nothing else was told."""
    said, reasons = set(), set()

    def all_told():
        said.update(name for name, words in SAYS.items() if any(words in line for line in list(place.lines)))
        port = wireless or (getattr(place, "emulated", None) and place.emulated.port)
        if port and board and not reasons & board:
            with suppress(TernError):
                reasons.add(absent(port)[0])
        return said >= host and (not board or reasons & board)

    with suppress(AssertionError):
        wait_for(all_told, 4 * SOON)
    seconds = time.monotonic() - place.began
    assert said >= host, (said, place.lines)
    assert not board or reasons & board, (reasons, place.lines)
    assert said <= host, (said - host, place.lines)
    assert reasons <= board | {0}, {reason: REASONS.get(reason) for reason in reasons}
    assert seconds <= SOON, seconds
    return seconds, sorted(SAYS[name] for name in host) + [REASONS[reason][0] for reason in reasons if reason]


def report(record_property, way, seconds, words):
    record_property("way", way)
    print(f"ABSENT | {way} | {seconds:.1f} s | {'; '.join(words)}")


@pytest.mark.slow
@pytest.mark.parametrize("way", [*WAYS, *PLAIN])
def test_a_missing_board_is_told_with_its_reason(tmp_path, micropython, way, record_property):
    begin, host, board = {**WAYS, **PLAIN}[way]
    with ExitStack() as stack:
        place = Place(tmp_path, stack, micropython, tls=way not in PLAIN)
        begin(place)
        if not place.began:
            place.serve()
        report(record_property, way, *told(place, host, board))


@pytest.mark.slow
@pytest.mark.parametrize("way", WIRELESS)
def test_a_board_without_a_way_to_its_broker_is_told_with_its_reason(
    tmp_path, micropython, way, record_property
):
    air, members, reason = WIRELESS[way]
    with ExitStack() as stack:
        place = Place(tmp_path, stack, micropython, **rig.WIFI, wifi_password=AIR["key"])
        change(place.board, **members)
        files = {"/network.py": _AIR_NETWORK.read_bytes(), **rig.files_below(place.board)}
        flash_image.fill(
            "rv32", tmp_path / "flash.bin", lambda machine: deploy.library_files(machine, whole=True)
        )
        flash_image.add(tmp_path / "flash.bin", {**files, "/air.json": json.dumps({**AIR, **air}).encode()})
        place.broker()
        board = stack.enter_context(qemu.boot("rv32", tmp_path / "flash.bin"))
        place.serve()
        report(record_property, way, *told(place, {"no login"}, {reason}, board.url))
