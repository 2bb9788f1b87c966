"""The driver of a fleet on a broker, without one: the boards of these tests answer at once."""

import asyncio
import struct
import threading
import time
from contextlib import contextmanager

import pytest
from framing import hello
from spec import answers

from tern import card as cards
from tern import frames, wire
from tern.links.mqtt import name
from tern.model import decode_model
from ternhost.count.questions import Averaged, Question, round_body, round_start
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
COST = cards.decode(CARD.card).epsilon
OTHER = Question(wire.LOGISTIC, [200] * 6, -14, CARD.card, 1)
LATER = 2**31  # than the epoch of any fleet key that a host makes before 2088


class Boards(MqttLink):
    """A link to connected boards of `each` clients, which answer without a broker.

    retained: their HELLOs were.
    """

    def __init__(self, devices, each=1, too_soon=0, retained=False):
        super().__init__(Access("nowhere", 1, "host", "", None))
        self._each = each
        self._retained = retained
        self._first = range(1, devices + 1, each)
        self.announced, self.asked = [], 0
        self.most = 0  # requests at once to one board
        self._open, self._too_soon, self.refused = {}, too_soon, {}
        self.models = []

    async def connect(self, patience=0.0):
        self.connected = True
        self.on_connect()
        for first in self._first:
            self.say_hello(name(first), hello(first, self._each, LATER), self._retained)
        self.subscribed.set()

    async def close(self):
        self.connected = False

    def announce(self, frame):
        self.announced.append(frame)
        if frame:
            for first in self._first:
                for device in range(first, first + self._each):
                    self._report(device, frame)

    def hand_out(self, frame):
        self.models.append(frame)

    def ask(self, board, frame):
        self.asked += 1
        self._open[board] = self._open.get(board, 0) + 1
        self.most = max(self.most, self._open[board])
        asyncio.get_running_loop().call_later(0.002, self._answer, board, frame)

    def _answer(self, board, frame):
        self._open[board] -= 1
        device, number = frames.address(frame)
        if self._too_soon and device not in self.refused:
            self.refused[device] = time.monotonic()
            digest = answers.question(KEY, device, frame[5:-8])
            self._hear(
                board, answers.error(digest, device, number, wire.ERR_TOO_SOON, self._too_soon)
            )
        else:
            self._report(device, frame)

    def _report(self, device, frame):
        digest = answers.question(KEY, device, frame[5:-8])
        self._hear(name(device), answers.report(digest, device, frames.address(frame)[1], b"\0"))

    def _hear(self, board, frame):
        self.receive(f"tern/up/{board}", frame)

    def say_hello(self, board, frame, retained=False):
        self.receive(f"tern/hello/{board}", frame, retained)


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


def test_the_time_of_a_round_grows_with_its_devices_and_no_faster(tmp_path):
    """Boards of one client each, in two cohorts, so that the driver asks each by itself."""

    def seconds(devices):
        best = float("inf")
        with driver(tmp_path, Boards(devices), devices) as broker_driver:
            half = devices // 2
            for number in (1, 2):
                start = time.process_time()
                cohorts = (QUESTION, range(1, half + 1)), (OTHER, range(half + 1, devices + 1))
                result = ask(broker_driver, number, *cohorts)
                best = min(best, time.process_time() - start)
                assert result.reports == devices
        return best

    few, many = seconds(2_000), seconds(16_000)
    assert many < 20 * few, (few, many)  # 64 times as long, if it were quadratic


def test_a_round_is_announced_and_withdrawn_only_where_it_is_for_all_devices(tmp_path):
    link = Boards(100)
    with driver(tmp_path, link, 100) as broker_driver:
        assert ask(broker_driver, 1, (QUESTION, range(1, 101))).reports == 100
        assert link.announced[0] == b"", "an announcement of an earlier run is withdrawn"
        assert [bool(frame) for frame in link.announced[1:]] == [True, False]
        assert link.asked == 0
        assert ask(broker_driver, 2, (QUESTION, range(1, 100))).reports == 99
    assert not any(link.announced[3:])
    assert link.asked == 99


def rows(directory, devices):
    """What observers read about the boards."""
    with Store(directory / f"{devices}.sqlite", create=False, beside=True) as store:
        return store.boards()


def test_observers_see_the_boards_and_their_hellos(tmp_path):
    with driver(tmp_path, Boards(30, each=3), 30):
        seen = rows(tmp_path, 30)
    expected = [(name(first), first, 3, True) for first in range(1, 31, 3)]
    assert [(row.name, row.first, row.clients, row.online) for row in seen] == expected
    assert {row.hello["text"] for row in seen} == {"test"}


def test_observers_see_that_a_board_is_gone(tmp_path):
    link = Boards(30, each=3)
    with driver(tmp_path, link, 30) as broker_driver:
        link.say_hello(name(4), b"")
        broker_driver.wait(0.7)
        assert [row.first for row in rows(tmp_path, 30) if not row.online] == [4]


def test_observers_see_what_boards_have_spent_after_the_host_has_ended(tmp_path):
    with driver(tmp_path, Boards(30, each=3), 30) as broker_driver:
        ask(broker_driver, 1, (QUESTION, range(1, 31)))
    assert [row.spent for row in rows(tmp_path, 30)] == 10 * [COST]
    assert not any(row.online for row in rows(tmp_path, 30))


def test_a_retained_hello_is_from_before_the_rounds_of_an_earlier_host(tmp_path):
    """No board has connected again, so what it has spent since adds up."""
    for number, retained in ((1, False), (2, True)):
        with driver(tmp_path, Boards(9, each=3, retained=retained), 9) as broker_driver:
            ask(broker_driver, number, (QUESTION, [1, 2, 7]))
    spent = {row.first: row.spent for row in rows(tmp_path, 9)}
    assert spent == {1: 2 * COST, 4: 0, 7: 2 * COST}


def test_a_board_of_many_clients_gets_requests_as_fast_as_it_answers(tmp_path):
    link = Boards(1_000, each=500)
    with driver(tmp_path, link, 1_000) as broker_driver:
        assert ask(broker_driver, 1, (QUESTION, range(1, 1_000))).reports == 999
    assert link.asked == 999, "no device is asked again"
    assert link.most <= 64


def test_devices_that_must_pause_are_asked_again_after_their_pause(tmp_path):
    link = Boards(10, each=5, too_soon=2)
    with driver(tmp_path, link, 10, terms=Terms(deadline=60.0, silence=0.5)) as broker_driver:
        result = ask(broker_driver, 1, (QUESTION, range(1, 10)))
    assert result.reports == 9
    assert link.asked == 18, "each twice"
    assert all(time.monotonic() - when >= 2 for when in link.refused.values())


def test_a_board_that_claims_all_devices_slows_nothing_down(tmp_path):
    link = Boards(50, each=5)
    with driver(tmp_path, link, 50) as broker_driver:
        link.say_hello("00000001", hello(1, 0xFFFF_FF00, LATER))
        broker_driver.wait(0.6)
        assert ask(broker_driver, 1, (QUESTION, range(1, 50))).reports == 49
        assert len(broker_driver.devices) == 50
    assert link.asked <= 2 * 49


def test_reports_before_the_first_round_count_as_late(tmp_path):
    link = Boards(3)
    with driver(tmp_path, link, 3) as broker_driver:
        link._report(1, round_start(1) + round_body(7, QUESTION) + bytes(8))
        broker_driver.wait(0.2)
        assert broker_driver.aggregator.statistics.late == 1
        assert ask(broker_driver, 8, (QUESTION, [1, 2, 3])).reports == 3


def test_a_device_that_calls_every_frame_damaged_is_asked_only_a_few_times(tmp_path):
    class Deaf(Boards):
        def _answer(self, board, frame):
            device, number = frames.address(frame)
            digest = answers.question(KEY, device, frame[5:-8])
            self._hear(board, answers.error(digest, device, number, wire.ERR_FRAME))

    link = Deaf(2)
    with driver(tmp_path, link, 2, terms=Terms(deadline=4.0)) as broker_driver:
        assert ask(broker_driver, 1, (QUESTION, [1])).reports == 0
    assert 2 <= link.asked <= 8


def test_a_run_without_a_connected_board_is_refused(tmp_path):
    link = Boards(0)
    with (
        pytest.raises(DeviceError, match="no board of this store's devices is connected"),
        driver(tmp_path, link, 3),
    ):
        pass


def test_a_driver_can_be_stopped_from_another_thread_and_after_its_end(tmp_path):
    link = Boards(3)
    link._first = range(1, 3)  # the third never answers
    with driver(tmp_path, link, 3) as broker_driver:
        threading.Timer(0.3, broker_driver.stop).start()
        assert ask(broker_driver, 1, (QUESTION, [1, 2, 3])) is None, (
            "it has neither ended nor expired"
        )
        assert broker_driver.collect(1) is None
    broker_driver.stop()  # after its end


class Locked(Boards):
    """Boards with a fleet key of `epoch`, which take a new one after `delay` seconds if `takes` is
    true.
    """

    def __init__(self, devices, each=1, epoch=1, takes=True, delay=0.0):
        super().__init__(devices, each)
        self._delay, self._takes, self._start_epoch = delay, takes, epoch
        self.epochs = {}  # of boards with another epoch, by first client
        self.keys = {}  # by board
        self.brought = []  # (board, epoch)
        self.alone = 0  # requests under a client's own key

    async def connect(self, patience=0.0):
        await super().connect(patience)
        for first in self._first:
            epoch = self.epochs.get(first, self._start_epoch)
            self.say_hello(name(first), hello(first, self._each, epoch))

    def announce(self, frame):
        self.announced.append(frame)
        for first in self._first if frame else ():
            self._hear_announced(name(first), frame)

    def ask(self, board, frame):
        if frame[0] == wire.FLEET_KEY:
            asyncio.get_running_loop().call_later(self._delay, self._on_fleet_key, board, frame)
        elif frames.is_for_fleet(frame):
            self._hear_announced(board, frame)
        else:
            self.alone += 1
            self._report(frames.address(frame)[0], frame)

    def _on_fleet_key(self, board, frame):
        _, first, epoch, hidden = struct.unpack_from("<BII32s", frame)
        assert (board, frame[41:]) == (name(first), frames.tag(KEY, frame[:41]))
        self.brought.append((board, epoch))
        if self._takes:
            self.keys[board] = frames.mask_fleet_key(KEY, epoch, hidden)
        announced = epoch if self._takes else self._start_epoch
        self.say_hello(board, hello(first, self._each, announced, nonce=epoch))

    def _hear_announced(self, board, frame):
        first = int(board, 16)
        if frame[-8:] == frames.tag(self.keys.get(board, b""), frame[:-8]):
            for device in range(first, first + self._each):
                self._report(device, frame)
        else:
            error = answers.board_error(frames.address(frame)[1], wire.ERR_DEVICE, wire.FLEET)
            self._hear(board, error)


@pytest.mark.parametrize("delay", [0.0, 1.0])
def test_boards_with_an_earlier_fleet_key_get_the_new_one(tmp_path, delay):
    """Even if the announcement reaches them before the key."""
    link = Locked(100, each=50, delay=delay)
    with driver(tmp_path, link, 100, rotations=1, patience=20.0) as broker_driver:
        assert ask(broker_driver, 1, (QUESTION, range(1, 101))).reports == 100
        assert ask(broker_driver, 2, (QUESTION, range(1, 101))).reports == 100
        new = broker_driver.fleet.key.epoch
    assert sorted(link.brought) == [(name(1), new), (name(51), new)], "once each"
    assert link.alone == 0


@pytest.mark.sampled(2)
@pytest.mark.parametrize("epoch", [1, 0, 2**32 - 1, LATER])
def test_boards_without_the_new_fleet_key_are_asked_under_their_clients_keys(tmp_path, epoch):
    """They get the key once if theirs is earlier; they have more clients than are asked at once."""
    link = Locked(200, each=100, epoch=epoch, takes=False)
    with driver(tmp_path, link, 200, rotations=1, patience=0.3) as broker_driver:
        broker_driver.wait(2.0)
        assert ask(broker_driver, 1, (QUESTION, range(1, 201))).reports == 200
        new = broker_driver.fleet.key.epoch
    assert sorted(link.brought) == ([(name(1), new), (name(101), new)] if epoch < 2 else [])
    assert link.alone >= 200


def test_one_warning_counts_the_boards_with_a_later_fleet_key(tmp_path):
    """It counts neither boards with an earlier key nor those of --own-key-only, whose epoch is the
    last.
    """
    warnings, link = [], Locked(900, each=100, epoch=LATER)
    link.epochs = {701: 1, 801: 2**32 - 1}
    with driver(
        tmp_path, link, 900, rotations=1, patience=0.3, warn=warnings.append
    ) as broker_driver:
        for frame in (b"", hello(1, 100, LATER)):
            link.say_hello(name(1), frame)
            broker_driver.wait(1.0)
    (message,) = [message for message in warnings if "later fleet key" in message]
    assert message.startswith("a later fleet key than this store's is on 7 boards")


def verified(broker_driver, frame):
    """Check a MODEL with the current fleet key; return its round and its parameters."""
    _, number, *_, parameters = decode_model(frame, broker_driver.fleet.key.key)
    return number, parameters.tolist()


def test_a_model_is_published_under_the_current_fleet_key(tmp_path):
    """Even if another process replaces the key while a host serves, or while none does."""

    def rotate():
        with Store(tmp_path / "3.sqlite", create=False, beside=True) as store:
            fleet_key.rotate_fleet(store)

    link = Boards(3)
    with driver(tmp_path, link, 3) as broker_driver:
        assert link.models == [b""], (
            "no model of another store or an earlier key is left with the broker"
        )
        ask(broker_driver, 1, (QUESTION, [1, 2, 3]))
        broker_driver.publish(Averaged(wire.LOGISTIC, [5, -6], -14))
        assert verified(broker_driver, link.models[1]) == (1, [5, -6])
        rotate()
        broker_driver.wait(1.0)
        assert verified(broker_driver, link.models[2]) == (1, [5, -6])
        assert link.models[1][:-8] == link.models[2][:-8]
    rotate()
    later = Boards(3)
    with driver(tmp_path, later, 3) as broker_driver:
        assert verified(broker_driver, later.models[0]) == (1, [5, -6])
    assert len({frame[-8:] for frame in (*link.models[1:], *later.models)}) == 3
