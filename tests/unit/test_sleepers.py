"""Sleeping devices: the store knows how often each wakes, rounds wait for them, and they are asked
while awake.
"""

import time

import pytest

from tern import wire
from ternhost.count.aggregator import Aggregator
from ternhost.count.questions import Question
from ternhost.count.rounds import Refusal, RoundResult
from ternhost.errors import UsageError
from ternhost.learn.schedule import Schedule, Terms
from ternhost.privacy import mechanisms
from ternhost.provision import keys
from ternhost.reach.broker.postponed import PostponedDevices
from ternhost.reach.broker.presence import BoardHello, Presence
from ternhost.reach.broker.roster import AWAKE, BoardRoster
from ternhost.reach.broker.round_requests import RoundRequests
from ternhost.reach.broker.state import FleetState
from ternhost.reach.refusals import explain
from ternhost.run.options import RunOptions
from ternhost.run.serve import _long_enough
from ternhost.run.status import Watcher
from ternhost.store import sleepers
from ternhost.store.store import Store

CARD = mechanisms.design("duchi", 2).card
QUESTION = Question(wire.LOGISTIC, [0] * 28, -14, CARD, 1)
OTHER = Question(wire.LOGISTIC, [1] * 28, -14, CARD, 1)
SLEEPS, STAYS = 1, 2  # devices, each on a separate board


@pytest.fixture
def store(store):
    keys.add(store, [SLEEPS, STAYS, 3])
    sleepers.set_wake(store, SLEEPS, 3600)
    return store


def test_the_store_knows_the_sleeping_devices(store, tern):
    sleepers.set_wake(store, 3, 60)
    sleepers.set_wake(store, 3, None)
    sleepers.set_wake(store, STAYS, None)
    sleepers.save_heard(store, {SLEEPS: 1000.0})
    sleepers.save_heard(store, {})
    assert sleepers.wakes(store) == {SLEEPS: 3600}
    assert sleepers.heard(store) == {SLEEPS: 1000.0}
    keys.rotate(store, [SLEEPS])
    assert keys.list_devices(store)[0] == keys.Device(SLEEPS, None, 3600, 1000.0)
    lines = tern("device", "list", "--store", str(store.path)).out.splitlines()
    assert "wakes every 3600 s, heard 1970-01-01" in lines[0]
    assert lines[1].split() == [str(STAYS), "has", "a", "key"]


def test_the_least_deadline_lets_every_device_wake_once():
    assert sleepers.least_deadline(()) == sleepers.least_deadline((0,)) == 0
    assert sleepers.least_deadline((60, 3600)) == 3600 + 180 + 60


def test_serving_prolongs_the_rounds_of_a_sleeping_fleet(store):
    notes = []
    watcher = Watcher(note=notes.append)

    def deadline(interval=4000, **terms):
        options = RunOptions("fedsgd", None, "mqtt:x", Terms(**terms), Schedule(interval=interval))
        return _long_enough(options, store, watcher).terms.deadline

    assert deadline() == 3840
    assert notes == [
        "1 sleeping device, up to 3600 s at a time: rounds have 3840 s, not 120 (--deadline)"
    ]
    assert deadline(deadline=5000) == 5000
    assert deadline(deadline=None) is None
    with pytest.raises(UsageError, match="a round of 600 s would end before they wake") as caught:
        deadline(deadline=600)
    assert "--deadline 3840" in caught.value.hint
    notes.clear()
    deadline(interval=60, deadline=5000)
    assert len(notes) == 1
    assert "whatever --interval 60 says" in notes[0]
    keys.revoke(store, [SLEEPS])
    assert deadline(deadline=600) == 600


class Line:
    """A connection that records which devices are asked."""

    connected = True

    def __init__(self, boards=()):
        self.presence = Presence(dict)
        self.presence.boards.update(boards)
        self.presence.changed.update(boards)
        self.asked, self.announced = [], 0

    def says(self, device, retained=False):
        """A board of one device says hello, or the broker sends a `retained` HELLO of it."""
        hello = BoardHello(range(device, device + 1), 1, retained=retained)
        self.presence.boards[f"{device:08x}"] = hello
        self.presence.changed.add(f"{device:08x}")

    def leaves(self, device):
        del self.presence.boards[f"{device:08x}"]
        self.presence.changed.add(f"{device:08x}")

    def announce(self, frame):
        self.announced += bool(frame)

    def ask(self, board, frame):
        self.asked.append(int(board, 16))


@pytest.fixture
def site(store):
    """A line, a roster, and `begin(number, *cohorts)`, which begins a round and returns its requests."""
    line, aggregator = Line(), Aggregator(store)
    roster = BoardRoster(aggregator.devices, sleepers.wakes(store))
    roster.note_connection(time.monotonic())
    state = FleetState(line, aggregator, roster, keys.fleet_key(store), lambda message: None)

    def begin(number, *cohorts):
        aggregator.open(number, cohorts, time.monotonic(), None, 4000)
        return RoundRequests(number, state, 2.0)

    return line, roster, begin


def look(line, roster, asking, now):
    asking.assign(roster.update(line, now).arrived)
    asking.ask()


def an_hour(asking):
    """Repeat unanswered questions for an hour."""
    now = time.monotonic()
    for later in range(0, 3600, 40):
        asking.ask_again(now + later)
        asking.ask()


def test_a_sleeping_device_is_asked_only_after_its_hello(site):
    """A question that waits at the broker could be answered after the round."""
    line, roster, begin = site
    asking = begin(1, (QUESTION, [SLEEPS]), (OTHER, [STAYS]))  # neither was ever online
    asking.ask()
    an_hour(asking)
    assert set(line.asked) == {STAYS}
    line.asked.clear()
    line.says(SLEEPS, retained=True)  # hours ago
    line.says(STAYS)
    roster.update(line, time.monotonic())
    asking = begin(2, (QUESTION, [SLEEPS]), (OTHER, [STAYS]))
    asking.ask()
    assert line.asked == [STAYS]
    an_hour(asking)
    assert SLEEPS not in line.asked
    assert line.asked.count(STAYS) > 10
    line.says(SLEEPS)
    look(line, roster, asking, time.monotonic())
    assert line.asked.count(SLEEPS) == 1
    look(line, roster, asking, time.monotonic())
    assert line.asked.count(SLEEPS) == 1
    line.says(SLEEPS)  # the next wake; it did not answer in the one before
    look(line, roster, asking, time.monotonic())
    assert line.asked.count(SLEEPS) == 2


def test_a_sleeping_device_reads_the_announcement_and_is_not_asked_too(site):
    line, roster, begin = site
    line.says(SLEEPS)
    line.says(STAYS)
    roster.update(line, time.monotonic())
    asking = begin(1, (QUESTION, [SLEEPS, STAYS, 3]))
    assert line.announced == 1
    an_hour(asking)
    assert set(line.asked) == {STAYS}


def test_a_sleeping_device_is_left_out_much_later_than_a_silent_one(site):
    line, roster, begin = site
    line.says(SLEEPS)
    line.says(STAYS)
    now = time.monotonic()
    roster.update(line, now)
    asking = begin(1, (QUESTION, [SLEEPS, STAYS, 3]))
    assert not roster.asleep(now + AWAKE - 1)
    sleeping = [roster.boards[f"{SLEEPS:08x}"]]
    assert roster.asleep(now + AWAKE + 1) == sleeping, "it has left, and its hello stays"
    line.leaves(SLEEPS)
    roster.update(line, now + 1)
    assert roster.asleep(now + 1) == sleeping
    asking.leave_out_silent_boards(now + 3600, Terms().silence)
    left_out = {name for name, board in roster.boards.items() if board.left_out}
    assert left_out == {f"{STAYS:08x}"}
    asking.leave_out_silent_boards(now + 2 * 3600, Terms().silence)
    assert roster.boards[f"{SLEEPS:08x}"].left_out


# Boards that claim devices of others or send numbers that cannot be true


HONEST = range(2, 20)
ALL = range(1, 21)  # 20 is on no board, but claimed by the liar


@pytest.fixture
def fleet(tmp_path):
    """Honest boards of one device each, and a liar that claims a million."""
    with Store(tmp_path / "store.sqlite") as store:
        keys.add(store, ALL)
        aggregator = Aggregator(store)
        boards = {f"{device:08x}": BoardHello(range(device, device + 1), 1) for device in HONEST}
        line = Line({**boards, "00000001": BoardHello(range(1, 1_000_000), 1)})
        roster = BoardRoster(aggregator.devices)
        roster.note_connection(time.monotonic())
        roster.update(line, time.monotonic())
        question = Question(wire.LOGISTIC, [0] * 28, -14, mechanisms.design("duchi", 2).card, 1)

        def ask(number, warnings):
            aggregator.open(number, [(question, roster.claimed)], time.monotonic(), None, 120)
            key = keys.fleet_key(store)
            state = FleetState(line, aggregator, roster, key, warnings.append)
            return RoundRequests(number, state, 2.0)

        yield aggregator, roster, ask


def test_a_silent_board_that_claims_devices_of_others_does_not_end_their_round(fleet):
    aggregator, roster, ask = fleet
    warnings = []
    asking = ask(1, warnings)
    asking.leave_out_silent_boards(time.monotonic() + Terms().silence / 2, Terms().silence)
    for board in roster.boards.values():
        board.last_heard += 1000 * (board.name != "00000001")
    asking.leave_out_silent_boards(time.monotonic() + Terms().silence + 1, Terms().silence)
    assert warnings == [
        "round 1: board 00000001 has been silent for 30 s, and is left out with its 20 devices until it answers again"
    ]
    assert aggregator.unanswered(1) == list(HONEST)
    asking = ask(2, warnings)
    assert aggregator.unanswered(2) == list(HONEST)
    asking.note_answers(HONEST, time.monotonic())
    assert roster.boards["00000001"].left_out, "only others have answered"
    assert len(warnings) == 1


def test_a_board_pauses_for_a_day_at_most():
    postponed = PostponedDevices()
    postponed.add(Refusal(2, 1, wire.ERR_TOO_SOON, 2**32 - 1), 1000.0)
    assert postponed.until == {2: 1000.0 + 86_400}


def test_the_number_of_one_device_is_not_recommended_alone():
    numbers = {1: 2**30 - 1, 2: 7, 3: 7}
    refusals = {
        device: Refusal(device, 7, wire.ERR_CHANGED_ROUND, last) for device, last in numbers.items()
    }
    _, words, hint = explain(RoundResult(7, "complete", 3, 0, refusals, []))
    assert "in round 7 before" in words
    assert hint.endswith("--after-round 7")


@pytest.mark.parametrize(
    ("detail", "meaning"), [(0, "cannot be read or written"), (wire.OLD_LEDGER, "an old copy")]
)
def test_an_old_copy_of_a_ledger_is_named(detail, meaning):
    refusal = Refusal(1, 7, wire.ERR_LEDGER, detail)
    assert meaning in explain(RoundResult(7, "complete", 1, 0, {1: refusal}, []))[1]
