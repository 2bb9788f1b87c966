"""The driver of gateways: each answer counts once, even if hosts or gateways die, lie or stay away."""

import json
import threading
import time
from array import array
from dataclasses import replace

import harness.in_process  # noqa: F401 - its fleet
import numpy as np
import pytest
from harness.running_gateways import gateways
from harness.waiting import wait_for

from tern import card as cards
from tern import wire
from tern.ledger import EPSILON
from terngateway import driver as driving
from terngateway import messages
from terngateway.bound import Bound
from terngateway.driver import GatewaysDriver
from terngateway.messages import ANSWER, ASK, HERE, Still
from terngateway.nats import NatsPost
from terngateway.nats.directories import write_gateways
from terngateway.site_fleet import SiteFleet
from ternhost.count.questions import Averaged, Question
from ternhost.errors import DeviceError, RefusedError, UsageError
from ternhost.learn.schedule import Terms
from ternhost.privacy.mechanisms import design
from ternhost.privacy.sums import SumPlan
from ternhost.privacy.sums import design as sum_design
from ternhost.reach import fleet
from ternhost.reach.broker.mosquitto import free_port
from ternhost.reach.ports.driver import BoardsDriver
from ternhost.reach.refusals import AllRefused
from ternhost.reach.simulated.driver import SimulatedDriver
from ternhost.run import costs
from ternhost.store.store import Store
from ternhost.store.tallies import pack_counts

WEIGHTS = 5
CARD = design("three-outputs", 1).card
COST = cards.decode(CARD).epsilon
QUESTION = Question(wire.LOGISTIC, array("h", [100] * WEIGHTS), -14, CARD, 1)
DEARER = replace(QUESTION, card=design("three-outputs", 2).card)

NORTH = {"north": {"fleet": "simulated:20", "data": "iris", "ids": "1-20"}}
SOUTH = {"south": {"fleet": "simulated:30", "data": "iris", "ids": "101-130"}}
SITES = {**NORTH, **SOUTH}
DEVICES = [*range(1, 21), *range(101, 131)]  # 20 of north and 30 of south
BOARDS = {
    "boards": {
        "fleet": "inprocess:1",
        "data": "iris",
        "ids": "201-206",
        "budget": "1",  # one report of QUESTION
    }
}


class Host:
    """A store at a server, and drivers over it, one after the other."""

    def __init__(self, place, store):
        self.sites = place / "sites"
        self.sites.mkdir()
        self.store = store
        self.warnings = []

    def driver(self, post=NatsPost, quorum=1.0, **options):
        terms = Terms(quorum=quorum, deadline=60.0)
        options["warn"] = self.warnings.append
        return GatewaysDriver(self.store, post(self.sites), terms, **options)

    def round(self, driver, number, devices=DEVICES, question=QUESTION, **on_progress):
        driver.open(number, [(question, devices)])
        result = driver.collect(number, **on_progress)
        self.store.end_round(number, result.ended)
        return result

    def is_warned(self, text):
        return any(text in warning for warning in self.warnings)


@pytest.fixture
def host(tmp_path, store):
    return Host(tmp_path, store)


def direct_counts(number, sites=SITES, question=QUESTION):
    """The counts (coordinates x symbols) of these simulated clients, without any gateway."""
    total = 0
    for options in sites.values():
        site = SiteFleet(**options)
        ids = site.client_ids(fleet.parse(site.fleet))
        seed = site.seed + (ids.start << 32)
        driver = SimulatedDriver(site.holdings(), len(ids), seed, first=ids.start)
        driver.open(number, [(question, np.asarray(driver.devices))])
        total += driver.collect(number).cohorts[0].counts
    return total.tolist()


def questions_to(gateway):
    """How many questions a gateway was sent."""
    return [messages.kind_of(payload) for payload in gateway.asked].count(ASK)


# What counts

A_SUM = sum_design(
    SumPlan(cost=500_000, unit=1, radius=0.5, clipped=24, kept=-8, units=1, values=WEIGHTS + 1)
)
SUM = replace(QUESTION, card=A_SUM.card, k=WEIGHTS + 1, range=A_SUM.range)


@pytest.mark.parametrize("question", [QUESTION, SUM], ids=["gradient", "sum"])
def test_counts_are_the_sum_over_the_gateways(host, question):
    with gateways(host.sites, SITES) as sites, host.driver() as driver:
        assert np.asarray(driver.devices).tolist() == DEVICES
        result = host.round(driver, number=3, question=question)
        assert [questions_to(site) for site in sites.values()] == [1, 1]
    (cohort,) = result.cohorts
    assert (result.ended, cohort.asked, cohort.reports) == ("complete", 50, 50)
    assert cohort.counts.tolist() == direct_counts(3, question=question)


def test_what_devices_have_spent_follows_from_the_rounds_that_gateways_were_asked(host):
    asked_twice, asked_once = DEVICES[:7], DEVICES[7:]
    with gateways(host.sites, SITES), host.driver(run="first") as driver:
        host.round(driver, number=1)
        host.round(driver, number=2, devices=asked_twice, question=DEARER)  # at twice the epsilon

    disclosures = costs.earlier_disclosures(host.store, "another run")

    spent_twice = costs.spent(disclosures.report_counts(of=asked_twice), EPSILON)
    spent_once = costs.spent(disclosures.report_counts(of=asked_once), EPSILON)
    assert spent_twice == pytest.approx(COST + 2 * COST, abs=2)  # micro-epsilon, by rounding
    assert spent_once == pytest.approx(COST, abs=2)
    assert not costs.earlier_disclosures(host.store, "first"), "its own are no earlier ones"


def test_gateways_get_the_model(host):
    with gateways(host.sites, SITES) as sites, host.driver() as driver:
        host.round(driver, number=1)
        driver.publish(Averaged(1, [1] * WEIGHTS, -14))
        for site in sites.values():
            assert messages.MODEL in [messages.kind_of(payload) for payload in site.asked]
    assert host.warnings == []


def test_a_gateway_gives_its_devices_a_model_and_limits(host, monkeypatch):
    published = []

    def publish(driver, averaged):
        published.append(averaged.model)

    monkeypatch.setattr(BoardsDriver, "publish", publish)
    with gateways(host.sites, BOARDS), host.driver() as driver:
        host.round(driver, number=1, devices=list(range(201, 207)))
        driver.publish(Averaged(wire.LINEAR, [1] * WEIGHTS, -14))
        driver.publish(Averaged(wire.LIMITS, [1] * WEIGHTS, wire.LIMITS_EXPONENT))
        wait_for(lambda: sorted(published) == [wire.LINEAR, wire.LIMITS])


class Twice(NatsPost):
    """Delivers every message twice."""

    def send(self, site, payload):
        super().send(site, payload)
        super().send(site, payload)


def test_messages_delivered_twice_count_once(host):
    with gateways(host.sites, SITES) as sites, host.driver(Twice) as driver:
        result = host.round(driver, number=1)
        assert questions_to(sites["south"]) >= 2
    assert result.reports == 50
    assert result.cohorts[0].counts.tolist() == direct_counts(1)


def test_a_restarted_host_does_not_ask_a_gateway_that_has_answered(host):
    number = 5
    reports_of_north, progress_of_south = 20, 9
    south_answers = threading.Event()

    def late(handle, payload):
        if messages.kind_of(payload) == ASK and not south_answers.is_set():
            return Still(number, progress_of_south).encode()
        return handle(payload)

    with gateways(host.sites, SITES, {"south": late}) as sites:
        with host.driver() as driver:
            driver.open(number, [(QUESTION, DEVICES)])

            def stop_when_north_has_answered(progress):
                if progress.reports == reports_of_north + progress_of_south:
                    driver.stop()

            assert driver.collect(number, stop_when_north_has_answered) is None

        sites["north"].asked.clear()
        south_answers.set()
        with host.driver() as driver:
            assert driver.resume() == [number]
            (cohort,) = driver.collect(number).cohorts
        assert questions_to(sites["north"]) == 0

    assert cohort.counts.tolist() == direct_counts(number)


# Gateways that lie, fail or are lost


def altered(kind, **fields):
    """A handler that changes these fields of a gateway's replies of a kind."""

    def handler(handle, payload):
        reply = handle(payload)
        if messages.kind_of(reply) == kind:
            reply = replace(messages.decode(reply), **fields).encode()
        return reply

    return handler


def never_answers(handle, payload):
    """A handler that answers every question by Still: reports are missing."""
    if messages.kind_of(payload) != ASK:
        return handle(payload)
    return Still(messages.decode(payload).number, 0).encode()


def test_the_round_goes_on_without_a_gateway_that_lies(host):
    more_than_its_devices = altered(ANSWER, refusals=(), reports=[31])
    with gateways(host.sites, SITES, {"south": more_than_its_devices}), host.driver() as driver:
        result = host.round(driver, number=2)
    assert (result.asked, result.reports) == (50, 20)
    assert result.cohorts[0].counts.tolist() == direct_counts(2, NORTH)
    (warning,) = host.warnings
    assert "gateway south" in warning
    assert "goes on without it" in warning


class Clock:
    """The driver's clock, which jumps past every deadline once the 20 devices of north answered.

    So deadlines do not depend on how busy the machine is.
    """

    def __init__(self):
        self._ahead = 0.0

    def monotonic(self):
        return time.monotonic() + self._ahead

    def jump(self):
        self._ahead += 1000.0

    def jump_after_north(self, progress):
        if progress.reports == 20:
            self.jump()


@pytest.fixture
def clock(monkeypatch):
    jumping = Clock()
    monkeypatch.setattr(driving, "time", jumping)
    return jumping


def wait_until(driver, condition):
    """Have the driver wait until the condition holds."""
    wait_for(lambda: driver.wait(0.1) or condition())


@pytest.mark.slow
def test_a_lost_gateway_is_left_out_until_it_returns(host, clock):
    with gateways(host.sites, NORTH), host.driver() as driver:
        with gateways(host.sites, SOUTH):
            wait_until(driver, lambda: len(driver.devices) == 50)
        result = host.round(driver, number=2, on_progress=clock.jump_after_north)
        assert (result.ended, result.reports) == ("deadline", 20)
        assert host.is_warned("south has not answered, and is left out with its 30 devices")
        assert host.round(driver, number=3).reports == 20, "nobody waits for it any more"
        host.warnings.clear()
        with gateways(host.sites, SOUTH):
            wait_until(driver, lambda: host.is_warned("gateway south is back"))
            assert host.round(driver, number=4).reports == 50


def test_a_gateway_that_never_answers_delays_two_rounds_at_most(host, clock):
    """It greets the host again after the first round, and is asked in the second."""
    with gateways(host.sites, SITES, {"south": never_answers}), host.driver() as driver:
        host.round(driver, number=1, on_progress=clock.jump_after_north)
        clock.jump()
        wait_until(driver, lambda: host.is_warned("gateway south is back"))
        for number in (2, 3, 4):
            host.round(driver, number, on_progress=clock.jump_after_north)
            clock.jump()
            driver.wait(0.1)

    delayed_rounds = []
    for warning in host.warnings:
        if "is left out" in warning:
            delayed_rounds.append(warning.partition(":")[0])
    assert delayed_rounds == ["round 1", "round 2"]


def test_a_host_without_gateways_gives_up_with_an_error(host, monkeypatch):
    monkeypatch.setattr(driving, "GREETING", 0.3)
    monkeypatch.setattr(driving, "MOST_GREETING", 0.5)
    write_gateways(host.sites, ["north"], port=free_port())
    with pytest.raises(DeviceError, match="no gateway answers"), host.driver():
        pass


# Which devices and rounds are a gateway's


@pytest.mark.parametrize(
    "others",
    [{"south": range(101, 130)}, {"west": range(130, 140)}],
    ids=["beyond its own ids", "within another's"],
)
def test_a_gateway_with_devices_registered_elsewhere_is_left_out(host, others):
    registered = {"north": range(1, 21), **others}
    with gateways(host.sites, SITES), host.driver(registered=lambda: registered) as driver:
        assert np.asarray(driver.devices).tolist() == DEVICES[:20]
    assert host.is_warned("gateway south has device 130")


def test_two_gateways_with_one_device_are_refused_by_their_names(host):
    both = {**NORTH, "south": {**SITES["south"], "ids": "15-44"}}
    with gateways(host.sites, both), pytest.raises(UsageError) as problem, host.driver():
        pass
    assert {"north", "south", "15"} <= set(problem.value.message.split())


def test_round_numbers_continue_after_the_last_round_of_every_gateway(host):
    with gateways(host.sites, SITES):
        with Store(host.sites / "another.sqlite") as other_store:
            other_host = GatewaysDriver(other_store, NatsPost(host.sites), Terms())
            with other_host:
                other_host.open(40, [(QUESTION, DEVICES)])
                other_host.collect(40)

        with host.driver() as driver:
            next_number = driver.next_round(1)
            assert next_number == 41
            assert host.round(driver, next_number).reports == len(DEVICES)

    (warning,) = host.warnings
    assert warning.startswith("gateways were asked round 40, but this store knows of none")


def test_a_gateway_that_claims_an_impossibly_late_round_is_not_believed(host):
    last = wire.FLEET_AHEAD + 1  # devices refuse to go so far at once
    with gateways(host.sites, SITES, {"south": altered(HERE, last=last)}), host.driver() as driver:
        assert driver.next_round(1) == 1
    assert host.is_warned(f"--after-round {last}")


# Budgets


def test_refusals_are_counted_by_reason(host):
    of_north, of_boards = DEVICES[:20], list(range(201, 207))  # boards can pay for one report
    with gateways(host.sites, {**NORTH, **BOARDS}), host.driver() as driver:
        assert host.round(driver, number=1, devices=of_north + of_boards).reports == 26

        second = host.round(driver, number=2, devices=of_north + of_boards)

        assert second.reports == len(of_north)
        assert len(second.refusals) == len(of_boards)
        assert len(second.reasons) == 1
        assert host.is_warned("6 of 26 devices refuse: their budget is spent")
        with pytest.raises(AllRefused, match="budget is spent"):
            host.round(driver, number=3, devices=of_boards)


def test_devices_of_gateways_that_all_refused_have_told_nothing(host):
    with gateways(host.sites, BOARDS), host.driver(run="refused") as driver:
        driver.open(1, [(DEARER, range(201, 207))])
        with pytest.raises(AllRefused, match="more than they allow"):
            driver.collect(1)
    host.store.end_round(1, "abandoned")  # as a run that is taken back ends it
    assert not costs.earlier_disclosures(host.store, "another")


# A bound on what counts tell the owner of the server

BOUND = Bound(1_000_000)  # 20 reports of epsilon 1 tell 0.9951, 30 tell 0.9029; two rounds too much
EARLIER_ROUNDS = "of this round and of those before it"


def reports_told(store, name):
    """How many reports of a gateway hide one another, for each cohort whose counts are told."""
    rows = store.rows("SELECT report FROM told WHERE gateway = ? ORDER BY round, position", name)
    return [json.loads(row)["mixed"] for (row,) in rows]


def test_a_question_tells_as_if_all_reported_until_there_is_an_answer(host):
    told_before_the_answer = []
    counts_of_seven = np.zeros((WEIGHTS, 3), np.int64)  # all about weight 0, with symbol 1
    counts_of_seven[0, 1] = 7

    def answer_of_seven(handle, payload):
        if messages.kind_of(payload) != ASK:
            return handle(payload)
        with Store(host.store.path, beside=True) as store:
            told_before_the_answer.extend(reports_told(store, "south"))
        answer = messages.decode(handle(payload))
        return replace(answer, reports=[7], counts=[pack_counts(counts_of_seven)]).encode()

    with gateways(host.sites, SITES, {"south": answer_of_seven}), host.driver() as driver:
        assert host.round(driver, number=1).reports == 20 + 7

    assert told_before_the_answer == [30], "all devices of south"
    assert reports_told(host.store, "south") == [7]


def test_a_site_that_holds_its_counts_back_has_told_nothing(host):
    only_south_keeps = Bound(700_000, 0.001)  # 30 reports hide a device well enough, 20 do not
    with gateways(host.sites, SITES), host.driver(bound=only_south_keeps) as driver:
        assert host.round(driver, number=1).reports == 30
        with pytest.raises(AllRefused, match="gateway north refuses: held back") as refused:
            host.round(driver, number=2, devices=DEVICES[:20])
    assert "more devices" in refused.value.hint
    assert reports_told(host.store, "north") == []
    assert reports_told(host.store, "south") == [30]


def test_a_site_whose_bound_is_spent_is_not_asked(host):
    with gateways(host.sites, SITES) as sites, host.driver(bound=BOUND) as driver:
        assert host.round(driver, number=1, devices=DEVICES[20:]).reports == 30
        assert host.round(driver, number=2).reports == 20
        assert host.is_warned("round 2: gateway south is left out: the counts")
        with pytest.raises(RefusedError, match=EARLIER_ROUNDS):
            driver.open(3, [(QUESTION, DEVICES)])
        assert [stored.number for stored in host.store.rounds()] == [1, 2]
        assert [questions_to(site) for site in sites.values()] == [1, 1]


def test_a_host_that_forgot_what_it_was_told_is_refused_by_the_sites(host):
    """Sites keep their own account: a new store at the host does not let it ask once more."""
    with gateways(host.sites, SITES):
        with host.driver(bound=BOUND) as driver:
            host.round(driver, number=1)  # north has told epsilon 0.9951 of 1

        with Store(host.sites / "new.sqlite") as empty_store:
            host.store = empty_store
            with (
                host.driver(bound=BOUND) as driver,
                pytest.raises(AllRefused, match=EARLIER_ROUNDS),
            ):
                host.round(driver, driver.next_round(1))
            assert reports_told(empty_store, "north") == []  # nothing more

    assert host.is_warned("gateway north says that its counts have told epsilon 0.9951")


def test_a_gateway_that_forgot_what_it_told_is_not_asked(host):
    with gateways(host.sites, SITES):
        pass  # makes the stores
    copies = {}
    for name in SITES:
        store = host.sites / name / "store.sqlite"
        copies[store] = store.read_bytes()
    with gateways(host.sites, SITES), host.driver(bound=BOUND) as driver:
        host.round(driver, number=1)
    for store, copy in copies.items():
        store.write_bytes(copy)

    with gateways(host.sites, SITES) as sites, host.driver(bound=BOUND) as driver:
        with pytest.raises(RefusedError, match=EARLIER_ROUNDS):
            driver.open(2, [(QUESTION, DEVICES)])
        assert [questions_to(site) for site in sites.values()] == [0, 0]
