"""Runs over gateways say what counts tell the owner of the server, and keep a bound on it."""

import json
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from harness import in_process  # noqa: F401 - its fleet
from harness.running_gateways import gateways

from terngateway import planning
from terngateway.bound import Bound
from terngateway.extension import GATEWAYS
from terngateway.planning import PlannedReports, Site, largest_epsilon
from terngateway.tables import GatewayTables
from ternhost import errors
from ternhost.count.disclosures import Disclosures
from ternhost.errors import RefusedError, UsageError
from ternhost.learn.base import ALGORITHMS, Population
from ternhost.privacy.composing import ReportKind
from ternhost.privacy.groups import Group
from ternhost.reach.fleet import parse
from ternhost.run.options import RunOptions

pytestmark = pytest.mark.usefixtures("here")
FLEET = ["--fleet", "gateways:sites", "--dataset", "iris", "--algorithm", "fedsgd", "--no-report"]
TRAIN = ["train", *FLEET, "--json"]
NAMES = ("north", "south", "west")
# Of a device among 40, at epsilon 1 and delta 1e-6: after two rounds. A third would tell 1.425.
AFTER_TWO = 1.14458
BEFORE = "of this round and of those before it could tell"


@contextmanager
def sites(*sizes, **bounds):
    """Gateways in sites/, with so many simulated devices, and bounds of their own by name."""
    runs = {
        name: {"fleet": f"simulated:{devices}", "dataset": "iris", "first_id": 1 + sum(sizes[:i])}
        for i, (name, devices) in enumerate(zip(NAMES, sizes, strict=False))
    }
    for name in runs:
        Path("sites", name).mkdir(parents=True)
        if name in bounds:
            Path("sites", name, "site.json").write_text(json.dumps(bounds[name]))
    with gateways(Path("sites"), runs) as started:
        yield started


# What is planned and disclosed, without a gateway


def options_of_run(algorithm="fedsgd", **named):
    """The options of a run over gateways that sets a bound of epsilon 1."""
    named = {
        "fleet": "gateways:sites",
        "dataset": "synthetic-logistic",
        "toward_server": "1",
        **named,
    }
    served = "interval" in named
    return RunOptions.parse(algorithm, named, ALGORITHMS, served)


def learner_of(options, devices=300):
    population = Population(devices=devices, schedule=options.schedule)
    return ALGORITHMS[options.algorithm](options.learning, population)


def with_reports(store, devices, times, epsilon):
    """Store that so many rounds have asked all of north's devices for a report."""
    report = ReportKind(round(1e6 * epsilon)).among(len(devices), Group(len(devices), len(devices)))
    for number in range(1, times + 1):
        GatewayTables(store).save_told(number, "north", [(report, devices)])
    return report


DEVICES = np.arange(1, 301)


def test_a_site_discloses_what_card_account_says(store, tern):
    GatewayTables(store).gateway_seen("north", DEVICES, 0.0, {})
    with_reports(store, DEVICES, times=20, epsilon=4)
    sites = planning.disclosed_so_far(store, options_of_run())
    words = "card account --epsilon 4 --reports 300 --rounds 20 --delta 1e-6 --json"
    epsilon = tern(*words.split()).json["epsilon_central"]
    assert sites == {"north": {"epsilon": epsilon, "delta": 1e-6, "honest": 1.0, "bound": 1.0}}


def test_a_site_that_has_disclosed_nothing_is_left_out(store):
    GatewayTables(store).gateway_seen("north", DEVICES, 0.0, {})
    assert planning.disclosed_so_far(store, options_of_run()) == {}


def test_the_report_of_a_run_has_a_row_for_each_site():
    known = {"epsilon": 1.5, "delta": 1e-6, "honest": 1.0, "bound": None}
    rows = planning.rows({"north": known, "south": {**known, "epsilon": None}})
    assert [name for name, _, _ in rows] == ["privacy", "toward the server, south"]
    assert "the counts of north protect" in rows[0][1]


@pytest.mark.slow
def test_the_chosen_epsilon_is_the_largest_that_keeps_the_bound_after_earlier_runs(store):
    with_reports(store, DEVICES, times=3, epsilon=1)
    options = options_of_run(rounds=2)
    fitted = planning.with_largest_epsilon(options, learner_of(options), store, {"north": DEVICES})
    before = GatewayTables(store).told("north")
    for share, is_kept in ((1, True), (1.01, False)):  # it is searched to a third of a per cent
        epsilon = round(1e6 * share * float(fitted.learning.epsilon))
        report = ReportKind(epsilon).among(300, Group(300, 300))
        assert Bound(10**6).keeps(before.with_reports([(report, [1], 2)])) is is_kept


@pytest.mark.parametrize(
    ("south", "chosen"),
    [
        (1_900_000, "1.9"),  # nearly what north allows: both sites answer
        (100_000, "2"),  # worth less than north alone
    ],
)
def test_a_small_epsilon_of_one_site_is_chosen_only_if_that_is_worth_more(
    store, monkeypatch, south, chosen
):
    largest = {"north": 2_000_000, "south": south}
    monkeypatch.setattr(planning, "largest_epsilon", lambda site, planned: largest[site.name])
    options = options_of_run(rounds=2)
    sites = {"north": DEVICES, "south": DEVICES + 300}
    fitted = planning.with_largest_epsilon(options, learner_of(options, 600), store, sites)
    assert fitted.learning.epsilon == chosen


def test_no_epsilon_may_keep_a_bound(store):
    with_reports(store, DEVICES, times=30, epsilon=4)
    options = options_of_run(rounds=2)
    with pytest.raises(RefusedError, match="no epsilon of a report above"):
        planning.with_largest_epsilon(options, learner_of(options), store, {"north": DEVICES})


def test_personal_epsilons_are_planned_class_by_class():
    options = options_of_run(epsilons="0.5:0.5,1:0.5", rounds=9)
    site = Site("north", DEVICES, Disclosures(), [Bound(10**6)])
    planned = planning.plan(learner_of(options), site, len(DEVICES), options)
    assert [each.report.cost for each in planned] == [500_000, 1_000_000]
    assert sum(len(each.devices) for each in planned) == len(DEVICES)


@pytest.mark.parametrize(
    ("named", "reason", "hint"),
    [
        (
            {"algorithm": "fedsum", "records": 10},
            "is about whole devices, and fedsum protects",
            "--unit device",
        ),
        ({"interval": 1.0}, "there is no end", "name --rounds, or the --epsilon"),
    ],
)
def test_runs_that_cannot_keep_a_bound_are_refused_with_a_reason(store, named, reason, hint):
    options = options_of_run(**named)
    with pytest.raises(UsageError, match=reason) as refused:
        planning_of(options, store)
    assert hint in refused.value.hint


def planning_of(options, store):
    """Fit the options as the beginning of a run does, where all sites are known already."""
    GatewayTables(store).gateway_seen("north", DEVICES, 0.0, {})
    standing = options.schedule is not None
    fleet = parse(options.fleet)
    assert standing or options.algorithm == "fedsum"  # else gateways would be asked
    return GATEWAYS.fitted(options, learner_of(options), fleet, store)


def everybody(bounds, left=None, n=300, told=None):
    ids = np.arange(1, n + 1)
    site = Site("north", ids, told or Disclosures(), bounds, left)
    planned = PlannedReports(ReportKind(10**6).among(n, Group(n, n)), ids, times=2)
    return largest_epsilon(site, [planned])


def test_an_epsilon_keeps_all_bounds_and_what_boards_have_left():
    plain = everybody([Bound(10**6)])
    assert 10**6 < plain < 4 * 10**6
    assert everybody([Bound(10**6), Bound(500_000)]) == everybody([Bound(500_000)]) < plain
    honest = everybody([Bound(10**6, honest=0.5)])
    assert (
        everybody([Bound(900_000), Bound(10**6, honest=0.5)])
        == honest
        < everybody([Bound(900_000)])
    )
    assert 0.998 * 10**6 <= everybody([Bound(10**6)], left=2 * 10**6) <= 10**6, "for two rounds"
    assert everybody([Bound(10**6)], left=1) == 0
    spent = Disclosures().with_reports([(ReportKind(10**6, alone=True), [300], 1)])
    assert everybody([Bound(10**6)], told=spent) == 0, "one device has told it all"


# Whole runs


@pytest.mark.slow
def test_a_run_that_has_spent_its_bound_ends_and_keeps_its_result(tern):
    with sites(40):
        ran = tern(
            *TRAIN,
            "--toward-server",
            "1.4",
            "--epsilon",
            "1",
            "--rounds",
            "5",
            "--name",
            "mine",
            code=errors.REFUSED,
        )
        assert f"round 3: gateway north is not asked: the counts {BEFORE}" in ran.err
        assert "than epsilon 1.4 at delta 1e-06, the bound" in ran.err
        kept = json.loads(Path("runs/mine/result.json").read_text())
        assert (kept["rounds"], kept["reports"]) == (2, 80)
        assert kept["toward_server"]["north"]["epsilon"] == pytest.approx(AFTER_TWO, rel=1e-5)
        assert kept["toward_server"]["north"]["bound"] == 1.4
        again = tern("train", "--resume", "mine", "--json")
        assert again.json["rounds"] == 2, "it has finished"
        refused = tern(
            *TRAIN, "--toward-server", "1.4", "--epsilon", "1", "--rounds", "1", code=errors.REFUSED
        )
        assert BEFORE in refused.err
        refused = tern(*TRAIN, "--toward-server", "1.1", "--rounds", "2", code=errors.REFUSED)
        assert "no epsilon of a report above 0.001 keeps the bound" in refused.err
        assert [path.name for path in Path("runs").iterdir()] == ["mine"], "nobody was asked"


@pytest.mark.slow
def test_a_bound_of_a_site_needs_no_word_of_the_host(tern):
    with sites(40, 40, north={"toward_server": 0.98}) as started:
        ran = tern(*TRAIN, "--epsilon", "1", "--rounds", "3", code=errors.SHORT)
        assert ran.json["reports"] == 40 + 3 * 40
        told = {name: each["epsilon"] for name, each in ran.json["toward_server"].items()}
        assert told == {
            "north": pytest.approx(0.7853, rel=1e-4),
            "south": pytest.approx(1.4253, rel=1e-4),
        }
        (warning,) = (each for each in started["north"].warnings if "held back" in each)
        assert warning.startswith("round 2: held back")
        assert ran.err.count("gateway north refuses: held back") == 1
