"""The driver of gateways: what each has answered counts once, whoever dies, lies or stays away."""

import json
import threading
import time
from array import array
from contextlib import ExitStack
from dataclasses import replace

import harness.in_process  # noqa: F401 - its fleet
import numpy as np
import pytest
from harness.local_gateways import LocalPost, gateways

from tern import card as cards
from tern import wire
from ternhost.count.members import pack_ids
from ternhost.count.questions import Averaged, Question
from ternhost.errors import DeviceError, UsageError
from ternhost.learn.schedule import Terms
from ternhost.privacy.mechanisms import design
from ternhost.reach.gateway import driver as driving
from ternhost.reach.gateway import messages
from ternhost.reach.gateway.driver import GatewaysDriver
from ternhost.reach.gateway.messages import ANSWER, ASK, HELLO, Here, Still
from ternhost.reach.gateway.site_fleet import SiteFleet
from ternhost.reach.refusals import AllRefused
from ternhost.run import costs
from ternhost.store.reader import Reader
from ternhost.store.store import Store
from ternhost.store.tallies import pack_counts

CARD = design("three-outputs", 1).card
D = 5
QUESTION = Question(wire.LOGISTIC, array("h", [100] * D), -14, CARD, 1)


def simulated(count, first):
    return {"fleet": f"simulated:{count}", "dataset": "iris", "first_id": first}


TWO = {"north": simulated(20, 1), "south": simulated(30, 101)}
DEVICES = [*range(1, 21), *range(101, 131)]


class Host:
    """A store at a server, and drivers over it, one after the other."""

    def __init__(self, place):
        self.sites = place / "sites"
        self.sites.mkdir()
        self.store = Store(place / "server.sqlite")
        self.warnings = []

    def driver(self, post=LocalPost, deadline=60.0, **options):
        terms = Terms(deadline=deadline)
        return GatewaysDriver(self.store, post(self.sites), terms, warn=self.warnings.append, **options)

    def round(self, driver, number, devices=DEVICES, question=QUESTION):
        driver.open(number, [(question, devices)])
        result = driver.collect(number)
        self.store.end_round(number, result.ended)
        return result


@pytest.fixture
def host(tmp_path):
    own = Host(tmp_path)
    yield own
    own.store.close()


def told_directly(runs, number, devices, question=QUESTION):
    """What the simulated clients of one gateway tell, asked without any gateway."""
    from ternhost.reach import fleet
    from ternhost.reach.simulated.driver import SimulatedDriver

    own = SiteFleet(**runs)
    count = own.count(fleet.parse(own.fleet))
    driver = SimulatedDriver(own.holdings(), count, own.seed + (own.first_id << 32), first=own.first_id)
    mine = np.array([device for device in devices if device in driver.devices])
    driver.open(number, [(question, mine)])
    return driver.collect(number).cohorts[0].counts


def kinds(running):
    """Which messages a gateway was sent."""
    return [messages.kind_of(payload) for payload in running.asked]


def test_counts_are_the_sum_of_what_the_gateways_have_told(host):
    other = Question(wire.LOGISTIC, array("h", [100] * D), -14, design("three-outputs", 2).card, 1)
    with gateways(host.sites, TWO) as sites, host.driver(run="one") as driver:
        assert np.asarray(driver.devices).tolist() == DEVICES
        whole = host.round(driver, 3)
        assert kinds(sites["north"]).count(ASK) == kinds(sites["south"]).count(ASK) == 1
        part = host.round(driver, 4, DEVICES[:7])
        assert kinds(sites["south"]).count(ASK) == 1, "it has no device in this round"
        # A question may be asked in two cohorts.
        driver.open(5, [(QUESTION, DEVICES[:10]), (other, DEVICES[10:25]), (QUESTION, DEVICES[25:])])
        cohorts = driver.collect(5).cohorts
        host.store.end_round(5, "complete")
        driver.publish(Averaged(1, [1] * D, -14))
        assert all(messages.MODEL in kinds(site) for site in sites.values())
        assert host.warnings == []
        beyond = host.round(driver, 6, [*DEVICES, 999])
    assert (whole.ended, whole.asked, whole.reports, whole.refusals) == ("complete", 50, 50, {})
    (cohort,) = whole.cohorts
    assert (cohort.asked, cohort.reports) == (50, 50)
    expected = sum(told_directly(own, 3, DEVICES) for own in TWO.values())
    assert cohort.counts.tolist() == expected.tolist()
    assert (part.asked, part.reports) == (7, 7)
    assert [cohort.reports for cohort in cohorts] == [10, 15, 25]
    assert [cohort.question.card for cohort in cohorts] == [CARD, other.card, CARD]
    assert (beyond.asked, beyond.reports) == (51, 50)
    assert host.warnings == ["round 6: 1 devices are on no gateway"]
    # What devices have spent is known from the rounds that gateways asked.
    cost, dearer = cards.decode(CARD).epsilon, cards.decode(other.card).epsilon
    assert costs.spent_before(host.store, DEVICES[:7], "another") == 4 * cost
    assert costs.spent_before(host.store, DEVICES[12:20], "another") == 2 * cost + dearer
    assert costs.spent_before(host.store, [999], "another") == cost
    assert costs.spent_before(host.store, DEVICES, "one") == 0


class Twice(LocalPost):
    """Whatever is sent arrives twice."""

    def send(self, site, payload):
        super().send(site, payload)
        super().send(site, payload)


def test_what_arrives_twice_counts_once(host):
    with gateways(host.sites, TWO) as sites, host.driver(Twice) as driver:
        first, second = host.round(driver, 1), host.round(driver, 2)
    assert kinds(sites["south"]).count(ASK) >= 4
    for number, result in ((1, first), (2, second)):
        expected = sum(told_directly(own, number, DEVICES) for own in TWO.values())
        assert result.reports == 50
        assert result.cohorts[0].counts.tolist() == expected.tolist()


def test_a_host_that_dies_does_not_ask_again_what_it_has_been_answered(host):
    open_gate = threading.Event()

    def late(handle, payload):
        if messages.kind_of(payload) == ASK and not open_gate.is_set():
            return Still(5, 9).encode()
        return handle(payload)

    told = []
    with gateways(host.sites, TWO, {"south": late}) as sites:
        with host.driver() as driver:
            driver.open(5, [(QUESTION, DEVICES)])

            def tell(progress):
                told.append(progress.reports)
                if progress.reports >= 29:
                    driver.stop()

            assert driver.collect(5, tell) is None
        assert told[-1] == 29  # 20 that count, and 9 that the other one says it has
        sites["north"].asked.clear()
        open_gate.set()
        with host.driver() as driver:
            assert driver.resume() == [5]
            result = driver.collect(5)
        assert ASK not in kinds(sites["north"])
    expected = sum(told_directly(own, 5, DEVICES) for own in TWO.values())
    assert result.cohorts[0].counts.tolist() == expected.tolist()
    assert result.reports == 50


def altered(change):
    """A gateway whose answers are changed: change(answer) -> answer."""

    def through(handle, payload):
        reply = handle(payload)
        if messages.kind_of(reply) != ANSWER:
            return reply
        return change(messages.decode(reply)).encode()

    return through


@pytest.mark.parametrize(
    "lie", [{"reports": [31]}, {"digest": bytes(32)}, {"counts": [pack_counts(np.full((D, 3), -1))]}]
)
def test_the_round_goes_on_without_a_gateway_that_lies(host, lie):
    lying = altered(lambda answer: replace(answer, refusals=(), **lie))
    with gateways(host.sites, TWO, {"south": lying}), host.driver() as driver:
        result = host.round(driver, 2)
    assert (result.asked, result.reports) == (50, 20)
    assert result.cohorts[0].counts.tolist() == told_directly(TWO["north"], 2, DEVICES).tolist()
    (warning,) = host.warnings
    assert "gateway south" in warning
    assert "goes on without it" in warning


def test_bytes_that_are_no_message_are_told_and_the_others_are_waited_for(host):
    noises = [b"\xff"]

    def noise(handle, payload):
        return noises.pop() if noises and messages.kind_of(payload) == ASK else handle(payload)

    with gateways(host.sites, TWO, {"south": noise}), host.driver() as driver:
        assert host.round(driver, 2).reports == 50
    assert any("gateway south does not answer" in warning for warning in host.warnings)
    assert "gateway south is back" in host.warnings


class Clock:
    """The clock of the driver, which jumps beyond every wait for a gateway once the 20 devices of north have answered.

    Whether it is too late then does not depend on how busy the machine is.
    """

    def __init__(self):
        self._ahead = 0.0

    def monotonic(self):
        return time.monotonic() + self._ahead

    def jump(self, progress=None):
        self._ahead += 1000.0 * (progress is None or progress.reports == 20)


@pytest.fixture
def clock(monkeypatch):
    own = Clock()
    monkeypatch.setattr(driving, "time", own)
    return own


def until(driver, condition):
    """Let the driver wait until that holds."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        driver.wait(0.1)


@pytest.mark.slow
def test_a_gateway_that_is_gone_is_waited_for_left_out_in_the_end_and_comes_back(host, clock):
    with ExitStack() as later, gateways(host.sites, {"north": TWO["north"]}), host.driver() as driver:
        with gateways(host.sites, {"south": TWO["south"]}):
            until(driver, lambda: len(driver.devices) == 50)
        driver.open(1, [(QUESTION, DEVICES)])

        def tell(progress):
            if progress.reports == 20:  # all of those that are there
                later.enter_context(gateways(host.sites, {"south": TWO["south"]}))

        result = driver.collect(1, tell)
        assert (result.ended, result.reports) == ("complete", 50)
        host.store.end_round(1, result.ended)
        later.close()
        driver.open(2, [(QUESTION, DEVICES)])
        result = driver.collect(2, clock.jump)
        assert (result.ended, result.reports) == ("deadline", 20)
        host.store.end_round(2, result.ended)
        left_out = "south has not answered, and is left out with its 30 devices"
        assert any(left_out in own for own in host.warnings)
        assert host.round(driver, 3).reports == 20  # nobody waits for it any more
        host.warnings.clear()
        with gateways(host.sites, {"south": TWO["south"]}):
            until(driver, lambda: "gateway south is back" in host.warnings)
            assert host.round(driver, 4).reports == 50
        assert {own.name: own.online for own in host.store.gateways()} == {"north": True, "south": True}


def test_nobody_there_is_told_at_once_with_what_to_do(host, monkeypatch):
    monkeypatch.setattr(driving, "_GREETING", 0.3)
    monkeypatch.setattr(driving, "_MOST_GREETING", 0.5)
    with pytest.raises(DeviceError, match="no gateway answers"), host.driver():
        pass


@pytest.mark.parametrize("ids", [{"south": range(101, 130)}, {"west": range(130, 140)}])
def test_a_gateway_has_the_devices_that_it_is_registered_for(host, ids):
    with gateways(host.sites, TWO), host.driver(registered=lambda: {"north": range(1, 21), **ids}) as driver:
        assert list(driver.devices) == list(range(1, 21))
    ((name, own),) = ids.items()
    whose = "it is" if name == "south" else "gateway west is"
    why = f"gateway south has device 130, and {whose} registered for {own.start} to {own.stop - 1}"
    assert any(warning.startswith(why) for warning in host.warnings)
    assert [gateway.name for gateway in host.store.gateways()] == ["north"]


def test_two_gateways_with_one_device_are_refused_by_their_names(host):
    both = {"north": TWO["north"], "south": simulated(30, 15)}
    why = "gateways .* both have device 15"
    with gateways(host.sites, both), pytest.raises(UsageError, match=why) as problem, host.driver():
        pass
    assert {"north", "south"} <= set(problem.value.message.split())


def test_numbers_go_on_after_those_of_every_gateway(host):
    with gateways(host.sites, TWO) as sites:
        with (
            Store(host.sites / "x.sqlite") as other,
            GatewaysDriver(other, LocalPost(host.sites), Terms()) as first,
        ):
            first.open(40, [(QUESTION, DEVICES)])
            first.collect(40)
        assert sites
        with host.driver() as driver:
            assert driver.next_round(1) == 41
            (warning,) = host.warnings
            assert warning.startswith(
                "gateways were asked round 40, but this store knows of none after 0: if it is new"
            )
            assert host.round(driver, 41).reports == 50
            assert driver.next_round(1) == 42
        assert host.warnings == [warning]


@pytest.mark.parametrize("last", [wire.MAX_ROUND, wire.CLIENT_AHEAD, wire.FLEET_AHEAD + 1])
def test_a_gateway_that_tells_of_rounds_far_away_is_not_believed(host, last):
    def far(handle, payload):
        reply = handle(payload)
        if messages.kind_of(payload) != HELLO:
            return reply
        here = messages.decode(reply)
        return Here(here.devices, last, here.fleet, here.version).encode()

    with gateways(host.sites, TWO, {"south": far}), host.driver() as driver:
        assert driver.next_round(1) == driver.next_round(1) == 1
        assert host.round(driver, 1, DEVICES[:20]).reports == 20
    (warning,) = [warning for warning in host.warnings if "not believed" in warning]
    assert f"--after-round {last}" in warning


def test_a_gateway_that_never_answers_is_not_waited_for_again_and_again(host, clock):
    def busy(handle, payload):
        reply = handle(payload)
        asks = messages.kind_of(payload) == messages.ASK
        return messages.Still(messages.decode(payload).number, 0).encode() if asks else reply

    with gateways(host.sites, TWO, {"south": busy}), host.driver() as driver:
        for number in range(1, 6):
            driver.open(number, [(QUESTION, DEVICES)])
            assert driver.collect(number, clock.jump).reports == 20
            host.store.end_round(number, "deadline")
            clock.jump()
            if number == 1:
                until(driver, lambda: "gateway south is back" in host.warnings)
            driver.wait(0.1)
    waited = [own.partition(":")[0] for own in host.warnings if "is left out" in own]
    assert waited == ["round 1", "round 2"]


BOARDS = {"fleet": "inprocess:1", "dataset": "iris", "clients": 6, "first_id": 201, "budget": "1"}


@pytest.mark.parametrize("standing", [False, True])
def test_refusals_are_told_by_their_reasons(host, standing):
    runs = {"north": TWO["north"], "boards": BOARDS}
    with gateways(host.sites, runs), host.driver(standing=standing) as driver:
        devices = [*range(1, 21), *range(201, 207)]
        assert host.round(driver, 1, devices).reports == 26
        assert driver.budget_left == 1_000_000
        result = host.round(driver, 2, devices)
        assert (result.reports, len(result.refusals)) == (20, 6)
        assert result.reasons == {"budget exhausted": 6} or len(result.reasons) == 1
        assert any("6 of 26 devices refuse: their budget is spent" in own for own in host.warnings)
        with pytest.raises(AllRefused, match="budget is spent"):
            host.round(driver, 3, devices[20:])


def test_a_quorum_ends_a_round(host):
    def slow(handle, payload):
        return Still(1, 0).encode() if messages.kind_of(payload) == ASK else handle(payload)

    with gateways(host.sites, TWO, {"south": slow}):
        terms = Terms(quorum=0.4, deadline=60.0)
        with GatewaysDriver(host.store, LocalPost(host.sites), terms, warn=host.warnings.append) as driver:
            result = host.round(driver, 1)
    assert (result.ended, result.reports) == ("quorum", 20)


def test_what_the_store_keeps_of_gateways(host):
    with gateways(host.sites, TWO), host.driver() as driver:
        host.round(driver, 1)
        driver.wait(0)
        driver.open(2, [(QUESTION, DEVICES)])
        host.store.save_progress(2, "south", 7)
        with Reader(host.store.path) as reader:
            shown = reader.snapshot()
        assert [(own.reports, own.answered) for own in shown.gateways] == [(0, False), (7, False)]
        assert shown.open[-1].reports == 7
        driver.collect(2)
        with Reader(host.store.path) as reader:
            shown = [(own.name, own.reports, own.answered) for own in reader.snapshot().gateways]
        assert shown == [("north", 20, True), ("south", 30, True)]
        north, south = host.store.gateways()
    assert not any(gateway.online for gateway in host.store.gateways())
    assert (north.name, north.devices.tolist(), north.online) == ("north", [*range(1, 21)], True)
    assert south.told["fleet"] == "simulated"
    assert json.dumps(dict(south.told))
    assert host.store.by_gateways(1)
    assert host.store.exchange(1).keys() == {"north", "south"}
    assert pack_ids(south.devices)
