"""What the live page draws of cards: their laws, and what was reported through each of them."""

from dataclasses import replace

import pytest

from ternhost.learn.base import ALGORITHMS
from ternhost.privacy import cards, mechanisms
from ternhost.run.options import RunOptions
from ternhost.run.run import Run
from ternhost.store.reader import Reader
from ternhost.store.snapshot import LABEL, RunView, Snapshot, TallyView
from ternhost.watch.page import charts, privacy, rounds


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


@pytest.mark.parametrize(
    ("algorithm", "options", "what"),
    [
        ("infer", {"answer": "label"}, "label"),
        ("infer", {}, "value"),
        ("collect", {"clients": 20, "dataset": "iris"}, "value"),
        ("fedsgd", {"reports": 40, "group": 20, "mechanism": "grr"}, "value"),
    ],
)
def test_what_a_symbol_stands_for_is_known_from_the_question_and_before(tmp_path, algorithm, options, what):
    made = ALGORITHMS.named(algorithm).Options(**options)
    with Run.begin(RunOptions(algorithm, made, "simulated:40"), parent=tmp_path, name="r") as run:
        run.run()
        with Reader(run.files.store) as reader:
            now = reader.snapshot()
    assert {own.what for own in now.tallies} == {what}
    assert privacy._card(now, 0) == privacy._card(replace(now, tallies=()), 0)
    assert privacy._card(now, 0)[1] == what
