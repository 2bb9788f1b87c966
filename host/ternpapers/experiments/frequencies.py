"""Frequencies of a table of numbers and categories: tern's collecting, compared with other ways to
spend epsilon.

Every client holds a line of the table. `collecting` is `tern collect` with its defaults. The other
ways are published protocols in floats, whose counts are drawn at once: one random attribute by
optimised unary encoding or by generalised randomised response (Wang et al., USENIX Security 2017),
and every attribute at epsilon / d by the better of these two. The error is the mean squared error
of a frequency, averaged over the categorical attributes. Estimates are not clipped at 0, so they
are unbiased.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ternhost.datasets.base import Floats, Indices
from ternhost.errors import UsageError
from ternhost.learn.base import Population
from ternhost.learn.collect import Collect, load
from ternhost.planning.cells import Cell, Row, Tables
from ternhost.planning.simulation import simulate
from ternhost.planning.statistics import grouped, pick, summaries, values_of, winners
from ternhost.plots.curves import Curve, Panel, draw
from ternhost.privacy.mechanisms.grr import frequency_variance
from ternpapers.base import Options, Outcome

_TABLE = "flights-table"
_TERN = "collecting"

# (how many clients hold each category, epsilon, generator) -> estimated frequencies
Protocol = Callable[[Indices, float, np.random.Generator], Floats]


def cells(options: Options) -> list[Cell]:
    name = options.dataset or _TABLE
    if not load(name)[0].categories:
        raise UsageError(
            f"{name} has no categorical attribute", hint=f"leave --dataset out, for {_TABLE}"
        )
    epsilons = (1.0, 4.0) if options.quick else (0.5, 1.0, 2.0, 3.0, 4.0, 6.0)
    common = {"name": name, "most": 20_000 if options.quick else 1_000_000}
    return Cell.each("runs", _run, common, epsilon=epsilons, seed=options.seeds(10, 2))


def _run(name: str, most: int, epsilon: float, seed: int) -> list[Row]:
    table, _ = load(name)
    clients, rng = min(most, len(table.numeric)), np.random.default_rng([seed, 5])
    options = Collect.Options(dataset=name, epsilon=f"{epsilon:g}", clients=clients, seed=seed)
    collected = simulate(Collect(options, Population(clients=len(table.numeric)), table), seed)
    attributes = [entry for entry in collected.result([])["attributes"] if "frequencies" in entry]
    holders = [np.rint(clients * np.array(entry["true"])).astype(np.int64) for entry in attributes]
    frequencies = {_TERN: [np.array(entry["frequencies"], np.float64) for entry in attributes]}
    d = len(table.numeric_names) + len(table.categories)
    frequencies |= {name: way(holders, d, epsilon, rng) for name, way in _WAYS.items()}
    common = {"data": name, "clients": clients, "epsilon": epsilon, "run": seed}
    rows: list[Row] = []
    for way, estimates in frequencies.items():
        for entry, counts, estimate in zip(attributes, holders, estimates, strict=True):
            attribute = {"way": way, "attribute": entry["name"], "categories": len(counts)}
            error = float(np.mean((estimate - counts / clients) ** 2))
            rows.append({**common, **attribute, "squared_error": error})
    return rows


def unary(holders: Indices, epsilon: float, rng: np.random.Generator) -> Floats:
    """Estimated frequencies by optimised unary encoding, from how many clients hold each category."""
    n, q = holders.sum(), 1 / (math.exp(epsilon) + 1)
    bits = rng.binomial(holders, 0.5) + rng.binomial(n - holders, q)
    return np.asarray((bits / n - q) / (0.5 - q))


def _response(holders: Indices, epsilon: float, rng: np.random.Generator) -> Floats:
    size, e = len(holders), math.exp(epsilon)
    q = 1 / (e + size - 1)
    probabilities = np.full((size, size), q) + (e - 1) * q * np.eye(size)
    reports = sum(rng.multinomial(n, row) for n, row in zip(holders, probabilities, strict=True))
    return np.asarray((reports / holders.sum() - q) / ((e - 1) * q))


def _sampled(
    protocol: Protocol, holders: list[Indices], d: int, epsilon: float, rng: np.random.Generator
) -> list[Floats]:
    """Each client reports one of its d attributes, chosen at random."""
    return [protocol(rng.binomial(counts, 1 / d), epsilon, rng) for counts in holders]


def _split(
    holders: list[Indices], d: int, epsilon: float, rng: np.random.Generator
) -> list[Floats]:
    """Each client reports all d attributes, each at epsilon / d."""
    part = epsilon / d
    unary_variance = 4 * math.exp(part) / math.expm1(part) ** 2
    return [
        (_response if frequency_variance(part, len(counts)) < unary_variance else unary)(
            counts, part, rng
        )
        for counts in holders
    ]


_WAYS: dict[str, Callable[[list[Indices], int, float, np.random.Generator], list[Floats]]] = {
    "one attribute, unary encoding": partial(_sampled, unary),
    "one attribute, randomised response": partial(_sampled, _response),
    "all attributes, epsilon split": _split,
}


def outcome(options: Options, tables: Tables) -> Outcome:
    by_attribute = tables["runs"]
    means = [
        {**group[0], "attribute": "all", "squared_error": _mean_error(group)}
        for group in grouped(by_attribute, "epsilon", "run", "way").values()
    ]
    rows = summaries(means, ("data", "epsilon"), "way", "squared_error")
    best = winners(rows, ("data", "epsilon"), "way", "squared_error")
    by_size = grouped(pick(by_attribute, epsilon=1.0), "way", "categories")
    title = f"{rows[0]['data']}: {by_attribute[0]['clients']:,} clients"
    x_label = "epsilon of a client's report"
    y_label, curves = (
        "mean squared error of a frequency",
        Curve.each(rows, "way", "epsilon", "squared_error"),
    )
    panels = [Panel(title, x_label, y_label, curves, log_y=True)]
    title, x_label = "Each attribute, epsilon 1", "categories of an attribute"
    curves = [_by_size(way, by_size) for way in values_of(rows, "way")]
    panels.append(Panel(title, x_label, y_label, curves, log_x=True, log_y=True))
    text = "epsilon {epsilon:g}, {way}: mean squared error of a frequency {squared_error:.3g}"
    lines = [text.format(**row) for row in rows]
    kept = {"frequencies": rows, "best": best, "attributes": by_attribute}
    return Outcome({"runs": rows[0]["runs"]}, kept, {"frequencies": draw(panels, 2)}, lines)


def _by_size(way: str, groups: dict[tuple[Any, ...], list[Row]]) -> Curve:
    points = sorted(
        (size, _mean_error(rows)) for (name, size), rows in groups.items() if name == way
    )
    return Curve(way, [size for size, _ in points], [error for _, error in points])


def _mean_error(rows: list[Row]) -> float:
    return float(np.mean([row["squared_error"] for row in rows]))
