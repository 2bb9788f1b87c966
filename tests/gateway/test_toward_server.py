"""Runs over gateways say what counts tell the owner of the server, and keep a bound on it."""

import json
from pathlib import Path

import numpy as np
import pytest
from harness import in_process  # noqa: F401 - its fleet
from harness.running_gateways import gateways

from terngateway import estimate, planning
from terngateway.bound import Bound
from terngateway.extension import GATEWAYS
from terngateway.messages import DEAL, kind_of
from terngateway.planning import PlannedReports, Site, largest_epsilon
from terngateway.tables import GatewayTables
from ternhost import errors
from ternhost.count.disclosures import Disclosures
from ternhost.errors import RefusedError, UsageError
from ternhost.learn.base import ALGORITHMS, Population
from ternhost.privacy.composing import ReportKind, compose_exactly
from ternhost.privacy.groups import Group
from ternhost.reach.fleet import parse
from ternhost.run.options import RunOptions

MICRO = 10**6
DEVICES = np.arange(1, 301)  # of north

# What is planned and disclosed, without a gateway


def options_of_run(algorithm="fedsgd", **named):
    """The options of a run over gateways that sets a bound of epsilon 1."""
    options = {
        "fleet": "gateways:sites",
        "data": "synthetic-logistic",
        "toward_server": "1",
        **named,
    }
    return RunOptions.parse(algorithm, options, ALGORITHMS, served="every" in named)


def learner_of(options, devices=300):
    population = Population(devices=devices, schedule=options.schedule)
    return ALGORITHMS[options.algorithm](options.learning, population)


def report_of(epsilon, devices=300):
    """A report that so many devices make in a round."""
    return ReportKind(round(MICRO * epsilon)).among(devices, Group(devices, devices))


def store_rounds(store, times, epsilon):
    """Store that so many rounds have asked all of north's devices for a report."""
    for number in range(1, times + 1):
        GatewayTables(store).save_disclosed(number, "north", [(report_of(epsilon), DEVICES)])


def test_a_site_discloses_what_card_account_says(store, tern):
    GatewayTables(store).gateway_seen("north", DEVICES, 0.0, {})
    GatewayTables(store).gateway_seen("south", DEVICES + 300, 0.0, {})  # which was asked nothing
    store_rounds(store, times=20, epsilon=4)

    disclosed = planning.disclosed_so_far(store, options_of_run())

    words = "card account any:4 --shuffled 300 --rounds 20 --delta 1e-6 --json"
    epsilon = tern(*words.split()).json["epsilon_central"]
    north = {"epsilon": epsilon, "delta": 1e-6, "honest": 1.0, "bound": 1.0}
    assert disclosed == {"north": north}


@pytest.mark.slow
def test_the_chosen_epsilon_is_the_largest_that_keeps_the_bound_after_earlier_runs(store):
    store_rounds(store, times=3, epsilon=1)
    options = options_of_run(rounds=2)
    fitted = planning.with_largest_epsilon(options, learner_of(options), store, {"north": DEVICES})
    before = GatewayTables(store).disclosures_of("north")
    chosen = float(fitted.learning.epsilon)

    def keeps_bound(epsilon):
        return Bound(MICRO).keeps(before.with_reports([(report_of(epsilon), [1], 2)]))

    assert keeps_bound(chosen)
    assert not keeps_bound(1.01 * chosen)  # it is searched to a third of a per cent


def test_no_epsilon_may_keep_a_bound(store):
    store_rounds(store, times=30, epsilon=4)
    options = options_of_run(rounds=2)
    with pytest.raises(RefusedError, match="no epsilon of a report above"):
        planning.with_largest_epsilon(options, learner_of(options), store, {"north": DEVICES})


def test_personal_epsilons_are_planned_class_by_class():
    options = options_of_run(epsilons="0.5:0.5,1:0.5", rounds=9)
    site = Site("north", DEVICES, Disclosures(), [Bound(MICRO)])
    planned = planning.planned_reports(learner_of(options), site, len(DEVICES), options)
    assert [each.report.cost for each in planned] == [500_000, MICRO]
    assert sum(len(each.devices) for each in planned) == len(DEVICES)


def test_groups_that_a_gateway_draws_are_planned_as_drawn():
    options = options_of_run(reports=300, group=60)
    site = Site("north", DEVICES, Disclosures(), [Bound(MICRO, honest=0.9)])
    (planned,) = planning.planned_reports(learner_of(options), site, len(DEVICES), options)
    group = planned.report.group
    assert (group.asked, group.pool, group.draw) == (60, 300, 5)  # the last of five rounds


@pytest.mark.parametrize(
    ("named", "hint"),
    [
        ({"algorithm": "fedsum", "records": 10}, "--unit device"),  # it protects records
        ({"every": "1"}, "--rounds"),  # there is no end
    ],
)
def test_runs_that_cannot_keep_a_bound_are_refused_with_a_remedy(store, named, hint):
    options = options_of_run(**named)
    GatewayTables(store).gateway_seen("north", DEVICES, 0.0, {})
    with pytest.raises(UsageError) as refused:
        GATEWAYS.fitted(options, learner_of(options), parse(options.fleet), store)
    assert hint in refused.value.hint


def largest(*bounds, left=None):
    """The largest micro-epsilon of a report in two rounds of 300 devices."""
    site = Site("north", DEVICES, Disclosures(), bounds, left)
    return largest_epsilon(site, [PlannedReports(report_of(1), DEVICES, times=2)])


@pytest.mark.slow
def test_the_largest_epsilon_keeps_the_strictest_of_several_bounds():
    loose, strict = Bound(MICRO), Bound(500_000)
    chosen = largest(loose, strict)

    def told(micro_epsilon):
        return Disclosures().with_reports([(report_of(micro_epsilon / MICRO), [1], 2)])

    assert strict.keeps(told(chosen))
    assert not strict.keeps(told(1.01 * chosen))  # it is searched to a third of a per cent


def test_the_largest_epsilon_is_no_more_than_boards_have_left():
    for_two_rounds = 2 * MICRO
    chosen = largest(Bound(MICRO), left=for_two_rounds)
    assert 0.998 * MICRO <= chosen <= MICRO  # searched to a third of a per cent
    assert largest(Bound(MICRO), left=1) == 0


THRESHOLD = 711_131  # the largest micro-epsilon that is allowed in the next tests
LARGEST = 20 * MICRO


def search(begin_at):
    """Search for the largest allowed epsilon; return it, and which epsilons were tried."""
    tried = []

    def is_allowed(micro_epsilon):
        tried.append(micro_epsilon)
        return micro_epsilon <= THRESHOLD

    largest = planning.largest_by_bisection(is_allowed, 1000, LARGEST + 1, begin_at)
    return largest, tried


def test_the_search_for_an_epsilon_ends_just_below_the_largest_one():
    largest, _tried = search(begin_at=THRESHOLD)
    assert 0.996 * THRESHOLD <= largest <= THRESHOLD  # searched to a third of a per cent


@pytest.mark.parametrize("begin_at", [0, 999, 1000, 600_000, 709_000, 713_000, LARGEST, 10**9])
def test_the_epsilon_that_is_found_does_not_depend_on_the_estimate(begin_at):
    assert search(begin_at)[0] == search(begin_at=THRESHOLD)[0]


def test_a_good_estimate_leaves_two_epsilons_to_try():
    _largest, tried = search(begin_at=THRESHOLD)
    assert len(tried) == 2


@pytest.mark.parametrize(
    ("epsilon", "delta", "mixed", "times"),
    [(1, 1e-6, 270, 20), (0.2, 1e-9, 100_000, 1), (4, 1e-6, 3000, 100), (2, 1e-8, 5000, 2)],
)
def test_the_estimate_of_the_largest_epsilon_is_within_one_per_cent(epsilon, delta, mixed, times):
    estimated = estimate.largest_epsilon(epsilon, delta, mixed, times)

    def composed(micro_epsilon):
        report = ReportKind(round(micro_epsilon)).among(mixed)
        return compose_exactly({report: times}, delta)

    assert composed(0.99 * MICRO * estimated) <= epsilon
    assert composed(1.01 * MICRO * estimated) > epsilon


def test_reports_that_nothing_hides_are_estimated_to_share_the_bound():
    assert estimate.largest_epsilon(epsilon=1, delta=1e-6, mixed=0, times=4) == 0.25


# Whole runs

TRAIN = ["train", "--fleet", "gateways:sites", "--data", "iris", "--no-report", "--json"]
CROWD = {"north": {"fleet": "simulated:40", "data": "iris"}}
# Of a device among 40, at epsilon 1 and delta 1e-6: after two rounds. A third would tell 1.425.
AFTER_TWO = 1.14458


@pytest.mark.slow
def test_a_run_that_has_spent_its_bound_ends_and_keeps_its_result(here, tern):
    words = "--toward-server 1.4 --epsilon 1 --rounds 5 --name mine"
    with gateways(Path("sites"), CROWD):
        tern(*TRAIN, *words.split(), code=errors.REFUSED)

        kept = json.loads(Path("runs/mine/result.json").read_text())
        assert kept["rounds"] == 2
        assert kept["reports"] == 2 * 40
        assert kept["toward_server"]["north"]["epsilon"] == pytest.approx(AFTER_TWO, rel=1e-5)
        assert tern("resume", "mine", "--json").json["rounds"] == 2, "it has finished"


@pytest.mark.slow
def test_gateways_draw_the_groups_of_a_run_that_reckons_with_dishonest_devices(here, tern):
    words = "--toward-server 3 --honest .9 --epsilon 1 --reports 300 --group 60"
    sites = {"north": {"fleet": "simulated:300", "data": "iris"}}
    with gateways(Path("sites"), sites) as started:
        result = tern(*TRAIN, *words.split()).json
        assert DEAL in [kind_of(payload) for payload in started["north"].asked]
    assert (result["rounds"], result["reports"]) == (5, 300)
    assert 0 < result["toward_server"]["north"]["epsilon"] <= 3


@pytest.mark.slow
def test_one_report_of_each_device_keeps_the_bound_in_a_whole_run(here, tern):
    """Nothing but the bound is named, and one report promises the better model."""
    with gateways(Path("sites"), CROWD):
        result = tern(*TRAIN, "--toward-server", "1").json
    assert (result["algorithm"], result["rounds"], result["reports"]) == ("direct", 1, 40)
    assert 0 < result["toward_server"]["north"]["epsilon"] <= 1
