"""A gateway answers each question exactly once, even after a restart, and reveals only counts."""

import json
import math
import threading
from dataclasses import replace

import numpy as np
import pytest
from harness import kept
from harness.in_process import InProcessLink
from harness.running_gateways import Running
from harness.waiting import wait_for

from tern import card as cards
from tern import wire
from terngateway import messages
from terngateway.messages import Answer, Ask, Hello, Refused, Still, Taken
from terngateway.round import check_answer
from terngateway.site_fleet import SiteFleet, opened
from terngateway.tables import GatewayTables
from ternhost.count.batches import unpack
from ternhost.count.questions import Question, round_body
from ternhost.count.rounds import StoredCohort, StoredRound
from ternhost.errors import StorageError, TernError, UsageError
from ternhost.learn.collecting.estimate import supports
from ternhost.privacy.mechanisms import design
from ternhost.provision.boards import board_directories
from ternhost.reach import fleet
from ternhost.store.runs import ABANDONED
from ternhost.store.store import Store

MICRO = 10**6
CARD = design("three-outputs", 1).card
COST = cards.decode(CARD).epsilon
GRR = design("grr", levels=3, epsilon_micro=MICRO).card
LAPLACE = design("laplace", epsilon_micro=MICRO).card

GRADIENT = Question(wire.LOGISTIC, [100] * 5, -14, CARD, 1)  # of iris, with the constant
VECTOR = Question(wire.SOFTMAX, [1] * 15, -14, LAPLACE, 3, classes=3)
HASHED = Question(wire.CATEGORIES, [1] + [0] * 4, 0, GRR, 1, range=1)

DEVICES = range(21, 31)
SIMULATED = {"fleet": "simulated:10", "data": "iris", "ids": "21-30"}
BOARDS = {"fleet": "inprocess:2", "data": "iris", "ids": "21-30", "budget": "100"}
EACH_FLEET = pytest.mark.parametrize("fleet", [BOARDS, SIMULATED], ids=["boards", "simulated"])


class Site:
    """A site whose gateway each `start` starts anew."""

    def __init__(self, directory):
        directory.mkdir()
        self.directory = directory
        self.gateway = None

    def start(self, **options):
        """Start the gateway; without options, with those of gateway.json."""
        self.stop()
        self.gateway = Running(self.directory, options).start()

    def stop(self):
        if self.gateway is not None:
            self.gateway.stop()
            self.gateway = None

    def bytes_for(self, message):
        """The reply; to a question that may be held, the first that is not just progress."""
        reply = self.gateway.ask(message)
        while getattr(message, "hold", 0) and messages.kind_of(reply) == messages.STILL:
            reply = self.gateway.ask(message)  # on a busy machine
        return reply

    def ask(self, message):
        return messages.decode(self.bytes_for(message))

    def store(self, beside=True):
        """Its store. beside: the gateway runs."""
        return Store(self.directory / "store.sqlite", beside=beside)

    def spent(self):
        """The micro-epsilon that each device has spent."""
        return kept.spent(board_directories(self.directory, 2))

    def ended_rounds(self):
        with self.store() as store:
            return [(number, ended) for number, ended, _ in kept.ended_rounds(store)]

    def wait_until_open(self, number):
        """Wait until the gateway asks its devices in that round."""
        with self.store() as store:
            wait_for(lambda: number in [opened.number for opened in store.open_rounds()])


@pytest.fixture
def site(tmp_path):
    site = Site(tmp_path / "site")
    yield site
    site.stop()


@pytest.fixture
def mute(monkeypatch):
    """Boards say hello and never answer."""
    monkeypatch.setattr(InProcessLink, "send", lambda link, frame: None)


def ask(number, devices=DEVICES, question=GRADIENT, **fields):
    cohort = StoredCohort(round_body(number, question), np.array(devices, np.int64))
    return Ask(number, [cohort], **{"hold": 30.0, **fields})


def ask_singly(number, question, categories=0):
    """Asks for the answer of each device."""
    return ask(number, question=question, individual=True, categories=[categories])


def test_a_gateway_says_who_its_devices_are_and_what_they_may_spend(site):
    site.start(**BOARDS)
    here = site.ask(Hello())
    assert here.devices.tolist() == [*DEVICES]
    assert (here.fleet, here.last, here.single_results) == ("inprocess", 0, False)
    # One row, since both boards say the same: of epsilon 100 nothing is spent, by 10 devices.
    assert here.budgets == [(0, 0, 100 * MICRO, 0, 10)]


@EACH_FLEET
def test_a_repeated_question_gets_the_same_bytes_even_after_a_restart(site, fleet):
    site.start(**fleet)
    first = site.bytes_for(ask(number=3))
    assert site.bytes_for(ask(number=3)) == first
    site.start()
    assert site.bytes_for(ask(number=3)) == first
    (cohort,) = check_answer(messages.decode(first), ask(number=3))
    assert cohort.reports == len(DEVICES)


def test_each_device_pays_once_for_a_repeated_question(site):
    site.start(**BOARDS)
    for _ in range(2):
        site.ask(ask(number=3))
    site.start()
    site.ask(ask(number=3))
    assert site.spent() == dict.fromkeys(DEVICES, COST)


def test_a_refused_question_costs_nothing_and_leaves_its_number_free(site):
    site.start(**BOARDS)
    too_far_ahead = ask(wire.CLIENT_AHEAD + 1)  # of round 0, the last of this site
    to_a_stranger = ask(number=3, devices=[30, 31])
    for question in (too_far_ahead, to_a_stranger):
        assert isinstance(site.ask(question), Refused)
    assert isinstance(site.ask(ask(number=3)), Answer)
    assert site.spent() == dict.fromkeys(DEVICES, COST)


def test_a_question_that_contradicts_an_answered_one_is_refused(site):
    site.start(**SIMULATED)
    site.ask(ask(number=3))
    assert "another question" in site.ask(ask(number=3, devices=DEVICES[:4])).message
    assert "before round 3" in site.ask(ask(number=2)).message


def test_a_restarted_gateway_resumes_a_round_with_its_reports(site):
    question = ask(number=5)
    site.start(**BOARDS)
    first = site.bytes_for(question)
    site.stop()
    with site.store(beside=False) as store, store.transaction():
        # Back to the moment when four reports had arrived.
        (batch,) = store.report_batches(5)
        four_reports = replace(batch, devices=batch.devices[:4], packed=batch.packed[:4])
        store.write("DELETE FROM batch")
        store.add_reports([four_reports])
        reopen(store, question)

    site.start()

    assert site.bytes_for(question) == first, "the others send the same bytes again"
    assert site.spent() == dict.fromkeys(DEVICES, COST)


def reopen(store, question):
    """Forget that the round of a question has ended, as if the gateway had been killed in it."""
    store.write("UPDATE round SET ended = NULL")
    GatewayTables(store).save_question(question.number, question.digest, question.encode())


def test_a_restart_answers_the_last_question_and_abandons_rounds_before(site):
    site.start(**BOARDS)
    site.stop()
    with site.store(beside=False) as store:
        # As a kill leaves it between two questions.
        store.open_round(StoredRound(7, ask(number=7).cohorts, 10, None, "gateway"))
        for question in (ask(number=7), ask(number=8)):
            GatewayTables(store).save_question(question.number, question.digest, question.encode())

    site.start()
    assert site.ask(ask(number=8)).reports == [10]
    assert site.ended_rounds() == [(7, ABANDONED), (8, "complete")]


@pytest.mark.usefixtures("mute")
def test_a_later_question_ends_the_round_under_way(site):
    site.start(**BOARDS)
    assert site.ask(ask(number=6, hold=0.0)) == Still(6, 0)
    site.wait_until_open(6)
    assert site.ask(ask(number=7, deadline=0.3)).ended == "deadline"
    assert site.ended_rounds() == [(6, ABANDONED), (7, "deadline")]


@pytest.mark.usefixtures("mute")
def test_a_request_that_waits_for_an_abandoned_round_is_refused_at_once(site):
    site.start(**BOARDS)
    replies = []
    waiting = threading.Thread(target=lambda: replies.append(site.ask(ask(number=6))))
    waiting.start()
    site.wait_until_open(6)
    site.ask(ask(number=7, hold=0.0))
    waiting.join(20)  # less than the 30 seconds of its hold
    assert "given up for round 7" in replies[0].message


@EACH_FLEET
def test_no_message_ends_a_gateway(site, fleet):
    """Neither bytes that are no message of a host, nor questions that no device can answer."""
    site.start(**fleet)
    for payload in (b"", b"\1\2", b"\xff" * 100, Taken().encode()):
        assert isinstance(messages.decode(site.gateway.gateway.handle(payload)), Refused)

    too_wide = Question(wire.LOGISTIC, [100] * 60, -14, CARD, 60)
    of_no_column = Question(wire.VALUES, [0] * 40 + [1], 0, CARD, 1)
    wrong_k = replace(VECTOR, k=1)
    for number, question in enumerate((too_wide, of_no_column, wrong_k), start=2):
        reply = site.ask(ask(number, question=question, deadline=1.0))
        assert isinstance(reply, Refused) or not any(reply.reports)

    assert site.ask(ask(number=5)).reports == [10]


# What it reveals


def test_results_of_single_devices_need_the_consent_of_the_site(site):
    site.start(**SIMULATED)
    assert "--single-results" in site.ask(ask_singly(number=2, question=VECTOR)).hint
    site.start(single_results=True)
    question = ask_singly(number=3, question=VECTOR)
    (cohort,) = check_answer(site.ask(question), question)
    assert cohort.results.shape == (10, 3)
    assert cohort.results.tolist() == sorted(cohort.results.tolist()), "not in order of devices"


def test_hashed_answers_are_sent_as_supports_of_categories(site):
    number, levels, categories = 2, 3, 9
    site.start(**BOARDS)
    question = ask_singly(number, HASHED, categories=categories)

    (cohort,) = check_answer(site.ask(question), question)

    with site.store() as store:
        (batch,) = store.report_batches(number)
    symbols, _ = unpack(batch.packed, 1, levels)
    hashes = symbols[:, 0]
    expected = supports(batch.devices, hashes, number, levels, categories)
    assert cohort.results is None
    assert cohort.supports.tolist() == expected.tolist()


def test_no_reply_contains_a_key_or_a_report(site):
    site.start(**BOARDS)
    replies = b""
    for message in (Hello(), ask(number=3), ask(number=2), Hello()):
        replies += site.bytes_for(message)

    with site.store() as store:
        secrets = [*store.keys().values()]
    for _, account in kept.accounts(board_directories(site.directory, 2)):
        tag_of_report = bytes(account.report)[-wire.TAG_BYTES :]
        secrets.append(tag_of_report)
    assert len(secrets) == 2 * len(DEVICES)
    for secret in secrets:
        assert secret not in replies
        assert secret.hex().encode() not in replies


# Its fleet


def test_a_gateway_keeps_the_fleet_of_its_first_start(tmp_path):
    (tmp_path / "gateway.json").write_text('{"site": "north"}')
    SiteFleet.of(tmp_path, BOARDS).save(tmp_path)
    assert SiteFleet.of(tmp_path, {}) == SiteFleet(**BOARDS)
    assert SiteFleet.of(tmp_path, {"single_results": True}).single_results
    assert json.loads((tmp_path / "gateway.json").read_text())["site"] == "north"
    with pytest.raises(UsageError, match="--ids 21-30"):
        SiteFleet.of(tmp_path, {"ids": "1-10"})


def test_boards_without_their_store_are_not_replaced(site):
    """New ledgers would let clients spend their budgets again."""
    site.start(**BOARDS)
    site.ask(ask(number=3))
    site.stop()
    (site.directory / "store.sqlite").unlink()
    with pytest.raises(StorageError, match="has no keys of the boards in"):
        Running(site.directory, {}).start()
    assert site.spent() == dict.fromkeys(DEVICES, COST)


@pytest.mark.parametrize("with_keys", [False, True])
def test_an_interrupted_first_start_is_completed(site, with_keys):
    site.start(**BOARDS)
    site.stop()
    new = site.directory / "new"  # where boards are until the store has their keys
    new.mkdir(exist_ok=True)
    (site.directory / "fleet").rename(new / "fleet")
    if not with_keys:
        (site.directory / "store.sqlite").unlink()
    site.start(**BOARDS)
    assert site.ask(ask(number=3)).reports == [10]


# What its counts tell the owner of the server

CROWD = {**BOARDS, "ids": "21-60"}
EVERYBODY = range(21, 61)
# By the accountant, of a device at epsilon 1 and delta 1e-6, in micro-epsilon: after one round of
# 40 reports, and after two. A third would tell 1,425,300; one round of 20 reports tells 995,100.
AFTER_ONE, AFTER_TWO = 785_300, 1_144_580
NO_BOUND = [10**9, 1e-6, 1]


def set_bound(site, **members):
    (site.directory / "site.json").write_text(json.dumps(members))


def told(site):
    """The micro-epsilon at 1e-6 of the gateway's account, which its next HERE states, too."""
    with site.store() as store:
        micro = MICRO * GatewayTables(store).disclosures_of("").largest_loss(1e-6).epsilon
    wait_for(lambda: site.ask(Hello()).told == math.ceil(micro))
    return micro


def reason_to_hold_back(site, question):
    """Why the gateway answers this question with no counts, now and when it is repeated."""
    first = site.bytes_for(question)
    assert site.bytes_for(question) == first
    refused = messages.decode(first)
    assert isinstance(refused, Refused)
    assert refused.message.startswith("held back: ")
    return refused.message


def test_the_bound_of_the_site_holds_back_before_devices_are_asked(site):
    set_bound(site, toward_server=0.7, honest=0.9)
    site.start(**CROWD)
    assert site.ask(Hello()).toward_server == [700_000, 1e-6, 0.9]
    assert "of these 40 only 36" in reason_to_hold_back(site, ask(number=2, devices=EVERYBODY))
    assert not any(site.spent().values()), "nobody pays"
    assert told(site) == 0


def test_the_bound_of_the_question_holds_back_where_that_of_the_site_would_not(site):
    set_bound(site, toward_server=1000, delta=1e-9)
    site.start(**CROWD)
    question = ask(number=2, devices=EVERYBODY, toward_server=[700_000, 1e-6, 0.9])
    first = reason_to_hold_back(site, question)
    site.start()
    assert reason_to_hold_back(site, question) == first, "after a restart"
    assert not any(site.spent().values())


def test_counts_of_too_few_reports_are_held_back_after_devices_have_paid(site, monkeypatch):
    set_bound(site, toward_server=0.96)  # 40 reports keep it, 20 do not
    site.start(**CROWD)
    _, deaf_board = board_directories(site.directory, 2)
    send = InProcessLink.send

    def send_to_the_other_board(link, frame):
        if not link.name.endswith(deaf_board.name):
            send(link, frame)

    reports_of_one_board = 0.5
    question = ask(number=2, devices=EVERYBODY, quorum=reports_of_one_board)
    with monkeypatch.context() as patch:
        patch.setattr(InProcessLink, "send", send_to_the_other_board)
        first_reason = reason_to_hold_back(site, question)

    assert sorted(site.spent().values()) == [0] * 20 + [COST] * 20
    assert told(site) == 0
    site.start()
    assert reason_to_hold_back(site, question) == first_reason, "after a restart, too"


def test_a_round_is_in_the_account_once_whenever_the_gateway_is_killed(site):
    site.start(**CROWD)
    question = ask(number=2, devices=EVERYBODY)
    first = site.bytes_for(question)
    site.stop()
    with site.store(beside=False) as store, store.transaction():
        # As a kill leaves it after the last report: the answer and its loss are one transaction.
        store.write("DELETE FROM told")
        reopen(store, question)
    site.start()
    assert site.bytes_for(question) == first
    assert told(site) == pytest.approx(AFTER_ONE, rel=1e-4)


def test_the_account_lasts_through_restarts_and_holds_later_rounds_back(site):
    set_bound(site, toward_server=1.4)  # two rounds keep it, three would not
    site.start(**CROWD)
    for number in (2, 3):
        assert isinstance(site.ask(ask(number, EVERYBODY)), Answer)

    site.start()

    assert told(site) == pytest.approx(AFTER_TWO, rel=1e-4)
    reason = reason_to_hold_back(site, ask(number=4, devices=EVERYBODY, toward_server=NO_BOUND))
    assert "of this round and of those before it could tell" in reason
    assert site.spent() == dict.fromkeys(EVERYBODY, 2 * COST), "nobody was asked again"


def test_a_question_that_is_abandoned_tells_nothing(site, monkeypatch):
    site.start(**CROWD)
    with monkeypatch.context() as patch:
        patch.setattr(InProcessLink, "send", lambda link, frame: None)
        site.ask(ask(number=2, devices=EVERYBODY, hold=0.0))
        site.wait_until_open(2)
        assert site.ask(ask(number=3, devices=EVERYBODY, deadline=0.1)).reports == [0]
    assert told(site) == 0


@pytest.mark.parametrize(
    "content",
    [
        pytest.param('{"toward_server": 1, "dleta": 1e-6}', id="a misspelt member"),
        pytest.param('{"toward_server": 1, "honest": 0}', id="nobody honest"),
        pytest.param("{", id="no JSON"),
    ],
)
def test_a_broken_bound_of_a_site_ends_its_gateway_before_it_starts(tmp_path, content):
    (tmp_path / "site.json").write_text(content)
    with pytest.raises(TernError, match=r"site\.json"):
        Running(tmp_path, BOARDS).start()
    assert [path.name for path in tmp_path.iterdir()] == ["site.json"]


@pytest.fixture
def homes(tmp_path):
    """A table of three homes, with 10, 11 and 12 records, all of them for training but a few."""
    lines = ["home,number,label"]
    for place, home in enumerate(("B3", "A1", "C2")):
        lines += [f"{home},{place},{moment % 2}" for moment in range(10 + place)]
    path = tmp_path / "homes.csv"
    path.write_text("\n".join(lines) + "\n")
    schema = """label = "label"
        device = "home"
        [columns.number]
        low = 0
        high = 2
        [columns.label]
        categories = ["0", "1"]
        """
    path.with_suffix(".toml").write_text(schema)
    return str(path)


def test_the_clients_of_a_site_are_the_devices_that_a_table_names(homes):
    runs = SiteFleet(fleet="emulated:2", data=homes)
    assert runs.client_ids(fleet.parse(runs.fleet)) == range(1, 4)
    for client, number in enumerate([-16384, 0, 16384]):
        (rows,) = runs.holdings().rows([client])
        assert set(rows[:, 1].tolist()) == {number}


def test_a_client_beyond_the_devices_that_a_table_names_is_refused(homes, tmp_path):
    runs = SiteFleet(fleet="simulated:2", data=homes, ids="3-4")
    with pytest.raises(UsageError, match="3 devices"), opened(tmp_path / "site", runs):
        pass


def test_the_table_of_a_site_is_found_from_any_directory(homes, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    site = tmp_path / "site"
    SiteFleet.of(site, {"fleet": "simulated:2", "data": "homes.csv"}).save(site)
    assert SiteFleet.of(site, {}).data == homes
