"""A gateway answers each question exactly once, whatever becomes of it, and tells no more than counts."""

import threading

import numpy as np
import pytest
from harness import kept
from harness.in_process import InProcess, InProcessLink
from harness.local_gateways import Running
from harness.raw_client import wait_for

from tern import card as cards
from tern import wire
from ternhost.count.batches import unpack
from ternhost.count.estimate import supports
from ternhost.count.questions import Averaged, Question, round_body
from ternhost.count.rounds import Cohort, Round
from ternhost.errors import StorageError, UsageError
from ternhost.privacy.mechanisms import design
from ternhost.provision.boards import board_directories
from ternhost.reach.fleet import KINDS
from ternhost.reach.gateway import messages
from ternhost.reach.gateway.messages import Answer, Ask, Hello, Here, Model, Refused, Still, Taken
from ternhost.reach.gateway.round import check
from ternhost.reach.gateway.site_fleet import SiteFleet
from ternhost.reach.links import SCHEMES
from ternhost.reach.ports.fleet import Ports
from ternhost.store import kept_model
from ternhost.store.runs import ABANDONED
from ternhost.store.store import Store

CARD = design("three-outputs", 1).card
COST = cards.decode(CARD).epsilon
D = 5  # of iris, with the constant
BOARDS = {"fleet": "inprocess:2", "dataset": "iris", "clients": 10, "first_id": 21, "budget": "100"}
SIMULATED = {"fleet": "simulated:10", "dataset": "iris", "first_id": 21}
DEVICES = range(21, 31)


@pytest.fixture
def running(tmp_path):
    """`running(**runs)`: a gateway; the one before it has ended then."""
    found = []

    def start(**runs):
        stop()
        found.append(Running(tmp_path / "site", runs).start())
        return found[0]

    def stop():
        while found:
            found.pop().stop()

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
    kind, left = ("inprocess", 100_000_000) if runs is BOARDS else ("simulated", None)
    assert (here.last, here.fleet, here.budget_left, here.single_results) == (0, kind, left, False)
    asked = ask(3)
    first = gateway.ask(asked)
    (told,) = check(messages.decode(first), asked)
    assert told.reports == 10
    assert gateway.ask(asked) == first
    gateway = running()  # as gateway.json says
    assert gateway.ask(asked) == first
    assert messages.decode(gateway.ask(Hello())).last == 3
    if runs is BOARDS:
        assert kept.spent(boards(gateway)) == dict.fromkeys(DEVICES, COST)
    last = [gateway.ask(ask(number)) for number in (4, 5)][-1]
    with Store(tmp_path / "site" / "store.sqlite", beside=True) as store:
        questions = store._db.execute("SELECT round, answer FROM question").fetchall()
    assert questions == [(5, last)], "the last question alone"


def test_a_question_that_cannot_be_answered_is_refused_and_its_number_is_still_good(running):
    gateway = running(**BOARDS)
    for payload in (b"", b"\1\2", b"\xff" * 100, Taken().encode()):
        assert isinstance(messages.decode(gateway.gateway.handle(payload)), Refused)
    far = [(ask(number), "too far") for number in (wire.MAX_ROUND, wire.CLIENT_AHEAD + 1)]
    for wrong, why in (*far, (ask(3, [30, 31]), "device 31")):
        assert why in messages.decode(gateway.ask(wrong)).message
    assert isinstance(messages.decode(gateway.ask(ask(3))), Answer)
    for other, why in ((ask(3, DEVICES[:4]), "another question"), (ask(2), "before round 3")):
        refused = messages.decode(gateway.ask(other))
        assert isinstance(refused, Refused)
        assert why in refused.message
    assert kept.spent(boards(gateway)) == dict.fromkeys(DEVICES, COST)


def test_a_question_that_was_durable_is_answered_though_nobody_asks_again(running, tmp_path):
    running(**SIMULATED).stop()
    asked = ask(4)
    with Store(tmp_path / "site" / "store.sqlite") as store:  # as it is left by a kill at that moment
        store.save_question(4, asked.digest, asked.encode())
    gateway = running()
    answer = wait_for(
        lambda: not isinstance(told := messages.decode(gateway.ask(ask(4, hold=0.0))), Still) and told
    )
    assert sum(answer.reports) == 10


def test_a_round_under_way_is_taken_up_with_the_reports_that_it_has(running, tmp_path):
    gateway = running(**BOARDS)
    asked = ask(5)
    whole = gateway.ask(asked)
    # Back to the moment in which four reports had come.
    running().stop()
    with Store(tmp_path / "site" / "store.sqlite") as store:
        (batch,) = store.report_batches(5)
        with store.transaction():
            store._db.execute("DELETE FROM batch")
            store._db.execute("UPDATE round SET ended = NULL")
            store.save_question(5, asked.digest, asked.encode())
        store.add_reports([type(batch)(5, batch.devices[:4], batch.packed[:4])])
    gateway = running()
    assert gateway.ask(asked) == whole  # the others send the same bytes again
    assert kept.spent(boards(gateway)) == dict.fromkeys(DEVICES, COST)


class MuteLink(InProcessLink):
    """A board that says hello, and never a word after it."""

    def send(self, frame):
        pass


class Mute(InProcess):
    form, about = "mute:N", "N boards that never answer"

    def boards(self, directories, modules=(), whole=False):
        return Ports([f"mute:{directory}" for directory in directories])


SCHEMES.register("mute", MuteLink)
KINDS.register("mute", Mute)


def until_open(gateway, number):
    """Until the gateway asks its devices in that round."""
    with Store(gateway.directory / "store.sqlite", beside=True) as store:
        wait_for(lambda: number in [asked.number for asked in store.open_rounds()])


def test_a_round_that_the_host_has_left_is_given_up_for_the_next(running, tmp_path):
    gateway = running(**{**BOARDS, "fleet": "mute:2"})
    assert messages.decode(gateway.ask(ask(6, hold=0.0))) == Still(6, 0)
    until_open(gateway, 6)
    found = messages.decode(gateway.ask(ask(7, deadline=0.3)))
    assert found.ended == "deadline"
    assert "before round 7" in messages.decode(gateway.ask(ask(6))).message
    with Store(tmp_path / "site" / "store.sqlite", beside=True) as store:
        assert [own[:2] for own in kept.ended_rounds(store)] == [(6, ABANDONED), (7, "deadline")]


def test_who_waits_for_a_round_that_is_left_hears_of_it_at_once(running):
    gateway = running(**{**BOARDS, "fleet": "mute:2"})
    heard = []
    waiting = threading.Thread(target=lambda: heard.append(messages.decode(gateway.ask(ask(6)))))
    waiting.start()
    until_open(gateway, 6)
    gateway.ask(ask(7, hold=0.0))
    waiting.join(20)
    assert "given up for round 7" in heard[0].message


def test_rounds_that_another_question_has_overtaken_are_abandoned_at_the_start(running, tmp_path):
    running(**BOARDS).stop()
    with Store(tmp_path / "site" / "store.sqlite") as store:
        asked = ask(7)
        store.save_question(7, asked.digest, asked.encode())
        store.open_round(Round(7, asked.cohorts, 10, None, "gateway"))
        later = ask(8)
        store.save_question(8, later.digest, later.encode())
    gateway = running()
    assert isinstance(messages.decode(gateway.ask(ask(8))), Answer)
    with Store(tmp_path / "site" / "store.sqlite", beside=True) as store:
        assert {number: ended for number, ended, _ in kept.ended_rounds(store)} == {
            7: ABANDONED,
            8: "complete",
        }


@pytest.mark.parametrize("runs", [BOARDS, SIMULATED], ids=["boards", "simulated"])
def test_no_question_ends_a_gateway(running, runs):
    gateway = running(**runs)
    wide = Question(wire.LOGISTIC, [100] * 60, -14, CARD, 60)
    odd = Question(wire.VALUES, [0] * 40 + [1], 0, CARD, 1)
    for number, question in ((2, wide), (3, odd)):
        found = messages.decode(gateway.ask(ask(number, question=question)))
        assert isinstance(found, Refused) or not any(found.reports)
    if runs is SIMULATED:  # what makes no round is refused in words and for good
        bad = design("laplace", epsilon_micro=1_000_000).card
        asked = ask(4, question=Question(wire.SOFTMAX, [1] * 15, -14, bad, 1, classes=3))
        first = gateway.ask(asked)
        assert "card" in messages.decode(first).message
        assert gateway.ask(asked) == first
    assert messages.decode(gateway.ask(ask(5))).reports == [10]


# What it does not tell

LABEL = Question(wire.SOFTMAX, [1] * 15, -14, design("grr", levels=3, epsilon_micro=10**6).card, 1, classes=3)
VECTOR = Question(wire.SOFTMAX, [1] * 15, -14, design("laplace", epsilon_micro=10**6).card, 3, classes=3)


def test_results_of_single_devices_are_for_those_who_allow_it(running):
    gateway = running(**{**SIMULATED, "classes": True})
    refused = messages.decode(gateway.ask(ask(2, question=VECTOR, individual=True, categories=[0])))
    assert "--single-results" in refused.hint
    asked = ask(2, question=LABEL, individual=True, categories=[0])
    (told,) = check(messages.decode(gateway.ask(asked)), asked)
    assert len(told.results) == 10
    gateway = running(single_results=True)
    asked = ask(3, question=VECTOR, individual=True, categories=[0])
    (told,) = check(messages.decode(gateway.ask(asked)), asked)
    assert told.results.shape == (10, 3)
    rows = [tuple(row) for row in told.results.tolist()]
    assert rows == sorted(rows)


def test_of_hashed_answers_it_tells_how_many_speak_for_each_category(running):
    gateway = running(**BOARDS)
    card = design("grr", levels=3, epsilon_micro=10**6).card
    hashed = Question(wire.CATEGORIES, [1] + [0] * 4, 0, card, 1, range=1)
    asked = ask(2, question=hashed, individual=True, categories=[9])
    (told,) = check(messages.decode(gateway.ask(asked)), asked)
    with Store(gateway.directory / "store.sqlite", beside=True) as store:
        (batch,) = store.report_batches(2)
    assert told.results is None
    symbols = unpack(batch.packed, 1, 3)[0][:, 0]
    assert told.supports.tolist() == supports(batch.devices, symbols, 2, 3, 9).tolist()


def test_nothing_that_it_says_has_a_key_or_a_report(running, tmp_path):
    gateway = running(**BOARDS)
    said = [gateway.ask(message) for message in (Hello(), ask(3), ask(3), ask(2), ask(4), Hello())]
    with Store(tmp_path / "site" / "store.sqlite", beside=True) as store:
        keys = store.keys()
    assert len(keys) == 10
    tags = [bytes(account.report)[-wire.TAG_BYTES :] for _, account in kept.accounts(boards(gateway))]
    replies = b"\0".join(said)
    for secret in (*keys.values(), *tags):
        assert secret not in replies
        assert secret.hex().encode() not in replies


def test_a_model_is_kept_for_its_devices(running, tmp_path):
    gateway = running(**BOARDS)
    gateway.ask(ask(3))
    assert isinstance(messages.decode(gateway.ask(Model(Averaged(1, [1, 2, 3, 4, 5], -14)))), Taken)
    with Store(tmp_path / "site" / "store.sqlite", beside=True) as store:
        wait_for(lambda: kept_model.kept(store))


# What it runs


def test_its_fleet_is_that_of_the_first_start(tmp_path):
    (tmp_path / "gateway.json").write_text('{"site": "north"}')
    SiteFleet.of(tmp_path, BOARDS).save(tmp_path)
    assert '"north"' in (tmp_path / "gateway.json").read_text(), "what others have written stays"
    assert SiteFleet.of(tmp_path, {}) == SiteFleet(**BOARDS)
    assert SiteFleet.of(tmp_path, {"single_results": True}).single_results
    with pytest.raises(UsageError, match="--first-id 21"):
        SiteFleet.of(tmp_path, {"first_id": 1})


@pytest.mark.parametrize(
    ("runs", "why"),
    [
        ({"fleet": ""}, "--fleet must name"),
        ({"fleet": "local:somewhere"}, "no other gateways"),
        ({**BOARDS, "first_id": 0}, "--first-id must be"),
        ({**BOARDS, "records": 0}, "--records must be"),
        ({**BOARDS, "budget": "many"}, "budget many"),
        ({**BOARDS, "clients": 1}, "without one"),
        ({"fleet": "port:/dev/null"}, "--store must name"),
    ],
)
def test_what_it_cannot_run(tmp_path, runs, why):
    with pytest.raises(UsageError, match=why):
        Running(tmp_path, runs).start()


@pytest.mark.parametrize(
    ("runs", "more"), [(SIMULATED, {"records": 1000}), (BOARDS, {"clients": 1})], ids=["simulated", "boards"]
)
def test_a_first_start_that_fails_can_be_corrected(running, tmp_path, runs, more):
    for wrong in ({"dataset": "nosuch"}, more):
        with pytest.raises(UsageError):
            Running(tmp_path / "site", {**runs, **wrong}).start()
    gateway = running(**runs)
    assert messages.decode(gateway.ask(Hello())).devices.tolist() == [*DEVICES]
    assert SiteFleet.of(tmp_path / "site", {}) == SiteFleet(**runs)


def test_a_later_start_finds_its_store_and_fleet_from_another_working_directory(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "here").touch()
    monkeypatch.chdir(tmp_path)
    first = SiteFleet.of(tmp_path / "site", {**BOARDS, "store": "own.sqlite"})
    first.save(tmp_path / "site")
    for name, whole in (
        ("mqtt:brokers/mine", f"mqtt:{tmp_path}/brokers/mine"),
        ("port:here,/dev/null,tcp://there:1", f"port:{tmp_path}/here,/dev/null,tcp://there:1"),
    ):
        assert SiteFleet.of(tmp_path / "other", {"fleet": name, "store": "own.sqlite"}).fleet == whole
    monkeypatch.chdir("elsewhere")
    assert SiteFleet.of(tmp_path / "site", {}).store == str(tmp_path / "own.sqlite")
    assert SiteFleet.of(tmp_path / "site", {"store": "../elsewhere/../own.sqlite"}) == first
    with pytest.raises(UsageError, match=r"begun with --store .*own.sqlite, not with .*elsewhere/own.sqlite"):
        SiteFleet.of(tmp_path / "site", {"store": "own.sqlite"})


def test_boards_that_have_lost_their_store_are_not_made_anew(running, tmp_path):
    """Their ledgers would be: what was paid could be spent again."""
    gateway = running(**BOARDS)
    gateway.ask(ask(3))
    gateway.stop()
    (tmp_path / "site" / "store.sqlite").unlink()
    paid = [path.read_bytes() for path in sorted((tmp_path / "site").glob("fleet/*/ledger/*"))]
    with pytest.raises(StorageError, match="has no keys of the boards in"):
        Running(tmp_path / "site", {}).start()
    assert [path.read_bytes() for path in sorted((tmp_path / "site").glob("fleet/*/ledger/*"))] == paid
    assert len(paid) == 10


@pytest.mark.parametrize("with_keys", [False, True])
def test_a_start_that_was_cut_off_goes_on(running, tmp_path, with_keys):
    running(**BOARDS).stop()
    site = tmp_path / "site"
    (site / "new").mkdir(exist_ok=True)
    (site / "fleet").rename(site / "new" / "fleet")
    if not with_keys:
        (site / "store.sqlite").unlink()
    gateway = running(**BOARDS)
    assert messages.decode(gateway.ask(Hello())).devices.tolist() == [*DEVICES]
    asked = ask(3)
    (told,) = check(messages.decode(gateway.ask(asked)), asked)
    assert told.reports == 10


@pytest.mark.parametrize("runs", [BOARDS, SIMULATED], ids=["boards", "simulated"])
def test_clients_that_share_records_are_told_of(tmp_path, runs):
    told = []
    for first in (126, 127):  # iris has 135 records for training
        gateway = Running(tmp_path / str(first), {**runs, "first_id": first}).start()
        gateway.stop()
        told.append(gateway.warnings)
    assert told[0] == []
    assert "records for 135 clients: those with ids from 136 to 136 hold again" in told[1][0]
