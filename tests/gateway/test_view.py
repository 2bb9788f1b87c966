"""Observers see the gateways of a store: in the terminal, on the page, and in Prometheus."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from terngateway import monitoring
from terngateway.tables import GatewayTables, StoredAnswer, StoredGateway
from terngateway.view import GatewaysView
from ternhost.count.rounds import StoredCohort, StoredRound
from ternhost.store.reader import Reader
from ternhost.store.runs import FINISHED, RUNNING, StoredRun
from ternhost.store.snapshot import RunView, Snapshot
from ternhost.watch.metrics import Metrics
from ternhost.watch.summary import FleetSummary, summary_of
from ternhost.watch.terminal_view import Drawn

HOSTILE = '</script><b>"}} 9\n# TYPE evil gauge\nevil 1\\{{ $value }}${x}\x1b[2J'
RUN = RunView("mine", 0.0, "running", "fedsgd", "gateways:x")
FINISHED_RUN = replace(RUN, status=FINISHED)
OPTIONS = {
    "algorithm": "fedsgd",
    "learning": {"data": "flights", "epsilon": "2"},
    "fleet": "gateways:somewhere",
    "schedule": None,
}


def gateway(name, online=True):
    return StoredGateway(name, np.arange(5), online, heard=90.0, here={"fleet": "port"})


def summary(*gateways, answers=None):
    view = GatewaysView(gateways, {1: answers} if answers else {})
    return summary_of(Snapshot("s", run=RUN, views={"gateways": view}))


def drawn(shown: FleetSummary) -> list[str]:
    console = Console(width=160, force_terminal=False, highlight=False, emoji=False, markup=False)
    with console.capture() as capture:
        console.print(Drawn(shown))
    return capture.get().splitlines()


WAITING = StoredAnswer(3, answered=False)


def test_a_gateway_that_was_not_asked_is_not_waited_for():
    shown = summary(gateway("asked"), gateway("came-later"), answers={"asked": WAITING})
    assert shown.as_json()["waiting"] == ["asked"]


def test_the_name_of_a_gateway_draws_nothing_in_the_terminal():
    assert "offline evil\\x1b[2J" in drawn(summary(gateway("evil\x1b[2J", online=False)))


# From a store


@pytest.fixture
def tables(store):
    store.begin_run(StoredRun("first", 1.0, RUNNING, OPTIONS, {"rounds": 0}))
    return GatewayTables(store)


def test_a_reader_counts_the_reports_that_gateways_have_so_far(store, tables):
    tables.gateway_seen("north", np.arange(1, 5), 1.0, {})
    store.open_round(StoredRound(1, [StoredCohort(b"", range(1, 5))], 4, 60.0, "first"))
    tables.save_questions(1, {"north": b"?"})
    tables.save_progress(1, "north", 3)
    with Reader(store.path) as reader:
        (opened,) = reader.snapshot().open
    assert opened.reports == 3


def test_hostile_names_are_labels_and_nothing_else(store, tables):
    tables.gateway_seen(HOSTILE, np.arange(1), 1.0, {})
    metrics = Metrics(0)
    try:
        metrics.add_store(store.path)
        figures = [sample for family in metrics._registry.collect() for sample in family.samples]
    finally:
        metrics.close()
    (found,) = [each for each in figures if each.name == "tern_gateway_devices"]
    assert found.labels == {"gateway": HOSTILE}


def test_panels_and_alerts_name_only_figures_that_are_served():
    served = {f"tern_{each.name}" for each in GatewaysView((), {}).gauges()}
    texts = json.dumps(monitoring.panels()) + monitoring.alert_rules()
    assert set(re.findall(r"\btern_\w+", texts)) <= served
