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
    """Return the names of the figures of a run, such as "accuracy", the most important one first.

    history: an entry for each ended round. It is used if the run states no figures itself.
    """
    if run is not None and run.references.get("measures"):
        return list(run.references["measures"])
    return list(figures_of(history[-1] if history else None))


def devices_of(run: RunView | None, registered: int) -> int:
    """Return the number of devices of a run.

    registered: the number of devices with a key; without any, those emulated or simulated count.
    """
    references = run.references if run else {}
    return registered or int(references.get("clients") or references.get("devices") or 0)


def interval(run: RunView | None, measure: str, value: float) -> tuple[float, float] | None:
    """Return the ends of the 95 % interval of a figure on the held-out records.

    The result is None where the value of the figure does not determine an interval.
    """
    held_out = run.references.get("judged") if run else None
    if not held_out:
        return None
    return _interval_of(measure, value, held_out["records"], held_out["positive"])


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


def spent(snapshot: Snapshot) -> float | None:
    """Return the mean epsilon that a device has spent in the run by accepted reports.

    A report of an open round counts with the mean cost of the last round, or else of all classes.
    Lost or refused reports may have cost as much. The result is None where it is not known.
    """
    report_cost = cost_of_report(snapshot.run)
    devices = devices_of(snapshot.run, snapshot.devices)
    if snapshot.run is None or not report_cost or not devices:
        return None
    last_round = snapshot.history[-1] if snapshot.history else {}
    if last_round.get("reports"):
        report_cost = last_round["spent"] / last_round["reports"]
    elif in_rho(snapshot.run):
        report_cost = float(snapshot.run.classes[0]["rho_per_report"])
    # Costs in ended rounds are known exactly: micro-units of the run's measure -> reports.
    paid = sum(cost * reports for cost, reports in snapshot.paid.items()) / MICRO
    reports_in_open_rounds = snapshot.accepted - sum(snapshot.paid.values())
    total_cost = paid + reports_in_open_rounds * report_cost
    return as_epsilon(snapshot.run, total_cost / devices)


def in_rho(run: RunView | None) -> bool:
    """Whether a run spends rho, at the delta that its options name."""
    return bool(run and run.options.get("delta"))


def as_epsilon(run: RunView | None, amount: float) -> float:
    """Convert a cost in the run's own measure (epsilon or rho) into an epsilon."""
    if run is None or not in_rho(run):
        return amount
    return _epsilon_of(round(amount * MICRO), run.options["delta"])


@lru_cache(maxsize=1 << 13)
def _epsilon_of(micro_rho: int, delta: str) -> float:
    return epsilon_of(micro_rho, float(delta))


def spent_by_class(snapshot: Snapshot) -> list[float | None]:
    """Return the mean epsilon that a device of each class has spent in ended rounds.

    The share of a class among the requests estimates its share of the devices. Classes with equal
    costs are counted together. An entry is None where the number of devices is not known.
    """
    if snapshot.run is None:
        return []
    costs = [float(each["epsilon_per_report"]) for each in snapshot.run.classes]
    devices = devices_of(snapshot.run, snapshot.devices)
    if not devices:
        return [None] * len(costs)
    paid_by_cost = dict.fromkeys(costs, 0.0)
    requests_by_cost = dict.fromkeys(costs, 0)
    for micro_cost, reports in snapshot.paid.items():
        cost = micro_cost / MICRO
        class_cost = _nearest(costs, cost)  # the parts of a question differ a little in cost
        paid_by_cost[class_cost] += reports * cost
        requests_by_cost[class_cost] += snapshot.demanded[micro_cost]
    all_requests = sum(snapshot.demanded.values())
    spent_per_device: list[float | None] = []
    for cost in costs:
        if requests_by_cost[cost]:
            devices_of_class = devices * requests_by_cost[cost] / all_requests
            spent_per_device.append(as_epsilon(snapshot.run, paid_by_cost[cost] / devices_of_class))
        else:
            spent_per_device.append(None)
    return spent_per_device


def _nearest(costs: Sequence[float], wanted_cost: float) -> float:
    """Return that one of `costs` that is closest to `wanted_cost`."""
    return min(costs, key=lambda cost: abs(cost - wanted_cost))


# Curves


def axes(run: RunView | None, registered: int) -> list[str]:
    """The possible x axes of a curve."""
    possible = [REPORTS, ROUNDS]
    if cost_of_report(run) and devices_of(run, registered):
        possible.append(EPSILON)
    return possible


def positions(run: RunView | None, history: History, by: str, registered: int) -> list[float]:
    """Return the x coordinate of each round on an axis.

    by: ROUNDS, REPORTS (both counted from the start) or EPSILON (mean spent per device so far).
    registered: the number of devices with a key.
    """
    if by == ROUNDS:
        return [float(number) for number in range(1, len(history) + 1)]
    if by == REPORTS:
        return list(accumulate(float(entry.get("reports", 0)) for entry in history))
    devices = max(1, devices_of(run, registered))
    epsilons = []
    cost_so_far = 0.0
    for entry in history:
        cost_so_far += entry["spent"]
        epsilons.append(as_epsilon(run, cost_so_far / devices))
    return epsilons


def curve(
    run: RunView | None,
    history: History,
    measure: str,
    by: str = REPORTS,
    registered: int = 0,
    most: int = MOST,
) -> Curve:
    """Return the curve of a figure over the rounds of a run, in at most `most` points.

    by: the x axis, as for `positions`. registered: the number of devices with a key. Rounds without
    this figure have no point, and points without an interval have no `low` and `high`.
    """
    x_of_round = positions(run, history, by, registered)
    points: list[Point] = []
    low: list[Point] = []
    high: list[Point] = []
    for index in chosen(len(history), most):
        value = history[index].get(measure)
        if not isinstance(value, (int, float)):
            continue
        points.append((x_of_round[index], float(value)))
        interval_ends = interval(run, measure, float(value))
        if interval_ends:
            low.append((x_of_round[index], interval_ends[0]))
            high.append((x_of_round[index], interval_ends[1]))
    optimum, baseline = compared_with(run, measure)
    return Curve(measure, by, tuple(points), tuple(low), tuple(high), optimum, baseline)


def chosen(count: int, most: int = MOST) -> list[int]:
    """Choose at most `most` of `count` indices, evenly spaced, the first and the last included."""
    if count <= most:
        return list(range(count))
    return [i * (count - 1) // (most - 1) for i in range(most)]


def series(history: History, name: str, x_of_round: Sequence[float]) -> list[Point]:
    """Return the points of a parameter that the algorithm chooses for each round (tau, rate).

    x_of_round: the x coordinate of each round, from `positions`.
    """
    points = []
    for index in chosen(len(history)):
        if name in history[index]:
            points.append((x_of_round[index], float(history[index][name])))
    return points
