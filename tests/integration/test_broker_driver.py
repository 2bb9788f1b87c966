"""The driver of a fleet on a broker, where its load counts: no broker, and boards that answer at once."""

import asyncio
import struct
import threading
import time

import pytest
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


def hello(first, clients, epoch=LATER, nonce=0):
    """What a board of so many clients says when it connects."""
    out = bytearray(200)
    return bytes(out[: frames.encode_hello(out, nonce, first, clients, 0, epoch, 0, 0, 0, 0, 1, 0, "test")])


class Boards(MqttLink):
    """Boards of `each` clients that are connected; `claims` by others (name -> first, clients)."""

    def __init__(self, devices, each=1, too_soon=0):
        super().__init__(Access("nowhere", 1, "host", "", None))
        self._each = each
        self._first = range(1, devices + 1, each)
        self.announced = []
        self.asked = 0
        self.most = 0  # requests that a board had at once
        self._open = {}
        self._too_soon = too_soon
        self.refused = {}
        self.models = []

    async def connect(self, patience=0.0):
        self.connected = True
        self.on_connect()
        for first in self._first:
            self._on_hello(name(first), hello(first, self._each))
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
            self._hear(board, answers.error(digest, device, number, wire.ERR_TOO_SOON, self._too_soon))
        else:
            self._report(device, frame)

    def _report(self, device, frame):
        digest = answers.question(KEY, device, frame[5:-8])
        self._hear(name(device), answers.report(digest, device, frames.address(frame)[1], b"\0"))

    def _hear(self, board, frame):
        self._on_message(None, f"tern/up/{board}", frame, 1, None)


def driver(directory, link, devices, **options):
    store = Store(directory / f"{devices}.sqlite")
    store.add_devices(dict.fromkeys(range(1, devices + 1), KEY))
    return BrokerDriver(store, lambda: link, options.pop("terms", Terms(deadline=60.0)), **options)


def ask(one, number, *cohorts):
    one.open(number, cohorts)
    return one.collect(number)


def test_the_time_of_a_round_grows_with_its_devices_and_no_faster(tmp_path):
    """Of boards with one client each, in two cohorts, so that each is asked by itself."""

    def seconds(devices):
        best = float("inf")
        with driver(tmp_path, Boards(devices), devices) as one:
            half = devices // 2
            for number in (1, 2):
                start = time.process_time()
                result = ask(
                    one, number, (QUESTION, range(1, half + 1)), (OTHER, range(half + 1, devices + 1))
                )
                best = min(best, time.process_time() - start)
                assert result.reports == devices
        return best

    few, many = seconds(2_000), seconds(16_000)
    assert many < 20 * few, (few, many)  # 64 times as long, if it were quadratic


def test_a_round_for_all_is_announced_and_taken_back_and_one_for_some_is_not(tmp_path):
    link = Boards(100)
    with driver(tmp_path, link, 100) as one:
        assert ask(one, 1, (QUESTION, range(1, 101))).reports == 100
        assert link.announced[0] == b"", "what may be left of an earlier run is taken back"
        assert [bool(frame) for frame in link.announced[1:]] == [True, False]
        assert link.asked == 0
        assert ask(one, 2, (QUESTION, range(1, 100))).reports == 99
    assert not any(link.announced[3:])
    assert link.asked == 99


def test_what_boards_say_is_kept_for_who_looks_on(tmp_path):
    link = Boards(30, each=3)
    with driver(tmp_path, link, 30) as one:
        ask(one, 1, (QUESTION, range(1, 31)))
        boards = one._store.boards()
        assert [(board.name, board.first, board.clients) for board in boards] == [
            (name(first), first, 3) for first in range(1, 31, 3)
        ]
        assert all(board.online and board.told["text"] == "test" for board in boards)
        link.boards.pop(name(4))
        link.changed.add(name(4))
        one.wait(0.7)
        assert [board.first for board in one._store.boards() if not board.online] == [4]
    with Store(tmp_path / "30.sqlite", beside=True) as store:
        assert not any(board.online for board in store.boards())
        assert all(board.told["text"] == "test" for board in store.boards())
        assert [board.spent for board in store.boards()] == 10 * [COST]
    one._store.close()
    with driver(tmp_path, Boards(30, each=3), 30) as one:
        ask(one, 2, (QUESTION, [1, 2, 7]))
    with Store(tmp_path / "30.sqlite", beside=True) as store:
        # None has connected again: what the broker keeps of them is read twice.
        spent = {board.first: board.spent for board in store.boards()}
    assert spent == {**dict.fromkeys(range(1, 31, 3), COST), 1: 2 * COST, 7: 2 * COST}


def test_a_board_of_many_clients_is_fed_as_it_answers(tmp_path):
    link = Boards(1_000, each=500)
    with driver(tmp_path, link, 1_000) as one:
        assert ask(one, 1, (QUESTION, range(1, 1_000))).reports == 999
    assert link.asked == 999, "nobody has to be asked again"
    assert link.most <= 64


def test_devices_that_may_not_report_yet_are_asked_when_they_may(tmp_path):
    link = Boards(10, each=5, too_soon=2)
    with driver(tmp_path, link, 10, terms=Terms(deadline=60.0, silence=0.5)) as one:
        result = ask(one, 1, (QUESTION, range(1, 10)))
    assert result.reports == 9
    assert link.asked == 18, "each twice"
    assert all(time.monotonic() - when >= 2 for when in link.refused.values())


def test_a_board_that_claims_everything_is_no_burden(tmp_path):
    link = Boards(50, each=5)
    with driver(tmp_path, link, 50) as one:
        link._on_hello("00000001", hello(1, 0xFFFF_FF00))
        one.wait(0.6)
        assert ask(one, 1, (QUESTION, range(1, 50))).reports == 49
        assert len(one.devices) == 50
    assert link.asked <= 2 * 49


def test_reports_before_the_first_round_are_late_and_no_fault(tmp_path):
    link = Boards(3)
    with driver(tmp_path, link, 3) as one:
        link._report(1, round_start(1) + round_body(7, QUESTION) + bytes(8))
        one.wait(0.2)
        assert one.aggregator.statistics.late == 1
        assert ask(one, 8, (QUESTION, [1, 2, 3])).reports == 3


def test_a_device_that_never_understands_is_not_asked_for_ever(tmp_path):
    class Deaf(Boards):
        def _answer(self, board, frame):
            device, number = frames.address(frame)
            digest = answers.question(KEY, device, frame[5:-8])
            self._hear(board, answers.error(digest, device, number, wire.ERR_FRAME))

    link = Deaf(2)
    with driver(tmp_path, link, 2, terms=Terms(deadline=4.0)) as one:
        assert ask(one, 1, (QUESTION, [1])).reports == 0
    assert 2 <= link.asked <= 8


def test_nobody_is_there(tmp_path):
    link = Boards(0)
    with pytest.raises(DeviceError, match="no board of this store's devices is connected"):
        driver(tmp_path, link, 3).__enter__()


def test_stopping_from_another_thread_or_before_it_begins(tmp_path):
    link = Boards(3)
    link._first = range(1, 3)  # the third never answers
    with driver(tmp_path, link, 3) as one:
        threading.Timer(0.3, one.stop).start()
        assert ask(one, 1, (QUESTION, [1, 2, 3])) is None, "it has neither ended nor reached its deadline"
        assert one.collect(1) is None
    one.stop()  # afterwards, too


class Locked(Boards):
    """Boards with another fleet key, of `epoch`; each does as `takes` says with a new one, in its time."""

    def __init__(self, devices, each=1, epoch=1, takes=True, delay=0.0):
        super().__init__(devices, each)
        self._delay = delay
        self._takes = takes
        self._start_epoch = epoch
        self.epochs = {}  # of boards with another one, by first client
        self.keys = {}  # by board
        self.brought = []  # (board, epoch)
        self.alone = 0

    async def connect(self, patience=0.0):
        await super().connect(patience)
        for first in self._first:
            epoch = self.epochs.get(first, self._start_epoch)
            self._on_hello(name(first), hello(first, self._each, epoch))

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
        said = epoch if self._takes else self._start_epoch
        self._on_hello(board, hello(first, self._each, said, nonce=epoch))

    def _hear_announced(self, board, frame):
        first = int(board, 16)
        if frame[-8:] == frames.tag(self.keys.get(board, b""), frame[:-8]):
            for device in range(first, first + self._each):
                self._report(device, frame)
        else:
            error = answers.board_error(frames.address(frame)[1], wire.ERR_DEVICE, wire.FLEET)
            self._hear(board, error)


def rotated(directory, link, devices, times=1, **options):
    one = driver(directory, link, devices, **options)
    for _ in range(times):
        fleet_key.rotate_fleet(one._store)
    one._fleet = fleet_key.fleet_key(one._store)
    return one


@pytest.mark.parametrize("delay", [0.0, 1.0])
def test_boards_with_an_earlier_fleet_key_get_the_new_one(tmp_path, delay):
    """Also those that hear the announcement before they have it."""
    link = Locked(100, each=50, delay=delay)
    with rotated(tmp_path, link, 100, patience=20.0) as one:
        assert ask(one, 1, (QUESTION, range(1, 101))).reports == 100
        assert ask(one, 2, (QUESTION, range(1, 101))).reports == 100
        new = fleet_key.fleet_key(one._store).epoch
    assert sorted(link.brought) == [(name(1), new), (name(51), new)], "once each"
    assert link.alone == 0


@pytest.mark.sampled(2)
@pytest.mark.parametrize("epoch", [1, 0, 2**32 - 1, LATER])
def test_boards_that_do_not_take_the_fleet_key_are_asked_under_their_own(tmp_path, epoch):
    """Brought it once, if theirs is earlier; more clients than are asked at once, too."""
    link = Locked(200, each=100, epoch=epoch, takes=False)
    with rotated(tmp_path, link, 200, patience=0.3) as one:
        one.wait(2.0)
        assert ask(one, 1, (QUESTION, range(1, 201))).reports == 200
        new = fleet_key.fleet_key(one._store).epoch
    assert sorted(link.brought) == ([(name(1), new), (name(101), new)] if epoch < 2 else [])
    assert link.alone >= 200


def test_boards_with_a_later_fleet_key_are_told_of_once(tmp_path):
    """Neither those with an earlier one nor those of --own-key-only, whose epoch is the last."""
    told = []
    link = Locked(900, each=100, epoch=LATER)
    link.epochs = {701: 1, 801: 2**32 - 1}
    with rotated(tmp_path, link, 900, patience=0.3, warn=told.append) as one:
        for said in (b"", hello(1, 100, LATER)):
            link._on_hello(name(1), said)
            one.wait(1.0)
    (message,) = [message for message in told if "later fleet key" in message]
    assert message.startswith("7 boards say that they have a later fleet key")


def verified(one, frame):
    """The round and the parameters of a MODEL under the fleet's key of now."""
    _, number, *_, parameters = decode_model(frame, fleet_key.fleet_key(one._store).key)
    return number, parameters.tolist()


def test_a_model_is_handed_out_under_the_key_that_the_fleet_has(tmp_path):
    """Also where the key is replaced beside the host that serves, or while there is none."""

    def rotate():
        with Store(tmp_path / "3.sqlite", create=False, beside=True) as store:
            fleet_key.rotate_fleet(store)

    link = Boards(3)
    with driver(tmp_path, link, 3) as one:
        assert link.models == [b""], "no model of another store or an earlier key is left with the broker"
        ask(one, 1, (QUESTION, [1, 2, 3]))
        one.publish(Averaged(wire.LOGISTIC, [5, -6], -14))
        assert verified(one, link.models[1]) == (1, [5, -6])
        rotate()
        one.wait(1.0)
        assert verified(one, link.models[2]) == (1, [5, -6])
        assert link.models[1][:-8] == link.models[2][:-8]
    one._store.close()
    rotate()
    later = Boards(3)
    with driver(tmp_path, later, 3) as one:
        assert verified(one, later.models[0]) == (1, [5, -6])
    assert len({frame[-8:] for frame in (*link.models[1:], *later.models)}) == 3
