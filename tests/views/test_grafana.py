"""The dashboard of Grafana and the alerts of Prometheus name only what metrics serve."""

import json
import re
import time
import urllib.request
from dataclasses import replace

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from ternhost.cli import main
from ternhost.run.status import END, ROUND, Status
from ternhost.store.boards import BoardRow
from ternhost.store.store import Store
from ternhost.watch.metrics import Metrics
from ternviews.grafana import extension

DASHBOARD = json.loads(extension.resource("dashboard.json"))
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
VARIABLES = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
RULES = [
    rule
    for group in yaml.safe_load(extension.resource("alerts.yml"))["groups"]
    for rule in group["rules"]
]
EXPRESSIONS = (
    *(target["expr"] for panel in PANELS for target in panel["targets"]),
    *(variable["query"]["query"] for variable in VARIABLES.values() if variable["type"] == "query"),
    *(rule["expr"] for rule in RULES),
)
STATUS = Status(ROUND, 1, None, 7, 10, 0, 0, None, 0.0)


def test_no_text_of_a_board_is_a_template_of_an_alert_or_a_panel():
    """A board chooses some labels of its metrics. Texts of alerts contain only the address of the
    server and a number, and no panel shows text or follows links: a hostile board gets no words in.
    """
    for rule in RULES:
        variables = set(re.findall(r"\$\w+[.\w]*", str(rule["annotations"])))
        assert variables <= {"$labels.instance", "$value"}
    for panel in PANELS:
        assert panel["type"] != "text"
        assert "links" not in json.dumps(panel)


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """The names of all figures of a run with boards and refusals, and of one of quantiles: (name,
    pairs of labels).
    """
    directory = tmp_path_factory.mktemp("served")
    paths = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        for learner in ("fedsgd", "quantiles"):
            paths[learner] = directory / f"{learner}.sqlite"
            fleet = f"--fleet simulated:60 --data iris --store {paths[learner]} --rounds 2"
            words = ["serve", learner, *fleet.split(), "--no-report", "--quiet"]
            assert main(words) == 0
    hello = {"budget": 1, "entropy": 1, "release": "1"}
    with Store(paths["fedsgd"]) as store:
        board = BoardRow(
            "00000001",
            first=1,
            clients=1,
            online=True,
            heard=time.time(),
            hello=hello,
            error="lost",
        )
        store.boards_seen([board])
        store.add_devices({device: bytes(32) for device in range(1, 61)})
    broker = directory / "broker"
    assert main(["broker", "config", str(broker)]) == 0
    return served_of(paths["fedsgd"], broker) | served_of(paths["quantiles"], broker)


def served_of(path, broker):
    """The names of all figures of a store, and of a status: (name, pairs of labels)."""
    served = Metrics(0)
    served.add_store(path)
    served.add_host(path, broker)
    served.update(replace(STATUS, frames={"accepted": 1, "forged": 0}))
    served.update(replace(STATUS, event=END, figures={"accuracy": 0.5}, chosen={"tau": 1.0}))
    with urllib.request.urlopen(f"http://127.0.0.1:{served.port}/metrics", timeout=60) as response:
        page = response.read().decode()
    served.close()
    samples = [s for family in text_string_to_metric_families(page) for s in family.samples]
    return {(sample.name, *sorted(sample.labels.items())) for sample in samples}


def test_every_name_in_the_dashboard_and_the_alerts_is_served(everything):
    names = set(re.findall(r"\btern_\w+", " ".join(EXPRESSIONS)))
    assert names <= {name for name, *_ in everything}


def test_every_label_in_the_dashboard_and_the_alerts_is_served(everything):
    """An expression of Grafana's dashboard or of an alert selects a metric by labels, as in
    tern_boards_by_state{state="online"}. One with a label or a value that no metric of a run has would stay
    empty for ever, without an error.
    """
    labels, values = set(), set()  # (metric, label), and (label, value)
    for name, *pairs in everything:
        values.update(pairs)
        labels.update((name, label) for label, _ in pairs)

    expressions = " ".join(EXPRESSIONS)
    for name, selector in re.findall(r"\b(tern_\w+)\{([^}]*)\}", expressions):
        for label in re.findall(r"(\w+)\s*(?:=~|!=|!~|=)", selector):
            is_added_by_prometheus = label in ("instance", "job")
            assert is_added_by_prometheus or (name, label) in labels, label
    assert set(re.findall(r'(state|fate|reason)="(\w+)"', expressions)) <= values


def test_alerts_are_conditions_of_a_known_severity():
    for rule in RULES:
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert set(rule["annotations"]) == {"summary", "description"}
        assert re.search(r"[<>]|==|absent", rule["expr"]), "a condition"


def test_the_alert_for_a_spent_budget_does_not_ask_people_to_erase_a_board():
    """An erased board would have its privacy budget again, and break the promise to the people
    whose data it holds.
    """
    descriptions = {rule["alert"]: rule["annotations"]["description"] for rule in RULES}
    alert = descriptions["TernBudgetSpent"]
    assert "keep this promise by refusing" in alert
    assert not re.search(r"erase|new id|tern board provision", alert, re.IGNORECASE)


class OwnMonitoring:
    """A panel and a rule, as a package with metrics of its own adds them."""

    def panels(self):
        return [{"id": 0, "title": "own"}]

    def alert_rules(self):
        return "      - alert: Own\n        expr: tern_own > 0\n"


def test_the_files_that_watch_writes_have_panels_and_rules_of_other_packages(here, tern):
    """`tern watch` writes files for Grafana and Prometheus. A package with metrics of its own adds
    a panel and an alert to them by registering (OwnMonitoring).
    """
    with extension.MONITORING.lent("own", OwnMonitoring()):
        tern("watch", "--grafana", "tern.json", "--alerts", "tern.yml")
    dashboard = json.loads((here / "tern.json").read_text())
    (group,) = yaml.safe_load((here / "tern.yml").read_text())["groups"]

    assert dashboard["panels"][0] == {"id": 0, "title": "own"}, "panels are sorted by their ids"
    assert len(dashboard["panels"]) > len(PANELS)
    assert {"alert": "Own", "expr": "tern_own > 0"} in group["rules"]
