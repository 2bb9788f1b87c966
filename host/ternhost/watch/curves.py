"""Learning curves of runs, the values to compare them with, and what devices have spent.

A figure is a measure of a model's quality, such as its accuracy. Reports and requests are counted
in the history of a run: an entry (a mapping) for each round that has ended.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any

from ternhost.learn.models import judging
from ternhost.privacy.base import MICRO
from ternhost.privacy.sums import epsilon_of
from ternhost.run.directory import figures_of
from ternhost.store.snapshot import RunView, Snapshot

MOST = 400  # points of a curve
ROUNDS, REPORTS, EPSILON = "rounds", "reports", "epsilon spent"
RANGE, RADIUS, RATE = "tau", "radius", "rate"  # parameters of a round, as in the history
Point = tuple[float, float]
History = Sequence[Mapping[str, Any]]  # an entry for each round that has ended

_interval_of = lru_cache(maxsize=1 << 16)(judging.interval_of)


@dataclass(frozen=True)
class Curve:
    """A figure of a model's quality against the rounds, the reports or the epsilon spent."""

    measure: str  # the name of the figure
    by: str  # the x axis: ROUNDS, REPORTS or EPSILON
    points: tuple[Point, ...]
    low: tuple[Point, ...] = ()  # the lower end of the 95 % interval of each point
    high: tuple[Point, ...] = ()  # the upper end
    optimum: float | None = None  # the value without privacy; None if it is not known
    baseline: float | None = None  # the value without features; None if it is not known


# What a run has


def measures(run: RunView | None, history: History) -> list[str]:
    """Return the names of the figures of a run, such as "accuracy", the most important one first.

    history: an entry for each ended round. The last one is looked at if the run does not name its
    figures itself.
    """
    if run is not None and run.references.get("measures"):
        return list(run.references["measures"])
    last_entry = history[-1] if history else None
    return list(figures_of(last_entry))


def devices_of(run: RunView | None, registered: int) -> int:
    """Return the number of devices of a run; 0 if it is not known.

    registered: the number of devices with a key in the store. If there is none, the devices are
    simulated clients or emulated, and the run knows their number.
    """
    if registered:
        return registered
    if run is None:
        return 0
    simulated_clients = run.references.get("clients")
    emulated_devices = run.references.get("devices")
    return int(simulated_clients or emulated_devices or 0)


def interval(run: RunView | None, measure: str, value: float) -> tuple[float, float] | None:
    """Return both ends of the 95 % interval of a figure, or None if it is not known.

    A figure is measured on held-out records, so chance decides about its last digits. value: the
    value of the figure.
    """
    held_out = run.references.get("judged") if run else None
    if not held_out:
        return None
    return _interval_of(measure, value, held_out["records"], held_out["positive"])


def compared_with(run: RunView | None, measure: str) -> tuple[float | None, float | None]:
    """Return a figure of the best model without privacy, and of a model without features.

    Each is None if it is not known.
    """
    if run is None:
        return None, None
    optimum = run.references.get("optimum", {}).get(measure)
    baseline = run.references.get("baseline", {}).get(measure)
    return optimum, baseline


def word(measure: str) -> str:
    """Return the display name of a figure."""
    return judging.WORDS.get(measure, measure.replace("_", " "))


def refusals_by_reason(history: History) -> Counter[str]:
    """Return how many requests the devices have refused in these rounds, by the reason."""
    refusals: Counter[str] = Counter()
    for entry in history:
        refusals.update(entry.get("reasons") or {})
    return refusals


# What devices have spent


def cost_of_report(run: RunView | None) -> float:
    """Return the mean epsilon of a report over all devices; 0 if it is not known.

    Devices of different classes have different epsilons, so the mean is weighted by their shares.
    """
    if run is None:
        return 0.0
    mean_epsilon = 0.0
    for device_class in run.classes:
        mean_epsilon += device_class["share"] * device_class["epsilon_per_report"]
    return float(mean_epsilon)


def spent(snapshot: Snapshot) -> float | None:
    """Return the mean epsilon that a device has spent in the run by accepted reports.

    Reports that were lost have cost as much, but are not counted. The result is None if the number
    of devices or the cost of a report is not known.
    """
    run = snapshot.run
    mean_cost = cost_of_report(run)
    devices = devices_of(run, snapshot.devices)
    if run is None or mean_cost == 0 or devices == 0:
        return None

    # In ended rounds the costs are known exactly, in millionths.
    micro_cost_of_ended_rounds = 0
    reports_of_ended_rounds = 0
    for micro_cost, reports in snapshot.paid.items():
        micro_cost_of_ended_rounds += micro_cost * reports
        reports_of_ended_rounds += reports

    # In open rounds a report is taken to cost as much as in the last one, or else as in the mean.
    last_entry = snapshot.history[-1] if snapshot.history else {}
    if last_entry.get("reports"):
        cost_in_open_round = last_entry["spent"] / last_entry["reports"]
    elif in_rho(run):
        cost_in_open_round = float(run.classes[0]["rho_per_report"])
    else:
        cost_in_open_round = mean_cost
    reports_of_open_rounds = snapshot.accepted - reports_of_ended_rounds

    total_cost = micro_cost_of_ended_rounds / MICRO + reports_of_open_rounds * cost_in_open_round
    return as_epsilon(run, total_cost / devices)


def in_rho(run: RunView | None) -> bool:
    """Return whether the costs of a run are counted in rho (zCDP) rather than in epsilon.

    They are if its options name a delta, unless a report has no cost in rho: some learners have a
    delta among their options, and need it for one of their units only.
    """
    if run is None:
        return False
    has_delta = bool(run.options.get("delta"))
    return has_delta and all("rho_per_report" in each for each in run.classes)


def as_epsilon(run: RunView | None, amount: float) -> float:
    """Convert a cost in the run's own measure, epsilon or rho, into an epsilon.

    A rho becomes the epsilon at the delta that the run's options name.
    """
    if run is None or not in_rho(run):
        return amount
    micro_rho = round(amount * MICRO)
    return _epsilon_of(micro_rho, run.options["delta"])


@lru_cache(maxsize=1 << 13)
def _epsilon_of(micro_rho: int, delta: str) -> float:
    """Return the epsilon of a rho (in millionths) at a delta; remembered, since it is slow."""
    return epsilon_of(micro_rho, float(delta))


def spent_by_class(snapshot: Snapshot) -> list[float | None]:
    """Return the mean epsilon that a device of each class has spent in ended rounds.

    Devices of a class have the same epsilon per report. How many devices a class has is estimated
    by its share of all requests. Classes with equal epsilons cannot be told apart, and get the same
    mean. An entry is None if the number of devices is not known, or none of them was asked.
    """
    run = snapshot.run
    if run is None:
        return []
    class_costs = [float(device_class["epsilon_per_report"]) for device_class in run.classes]
    devices = devices_of(run, snapshot.devices)
    if devices == 0:
        return [None] * len(class_costs)

    # A report counts for the class with the nearest cost: the parts into which a question is split
    # differ a little in cost.
    spent_by_cost = dict.fromkeys(class_costs, 0.0)
    requests_by_cost = dict.fromkeys(class_costs, 0)
    for micro_cost, reports in snapshot.paid.items():
        cost = micro_cost / MICRO
        class_cost = _nearest(class_costs, cost)
        spent_by_cost[class_cost] += reports * cost
        requests_by_cost[class_cost] += snapshot.demanded[micro_cost]

    all_requests = sum(snapshot.demanded.values())
    means: list[float | None] = []
    for class_cost in class_costs:
        requests = requests_by_cost[class_cost]
        if requests == 0:
            means.append(None)
            continue
        devices_of_class = devices * requests / all_requests
        means.append(as_epsilon(run, spent_by_cost[class_cost] / devices_of_class))
    return means


def _nearest(costs: Sequence[float], wanted_cost: float) -> float:
    """Return the one of `costs` that is closest to `wanted_cost`."""

    def distance(cost: float) -> float:
        """Return how far a cost is from the wanted one."""
        return abs(cost - wanted_cost)

    return min(costs, key=distance)


# Curves


def axes(run: RunView | None, registered: int) -> list[str]:
    """Return the x axes against which the curve of a run can be drawn.

    registered: the number of devices with a key. The epsilon spent is an axis only if the cost of a
    report and the number of devices are known.
    """
    possible = [REPORTS, ROUNDS]
    if cost_of_report(run) and devices_of(run, registered):
        possible.append(EPSILON)
    return possible


def positions(run: RunView | None, history: History, by: str, registered: int) -> list[float]:
    """Return where each ended round is on an axis: its x coordinate.

    by: the axis. ROUNDS and REPORTS count from the start of the run; EPSILON is the mean that a
    device has spent so far. registered: the number of devices with a key.
    """
    if by == ROUNDS:
        return [float(number) for number in range(1, len(history) + 1)]
    if by == REPORTS:
        reports_of_rounds = [float(entry.get("reports", 0)) for entry in history]
        return list(accumulate(reports_of_rounds))

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

    history: an entry for each ended round. measure: the name of the figure. by: the x axis, as for
    `positions`. registered: the number of devices with a key. Rounds without this figure have no
    point, and points without an interval have no `low` and `high`.
    """
    x_of_round = positions(run, history, by, registered)
    points: list[Point] = []
    low_ends: list[Point] = []
    high_ends: list[Point] = []
    for index in evenly_spaced(len(history), most):
        value = history[index].get(measure)
        if not isinstance(value, (int, float)):
            continue  # this round has no such figure
        x = x_of_round[index]
        points.append((x, float(value)))
        interval_ends = interval(run, measure, float(value))
        if interval_ends is not None:
            low, high = interval_ends
            low_ends.append((x, low))
            high_ends.append((x, high))
    optimum, baseline = compared_with(run, measure)
    return Curve(
        measure=measure,
        by=by,
        points=tuple(points),
        low=tuple(low_ends),
        high=tuple(high_ends),
        optimum=optimum,
        baseline=baseline,
    )


def evenly_spaced(count: int, most: int = MOST) -> list[int]:
    """Return at most `most` of the indices 0 to count - 1, evenly spaced, with the first and last."""
    if count <= most:
        return list(range(count))
    last = count - 1
    return [step * last // (most - 1) for step in range(most)]


def bound_name(history: History) -> str:
    """Return the name in the history of the bound to which devices clip: RADIUS or RANGE."""
    has_radius = bool(history) and RADIUS in history[-1]
    return RADIUS if has_radius else RANGE


def parameter_word(name: str) -> str:
    """Return the display name of a parameter of a round."""
    words = {RANGE: "range (tau)", RADIUS: "radius", RATE: "learning rate"}
    return words[name]


def series(history: History, name: str, x_of_round: Sequence[float]) -> list[Point]:
    """Return the points of a parameter that the algorithm chooses anew for each round.

    name: of the parameter, such as "tau". x_of_round: the x coordinate of each round, from
    `positions`. Rounds without the parameter have no point.
    """
    points = []
    for index in evenly_spaced(len(history)):
        entry = history[index]
        if name in entry:
            points.append((x_of_round[index], float(entry[name])))
    return points
