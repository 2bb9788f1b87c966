"""The learning curve of a run, in few points, and its reference values."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any

from ternhost.learn import judging
from ternhost.privacy.base import MICRO
from ternhost.privacy.sums import epsilon_of
from ternhost.run.directory import figures_of
from ternhost.store.snapshot import RunView, Snapshot

MOST = 400  # points
ROUNDS, REPORTS, EPSILON = "rounds", "reports", "epsilon spent"
Point = tuple[float, float]
History = Sequence[Mapping[str, Any]]  # an entry for each round that has ended

_interval_of = lru_cache(maxsize=1 << 16)(judging.interval_of)


@dataclass(frozen=True)
class Curve:
    """A figure (`measure`) against an axis (`by`).

    low, high: 95 % interval. optimum: the value without privacy, baseline: the value without
    features. None where unknown.
    """

    measure: str
    by: str
    points: tuple[Point, ...]
    low: tuple[Point, ...] = ()
    high: tuple[Point, ...] = ()
    optimum: float | None = None
    baseline: float | None = None


# What a run has


def measures(run: RunView | None, history: History) -> list[str]:
    """The figures of a run, the most important one first."""
    if run is not None and run.references.get("measures"):
        return list(run.references["measures"])
    return list(figures_of(history[-1] if history else None))


def devices_of(run: RunView | None, registered: int) -> int:
    """The number of devices of a run: those with a key, else those emulated or simulated for it."""
    references = run.references if run else {}
    return registered or int(references.get("clients") or references.get("devices") or 0)


def interval(run: RunView | None, measure: str, value: float) -> tuple[float, float] | None:
    """The 95 % interval of a figure on the held-out records.

    None where the figure does not determine it.
    """
    judged = run.references.get("judged") if run else None
    if not judged:
        return None
    return _interval_of(measure, value, judged["records"], judged["positive"])


def compared_with(run: RunView | None, measure: str) -> tuple[float | None, float | None]:
    """The value of a figure without privacy, and without features; None where it is not known."""
    references = run.references if run else {}
    optimum = references.get("optimum", {}).get(measure)
    baseline = references.get("baseline", {}).get(measure)
    return optimum, baseline


def word(measure: str) -> str:
    """The display name of a figure."""
    return judging.WORDS.get(measure, measure.replace("_", " "))


def reasons(history: History) -> Counter[str]:
    """The number of refusals in these rounds, by reason."""
    refusals: Counter[str] = Counter()
    for entry in history:
        refusals.update(entry.get("reasons") or {})
    return refusals


# What devices have spent


def cost_of_report(run: RunView | None) -> float:
    """Mean epsilon of a report over the classes of devices; 0 where it is not known."""
    classes = run.classes if run else ()
    return float(sum(each["share"] * each["epsilon_per_report"] for each in classes))


def spent(now: Snapshot) -> float | None:
    """Mean epsilon spent per device in the run by accepted reports, or None where unknown.

    A report of an open round counts with the mean cost of the last round, or else of all classes.
    Lost or refused reports may have cost as much.
    """
    report_cost = cost_of_report(now.run)
    devices = devices_of(now.run, now.devices)
    if now.run is None or not report_cost or not devices:
        return None
    last_round = now.history[-1] if now.history else {}
    if last_round.get("reports"):
        report_cost = last_round["spent"] / last_round["reports"]
    elif in_rho(now.run):
        report_cost = float(now.run.classes[0]["rho_per_report"])
    paid = sum(cost * reports for cost, reports in now.paid.items()) / MICRO
    reports_in_open_rounds = now.accepted - sum(now.paid.values())
    amount = paid + reports_in_open_rounds * report_cost
    return as_epsilon(now.run, amount / devices)


def in_rho(run: RunView | None) -> bool:
    """Whether a run spends rho, at the delta that its options name."""
    return bool(run and run.options.get("delta"))


def as_epsilon(run: RunView | None, amount: float) -> float:
    """What a device has spent in a run, in the run's own measure, as an epsilon."""
    if run is None or not in_rho(run):
        return amount
    return _epsilon_of(round(amount * MICRO), run.options["delta"])


@lru_cache(maxsize=1 << 13)
def _epsilon_of(micro_rho: int, delta: str) -> float:
    return epsilon_of(micro_rho, float(delta))


def spent_by_class(now: Snapshot) -> list[float | None]:
    """Mean epsilon spent per device of each class, by ended rounds, or None where unknown.

    The share of a class among the requests estimates its share of the devices. Classes with equal
    costs are counted together.
    """
    if now.run is None:
        return []
    costs = [float(each["epsilon_per_report"]) for each in now.run.classes]
    devices = devices_of(now.run, now.devices)
    if not devices:
        return [None] * len(costs)
    paid = dict.fromkeys(costs, 0.0)
    requests = dict.fromkeys(costs, 0)
    for micro_cost, reports in now.paid.items():
        cost = micro_cost / MICRO
        nearest = _nearest(costs, cost)  # the parts of a question differ a little in cost
        paid[nearest] += reports * cost
        requests[nearest] += now.demanded[micro_cost]
    all_requests = sum(now.demanded.values())
    spent: list[float | None] = []
    for cost in costs:
        if requests[cost]:
            devices_of_class = devices * requests[cost] / all_requests
            spent.append(as_epsilon(now.run, paid[cost] / devices_of_class))
        else:
            spent.append(None)
    return spent


def _nearest(costs: Sequence[float], cost: float) -> float:
    return min(costs, key=lambda of_class: abs(of_class - cost))


# Curves


def axes(run: RunView | None, registered: int) -> list[str]:
    """The possible x axes of a curve."""
    possible = [REPORTS, ROUNDS]
    if cost_of_report(run) and devices_of(run, registered):
        possible.append(EPSILON)
    return possible


def positions(run: RunView | None, history: History, by: str, registered: int) -> list[float]:
    """The position of each round on an axis: rounds, reports, or mean epsilon spent per device."""
    if by == ROUNDS:
        return [float(i) for i in range(1, len(history) + 1)]
    if by == REPORTS:
        return list(accumulate(float(entry.get("reports", 0)) for entry in history))
    devices = max(1, devices_of(run, registered))
    totals = accumulate(entry["spent"] for entry in history)
    return [as_epsilon(run, total / devices) for total in totals]


def curve(
    run: RunView | None,
    history: History,
    measure: str,
    by: str = REPORTS,
    registered: int = 0,
    most: int = MOST,
) -> Curve:
    """The curve of a figure, in at most `most` points. registered: the number of devices with a key."""
    position = positions(run, history, by, registered)
    points: list[Point] = []
    low: list[Point] = []
    high: list[Point] = []
    for i in chosen(len(history), most):
        value = history[i].get(measure)
        if not isinstance(value, (int, float)):
            continue
        points.append((position[i], float(value)))
        ends = interval(run, measure, float(value))
        if ends:
            low.append((position[i], ends[0]))
            high.append((position[i], ends[1]))
    optimum, baseline = compared_with(run, measure)
    return Curve(measure, by, tuple(points), tuple(low), tuple(high), optimum, baseline)


def chosen(count: int, most: int = MOST) -> list[int]:
    """At most `most` of `count` indices, evenly spaced, the first and the last included."""
    if count <= most:
        return list(range(count))
    return [i * (count - 1) // (most - 1) for i in range(most)]


def series(history: History, name: str, at: Sequence[float]) -> list[Point]:
    """The parameter of that name (tau, rate) by round."""
    points = []
    for i in chosen(len(history)):
        if name in history[i]:
            points.append((at[i], float(history[i][name])))
    return points
