"""Rotation of the fleet's key: MicroPython boards on Mosquitto, and a host that serves them."""

import struct
import threading

import pytest
import rig
from framing import encoded
from harness.raw_client import RawClient, wait_for

from tern import frames, host_frames, storage, wire
from tern.links import mqtt
from ternhost.count.questions import Question
from ternhost.learn.schedule import Terms
from ternhost.privacy.mechanisms import design
from ternhost.provision import keys
from ternhost.reach.broker.driver import BrokerDriver
from ternhost.reach.broker.link import MqttLink
from ternhost.store.store import Store

CARD = design("three-outputs", 1).card
BOARDS, EACH = 3, 2
DEVICES = range(1, BOARDS * EACH + 1)
NAMES = [mqtt.name(first) for first in DEVICES[::EACH]]


class Link(MqttLink):
    """A link that keeps its requests to boards."""

    def __init__(self, access):
        super().__init__(access)
        self.sent = []  # (board, frame)
        self.announced = b""  # the last frame

    def announce(self, frame):
        self.announced = frame or self.announced
        super().announce(frame)

    def ask(self, board, frame):
        self.sent.append((board, frame))
        super().ask(board, frame)

    def brought(self):
        """The FLEET_KEYs sent to boards: board -> epochs."""
        epochs = {}
        for board, frame in self.sent:
            if frame[0] == wire.FLEET_KEY:
                epochs.setdefault(board, []).append(
                    struct.unpack_from(wire.FLEET_KEY_FIELDS, frame, 1)[1]
                )
        return epochs

    def alone(self):
        """The ROUNDs sent to single clients."""
        return [
            frame
            for _, frame in self.sent
            if frame[0] == wire.ROUND and not frames.is_for_fleet(frame)
        ]


class Fleet(rig.OnBroker):
    """Three boards of two clients on a broker, and drivers for them."""

    def __init__(self, directory, micropython):
        super().__init__(directory, micropython, BOARDS, len(DEVICES))
        self.question = Question(wire.LOGISTIC, [0] * (self.rows.shape[1] - 1), -14, CARD, 1)
        self.first = self.beside(keys.fleet_key).epoch

    def host(self, standing=True, warn=lambda message: None):
        """A driver for the store.

        Its patience is long, so that it asks no client alone for lack of time.
        """
        self.store = Store(self.path)
        self.link = Link(self.access)
        return BrokerDriver(
            self.store,
            self.link,
            Terms(deadline=60.0),
            standing=standing,
            patience=30.0,
            warn=warn,
        )

    def beside(self, change, *arguments):
        """Call `change(store, *arguments)` as another process would, beside the one that serves."""
        with Store(self.path, create=False, beside=True) as store:
            return change(store, *arguments)

    def epochs(self):
        """The epochs in the boards' files."""
        return [storage.read_fleet(str(board / storage.FLEET))[4] for board in self.directories]

    def wait_for_epochs(self, host, epochs):
        """Wait until the boards' files have these epochs, and the hellos of connected boards, too."""

        def arrived():
            host.wait(0.1)
            boards = self.link.presence.boards
            expected = {
                name: epoch for name, epoch in zip(NAMES, epochs, strict=True) if name in boards
            }
            announced = {name: boards[name].epoch for name in expected}
            return (
                self.epochs() == epochs and announced == expected and not self.link.presence.changed
            )

        wait_for(arrived)

    def round(self, host, number, devices=DEVICES):
        host.open(number, [(self.question, devices)])
        return host.collect(number, lambda progress: None).reports

    def announcement(self, key, number):
        question = wire.LOGISTIC, self.question.parameters, CARD, 1, -14
        return encoded(host_frames.encode_round, key, wire.FLEET, number, *question)


@pytest.fixture
def fleet(tmp_path, micropython):
    with Fleet(tmp_path, micropython) as running:
        yield running


@pytest.fixture
def raw(fleet):
    """An attacker with the host's password: writes whatever a host may write, and hears the boards."""
    clients = []

    def connect():
        client = RawClient(fleet.access, fleet.access.user, fleet.access.password)
        clients.append(client)
        assert client.subscribe("tern/up/+") == client.subscribe("tern/hello/+") == 1
        client.messages(60.0, BOARDS)  # their hellos
        return client

    yield connect
    for client in clients:
        client.close()


def next_hello(client, board):
    """Wait for the next HELLO of a board."""
    ((topic, payload),) = client.messages(60.0, 1)
    assert topic == f"tern/hello/{board}"
    return host_frames.Hello(payload[2:])


def test_a_round_completes_though_the_key_is_rotated_in_it(fleet):
    """One board is away when the round begins under the old key, and comes back under the new key."""
    late = fleet.emulated.boards[2]
    with fleet.host() as host:
        late.kill()
        wait_for(lambda: host.wait(0.1) or len(fleet.link.presence.boards) == BOARDS - 1)

        def rotate():
            new = fleet.beside(keys.rotate_fleet).epoch
            wait_for(lambda: fleet.epochs() == [new, new, fleet.first])
            late.start()

        rotating = threading.Timer(1.0, rotate)
        rotating.start()
        assert fleet.round(host, 1) == len(DEVICES)
        rotating.join()
        assert fleet.epochs() == [fleet.beside(keys.fleet_key).epoch] * BOARDS
        assert not fleet.link.alone()


def test_every_board_gets_a_rotated_key_once_and_answers_under_it(fleet):
    with fleet.host() as host:
        new = fleet.beside(keys.rotate_fleet)
        assert fleet.round(host, 1) == len(DEVICES)
        assert fleet.link.brought() == {name: [new.epoch] for name in NAMES}
        frames.verify(new.key, fleet.link.announced)
        assert not fleet.link.alone()


def test_boards_refuse_a_round_under_the_old_key(fleet, raw):
    old = fleet.beside(keys.fleet_key)
    with fleet.host() as host:
        fleet.beside(keys.rotate_fleet)
        assert fleet.round(host, 1) == len(DEVICES)
    fleet.store.close()
    client = raw()
    client.publish("tern/round", fleet.announcement(old.key, 2))
    answers = [data[2:] for topic, data in client.messages(60.0, BOARDS) if "/up/" in topic]
    refused = (wire.BOARD, 2, wire.ERR_DEVICE, wire.FLEET)
    assert [host_frames.decode_error(frame, b"") for frame in answers] == [refused] * BOARDS


def test_boards_that_were_away_get_the_newest_key_and_take_no_earlier_one(fleet, raw):
    away = fleet.emulated.boards[0]
    away.kill()
    with fleet.host() as host:
        wait_for(lambda: host.wait(0.1) or len(fleet.link.presence.boards) == BOARDS - 1)
        epochs = []
        for _ in range(2):
            epochs.append(fleet.beside(keys.rotate_fleet).epoch)
            fleet.wait_for_epochs(host, [fleet.first, epochs[-1], epochs[-1]])
        earlier = dict(fleet.link.sent[:2])
        assert set(earlier) == set(NAMES[1:])
        away.start()
        assert fleet.round(host, 1) == len(DEVICES)
        assert fleet.epochs() == [epochs[1]] * BOARDS
        assert fleet.link.brought() == {NAMES[0]: epochs[1:], NAMES[1]: epochs, NAMES[2]: epochs}
        assert not fleet.link.alone()
    fleet.store.close()
    client = raw()
    for board, frame in earlier.items():
        client.publish(f"tern/down/{board}", frame)
        answer = next_hello(client, board)
        assert [answer.nonce, answer.epoch] == epochs
    for board, frame in earlier.items():  # under another board's key
        wrong = NAMES[1] if board == NAMES[2] else NAMES[2]
        client.publish(f"tern/down/{wrong}", frame)
        ((topic, payload),) = client.messages(60.0, 1)
        assert topic == f"tern/up/{wrong}"
        assert host_frames.decode_error(payload[2:], b"")[2] == wire.ERR_DEVICE
    assert fleet.epochs() == [epochs[1]] * BOARDS
    with fleet.host() as host:
        assert fleet.round(host, 2) == len(DEVICES)
        assert not fleet.link.alone()
