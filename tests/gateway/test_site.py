"""A gateway answers each question exactly once, even after a restart, and reveals only counts."""

import json
import math
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
from terngateway import messages
from terngateway.messages import Answer, Ask, Hello, Here, Model, Refused, Still, Taken
from terngateway.round import check
from terngateway.site_fleet import SiteFleet, opened
from terngateway.tables import GatewayTables
from ternhost.count.batches import unpack
from ternhost.count.questions import Averaged, Question, round_body
from ternhost.count.rounds import StoredCohort, StoredRound
from ternhost.errors import StorageError, TernError, UsageError
from ternhost.learn.estimate import supports
from ternhost.privacy.mechanisms import design
from ternhost.provision.boards import board_directories
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
VECTOR = Question(
    wire.SOFTMAX, [1] * 15, -14, design("laplace", epsilon_micro=10**6).card, 3, classes=3
)


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
    cohort = StoredCohort(round_body(number, question), np.array(devices, np.int64))
    return Ask(number, [cohort], hold=hold, **fields)


def boards(gateway):
    return board_directories(gateway.directory, 2)


@pytest.mark.parametrize("runs", [BOARDS, SIMULATED], ids=["boards", "simulated"])
def test_the_same_question_has_the_same_answer_byte_for_byte(running, runs, tmp_path):
    gateway = running(**runs)
    here = messages.decode(gateway.ask(Hello()))
    assert isinstance(here, Here)
    assert here.devices.tolist() == [*DEVICES]
    # Both boards say the same: epsilon 100 is left, nothing is spent.
    kind, budgets = (
        ("inprocess", [(0, 0, 100_000_000, 0, 10)]) if runs is BOARDS else ("simulated", [])
    )
    assert (here.last, here.fleet, here.budgets, here.single_results) == (0, kind, budgets, False)
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
    with Store(
        tmp_path / "site" / "store.sqlite"
    ) as store:  # as it is left by a kill at that moment
        GatewayTables(store).save_question(4, question.digest, question.encode())
    gateway = running()
    answer = wait_for(
        lambda: (
            not isinstance(reply := messages.decode(gateway.ask(ask(4, hold=0.0))), Still) and reply
        )
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
            GatewayTables(store).save_question(5, question.digest, question.encode())
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
        assert [ended[:2] for ended in kept.ended_rounds(store)] == [
            (6, ABANDONED),
            (7, "deadline"),
        ]


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
    with Store(
        tmp_path / "site" / "store.sqlite"
    ) as store:  # as it is left by a kill at that moment
        store.open_round(StoredRound(7, ask(7).cohorts, 10, None, "gateway"))
        for question in (ask(7), ask(8)):
            GatewayTables(store).save_question(question.number, question.digest, question.encode())
    assert messages.decode(running().ask(ask(8))).reports == [10]
    with Store(tmp_path / "site" / "store.sqlite", beside=True) as store:
        assert [ended[:2] for ended in kept.ended_rounds(store)] == [
            (7, ABANDONED),
            (8, "complete"),
        ]


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
    tags = [
        bytes(account.report)[-wire.TAG_BYTES :] for _, account in kept.accounts(boards(gateway))
    ]
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
    ("runs", "more"),
    [(SIMULATED, {"records": 1000}), (BOARDS, {"clients": 1})],
    ids=["simulated", "boards"],
)
def test_a_first_start_that_fails_can_be_corrected(running, tmp_path, runs, more):
    for wrong in ({"dataset": "nosuch"}, more):
        with pytest.raises(UsageError):
            Running(tmp_path / "site", {**runs, **wrong}).start()
    assert messages.decode(running(**runs).ask(Hello())).devices.tolist() == [*DEVICES]
    assert SiteFleet.of(tmp_path / "site", {}) == SiteFleet(**runs)


def test_a_later_start_finds_its_store_and_fleet_from_another_working_directory(
    tmp_path, monkeypatch
):
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
    with pytest.raises(
        UsageError, match=r"begun with --store .*own.sqlite, not with .*elsewhere/own.sqlite"
    ):
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
    assert {
        path: path.read_bytes() for path in (tmp_path / "site").glob("fleet/*/ledger/*")
    } == before
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


# What its counts tell the owner of the server

CROWD = {**BOARDS, "clients": 40}
EVERYBODY = range(21, 61)
# Of a device, at epsilon 1 and delta 1e-6: after one, two and three rounds of 40 reports; 20
# reports tell 0.9951.
TOLD = [785_300, 1_144_580, 1_425_300]


def told(gateway):
    """What the gateway's account says, micro-epsilon at 1e-6, which its next HERE says, too."""
    with Store(gateway.directory / "store.sqlite", beside=True) as store:
        found = 1e6 * GatewayTables(store).told("").largest_loss(1e-6).epsilon
    wait_for(lambda: messages.decode(gateway.ask(Hello())).told == math.ceil(found))
    return found


def held_back(gateway, question, *words):
    """Assert that the gateway refuses this question with these words, always alike; nobody is told
    anything.
    """
    first = gateway.ask(question)
    assert gateway.ask(question) == first
    refused = messages.decode(first)
    assert isinstance(refused, Refused)
    assert refused.message.startswith("held back: ")
    assert all(each in refused.message for each in words)
    assert refused.hint == "it takes more devices at a site, a smaller epsilon, or fewer rounds"
    return first


@pytest.fixture
def bounded(tmp_path):
    """Sets the bound of the site."""
    return lambda **members: (tmp_path / "site" / "site.json").write_text(json.dumps(members))


@pytest.mark.parametrize("whose", ["site", "question"])
def test_what_would_tell_too_much_is_held_back_before_devices_are_asked(running, bounded, whose):
    own = {"toward_server": 0.7, "honest": 0.9}
    bound = [700_000, 1e-6, 0.9]
    bounded(**own if whose == "site" else {"toward_server": 1000, "delta": 1e-9})
    gateway = running(**CROWD)
    here = messages.decode(gateway.ask(Hello()))
    assert here.toward_server == (bound if whose == "site" else [1_000_000_000, 1e-9, 1])
    for number in (2, 3):
        question = ask(number, EVERYBODY, toward_server=None if whose == "site" else bound)
        words = (
            "more about a device than epsilon 0.7 at",
            "to hide a report of epsilon 1, and of these 40 only 36",
        )
        first = held_back(gateway, question, *words)
    assert not any(kept.spent(boards(gateway)).values()), "nobody pays"
    assert told(gateway) == 0
    (warning,) = gateway.warnings
    assert warning.startswith("round 2: held back")
    gateway = running()
    assert gateway.ask(question) == first
    few = [ask(4, [device], toward_server=question.toward_server) for device in EVERYBODY[:2]]
    held_back(gateway, few[0], "and there are 1")
    assert not any(kept.spent(boards(gateway)).values())


def test_counts_of_too_few_reports_are_held_back_after_devices_have_paid(
    running, bounded, monkeypatch
):
    bounded(toward_server=0.96)
    gateway = running(**CROWD)
    deaf, send = boards(gateway)[1].name, InProcessLink.send

    def only_one_board(link, frame):
        if not link.name.endswith(deaf):
            send(link, frame)

    with monkeypatch.context() as patch:
        patch.setattr(InProcessLink, "send", only_one_board)
        question = ask(2, EVERYBODY, deadline=0.5)
        first = held_back(gateway, question, "than epsilon 0.96", "and there are 20")
    assert sum(spent == COST for spent in kept.spent(boards(gateway)).values()) == 20
    assert told(gateway) == 0
    gateway = running()
    assert gateway.ask(question) == first
    assert messages.decode(gateway.ask(ask(3, EVERYBODY))).reports == [40]
    assert told(gateway) == pytest.approx(TOLD[0], rel=1e-4)


@pytest.mark.usefixtures("mute")
def test_devices_that_do_not_report_tell_nothing(running, bounded):
    bounded(toward_server=0.96)
    gateway = running(**CROWD)
    assert messages.decode(gateway.ask(ask(2, EVERYBODY, deadline=0.1))).reports == [0]
    assert told(gateway) == 0


def test_the_account_of_a_gateway_lasts_through_kills(running, bounded, tmp_path):
    bounded(toward_server=1.4)
    gateway, question = running(**CROWD), ask(2, EVERYBODY)
    first = gateway.ask(question)
    assert told(gateway) == pytest.approx(TOLD[0], rel=1e-4)
    gateway.stop()
    with Store(tmp_path / "site" / "store.sqlite") as store, store.transaction():
        # As it is left by a kill after the last report, before the answer: these are one
        # transaction.
        store._db.execute("UPDATE round SET ended = NULL")
        store._db.execute("DELETE FROM told")
        GatewayTables(store).save_question(2, question.digest, question.encode())
    gateway = running()
    assert gateway.ask(question) == first
    assert told(gateway) == pytest.approx(TOLD[0], rel=1e-4)
    assert isinstance(messages.decode(gateway.ask(ask(3, EVERYBODY))), Answer)
    assert told(gateway) == pytest.approx(TOLD[1], rel=1e-4)
    gateway = running()
    assert told(gateway) == pytest.approx(TOLD[1], rel=1e-4)
    for number, devices in ((4, EVERYBODY), (5, EVERYBODY[:20])):  # no other bound, no other cohort
        question = ask(number, devices, toward_server=[10**9, 1e-6, 1])
        held_back(gateway, question, "of this round and of those before it could tell")
    assert kept.spent(boards(gateway)) == dict.fromkeys(EVERYBODY, 2 * COST)
    assert told(gateway) == pytest.approx(TOLD[1], rel=1e-4)


def test_a_question_that_is_abandoned_tells_nothing(running, monkeypatch):
    gateway = running(**CROWD)
    with monkeypatch.context() as patch:
        patch.setattr(InProcessLink, "send", lambda link, frame: None)
        gateway.ask(ask(2, EVERYBODY, hold=0.0))
        until_open(gateway, 2)
        assert messages.decode(gateway.ask(ask(3, EVERYBODY, deadline=0.1))).reports == [0]
    assert told(gateway) == 0
    assert messages.decode(gateway.ask(ask(4, EVERYBODY))).reports == [40]
    assert told(gateway) == pytest.approx(TOLD[0], rel=1e-4)


def test_cohorts_of_single_devices_and_hashes_are_told_as_local_reports(running):
    gateway = running(**BOARDS)
    single = replace(ask(2), cohorts=[ask(2, [device]).cohorts[0] for device in DEVICES])
    assert messages.decode(gateway.ask(single)).reports == [1] * 10
    assert told(gateway) == pytest.approx(10**6, rel=1e-6)
    hashed = Question(wire.CATEGORIES, [1] + [0] * 4, 0, GRR, 1, range=1)
    assert (
        sum(
            messages.decode(
                gateway.ask(ask(3, question=hashed, individual=True, categories=[9]))
            ).reports
        )
        == 10
    )
    assert told(gateway) == pytest.approx(2 * 10**6, rel=1e-6)
    held_back(
        gateway,
        ask(4, question=hashed, toward_server=[900_000, 1e-6, 1]),
        "no number of devices is enough",
    )


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('{"toward_server": 1, "dleta": 1e-6}', "unknown dleta"),
        ("{}", "toward-server None is not a number"),
        ('{"toward_server": null}', "None"),
        ('{"toward_server": 0}', "0"),
        ('{"toward_server": 1, "delta": 1}', "delta"),
        ('{"toward_server": 1, "delta": "x"}', "delta"),
        ('{"toward_server": 1, "honest": 0}', "--honest must be"),
        ('{"toward_server": 1, "honest": "most"}', "most"),
        ('{"toward_server": 1, "honest": null}', "float"),
        ("[1]", "site.json"),
        ("{", "site.json"),
    ],
)
def test_a_broken_bound_of_a_site_ends_its_gateway_before_it_starts(tmp_path, content, reason):
    (tmp_path / "site.json").write_text(content)
    with pytest.raises(TernError, match=reason) as problem:
        Running(tmp_path, BOARDS).start()
    assert "site.json" in problem.value.message
    assert [path.name for path in tmp_path.iterdir()] == ["site.json"]


# Its store


def test_a_gateway_runs_once_whatever_its_directory_is_called(tmp_path):
    linked = tmp_path / "linked"
    linked.symlink_to(tmp_path / "site", target_is_directory=True)
    runs = SiteFleet(fleet="simulated:3", dataset="iris")
    with (
        opened(tmp_path / "site", runs),
        pytest.raises(StorageError, match="locked"),
        opened(linked, runs),
    ):
        pass


def test_two_sites_do_not_share_a_store_by_a_link(tmp_path):
    shared = tmp_path / "shared.sqlite"
    other = tmp_path / "other.sqlite"
    other.symlink_to(shared)
    with opened(tmp_path / "a", SiteFleet(fleet="simulated:3", dataset="iris", store=str(shared))):
        beside = SiteFleet(fleet="simulated:3", dataset="iris", store=str(other))
        with pytest.raises(StorageError, match="locked"), opened(tmp_path / "b", beside):
            pass
