"""Figures for Prometheus. Every name in the dashboard and the alerts is served."""

import http.client
import json
import re
import time
import urllib.request
from dataclasses import replace
from importlib.resources import files

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tern import wire
from ternhost.cli import main
from ternhost.errors import OK, USAGE
from ternhost.reach.broker.mosquitto import free_port
from ternhost.run.status import END, PROGRESS, ROUND, Status
from ternhost.store.boards import BoardRow
from ternhost.store.store import Store
from ternhost.text import visible
from ternhost.watch import metrics as module
from ternhost.watch.metrics import Metrics

MONITORING = files("ternhost.watch")
DASHBOARD = json.loads((MONITORING / "grafana.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
VARIABLES = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
RULES = [
    rule
    for group in yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"]
    for rule in group["rules"]
]
EXPRESSIONS = (
    *(target["expr"] for panel in PANELS for target in panel["targets"]),
    *(variable["query"]["query"] for variable in VARIABLES.values() if variable["type"] == "query"),
    *(rule["expr"] for rule in RULES),
)
STATUS = Status(ROUND, 1, None, 7, 10, 0, 0, None, 0.0)
CROSS_SITE = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "document"}


@pytest.fixture
def metrics():
    served = Metrics(0)
    yield served
    served.close()


def page_at(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as response:
        return response.read().decode()


def status_of(port, *headers, path="/metrics"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.putrequest("GET", path, skip_host=True)
    for name, value in headers:
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    assert (b"tern_round" in body) == (answer.status == 200)
    return answer.status


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "LOCALHOST:{port}"])
def test_requests_for_its_own_address_are_answered(metrics, host):
    assert status_of(metrics.port, ("Host", host.format(port=metrics.port))) == 200


@pytest.mark.parametrize("path", ["/metrics", "/"])
@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "[::1]:{port}"]
)
def test_a_page_of_another_host_reads_nothing_by_dns_rebinding(metrics, host, path):
    assert status_of(metrics.port, ("Host", host.format(port=metrics.port)), path=path) == 403


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        (CROSS_SITE | {"Sec-Fetch-Mode": "no-cors"}, 403),
        (CROSS_SITE | {"Sec-Fetch-Mode": "navigate"}, 200),
    ],
    ids=["second host", "origin", "fetch", "link"],
)
def test_a_page_of_another_site_may_only_link_here(metrics, headers, status):
    here = ("Host", f"127.0.0.1:{metrics.port}")
    assert status_of(metrics.port, here, *headers.items()) == status


def test_a_request_without_a_host_is_refused(metrics):
    assert status_of(metrics.port) == 403


def scrape(served):
    """(name, sorted pairs of labels) -> value, as Prometheus reads them."""
    families = text_string_to_metric_families(page_at(served.port))
    samples = [sample for family in families for sample in family.samples]
    return {(sample.name, *sorted(sample.labels.items())): sample.value for sample in samples}


ENDED = replace(
    STATUS,
    event=END,
    reports=8,
    refusals=2,
    total_reports=8,
    figures={"accuracy": 0.75},
    chosen={"tau": 2.0},
    reasons={"budget": 2},
)


def test_a_fleet_on_ports_serves_no_number_of_connected_boards(metrics):
    metrics.update(STATUS)
    assert ("tern_boards",) not in scrape(metrics)


def test_a_status_is_served(metrics):
    metrics.update(replace(STATUS, boards=3, asleep=1, connected=False))
    served = scrape(metrics)
    values = {"round": 7, "asked": 10, "boards": 3, "boards_asleep": 1, "connected": 0}
    assert {name: served[f"tern_{name}",] for name in values} == values


def test_every_reason_is_0_at_first_so_that_its_first_refusal_is_an_increase(metrics):
    metrics.update(STATUS)
    served = scrape(metrics)
    assert {served["tern_refused_reports_total", ("reason", name)] for name in wire.ERRORS} == {0}


def test_refusals_of_rounds_add_up(metrics):
    metrics.update(ENDED)
    metrics.update(replace(ENDED, number=8, reasons={"budget": 1, "data": 1}))
    assert scrape(metrics)["tern_refused_reports_total", ("reason", "budget")] == 3


def test_frames_of_the_process_are_counted_by_outcome(metrics):
    for forged in (0, 1, 1, 4):
        metrics.update(replace(STATUS, event=PROGRESS, frames={"forged": forged}))
        assert scrape(metrics)["tern_frames_total", ("fate", "forged")] == forged


def test_only_rounds_that_have_ended_are_counted(metrics):
    metrics.update(replace(STATUS, round=2))
    assert scrape(metrics)["tern_rounds_ended",] == 1
    metrics.update(replace(ENDED, round=2))
    assert scrape(metrics)["tern_rounds_ended",] == 2


def test_the_figures_of_a_round_are_served_when_it_has_ended(metrics):
    metrics.update(ENDED)
    served = scrape(metrics)
    assert served["tern_figure", ("name", "accuracy")] == 0.75
    assert served["tern_chosen", ("name", "tau")] == 2
    assert abs(time.time() - served["tern_last_round_ended_timestamp_seconds",]) < 60


def test_the_duration_of_rounds_is_served(metrics, monkeypatch):
    now = 0.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    for number, seconds in ((1, 0.05), (2, 40.0), (3, 1e6)):
        metrics.update(replace(STATUS, number=number))
        now += seconds
        metrics.update(replace(STATUS, number=number, event=END))
    served = scrape(metrics)
    assert served["tern_round_duration_seconds_sum",] == 1_000_040.05
    counts = {
        le: served["tern_round_duration_seconds_bucket", ("le", le)]
        for le in ("0.1", "60.0", "+Inf")
    }
    assert counts == {"0.1": 1, "60.0": 2, "+Inf": 3}


def board(i, ago, **fields):
    return BoardRow(f"{i:08x}", i, 1, fields.pop("online", True), time.time() - ago, **fields)


def test_boards_are_counted_by_age_state_release_generator_and_error(metrics, store):
    metrics.add_store(store.path)
    assert scrape(metrics)["tern_boards_by_state", ("state", "online")] == 0
    failed = {"budget": 9_000_000, "entropy": wire.FAILED, "release": "0.2.0"}
    old = {"budget": 1, "entropy": wire.HASH_DRBG, "release": "0.1.0"}
    boards = [
        board(1, 10, hello={"budget": 3_500_000, "entropy": wire.CTR_DRBG, "release": "0.2.0"}),
        board(2, 30, hello=failed, errors=2, error="lost"),
        board(3, 90, hello={"budget": 9_000_000, "entropy": 99, "release": "0.1.0"}),
        board(4, 5000, online=False),
        board(5, 90_000, online=False, hello=old),
    ]
    store.boards_seen(boards)
    served = scrape(metrics)

    def by(name):
        return {
            labels[0][1]: n
            for (metric, *labels), n in served.items()
            if metric == f"tern_boards_{name}"
        }

    assert by("heard") == {"1m": 2, "10m": 1, "1h": 0, "1d": 1, "older": 1}
    assert by("by_state") == {"online": 3, "offline": 2}
    assert by("by_release") == {"0.2.0": 2, "0.1.0": 2}
    assert by("by_entropy") == {"failed": 1, "CTR_DRBG": 1, "Hash_DRBG": 1, "other": 1}
    assert by("by_error") == {"lost": 1}
    assert served["tern_budget_left_least_epsilon",] == 3.5, "of those heard within a day"


def test_lying_boards_make_few_series(metrics, store):
    boards = (
        board(i, 0, hello={"release": f"{i}\n" + "x" * 500}, error=f"e{i}") for i in range(1, 200)
    )
    store.boards_seen(boards)
    metrics.add_store(store.path)
    served = scrape(metrics)
    for name in ("release", "error"):
        series = {key: value for key, value in served.items() if key[0] == f"tern_boards_by_{name}"}
        assert len(series) <= 21
        assert sum(series.values()) == 199
        assert max(len(key[1][1]) for key in series) <= 60


def test_hostile_names_are_labels_and_nothing_else(metrics, store):
    """No name makes a line of its own, and nothing that a board says becomes a template of an alert
    or a panel.
    """
    hostile = '</script><b>"}} 9\n# TYPE evil gauge\nevil 1\\{{ $value }}${x}\u202e\u200b\x1b[2J'
    store.boards_seen([board(1, 0, hello={"release": hostile}, error=hostile)])
    metrics.add_store(store.path)
    figures = {"figures": {hostile: 0.5}, "chosen": {hostile: 2.0}, "reasons": {hostile: 1}}
    metrics.update(replace(STATUS, event=END, frames={hostile: 3}, **figures))
    served = scrape(metrics)
    named = {
        "figure": "name",
        "chosen": "name",
        "refused_reports_total": "reason",
        "frames_total": "fate",
    }
    for name, label in named.items():
        assert served[f"tern_{name}", (label, hostile)] > 0
    shown = visible(hostile)[:60]
    for name in ("release", "error"):
        assert served[f"tern_boards_by_{name}", (name, shown)] == 1
    assert {name.partition("_")[0] for name, *_ in served} == {"tern"}
    assert not any(
        line.startswith(("evil", "# TYPE evil")) for line in page_at(metrics.port).splitlines()
    )
    templates = {
        name for rule in RULES for name in re.findall(r"\$\w+[.\w]*", str(rule["annotations"]))
    }
    assert templates <= {"$labels.instance", "$value"}
    assert not [
        panel for panel in PANELS if panel["type"] == "text" or "links" in json.dumps(panel)
    ]


def test_an_unreadable_store_is_reported(metrics, store, tmp_path):
    metrics.add_store(store.path)
    store.boards_seen([board(1, 0)])
    assert scrape(metrics)["tern_store_readable",] == 1
    store.close()
    store.path.rename(tmp_path / "away")
    served = scrape(metrics)
    assert served["tern_store_readable",] == 0
    assert served["tern_boards_by_state", ("state", "online")] == 1, "as it was"


def test_a_run_serves_its_figures_until_its_process_ends(here, tern):
    port = free_port()
    words = [
        "train",
        "--fleet",
        "simulated:600",
        "--reports",
        "600",
        "--no-report",
        "--quiet",
        "--metrics",
    ]
    assert main([*words, str(port)]) == OK
    page = page_at(port)
    assert "tern_reports_accepted 600.0" in page
    assert "tern_report_epsilon 2.0" in page
    assert f"port {port} is not available" in tern(*words, str(port), code=USAGE).err


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """The figures of a run whose fleet has boards and refusals."""
    directory = tmp_path_factory.mktemp("served")
    path = directory / "store.sqlite"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        words = "serve --fleet simulated:60 --store store.sqlite --rounds 2 --no-report --quiet"
        assert main(words.split()) == 0
    with Store(path) as store:
        store.boards_seen(
            [board(1, 0, hello={"budget": 1, "entropy": 1, "release": "1"}, error="lost")]
        )
        with store.transaction():
            store.add_devices({i: bytes(32) for i in range(1, 61)})
    served = Metrics(0)
    served.add_store(path)
    served.update(replace(STATUS, frames={"accepted": 1, "forged": 0}))
    served.update(replace(STATUS, event=END, figures={"accuracy": 0.5}, chosen={"tau": 1.0}))
    figures = scrape(served)
    served.close()
    return figures


def test_every_name_in_the_dashboard_and_the_alerts_is_served(everything):
    served = {name for name, *_ in everything}
    assert not [
        name for name in served if re.search(r"_(ms|minutes|hours|percent|kb|millis)(_|$)", name)
    ]
    labels = {(name, label) for name, *pairs in everything for label, _ in pairs}
    scraped = {"instance", "job"}  # Prometheus adds them
    for expression in EXPRESSIONS:
        names = re.findall(r"\btern_\w+", expression)
        assert names, expression
        assert set(names) <= served, expression
        for name, inside in re.findall(r"\b(tern_\w+)\{([^}]*)\}", expression):
            named = set(re.findall(r"(\w+)\s*(?:=~|!=|!~|=)", inside)) - scraped
            assert {(name, label) for label in named} <= labels, expression
    values = {(*key[1:],) for key in everything}
    for expression in EXPRESSIONS:
        for label, value in re.findall(r'(state|fate|reason)="(\w+)"', expression):
            assert ((label, value),) in values, expression


def test_grafana_can_import_the_dashboard():
    assert DASHBOARD["schemaVersion"] >= 36
    assert DASHBOARD["id"] is None
    assert len(DASHBOARD["uid"]) <= 40
    assert (VARIABLES["datasource"]["type"], VARIABLES["datasource"]["query"]) == (
        "datasource",
        "prometheus",
    )
    source = {"type": "prometheus", "uid": "${datasource}"}
    assert VARIABLES["instance"]["datasource"] == source
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    taken = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (place["x"] + i, place["y"] + j) for i in range(place["w"]) for j in range(place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
    for panel in PANELS:
        assert panel["datasource"] == source
        assert all(target["datasource"] == source for target in panel["targets"])
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
        assert {"fieldConfig", "options", "title"} <= set(panel)


def test_alerts_are_well_formed():
    assert {rule["alert"] for rule in RULES} >= {
        "TernNoRounds",
        "TernBrokerGone",
        "TernBoardsOffline",
        "TernBudgetNearlySpent",
        "TernEntropyFailed",
        "TernForgedFrames",
    }
    assert len({rule["alert"] for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert set(rule["annotations"]) == {"summary", "description"}
        assert re.search(r"[<>]|==|absent", rule["expr"])
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "1m"))
