"""What the live page says that devices have spent, of every class."""

from dataclasses import replace

import pytest

from ternhost.learn.base import ALGORITHMS
from ternhost.run.options import RunOptions
from ternhost.run.run import Run
from ternhost.store.reader import Reader
from ternhost.store.snapshot import OpenRound, RunView, Snapshot
from ternhost.watch import curves
from ternhost.watch.page import privacy

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
    assert "<td>spent for life, mean of a device<td class=number>5.9<td>at most" in privacy._lines(now)
    assert curves.spent_by_class(Snapshot("s")) == []


def test_a_part_of_a_collection_that_costs_a_little_less_is_of_its_class():
    now = Snapshot(
        "s",
        run=replace(RUN, reports=20),
        paid={999_999: 10, 1_000_000: 10},
        demanded={999_999: 10, 1_000_000: 10},
    )
    assert curves.spent_by_class(now) == [pytest.approx(0.02, rel=1e-5), None]


def test_a_run_with_classes_tells_what_each_has_spent(tmp_path):
    made = ALGORITHMS.named("fedsgd").Options(reports=40, group=20, epsilons="0.5:0.5,1:0.5")
    with Run.begin(RunOptions("fedsgd", made, "simulated:40"), parent=tmp_path, name="r") as run:
        result = run.run()
        with Reader(run.files.store) as reader:
            now = reader.snapshot()
    assert result["reports"] == 40
    assert sum(now.demanded.values()) == 40
    each = [own["epsilon_per_report"] for own in now.run.classes]
    assert each == pytest.approx([0.5, 1], rel=1e-3)
    times = 40 / curves.devices_of(now.run, now.devices)
    assert curves.spent_by_class(now) == pytest.approx([cost * times for cost in each])
