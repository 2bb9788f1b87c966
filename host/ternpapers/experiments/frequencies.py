"""Frequencies of a table: tern's collecting, compared with other ways to spend epsilon.

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
    """A unit of work for each epsilon and seed."""
    name = options.dataset or _TABLE
    table, _ = load(name)
    if not table.categories:
        hint = f"leave --dataset out, for {_TABLE}"
        raise UsageError(f"{name} has no categorical attribute", hint=hint)
    most = 1_000_000
    epsilons: tuple[float, ...] = (0.5, 1.0, 2.0, 3.0, 4.0, 6.0)
    if options.quick:
        epsilons, most = (1.0, 4.0), 20_000
    common = {"name": name, "most": most}
    return Cell.each("runs", _run, common, epsilon=epsilons, seed=options.seeds(10, 2))


def _run(name: str, most: int, epsilon: float, seed: int) -> list[Row]:
    table, _ = load(name)
    clients, rng = min(most, len(table.numeric)), np.random.default_rng([seed, 5])
    options = Collect.Options(dataset=name, epsilon=f"{epsilon:g}", clients=clients, seed=seed)
    collected = simulate(Collect(options, Population(clients=len(table.numeric)), table), seed)
    entries = collected.result([])["attributes"]
    attributes = [entry for entry in entries if "frequencies" in entry]

    holders = []
    for entry in attributes:
        holders.append(np.rint(clients * np.array(entry["true"])).astype(np.int64))
    d = len(table.numeric_names) + len(table.categories)
    by_tern = [np.array(entry["frequencies"], np.float64) for entry in attributes]
    frequencies = {_TERN: by_tern}
    for way, estimate_all in _WAYS.items():
        frequencies[way] = estimate_all(holders, d, epsilon, rng)

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
    """Estimated frequencies by generalised randomised response."""
    size, e = len(holders), math.exp(epsilon)
    q = 1 / (e + size - 1)  # the probability of another category
    reports = np.zeros(size, np.int64)
    for category, clients in enumerate(holders):
        probabilities = np.full(size, q)
        probabilities[category] += (e - 1) * q
        reports += rng.multinomial(clients, probabilities)
    return np.asarray((reports / holders.sum() - q) / ((e - 1) * q))


def _sampled(
    protocol: Protocol, holders: list[Indices], d: int, epsilon: float, rng: np.random.Generator
) -> list[Floats]:
    """Each client reports one of its d attributes, chosen at random."""
    return [protocol(rng.binomial(counts, 1 / d), epsilon, rng) for counts in holders]


def _split(
    holders: list[Indices], d: int, epsilon: float, rng: np.random.Generator
) -> list[Floats]:
    """Each client reports all d attributes, each at epsilon / d, by the better protocol."""
    part = epsilon / d
    unary_variance = 4 * math.exp(part) / math.expm1(part) ** 2
    estimates = []
    for counts in holders:
        is_response_better = frequency_variance(part, len(counts)) < unary_variance
        protocol = _response if is_response_better else unary
        estimates.append(protocol(counts, part, rng))
    return estimates


_WAYS: dict[str, Callable[[list[Indices], int, float, np.random.Generator], list[Floats]]] = {
    "one attribute, unary encoding": partial(_sampled, unary),
    "one attribute, randomised response": partial(_sampled, _response),
    "all attributes, epsilon split": _split,
}


def outcome(options: Options, tables: Tables) -> Outcome:
    """The errors of each way, and a picture of them by epsilon and by the number of categories."""
    by_attribute = tables["runs"]
    means = []
    for group in grouped(by_attribute, "epsilon", "run", "way").values():
        means.append({**group[0], "attribute": "all", "squared_error": _mean_error(group)})
    rows = summaries(means, ("data", "epsilon"), "way", "squared_error")
    best = winners(rows, ("data", "epsilon"), "way", "squared_error")

    y_label = "mean squared error of a frequency"
    title = f"{rows[0]['data']}: {by_attribute[0]['clients']:,} clients"
    x_label = "epsilon of a client's report"
    curves = Curve.each(rows, "way", "epsilon", "squared_error")
    by_epsilon = Panel(title, x_label, y_label, curves, log_y=True)
    sizes = grouped(pick(by_attribute, epsilon=1.0), "way", "categories")
    title, x_label = "Each attribute, epsilon 1", "categories of an attribute"
    curves = [_by_size(way, sizes) for way in values_of(rows, "way")]
    by_categories = Panel(title, x_label, y_label, curves, log_x=True, log_y=True)

    text = "epsilon {epsilon:g}, {way}: mean squared error of a frequency {squared_error:.3g}"
    lines = [text.format(**row) for row in rows]
    kept = {"frequencies": rows, "best": best, "attributes": by_attribute}
    figures = {"frequencies": draw([by_epsilon, by_categories], 2)}
    return Outcome({"runs": rows[0]["runs"]}, kept, figures, lines)


def _by_size(way: str, groups: dict[tuple[Any, ...], list[Row]]) -> Curve:
    """The mean error of a way by the number of categories. groups: by way and this number."""
    errors = {}
    for (name, size), rows in groups.items():
        if name == way:
            errors[size] = _mean_error(rows)
    sizes = sorted(errors)
    return Curve(way, sizes, [errors[size] for size in sizes])


def _mean_error(rows: list[Row]) -> float:
    return float(np.mean([row["squared_error"] for row in rows]))
