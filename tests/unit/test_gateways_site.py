"""A gateway answers each question exactly once, even after a restart, and reveals only counts."""

import threading
from dataclasses import replace

import numpy as np
import pytest
from harness import kept
from harness.in_process import InProcessLink
from harness.raw_client import wait_for
from harness.running_gateways import Running

from tern import card as cards
from tern import wire
from ternhost.count.batches import unpack
from ternhost.count.estimate import supports
from ternhost.count.questions import Averaged, Question, round_body
from ternhost.count.rounds import Cohort, Round
from ternhost.errors import StorageError, UsageError
from ternhost.privacy.mechanisms import design
from ternhost.provision.boards import board_directories
from ternhost.reach.gateway import messages
from ternhost.reach.gateway.messages import Answer, Ask, Hello, Here, Model, Refused, Still, Taken
from ternhost.reach.gateway.round import check
from ternhost.reach.gateway.site_fleet import SiteFleet
from ternhost.store import kept_model
from ternhost.store.runs import ABANDONED
from ternhost.store.store import Store

CARD = design("three-outputs", 1).card
COST = cards.decode(CARD).epsilon
D = 5  # of iris, with the constant
BOARDS = {"fleet": "inprocess:2", "dataset": "iris", "clients": 10, "first_id": 21, "budget": "100"}
SIMULATED = {"fleet": "simulated:10", "dataset": "iris", "first_id": 21}
DEVICES = range(21, 31)
GRR = design("grr", levels=3, epsilon_micro=10**6).card
LABEL = Question(wire.SOFTMAX, [1] * 15, -14, GRR, 1, classes=3)
VECTOR = Question(wire.SOFTMAX, [1] * 15, -14, design("laplace", epsilon_micro=10**6).card, 3, classes=3)


@pytest.fixture
def running(tmp_path):
    """`running(**runs)`: a gateway that runs, after the one before it has ended."""
    started = []

    def start(**runs):
        stop()
        started.append(Running(tmp_path / "site", runs).start())
        return started[0]

    def stop():
        while started:
            started.pop().stop()

    (tmp_path / "site").mkdir()
    yield start
    stop()


def ask(number, devices=DEVICES, card=CARD, hold=30.0, question=None, **fields):
    question = question or Question(wire.LOGISTIC, [100] * D, -14, card, 1)
    cohort = Cohort(round_body(number, question), np.array(devices, np.int64))
    return Ask(number, [cohort], hold=hold, **fields)


def boards(gateway):
    return board_directories(gateway.directory, 2)


@pytest.mark.parametrize("runs", [BOARDS, SIMULATED], ids=["boards", "simulated"])
def test_the_same_question_has_the_same_answer_byte_for_byte(running, runs, tmp_path):
    gateway = running(**runs)
    here = messages.decode(gateway.ask(Hello()))
    assert isinstance(here, Here)
    assert here.devices.tolist() == [*DEVICES]
    kind, left = ("inprocess", [100_000_000, None]) if runs is BOARDS else ("simulated", [None, None])
    assert (here.last, here.fleet, here.budget_left, here.single_results) == (0, kind, left, False)
    question = ask(3)
    first = gateway.ask(question)
    (cohort,) = check(messages.decode(first), question)
    assert cohort.reports == 10
    assert gateway.ask(question) == first
    gateway = running()  # as gateway.json says
    assert gateway.ask(question) == first
    assert messages.decode(gateway.ask(Hello())).last == 3
    if runs is BOARDS:
        assert kept.spent(boards(gateway)) == dict.fromkeys(DEVICES, COST)
    _, last = (gateway.ask(ask(number)) for number in (4, 5))
    with Store(tmp_path / "site" / "store.sqlite", beside=True) as store:
        questions = store._db.execute("SELECT round, answer FROM question").fetchall()
    assert questions == [(5, last)], "the last question alone"


def test_a_refused_question_leaves_its_round_number_free(running):
    gateway = running(**BOARDS)
    for payload in (b"", b"\1\2", b"\xff" * 100, Taken().encode()):
        assert isinstance(messages.decode(gateway.gateway.handle(payload)), Refused)
    far = [(ask(number), "too far") for number in (wire.MAX_ROUND, wire.CLIENT_AHEAD + 1)]
    for question, reason in (*far, (ask(3, [30, 31]), "device 31")):
        assert reason in messages.decode(gateway.ask(question)).message
    assert isinstance(messages.decode(gateway.ask(ask(3))), Answer)
    for question, reason in ((ask(3, DEVICES[:4]), "another question"), (ask(2), "before round 3")):
        refused = messages.decode(gateway.ask(question))
        assert isinstance(refused, Refused)
        assert reason in refused.message
    assert kept.spent(boards(gateway)) == dict.fromkeys(DEVICES, COST)


def test_a_stored_question_is_answered_after_a_restart(running, tmp_path):
    running(**SIMULATED).stop()
    question = ask(4)
    with Store(tmp_path / "site" / "store.sqlite") as store:  # as it is left by a kill at that moment
        store.save_question(4, question.digest, question.encode())
    gateway = running()
    answer = wait_for(
        lambda: not isinstance(reply := messages.decode(gateway.ask(ask(4, hold=0.0))), Still) and reply
    )
    assert sum(answer.reports) == 10


def test_a_restarted_gateway_resumes_a_round_with_its_reports(running, tmp_path):
    gateway, question = running(**BOARDS), ask(5)
    first = gateway.ask(question)
    # Back to the moment when four reports had arrived.
    running().stop()
    with Store(tmp_path / "site" / "store.sqlite") as store:
        (batch,) = store.report_batches(5)
        with store.transaction():
            store._db.execute("DELETE FROM batch")
            store._db.execute("UPDATE round SET ended = NULL")
            store.save_question(5, question.digest, question.encode())
        store.add_reports([type(batch)(5, batch.devices[:4], batch.packed[:4])])
    gateway = running()
    assert gateway.ask(question) == first  # the others send the same bytes again
    assert kept.spent(boards(gateway)) == dict.fromkeys(DEVICES, COST)


@pytest.fixture
def mute(monkeypatch):
    """Boards say hello and never answer."""
    monkeypatch.setattr(InProcessLink, "send", lambda self, frame: None)


def until_open(gateway, number):
    """Wait until the gateway asks its devices in that round."""
    with Store(gateway.directory / "store.sqlite", beside=True) as store:
        wait_for(lambda: number in [opened.number for opened in store.open_rounds()])


@pytest.mark.usefixtures("mute")
def test_a_later_question_ends_the_round_under_way(running, tmp_path):
    gateway = running(**BOARDS)
    assert messages.decode(gateway.ask(ask(6, hold=0.0))) == Still(6, 0)
    until_open(gateway, 6)
    assert messages.decode(gateway.ask(ask(7, deadline=0.3))).ended == "deadline"
    assert "before round 7" in messages.decode(gateway.ask(ask(6))).message
    with Store(tmp_path / "site" / "store.sqlite", beside=True) as store:
        assert [ended[:2] for ended in kept.ended_rounds(store)] == [(6, ABANDONED), (7, "deadline")]


@pytest.mark.usefixtures("mute")
def test_a_request_that_waits_for_an_abandoned_round_is_refused_at_once(running):
    gateway, replies = running(**BOARDS), []
    waiting = threading.Thread(target=lambda: replies.append(messages.decode(gateway.ask(ask(6)))))
    waiting.start()
    until_open(gateway, 6)
    gateway.ask(ask(7, hold=0.0))
    waiting.join(20)
    assert "given up for round 7" in replies[0].message


def test_a_restart_answers_the_last_question_and_abandons_rounds_before(running, tmp_path):
    running(**BOARDS).stop()
    with Store(tmp_path / "site" / "store.sqlite") as store:  # as it is left by a kill at that moment
        store.open_round(Round(7, ask(7).cohorts, 10, None, "gateway"))
        for question in (ask(7), ask(8)):
            store.save_question(question.number, question.digest, question.encode())
    assert messages.decode(running().ask(ask(8))).reports == [10]
    with Store(tmp_path / "site" / "store.sqlite", beside=True) as store:
        assert [ended[:2] for ended in kept.ended_rounds(store)] == [(7, ABANDONED), (8, "complete")]


@pytest.mark.parametrize("runs", [BOARDS, SIMULATED], ids=["boards", "simulated"])
def test_no_question_ends_a_gateway(running, runs):
    gateway = running(**runs)
    wide = Question(wire.LOGISTIC, [100] * 60, -14, CARD, 60)
    for number, question in ((2, wide), (3, Question(wire.VALUES, [0] * 40 + [1], 0, CARD, 1))):
        reply = messages.decode(gateway.ask(ask(number, question=question)))
        assert isinstance(reply, Refused) or not any(reply.reports)
    if runs is SIMULATED:  # a question that fits no round is always refused with its reason
        bad = ask(4, question=replace(VECTOR, k=1))
        first = gateway.ask(bad)
        assert "card" in messages.decode(first).message
        assert gateway.ask(bad) == first
    assert messages.decode(gateway.ask(ask(5))).reports == [10]


# Results of single devices


def test_only_a_gateway_that_allows_it_sends_results_of_single_devices(running):
    gateway = running(**{**SIMULATED, "classes": True})
    refused = messages.decode(gateway.ask(ask(2, question=VECTOR, individual=True, categories=[0])))
    assert "--single-results" in refused.hint
    question = ask(2, question=LABEL, individual=True, categories=[0])
    (cohort,) = check(messages.decode(gateway.ask(question)), question)
    assert len(cohort.results) == 10
    gateway = running(single_results=True)
    question = ask(3, question=VECTOR, individual=True, categories=[0])
    (cohort,) = check(messages.decode(gateway.ask(question)), question)
    assert cohort.results.shape == (10, 3)
    assert cohort.results.tolist() == sorted(cohort.results.tolist())


def test_hashed_answers_are_sent_as_supports_of_categories(running):
    gateway = running(**BOARDS)
    hashed = Question(wire.CATEGORIES, [1] + [0] * 4, 0, GRR, 1, range=1)
    question = ask(2, question=hashed, individual=True, categories=[9])
    (cohort,) = check(messages.decode(gateway.ask(question)), question)
    with Store(gateway.directory / "store.sqlite", beside=True) as store:
        (batch,) = store.report_batches(2)
    assert cohort.results is None
    symbols = unpack(batch.packed, 1, 3)[0][:, 0]
    assert cohort.supports.tolist() == supports(batch.devices, symbols, 2, 3, 9).tolist()


def test_no_reply_contains_a_key_or_a_report(running, tmp_path):
    gateway = running(**BOARDS)
    replies = b"\0".join(map(gateway.ask, (Hello(), ask(3), ask(3), ask(2), ask(4), Hello())))
    with Store(tmp_path / "site" / "store.sqlite", beside=True) as store:
        keys = store.keys()
    assert len(keys) == 10
    tags = [bytes(account.report)[-wire.TAG_BYTES :] for _, account in kept.accounts(boards(gateway))]
    for secret in (*keys.values(), *tags):
        assert secret not in replies
        assert secret.hex().encode() not in replies


def test_a_gateway_keeps_the_model_for_its_devices(running, tmp_path):
    gateway = running(**BOARDS)
    gateway.ask(ask(3))
    assert isinstance(messages.decode(gateway.ask(Model(Averaged(1, [1, 2, 3, 4, 5], -14)))), Taken)
    with Store(tmp_path / "site" / "store.sqlite", beside=True) as store:
        wait_for(lambda: kept_model.kept(store))


# Its fleet


def test_a_gateway_keeps_the_fleet_of_its_first_start(tmp_path):
    (tmp_path / "gateway.json").write_text('{"site": "north"}')
    SiteFleet.of(tmp_path, BOARDS).save(tmp_path)
    assert '"north"' in (tmp_path / "gateway.json").read_text(), "what others have written stays"
    assert SiteFleet.of(tmp_path, {}) == SiteFleet(**BOARDS)
    assert SiteFleet.of(tmp_path, {"single_results": True}).single_results
    with pytest.raises(UsageError, match="--first-id 21"):
        SiteFleet.of(tmp_path, {"first_id": 1})


@pytest.mark.parametrize(
    ("runs", "reason"),
    [
        ({"fleet": ""}, "--fleet must name"),
        ({"fleet": "gateways:somewhere"}, "no other gateways"),
        ({**BOARDS, "first_id": 0}, "--first-id must be"),
        ({**BOARDS, "records": 0}, "--records must be"),
        ({**BOARDS, "budget": "many"}, "budget many"),
        ({**BOARDS, "clients": 1}, "without one"),
        ({"fleet": "port:/dev/null"}, "--store must name"),
    ],
)
def test_options_that_a_gateway_cannot_run_are_refused(tmp_path, runs, reason):
    with pytest.raises(UsageError, match=reason):
        Running(tmp_path, runs).start()


@pytest.mark.parametrize(
    ("runs", "more"), [(SIMULATED, {"records": 1000}), (BOARDS, {"clients": 1})], ids=["simulated", "boards"]
)
def test_a_first_start_that_fails_can_be_corrected(running, tmp_path, runs, more):
    for wrong in ({"dataset": "nosuch"}, more):
        with pytest.raises(UsageError):
            Running(tmp_path / "site", {**runs, **wrong}).start()
    assert messages.decode(running(**runs).ask(Hello())).devices.tolist() == [*DEVICES]
    assert SiteFleet.of(tmp_path / "site", {}) == SiteFleet(**runs)


def test_a_later_start_finds_its_store_and_fleet_from_another_working_directory(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "here").touch()
    monkeypatch.chdir(tmp_path)
    first = SiteFleet.of(tmp_path / "site", {**BOARDS, "store": "own.sqlite"})
    first.save(tmp_path / "site")
    for name in ("mqtt:{}brokers/mine", "port:{}here,/dev/null,tcp://there:1"):
        other = SiteFleet.of(tmp_path / "other", {"fleet": name.format(""), "store": "own.sqlite"})
        assert other.fleet == name.format(f"{tmp_path}/")
    monkeypatch.chdir("elsewhere")
    assert SiteFleet.of(tmp_path / "site", {}).store == str(tmp_path / "own.sqlite")
    assert SiteFleet.of(tmp_path / "site", {"store": "../elsewhere/../own.sqlite"}) == first
    with pytest.raises(UsageError, match=r"begun with --store .*own.sqlite, not with .*elsewhere/own.sqlite"):
        SiteFleet.of(tmp_path / "site", {"store": "own.sqlite"})


def test_boards_without_their_store_are_not_replaced(running, tmp_path):
    """New ledgers would let clients spend their budgets again."""
    gateway = running(**BOARDS)
    gateway.ask(ask(3))
    gateway.stop()
    (tmp_path / "site" / "store.sqlite").unlink()
    before = {path: path.read_bytes() for path in (tmp_path / "site").glob("fleet/*/ledger/*")}
    with pytest.raises(StorageError, match="has no keys of the boards in"):
        Running(tmp_path / "site", {}).start()
    assert {path: path.read_bytes() for path in (tmp_path / "site").glob("fleet/*/ledger/*")} == before
    assert len(before) == 10


@pytest.mark.parametrize("with_keys", [False, True])
def test_an_interrupted_first_start_is_completed(running, tmp_path, with_keys):
    running(**BOARDS).stop()
    site = tmp_path / "site"
    (site / "new").mkdir(exist_ok=True)
    (site / "fleet").rename(site / "new" / "fleet")
    if not with_keys:
        (site / "store.sqlite").unlink()
    gateway = running(**BOARDS)
    assert messages.decode(gateway.ask(Hello())).devices.tolist() == [*DEVICES]
    assert messages.decode(gateway.ask(ask(3))).reports == [10]


@pytest.mark.parametrize("runs", [BOARDS, SIMULATED], ids=["boards", "simulated"])
def test_shared_records_are_reported(tmp_path, runs):
    warnings = []
    for first in (81, 82):  # iris has 90 records for training
        gateway = Running(tmp_path / str(first), {**runs, "first_id": first}).start()
        gateway.stop()
        warnings.append(gateway.warnings)
    assert warnings[0] == []
    assert "records for 90 clients: those with ids from 91 to 91 hold again" in warnings[1][0]
