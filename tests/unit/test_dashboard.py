"""The contents of the live page, without a browser: curves, boards, pictures, texts and privacy."""

import asyncio
import os
import time
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import AsyncMock

import numpy as np
import pytest

from ternhost.errors import USAGE
from ternhost.learn.base import ALGORITHMS
from ternhost.privacy import mechanisms
from ternhost.run.begin import Place
from ternhost.run.options import RunOptions
from ternhost.run.run import Run
from ternhost.store.boards import BoardRow
from ternhost.store.reader import Reader
from ternhost.store.snapshot import OpenRound, RunView, Snapshot
from ternhost.store.store import Store
from ternhost.watch import curves, words
from ternhost.watch.page import charts, learning, live_store, privacy, rounds, server
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


def open_round(reports):
    """Round 11, with so many reports of 100 devices."""
    return OpenRound(
        number=11, run="r", began=1.0, deadline=None, asked=100, wanted=100, reports=reports
    )


# Curves


@pytest.mark.parametrize(
    ("axis", "registered", "end"),
    [
        (curves.ROUNDS, 0, 10),
        (curves.REPORTS, 0, 1000),
        (curves.EPSILON, 500, 1000 * 1.5 / 500),  # 1,000 reports of 1.5, by 500 clients
    ],
)
def test_a_curve_ends_where_the_run_does(axis, registered, end):
    assert curves.curve(RUN, HISTORY, "auc", axis, registered).points[-1][0] == end


# Pictures


def card(name, epsilon, **options):
    return mechanisms.design(name, epsilon_micro=round(epsilon * 1e6), **options).card


def boards(hellos):
    """A board for each of these hellos; those with an odd number are online."""
    return [
        BoardRow(f"b{i:03}", first=i, clients=1, online=bool(i % 2), heard=1.0, hello=hello)
        for i, hello in enumerate(hellos)
    ]


@pytest.mark.parametrize("epsilon", [0.5, 2, 8])
@pytest.mark.parametrize("name", ["three-outputs", "pm-sub", "laplace", "optimal", "grr"])
def test_most_of_a_card_can_be_seen_on_its_axes(name, epsilon):
    """Half of the drawn probabilities must be at least a fiftieth of the axis high, and the axis must
    not go on where nothing is reported.
    """
    picture = charts.card(card(name, epsilon))
    heights = np.array([series["data"] for series in picture["series"]])

    axis = picture["yAxis"]
    if axis["type"] == "log":
        positions = np.log(heights / axis["min"]) / np.log(axis["max"] / axis["min"])
    else:
        positions = heights / heights.max()
    assert np.median(positions) > 1 / 50
    assert heights[:, 0].max() > 1e-6
    assert heights[:, -1].max() > 1e-6
    # What is drawn is nearly everything that is reported.
    assert heights.sum(axis=1) == pytest.approx(np.ones(5), abs=2.1e-3)


# The table of boards


def test_a_search_finds_boards_with_all_of_its_words():
    """A search for "b01 ONLINE" finds the boards whose row has both words, without regard to case.
    Of the boards b000 to b099, those with an odd number are online.
    """
    table = live_store.BoardTable()
    table.take(tuple(boards(hellos=[{}] * 100)))

    count, rows = table.page(0, 100, "b01 ONLINE")  # of at most 100 rows from the first one

    assert count == 5, "b011, b013, ... b019"
    assert {row["online"] for row in rows} == {"online"}, "ONLINE is not found in offline"


@pytest.mark.parametrize("descending", [False, True])
def test_a_board_without_a_value_is_sorted_last_in_both_orders(descending):
    rows = live_store.BoardTable()
    rows.take(tuple(boards([{}, {"heap": 2}])))

    _, shown = rows.page(0, 9, sort="heap", descending=descending)

    assert [row["first"] for row in shown] == [1, 0]


# Texts


def test_the_tiles_count_the_reports_of_the_open_round():
    values = {name: value for name, value, _ in words.tiles(replace(NOW, open=(open_round(30),)))}
    assert values["reports"] == "1,030"
    assert values["rounds ended"] == "10"
    assert values["epsilon spent"] == "1.55"  # 1,030 reports of 1.5, by 1,000


def test_a_run_whose_reports_have_an_epsilon_is_not_counted_in_rho():
    """Quantiles have a delta among their options, for the unit of a record."""
    run = replace(RUN, options={"unit": "device", "delta": "1e-6"})
    assert not curves.in_rho(run)
    assert curves.spent(replace(NOW, run=run, paid={1_000_000: 1000})) == 1.0


@pytest.mark.parametrize(
    ("options", "protected", "delta"),
    [
        ({}, "a device with all of its records", "at delta\u00a00"),
        ({"unit": "record", "delta": "1e-6"}, "one record of a device", "at delta\u00a01e-06"),
    ],
    ids=["device", "record"],
)
def test_the_tile_of_epsilon_names_what_is_protected_and_the_delta(options, protected, delta):
    """An epsilon means nothing without what it protects, and the delta at which it holds."""
    classes = [{**each, "rho_per_report": 0.01} for each in REFERENCES["classes"]]
    run = replace(RUN, options=options, references={**REFERENCES, "classes": classes})

    tiles = {name: more for name, _, more in words.tiles(replace(NOW, run=run))}

    assert protected in tiles[words.EPSILON_SPENT]
    assert delta in tiles[words.EPSILON_SPENT]


def board_with(left, spent, **hello):
    """A board that says so many millionths are left of its budget, and spent."""
    hello = {"budget": left, "spent": spent, "measure": 0, "unit": 0, **hello}
    return BoardRow("b", first=1, clients=1, online=True, heard=time.time(), hello=hello)


def test_a_tile_shows_the_least_that_a_board_has_left_and_its_allowance():
    rich = board_with(left=7_000_000, spent=1_000_000)
    poor = board_with(left=500_000, spent=1_500_000, unit=1)
    now = replace(NOW, boards=(rich, poor), read=time.time())

    values = {name: (value, more) for name, value, more in words.tiles(now)}

    left, explanation = values[words.EPSILON_LEFT]
    assert left == "0.5"
    assert "allowance of 2;" in explanation
    assert "one record of a device" in explanation


def test_boards_that_tell_no_budget_have_no_tile_of_it():
    silent = BoardRow("b", first=1, clients=1, online=True, heard=time.time())
    names = [name for name, _, _ in words.tiles(replace(NOW, boards=(silent,), read=time.time()))]
    assert words.EPSILON_LEFT not in names


def test_the_allowance_is_that_of_the_ledgers_where_boards_tell_it():
    """The run was started with --budget 9, but a board refuses by its own ledger."""
    run = replace(RUN, options={"budget": "9"})
    board = board_with(left=7_000_000, spent=1_000_000)

    without_board = privacy.account_table(replace(NOW, run=run))
    with_board = privacy.account_table(replace(NOW, run=run, boards=(board,), read=time.time()))

    assert ">9<" in without_board
    assert ">8<" in with_board
    assert ">9<" not in with_board


def test_the_row_of_a_board_names_its_library_its_program_and_its_interpreter():
    text = "rp2040; micropython 1.28.0; tern 0.1.0; program thermostat 2; OSError; 27 C"
    row = live_store.row(board_with(left=1, spent=1, release="0.1.0", text=text))
    assert row["library"] == "tern 0.1.0"
    assert row["program"] == "thermostat 2"
    assert row["interpreter"] == "micropython 1.28.0"
    assert row["machine"] == "rp2040"


def test_a_text_of_another_form_names_neither_program_nor_interpreter():
    """A user's program may send any text."""
    row = live_store.row(board_with(left=1, spent=1, text="hello; world"))
    assert (row["program"], row["interpreter"], row["machine"]) == (None, None, None)


def test_the_rounds_show_the_bound_to_which_devices_clip():
    """A learner chooses the range, or the radius of a sum, anew for each round. With local training,
    each class of devices has a range of its own for the whole run.
    """
    assert ">0.5<" in rounds.last_rounds_table(NOW)

    of_sum = [{**without(entry, "tau"), "radius": 0.125} for entry in HISTORY]
    assert ">0.125<" in rounds.last_rounds_table(replace(NOW, history=tuple(of_sum)))

    classes = []
    for device_class, tau in zip(REFERENCES["classes"], (0.25, 0.75), strict=True):
        classes.append({**device_class, "tau": tau})
    run = replace(RUN, references={**REFERENCES, "classes": classes})
    no_choice = tuple(without(entry, "tau") for entry in HISTORY)
    assert ">0.25, 0.75<" in rounds.last_rounds_table(replace(NOW, run=run, history=no_choice))


def without(entry, name):
    return {key: value for key, value in entry.items() if key != name}


def test_a_radius_is_no_figure_of_a_model():
    """Of records that only the devices know, no figure is known: the radius must not stand for it."""
    entry = {"round": 1, "reports": 5, "radius": 0.5}
    assert curves.measures(replace(RUN, references={}), [entry]) == []


def test_a_fleet_that_refuses_has_the_same_banner_on_the_page_and_in_the_terminal():
    """Devices refuse a round whose cost their privacy budget or their policy does not allow. The
    terminal (`words.problem`) and the page (the note of its summary) name the most frequent reason
    in the same words.
    """
    reasons = {"budget": 60, "policy": 10}  # how many devices gave each
    last_round = {**HISTORY[-1], "reports": 0, "refusals": 100, "reasons": reasons}
    run = replace(RUN, status="finished", refusals=100)
    now = Snapshot("s", run=run, history=(*HISTORY, last_round))

    assert words.problem(now).startswith("60 of 100 devices refuse: budget spent.")
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


@pytest.mark.parametrize(
    "change",
    [
        lambda dead: {"open": (replace(dead.open[0], deadline=600.0),)},
        lambda dead: {"written": time.time() - 1},
        lambda dead: {"run": replace(RUN, status="finished")},
        lambda dead: {"run": replace(RUN, schedule={"every": "1h"}), "open": ()},
    ],
    ids=["later deadline", "just written", "finished", "long interval"],
)
def test_a_run_that_may_be_silent_has_no_note(change):
    dead = overdue()
    assert words.problem(replace(dead, **change(dead))) is None


# Runs beside each other


def run_on(data, name, measure="auc"):
    return replace(RUN, name=name, options={"data": data}, references={"measures": [measure]})


def test_the_run_of_the_page_comes_before_others_of_its_data_and_measure():
    """The page of a run draws its curve beside those of comparable runs: the same data set, judged
    by the same measure (here AUC).
    """
    runs = [
        run_on("iris", "other data set"),
        run_on("flights", "other measure", measure="mse"),
        run_on("flights", "similar"),
        run_on("flights", "shown"),
    ]
    assert learning.alike("shown", runs) == ["shown", "similar"]


# Privacy


def test_each_class_has_spent_the_cost_of_its_own_reports():
    """A device of the first class pays an epsilon of 1 for a report, one of the second pays 3. The
    page shows what a device of each class has spent on average in this run, and what one of all
    1,000 devices has. A round asks a device or not by a draw: both rounds asked 700 devices of the
    first class and 300 of the second.
    """
    run = replace(RUN, reports=1300, rounds=2, epsilon_before=4.0)
    reports_by_cost = {1_000_000: 1000, 3_000_000: 300}
    requests_by_cost = {1_000_000: 2 * 700, 3_000_000: 2 * 300}
    now = Snapshot("s", run=run, paid=reports_by_cost, demanded=requests_by_cost)

    assert curves.spent_by_class(now) == pytest.approx([1 * 1000 / 700, 3 * 300 / 300])
    assert curves.spent(now) == pytest.approx((1 * 1000 + 3 * 300) / 1000)


# The server


@pytest.mark.parametrize(
    ("fetch_headers", "status"),
    [
        ({"site": "cross-site", "mode": "navigate", "dest": "document"}, 200),
        ({"site": "cross-site", "mode": "navigate", "dest": "iframe"}, 403),
    ],
    ids=["link", "frame"],  # all others: test_metrics, of the same rule
)
def test_a_page_of_another_site_neither_fetches_nor_frames_the_dashboard(fetch_headers, status):
    """The dashboard shows what only its user may see. Browsers say in Sec-Fetch headers why they
    ask: a link from another site may open the page, but that site may not show it in a frame of its
    own.
    """

    async def dashboard(scope, receive, send):  # stands in for the application behind the guard
        await send({"type": "http.response.start", "status": 200, "headers": []})

    headers = [(b"host", b"127.0.0.1:8642")]  # as for a page of this machine
    for name, value in fetch_headers.items():
        headers.append((f"sec-fetch-{name}".encode(), value.encode()))
    send = AsyncMock()
    request = {"type": "http", "headers": headers}
    asyncio.run(server.OnlyHere(dashboard, 8642)(request, None, send))

    response_start, *_ = [call.args[0] for call in send.call_args_list]
    assert response_start["status"] == status
    response_headers = dict(response_start["headers"])
    assert response_headers[b"x-frame-options"] == b"DENY"


def test_a_port_that_is_taken_is_refused(tmp_path, tern, monkeypatch):
    """Another program listens on the port: the command ends as after a wrong use, and names the
    port.
    """
    monkeypatch.setenv("NICEGUI_STORAGE_PATH", os.devnull)
    store = str(tmp_path / "store.sqlite")
    with Store(store):
        pass
    with server.listening(0) as taken:
        _, port = taken.getsockname()

        ended = tern("dashboard", store, "--port", str(port), code=USAGE)

    assert f"port {port}" in ended.err


# Whole runs


@pytest.fixture(
    scope="module",
    params=[
        ("fedsgd", {"reports": 40, "group": 20, "epsilons": "1:0.5,4:0.5"}),
        ("values", {"clients": 20}),
    ],
    ids=["personal fedsgd", "values"],
)
def ended(request, tmp_path_factory):
    """A run on iris: its references at its start, its result and its last snapshot."""
    algorithm, options = request.param
    learning_options = ALGORITHMS.named(algorithm).Options(data="iris", **options)
    run_options = RunOptions(algorithm, learning_options, "simulated:40")
    with Run.begin(run_options, Place("r", tmp_path_factory.mktemp("runs"))) as run:
        with Reader(run.files.store) as reader:
            references = reader.snapshot().run.references
        result = run.run()
    with Reader(run.files.store) as reader:
        now = reader.snapshot()
    return SimpleNamespace(references=references, result=result, now=now)


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
