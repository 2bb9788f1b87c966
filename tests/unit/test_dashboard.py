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
from unittest.mock import AsyncMock

import numpy as np
import pytest
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


def test_spent_epsilon_is_the_mean_over_classes_and_devices():
    assert curves.cost_of_report(RUN) == 0.75 + 0.75
    assert curves.curve(RUN, HISTORY, "auc", curves.EPSILON).points[-1][0] == 1000 * 1.5 / 1000
    assert curves.curve(RUN, HISTORY, "auc", curves.EPSILON, registered=500).points[-1][0] == 3.0
    assert curves.curve(RUN, HISTORY, "auc", curves.ROUNDS).points[-1][0] == 10
    assert curves.axes(None, 0) == [curves.REPORTS, curves.ROUNDS]


def test_long_histories_have_few_points_with_the_first_and_the_last():
    assert curves.chosen(5) == [0, 1, 2, 3, 4]
    for count in (401, 1000, 100_000):
        chosen = curves.chosen(count)
        assert len(chosen) == len(set(chosen)) == curves.MOST
        assert (chosen[0], chosen[-1]) == (0, count - 1)
        assert chosen == sorted(chosen)


@pytest.mark.parametrize("name", ["three-outputs", "pm", "laplace", "duchi"])
def test_the_card_is_drawn_from_its_integers_and_all_pictures_are_json(name):
    drawn = charts.card(card(name, 2))
    json.dumps(drawn)
    for series in drawn["series"]:
        assert sum(series["data"]) == pytest.approx(1, abs=1e-3)
        assert len(series["data"]) == len(drawn["xAxis"]["data"]) <= 300
    for options in (
        charts.learning(AUC, "guessing"),
        charts.learning(curves.curve(RUN, [], "auc"), None),
        charts.compared({"r": AUC}, "auc", curves.REPORTS),
        charts.stepped("tau", [(1.0, 0.5)], curves.ROUNDS),
        charts.arriving([(0.0, 1.0), (1.0, 5.0)], 10),
        charts.bars(["a"], [1], "x", "y"),
    ):
        json.dumps(options)


def test_a_value_chosen_for_a_round_is_drawn_from_its_start_to_its_end_even_for_one_round():
    at = curves.positions(RUN, HISTORY[:2], curves.REPORTS, 0)
    (series,) = charts.stepped("tau", list(zip(at, (0.5, 0.25), strict=True)), curves.REPORTS)[
        "series"
    ]
    assert series["step"] == "start", "a value holds up to its point"
    assert series["data"] == [[0, 0.5], [100, 0.5], [200, 0.25]]
    (series,) = charts.stepped("tau", [(100.0, 0.5)], curves.REPORTS)["series"]
    assert [x for x, _ in series["data"]] == [0, 100]
    assert charts.arriving([(0.0, 1.0), (37.2878, 5.0)], 10)["xAxis"]["max"] == 38, "a whole number"
    drawn = charts.learning(curves.curve(RUN, HISTORY[:1], "auc"), "guessing")
    assert {series["name"]: series["data"] for series in drawn["series"]} == {
        "AUC": [[100, 0.61]],
        "without privacy": [[0, 0.9], [100, 0.9]],
        "guessing": [[0, 0.5], [100, 0.5]],
    }
    assert "scale" not in drawn["xAxis"], "the axis begins at 0"


def boards(count):
    return tuple(
        BoardRow(
            f"b{i:03}", i, 1, bool(i % 2), float(i), {"budget": i * 1000, "text": "<b>x</b>"}, i % 3
        )
        for i in range(1, count + 1)
    )


def test_boards_are_searched_sorted_and_given_a_page_at_a_time():
    table = live_store.BoardTable()
    table.take(boards(100))
    assert table.page(0, 10)[0] == 100
    assert [row["name"] for row in table.page(10, 12)[1]] == ["b011", "b012"]
    count, rows = table.page(0, 100, "b01 ONLINE")
    assert (count, {row["online"] for row in rows}) == (5, {"online"}), (
        "'offline' does not match ONLINE"
    )
    assert [row["first"] for row in table.page(0, 3, sort="budget", descending=True)[1]] == [
        100,
        99,
        98,
    ]
    assert table.page(0, 3, sort="no such column")[0] == 100
    assert len(table.page(0, 10**9)[1]) == 100
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


def test_durations_and_tiles_are_written_for_people():
    assert [words.duration(seconds) for seconds in (0.02, 1, 90, 150, 7200, 200_000)] == [
        "20 ms",
        "1 s",
        "90 s",
        "2.5 min",
        "2 h",
        "2.31 d",
    ]
    now = replace(NOW, open=(OpenRound(11, "r", None, None, 100, 90, 30),))
    assert {name: value for name, value, _ in words.tiles(now)} == {
        "rounds ended": "10",
        "reports accepted": "1,030",
        "AUC": "0.7000",
        "epsilon spent, mean of devices": "1.55",
        "devices": "1,000",
        "refusals": "0",
    }
    assert words.old(now) is None
    assert "nothing has been read yet" in words.old(Snapshot("s", note="locked"))


def test_an_empty_panel_says_why():
    now = Snapshot("s", run=replace(RUN, name="my run", references={}), history=({"round": 1},))
    assert "tern runs --draw 'my run'" in learning._learning(now, [], None, curves.REPORTS, None)
    assert "chooses none" in learning._stepped(now, "tau", "range", curves.REPORTS)
    refused = tuple(entry | {"reports": 0, "refusals": 100} for entry in HISTORY)
    now = replace(NOW, run=replace(RUN, reports=0), history=refused)
    assert "No report yet" in learning._learning(now, ["auc"], "auc", curves.REPORTS, None), (
        "no empty axes"
    )
    assert "No report yet" in learning._stepped(now, "tau", "range", curves.REPORTS)


def test_a_fleet_whose_budget_is_spent_has_a_banner_with_the_remedy_and_a_tile_that_stands_out():
    last = {**HISTORY[-1], "reports": 0, "refusals": 100, "reasons": {"budget": 100}}
    spent = Snapshot(
        "s", run=replace(RUN, status="finished", refusals=100), history=(*HISTORY, last)
    )
    assert words.old(spent).startswith("every device refuses: budget spent.")
    assert "keep this promise by refusing. Devices with budget left may go on" in words.old(spent)
    assert summary_of(spent).note == words.old(spent), "in the terminal, too"
    assert elements.tile_html(words.tiles(spent)).count("class='tile warn'") == 1
    fine = replace(spent, run=replace(spent.run, refusals=0), history=HISTORY)
    assert words.old(fine) is None
    assert "tile warn" not in elements.tile_html(words.tiles(fine))
    for reasons, banner in (
        ({"budget": 60, "policy": 10}, "60 of 100 devices refuse: budget spent."),
        ({"policy": 100}, "every device refuses: policy; the section Round"),
    ):
        assert words.old(replace(spent, history=({**last, "reasons": reasons},))).startswith(banner)


def test_the_status_of_a_run_has_a_colour_and_a_stopped_one_a_remedy():
    now = time.time()
    for status, tone in (
        ("running", "good"),
        ("finished", ""),
        ("stopped", "warn"),
        ("abandoned", "warn"),
    ):
        shown = replace(NOW, written=now, run=replace(RUN, status=status))
        assert f"<span class='badge {tone}'>{status}</span>" in elements.first(shown)
        assert ("'tern runs' shows the command" in (words.old(shown) or "")) == (
            status == "stopped"
        )


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


@pytest.mark.parametrize(
    ("algorithm", "options", "what"),
    [
        ("fedsgd", {"reports": 40, "group": 20, "mechanism": "grr"}, "value"),
        ("fedsgd", {"reports": 40, "group": 20, "epsilons": "1:0.5,4:0.5"}, "value"),
        ("fedsgd", {"reports": 40, "group": 20, "dataset": "iris"}, "value"),
        ("fedsgd", {"reports": 40, "group": 20, "dataset": "diabetes"}, "value"),
        ("fedavg", {"clients": 20, "rounds": 2}, "value"),
        ("hiera", {"reports": 40, "group": 20}, "value"),
        ("collect", {"clients": 20, "dataset": "iris"}, "value"),
        ("infer", {"answer": "label", "dataset": "iris"}, "label"),
        ("infer", {"dataset": "iris"}, "value"),
    ],
)
def test_a_run_states_at_its_start_the_references_of_its_result(tmp_path, algorithm, options, what):
    made = ALGORITHMS.named(algorithm).Options(**options)
    with Run.begin(RunOptions(algorithm, made, "simulated:40"), parent=tmp_path, name="r") as run:
        with Reader(run.files.store) as reader:
            before = reader.snapshot().run.references
        result = run.run()
    with Reader(run.files.store) as reader:
        now = reader.snapshot()
    assert now.run.references == before
    for name in before.get("measures", ()):
        assert before["optimum"][name] == result[f"{name}_optimum"]
        assert before["baseline"][name] == result[f"{name}_baseline"]
        curve = curves.curve(now.run, now.history, name)
        assert curve.points[-1][1] == result[name]
        if curve.low:
            assert [curve.low[-1][1], curve.high[-1][1]] == pytest.approx(
                result[f"{name}_interval"]
            )
    assert before.get("measures", []) == result.get("measures", [])
    if "epsilon_paid" in result:
        assert max(each["epsilon_run"] for each in before["classes"]) == result["epsilon_paid"]
    for each in before["classes"]:
        json.dumps(charts.card(bytes.fromhex(each["card"])))
    json.dumps(summary_of(now).as_json())
    elements.first(now)
    assert sum(now.paid.values()) == now.run.reports, "the cost of each report is stored"
    for cost in now.paid:
        assert (
            min(abs(cost / 1e6 - each["epsilon_per_report"]) for each in before["classes"]) < 1e-5
        )
    assert {tally.what for tally in now.tallies} == {what}
    assert privacy._card(now, 0) == privacy._card(replace(now, tallies=()), 0)
    assert privacy._card(now, 0)[1] == what, "before the first round, too"
    spent = sum(cost / 1e6 * n for cost, n in now.paid.items())
    assert sum(entry["spent"] for entry in now.history) == pytest.approx(spent)


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
    assert "<td>left on the board with the least: 1.25<td>" in privacy._lines(shown)
    assert "half of 3 heard within a day have 1.75 or more" in privacy._lines(shown)


def test_a_run_that_is_overdue_is_not_shown_as_running():
    now = time.time()
    opened = OpenRound(11, "r", now - 500, 60.0, 100, 100, 50)
    dead = replace(NOW, read=now, open=(opened,), boards=(BoardRow("b", 1, 1, True, now - 450),))
    assert dead.silent(now) == pytest.approx(450)
    assert words.old(dead).startswith("nothing written for 7.5 min")
    assert words.status(dead) == "running when last written"
    assert "boards online when last written" in {name for name, *_ in words.tiles(dead)}
    assert summary_of(dead).note == words.old(dead)
    for fine in (
        replace(dead, open=(replace(opened, deadline=600.0),)),
        replace(dead, open=(replace(opened, deadline=None),)),
        replace(dead, written=now - 1),
        replace(dead, run=replace(RUN, status="finished")),
        replace(dead, run=replace(RUN, schedule={"interval": 3600.0}), open=()),
    ):
        assert fine.silent(now) is None
        assert words.old(fine) is None


def test_boards_that_lie_do_not_spoil_the_charts_of_the_fleet():
    def snapshot(hellos):
        return Snapshot(
            "s", boards=[BoardRow("b", i, 1, True, 1.0, hello) for i, hello in enumerate(hellos)]
        )

    hellos = [{"budget": i * 10_000, "release": "0.2.0"} for i in range(1, 1001)]
    hellos += [{"budget": 2**32 - 1, "release": f"9.{i}"} for i in range(9)]
    left = fleet._histogram(snapshot(hellos))
    assert left["xAxis"]["data"][-1] == "more"
    assert min(left["series"][0]["data"][:-1]) > 40, "the others are spread over all bars"
    assert sum(left["series"][0]["data"]) == 1009
    few = fleet._histogram(snapshot([{"budget": i * 1_000_000} for i in (2, 2, 4)]))
    assert (few["xAxis"]["data"], few["series"][0]["data"]) == (["2", "4"], [2, 1]), (
        "a bar for each value"
    )
    assert fleet._histogram(snapshot([{"budget": 0}] * 3)) == "Epsilon left 0: 3 boards."
    assert fleet._histogram(snapshot([{}])) == "No board reports its budget."
    releases = fleet._releases(snapshot([{"release": str(i)} for i in range(1000)]))
    assert len(releases["xAxis"]["data"]) <= 22
    assert sum(releases["series"][0]["data"]) == 1000


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
    drawn = rounds._symbols(Snapshot("s", run=run, tallies=tallies))
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
    assert rounds._symbols(Snapshot("s", run=run, tallies=tallies[:1]))["xAxis"]["data"] == of_wide
    assert rounds._symbols(Snapshot("s", run=run)) is None
    data = card("laplace", 1)  # its many outputs are drawn together with their neighbours
    outputs = range(len(charts.outputs(data)[0]))
    drawn = rounds._symbols(Snapshot("s", tallies=(TallyView(data.hex(), tuple(outputs)),)))
    assert len(drawn["xAxis"]["data"]) <= 64
    assert sum(drawn["series"][0]["data"]) == sum(outputs)
    assert "outputs together" in drawn["xAxis"]["name"]


def test_outputs_are_in_the_order_of_their_values():
    for data in (card("lhp", 1), card("lhp", 4), card("optimal", 2), card("laplace", 1)):
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
        table = privacy._table(Snapshot("s", run=run))
        assert f"<th scope=col class=number>{of_device}, {span}<th" in table
        assert (
            table.index(f"{of_device}, a report") < table.index("mechanism") < table.index("card")
        )


def test_the_table_of_runs_says_what_each_protects():
    run = replace(RUN, guarantees=[promised(2.0, 1.0)])
    assert "<td>a device with all of its records: with epsilon 2<td" in learning._runs_table([run])


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
    assert "<td class=number>1.43<td" in privacy._table(now)
    assert (
        "mean of devices: epsilon of a device with all of its records 1.9<td>by 1,300"
        in privacy._lines(now)
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
    shown = privacy._lines(Snapshot("s", run=replace(RUN, guarantees=classes)))
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
