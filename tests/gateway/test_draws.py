"""Groups that a gateway draws: a host that chooses whom to ask learns much from its own devices and
one victim, and a gateway that draws the group hides the victim among honest devices.
"""

import json
from array import array
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from harness import in_process  # noqa: F401 - its fleet
from harness.running_gateways import Running, gateways

from tern import wire
from terngateway import messages
from terngateway.bound import Bound
from terngateway.dealing import draw
from terngateway.driver import GatewaysDriver
from terngateway.messages import DEAL, Answer, Ask, Deal, Dealt, Refused
from terngateway.nats import NatsPost
from terngateway.planning import Site, largest_epsilon
from terngateway.tables import GatewayTables
from ternhost.count.disclosures import Disclosures
from ternhost.count.questions import Question, round_body
from ternhost.count.rounds import StoredCohort
from ternhost.learn.schedule import Terms
from ternhost.privacy.composing import ReportKind
from ternhost.privacy.groups import Group
from ternhost.privacy.mechanisms import design
from ternhost.store.store import Store

D = 5
DEVICES = np.arange(1, 1001)
OWNED = DEVICES[:100]  # of the server's owner: a tenth
HONEST = {"toward_server": 1, "honest": 0.9}
QUESTION = Question(wire.LOGISTIC, array("h", [100] * D), -14, design("three-outputs", 1).card, 1)


@pytest.fixture
def site(tmp_path):
    """Starts the gateway of a site of 1,000 devices whose bound reckons with a tenth of dishonest
    ones.
    """
    started = []

    def start(**bound):
        directory = tmp_path / "site"
        directory.mkdir(exist_ok=True)
        (directory / "site.json").write_text(json.dumps(bound or HONEST))
        for other in started:
            other.stop()
        started.append(Running(directory, {"fleet": "simulated:1000", "dataset": "iris"}))
        started[-1]._connected = False
        return started[-1].start()

    yield start
    for running in started:
        running.stop()


def asks(gateway, number, devices):
    """The reply to a question to these devices."""
    cohort = StoredCohort(round_body(number, QUESTION), np.sort(np.asarray(devices)))
    return messages.decode(gateway.ask(Ask(number, [cohort], hold=30.0)))


def deals(gateway, number, parts=5, pool=DEVICES):
    """The reply to a request for a group."""
    return messages.decode(gateway.ask(Deal(number, [parts], [pool])))


def group_of(gateway, number, **of):
    return deals(gateway, number, **of).groups[0]


def test_its_own_devices_and_one_victim_tell_a_host_nothing_beyond_the_bound(site):
    """A report of epsilon 1 is within the bound of 1 by itself.

    Among dishonest devices there is no second one.
    """
    gateway = site()
    assert isinstance(asks(gateway, 2, [*OWNED, 900]), Answer)
    assert all(isinstance(asks(gateway, number, [*OWNED, 900]), Refused) for number in range(3, 22))


def test_a_gateway_says_how_many_of_the_reports_are_sure_to_be_honest(site):
    refused = asks(site(toward_server=0.7, honest=0.9), 2, [*OWNED, 900])
    assert "of these 101 only 1 are sure to be honest" in refused.message


def test_a_group_that_the_host_chose_counts_without_all_dishonest_devices_of_the_site(site):
    """Of 150 reports 50 are sure to be honest: too few, where 150 honest ones would be enough."""
    gateway = site(toward_server=0.7, honest=0.9)
    assert isinstance(asks(gateway, 2, DEVICES[:150]), Refused)
    assert isinstance(asks(gateway, 3, DEVICES[:300]), Answer)


def test_the_same_group_is_answered_if_the_gateway_drew_it(site):
    gateway = site(toward_server=0.7, honest=0.9)
    group = group_of(gateway, 2, parts=6)
    assert len(group) in (166, 167)
    assert asks(gateway, 2, group).reports == [len(group)]


def test_a_drawn_group_counts_for_its_round_alone(site):
    gateway = site(toward_server=0.7, honest=0.9)
    group = group_of(gateway, 2, parts=6)
    assert isinstance(asks(gateway, 3, group), Refused)


def test_a_drawn_group_with_another_device_is_a_group_that_the_host_chose(site):
    gateway = site(toward_server=0.7, honest=0.9)
    group = group_of(gateway, 2, parts=6)
    another = np.setdiff1d(DEVICES, group)[0]
    assert isinstance(asks(gateway, 2, [*group[1:], another]), Refused)


def test_a_round_gets_the_same_group_again(site):
    gateway = site()
    assert np.array_equal(group_of(gateway, 2), group_of(gateway, 2))


def test_a_round_gets_the_same_group_after_a_restart(site):
    before = group_of(site(), 2)
    assert np.array_equal(group_of(site(), 2), before)


def test_rounds_get_the_groups_of_one_deal_until_all_are_used(site):
    gateway = site()
    groups = [group_of(gateway, number) for number in range(2, 7)]
    assert np.array_equal(np.sort(np.concatenate(groups)), DEVICES)


def test_a_new_deal_begins_when_all_groups_are_used(site):
    gateway = site()
    dealt = [deals(gateway, number) for number in range(2, 9)]
    assert [each.draws[0] for each in dealt] == [1, 2, 3, 4, 5, 6, 7]
    assert len(np.intersect1d(dealt[0].groups[0], dealt[5].groups[0])) < 200


def test_draws_are_counted_through_restarts(site):
    assert deals(site(), 2).draws == [1]
    assert deals(site(), 3, parts=2).draws == [6], "five groups were dealt before"


@pytest.mark.parametrize(
    ("pool", "parts"),
    [(np.arange(999, 1003), 2), (np.arange(1, 4), 5)],
    ids=["strangers", "too few"],
)
def test_what_cannot_be_dealt_is_refused(site, pool, parts):
    assert isinstance(deals(site(), 2, parts=parts, pool=pool), Refused)


# The driver of the host


@pytest.fixture
def host(tmp_path):
    sites = tmp_path / "sites"
    sites.mkdir()
    runs = {
        "north": {"fleet": "simulated:600", "dataset": "iris", "first_id": 1},
        "south": {"fleet": "simulated:400", "dataset": "iris", "first_id": 601},
    }
    with gateways(sites, runs) as started, Store(tmp_path / "store.sqlite") as store:
        yield sites, started, store


def driver(host, bound, warnings=None):
    sites, _, store = host
    warn = (lambda text: None) if warnings is None else warnings.append
    return GatewaysDriver(store, NatsPost(sites), Terms(deadline=60.0), bound=bound, warn=warn)


def kinds(gateway):
    return [messages.kind_of(payload) for payload in gateway.asked]


def test_gateways_draw_the_groups_where_a_bound_reckons_with_dishonest_devices(host):
    chosen = DEVICES[:200]
    with driver(host, Bound(10**6, 1e-6, 0.9)) as opened:
        ((question, devices),) = opened.drawn(1, [(QUESTION, chosen)], [DEVICES])
        opened.open(1, [(question, devices)])
        result = opened.collect(1)
    assert result.reports == len(devices) == 200
    assert len(np.intersect1d(devices, np.arange(1, 601))) == 120, "a fifth of each site's devices"
    assert len(np.intersect1d(devices, chosen)) < 100
    report = GatewayTables(host[2]).told_in(1, "north")[0][0]
    assert (report.mixed, report.group.pool, report.group.draw) == (120, 600, 1)


def test_the_host_chooses_where_all_devices_are_honest(host):
    cohorts = [(QUESTION, DEVICES[:200])]
    with driver(host, Bound(10**6)) as opened:
        assert opened.drawn(1, cohorts, [DEVICES]) is cohorts
    assert not any(DEAL in kinds(gateway) for gateway in host[1].values())


def test_a_gateway_that_draws_other_devices_is_not_believed(host):
    _, started, _ = host
    handle = started["north"].gateway.handle

    def another(payload):
        reply = messages.decode(handle(payload))
        if isinstance(reply, Dealt):
            reply = Dealt(reply.number, reply.draws, reply.dealt, [np.arange(601, 721)])
        return reply.encode()

    started["north"].gateway.handle = another
    warnings = []
    with driver(host, Bound(10**6, 1e-6, 0.9), warnings) as opened:
        ((_, devices),) = opened.drawn(1, [(QUESTION, DEVICES[:200])], [DEVICES])
    assert any("gateway north draws other groups than asked for" in each for each in warnings)
    assert np.isin(DEVICES[:200], devices).all(), "the host's own choice of the devices of north"


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_a_run_with_groups_keeps_a_bound_that_reckons_with_dishonest_devices(tern):
    """Each round asks a fifth of the devices. Chosen by the host, 120 of 600 would count as 60."""
    Path("sites").mkdir()
    runs = {"north": {"fleet": "simulated:600", "dataset": "iris", "first_id": 1}}
    with gateways(Path("sites"), runs) as started:
        fleet = "--fleet gateways:sites --dataset iris --algorithm fedsgd --no-report --json"
        words = "--toward-server 1 --honest .9 --reports 600 --group 120"
        ran = tern("train", *fleet.split(), *words.split())
        assert DEAL in kinds(started["north"])
    assert (ran.json["rounds"], ran.json["reports"]) == (5, 600)
    assert 0 < ran.json["toward_server"]["north"]["epsilon"] <= 1
    ids, bound = np.arange(1, 601), Bound(10**6, 1e-6, 0.9)
    chosen_by_the_host = [(ReportKind(10**6).among(120, Group(600, 120)), ids, 1)]
    assert 1e6 * float(ran.json["options"]["epsilon"]) > largest_epsilon(
        Site("north", ids, Disclosures(), [bound]), chosen_by_the_host
    )


def test_a_deal_has_each_device_in_one_group():
    pool = np.arange(5, 108)
    groups = draw(pool, 10)
    assert sorted(map(len, groups)) == [10] * 7 + [11] * 3
    assert np.array_equal(np.sort(np.concatenate(groups)), pool)
    assert all(np.array_equal(group, np.sort(group)) for group in groups)


def test_every_deal_is_equally_likely():
    """Six devices in three pairs: the first pair is each of 15 with the same frequency
    (chi-squared, 14 degrees).
    """
    n = 15_000
    counts = Counter(tuple(draw(np.arange(6), 3)[0]) for _ in range(n))
    assert len(counts) == 15
    assert sum((count - n / 15) ** 2 / (n / 15) for count in counts.values()) < 50
