"""Rotation of the fleet's key: MicroPython boards on Mosquitto, and a host that serves them."""

import threading

import pytest
import rig
from framing import encoded
from harness.raw_client import RawClient
from harness.waiting import wait_for

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
PACKET_NUMBER_BYTES = 2  # with which a payload at QoS 1 begins


class Link(MqttLink):
    """A link that keeps its requests to boards."""

    def __init__(self, access):
        super().__init__(access)
        self.sent = []  # (board, frame)

    def ask(self, board, frame):
        self.sent.append((board, frame))
        return super().ask(board, frame)

    def has_asked_single_clients(self):
        """Whether a ROUND was sent under the key of one client."""
        rounds = [frame for _, frame in self.sent if frame[0] == wire.ROUND]
        return not all(map(frames.is_for_fleet, rounds))


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
        epochs = []
        for board in self.directories:
            *_, epoch = storage.read_fleet(str(board / storage.FLEET))[:5]
            epochs.append(epoch)
        return epochs

    def wait_for_epochs(self, host, epochs):
        """Wait until the boards' files have these epochs, and the hellos of connected boards, too."""

        def have_arrived():
            host.wait(0.1)
            boards = self.link.presence.boards
            for name, epoch in zip(NAMES, epochs, strict=True):
                if name in boards and boards[name].epoch != epoch:
                    return False
            return self.epochs() == epochs and not self.link.presence.changed

        wait_for(have_arrived)

    def wait_for_boards(self, host, count):
        """Have a host wait until so many boards are connected."""

        def are_connected():
            host.wait(0.1)
            return len(self.link.presence.boards) == count

        wait_for(are_connected)

    def rotate(self):
        """Rotate the fleet's key beside the host; return the new epoch."""
        return self.beside(keys.rotate_fleet).epoch

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
    return host_frames.Hello(payload[PACKET_NUMBER_BYTES:])


def test_a_round_completes_though_the_key_is_rotated_in_it(fleet):
    """The boards of a fleet share a key, under which they are asked all at once. One board is away
    when a round begins under the old key, and comes back after the key was replaced. It gets the
    new key, and all devices report, none of them asked by itself.
    """
    *_, late_board = fleet.emulated.boards
    with fleet.host() as host:
        late_board.kill()
        fleet.wait_for_boards(host, BOARDS - 1)

        def rotate_and_start_the_late_board():
            new_epoch = fleet.rotate()
            wait_for(lambda: fleet.epochs() == [new_epoch, new_epoch, fleet.first])
            late_board.start()

        beside_the_round = threading.Timer(1.0, rotate_and_start_the_late_board)
        beside_the_round.start()
        reports = fleet.round(host, 1)
        beside_the_round.join()

        assert reports == len(DEVICES)
        assert fleet.epochs() == [fleet.beside(keys.fleet_key).epoch] * BOARDS
        assert not fleet.link.has_asked_single_clients()


def test_boards_refuse_a_round_under_the_old_key(fleet, raw):
    """An attacker knows a fleet key that has been replaced, as from a stolen board. No board
    answers a round that he announces under it with a report: all refuse it.
    """
    old = fleet.beside(keys.fleet_key)
    with fleet.host() as host:
        fleet.rotate()
        assert fleet.round(host, 1) == len(DEVICES)
    fleet.store.close()

    attacker = raw()
    attacker.publish("tern/round", fleet.announcement(old.key, number=2))

    refused = (wire.BOARD, 2, wire.ERR_DEVICE, wire.FLEET)  # by the board, round, code, detail
    answers = attacker.messages(60.0, BOARDS)
    assert len(answers) == BOARDS
    for topic, payload in answers:
        frame = payload[PACKET_NUMBER_BYTES:]
        assert topic.startswith("tern/up/")
        assert host_frames.decode_error(frame, b"") == refused


@pytest.fixture
def replaced(fleet):
    """The epochs and the frames (by board) of a key that boards have got, and of the key after it."""
    epochs, frames_by_epoch = [], []
    with fleet.host() as host:
        fleet.wait_for_boards(host, BOARDS)
        for _ in range(2):
            fleet.link.sent.clear()
            epochs.append(fleet.rotate())
            fleet.wait_for_epochs(host, epochs[-1:] * BOARDS)
            frames_by_epoch.append(dict(fleet.link.sent))
    fleet.store.close()
    return epochs, frames_by_epoch


def test_boards_take_no_earlier_key(fleet, replaced, raw):
    """Each fleet key has an epoch, which grows. An attacker sends the boards the frames again by
    which they once got an earlier key. They answer with a HELLO that repeats the epoch of that
    frame as its nonce, and names the newer one that they keep.
    """
    (earlier, newest), (earlier_frames, _) = replaced
    attacker = raw()

    for board, frame in earlier_frames.items():
        attacker.publish(f"tern/down/{board}", frame)
        answer = next_hello(attacker, board)
        assert answer.nonce == earlier, "it answers this frame"
        assert answer.epoch == newest

    assert fleet.epochs() == [newest] * BOARDS


def test_boards_take_no_key_that_was_sealed_for_another_board(fleet, replaced, raw):
    """A fleet key is sent to each board sealed under a key of its own. The frame of one board is
    sent to another one: that refuses it, and keeps the key that it has.
    """
    (_, newest), (_, frames_by_board) = replaced
    board, other_board, *_ = NAMES
    attacker = raw()

    attacker.publish(f"tern/down/{other_board}", frames_by_board[board])

    ((topic, payload),) = attacker.messages(60.0, 1)
    _, _, code, _ = host_frames.decode_error(payload[PACKET_NUMBER_BYTES:], b"")
    assert topic == f"tern/up/{other_board}"
    assert code == wire.ERR_DEVICE
    assert fleet.epochs() == [newest] * BOARDS
