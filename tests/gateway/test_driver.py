"""The driver of gateways: each answer counts once, even if hosts or gateways die, lie or stay away."""

import json
import threading
import time
from array import array
from contextlib import ExitStack
from dataclasses import replace

import harness.in_process  # noqa: F401 - its fleet
import numpy as np
import pytest
from harness.raw_client import wait_for
from harness.running_gateways import gateways

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
from terngateway.options import NAME
from terngateway.site_fleet import SiteFleet
from terngateway.tables import GatewayTables, StoredAnswer
from ternhost.count.members import pack_ids
from ternhost.count.questions import Averaged, Question
from ternhost.errors import DeviceError, RefusedError, UsageError
from ternhost.learn.schedule import Terms
from ternhost.privacy.mechanisms import design
from ternhost.privacy.sums import SumPlan
from ternhost.privacy.sums import design as sum_design
from ternhost.reach import fleet
from ternhost.reach.broker.mosquitto import free_port
from ternhost.reach.refusals import AllRefused
from ternhost.reach.simulated.driver import SimulatedDriver
from ternhost.run import costs
from ternhost.store.reader import Reader
from ternhost.store.store import Store
from ternhost.store.tallies import pack_counts

CARD, D = design("three-outputs", 1).card, 5
QUESTION = Question(wire.LOGISTIC, array("h", [100] * D), -14, CARD, 1)
OF_RECORDS = sum_design(
    SumPlan(cost=500_000, unit=1, radius=0.5, clipped=24, kept=-8, units=1, values=D + 1)
)
SUM = replace(QUESTION, card=OF_RECORDS.card, k=D + 1, range=OF_RECORDS.range)
TWO = {
    "north": {"fleet": "simulated:20", "dataset": "iris", "first_id": 1},
    "south": {"fleet": "simulated:30", "dataset": "iris", "first_id": 101},
}
DEVICES = [*range(1, 21), *range(101, 131)]


class Host:
    """A store at a server, and drivers over it, one after the other."""

    def __init__(self, place, store):
        self.sites = place / "sites"
        self.sites.mkdir()
        self.store, self.warnings = store, []

    def driver(self, post=NatsPost, quorum=1.0, **options):
        terms = Terms(quorum=quorum, deadline=60.0)
        return GatewaysDriver(
            self.store, post(self.sites), terms, warn=self.warnings.append, **options
        )

    def round(self, driver, number, devices=DEVICES, **on_progress):
        driver.open(number, [(QUESTION, devices)])
        result = driver.collect(number, **on_progress)
        self.store.end_round(number, result.ended)
        return result


@pytest.fixture
def host(tmp_path, store):
    return Host(tmp_path, store)


def direct_counts(number, sites=tuple(TWO), question=QUESTION):
    """The counts (coordinates x symbols) of the simulated clients of these sites, without any
    gateway.
    """
    total = 0
    for runs in (SiteFleet(**TWO[site]) for site in sites):
        seed, count = runs.seed + (runs.first_id << 32), runs.count(fleet.parse(runs.fleet))
        driver = SimulatedDriver(runs.holdings(), count, seed, first=runs.first_id)
        driver.open(number, [(question, np.asarray(driver.devices))])
        total += driver.collect(number).cohorts[0].counts
    return total.tolist()


def kinds(gateway):
    """The kinds of the messages that a gateway was sent."""
    return [messages.kind_of(payload) for payload in gateway.asked]


def test_counts_are_the_sum_over_the_gateways(host):
    costly = Question(wire.LOGISTIC, array("h", [100] * D), -14, design("three-outputs", 2).card, 1)
    with gateways(host.sites, TWO) as sites, host.driver(run="one") as driver:
        assert np.asarray(driver.devices).tolist() == DEVICES
        whole = host.round(driver, 3)
        assert kinds(sites["north"]).count(ASK) == kinds(sites["south"]).count(ASK) == 1
        part = host.round(driver, 4, DEVICES[:7])
        assert kinds(sites["south"]).count(ASK) == 1, "it has no device in this round"
        # A question may be asked in two cohorts.
        driver.open(
            5, [(QUESTION, DEVICES[:10]), (costly, DEVICES[10:25]), (QUESTION, DEVICES[25:])]
        )
        cohorts = driver.collect(5).cohorts
        host.store.end_round(5, "complete")
        driver.publish(Averaged(1, [1] * D, -14))
        assert all(messages.MODEL in kinds(site) for site in sites.values())
        assert host.warnings == []
        beyond = host.round(driver, 6, [*DEVICES, 999])
        driver.open(7, [(SUM, DEVICES)])
        (sums,) = driver.collect(7).cohorts
        host.store.end_round(7, "complete")
    assert (sums.reports, sums.counts.tolist()) == (50, direct_counts(7, question=SUM))
    assert (whole.ended, whole.asked, whole.reports, whole.refusals) == ("complete", 50, 50, {})
    (cohort,) = whole.cohorts
    assert (cohort.asked, cohort.reports) == (50, 50)
    assert cohort.counts.tolist() == direct_counts(3)
    assert (part.asked, part.reports) == (7, 7)
    assert [cohort.reports for cohort in cohorts] == [10, 15, 25]
    assert [cohort.question.card for cohort in cohorts] == [CARD, costly.card, CARD]
    assert (beyond.asked, beyond.reports) == (51, 50)
    assert host.warnings == ["round 6: no gateway is asked for 1 device"]
    # The rounds that gateways were asked show what devices have spent.
    cost, dearer = cards.decode(CARD).epsilon, cards.decode(costly.card).epsilon
    before, own = (costs.earlier_disclosures(host.store, run) for run in ("another", "one"))
    for devices, spent in (
        (DEVICES[:7], 4 * cost),
        (DEVICES[12:20], 2 * cost + dearer),
        ([999], cost),
    ):
        assert costs.spent(before.report_counts(of=devices), EPSILON) == spent
    assert not own


class Twice(NatsPost):
    """Delivers every message twice."""

    def send(self, site, payload):
        super().send(site, payload)
        super().send(site, payload)


def test_messages_delivered_twice_count_once(host):
    with gateways(host.sites, TWO) as sites, host.driver(Twice) as driver:
        first, second = host.round(driver, 1), host.round(driver, 2)
    assert kinds(sites["south"]).count(ASK) >= 4
    for number, result in ((1, first), (2, second)):
        assert result.reports == 50
        assert result.cohorts[0].counts.tolist() == direct_counts(number)


def test_a_restarted_host_does_not_ask_a_gateway_that_has_answered(host):
    open_gate = threading.Event()

    def late(handle, payload):
        if messages.kind_of(payload) == ASK and not open_gate.is_set():
            return Still(5, 9).encode()
        return handle(payload)

    progress_reports = []
    with gateways(host.sites, TWO, {"south": late}) as sites:
        with host.driver() as driver:
            driver.open(5, [(QUESTION, DEVICES)])

            def on_progress(progress):
                progress_reports.append(progress.reports)
                if progress.reports >= 29:
                    driver.stop()

            assert driver.collect(5, on_progress) is None
        assert progress_reports[-1] == 29  # 20 that count, and 9 that south says it has
        sites["north"].asked.clear()
        open_gate.set()
        with host.driver() as driver:
            assert driver.resume() == [5]
            result = driver.collect(5)
        assert ASK not in kinds(sites["north"])
    assert result.cohorts[0].counts.tolist() == direct_counts(5)
    assert result.reports == 50


def altered(kind, **fields):
    """A handler that changes these fields of a gateway's replies of a kind."""

    def through(handle, payload):
        reply = handle(payload)
        if messages.kind_of(reply) == kind:
            reply = replace(messages.decode(reply), **fields).encode()
        return reply

    return through


@pytest.mark.parametrize(
    "lie",
    [{"reports": [31]}, {"digest": bytes(32)}, {"counts": [pack_counts(np.full((D, 3), -1))]}],
)
def test_the_round_goes_on_without_a_gateway_that_lies(host, lie):
    lying = altered(ANSWER, refusals=(), **lie)
    with gateways(host.sites, TWO, {"south": lying}), host.driver() as driver:
        result = host.round(driver, 2)
    assert (result.asked, result.reports) == (50, 20)
    assert result.cohorts[0].counts.tolist() == direct_counts(2, ["north"])
    (warning,) = host.warnings
    assert "gateway south" in warning
    assert "goes on without it" in warning


def test_bytes_that_are_no_message_are_reported_and_the_round_waits_for_an_answer(host):
    noises = [b"\xff"]

    def noise(handle, payload):
        return noises.pop() if noises and messages.kind_of(payload) == ASK else handle(payload)

    with gateways(host.sites, TWO, {"south": noise}), host.driver() as driver:
        assert host.round(driver, 2).reports == 50
    assert any("gateway south does not answer" in warning for warning in host.warnings)
    assert "gateway south is back" in host.warnings


def never_answers(handle, payload):
    """A handler that answers every question by Still: reports are missing."""
    if messages.kind_of(payload) != ASK:
        return handle(payload)
    return Still(messages.decode(payload).number, 0).encode()


class Clock:
    """The clock of the driver, which jumps past every deadline once the 20 devices of north have
    answered.

    So deadlines do not depend on how busy the machine is.
    """

    def __init__(self):
        self._ahead = 0.0

    def monotonic(self):
        return time.monotonic() + self._ahead

    def jump(self, progress=None):
        self._ahead += 1000.0 * (progress is None or progress.reports == 20)


@pytest.fixture
def clock(monkeypatch):
    jumping = Clock()
    monkeypatch.setattr(driving, "time", jumping)
    return jumping


def until(driver, condition):
    """Have the driver wait until the condition holds."""
    wait_for(lambda: driver.wait(0.1) or condition())


@pytest.mark.slow
def test_a_lost_gateway_is_awaited_then_left_out_until_it_returns(host, clock):
    with (
        ExitStack() as south_again,
        gateways(host.sites, {"north": TWO["north"]}),
        host.driver() as driver,
    ):
        with gateways(host.sites, {"south": TWO["south"]}):
            until(driver, lambda: len(driver.devices) == 50)

        def start_south(progress):
            if progress.reports == 20:  # all of those that are there
                south_again.enter_context(gateways(host.sites, {"south": TWO["south"]}))

        result = host.round(driver, 1, on_progress=start_south)
        assert (result.ended, result.reports) == ("complete", 50)
        south_again.close()
        result = host.round(driver, 2, on_progress=clock.jump)
        assert (result.ended, result.reports) == ("deadline", 20)
        left_out = "south has not answered, and is left out with its 30 devices"
        assert any(left_out in warning for warning in host.warnings)
        assert host.round(driver, 3).reports == 20  # nobody waits for it any more
        host.warnings.clear()
        with gateways(host.sites, {"south": TWO["south"]}):
            until(driver, lambda: "gateway south is back" in host.warnings)
            assert host.round(driver, 4).reports == 50
        assert {site.name: site.online for site in GatewayTables(host.store).gateways()} == {
            "north": True,
            "south": True,
        }


def test_a_host_without_gateways_gives_up_with_an_error(host, monkeypatch):
    monkeypatch.setattr(driving, "GREETING", 0.3)
    monkeypatch.setattr(driving, "MOST_GREETING", 0.5)
    write_gateways(host.sites, ["north"], port=free_port())
    with pytest.raises(DeviceError, match="no gateway answers"), host.driver():
        pass


@pytest.mark.parametrize("ids", [{"south": range(101, 130)}, {"west": range(130, 140)}])
def test_a_gateway_with_devices_registered_elsewhere_is_left_out(host, ids):
    with (
        gateways(host.sites, TWO),
        host.driver(registered=lambda: {"north": range(1, 21), **ids}) as driver,
    ):
        assert list(driver.devices) == list(range(1, 21))
    ((site, registered),) = ids.items()
    whose = "it is" if site == "south" else "gateway west is"
    why = f"gateway south has device 130, and {whose} registered for {registered.start} to {registered.stop - 1}"
    assert any(warning.startswith(why) for warning in host.warnings)
    assert [gateway.name for gateway in GatewayTables(host.store).gateways()] == ["north"]


def test_two_gateways_with_one_device_are_refused_by_their_names(host):
    both = {**TWO, "south": {**TWO["south"], "first_id": 15}}
    why = "gateways .* both have device 15"
    with gateways(host.sites, both), pytest.raises(UsageError, match=why) as problem, host.driver():
        pass
    assert {"north", "south"} <= set(problem.value.message.split())


def test_round_numbers_continue_after_the_last_round_of_every_gateway(host):
    with gateways(host.sites, TWO):
        with (
            Store(host.sites / "x.sqlite") as other_store,
            GatewaysDriver(other_store, NatsPost(host.sites), Terms()) as other_driver,
        ):
            other_driver.open(40, [(QUESTION, DEVICES)])
            other_driver.collect(40)
        with host.driver() as driver:
            assert driver.next_round(1) == 41
            (warning,) = host.warnings
            asked = (
                "gateways were asked round 40, but this store knows of none after 0: if it is new"
            )
            assert warning.startswith(asked)
            assert host.round(driver, 41).reports == 50
            assert driver.next_round(1) == 42
        assert host.warnings == [warning]


@pytest.mark.parametrize("last", [wire.MAX_ROUND, wire.CLIENT_AHEAD, wire.FLEET_AHEAD + 1])
def test_a_gateway_that_claims_an_impossibly_late_round_is_not_believed(host, last):
    with gateways(host.sites, TWO, {"south": altered(HERE, last=last)}), host.driver() as driver:
        assert driver.next_round(1) == driver.next_round(1) == 1
        assert host.round(driver, 1, DEVICES[:20]).reports == 20
    (warning,) = [warning for warning in host.warnings if "not believed" in warning]
    assert f"--after-round {last}" in warning


def test_a_gateway_that_never_answers_delays_two_rounds_at_most(host, clock):
    with gateways(host.sites, TWO, {"south": never_answers}), host.driver() as driver:
        for number in range(1, 6):
            result = host.round(driver, number, on_progress=clock.jump)
            assert (result.ended, result.reports) == ("deadline", 20)
            clock.jump()
            if number == 1:
                until(driver, lambda: "gateway south is back" in host.warnings)
            driver.wait(0.1)
    waited = [warning.partition(":")[0] for warning in host.warnings if "is left out" in warning]
    assert waited == ["round 1", "round 2"]


BOARDS = {"fleet": "inprocess:1", "dataset": "iris", "clients": 6, "first_id": 201, "budget": "1"}


@pytest.mark.parametrize("standing", [False, True])
def test_refusals_are_counted_by_reason(host, standing):
    runs = {"north": TWO["north"], "boards": BOARDS}
    with gateways(host.sites, runs), host.driver(standing=standing) as driver:
        devices = [*range(1, 21), *range(201, 207)]
        assert host.round(driver, 1, devices).reports == 26
        assert driver.budget_left == (1_000_000, None)
        result = host.round(driver, 2, devices)
        assert (result.reports, len(result.refusals)) == (20, 6)
        assert result.reasons == {"budget exhausted": 6} or len(result.reasons) == 1
        assert any(
            "6 of 26 devices refuse: their budget is spent" in warning for warning in host.warnings
        )
        with pytest.raises(AllRefused, match="budget is spent"):
            host.round(driver, 3, devices[20:])


def test_devices_of_gateways_that_all_refused_have_told_nothing(host):
    dear = replace(QUESTION, card=design("three-outputs", 2).card)
    with gateways(host.sites, {"boards": BOARDS}), host.driver(run="refused") as driver:
        driver.open(1, [(dear, range(201, 207))])
        with pytest.raises(AllRefused, match="more than they allow"):
            driver.collect(1)
    host.store.end_round(1, "abandoned")  # as a run that is taken back ends it
    assert not costs.earlier_disclosures(host.store, "another")


def test_a_host_learns_what_boards_of_gateways_have_left_and_spent(host):
    with gateways(host.sites, {"north": TWO["north"], "boards": BOARDS}):
        with host.driver() as driver:
            (before,) = driver.budgets
            host.round(driver, 1, range(201, 204))
        with host.driver() as driver:
            (after,) = driver.budgets
    cost = cards.decode(CARD).epsilon
    assert (before.count, before.left, before.spent, before.first) == (6, 1_000_000, 0, None)
    assert (after.count, after.left, after.spent) == (6, 1_000_000 - cost, cost)
    assert np.asarray(after.devices).tolist() == list(range(201, 207))


def test_a_quorum_ends_a_round(host):
    with gateways(host.sites, TWO, {"south": never_answers}), host.driver(quorum=0.4) as driver:
        result = host.round(driver, 1)
    assert (result.ended, result.reports) == ("quorum", 20)


def test_the_store_keeps_gateways_and_their_progress(host):
    with gateways(host.sites, TWO), host.driver() as driver:
        host.round(driver, 1)
        driver.wait(0)
        driver.open(2, [(QUESTION, DEVICES)])
        GatewayTables(host.store).save_progress(2, "south", 7)
        with Reader(host.store.path) as reader:
            shown = reader.snapshot()
            driver.collect(2)
            after = reader.snapshot()
        assert shown.views[NAME].answers[2] == {
            "north": StoredAnswer(0, answered=False),
            "south": StoredAnswer(7, answered=False),
        }
        assert shown.open[-1].reports == 7
        assert after.views[NAME].answers[2] == {
            "north": StoredAnswer(20, answered=True),
            "south": StoredAnswer(30, answered=True),
        }
        north, south = GatewayTables(host.store).gateways()
    assert not any(gateway.online for gateway in GatewayTables(host.store).gateways())
    assert (north.name, north.devices.tolist(), north.online) == ("north", [*range(1, 21)], True)
    assert south.here["fleet"] == "simulated"
    assert json.dumps(dict(south.here))
    assert GatewayTables(host.store).answers(1)
    assert GatewayTables(host.store).messages(1).keys() == {"north", "south"}
    assert pack_ids(south.devices)


# A bound on what counts tell the owner of the server

BOUND = Bound(1_000_000)  # 20 reports of epsilon 1 tell 0.9951, 30 tell 0.9029


def told(store, name):
    """How many reports hide one another in each cohort that a store has of a gateway, in order of
    rounds.
    """
    rows = store.rows("SELECT report FROM told WHERE gateway = ? ORDER BY round, position", name)
    return [json.loads(row)["mixed"] for (row,) in rows]


def test_a_question_tells_as_if_all_reported_until_there_is_an_answer(host):
    before = []

    def fewer(handle, payload):
        if messages.kind_of(payload) != ASK:
            return handle(payload)
        with Store(host.store.path, beside=True) as store:
            before.append(told(store, "south"))
        counts = np.zeros((D, 3), np.int64)
        counts[0, 1] = 7
        return replace(
            messages.decode(handle(payload)), reports=[7], counts=[pack_counts(counts)]
        ).encode()

    with gateways(host.sites, TWO, {"south": fewer}), host.driver() as driver:
        assert host.round(driver, 1).reports == 27
    assert before == [[30]]
    assert (told(host.store, "north"), told(host.store, "south")) == ([20], [7])


def test_a_site_that_holds_its_counts_back_has_told_nothing(host):
    with gateways(host.sites, TWO) as sites, host.driver(bound=Bound(700_000, 0.001)) as driver:
        assert host.round(driver, 1).reports == 30
        assert ASK in kinds(sites["north"]), "what is too few for one round does not hold for all"
        with pytest.raises(
            AllRefused, match=r"gateway north refuses: held back: .*, and there are 20"
        ) as refused:
            host.round(driver, 2, DEVICES[:20])
    assert "more devices" in refused.value.hint
    assert (told(host.store, "north"), told(host.store, "south")) == ([], [30])
    (warning,) = host.warnings
    assert warning.startswith("round 1: gateway north refuses: held back: ")


def test_a_site_whose_bound_is_spent_is_not_asked(host):
    with gateways(host.sites, TWO) as sites, host.driver(bound=BOUND) as driver:
        assert host.round(driver, 1, DEVICES[20:]).reports == 30
        assert host.round(driver, 2).reports == 20
        assert kinds(sites["south"]).count(ASK) == 1
        why, number = host.warnings
        assert why.startswith(
            "round 2: gateway south is not asked: the counts of this round and of those before it"
        )
        assert number == "round 2: no gateway is asked for 30 devices"
        with pytest.raises(RefusedError, match="of this round and of those before it"):
            driver.open(3, [(QUESTION, DEVICES)])
        assert [opened.number for opened in host.store.rounds()] == [1, 2]
        assert (told(host.store, "north"), told(host.store, "south")) == ([20], [30])
        assert kinds(sites["north"]).count(ASK) == kinds(sites["south"]).count(ASK) == 1


def test_a_host_that_forgot_what_it_was_told_is_refused_and_says_so(host):
    with gateways(host.sites, TWO):
        with host.driver(bound=BOUND) as driver:
            host.round(driver, 1)
        assert host.warnings == []
        with Store(host.sites / "restored.sqlite") as host.store:
            with (
                host.driver(bound=BOUND) as driver,
                pytest.raises(AllRefused, match="of this round and of those before it"),
            ):
                host.round(driver, driver.next_round(1))
            assert told(host.store, "north") == []
    knows = "says that its counts have told epsilon {} at delta 1e-06, and this store knows of 0"
    for name, epsilon in (("north", "0.9951"), ("south", "0.9029")):
        assert any(
            each.startswith(f"gateway {name} {knows.format(epsilon)}") for each in host.warnings
        )


def test_a_gateway_that_forgot_what_it_told_is_not_asked(host):
    with gateways(host.sites, TWO):
        pass
    stores = [host.sites / name / "store.sqlite" for name in TWO]
    copies = [store.read_bytes() for store in stores]
    with gateways(host.sites, TWO), host.driver(bound=BOUND) as driver:
        host.round(driver, 1)
    for store, copy in zip(stores, copies, strict=True):
        store.write_bytes(copy)
    with gateways(host.sites, TWO) as sites, host.driver(bound=BOUND) as driver:
        with pytest.raises(RefusedError, match="of this round and of those before it"):
            driver.open(2, [(QUESTION, DEVICES)])
        assert not any(ASK in kinds(site) for site in sites.values())
