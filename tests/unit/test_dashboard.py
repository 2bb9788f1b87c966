"""What the live page shows, without a browser: curves, the table of boards, pictures, words, cards, runs to compare,
and what devices have spent.
"""

import asyncio
import io
import json
import os
import socket
import time
from dataclasses import replace

import pytest
from rich.console import Console

from ternhost.cli import main
from ternhost.errors import USAGE
from ternhost.learn import judging
from ternhost.learn.base import ALGORITHMS, Population
from ternhost.learn.fedsgd import FedSGD, Options
from ternhost.learn.schedule import Schedule
from ternhost.privacy import cards, mechanisms
from ternhost.run import costs
from ternhost.run.options import RunOptions
from ternhost.run.run import Run
from ternhost.store.boards import BoardRow
from ternhost.store.reader import Reader
from ternhost.store.snapshot import LABEL, OpenRound, RunView, Snapshot, TallyView
from ternhost.store.store import Store
from ternhost.watch import curves, words
from ternhost.watch.page import charts, elements, fleet, learning, live_store, privacy, rounds, server
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
RUN = RunView("r", 0.0, "running", "fedsgd", "simulated:1000", references=REFERENCES, rounds=10, reports=1000)
HISTORY = [
    {
        "round": i, "asked": 100, "reports": 100, "refusals": 0, "ended": "complete", "began": 1.0,
        "finished": 2.0, "auc": 0.6 + i / 100, "accuracy": 0.7, "log_loss": 0.5, "tau": 0.5, "spent": 150.0,
    }
    for i in range(1, 11)
]  # fmt: skip


def test_a_curve_lies_in_its_interval_between_what_it_is_compared_with():
    found = curves.curve(RUN, HISTORY, "auc")
    assert found.points[0] == (100.0, 0.61)
    assert found.points[-1] == (1000.0, 0.7)
    assert (found.optimum, found.baseline) == (0.9, 0.5)
    assert [(low, high) for (_, low), (_, high) in zip(found.low, found.high, strict=True)] == [
        judging.auc_interval(y, 100, 300) for _, y in found.points
    ]
    assert not curves.curve(RUN, HISTORY, "log_loss").low, "a loss alone does not tell its interval"


def test_what_has_been_spent_is_the_mean_over_classes_and_devices():
    assert curves.cost_of_report(RUN) == 0.75 + 0.75
    assert curves.curve(RUN, HISTORY, "auc", curves.EPSILON).points[-1][0] == 1000 * 1.5 / 1000
    assert curves.curve(RUN, HISTORY, "auc", curves.EPSILON, registered=500).points[-1][0] == 3.0
    assert curves.curve(RUN, HISTORY, "auc", curves.ROUNDS).points[-1][0] == 10
    assert curves.axes(None, 0) == [curves.REPORTS, curves.ROUNDS]


def test_long_histories_have_few_points_with_the_first_and_the_last():
    assert curves.chosen(5) == [0, 1, 2, 3, 4]
    for count in (401, 1000, 100_000):
        found = curves.chosen(count)
        assert len(found) == len(set(found)) == curves.MOST
        assert (found[0], found[-1]) == (0, count - 1)
        assert found == sorted(found)


@pytest.mark.parametrize("name", ["three-outputs", "pm", "laplace", "duchi"])
def test_the_card_is_drawn_from_its_integers_and_all_pictures_are_json(name):
    data = mechanisms.design(name, epsilon_micro=2_000_000).card
    drawn = charts.card(data)
    json.dumps(drawn)
    for own in drawn["series"]:
        assert sum(own["data"]) == pytest.approx(1, abs=1e-3)
        assert len(own["data"]) == len(drawn["xAxis"]["data"]) <= 300
    for options in (
        charts.learning(curves.curve(RUN, HISTORY, "auc"), "guessing"),
        charts.learning(curves.curve(RUN, [], "auc"), None),
        charts.compared({"r": curves.curve(RUN, HISTORY, "auc")}, "auc", curves.REPORTS),
        charts.stepped("tau", [(1.0, 0.5)], curves.ROUNDS),
        charts.arriving([(0.0, 1.0), (1.0, 5.0)], 10),
        charts.bars(["a"], [1], "x", "y"),
    ):
        json.dumps(options)


def test_what_was_chosen_for_a_round_is_drawn_from_its_beginning_to_its_end_also_for_one_round():
    at = curves.positions(RUN, HISTORY[:2], curves.REPORTS, 0)
    drawn = charts.stepped("tau", list(zip(at, (0.5, 0.25), strict=True)), curves.REPORTS)["series"][0]
    assert drawn["step"] == "start", "up to a point its value holds"
    assert drawn["data"] == [[0, 0.5], [100, 0.5], [200, 0.25]]
    (chosen,) = charts.stepped("tau", [(100.0, 0.5)], curves.REPORTS)["series"]
    assert [x for x, _ in chosen["data"]] == [0, 100]
    assert charts.arriving([(0.0, 1.0), (37.2878, 5.0)], 10)["xAxis"]["max"] == 38, "a round number"
    drawn = charts.learning(curves.curve(RUN, HISTORY[:1], "auc"), "guessing")
    lines = {own["name"]: own["data"] for own in drawn["series"]}
    assert lines == {
        "AUC": [[100, 0.61]],
        "without privacy": [[0, 0.9], [100, 0.9]],
        "guessing": [[0, 0.5], [100, 0.5]],
    }
    assert "scale" not in drawn["xAxis"], "the axis begins at 0"


def boards(count):
    return tuple(
        BoardRow(f"b{i:03}", i, 1, bool(i % 2), float(i), {"budget": i * 1000, "text": "<b>x</b>"}, i % 3)
        for i in range(1, count + 1)
    )


def test_boards_are_searched_sorted_and_given_a_page_at_a_time():
    made = live_store.BoardTable()
    made.take(boards(100))
    assert made.page(0, 10)[0] == 100
    assert [row["name"] for row in made.page(10, 12)[1]] == ["b011", "b012"]
    count, rows = made.page(0, 100, "b01 ONLINE")
    assert (count, {row["online"] for row in rows}) == (5, {"online"}), "offline has no word that is online"
    assert [row["first"] for row in made.page(0, 3, sort="budget", descending=True)[1]] == [100, 99, 98]
    assert made.page(0, 3, sort="no such column")[0] == 100
    assert len(made.page(0, 10**9)[1]) == 100
    assert made.page(90, 10**9, "zzz") == (0, [])


def test_what_a_board_did_not_say_comes_last_however_it_is_sorted():
    made = live_store.BoardTable()
    made.take(
        (BoardRow("silent", 1, 1, True, 1.0), *(BoardRow("b", i, 1, True, 1.0, {"heap": i}) for i in (2, 3)))
    )
    for descending in (False, True):
        assert made.page(0, 9, sort="heap", descending=descending)[1][-1]["name"] == "silent"


def test_boards_that_stay_as_they_are_are_no_change():
    made = live_store.BoardTable()
    first = boards(10)
    made.take(first)
    assert made.changes == 1
    made.take(tuple(first))
    made.take((*first,))
    assert made.changes == 1
    made.take(first[:9])
    made.take((*first[:8], BoardRow("b009", 9, 1, False, 99.0)))
    assert made.changes == 3


def test_what_comes_from_a_store_is_text_and_no_html():
    evil = "<script>alert(1)</script>"
    now = Snapshot(evil, run=RunView(evil, 0.0, "running", evil, evil, references=REFERENCES), devices=1)
    for found in (
        elements.first(now),
        elements.table((evil,), [[evil]]),
        elements.empty(evil),
        elements.tile_html([(evil,) * 3]),
    ):
        assert evil not in found
        assert "&lt;script&gt;" in found


def test_words():
    assert [words.duration(seconds) for seconds in (0.02, 1, 90, 150, 7200, 200_000)] == [
        "20 ms", "1 s", "90 s", "2.5 min", "2 h", "2.31 d",
    ]  # fmt: skip
    now = Snapshot("s", run=RUN, history=tuple(HISTORY), open=(OpenRound(11, "r", None, None, 100, 90, 30),))
    assert {name: value for name, value, _ in words.tiles(now)} == {
        "rounds ended": "10", "reports accepted": "1,030", "AUC": "0.7000",
        "mean epsilon spent per device": "1.545", "devices": "1,000", "refusals": "0",
    }  # fmt: skip
    assert words.old(now) is None
    assert "nothing has been read yet" in words.old(Snapshot("s", note="locked"))


def test_what_there_is_nothing_of():
    run = replace(RUN, name="my run", references={})
    now = Snapshot("s", run=run, history=({"round": 1},))
    assert "tern runs --draw 'my run'" in learning._why_empty(now, [])
    assert "No round has ended" in learning._none_chosen(Snapshot("s", run=run))
    assert "chooses none" in learning._none_chosen(now)


def test_numbers_are_to_the_right_and_what_is_empty_is_not():
    told = elements.table(("reports", "refusals", "why"), [[5, None, ""], [6, 0, ""]])
    assert "<th scope=col class=number>reports<th scope=col class=number>refusals<th scope=col>why" in told


def test_lines_differ_in_more_than_their_colour_and_long_names_are_cut_in_a_legend():
    names = ["short", "greenhouse-" * 8, *map(str, range(4))]
    named = {name: curves.curve(RUN, HISTORY, "auc") for name in names}
    drawn = charts.compared(named, "auc", curves.REPORTS)
    assert len({(str(line["lineStyle"]["type"]), line["symbol"]) for line in drawn["series"]}) == 6
    short, long, *_ = drawn["legend"]["data"]
    assert "textStyle" not in short
    assert long["textStyle"]["overflow"] == "truncate"
    assert charts.bars(["a"], [1], "x", "boards")["yAxis"]["minInterval"] == 1, "counts are whole numbers"


def test_ports(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("NICEGUI_STORAGE_PATH", os.devnull)
    with Store(tmp_path / "store.sqlite"):
        pass
    with server.listening(0) as first:
        port = first.getsockname()[1]
        assert first.getsockname()[0] == "127.0.0.1"
        for words, message in (
            (["store.sqlite", "--port", "70000"], "--port must be 0"),
            (["store.sqlite", "--port", str(port)], f"cannot open port {port}"),
            (["none"], "there is no run or store"),
        ):
            assert main(["dashboard", str(tmp_path / words[0]), *words[1:]]) == USAGE
            assert message in capsys.readouterr().err
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            other.bind(("127.0.0.1", server.PORT))
            other.listen()
        except OSError:
            pass  # somebody else has it: as good
        with server.listening(None) as free:
            assert free.getsockname()[1] != server.PORT


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
def test_every_run_says_when_it_begins_what_it_is_compared_with_in_the_end(
    tmp_path, algorithm, options, what
):
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
        found = curves.curve(now.run, now.history, name)
        assert found.points[-1][1] == result[name]
        if found.low:
            assert [found.low[-1][1], found.high[-1][1]] == pytest.approx(result[f"{name}_interval"])
    assert before.get("measures", []) == result.get("measures", [])
    if "epsilon_per_client" in result:
        assert max(own["epsilon_run"] for own in before["classes"]) == result["epsilon_per_client"]
    for own in before["classes"]:
        json.dumps(charts.card(bytes.fromhex(own["card"])))
    json.dumps(summary_of(now).as_json())
    elements.first(now)
    assert sum(now.paid.values()) == now.run.reports, "what each report cost is written down"
    costs = [own["epsilon_per_report"] for own in before["classes"]]
    for cost in now.paid:
        assert min(abs(cost / 1e6 - own) for own in costs) < 1e-5
    assert {tally.what for tally in now.tallies} == {what}
    assert privacy._card(now, 0) == privacy._card(replace(now, tallies=()), 0)
    assert privacy._card(now, 0)[1] == what, "also before the first round"
    assert sum(entry["spent"] for entry in now.history) == pytest.approx(
        sum(cost / 1e6 * n for cost, n in now.paid.items())
    )


def test_records_of_the_devices_alone_are_compared_with_nothing():
    whom = Population(devices=10, knows_records=False, schedule=Schedule(rounds=None))
    found = costs.references(FedSGD(Options(dimension=5), whom))
    assert (found["measures"], found["rounds"]) == ([], None)
    assert found["classes"][0]["epsilon_per_report"] == 2


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
def test_a_page_of_another_site_neither_fetches_nor_frames(site, how, status):
    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})

    sent = []

    async def send(message):
        sent.append(message)

    said = [HERE, *((f"sec-fetch-{name}", value) for name, value in how.items())]
    said += [] if site is None else [("sec-fetch-site", site)]
    scope = {"type": "http", "headers": [(name.encode(), value.encode()) for name, value in said]}
    asyncio.run(server.OnlyHere(app, 8642)(scope, None, send))
    assert sent[0]["status"] == status
    head = dict(sent[0]["headers"])
    assert (head[b"x-frame-options"], head[b"x-content-type-options"]) == (b"DENY", b"nosniff")
    assert head[b"referrer-policy"] == b"no-referrer"


def test_epsilon_spent_counts_the_open_round_and_says_by_what():
    opened = (OpenRound(11, "r", 1.0, None, 100, 100, 50),)
    now = Snapshot("s", run=RUN, history=tuple(HISTORY), open=opened, paid={1_500_000: 1000})
    assert curves.spent(now) == 1050 * 1.5 / 1000
    (tile,) = [own for own in words.tiles(now) if own[0].startswith("mean epsilon spent")]
    assert tile[1:] == ("1.575", "by accepted reports, 1 to 3 each")
    assert curves.spent(Snapshot("s")) is None


def test_the_page_and_the_terminal_say_the_same_of_a_run_that_goes_on_for_longer():
    now, day = time.time(), 86_400
    seen = [
        BoardRow(f"b{i}", i, 1, True, now - heard, {"budget": left})
        for i, (heard, left) in enumerate([(2 * day, 1_000), (60, 1_250_000), (0, 1_750_000), (0, 1_875_000)])
    ]
    run = replace(RUN, schedule={"rounds": 40, "interval": 0.0})
    shown = Snapshot("s", read=now, run=run, history=tuple(HISTORY), boards=tuple(seen))
    console = Console(file=io.StringIO(), width=120)
    console.print(Drawn(summary_of(shown)))
    terminal = console.file.getvalue()
    assert "10 of 40, 1,000 reports" in terminal
    assert ("rounds ended", "10", "of 40") in words.tiles(shown)
    assert "1.25 is left on the board with the least" in terminal
    assert "<td>left, least of any board<td class=number>1.25<td>" in privacy._lines(shown)
    assert "half of 3 heard within a day have 1.75 or more" in privacy._lines(shown)


def test_a_run_that_should_have_written_by_now_is_not_shown_as_going_on():
    now = time.time()
    opened = OpenRound(11, "r", now - 500, 60.0, 100, 100, 50)
    seen = (BoardRow("b", 1, 1, True, now - 450),)
    dead = Snapshot("s", read=now, run=RUN, history=tuple(HISTORY), open=(opened,), boards=seen)
    assert dead.silent(now) == pytest.approx(450)
    assert words.old(dead).startswith("nothing written for 7.5 min")
    assert words.status(dead) == "running when last written"
    assert "boards online when last written" in dict(own[:2] for own in words.tiles(dead))
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
    told = [{"budget": i * 10_000, "release": "0.2.0"} for i in range(1, 1001)]
    told += [{"budget": 2**32 - 1, "release": f"9.{i}"} for i in range(9)]
    now = Snapshot("s", boards=tuple(BoardRow(f"b{i}", i, 1, True, 1.0, own) for i, own in enumerate(told)))
    left = fleet._histogram(now)
    assert left["xAxis"]["data"][-1] == "more"
    assert min(left["series"][0]["data"][:-1]) > 40, "the others are spread over all bars"
    assert sum(left["series"][0]["data"]) == 1009
    many = tuple(BoardRow(f"b{i}", i, 1, True, 1.0, {"release": str(i)}) for i in range(1000))
    releases = fleet._releases(Snapshot("s", boards=many))
    assert len(releases["xAxis"]["data"]) <= 22
    assert sum(releases["series"][0]["data"]) == 1000


# Cards, runs to compare, and what devices have spent


def card(name, epsilon, **more):
    return mechanisms.design(name, epsilon_micro=round(epsilon * 1e6), **more).card


def one_class(data, mechanism="grr"):
    return {"share": 0.5, "epsilon_per_report": 1.0, "card": data.hex(), "mechanism": mechanism}


def test_what_was_reported_through_different_cards_is_told_apart():
    wide, narrow = card("three-outputs", 1), card("three-outputs", 3)
    run = RunView(
        "r", 0.0, "running", "fedsgd", "f", references={"classes": [one_class(wide), one_class(narrow)]}
    )
    told = (
        TallyView(wide.hex(), (80, 70, 90)),
        TallyView(narrow.hex(), (11, 224, 17)),
        TallyView(wide.hex(), (6, 1, 1)),  # a class may be asked in several cohorts
    )
    drawn = rounds._symbols(Snapshot("s", run=run, tallies=told))
    values = [
        [f"{v:.4g}" for v in sorted(cards.output_values(cards.decode(data)))] for data in (wide, narrow)
    ]
    assert values[0] != values[1]
    assert drawn["xAxis"]["data"] == [f"{i}: {v}" for i, own in enumerate(values, 1) for v in own]
    assert sum(drawn["series"][0]["data"]) == 500
    assert sorted(drawn["series"][0]["data"][:3]) == [71, 86, 91]
    assert drawn["xAxis"]["name"] == "class: reported"
    alone = rounds._symbols(Snapshot("s", run=run, tallies=told[:1]))
    assert alone["xAxis"]["data"] == values[0]
    assert rounds._symbols(Snapshot("s", run=run)) is None
    data = card("laplace", 1)  # many reports are put together with their neighbours
    order, _ = charts.outputs(data)
    told = TallyView(data.hex(), tuple(range(len(order))))
    drawn = rounds._symbols(Snapshot("s", tallies=(told,)))
    assert len(drawn["xAxis"]["data"]) <= 64
    assert sum(drawn["series"][0]["data"]) == sum(range(len(order)))
    assert "outputs together" in drawn["xAxis"]["name"]


def test_what_is_reported_is_in_the_order_of_its_values():
    for data in (card("lhp", 1), card("lhp", 4), card("optimal", 2), card("laplace", 1)):
        order, names = charts.outputs(data)
        values = [float(name) for name in names]
        assert values == sorted(values)
        assert sorted(order) == list(range(len(names)))
        drawn = charts.card(data)
        shown = [float(name) for name in drawn["xAxis"]["data"]]
        assert shown == sorted(shown)
        own = cards.decode(data)
        law = dict.fromkeys(range(len(order)), 0.0) | dict(enumerate(cards.distribution(own, 0)))
        assert sum(drawn["series"][2]["data"]) == pytest.approx(1, abs=1e-3)
        if len(shown) == len(order):
            assert drawn["series"][2]["data"] == pytest.approx([law[i] for i in order], abs=1e-5)


def test_labels_are_labels_and_no_numbers():
    data = card("grr", 2, levels=3)
    drawn = charts.card(data, LABEL)
    assert drawn["xAxis"]["data"] == ["label 0", "label 1", "label 2"]
    assert [own["name"] for own in drawn["series"]] == ["label 0", "label 1", "label 2"]
    for i, own in enumerate(drawn["series"]):
        e = 2.718281828**2
        assert own["data"][i] == pytest.approx(e / (e + 2), rel=1e-3)


# Which runs are compared


def a_run(name, data="flights", measures=("auc", "accuracy"), rounds=3):
    references = {"measures": list(measures)}
    options = {"dataset": data}
    return RunView(name, 0.0, "running", "fedsgd", "f", options, references=references, rounds=rounds)


def test_the_run_of_the_page_comes_first_and_then_what_is_like_it():
    others = [a_run(f"iris {i}", "iris") for i in range(7)]
    plain = a_run("plain", measures=("accuracy", "auc"))
    linear = a_run("linear", measures=("mse",))
    begun, collected = a_run("begun", rounds=0), a_run("collected", measures=())
    here = [begun, *others, collected, linear, plain, a_run("own")]
    assert learning.alike("own", here) == ["own", "plain"]
    assert learning.alike("begun", here) == ["begun", "plain", "own"], (
        "it is drawn as soon as a round has ended"
    )
    assert learning.alike("collected", here) == [f"iris {i}" for i in range(6)]
    assert learning.alike(None, here) == [f"iris {i}" for i in range(6)]
    assert learning.alike("own", []) == []


def test_runs_on_other_data_are_marked():
    assert learning.titles([a_run("a"), a_run("b")]) == ["a", "b"]
    assert learning.titles([a_run("a"), a_run("b", "iris")]) == ["a (flights)", "b (iris)"]


def test_the_epsilon_of_a_run_says_of_how_many_rounds_it_is():
    one = REFERENCES["classes"][0]
    for began, planned, runs, head in (
        (10, 10, "2", "epsilon in the run"),
        (10, 40, "2 in 10 rounds", "epsilon in 10 rounds"),
        (10, None, "2 in 10 rounds", "epsilon in 10 rounds"),
        (None, None, "2 a round", "epsilon a round"),
        (None, 40, "2 a round", "epsilon a round"),
    ):
        references = {**REFERENCES, "rounds": began, "classes": [one]}
        run = replace(RUN, references=references, schedule={"rounds": planned})
        assert f">{runs}<" in learning._runs_table([run])
        table = privacy._table(Snapshot("s", run=run))
        assert f"<th scope=col class=number>{head}<th" in table
        assert table.index("epsilon a report") < table.index("mechanism") < table.index("card")


# What devices of each class have spent


def test_epsilon_spent_is_of_whoever_reported():
    # All devices of the dear class have spent what they may, and only the others go on.
    told = [(100, 3, 300), (100, 1, 100)]
    history = tuple({"round": i, "reports": n, "spent": e} for i, (n, _, e) in enumerate(told, 1))
    opened = (OpenRound(3, "r", 1.0, None, 100, 100, 50),)
    paid = {cost * 1_000_000: n for n, cost, _ in told}
    now = Snapshot("s", run=replace(RUN, reports=200), history=history, paid=paid, open=opened)
    assert curves.spent(now) == (300 + 100 + 50) / 1000
    assert curves.positions(now.run, history, curves.EPSILON, 0) == [0.3, 0.4]


def test_each_class_has_spent_what_its_own_reports_cost():
    # 700 of 1000 devices are of the cheap class, by the draw; the dear ones have had their last round.
    now = Snapshot(
        "s",
        run=replace(RUN, reports=1300, rounds=2, epsilon_before=4.0),
        paid={1_000_000: 1000, 3_000_000: 300},
        demanded={1_000_000: 1400, 3_000_000: 600},
    )
    assert curves.spent_by_class(now) == pytest.approx([1000 / 700, 3 * 300 / 300])
    assert curves.spent(now) == pytest.approx(1.9)
    assert "<td class=number>1.429<td" in privacy._table(now)
    assert "<td>spent in its life, mean per device<td class=number>5.9<td>at most" in privacy._lines(now)
    assert curves.spent_by_class(Snapshot("s")) == []


def test_a_part_of_a_collection_that_costs_a_little_less_is_of_its_class():
    now = Snapshot(
        "s",
        run=replace(RUN, reports=20),
        paid={999_999: 10, 1_000_000: 10},
        demanded={999_999: 10, 1_000_000: 10},
    )
    assert curves.spent_by_class(now) == [pytest.approx(0.02, rel=1e-5), None]
