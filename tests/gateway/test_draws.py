"""Groups that a gateway draws: a host that chooses whom to ask learns much from its own devices and
one victim, and a gateway that draws the group hides the victim among honest devices.
"""

import json
from array import array
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from harness import in_process  # noqa: F401 - its fleet
from harness.running_gateways import Running, gateways

from tern import wire
from terngateway import messages
from terngateway.bound import Bound
from terngateway.dealing import draw
from terngateway.driver import GatewaysDriver
from terngateway.messages import Answer, Ask, Deal, Dealt, Refused
from terngateway.nats import NatsPost
from terngateway.tables import GatewayTables
from ternhost.count.questions import Question, round_body
from ternhost.count.rounds import StoredCohort
from ternhost.learn.schedule import Terms
from ternhost.privacy.groups import Group
from ternhost.privacy.mechanisms import design
from ternhost.store.store import Store

DEVICES = np.arange(1, 1001)
OWNED = DEVICES[:100]  # of the server's owner: a tenth
VICTIM = 900
CARD = design("three-outputs", 1).card
QUESTION = Question(wire.LOGISTIC, array("h", [100] * 5), -14, CARD, 1)


class Site:
    """A site of 1,000 devices whose bound reckons with a tenth of dishonest ones."""

    def __init__(self, directory):
        self.directory = directory
        self._gateway = None
        directory.mkdir()

    def start(self, toward_server):
        """Start its gateway anew. toward_server: the epsilon of its bound."""
        self.stop()
        bound = {"toward_server": toward_server, "honest": 0.9}
        (self.directory / "site.json").write_text(json.dumps(bound))
        options = {"fleet": "simulated:1000", "data": "iris"}
        self._gateway = Running(self.directory, options).start()

    def stop(self):
        if self._gateway is not None:
            self._gateway.stop()

    def ask(self, number, devices):
        """The reply to a question to these devices."""
        cohort = StoredCohort(round_body(number, QUESTION), np.sort(np.asarray(devices)))
        return messages.decode(self._gateway.ask(Ask(number, [cohort], hold=30.0)))

    def deal(self, number, parts=5, pool=DEVICES):
        """The reply to a request for one of the groups into which a pool is dealt."""
        return messages.decode(self._gateway.ask(Deal(number, [parts], [pool])))


@pytest.fixture
def site(tmp_path):
    """It allows epsilon 1 in all."""
    site = Site(tmp_path / "site")
    site.start(toward_server=1)
    yield site
    site.stop()


@pytest.fixture
def strict_site(tmp_path):
    """It allows epsilon 0.7, less than a report of epsilon 1 that nothing hides."""
    site = Site(tmp_path / "site")
    site.start(toward_server=0.7)
    yield site
    site.stop()


def test_its_own_devices_and_one_victim_tell_a_host_nothing_beyond_the_bound(site):
    """Among dishonest devices, one report of epsilon 1 is all of the bound."""
    assert isinstance(site.ask(number=2, devices=[*OWNED, VICTIM]), Answer)
    for number in (3, 4):
        assert isinstance(site.ask(number, [*OWNED, VICTIM]), Refused)


def test_a_group_that_the_host_chose_counts_without_all_dishonest_devices_of_the_site(strict_site):
    """Of 150 reports 50 are sure to be honest: too few, where 150 honest ones would be enough."""
    refused = strict_site.ask(number=2, devices=DEVICES[:150])
    assert "of these 150 only 50 are sure to be honest" in refused.message
    assert isinstance(strict_site.ask(number=3, devices=DEVICES[:300]), Answer)


def test_a_group_as_small_is_answered_if_the_gateway_drew_it(strict_site):
    (group,) = strict_site.deal(number=2, parts=6).groups
    assert len(group) in (166, 167)
    assert strict_site.ask(number=2, devices=group).reports == [len(group)]


def test_a_drawn_group_counts_for_its_round_alone(strict_site):
    (group,) = strict_site.deal(number=2, parts=6).groups
    assert isinstance(strict_site.ask(number=3, devices=group), Refused)


def test_a_drawn_group_with_another_device_is_a_group_that_the_host_chose(strict_site):
    (group,) = strict_site.deal(number=2, parts=6).groups
    another = np.setdiff1d(DEVICES, group)[0]
    assert isinstance(strict_site.ask(number=2, devices=[*group[1:], another]), Refused)


def test_a_round_gets_the_same_group_again_even_after_a_restart(site):
    (first,) = site.deal(number=2).groups
    assert np.array_equal(site.deal(number=2).groups[0], first)
    site.start(toward_server=1)
    assert np.array_equal(site.deal(number=2).groups[0], first)


def test_rounds_get_the_groups_of_one_deal_until_all_are_used(site):
    groups, draws = [], []
    for number in range(2, 9):
        dealt = site.deal(number, parts=5)
        groups += dealt.groups
        draws += dealt.draws

    first_deal, first_of_second_deal = groups[:5], groups[5]
    assert np.array_equal(np.sort(np.concatenate(first_deal)), DEVICES)
    assert draws == [1, 2, 3, 4, 5, 6, 7]
    assert not np.array_equal(first_of_second_deal, first_deal[0]), "dealt anew"


@pytest.mark.parametrize(
    ("pool", "parts"),
    [(np.arange(999, 1003), 2), (np.arange(1, 4), 5)],
    ids=["strangers", "too few"],
)
def test_what_cannot_be_dealt_is_refused(site, pool, parts):
    assert isinstance(site.deal(number=2, parts=parts, pool=pool), Refused)


# The driver of the host

WITH_DISHONEST = Bound(10**6, 1e-6, honest=0.9)
SITES = {
    "north": {"fleet": "simulated:600", "data": "iris", "ids": "1-600"},
    "south": {"fleet": "simulated:400", "data": "iris", "ids": "601-1000"},
}
CHOSEN = DEVICES[:200]  # by the host


class Host:
    """The host of two sites that run."""

    def __init__(self, sites, started, store):
        self.sites = sites
        self.started = started
        self.store = store
        self.warnings = []

    def driver(self, bound):
        terms = Terms(deadline=60.0)
        post = NatsPost(self.sites)
        return GatewaysDriver(self.store, post, terms, bound=bound, warn=self.warnings.append)

    def kinds_sent_to(self, name):
        return [messages.kind_of(payload) for payload in self.started[name].asked]


@pytest.fixture
def host(tmp_path):
    sites = tmp_path / "sites"
    sites.mkdir()
    with gateways(sites, SITES) as started, Store(tmp_path / "store.sqlite") as store:
        yield Host(sites, started, store)


def test_gateways_draw_the_groups_where_a_bound_reckons_with_dishonest_devices(host):
    with host.driver(WITH_DISHONEST) as driver:
        ((_, devices),) = driver.drawn(1, [(QUESTION, CHOSEN)], [DEVICES])
        driver.open(1, [(QUESTION, devices)])
        reports = driver.collect(1).reports

    assert reports == len(devices) == len(CHOSEN)
    fifth_of_north = 120
    assert len(np.intersect1d(devices, np.arange(1, 601))) == fifth_of_north
    assert len(np.intersect1d(devices, CHOSEN)) < 100  # 40 by chance, of 200
    ((report, _),) = GatewayTables(host.store).disclosed_in_round(1, "north")
    assert report.mixed == fifth_of_north
    assert report.group == Group(site=600, asked=fifth_of_north, pool=600, draw=1)


def test_a_gateway_that_draws_other_devices_is_not_believed(host):
    honest_handle = host.started["north"].gateway.handle

    def lie(payload):
        reply = messages.decode(honest_handle(payload))
        if isinstance(reply, Dealt):
            devices_of_south = np.arange(601, 721)
            reply = replace(reply, groups=[devices_of_south])
        return reply.encode()

    host.started["north"].gateway.handle = lie
    with host.driver(WITH_DISHONEST) as driver:
        ((_, devices),) = driver.drawn(1, [(QUESTION, CHOSEN)], [DEVICES])

    assert any("gateway north draws other groups" in warning for warning in host.warnings)
    assert np.isin(CHOSEN, devices).all(), "the host's own choice of the devices of north"


# Drawing


def test_every_deal_is_equally_likely():
    """Six devices in three pairs: the first pair is each of 15 with the same frequency."""
    deals, pairs = 15_000, 15
    counts = Counter()
    for _ in range(deals):
        first_pair, *_ = draw(np.arange(6), 3)
        counts[tuple(first_pair)] += 1

    assert len(counts) == pairs
    expected = deals / pairs
    chi_squared = sum((count - expected) ** 2 / expected for count in counts.values())
    assert chi_squared < 50  # with 14 degrees of freedom, more once in 160,000 times
