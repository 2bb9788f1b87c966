"""Estimates the frequencies of a table by tern's collecting, and by other ways to spend epsilon.

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
from ternhost.learn.collecting.collect import Values, load
from ternhost.planning.cells import Cell, Row, Tables
from ternhost.planning.simulation import simulate
from ternhost.planning.statistics import grouped, pick, summaries, values_of, winners
from ternhost.plots.curves import Curve, Panel, draw
from ternhost.privacy.mechanisms.grr import frequency_variance
from ternpapers.base import Options, Outcome
from ternpapers.datasets import stand_ins

_TERN = "collecting"
_DRAWS = 5  # distinguishes the draws of the other ways from those of collecting

_Y_LABEL = "mean squared error of a frequency"

# Takes how many clients hold each category, epsilon, and a generator; returns estimated frequencies.
Protocol = Callable[[Indices, float, np.random.Generator], Floats]


def cells(options: Options) -> list[Cell]:
    """Return a cell for each epsilon and seed.

    Raises UsageError if the table has no categorical attribute.
    """
    name = options.data or stand_ins.TABLE
    table, _ = load(name)
    if not table.categories:
        hint = f"leave --data out, for {stand_ins.TABLE}"
        raise UsageError(f"{name} has no categorical attribute", hint=hint)
    most = 1_000_000
    epsilons: tuple[float, ...] = (0.5, 1.0, 2.0, 3.0, 4.0, 6.0)
    if options.quick:
        epsilons, most = (1.0, 4.0), 20_000
    return Cell.for_each_combination(
        table="runs",
        work=_run,
        common={"name": name, "most": most},
        epsilon=epsilons,
        seed=options.seeds(default=10, quick=2),
    )


def _run(name: str, most: int, epsilon: float, seed: int) -> list[Row]:
    """Estimate the frequencies of a table in every way; return the error of each attribute.

    most: the largest number of clients.
    """
    table, _ = load(name)
    clients = min(most, len(table.numeric))
    rng = np.random.default_rng([seed, _DRAWS])

    # tern's collecting on simulated devices.
    options = Values.Options(data=name, epsilon=f"{epsilon:g}", clients=clients, seed=seed)
    collected = simulate(Values(options, Population(clients=len(table.numeric)), table), seed)

    attributes: list[str] = []
    true_counts = []  # for each attribute, how many clients hold each category
    tern_estimates = []
    for entry in collected.result([])["attributes"]:
        if "frequencies" in entry:  # it is categorical
            attributes.append(entry["name"])
            true_counts.append(np.rint(clients * np.array(entry["true"])).astype(np.int64))
            tern_estimates.append(np.array(entry["frequencies"], np.float64))

    # The other ways.
    d = len(table.numeric_names) + len(table.categories)
    estimates_by_way = {_TERN: tern_estimates}
    for way, estimate_all in _WAYS.items():
        estimates_by_way[way] = estimate_all(true_counts, d, epsilon, rng)

    common = {"data": name, "clients": clients, "epsilon": epsilon, "run": seed}
    rows: list[Row] = []
    for way, estimates in estimates_by_way.items():
        for attribute, counts, estimate in zip(attributes, true_counts, estimates, strict=True):
            setting = {"way": way, "attribute": attribute, "categories": len(counts)}
            error = float(np.mean((estimate - counts / clients) ** 2))
            rows.append({**common, **setting, "squared_error": error})
    return rows


def unary(holders: Indices, epsilon: float, rng: np.random.Generator) -> Floats:
    """Estimate frequencies by optimised unary encoding (Wang et al. 2017), with drawn counts.

    holders: how many clients hold each category. A client reports a bit for each category, which is
    1 with probability 1/2 at its own category, and with probability q = 1 / (e**epsilon + 1) at
    others. If a share f of the clients holds a category, the share of ones has the mean
    f / 2 + (1 - f) q, which is solved for f.
    """
    clients = holders.sum()
    q = 1 / (math.exp(epsilon) + 1)
    bits = rng.binomial(holders, 0.5) + rng.binomial(clients - holders, q)
    return np.asarray((bits / clients - q) / (0.5 - q))


def _response(holders: Indices, epsilon: float, rng: np.random.Generator) -> Floats:
    """Estimate frequencies by generalised randomised response (Wang et al. 2017), with drawn counts.

    holders: how many clients hold each category. A client reports its own of m categories with
    probability e**epsilon q, and each of the others with probability q = 1 / (e**epsilon + m - 1).
    If a share f of the clients holds a category, the share of reports of it has the mean
    f (e**epsilon - 1) q + q, which is solved for f.
    """
    categories = len(holders)
    e = math.exp(epsilon)
    q = 1 / (e + categories - 1)
    reports = np.zeros(categories, np.int64)
    for category, clients in enumerate(holders):
        probabilities = np.full(categories, q)
        probabilities[category] += (e - 1) * q
        reports += rng.multinomial(clients, probabilities)
    return np.asarray((reports / holders.sum() - q) / ((e - 1) * q))


def _sampled(
    protocol: Protocol, holders: list[Indices], d: int, epsilon: float, rng: np.random.Generator
) -> list[Floats]:
    """Estimate the frequencies of all attributes if each client reports one of d, at random.

    protocol: how it is reported. holders: for each categorical attribute, how many clients hold
    each category.
    """
    estimates = []
    for counts in holders:
        reporting = rng.binomial(counts, 1 / d)  # how many of them report this attribute
        estimates.append(protocol(reporting, epsilon, rng))
    return estimates


def _split(
    holders: list[Indices], d: int, epsilon: float, rng: np.random.Generator
) -> list[Floats]:
    """Estimate the frequencies of all attributes if each client reports all d, at epsilon / d each.

    holders: as of `_sampled`. Each attribute is reported by the protocol that has less variance.
    """
    epsilon_each = epsilon / d
    # Of one report, for a rare category: 4 e**epsilon / (e**epsilon - 1)**2.
    unary_variance = 4 * math.exp(epsilon_each) / math.expm1(epsilon_each) ** 2
    estimates = []
    for counts in holders:
        protocol = unary
        if frequency_variance(epsilon_each, len(counts)) < unary_variance:
            protocol = _response
        estimates.append(protocol(counts, epsilon_each, rng))
    return estimates


_WAYS: dict[str, Callable[[list[Indices], int, float, np.random.Generator], list[Floats]]] = {
    "one attribute, unary encoding": partial(_sampled, unary),
    "one attribute, randomised response": partial(_sampled, _response),
    "all attributes, epsilon split": _split,
}


def outcome(options: Options, tables: Tables) -> Outcome:
    """Return the errors of each way, and a picture of them by epsilon and by number of categories."""
    by_attribute = tables["runs"]
    means = []
    for group in grouped(by_attribute, "epsilon", "run", "way").values():
        means.append({**group[0], "attribute": "all", "squared_error": _mean_error(group)})
    by = ("data", "epsilon")
    rows = summaries(means, by, compared="way", figure="squared_error")
    best = winners(rows, by, compared="way", figure="squared_error")

    panels = [
        _panel_by_epsilon(rows, by_attribute[0]["clients"]),
        _panel_by_categories(by_attribute, values_of(rows, "way")),
    ]
    text = "epsilon {epsilon:g}, {way}: mean squared error of a frequency {squared_error:.3g}"
    lines = [text.format(**row) for row in rows]
    return Outcome(
        settings={"runs": rows[0]["runs"]},
        tables={"frequencies": rows, "best": best, "attributes": by_attribute},
        figures={"frequencies": draw(panels, columns=2)},
        lines=lines,
    )


def _panel_by_epsilon(rows: list[Row], clients: int) -> Panel:
    """Return a panel of the error of each way, averaged over the attributes, by epsilon."""
    title = f"{rows[0]['data']}: {clients:,} clients"
    curves = Curve.each(rows, "way", "epsilon", "squared_error")
    return Panel(title, "epsilon of a client's report", _Y_LABEL, curves, log_y=True)


def _panel_by_categories(by_attribute: list[Row], ways: list[str]) -> Panel:
    """Return a panel of the error of each way by an attribute's number of categories."""
    groups = grouped(pick(by_attribute, epsilon=1.0), "way", "categories")
    curves = [_by_size(way, groups) for way in ways]
    title = "Each attribute, epsilon 1"
    x_label = "categories of an attribute"
    return Panel(title, x_label, _Y_LABEL, curves, log_x=True, log_y=True)


def _by_size(way: str, groups: dict[tuple[Any, ...], list[Row]]) -> Curve:
    """Return the curve of a way's mean error by the number of categories.

    groups: the rows by way and number of categories.
    """
    errors = {}
    for (name, size), rows in groups.items():
        if name == way:
            errors[size] = _mean_error(rows)
    sizes = sorted(errors)
    return Curve(way, sizes, [errors[size] for size in sizes])


def _mean_error(rows: list[Row]) -> float:
    """Return the mean of the squared errors of these rows."""
    return float(np.mean([row["squared_error"] for row in rows]))
