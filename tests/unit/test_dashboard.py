"""The contents of the live page, without a browser: curves, boards, pictures, texts and privacy."""

import asyncio
import contextlib
import itertools
import json
import os
import re
import socket
import time
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import AsyncMock

import numpy as np
import pytest
from designing import shipped_card
from matplotlib.colors import to_rgb

from ternhost.errors import USAGE
from ternhost.learn import judging
from ternhost.learn.base import ALGORITHMS, Population
from ternhost.learn.fedsgd import FedSGD, Options
from ternhost.learn.schedule import Schedule
from ternhost.privacy import cards, mechanisms
from ternhost.privacy.composing import ReportKind
from ternhost.privacy.guarantee import Guarantee, Span
from ternhost.run import costs
from ternhost.run.begin import Place
from ternhost.run.guarantees import ClassGuarantees
from ternhost.run.options import RunOptions
from ternhost.run.run import Run
from ternhost.store.boards import BoardRow
from ternhost.store.reader import Reader
from ternhost.store.snapshot import OpenRound, RunView, Snapshot
from ternhost.store.store import Store
from ternhost.watch import curves, words
from ternhost.watch.page import (
    charts,
    elements,
    fleet,
    learning,
    live_store,
    privacy,
    server,
)
from ternhost.watch.summary import summary_of

# A run on 1,000 devices: 75 % pay 1 for a report, 25 % pay 3, so 1.5 is the mean.
CLASS = {"mechanism": "pm", "k": 1, "levels": 3, "card": "", "card_hash": "ab"}
REFERENCES = {
    "clients": 1000,
    "rounds": 10,
    "measures": ["auc", "accuracy", "log_loss"],
    "optimum": {"auc": 0.9, "accuracy": 0.8, "log_loss": 0.2},
    "baseline": {"auc": 0.5, "accuracy": 0.7, "log_loss": 0.6},
    "judged": {"records": 400, "positive": 100},
    "classes": [
        {**CLASS, "share": 0.75, "epsilon_per_report": 1.0, "epsilon_run": 2.0},
        {**CLASS, "share": 0.25, "epsilon_per_report": 3.0, "epsilon_run": 6.0},
    ],
}
RUN = RunView(
    "r", 0.0, "running", "fedsgd", "simulated:1000", references=REFERENCES, rounds=10, reports=1000
)
HISTORY = tuple(
    {
        "round": number,
        "asked": 100,
        "reports": 100,
        "refusals": 0,
        "ended": "complete",
        "began": 1.0,
        "finished": 2.0,
        "auc": 0.6 + number / 100,
        "accuracy": 0.7,
        "log_loss": 0.5,
        "tau": 0.5,
        "spent": 150.0,
    }
    for number in range(1, 11)
)
NOW = Snapshot("s", run=RUN, history=HISTORY)
AUC = curves.curve(RUN, HISTORY, "auc")
OF_DEVICE = "a device with all of its records"


def open_round(reports):
    """Round 11, with so many reports of 100 devices."""
    return OpenRound(
        number=11, run="r", began=1.0, deadline=None, asked=100, wanted=100, reports=reports
    )


# Curves


def test_a_curve_has_its_interval_the_optimum_and_the_baseline():
    assert (AUC.points[0], AUC.points[-1]) == ((100.0, 0.61), (1000.0, 0.7))
    assert (AUC.optimum, AUC.baseline) == (0.9, 0.5)
    for (_, value), (_, low), (_, high) in zip(AUC.points, AUC.low, AUC.high, strict=True):
        assert (low, high) == judging.auc_interval(value, 100, 300)
    assert not curves.curve(RUN, HISTORY, "log_loss").low, "a loss alone has no interval"


@pytest.mark.parametrize(
    ("axis", "registered", "end"),
    [
        (curves.ROUNDS, 0, 10),
        (curves.REPORTS, 0, 1000),
        (curves.EPSILON, 0, 1000 * 1.5 / 1000),  # 1,000 reports of 1.5, by 1,000 clients
        (curves.EPSILON, 500, 1000 * 1.5 / 500),
    ],
)
def test_a_curve_ends_where_the_run_does(axis, registered, end):
    assert curves.curve(RUN, HISTORY, "auc", axis, registered).points[-1][0] == end


def test_long_histories_have_few_points_with_the_first_and_the_last():
    assert curves.evenly_spaced(5) == [0, 1, 2, 3, 4]
    for count in (401, 100_000):
        chosen = curves.evenly_spaced(count)
        assert len(chosen) == curves.MOST
        assert (chosen[0], chosen[-1]) == (0, count - 1)
        assert chosen == sorted(set(chosen))


# Pictures


def card(name, epsilon, **options):
    return mechanisms.design(name, epsilon_micro=round(epsilon * 1e6), **options).card


@pytest.mark.parametrize("name", ["three-outputs", "laplace"])
def test_the_probabilities_of_a_card_s_picture_add_up_to_1(name):
    drawn = charts.card(card(name, 2))
    for series in drawn["series"]:
        assert sum(series["data"]) == pytest.approx(1, abs=1e-3)
        assert len(series["data"]) == len(drawn["xAxis"]["data"]) <= charts.MOST_BARS


def test_outputs_are_in_the_order_of_their_values():
    for data in (shipped_card("lhp", 4).data, card("optimal", 2), card("laplace", 1)):
        order, names = charts.outputs(data)
        values = [float(name) for name in names]
        assert values == sorted(values)
        assert sorted(order) == list(range(len(names)))
        shown = [float(name) for name in charts.card(data)["xAxis"]["data"]]
        assert shown == sorted(shown)


def test_a_picture_has_each_output_s_probability_at_its_place():
    data = shipped_card("lhp", 1).data
    order, _ = charts.outputs(data)
    probabilities = cards.distribution(cards.decode(data), 0)
    at_zero = charts.card(data)["series"][2]["data"]
    assert at_zero == pytest.approx([probabilities[i] for i in order], abs=1e-5)


def test_lines_differ_in_more_than_their_colour():
    curves_of_runs = dict.fromkeys("abcdef", AUC)
    drawn = charts.compared(curves_of_runs, "auc", curves.REPORTS)
    kinds = {(str(line["lineStyle"]["type"]), line["symbol"]) for line in drawn["series"]}
    assert len(kinds) == len(curves_of_runs)


def fleet_of(hellos):
    boards = [
        BoardRow("b", first=i, clients=1, online=True, heard=1.0, hello=hello)
        for i, hello in enumerate(hellos)
    ]
    return Snapshot("s", boards=boards)


def test_boards_that_lie_about_their_budget_share_one_bar():
    honest = [{"budget": i * 10_000} for i in range(1, 1001)]
    lying = [{"budget": 2**32 - 1}] * 9
    picture = fleet.budgets_picture(fleet_of(honest + lying))
    counts = picture["series"][0]["data"]
    assert picture["xAxis"]["data"][-1] == "more"
    assert min(counts[:-1]) > 40, "the others are spread over all bars, about 50 in each"
    assert sum(counts) == 1009


# The table of boards


@pytest.fixture
def table():
    """The table of the boards b001 to b100; those with an odd number are online."""
    rows = live_store.BoardTable()
    rows.take(
        tuple(
            BoardRow(
                f"b{i:03}",
                first=i,
                clients=1,
                online=bool(i % 2),
                heard=float(i),
                hello={"budget": i * 1000},
            )
            for i in range(1, 101)
        )
    )
    return rows


def test_boards_come_a_page_at_a_time(table):
    count, rows = table.page(10, 12)
    assert (count, [row["name"] for row in rows]) == (100, ["b011", "b012"])


def test_a_search_finds_boards_with_all_of_its_words(table):
    count, rows = table.page(0, 100, "b01 ONLINE")
    assert count == 5
    assert {row["online"] for row in rows} == {"online"}, "'offline' does not match ONLINE"


def test_boards_are_sorted_by_a_column(table):
    _, rows = table.page(0, 3, sort="budget", descending=True)
    assert [row["first"] for row in rows] == [100, 99, 98]


@pytest.mark.parametrize("descending", [False, True])
def test_a_board_without_a_value_is_sorted_last_in_both_orders(descending):
    table = live_store.BoardTable()
    silent = BoardRow("silent", first=1, clients=1, online=True, heard=1.0)
    table.take(
        (silent, BoardRow("other", first=2, clients=1, online=True, heard=1.0, hello={"heap": 2}))
    )
    _, rows = table.page(0, 9, sort="heap", descending=descending)
    assert rows[-1]["name"] == "silent"


# Texts


def test_the_tiles_count_the_reports_of_the_open_round():
    values = {name: value for name, value, _ in words.tiles(replace(NOW, open=(open_round(30),)))}
    assert values["reports accepted"] == "1,030"
    assert values["rounds ended"] == "10"
    assert values["epsilon spent, mean of devices"] == "1.55"  # 1,030 reports of 1.5, by 1,000


@pytest.mark.parametrize(
    ("reasons", "banner"),
    [
        ({"budget": 100}, "every device refuses: budget spent."),
        ({"budget": 60, "policy": 10}, "60 of 100 devices refuse: budget spent."),
    ],
)
def test_a_fleet_that_refuses_has_a_banner_on_the_page_and_in_the_terminal(reasons, banner):
    last = {**HISTORY[-1], "reports": 0, "refusals": 100, "reasons": reasons}
    run = replace(RUN, status="finished", refusals=100)
    now = Snapshot("s", run=run, history=(*HISTORY, last))
    assert words.problem(now).startswith(banner)
    assert summary_of(now).note == words.problem(now)


def overdue():
    """A round that was to end after 60 s has been open for 500 s; nothing came for 450 s."""
    now = time.time()
    opened = replace(open_round(50), began=now - 500, deadline=60.0)
    return replace(
        NOW,
        read=now,
        open=(opened,),
        boards=(BoardRow("b", first=1, clients=1, online=True, heard=now - 450),),
    )


def test_a_run_that_is_overdue_is_not_shown_as_running():
    dead = overdue()
    assert words.problem(dead).startswith("nothing written for 7.5 min")
    assert words.status(dead) == "running when last written"
    assert "boards online when last written" in {name for name, *_ in words.tiles(dead)}


@pytest.mark.parametrize(
    "change",
    [
        lambda dead: {"open": (replace(dead.open[0], deadline=600.0),)},
        lambda dead: {"open": (replace(dead.open[0], deadline=None),)},
        lambda dead: {"written": time.time() - 1},
        lambda dead: {"run": replace(RUN, status="finished")},
        lambda dead: {"run": replace(RUN, schedule={"interval": 3600.0}), "open": ()},
    ],
    ids=["later deadline", "no deadline", "just written", "finished", "long interval"],
)
def test_a_run_that_may_be_silent_has_no_note(change):
    dead = overdue()
    assert words.problem(replace(dead, **change(dead))) is None


def test_texts_contrast_with_their_background():
    """WCAG 2 AA: at least 4.5 for text."""
    schemes = re.findall(r"(?<=\{)\s+--page[^}]+", elements.CSS)
    assert len(schemes) == 3, "light, dark as the system has it, and dark as chosen"
    for colours in schemes:
        luminance = {}
        for name, colour in re.findall(r"--(\w+): (#\w{6})", colours):
            linear = [
                part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
                for part in to_rgb(colour)
            ]
            luminance[name] = 0.05 + np.dot(linear, (0.2126, 0.7152, 0.0722))
        for ink, surface in itertools.product(("ink", "soft", "warn", "good"), ("surface", "page")):
            dark, light = sorted((luminance[ink], luminance[surface]))
            assert light / dark >= 4.5, ink


# Runs beside each other


def a_run(name, data="flights", measures=("auc", "accuracy"), rounds=3):
    options, references = {"dataset": data}, {"measures": [*measures]}
    return replace(RUN, name=name, options=options, references=references, rounds=rounds)


def test_the_run_of_the_page_comes_first_and_similar_runs_follow():
    plain = a_run("plain", measures=("accuracy", "auc"))
    runs = [
        a_run("begun", rounds=0),
        a_run("iris", "iris"),
        a_run("collected", measures=()),
        a_run("linear", measures=("mse",)),
        plain,
        a_run("shown"),
    ]
    assert learning.alike("shown", runs) == ["shown", "plain"]
    assert learning.alike("begun", runs) == ["begun", "plain", "shown"]
    assert learning.alike("shown", []) == []


# Privacy


def test_spent_epsilon_counts_the_reports_of_the_open_round():
    now = replace(NOW, open=(open_round(50),), paid={1_500_000: 1000})
    assert curves.spent(now) == 1050 * 1.5 / 1000


def test_spent_epsilon_follows_from_the_classes_that_reported():
    """The devices that pay 3 have spent their budget in round 1; those that pay 1 go on."""
    history = (
        {"round": 1, "reports": 100, "spent": 300},
        {"round": 2, "reports": 100, "spent": 100},
    )
    reports_by_cost = {3_000_000: 100, 1_000_000: 100}
    run = replace(RUN, reports=200)
    now = Snapshot("s", run=run, history=history, paid=reports_by_cost, open=(open_round(50),))

    devices = 1000
    assert curves.spent(now) == (300 + 100 + 50 * 1) / devices
    spent_after_rounds = curves.positions(run, history, curves.EPSILON, 0)
    assert spent_after_rounds == [300 / devices, (300 + 100) / devices]


def test_each_class_has_spent_the_cost_of_its_own_reports():
    """In two rounds, by the draw, 700 of 1,000 devices pay 1 a report; the 300 others, who pay 3,
    had their last round first.
    """
    run = replace(RUN, reports=1300, rounds=2, epsilon_before=4.0)
    reports_by_cost = {1_000_000: 1000, 3_000_000: 300}
    requests_by_cost = {1_000_000: 2 * 700, 3_000_000: 2 * 300}
    now = Snapshot("s", run=run, paid=reports_by_cost, demanded=requests_by_cost)

    assert curves.spent_by_class(now) == pytest.approx([1 * 1000 / 700, 3 * 300 / 300])
    assert curves.spent(now) == pytest.approx((1 * 1000 + 3 * 300) / 1000)
    assert "<td class=number>1.43<td" in privacy.classes_table(now)  # 1000 / 700


def test_a_part_of_a_collection_that_costs_a_little_less_counts_for_its_class():
    """The parts of a collection have cards of their own, whose epsilons differ by rounding."""
    reports_by_cost = {999_999: 10, 1_000_000: 10}
    run = replace(RUN, reports=20)
    now = Snapshot("s", run=run, paid=reports_by_cost, demanded=reports_by_cost)
    of_class_at_1, of_class_at_3 = curves.spent_by_class(now)
    # The class at 1 has 750 of the 1,000 devices; no request has gone to the one at 3.
    assert of_class_at_1 == pytest.approx(0.02, rel=1e-5)
    assert of_class_at_3 is None


def promised(pure, share, before=0):
    """The guarantees of a class of devices, as a store has them.

    Its devices report once in this run, and have reported so many times before.
    """
    report = ReportKind(round(pure * 1e6))
    guarantees = [
        Guarantee.of(span, {report: times}, 1e-6, share)
        for span, times in ((Span.REPORT, 1), (Span.RUN, 1), (Span.LIFE, 1 + before))
    ]
    return json.loads(json.dumps(ClassGuarantees(*guarantees).as_json()))


def test_the_privacy_of_each_class_is_stated():
    classes = [promised(0.1, 0.3, before=999), promised(4.0, 0.7)]
    shown = privacy.guarantees_table(Snapshot("s", run=replace(RUN, guarantees=classes)))
    for sentence in (
        f"30 % of the devices: a report protects {OF_DEVICE} with epsilon 0.1<",
        f"30 % of the devices: this run protects {OF_DEVICE} with epsilon 0.1<",
        f"30 % of the devices: all runs so far together protect {OF_DEVICE} with epsilon 100, "
        "or 19.4 at delta 1e-06, if no run was chosen by the results of earlier ones<",
        f"70 % of the devices: this run protects {OF_DEVICE} with epsilon 4<",
    ):
        assert sentence in shown
    assert "against everybody who sees the reports, the host included" in shown


# The server


@pytest.mark.parametrize(
    ("site", "fetch_headers", "status"),
    [
        (None, {}, 200),
        ("none", {"mode": "navigate", "dest": "document"}, 200),
        ("same-origin", {"mode": "no-cors", "dest": "image"}, 200),
        ("cross-site", {"mode": "navigate", "dest": "document"}, 200),
        ("cross-site", {"mode": "no-cors", "dest": "image"}, 403),
        ("same-site", {"mode": "no-cors", "dest": "image"}, 403),
        ("cross-site", {"mode": "navigate", "dest": "iframe"}, 403),
    ],
    ids=["old browser", "typed", "own image", "link", "image", "sibling's image", "frame"],
)
def test_a_page_of_another_site_neither_fetches_nor_frames_the_dashboard(
    site, fetch_headers, status
):
    async def page(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})

    headers = [(b"host", b"127.0.0.1:8642")]
    for name, value in fetch_headers.items():
        headers.append((f"sec-fetch-{name}".encode(), value.encode()))
    if site is not None:
        headers.append((b"sec-fetch-site", site.encode()))
    send = AsyncMock()
    request = {"type": "http", "headers": headers}
    asyncio.run(server.OnlyHere(page, 8642)(request, None, send))

    response_start, *_ = [call.args[0] for call in send.call_args_list]
    assert response_start["status"] == status
    response_headers = dict(response_start["headers"])
    assert response_headers[b"x-frame-options"] == b"DENY"
    assert response_headers[b"x-content-type-options"] == b"nosniff"
    assert response_headers[b"referrer-policy"] == b"no-referrer"


def test_a_port_that_is_taken_is_refused(tmp_path, tern, monkeypatch):
    monkeypatch.setenv("NICEGUI_STORAGE_PATH", os.devnull)
    with Store(tmp_path / "store.sqlite"):
        pass
    with server.listening(0) as first:
        address, port = first.getsockname()
        assert address == "127.0.0.1"
        store = str(tmp_path / "store.sqlite")
        assert f"port {port}" in tern("dashboard", store, "--port", str(port), code=USAGE).err


def test_the_default_port_is_a_free_one():
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # another process has the port: as good
            stack.enter_context(socket.create_server(("127.0.0.1", server.PORT)))
        assert stack.enter_context(server.listening(None)).getsockname()[1] != server.PORT


# Whole runs

IRIS = {"dataset": "iris", "reports": 40, "group": 20}


@pytest.fixture(
    scope="module",
    params=[
        ("fedsgd", {**IRIS, "mechanism": "grr"}, "value"),
        ("fedsgd", {**IRIS, "epsilons": "1:0.5,4:0.5"}, "value"),
        ("fedavg", {"dataset": "iris", "clients": 20, "rounds": 2}, "value"),
        ("collect", {"clients": 20, "dataset": "iris"}, "value"),
        ("infer", {"answer": "label", "dataset": "iris"}, "label"),
    ],
    ids=["fedsgd", "personal fedsgd", "fedavg", "collect", "infer"],
)
def ended(request, tmp_path_factory):
    """A run: its references at its start, its result, its last snapshot, what symbols stand for."""
    algorithm, options, meaning = request.param
    learning_options = ALGORITHMS.named(algorithm).Options(**options)
    run_options = RunOptions(algorithm, learning_options, "simulated:40")
    with Run.begin(run_options, Place("r", tmp_path_factory.mktemp("runs"))) as run:
        with Reader(run.files.store) as reader:
            references = reader.snapshot().run.references
        result = run.run()
    with Reader(run.files.store) as reader:
        now = reader.snapshot()
    return SimpleNamespace(references=references, result=result, now=now, meaning=meaning)


def test_a_run_states_at_its_start_the_references_of_its_result(ended):
    references, result = ended.references, ended.result
    assert ended.now.run.references == references
    assert references.get("measures", []) == result.get("measures", [])
    for name in references.get("measures", ()):
        assert references["optimum"][name] == result[f"{name}_optimum"]
        assert references["baseline"][name] == result[f"{name}_baseline"]


def test_a_curve_ends_at_the_result_with_its_interval(ended):
    for name in ended.references.get("measures", ()):
        curve = curves.curve(ended.now.run, ended.now.history, name)
        assert curve.points[-1][1] == ended.result[name]
        if curve.low:
            interval = [curve.low[-1][1], curve.high[-1][1]]
            assert interval == pytest.approx(ended.result[f"{name}_interval"])


def test_the_cost_of_each_report_is_stored_and_is_that_of_a_class(ended):
    assert sum(ended.now.paid.values()) == ended.now.run.reports
    costs_of_classes = [each["epsilon_per_report"] for each in ended.references["classes"]]
    for cost in ended.now.paid:
        assert min(abs(cost / 1e6 - known) for known in costs_of_classes) < 1e-5


def test_the_card_of_a_run_is_known_before_its_first_round(ended):
    data, meaning = privacy.card_of_class(replace(ended.now, tallies=()), 0)
    assert (data, meaning) == privacy.card_of_class(ended.now, 0)
    assert {meaning} == {tally.what for tally in ended.now.tallies} == {ended.meaning}


def test_a_run_on_records_that_only_devices_know_has_no_measures():
    population = Population(devices=10, knows_records=False, schedule=Schedule(rounds=None))
    references = costs.references(FedSGD(Options(dimension=5), population))
    assert (references["measures"], references["rounds"]) == ([], None)
    assert references["classes"][0]["epsilon_per_report"] == 2
