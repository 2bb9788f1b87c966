"""The driver of a fleet on a broker, without one: the boards of these tests answer at once."""

import asyncio
import struct
import threading
import time
from collections import Counter
from contextlib import contextmanager

import pytest
from framing import hello
from spec import answers

from tern import frames, wire
from tern.links.mqtt import name
from tern.model import decode_model
from ternhost.count.questions import Averaged, Question
from ternhost.errors import DeviceError
from ternhost.learn.schedule import Terms
from ternhost.privacy.mechanisms import design
from ternhost.reach.broker.access import Access
from ternhost.reach.broker.driver import BrokerDriver
from ternhost.reach.broker.link import MqttLink
from ternhost.store import fleet_key
from ternhost.store.store import Store

KEY = bytes(range(32))
CARD = design("three-outputs", 1)
QUESTION = Question(wire.LOGISTIC, [100] * 6, -14, CARD.card, 1)
LATER = 2**31  # than the epoch of any fleet key that a host makes before 2088


class Boards(MqttLink):
    """A link to boards of `each` clients, which answer at once.

    too_soon: seconds that each client asks the host to wait, at its first request.
    """

    def __init__(self, devices, each=1, too_soon=0):
        super().__init__(Access("nowhere", 1, "host", "", None))
        self._each, self._too_soon = each, too_soon
        self._first = range(1, devices + 1, each)  # client of each board
        self.announced, self.models, self.limits = [], [], []
        self.asked = 0  # requests to single devices
        self.most_at_once = 0  # of these, to one board
        self._unanswered = Counter()  # by board
        self.paused = {}  # device -> time of its request to wait

    async def connect(self, patience=0.0):
        self.connected = True
        self.on_connect()
        for first in self._first:
            self.say_hello(name(first), hello(first, self._each, LATER))
        self.subscribed.set()

    async def close(self):
        self.connected = False

    def announce(self, frame):
        self.announced.append(frame)
        if frame:
            for first in self._first:
                for device in range(first, first + self._each):
                    self.report(device, frame)

    def retain_model(self, frame):
        self.models.append(frame)

    def retain_limits(self, frame):
        self.limits.append(frame)

    def ask(self, board, frame):
        self.asked += 1
        self._unanswered[board] += 1
        self.most_at_once = max(self.most_at_once, self._unanswered[board])
        asyncio.get_running_loop().call_later(0.002, self._answer, board, frame)
        return True

    def _answer(self, board, frame):
        self._unanswered[board] -= 1
        device = frames.address(frame)[0]
        if self._too_soon and device not in self.paused:
            self.paused[device] = time.monotonic()
            self.refuse(board, frame, wire.ERR_TOO_SOON, self._too_soon)
        else:
            self.report(device, frame)

    def refuse(self, board, frame, *error):
        device, number = frames.address(frame)
        digest = answers.question(KEY, device, frame[5:-8])
        self.hear(board, answers.error(digest, device, number, *error))

    def report(self, device, frame):
        digest = answers.question(KEY, device, frame[5:-8])
        number = frames.address(frame)[1]
        self.hear(name(device), answers.report(digest, device, number, b"\0"))

    def hear(self, board, frame):
        self.receive(f"tern/up/{board}", frame)

    def say_hello(self, board, frame):
        self.receive(f"tern/hello/{board}", frame)


@contextmanager
def driver(directory, link, devices, rotations=0, **options):
    """A driver of devices with one key, in a store whose fleet key was rotated so often."""
    options.setdefault("terms", Terms(deadline=60.0))
    with Store(directory / f"{devices}.sqlite") as store:
        store.add_devices(dict.fromkeys(range(1, devices + 1), KEY))
        for _ in range(rotations):
            fleet_key.rotate_fleet(store)
        with BrokerDriver(store, link, **options) as broker_driver:
            yield broker_driver


def ask(broker_driver, number, *cohorts):
    broker_driver.open(number, cohorts)
    return broker_driver.collect(number)


def test_a_round_for_all_devices_is_announced_and_then_withdrawn(tmp_path):
    """A question to every device is one message that the broker keeps for all boards, not a request
    to each. At its end it is withdrawn by an empty one, so that nobody answers late.
    """
    link = Boards(100)
    with driver(tmp_path, link, 100) as broker_driver:
        assert link.announced == [b""], "an announcement of an earlier run is withdrawn"
        assert ask(broker_driver, 1, (QUESTION, range(1, 101))).reports == 100
        _, announcement, withdrawal = link.announced
        assert announcement
        assert not withdrawal
    assert link.asked == 0, "no single device"


def test_a_board_of_many_clients_gets_requests_as_fast_as_it_answers(tmp_path):
    """One device of 1,000 is not asked, so each of the others gets a request of its own. A board of
    500 devices never has more than 64 unanswered ones, which it could lose.
    """
    link = Boards(1_000, each=500)
    with driver(tmp_path, link, 1_000) as broker_driver:
        assert ask(broker_driver, 1, (QUESTION, range(1, 1_000))).reports == 999
    assert link.asked == 999, "no device is asked again"
    assert link.most_at_once <= 64


def test_devices_that_must_pause_are_asked_again_after_their_pause(tmp_path):
    """Each device answers its first request by asking the host to come again in two seconds, which
    is longer than the host waits for silent devices. Each is asked once more, not before its pause
    is over, and then reports.
    """
    pause = 2
    link = Boards(10, each=5, too_soon=pause)
    with driver(tmp_path, link, 10, terms=Terms(deadline=60.0, silence=0.5)) as broker_driver:
        assert ask(broker_driver, 1, (QUESTION, range(1, 10))).reports == 9
    assert link.asked == 2 * 9
    assert all(time.monotonic() - when >= pause for when in link.paused.values())


def test_a_board_that_claims_all_devices_slows_nothing_down(tmp_path):
    """A board says hello with its first device and the number of its devices. One that claims
    nearly all of the 2**32 possible ids must not make the host ask for them, nor take the 50 real
    devices from the boards that have them.
    """
    link = Boards(50, each=5)
    with driver(tmp_path, link, 50) as broker_driver:
        nearly_all_ids = 0xFFFF_FF00
        link.say_hello("00000001", hello(1, nearly_all_ids, LATER))
        broker_driver.wait(0.6)
        devices = range(1, 50)  # not all 50: so each is asked by itself

        assert ask(broker_driver, 1, (QUESTION, devices)).reports == len(devices)
        assert len(broker_driver.devices) == 50
    assert link.asked <= 2 * len(devices), "hardly any request was repeated"


def test_a_run_without_a_connected_board_is_refused(tmp_path):
    link = Boards(0)
    with (
        pytest.raises(DeviceError, match="no board of this store's devices is connected"),
        driver(tmp_path, link, 3),
    ):
        pass


def test_a_driver_can_be_stopped_from_another_thread(tmp_path):
    """As when a user's program gives up. A round that is under way then has no result."""
    with driver(tmp_path, Boards(2), 3) as broker_driver:  # the third never answers
        threading.Timer(0.3, broker_driver.stop).start()
        result = ask(broker_driver, 1, (QUESTION, [1, 2, 3]))
        assert result is None, "the round has neither ended nor expired"
    broker_driver.stop()  # after its end


class Locked(Boards):
    """Boards with a fleet key of another epoch, which refuse the host's new one."""

    def __init__(self, devices, each, epoch):
        super().__init__(devices, each)
        self._epoch = epoch
        self.keys_sent = []  # (board, epoch) of the keys that the host sent
        self.asked_alone = 0  # requests under a client's own key

    async def connect(self, patience=0.0):
        await super().connect(patience)
        for first in self._first:
            self.say_hello(name(first), hello(first, self._each, self._epoch))

    def announce(self, frame):
        if frame:
            for first in self._first:
                self._refuse_fleet(name(first), frame)

    def ask(self, board, frame):
        if frame[0] == wire.FLEET_KEY:
            _, first, epoch = struct.unpack_from("<BII", frame)
            self.keys_sent.append((board, epoch))
            self.say_hello(board, hello(first, self._each, self._epoch, nonce=epoch))
        elif frames.is_for_fleet(frame):
            self._refuse_fleet(board, frame)
        else:
            self.asked_alone += 1
            self.report(frames.address(frame)[0], frame)
        return True

    def _refuse_fleet(self, board, frame):
        number = frames.address(frame)[1]
        self.hear(board, answers.board_error(number, wire.ERR_DEVICE, wire.FLEET))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("epoch", "gets_the_key"),
    [(1, True), (0, True), (2**32 - 1, False), (LATER, False)],
    ids=["earlier key", "no key", "key for ever", "later key"],
)
def test_boards_without_the_new_fleet_key_are_asked_under_their_clients_keys(
    tmp_path, epoch, gets_the_key
):
    """Questions to all devices are sealed with a key of the fleet, and its epoch says which key is
    newer. The boards refuse the host's new key. The host sends it once to those whose own key is
    older, and asks every client under the client's own key meanwhile: no report is lost.
    """
    # Two boards, each of more clients than are asked at once.
    link = Locked(200, each=100, epoch=epoch)
    with driver(tmp_path, link, 200, rotations=1, patience=0.3) as broker_driver:
        broker_driver.wait(2.0)
        assert ask(broker_driver, 1, (QUESTION, range(1, 201))).reports == 200
        new_epoch = broker_driver.fleet.key.epoch

    once_each = [(name(1), new_epoch), (name(101), new_epoch)]
    assert sorted(link.keys_sent) == (once_each if gets_the_key else [])
    assert link.asked_alone >= 200


def verified(broker_driver, frame):
    """Check a MODEL with the current fleet key; return its round and its parameters."""
    _, number, *_, parameters = decode_model(frame, broker_driver.fleet.key.key)
    return number, parameters.tolist()


def rotate(directory):
    """Replace the fleet key, as another process does beside the host."""
    with Store(directory / "3.sqlite", create=False, beside=True) as store:
        fleet_key.rotate_fleet(store)


PUBLISHED = Averaged(wire.LOGISTIC, [5, -6], -14)
PUBLISHED_LIMITS = Averaged(wire.LIMITS, [wire.NO_LIMIT, 700], wire.LIMITS_EXPONENT)


def test_a_model_is_published_again_when_the_fleet_key_is_rotated(tmp_path):
    """The broker keeps the last model, sealed with the key of the fleet. Once this key is replaced,
    boards could not verify that copy: the host publishes the same model again under the new key.
    """
    link = Boards(3)
    with driver(tmp_path, link, 3) as broker_driver:
        ask(broker_driver, 1, (QUESTION, [1, 2, 3]))
        broker_driver.publish(PUBLISHED)

        rotate(tmp_path)
        broker_driver.wait(1.0)

        # `verified` checks the model with the key that is now the fleet's.
        assert verified(broker_driver, link.models[-1]) == (1, PUBLISHED.parameters)


def test_limits_are_retained_beside_the_model_under_the_present_fleet_key(tmp_path):
    link = Boards(3)
    with driver(tmp_path, link, 3) as broker_driver:
        ask(broker_driver, 1, (QUESTION, [1, 2, 3]))
        broker_driver.publish(PUBLISHED)
        broker_driver.publish(PUBLISHED_LIMITS)

        rotate(tmp_path)
        broker_driver.wait(1.0)

        assert verified(broker_driver, link.models[-1]) == (1, PUBLISHED.parameters)
        assert verified(broker_driver, link.limits[-1]) == (1, PUBLISHED_LIMITS.parameters)
