"""What a run has learned round by round, in few enough points for a picture, beside what it is compared with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any

from ternhost.learn import judging
from ternhost.privacy.base import MICRO
from ternhost.run.directory import figures_of
from ternhost.store.snapshot import RunView, Snapshot

MOST = 400  # points
ROUNDS, REPORTS, EPSILON = "rounds", "reports", "epsilon spent"
Point = tuple[float, float]

interval = lru_cache(maxsize=1 << 16)(judging.interval_of)


@dataclass(frozen=True)
class Curve:
    """A figure (`measure`) by what is on the axis; low, high: its 95 % interval, where figures alone tell it.

    optimum: without privacy, baseline: of the answer that knows no features; None where that is not known.
    """

    measure: str
    by: str
    points: tuple[Point, ...]
    low: tuple[Point, ...] = ()
    high: tuple[Point, ...] = ()
    optimum: float | None = None
    baseline: float | None = None


def measures(run: RunView | None, history: Sequence[Mapping[str, Any]]) -> list[str]:
    """The figures of a run, the most telling one first."""
    if run is not None and run.references.get("measures"):
        return list(run.references["measures"])
    return list(figures_of(history[-1] if history else None))


def devices_of(run: RunView | None, registered: int) -> int:
    """How many devices a run can ask: those with a key, or those that were made or are simulated for it."""
    known = run.references if run else {}
    return registered or int(known.get("clients") or known.get("devices") or 0)


def cost_of_report(run: RunView | None) -> float:
    """The epsilon that a report costs its sender, in the mean over the classes of devices; 0 where it is not known."""
    classes = run.classes if run else ()
    return float(sum(own["share"] * own["epsilon_per_report"] for own in classes))


def spent(now: Snapshot) -> float | None:
    """The epsilon that devices have spent in the run, in the mean, by accepted reports: those of open rounds, too.

    Each counts what it cost; where that is not written down yet, what one of the last round did in the mean, or of all
    classes. What did not arrive, or is refused, may have cost its device as much. None where it is not known.
    """
    each, devices = cost_of_report(now.run), devices_of(now.run, now.devices)
    if now.run is None or not each or not devices:
        return None
    known = sum(now.paid.values())
    last = now.history[-1] if now.history else {}
    if known == now.run.reports and last.get("spent"):
        each = last["spent"] / last["reports"]
    return (sum(cost * n for cost, n in now.paid.items()) / MICRO + (now.accepted - known) * each) / devices


def spent_by_class(now: Snapshot) -> list[float | None]:
    """The epsilon that a device of each class has spent in the run, in the mean, by rounds that have ended.

    Of how many devices a class has, the share of those asked tells. Classes whose reports cost the same are told
    together. None where it is not known.
    """
    costs = [float(own["epsilon_per_report"]) for own in now.run.classes] if now.run else []
    devices, asked = devices_of(now.run, now.devices), sum(now.demanded.values())
    if now.run is None or not devices or sum(now.paid.values()) != now.run.reports:
        return [None] * len(costs)
    epsilons, demanded = dict.fromkeys(costs, 0.0), dict.fromkeys(costs, 0)
    for cost, reports in now.paid.items():
        nearest = min(
            costs, key=lambda own: abs(own - cost / MICRO)
        )  # parts of a question differ by a little
        epsilons[nearest] += reports * cost / MICRO
        demanded[nearest] += now.demanded[cost]
    return [epsilons[cost] * asked / devices / demanded[cost] if demanded[cost] else None for cost in costs]


def axes(run: RunView | None, registered: int) -> list[str]:
    """By what a curve can be drawn."""
    return [REPORTS, ROUNDS] + [EPSILON] * bool(cost_of_report(run) and devices_of(run, registered))


def positions(
    run: RunView | None, history: Sequence[Mapping[str, Any]], by: str, registered: int
) -> list[float]:
    """Where each round is on that axis: rounds, reports, or the epsilon that devices have spent, in the mean."""
    if by == ROUNDS:
        return [float(i) for i in range(1, len(history) + 1)]
    reports = [float(entry.get("reports", 0)) for entry in history]
    if by == REPORTS:
        return list(accumulate(reports))
    each, devices = cost_of_report(run), max(1, devices_of(run, registered))
    spent = [entry.get("spent") for entry in history]
    so_far = accumulate(n * each if own is None else own for n, own in zip(reports, spent, strict=True))
    return [epsilon / devices for epsilon in so_far]


def curve(
    run: RunView | None,
    history: Sequence[Mapping[str, Any]],
    measure: str,
    by: str = REPORTS,
    registered: int = 0,
    most: int = MOST,
) -> Curve:
    """The curve of a figure. registered: devices with a key."""
    at = positions(run, history, by, registered)
    shown = [i for i in chosen(len(history), most) if isinstance(history[i].get(measure), (int, float))]
    points = tuple((at[i], float(history[i][measure])) for i in shown)
    references = run.references if run else {}
    low: tuple[Point, ...] = ()
    high: tuple[Point, ...] = ()
    if judged := references.get("judged"):
        between = [(x, interval(measure, y, judged["records"], judged["positive"])) for x, y in points]
        low = tuple((x, ends[0]) for x, ends in between if ends)
        high = tuple((x, ends[1]) for x, ends in between if ends)
    return Curve(
        measure,
        by,
        points,
        low,
        high,
        references.get("optimum", {}).get(measure),
        references.get("baseline", {}).get(measure),
    )


def chosen(count: int, most: int = MOST) -> list[int]:
    """At most so many of `count` places, at equal distances, the first and the last among them."""
    if count <= most:
        return list(range(count))
    return [i * (count - 1) // (most - 1) for i in range(most)]


def series(history: Sequence[Mapping[str, Any]], name: str, at: Sequence[float]) -> list[Point]:
    """What was chosen for each round by that name (tau, rate)."""
    return [(at[i], float(history[i][name])) for i in chosen(len(history)) if name in history[i]]


def reasons(history: Sequence[Mapping[str, Any]]) -> Counter[str]:
    """Why devices refused in these rounds, and how often."""
    found: Counter[str] = Counter()
    for entry in history:
        found.update(entry.get("reasons") or {})
    return found


def word(measure: str) -> str:
    """A figure's name for people."""
    return judging.WORDS.get(measure, measure.replace("_", " "))
