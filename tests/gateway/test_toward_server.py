"""Runs over gateways say what counts tell the owner of the server, and keep a bound on it."""

import json
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from harness import in_process  # noqa: F401 - its fleet
from harness.running_gateways import gateways

from terngateway.bound import Bound
from terngateway.planning import PlannedReports, Site, largest_epsilon
from terngateway.tables import GatewayTables
from ternhost import errors
from ternhost.count.disclosures import Disclosures
from ternhost.privacy.composing import ReportKind
from ternhost.privacy.groups import Group
from ternhost.privacy.guarantee import rounded
from ternhost.store.store import Store

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


@pytest.mark.slow
def test_a_run_tells_at_each_site_what_card_account_says(tern):
    with sites(1000, 1000, 1000):
        ran = tern(*TRAIN, "--epsilon", "4", "--rounds", "20")
    words = "card account three-outputs --epsilon 4 --reports 1000 --rounds 20 --delta 1e-6 --json"
    epsilon = tern(*words.split()).json["epsilon_central"]
    each = {"epsilon": epsilon, "delta": 1e-6, "honest": 1.0, "bound": None}
    assert ran.json["toward_server"] == dict.fromkeys(NAMES, each)
    tern("runs", "--draw", ran.json["directory"])
    page = Path(ran.json["directory"], "report.html").read_text()
    assert all(f"the counts of {name} protect" in page for name in NAMES)
    assert f"epsilon {rounded(epsilon)}" in page


@pytest.mark.slow
def test_the_largest_epsilon_that_keeps_a_bound_counts_earlier_runs(tern):
    told = Disclosures()
    with sites(300, 40) as started:
        for bound in (1, 1.5):
            ran = tern(*TRAIN, "--toward-server", str(bound), "--rounds", "2", code=errors.SHORT)
            epsilon = float(ran.json["options"]["epsilon"])
            assert (
                f"a report of epsilon {epsilon:g} is the largest that keeps --toward-server"
                in ran.err
            )
            for share, kept in ((1, True), (1.01, False)):
                report = ReportKind(round(1e6 * share * epsilon)).among(300)
                assert (
                    Bound(round(1e6 * bound)).keeps(told.with_reports([(report, [1], 2)])) is kept
                )
            with Store("sites/server/store.sqlite", beside=True) as store:
                told = GatewayTables(store).told("north")
            assert list(ran.json["toward_server"]) == ["north"]
            assert ran.json["toward_server"]["north"]["epsilon"] <= bound
            assert ran.err.count("gateway south refuses: held back") == 1
        assert ["held back" in "".join(each.warnings) for each in started.values()] == [False, True]


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
def test_a_served_fleet_is_asked_until_the_bound_is_spent(tern):
    with sites(40):
        words = "--toward-server 1.4 --epsilon 1 --interval 0 --name mine --json"
        served = tern("serve", *FLEET, *words.split(), code=errors.REFUSED)
        assert BEFORE in served.err
        assert json.loads(Path("runs/mine/result.json").read_text())["rounds"] == 2


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


@pytest.mark.slow
def test_personal_epsilons_keep_a_bound_at_each_round(tern):
    with sites(60):
        words = "--toward-server 1.5 --epsilons 0.5:0.5,1:0.5 --rounds 9"
        ran = tern(*TRAIN, *words.split(), code=errors.REFUSED)
        (directory,) = Path("runs").iterdir()
        kept = json.loads((directory / "result.json").read_text())
        assert 0 < kept["rounds"] < 9
        assert 0 < kept["toward_server"]["north"]["epsilon"] <= 1.5
        assert BEFORE in ran.err


@pytest.mark.slow
def test_runs_that_cannot_keep_a_bound_are_refused_with_a_reason(tern):
    with sites(40):
        for words, reason, hint in (
            (
                "train --algorithm fedsum",
                "is about whole devices, and fedsum protects",
                "--unit device",
            ),
            ("serve --algorithm fedsgd", "there is no end", "name --rounds, or the --epsilon"),
        ):
            fleet = "--fleet gateways:sites --dataset iris --toward-server 1"
            refused = tern(*words.split(), *fleet.split(), code=errors.USAGE)
            assert reason in refused.err
            assert hint in refused.err
        assert not Path("runs").exists() or not [*Path("runs").iterdir()]
