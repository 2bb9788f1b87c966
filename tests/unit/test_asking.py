"""Boards on a broker that claim what is not theirs, and numbers that no board should be believed."""

import time

import pytest

from tern import wire
from ternhost.count.aggregator import Aggregator
from ternhost.count.questions import Question
from ternhost.count.rounds import Refusal, RoundResult
from ternhost.learn.schedule import Terms
from ternhost.privacy import mechanisms
from ternhost.provision import keys
from ternhost.reach.broker.asking import Asking
from ternhost.reach.broker.link import Said
from ternhost.reach.broker.roster import BoardRoster
from ternhost.reach.driver import explain
from ternhost.store.store import Store

HONEST = range(2, 20)
ALL = range(1, 21)  # 20 is on no board, but claimed by the liar


class Line:
    """A connection on which nothing comes by itself."""

    connected = True

    def __init__(self, said):
        self.boards = said
        self.changed = set(said)

    def announce(self, frame):
        pass

    def ask(self, board, frame):
        pass


@pytest.fixture
def fleet(tmp_path):
    """Honest boards of a device each, and one that claims a million."""
    with Store(tmp_path / "store.sqlite") as store:
        keys.add(store, ALL)
        aggregator = Aggregator(store)
        said = {f"{device:08x}": Said(range(device, device + 1), 1) for device in HONEST}
        line = Line({**said, "00000001": Said(range(1, 1_000_000), 1)})
        roster = BoardRoster(aggregator.devices)
        roster.connected(time.monotonic())
        roster.look(line, time.monotonic())
        question = Question(wire.LOGISTIC, [0] * 28, -14, mechanisms.design("duchi", 2).card, 1)

        def ask(number, warnings):
            aggregator.open(number, [(question, roster.claimed)], time.monotonic(), None, 120)
            return Asking(number, aggregator, roster, line, keys.fleet_key(store), 2.0, warnings.append)

        yield aggregator, roster, ask


def test_who_claims_devices_of_others_and_is_silent_ends_no_round_of_theirs(fleet):
    aggregator, roster, ask = fleet
    warnings = []
    asking = ask(1, warnings)
    asking.leave_out(time.monotonic() + Terms().silence / 2, Terms())
    for board in roster.boards.values():
        board.heard += 1000 * (board.name != "00000001")
    asking.leave_out(time.monotonic() + Terms().silence + 1, Terms())
    assert warnings == [
        "round 1: board 00000001 has been silent for 30 s, and is left out with its 20 devices until it answers again"
    ]
    assert aggregator.unanswered(1) == list(HONEST)
    asking = ask(2, warnings)
    assert aggregator.unanswered(2) == list(HONEST)
    asking.answered(HONEST, time.monotonic())
    assert roster.boards["00000001"].left_out, "others have answered, and not it"
    assert len(warnings) == 1


def test_a_board_that_must_pause_does_so_for_a_day_at_most(fleet):
    _, _, ask = fleet
    asking = ask(1, [])
    now = time.monotonic()
    asking.put_off(Refusal(2, 1, wire.ERR_TOO_SOON, 2**32 - 1), now)
    assert asking._waits == {2: now + 86_400}


def test_no_number_of_a_device_is_one_to_go_on_from_alone():
    numbers = {1: 2**30 - 1, 2: 7, 3: 7}
    refusals = {
        device: Refusal(device, 7, wire.ERR_CHANGED_ROUND, number) for device, number in numbers.items()
    }
    _, words, hint = explain(RoundResult(7, "complete", 3, 0, refusals, []))
    assert "in round 7 before" in words
    assert hint.endswith("--after-round 7")
