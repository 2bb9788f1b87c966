"""Which boards on a broker get the question of a round, when, and again; without a broker."""

import time

import pytest

from tern import wire
from ternhost.count.aggregator import Aggregator
from ternhost.count.questions import Question
from ternhost.count.rounds import Ending, Refusal, RoundResult
from ternhost.learn.schedule import Terms
from ternhost.privacy import mechanisms
from ternhost.provision import keys
from ternhost.reach.broker import roster, round_requests
from ternhost.reach.broker.presence import BoardHello, Presence
from ternhost.reach.broker.roster import BoardRoster
from ternhost.reach.broker.round_requests import RoundRequests
from ternhost.reach.broker.state import FleetState
from ternhost.reach.refusals import explain
from ternhost.store import sleepers

CARD = mechanisms.design("duchi", 2).card
QUESTION = Question(wire.LOGISTIC, [0] * 28, -14, CARD, 1)
OTHER = Question(wire.LOGISTIC, [1] * 28, -14, CARD, 1)
SLEEPS, STAYS = 1, 2  # devices, each on a separate board
HOUR = 3600
SILENCE = Terms().silence
MANY = range(1, 7)  # devices, each on a separate board


class Line:
    """Stands for the link: records which devices are asked."""

    connected = True

    def __init__(self):
        self.presence = Presence(dict)
        self.asked, self.announcements = [], 0
        self.epoch = 1  # of the fleet key that the boards have

    def hello(self, device, clients=1, retained=False):
        """A board says hello, or the broker sends a retained HELLO of it."""
        hello = BoardHello(range(device, device + clients), self.epoch, retained=retained)
        self.presence.boards[f"{device:08x}"] = hello
        self.presence.changed.add(f"{device:08x}")

    def leave(self, device):
        del self.presence.boards[f"{device:08x}"]
        self.presence.changed.add(f"{device:08x}")

    def announce(self, frame):
        if frame:
            self.announcements += 1

    def ask(self, board, frame):
        self.asked.append(int(board, 16))
        return True


class Fleet:
    """A roster of boards, and the requests of the last round that was begun."""

    def __init__(self, store):
        self.line, self.aggregator, self.warnings = Line(), Aggregator(store), []
        self.roster = BoardRoster(self.aggregator.devices, sleepers.wakes(store))
        self.roster.note_connection(time.monotonic())
        key = keys.fleet_key(store)
        self.state = FleetState(self.line, self.aggregator, self.roster, key, self.warnings.append)
        self.requests = None

    def begin(self, number, *cohorts):
        self.aggregator.open(number, cohorts, time.monotonic(), Ending(deadline=2 * HOUR))
        self.requests = RoundRequests(number, self.state, 2.0)
        self.requests.ask()

    def update(self, now=None):
        """Take the HELLOs that have come."""
        changes = self.roster.update(self.line, now or time.monotonic())
        if self.requests:
            self.requests.follow(changes)
            self.requests.ask()

    def pass_an_hour(self):
        """Repeat unanswered questions for an hour."""
        now = time.monotonic()
        for later in range(0, HOUR, 40):
            self.requests.ask_again(now + later)
            self.requests.ask()

    def left_out(self):
        return {board.clients.start for board in self.roster.boards.values() if board.left_out}


@pytest.fixture
def fleet(store):
    keys.add(store, [SLEEPS, STAYS, 3])
    sleepers.set_wake(store, SLEEPS, HOUR)
    return Fleet(store)


TWO_QUESTIONS = (QUESTION, [SLEEPS]), (OTHER, [STAYS])


def test_a_sleeping_device_with_a_retained_hello_is_not_asked(fleet):
    """A board says hello when it connects, and the broker may retain that message for hours. A
    device that sleeps between rounds may be gone by then: a question that waits at the broker could
    be answered after the round.
    """
    fleet.line.hello(SLEEPS, retained=True)  # hours ago
    fleet.line.hello(STAYS)
    fleet.update()
    fleet.begin(1, *TWO_QUESTIONS)
    fleet.pass_an_hour()

    assert SLEEPS not in fleet.line.asked
    assert fleet.line.asked.count(STAYS) > 10, "it is asked again and again"


def test_a_sleeping_device_is_asked_once_at_each_wake(fleet):
    fleet.begin(1, *TWO_QUESTIONS)
    for wake in (1, 2):
        fleet.line.hello(SLEEPS)
        fleet.update()
        fleet.update()
        assert fleet.line.asked.count(SLEEPS) == wake


def test_a_sleeping_device_reads_the_announcement_and_is_not_asked_too(fleet):
    """A round with one question for all is announced to the whole fleet. A device that sleeps reads
    the announcement when it wakes; only one that stays awake is asked again in person.
    """
    fleet.line.hello(SLEEPS)
    fleet.line.hello(STAYS)
    fleet.update()
    fleet.begin(1, (QUESTION, [SLEEPS, STAYS, 3]))  # device 3 was never heard of
    assert fleet.line.announcements == 1
    fleet.pass_an_hour()
    assert set(fleet.line.asked) == {STAYS}


def test_a_sleeping_device_is_left_out_much_later_than_a_silent_one(fleet):
    """Boards that answer nothing are left out of a round. One that wakes every hour has two hours;
    one that stays awake has the usual silence.
    """
    fleet.line.hello(SLEEPS)
    fleet.line.hello(STAYS)
    now = time.monotonic()
    fleet.update(now)
    fleet.begin(1, (QUESTION, [SLEEPS, STAYS, 3]))

    fleet.requests.leave_out_silent_boards(now + HOUR, SILENCE)
    assert fleet.left_out() == {STAYS}
    fleet.requests.leave_out_silent_boards(now + 2 * HOUR, SILENCE)
    assert fleet.left_out() == {SLEEPS, STAYS}


# Boards that connect during a round


def test_a_board_that_connects_during_a_round_gets_the_request_of_its_device(fleet):
    fleet.begin(1, *TWO_QUESTIONS)
    fleet.line.asked.clear()
    fleet.line.hello(STAYS)
    fleet.update()
    assert fleet.line.asked == [STAYS]


def test_a_board_that_connects_again_gets_no_request_that_was_answered(fleet):
    fleet.line.hello(STAYS)
    fleet.update()
    fleet.begin(1, *TWO_QUESTIONS)
    fleet.aggregator.give_up(1, [STAYS])
    fleet.line.asked.clear()
    fleet.line.hello(STAYS)
    fleet.update()
    assert fleet.line.asked == []


def test_a_board_that_connects_leaves_the_requests_of_other_boards_as_they_are(fleet):
    fleet.line.hello(STAYS)
    fleet.update()
    fleet.begin(1, *TWO_QUESTIONS)
    fleet.line.asked.clear()
    fleet.line.hello(SLEEPS)
    fleet.update()
    assert fleet.line.asked == [SLEEPS]


def test_a_device_is_on_no_known_board_once_its_board_no_longer_claims_it(fleet):
    fleet.line.hello(STAYS, clients=2)  # devices 2 and 3
    fleet.update()
    fleet.begin(1, (QUESTION, [SLEEPS]), (OTHER, [STAYS, 3]))
    fleet.line.hello(STAYS, clients=1)
    fleet.update()
    assert 3 in fleet.roster.unknown_board.round.unanswered


@pytest.fixture
def crowd(store, monkeypatch):
    """A fleet of MANY boards that have all sent their HELLO, of which two are looked at at once."""
    monkeypatch.setattr(roster, "_MOST_AT_ONCE", 2)
    keys.add(store, MANY)
    crowd = Fleet(store)
    for device in MANY:
        crowd.line.hello(device)
    return crowd


def test_of_very_many_hellos_some_are_looked_at_later(crowd):
    crowd.update()
    assert len(crowd.roster.claimed) == 2
    assert crowd.roster.is_behind


def test_all_hellos_have_their_turn(crowd):
    while True:
        crowd.update()
        if not crowd.roster.is_behind:
            break
    assert crowd.roster.all_are_claimed


def test_no_board_is_gone_as_long_as_some_hellos_were_not_looked_at(crowd):
    crowd.update()
    (first, _second) = crowd.roster.claimed
    crowd.line.leave(first)
    crowd.update()
    assert crowd.roster.boards[f"{first:08x}"].connected


# Boards that claim devices of others, or name numbers that cannot be true

LIAR = 1  # claims all devices
HONEST = list(range(2, 20))
NOWHERE = 20  # a device on no board but claimed by the liar


SILENT_FOR_LONG = 60.0  # seconds


@pytest.fixture
def many_boards(store, monkeypatch):
    """A fleet of MANY boards in a round with one question; only two may be asked at once."""
    monkeypatch.setattr(round_requests, "_MOST_AT_ONCE", 2)
    keys.add(store, MANY)
    many = Fleet(store)
    many.line.epoch = many.state.key.epoch
    for device in MANY:
        many.line.hello(device)
    many.update()
    many.begin(1, (QUESTION, MANY))
    return many


def test_if_most_boards_are_silent_the_round_is_announced_again(many_boards):
    many_boards.requests.ask_again(time.monotonic() + SILENT_FOR_LONG)
    assert many_boards.line.announcements == 2
    assert many_boards.line.asked == []


def test_if_few_boards_are_silent_they_are_asked_in_turns(many_boards):
    now = time.monotonic()
    silent = [4, 5, 6]
    for device in set(MANY) - set(silent):
        many_boards.aggregator.give_up(1, [device])
        many_boards.requests.note_answers([device], now)
    many_boards.requests.ask_again(now + SILENT_FOR_LONG)
    assert len(many_boards.line.asked) == 2
    many_boards.requests.ask_again(now + 2 * SILENT_FOR_LONG)
    assert set(many_boards.line.asked) == set(silent)


@pytest.fixture
def deceived(store):
    """Honest boards of one device each have answered nothing yet, and a liar claims a million."""
    keys.add(store, [LIAR, *HONEST, NOWHERE])
    fleet = Fleet(store)
    fleet.line.hello(LIAR, clients=1_000_000)
    for device in HONEST:
        fleet.line.hello(device)
    fleet.update()
    fleet.begin(1, (QUESTION, fleet.roster.claimed))
    return fleet


@pytest.fixture
def liar_left_out(deceived):
    """The honest boards were heard since, and the liar is left out."""
    for board in deceived.roster.boards.values():
        if board.clients.start != LIAR:
            board.last_heard += 1000
    deceived.requests.leave_out_silent_boards(time.monotonic() + SILENCE + 1, SILENCE)
    return deceived


def test_a_silent_board_that_claims_devices_of_others_does_not_end_their_round(liar_left_out):
    assert liar_left_out.left_out() == {LIAR}
    assert len(liar_left_out.warnings) == 1
    assert "is left out with its 20 devices" in liar_left_out.warnings[0]
    assert liar_left_out.aggregator.unanswered(1) == HONEST


def test_a_board_stays_left_out_where_only_others_have_answered(liar_left_out):
    liar_left_out.begin(2, (QUESTION, liar_left_out.roster.claimed))
    liar_left_out.requests.note_answers(HONEST, time.monotonic())
    assert liar_left_out.left_out() == {LIAR}


def test_the_number_of_one_device_is_not_recommended_alone():
    """Devices refuse round 7, since they have answered another question of that number, and name
    their last round. The error recommends to go on after 7, and not after what the first device
    names: it may be broken or lie, and so use up all numbers of rounds (below 2**30).
    """
    last_rounds = {1: 2**30 - 1, 2: 7, 3: 7}
    refusals = {
        device: Refusal(device, 7, wire.ERR_CHANGED_ROUND, last)
        for device, last in last_rounds.items()
    }
    explanation = explain(RoundResult(7, "complete", 3, 0, refusals, []))
    assert explanation.hint.endswith("--after-round 7")
