"""Which runs the live page compares, and what its table says of them."""

import pytest

from ternhost.store.snapshot import RunView
from ternhost.watch.page import learning


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
