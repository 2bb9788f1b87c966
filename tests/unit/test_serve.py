"""What `tern serve` asks, and when, over a link that notes it. With boards and a broker: integration/test_mqtt.py."""

import time

import pytest

from tern import frames, wire
from ternhost.aggregate.store import Store
from ternhost.errors import UsageError
from ternhost.fleet import keys
from ternhost.mechanisms import design
from ternhost.runs import serve
from ternhost.runs.serve import Plan, Server

CARD = design("three-outputs", epsilon_micro=1_000_000).card


class Link:
    """Boards that never answer."""

    connected = True

    def __init__(self):
        self.boards = {}
        self.strangers = set()
        self.announced = 0
        self.asked = []

    def announce(self, frame):
        self.announced += 1

    def ask(self, board, frame):
        self.asked.append((board, frames.address(frame)[0]))


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "store.sqlite") as made:
        keys.add(made, [1, 2, 3])
        yield made


def plan(**options):
    return Plan(**{"model": wire.LOGISTIC, "dimension": 6, "card": CARD, "k": 1, **options})


def test_who_is_silent_is_asked_again_and_no_hello_can_hide_him(store):
    link = Link()
    server = Server(store, link, plan())
    server._open_if_due()
    assert link.announced == 1
    now = server._heard
    server._ask_again(now + 1)
    assert not link.asked
    link.boards = {"00000001": range(1, 3)}
    server._ask_again(now + 2)
    assert link.asked == [("00000001", 1), ("00000001", 2)]
    assert link.announced == 2, "nobody says that he has device 3"
    link.boards["00000003"] = range(3, 4)
    link.boards["00000002"] = range(2, 1000)  # a lie
    now += serve.MAX_PATIENCE
    server._ask_again(now)
    assert link.announced == 2, "each is asked where he is said to be"
    assert {("00000001", 2), ("00000002", 2), ("00000003", 3)} <= set(link.asked)
    for _ in range(4):
        now += serve.MAX_PATIENCE
        server._ask_again(now)
    assert link.announced > 2, "and in the end all are, wherever they are"


def test_a_store_is_of_one_model(store):
    Server(store, Link(), plan())._open_if_due()
    for other in ({"dimension": 7}, {"model": wire.SVM}):
        with pytest.raises(UsageError, match="holds a logistic model of 6 coordinates"):
            Server(store, Link(), plan(**other))
    assert Server(store, Link(), plan(k=2, quorum=0.5)).aggregator.resume(0.0) == [1]
    other = Server(store, Link(), plan(dimension=7), new_model=True)
    assert other.aggregator.resume(0.0) == [], "its round is given up"
    other._open_if_due()
    assert store.last_round() == 2
    assert Server(store, Link(), plan(dimension=7)).aggregator.resume(0.0) == [2]


def test_a_fleet_that_refuses_is_not_asked_at_once_again_and_the_reason_is_told(store):
    told = []
    server = Server(store, Link(), plan(), told.append)
    out = bytearray(64)
    for doublings in (2, 4, 8, 15, 15):  # of the patience; 30 s at most
        server._starts = 0.0
        server._open_if_due()
        for device, key in store.keys().items():
            n = frames.encode_error(out, key, device, server._round, wire.ERR_BUDGET, 0)
            server.aggregator.accept([bytes(out[:n])], 0.0)
        (result,) = server.aggregator.tick(0.0)
        before = time.monotonic()
        server._end(result)
        assert told[-1].reasons == {"budget": 3}
        pause = doublings * server.plan.patience
        assert before + pause <= server._starts <= time.monotonic() + pause
