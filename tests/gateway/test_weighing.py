"""With a bound toward the owner of the server, tern weighs one report against many rounds."""

import numpy as np
import pytest

from terngateway import planning, weighing
from terngateway.bound import Bound, reports_of
from terngateway.extension import GATEWAYS
from terngateway.tables import GatewayTables
from ternhost.count.disclosures import Disclosures
from ternhost.count.questions import round_body
from ternhost.count.rounds import StoredCohort
from ternhost.errors import RefusedError
from ternhost.learn.base import Population, algorithms_of
from ternhost.privacy.base import MICRO
from ternhost.privacy.composing import ReportKind
from ternhost.privacy.groups import Group
from ternhost.run.begin import make_learner
from ternhost.run.options import RunOptions

DEVICES = 60  # of the only site
IDS = np.arange(1, DEVICES + 1)
LARGEST_FOR_ONE, LARGEST_FOR_EACH = 1_180_000, 352_000  # micro-epsilon that a bound of 1 allows
POPULATION = Population(devices=DEVICES, knows_records=False)


def options_of(algorithm=None, **named):
    """The options of a run over gateways with a bound of epsilon 1."""
    options = {"fleet": "gateways:sites", "data": "iris", "toward_server": "1", **named}
    return RunOptions.parse(algorithm, options, algorithms_of("train"))


def make(options):
    return make_learner(options, POPULATION)


@pytest.fixture
def site(store):
    """The store of a host with a gateway of simulated devices."""
    GatewayTables(store).gateway_seen("north", IDS, 0.0, {"fleet": "simulated"})
    return store


def may_weigh(store, **named):
    options = options_of(**named)
    return weighing.may_weigh(options, make(options), store)


def with_epsilons(monkeypatch, once, many):
    """Have the search find these epsilons (in millionths) for one report and for many rounds."""

    def largest(_site, planned):
        return once if planned[0].times == 1 else many

    monkeypatch.setattr(planning, "largest_epsilon", largest)


def better(store):
    return weighing.better_plan(options_of(), make, store, {"north": IDS})


# Which runs are weighed


def test_plans_are_weighed_where_nothing_is_named(site):
    assert may_weigh(site)


@pytest.mark.parametrize(
    "named",
    [
        {"algorithm": "fedsgd"},
        {"algorithm": "direct"},
        {"rounds": 3},
        {"reports": 60},
        {"epsilon": "1"},
        {"data": "diabetes"},  # whose labels are numbers
    ],
)
def test_plans_are_not_weighed_where_the_user_or_the_data_decide(site, named):
    assert not may_weigh(site, **named)


def test_plans_are_not_weighed_for_boards_that_may_lack_the_module(store):
    GatewayTables(store).gateway_seen("north", IDS, 0.0, {"fleet": "mqtt"})
    assert not may_weigh(store)


# Which plan is better


def test_one_report_is_chosen_where_it_promises_the_better_model(site, monkeypatch):
    with_epsilons(monkeypatch, LARGEST_FOR_ONE, LARGEST_FOR_EACH)
    chosen = better(site)
    assert (chosen.algorithm, chosen.learning.epsilon) == ("direct", "1.18")


def test_many_rounds_are_chosen_where_they_promise_the_better_model(site, monkeypatch):
    with_epsilons(monkeypatch, LARGEST_FOR_ONE, 10 * MICRO)
    chosen = better(site)
    assert (chosen.algorithm, chosen.learning.rounds) == ("fedsgd", weighing.ROUNDS)


def test_the_plan_that_keeps_the_bound_is_chosen_if_the_other_cannot(site, monkeypatch):
    with_epsilons(monkeypatch, LARGEST_FOR_ONE, 0)
    assert better(site).algorithm == "direct"


def test_no_plan_may_keep_the_bound(site, monkeypatch):
    with_epsilons(monkeypatch, 0, 0)
    with pytest.raises(RefusedError):
        better(site)


def test_the_sentence_has_the_epsilons_of_both_plans(site, monkeypatch):
    with_epsilons(monkeypatch, LARGEST_FOR_ONE, LARGEST_FOR_EACH)
    reason = better(site).reason
    all_reports = f"{weighing.ROUNDS * LARGEST_FOR_EACH / MICRO:g}"
    assert all(epsilon in reason for epsilon in ("1.18", "0.352", all_reports))


def test_devices_of_many_records_report_once(site, monkeypatch):
    with_epsilons(monkeypatch, LARGEST_FOR_ONE, 10 * MICRO)
    options = options_of(records=50)
    chosen = weighing.better_plan(options, make, site, {"north": IDS})
    assert (chosen.algorithm, chosen.learning.records) == ("direct", 50)


# One report keeps the bound


def test_all_devices_report_in_the_same_round(site):
    options = weighing.all_at_once(options_of("direct"))
    learner = make(options)
    ((_, devices),) = learner.cohorts(IDS)
    assert (learner.rounds, len(devices)) == (1, DEVICES)


def test_devices_of_many_records_report_in_the_same_round_if_the_shares_of_classes_are_known(site):
    learner = make(weighing.all_at_once(options_of("direct", records=50)))
    ((_, devices),) = learner.cohorts(IDS)
    assert (learner.rounds, len(devices)) == (1, DEVICES)


def test_a_run_whose_epsilon_is_named_reports_in_the_same_round_too(site):
    options = options_of("direct", epsilon="1")
    fitted = GATEWAYS.fitted(options, make(options), None, site)
    assert fitted.learning.at_once
    assert fitted.learning.epsilon == "1"


def test_a_run_that_is_to_descend_afterwards_keeps_its_rounds():
    options = options_of("direct", then="fedsgd")
    assert weighing.all_at_once(options) is options


@pytest.mark.parametrize("named", [{}, {"records": 50}, {"public": "none"}])
def test_what_the_rounds_of_one_report_ask_keeps_the_bound_that_was_planned(site, named):
    """The plan reckons with the smallest question of the run, and not with the mean one."""
    options = weighing.all_at_once(options_of("direct", **named))
    fitted = planning.with_largest_epsilon(options, make(options), site, {"north": IDS})
    learner = make(fitted)

    cohorts = []
    for question, devices in learner.cohorts(IDS):
        cohorts.append(StoredCohort(round_body(1, question), np.asarray(devices)))
    groups = [Group(DEVICES, len(cohort.devices)) for cohort in cohorts]
    reports = reports_of(cohorts, groups)
    disclosed = Disclosures().with_reports([(kind, devices, 1) for kind, devices in reports])
    assert Bound(MICRO).keeps(disclosed)


def test_the_plan_of_one_report_says_what_it_discloses_among_all_devices(site):
    learner = make(weighing.all_at_once(options_of("direct", epsilon="0.9")))
    planned = planning.epsilons_after_run(learner, {"north": IDS}, site, options_of())

    cost = learner.designs[0].cost
    report = ReportKind(cost).among(DEVICES)
    loss = Disclosures().with_reports([(report, IDS, 1)]).largest_loss(delta=1e-6)
    assert planned == {"north": loss.epsilon}
