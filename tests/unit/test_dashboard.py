"""The contents of the live page, without a browser: curves, the table of boards, pictures, texts,
cards, comparable runs, and spent epsilon.
"""

import asyncio
import contextlib
import io
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
from rich.console import Console

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
from ternhost.run.guarantees import OfClass
from ternhost.run.options import RunOptions
from ternhost.run.run import Run
from ternhost.store.boards import BoardRow
from ternhost.store.reader import Reader
from ternhost.store.snapshot import LABEL, OpenRound, RunView, Snapshot, TallyView
from ternhost.store.store import Store
from ternhost.watch import curves, words
from ternhost.watch.page import (
    charts,
    elements,
    fleet,
    learning,
    live_store,
    privacy,
    rounds,
    server,
)
from ternhost.watch.summary import summary_of
from ternhost.watch.terminal_view import Drawn

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
        "round": i,
        "asked": 100,
        "reports": 100,
        "refusals": 0,
        "ended": "complete",
        "began": 1.0,
        "finished": 2.0,
        "auc": 0.6 + i / 100,
        "accuracy": 0.7,
        "log_loss": 0.5,
        "tau": 0.5,
        "spent": 150.0,
    }
    for i in range(1, 11)
)
NOW = Snapshot("s", run=RUN, history=HISTORY)


AUC = curves.curve(RUN, HISTORY, "auc")


def test_a_curve_has_its_interval_the_optimum_and_the_baseline():
    assert (AUC.points[0], AUC.points[-1]) == ((100.0, 0.61), (1000.0, 0.7))
    assert (AUC.optimum, AUC.baseline) == (0.9, 0.5)
    intervals = [(low, high) for (_, low), (_, high) in zip(AUC.low, AUC.high, strict=True)]
    assert intervals == [judging.auc_interval(y, 100, 300) for _, y in AUC.points]
    assert not curves.curve(RUN, HISTORY, "log_loss").low, "a loss alone has no interval"


def test_the_cost_of_a_report_is_the_mean_over_the_classes():
    assert curves.cost_of_report(RUN) == 0.75 * 1 + 0.25 * 3


@pytest.mark.parametrize(
    ("by", "registered", "end"),
    [
        (curves.ROUNDS, 0, 10),
        (curves.REPORTS, 0, 1000),
        (curves.EPSILON, 0, 1000 * 1.5 / 1000),
        (curves.EPSILON, 500, 1000 * 1.5 / 500),
    ],
)
def test_a_curve_ends_where_the_run_does(by, registered, end):
    assert curves.curve(RUN, HISTORY, "auc", by, registered).points[-1][0] == end


def test_without_a_run_no_curve_is_by_epsilon():
    assert curves.axes(None, 0) == [curves.REPORTS, curves.ROUNDS]


def test_long_histories_have_few_points_with_the_first_and_the_last():
    assert curves.chosen(5) == [0, 1, 2, 3, 4]
    for count in (401, 1000, 100_000):
        chosen = curves.chosen(count)
        assert len(chosen) == len(set(chosen)) == curves.MOST
        assert (chosen[0], chosen[-1]) == (0, count - 1)
        assert chosen == sorted(chosen)


@pytest.mark.parametrize("name", ["three-outputs", "pm-sub", "laplace", "duchi"])
def test_the_probabilities_of_a_card_s_picture_add_up_to_1(name):
    drawn = charts.card(card(name, 2))
    for series in drawn["series"]:
        assert sum(series["data"]) == pytest.approx(1, abs=1e-3)
        assert len(series["data"]) == len(drawn["xAxis"]["data"]) <= charts.MOST_BARS


@pytest.mark.parametrize(
    "picture",
    [
        lambda: charts.card(card("pm-sub", 2)),
        lambda: charts.learning(AUC, "guessing"),
        lambda: charts.learning(curves.curve(RUN, [], "auc"), None),
        lambda: charts.compared({"r": AUC}, "auc", curves.REPORTS),
        lambda: charts.stepped("tau", [(1.0, 0.5)], curves.ROUNDS),
        lambda: charts.arriving([(0.0, 1.0), (1.0, 5.0)], 10),
        lambda: charts.bars(["a"], [1], "x", "y"),
    ],
)
def test_a_picture_is_json(picture):
    json.dumps(picture())


def steps(points):
    (series,) = charts.stepped("tau", points, curves.REPORTS)["series"]
    assert series["step"] == "start", "a value holds up to its point"
    return series["data"]


def test_a_value_chosen_for_a_round_is_drawn_from_its_start_to_its_end():
    assert steps([(100, 0.5), (200, 0.25)]) == [[0, 0.5], [100, 0.5], [200, 0.25]]


def test_the_value_of_a_single_round_is_a_line():
    assert steps([(100.0, 0.5)]) == [[0, 0.5], [100, 0.5]]


def test_arriving_reports_end_at_a_whole_second():
    assert charts.arriving([(0.0, 1.0), (37.2878, 5.0)], 10)["xAxis"]["max"] == 38


def test_references_are_lines_from_0_to_the_last_report():
    drawn = charts.learning(curves.curve(RUN, HISTORY[:1], "auc"), "guessing")
    assert {series["name"]: series["data"] for series in drawn["series"]} == {
        "AUC": [[100, 0.61]],
        "without privacy": [[0, 0.9], [100, 0.9]],
        "guessing": [[0, 0.5], [100, 0.5]],
    }


def boards(count):
    return tuple(
        BoardRow(
            f"b{i:03}", i, 1, bool(i % 2), float(i), {"budget": i * 1000, "text": "<b>x</b>"}, i % 3
        )
        for i in range(1, count + 1)
    )


@pytest.fixture
def table():
    table = live_store.BoardTable()
    table.take(boards(100))
    return table


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


def test_an_unknown_column_does_not_sort(table):
    assert table.page(0, 3, sort="no such column")[0] == 100


def test_a_search_that_finds_nothing_has_no_rows(table):
    assert table.page(90, 10**9, "zzz") == (0, [])


def test_a_board_without_a_value_is_sorted_last_in_both_orders():
    table = live_store.BoardTable()
    others = (BoardRow("b", i, 1, True, 1.0, {"heap": i}) for i in (2, 3))
    table.take((BoardRow("silent", 1, 1, True, 1.0), *others))
    for descending in (False, True):
        assert table.page(0, 9, sort="heap", descending=descending)[1][-1]["name"] == "silent"


def test_equal_boards_are_no_change():
    table, first = live_store.BoardTable(), boards(10)
    changed = (*first[:8], BoardRow("b009", 9, 1, False, 99.0))
    for taken, changes in ((first, 1), (first, 1), ((*first,), 1), (first[:9], 2), (changed, 3)):
        table.take(taken)
        assert table.changes == changes


def test_texts_from_a_store_are_escaped():
    evil = "<script>alert(1)</script>"
    now = Snapshot(
        evil, run=RunView(evil, 0.0, "running", evil, evil, references=REFERENCES), devices=1
    )
    table, tiles = elements.table((evil,), [[evil]]), elements.tile_html([(evil,) * 3])
    for html in (elements.first(now), table, elements.empty(evil), tiles):
        assert evil not in html
        assert "&lt;script&gt;" in html


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.02, "20 ms"),
        (1, "1 s"),
        (90, "90 s"),
        (150, "2.5 min"),
        (7200, "2 h"),
        (200_000, "2.31 d"),
    ],
)
def test_a_duration_has_a_unit_that_suits_it(seconds, text):
    assert words.duration(seconds) == text


def test_the_tiles_count_the_reports_of_the_open_round():
    now = replace(NOW, open=(OpenRound(11, "r", None, None, 100, 90, 30),))
    assert {name: value for name, value, _ in words.tiles(now)} == {
        "rounds ended": "10",
        "reports accepted": "1,030",
        "AUC": "0.7000",
        "epsilon spent, mean of devices": "1.55",  # 1,030 reports of 1.5 on average, 1,000 devices
        "devices": "1,000",
        "refusals": "0",
    }


def test_a_run_that_is_well_has_no_note():
    assert words.old(replace(NOW, written=time.time())) is None


def test_a_store_that_was_never_read_has_a_note():
    assert "nothing has been read yet" in words.old(Snapshot("s", note="locked"))


REFUSED = replace(
    NOW,
    run=replace(RUN, reports=0),
    history=tuple(entry | {"reports": 0, "refusals": 100} for entry in HISTORY),
)


def test_a_run_without_figures_names_the_command_that_draws_its_report():
    now = Snapshot("s", run=replace(RUN, name="my run", references={}), history=({"round": 1},))
    assert "tern runs --draw 'my run'" in learning.why_no_curve(now, [], None)


def test_a_run_without_reports_has_no_empty_axes():
    assert "No report yet" in learning.why_no_curve(REFUSED, ["auc"], "auc")
    assert "No report yet" in learning.stepped_picture(REFUSED, "tau", "range", curves.REPORTS)


def test_a_run_that_chooses_no_range_says_so():
    picture = learning.stepped_picture(NOW, "no such parameter", "range", curves.REPORTS)
    assert "chooses none" in picture


def after_refusals(reasons):
    last = {**HISTORY[-1], "reports": 0, "refusals": 100, "reasons": reasons}
    run = replace(RUN, status="finished", refusals=100)
    return Snapshot("s", run=run, history=(*HISTORY, last))


@pytest.mark.parametrize(
    ("reasons", "banner"),
    [
        ({"budget": 100}, "every device refuses: budget spent."),
        ({"budget": 60, "policy": 10}, "60 of 100 devices refuse: budget spent."),
        ({"policy": 100}, "every device refuses: policy; the section Round"),
    ],
)
def test_a_fleet_that_refuses_has_a_banner_on_the_page_and_in_the_terminal(reasons, banner):
    now = after_refusals(reasons)
    assert words.old(now).startswith(banner)
    assert summary_of(now).note == words.old(now)


def test_the_tile_of_refusals_stands_out():
    now = after_refusals({"budget": 100})
    assert elements.tile_html(words.tiles(now)).count("class='tile warn'") == 1
    assert "tile warn" not in elements.tile_html(words.tiles(NOW))


@pytest.mark.parametrize(
    ("status", "tone"),
    [("running", "good"), ("finished", ""), ("stopped", "warn"), ("abandoned", "warn")],
)
def test_the_status_of_a_run_has_a_colour(status, tone):
    shown = replace(NOW, written=time.time(), run=replace(RUN, status=status))
    assert f"<span class='badge {tone}'>{status}</span>" in elements.first(shown)


def test_a_stopped_run_has_a_remedy():
    shown = replace(NOW, written=time.time(), run=replace(RUN, status="stopped"))
    assert "'tern runs' shows the command" in words.old(shown)


def test_a_legend_shows_the_line_as_it_is_drawn():
    drawn = charts.learning(AUC, "guessing")
    icons = {entry["name"]: entry.get("icon", "") for entry in drawn["legend"]["data"]}
    lines = {line["name"]: line for line in drawn["series"]}
    assert (lines["AUC"]["symbol"], icons["AUC"]) == ("circle", ""), "with its symbol"
    for name, dashes in (("without privacy", 3), ("guessing", 7)):
        assert (lines[name]["symbol"], icons[name].count("M")) == ("none", dashes)
    drawn = charts.compared(
        {"r": curves.curve(RUN, [HISTORY[0]] * 40, "auc")}, "auc", curves.ROUNDS
    )
    assert drawn["legend"]["data"][0]["icon"].startswith("path://"), "a long curve has no symbols"


def test_texts_have_one_font_and_three_sizes():
    assert f"--font: {charts.FONT};" in elements.CSS
    sizes = {"var(--large)", "1rem", "var(--small)", f"{charts._SIZE}px"}
    assert set(re.findall(r"font-size: ([^;}]+)", elements.CSS)) == sizes
    assert "gradient" not in elements.CSS, "no stripe beside a table"


def test_texts_contrast_with_their_background():
    """WCAG 2 AA: at least 4.5 for text."""
    schemes = re.findall(r"(?<=\{)\s+--page[^}]+", elements.CSS)
    assert len(schemes) == 3, "light, dark as the system has it, and dark as chosen"
    for colours in schemes:
        luminance = {}
        for name, colour in re.findall(r"--(\w+): (#\w{6})", colours):
            linear = [
                p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in to_rgb(colour)
            ]
            luminance[name] = 0.05 + np.dot(linear, (0.2126, 0.7152, 0.0722))
        for ink, surface in itertools.product(("ink", "soft", "warn", "good"), ("surface", "page")):
            dark, light = sorted((luminance[ink], luminance[surface]))
            assert light / dark >= 4.5, ink


def test_columns_of_numbers_are_right_aligned_and_empty_ones_are_not():
    table = elements.table(("reports", "refusals", "why"), [[5, None, ""], [6, 0, ""]])
    assert (
        "<th scope=col class=number>reports<th scope=col class=number>refusals<th scope=col>why"
        in table
    )


def test_lines_differ_in_more_than_their_colour_and_a_legend_cuts_long_names():
    names = ["short", "greenhouse-" * 8, *map(str, range(4))]
    drawn = charts.compared(dict.fromkeys(names, AUC), "auc", curves.REPORTS)
    assert len({(str(line["lineStyle"]["type"]), line["symbol"]) for line in drawn["series"]}) == 6
    short, long, *_ = drawn["legend"]["data"]
    assert "textStyle" not in short
    assert long["textStyle"]["overflow"] == "truncate"
    assert charts.bars(["a"], [1], "x", "boards")["yAxis"]["minInterval"] == 1, (
        "counts are whole numbers"
    )


def test_an_invalid_or_taken_port_is_refused_and_the_default_is_a_free_one(
    tmp_path, tern, monkeypatch
):
    monkeypatch.setenv("NICEGUI_STORAGE_PATH", os.devnull)
    with Store(tmp_path / "store.sqlite"):
        pass
    with server.listening(0) as first:
        address, port = first.getsockname()
        assert address == "127.0.0.1"
        for name, options, message in (
            ("store.sqlite", ["--port", "70000"], "--port must be 0"),
            (
                "store.sqlite",
                ["--port", str(port)],
                f"cannot open port {port}: Address already in use\n",
            ),
            ("none", [], "there is no run or store"),
        ):
            assert message in tern("dashboard", str(tmp_path / name), *options, code=USAGE).err
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # another process has the port: as good
            stack.enter_context(socket.create_server(("127.0.0.1", server.PORT)))
        assert stack.enter_context(server.listening(None)).getsockname()[1] != server.PORT


GROUPS = {"reports": 40, "group": 20}


@pytest.fixture(
    scope="module",
    params=[
        ("fedsgd", {**GROUPS, "mechanism": "grr"}, "value"),
        ("fedsgd", {**GROUPS, "epsilons": "1:0.5,4:0.5"}, "value"),
        ("fedsgd", {**GROUPS, "dataset": "diabetes"}, "value"),
        ("fedavg", {"clients": 20, "rounds": 2}, "value"),
        ("collect", {"clients": 20, "dataset": "iris"}, "value"),
        ("infer", {"answer": "label", "dataset": "iris"}, "label"),
        ("infer", {"dataset": "iris"}, "value"),
    ],
    ids=lambda param: f"{param[0]} {param[1]}",
)
def ended(request, tmp_path_factory):
    """A run: its references at its start, its result, its last snapshot, what symbols stand for."""
    algorithm, options, meaning = request.param
    made = ALGORITHMS.named(algorithm).Options(**options)
    run_options = RunOptions(algorithm, made, "simulated:40")
    with Run.begin(run_options, Place("r", tmp_path_factory.mktemp("runs"))) as run:
        with Reader(run.files.store) as reader:
            references = reader.snapshot().run.references
        result = run.run()
    with Reader(run.files.store) as reader:
        return SimpleNamespace(
            references=references, result=result, now=reader.snapshot(), meaning=meaning
        )


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


def test_the_epsilon_of_the_costliest_class_is_that_of_the_result(ended):
    if "epsilon_paid" in ended.result:
        epsilons = [each["epsilon_run"] for each in ended.references["classes"]]
        assert max(epsilons) == ended.result["epsilon_paid"]


def test_the_cost_of_each_report_is_stored_and_is_that_of_a_class(ended):
    assert sum(ended.now.paid.values()) == ended.now.run.reports
    costs_of_classes = [each["epsilon_per_report"] for each in ended.references["classes"]]
    for cost in ended.now.paid:
        assert min(abs(cost / 1e6 - known) for known in costs_of_classes) < 1e-5


def test_rounds_state_what_their_reports_have_spent(ended):
    spent = sum(cost / 1e6 * reports for cost, reports in ended.now.paid.items())
    assert sum(entry["spent"] for entry in ended.now.history) == pytest.approx(spent)


def test_the_card_of_a_run_is_known_before_its_first_round_and_drawn(ended):
    data, meaning = privacy.card_of_class(replace(ended.now, tallies=()), 0)
    assert (data, meaning) == privacy.card_of_class(ended.now, 0)
    assert {meaning} == {tally.what for tally in ended.now.tallies} == {ended.meaning}
    json.dumps(charts.card(bytes.fromhex(data)))


def test_the_summary_of_a_run_is_json(ended):
    json.dumps(summary_of(ended.now).as_json())


def test_a_run_on_records_that_only_devices_know_has_no_measures():
    population = Population(devices=10, knows_records=False, schedule=Schedule(rounds=None))
    references = costs.references(FedSGD(Options(dimension=5), population))
    assert (references["measures"], references["rounds"]) == ([], None)
    assert references["classes"][0]["epsilon_per_report"] == 2


HERE = ("host", "127.0.0.1:8642")
FETCH = {"mode": "no-cors", "dest": "image"}
FRAME = {"mode": "navigate", "dest": "iframe"}
LINK = {"mode": "navigate", "dest": "document"}


@pytest.mark.parametrize(
    ("site", "how", "status"),
    [
        (None, {}, 200),
        ("none", LINK, 200),
        ("same-origin", FETCH, 200),
        ("cross-site", LINK, 200),
        ("cross-site", FETCH, 403),
        ("same-site", FETCH, 403),
        ("cross-site", FRAME, 403),
    ],
)
def test_a_page_of_another_site_neither_fetches_nor_frames_the_dashboard(site, how, status):
    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})

    send = AsyncMock()
    headers = [HERE, *((f"sec-fetch-{name}", value) for name, value in how.items())]
    headers += [] if site is None else [("sec-fetch-site", site)]
    scope = {
        "type": "http",
        "headers": [(name.encode(), value.encode()) for name, value in headers],
    }
    asyncio.run(server.OnlyHere(app, 8642)(scope, None, send))
    start = send.call_args_list[0].args[0]
    assert start["status"] == status
    answered = dict(start["headers"])
    assert (answered[b"x-frame-options"], answered[b"x-content-type-options"]) == (
        b"DENY",
        b"nosniff",
    )
    assert answered[b"referrer-policy"] == b"no-referrer"


def test_spent_epsilon_counts_the_reports_of_the_open_round():
    now = replace(NOW, open=(OpenRound(11, "r", 1.0, None, 100, 100, 50),), paid={1_500_000: 1000})
    assert curves.spent(now) == 1050 * 1.5 / 1000
    (tile,) = [tile for tile in words.tiles(now) if tile[0].startswith("epsilon spent")]
    known = "epsilon of a device with all of its records; by accepted reports, 1 to 3 each"
    assert tile[1:] == ("1.58", known)
    assert curves.spent(Snapshot("s")) is None


def test_the_page_and_the_terminal_agree_about_a_run_that_was_extended():
    now, day = time.time(), 86_400
    silence_and_budget = [(2 * day, 1_000), (60, 1_250_000), (0, 1_750_000), (0, 1_875_000)]
    boards = tuple(
        BoardRow(f"b{i}", i, 1, True, now - silence, {"budget": left})
        for i, (silence, left) in enumerate(silence_and_budget)
    )
    run = replace(RUN, schedule={"rounds": 40, "interval": 0.0})
    shown = replace(NOW, read=now, run=run, boards=boards)
    console = Console(file=io.StringIO(), width=120)
    console.print(Drawn(summary_of(shown)))
    terminal = console.file.getvalue()
    assert "10 of 40, 1,000 reports" in terminal
    assert ("rounds ended", "10", "of 40") in words.tiles(shown)
    assert "1.25 is left on the board with the least" in terminal
    assert "<td>left on the board with the least: 1.25<td>" in privacy.guarantees_table(shown)
    assert "half of 3 heard within a day have 1.75 or more" in privacy.guarantees_table(shown)


def overdue():
    now = time.time()
    opened = OpenRound(11, "r", now - 500, 60.0, 100, 100, 50)
    return replace(NOW, read=now, open=(opened,), boards=(BoardRow("b", 1, 1, True, now - 450),))


def test_a_run_that_is_overdue_is_not_shown_as_running():
    dead = overdue()
    assert words.old(dead).startswith("nothing written for 7.5 min")
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
    assert words.old(replace(dead, **change(dead))) is None


def fleet_of(hellos):
    boards = [BoardRow("b", i, 1, True, 1.0, hello) for i, hello in enumerate(hellos)]
    return Snapshot("s", boards=boards)


def test_boards_that_lie_about_their_budget_share_one_bar():
    honest = [{"budget": i * 10_000} for i in range(1, 1001)]
    lying = [{"budget": 2**32 - 1}] * 9
    picture = fleet.budgets_picture(fleet_of(honest + lying))
    counts = picture["series"][0]["data"]
    assert picture["xAxis"]["data"][-1] == "more"
    assert min(counts[:-1]) > 40, "the others are spread over all bars, about 50 in each"
    assert sum(counts) == 1009


def test_few_budgets_have_a_bar_each():
    picture = fleet.budgets_picture(fleet_of([{"budget": i * 1_000_000} for i in (2, 2, 4)]))
    assert (picture["xAxis"]["data"], picture["series"][0]["data"]) == (["2", "4"], [2, 1])


@pytest.mark.parametrize(
    ("hello", "text"),
    [({"budget": 0}, "Epsilon left 0: 3 boards."), ({}, "No board reports its budget.")],
)
def test_equal_budgets_are_said_in_words(hello, text):
    assert fleet.budgets_picture(fleet_of([hello] * 3)) == text


def test_a_thousand_releases_have_few_bars():
    picture = fleet.releases_picture(fleet_of([{"release": str(i)} for i in range(1000)]))
    assert len(picture["xAxis"]["data"]) <= 22, "20, the others and the unknown"
    assert sum(picture["series"][0]["data"]) == 1000


def card(name, epsilon, **more):
    return mechanisms.design(name, epsilon_micro=round(epsilon * 1e6), **more).card


def test_reports_are_drawn_by_class_where_cards_differ():
    wide, narrow = card("three-outputs", 1), card("three-outputs", 3)
    one_class = {"share": 0.5, "epsilon_per_report": 1.0, "mechanism": "grr"}
    classes = {"classes": [{**one_class, "card": data.hex()} for data in (wide, narrow)]}
    run = RunView("r", 0.0, "running", "fedsgd", "f", references=classes)
    tallies = (
        TallyView(wide.hex(), (80, 70, 90)),
        TallyView(narrow.hex(), (11, 224, 17)),
        TallyView(wide.hex(), (6, 1, 1)),  # a class may be asked in several cohorts
    )
    drawn = rounds.symbols_picture(Snapshot("s", run=run, tallies=tallies))
    of_both = [sorted(cards.output_values(cards.decode(data))) for data in (wide, narrow)]
    of_wide, of_narrow = ([f"{value:.4g}" for value in values] for values in of_both)
    assert of_wide != of_narrow
    assert drawn["xAxis"]["data"] == [
        *(f"1: {v}" for v in of_wide),
        *(f"2: {v}" for v in of_narrow),
    ]
    assert sum(drawn["series"][0]["data"]) == 500
    assert sorted(drawn["series"][0]["data"][:3]) == [71, 86, 91]
    assert drawn["xAxis"]["name"] == "class: reported"
    assert (
        rounds.symbols_picture(Snapshot("s", run=run, tallies=tallies[:1]))["xAxis"]["data"]
        == of_wide
    )
    assert rounds.symbols_picture(Snapshot("s", run=run)) is None
    data = card("laplace", 1)  # its many outputs are drawn together with their neighbours
    outputs = range(len(charts.outputs(data)[0]))
    drawn = rounds.symbols_picture(Snapshot("s", tallies=(TallyView(data.hex(), tuple(outputs)),)))
    assert len(drawn["xAxis"]["data"]) <= 64
    assert sum(drawn["series"][0]["data"]) == sum(outputs)
    assert "outputs together" in drawn["xAxis"]["name"]


def test_outputs_are_in_the_order_of_their_values():
    lhp = [shipped_card("lhp", epsilon).data for epsilon in (1, 4)]
    for data in (*lhp, card("optimal", 2), card("laplace", 1)):
        order, names = charts.outputs(data)
        values = [float(name) for name in names]
        assert values == sorted(values)
        assert sorted(order) == list(range(len(names)))
        drawn = charts.card(data)
        shown = [float(name) for name in drawn["xAxis"]["data"]]
        assert shown == sorted(shown)
        law = dict.fromkeys(order, 0.0) | dict(enumerate(cards.distribution(cards.decode(data), 0)))
        assert sum(drawn["series"][2]["data"]) == pytest.approx(1, abs=1e-3)
        if len(shown) == len(order):
            assert drawn["series"][2]["data"] == pytest.approx([law[i] for i in order], abs=1e-5)


def test_the_outputs_of_a_card_of_labels_are_named_as_labels():
    drawn = charts.card(card("grr", 2, levels=3), LABEL)
    labels = ["label 0", "label 1", "label 2"]
    assert drawn["xAxis"]["data"] == [series["name"] for series in drawn["series"]] == labels
    e = 2.718281828**2
    of_own_labels = [series["data"][i] for i, series in enumerate(drawn["series"])]
    assert of_own_labels == pytest.approx([e / (e + 2)] * 3, rel=1e-3)


def a_run(name, data="flights", measures=("auc", "accuracy"), rounds=3):
    options, references = {"dataset": data}, {"measures": [*measures]}
    return replace(RUN, name=name, options=options, references=references, rounds=rounds)


def test_the_run_of_the_page_comes_first_and_similar_runs_follow():
    iris = [a_run(f"iris {i}", "iris") for i in range(7)]
    plain = a_run("plain", measures=("accuracy", "auc"))
    linear = a_run("linear", measures=("mse",))
    begun, collected = a_run("begun", rounds=0), a_run("collected", measures=())
    runs = [begun, *iris, collected, linear, plain, a_run("shown")]
    assert learning.alike("shown", runs) == ["shown", "plain"]
    assert learning.alike("begun", runs) == ["begun", "plain", "shown"], (
        "drawn after its first round"
    )
    assert learning.alike("collected", runs) == [f"iris {i}" for i in range(6)]
    assert learning.alike(None, runs) == [f"iris {i}" for i in range(6)]
    assert learning.alike("shown", []) == []


def test_runs_on_other_data_are_marked():
    assert learning.titles([a_run("a"), a_run("b")]) == ["a", "b"]
    assert learning.titles([a_run("a"), a_run("b", "iris")]) == ["a (flights)", "b (iris)"]


def test_the_epsilon_of_a_run_names_its_number_of_rounds():
    of_device = "epsilon of a device with all of its records"
    for began, planned, span in (
        (10, 10, "in the run"),
        (10, 40, "in 10 rounds"),
        (10, None, "in 10 rounds"),
        (None, None, "a round"),
        (None, 40, "a round"),
    ):
        references = {**REFERENCES, "rounds": began, "classes": REFERENCES["classes"][:1]}
        run = replace(RUN, references=references, schedule={"rounds": planned})
        table = privacy.classes_table(Snapshot("s", run=run))
        assert f"<th scope=col class=number>{of_device}, {span}<th" in table
        assert (
            table.index(f"{of_device}, a report") < table.index("mechanism") < table.index("card")
        )


def test_the_table_of_runs_says_what_each_protects():
    run = replace(RUN, guarantees=[promised(2.0, 1.0)])
    assert "<td>a device with all of its records: with epsilon 2<td" in learning.runs_table([run])


def test_spent_epsilon_follows_from_the_classes_that_reported():
    # The devices of the class that pays more have spent their budget, and only the others go on.
    history = (
        {"round": 1, "reports": 100, "spent": 300},
        {"round": 2, "reports": 100, "spent": 100},
    )
    opened = (OpenRound(3, "r", 1.0, None, 100, 100, 50),)
    paid = {3_000_000: 100, 1_000_000: 100}
    now = Snapshot("s", run=replace(RUN, reports=200), history=history, paid=paid, open=opened)
    assert curves.spent(now) == (300 + 100 + 50) / 1000
    assert curves.positions(now.run, history, curves.EPSILON, 0) == [0.3, 0.4]


def test_each_class_has_spent_the_cost_of_its_own_reports():
    # By the draw, 700 of 1000 devices pay 1 a report; the others, who pay 3, have had their last
    # round.
    run = replace(RUN, reports=1300, rounds=2, epsilon_before=4.0)
    paid, demanded = {1_000_000: 1000, 3_000_000: 300}, {1_000_000: 1400, 3_000_000: 600}
    now = Snapshot("s", run=run, paid=paid, demanded=demanded)
    assert curves.spent_by_class(now) == pytest.approx([1000 / 700, 3 * 300 / 300])
    assert curves.spent(now) == pytest.approx(1.9)
    assert "<td class=number>1.43<td" in privacy.classes_table(now)
    assert (
        "mean of devices: epsilon of a device with all of its records 1.9<td>by 1,300"
        in privacy.guarantees_table(now)
    )
    assert curves.spent_by_class(Snapshot("s")) == []


def promised(pure, share, before=0):
    """The guarantees of a class of devices, as a store has them: one report in this run, and so
    many before.
    """
    report = ReportKind(round(pure * 1e6))
    of = [
        Guarantee.of(span, {report: times}, 1e-6, share)
        for span, times in ((Span.REPORT, 1), (Span.RUN, 1), (Span.LIFE, 1 + before))
    ]
    return json.loads(json.dumps(OfClass(*of).as_json()))


def test_the_privacy_of_each_class_is_stated():
    classes = [promised(0.1, 0.3, before=999), promised(4.0, 0.7)]
    shown = privacy.guarantees_table(Snapshot("s", run=replace(RUN, guarantees=classes)))
    of_device = "a device with all of its records with epsilon"
    for words_of_class in (
        f"30 % of the devices: a report protects {of_device} 0.1<",
        f"30 % of the devices: this run protects {of_device} 0.1<",
        f"30 % of the devices: all runs so far together protect {of_device} 100, or 19.4 at delta 1e-06, if no run "
        "was chosen by the results of earlier ones<",
        f"70 % of the devices: this run protects {of_device} 4<",
    ):
        assert words_of_class in shown
    assert "against everybody who sees the reports, the host included" in shown


def test_a_part_of_a_collection_that_costs_a_little_less_counts_for_its_class():
    by_cost = {999_999: 10, 1_000_000: 10}
    now = Snapshot("s", run=replace(RUN, reports=20), paid=by_cost, demanded=by_cost)
    assert curves.spent_by_class(now) == [pytest.approx(0.02, rel=1e-5), None]
