"""What the live page says of cards, of runs to compare, and of what devices have spent."""

from dataclasses import replace

import pytest

from ternhost.privacy import cards, mechanisms
from ternhost.store.snapshot import LABEL, OpenRound, RunView, Snapshot, TallyView
from ternhost.watch import curves
from ternhost.watch.page import charts, learning, privacy, rounds


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


def test_what_is_reported_is_in_the_order_of_its_values():
    for data in (card("lhp", 1), card("lhp", 4), card("optimal", 2), card("laplace", 1)):
        order, names = charts.outputs(data)
        values = [float(name) for name in names]
        assert values == sorted(values)
        assert sorted(order) == list(range(len(names)))
        drawn = charts.card(data)
        shown = [float(name) for name in drawn["xAxis"]["data"]]
        assert shown == sorted(shown)
        own = cards.decode_any(data)
        law = dict.fromkeys(range(len(order)), 0.0) | dict(enumerate(cards.distribution(own, 0)))
        assert sum(drawn["series"][2]["data"]) == pytest.approx(1, abs=1e-3)
        if len(shown) == len(order):
            assert drawn["series"][2]["data"] == pytest.approx([law[i] for i in order], abs=1e-5)


def test_many_reports_are_put_together_with_their_neighbours():
    data = card("laplace", 1)
    order, _ = charts.outputs(data)
    told = TallyView(data.hex(), tuple(range(len(order))))
    drawn = rounds._symbols(Snapshot("s", tallies=(told,)))
    assert len(drawn["xAxis"]["data"]) <= 64
    assert sum(drawn["series"][0]["data"]) == sum(range(len(order)))
    assert "outputs together" in drawn["xAxis"]["name"]


def test_labels_are_labels_and_no_numbers():
    data = card("grr", 2, levels=3)
    drawn = charts.card(data, LABEL)
    assert drawn["xAxis"]["data"] == ["label 0", "label 1", "label 2"]
    assert [own["name"] for own in drawn["series"]] == ["label 0", "label 1", "label 2"]
    for i, own in enumerate(drawn["series"]):
        e = 2.718281828**2
        assert own["data"][i] == pytest.approx(e / (e + 2), rel=1e-3)


# Which runs are compared


def a_run(name, data="flights", measures=("auc", "accuracy"), rounds=3, schedule=None, began_with=10):
    classes = [{"epsilon_per_report": 2.0, "epsilon_run": 2.0, "mechanism": "pm"}]
    return RunView(
        name,
        0.0,
        "running",
        "fedsgd",
        "f",
        options={"dataset": data},
        schedule=schedule,
        references={"measures": list(measures), "classes": classes, "rounds": began_with},
        rounds=rounds,
    )


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


@pytest.mark.parametrize(
    ("began_with", "schedule", "said"),
    [
        (10, None, "2"),
        (None, {"rounds": None}, "2 a round"),
        (None, {"rounds": 7}, "2 a round"),
        (10, {"rounds": 40}, "2 in 10 rounds"),
    ],
)
def test_the_epsilon_of_a_run_says_of_how_many_rounds_it_is(began_with, schedule, said):
    assert f">{said}<" in learning._runs_table([a_run("r", schedule=schedule, began_with=began_with)])


# What devices of each class have spent


CLASS = {"epsilon_run": 2.0, "mechanism": "pm", "k": 1, "levels": 3, "card": "", "card_hash": "ab"}
CLASSES = [
    {**CLASS, "share": 0.75, "epsilon_per_report": 1.0},
    {**CLASS, "share": 0.25, "epsilon_per_report": 3.0},
]
RUN = RunView(
    "r", 0.0, "running", "fedsgd", "f", references={"clients": 1000, "rounds": 10, "classes": CLASSES}
)


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
