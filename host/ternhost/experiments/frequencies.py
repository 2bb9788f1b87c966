"""Frequencies of a table of numbers and categories: collecting as it is, beside other ways to spend epsilon.

Every client holds a line of the table. `collecting` is `tern collect` at its defaults. The others are laws of published
protocols in floats, whose counts are drawn at once: one random attribute by optimised unary encoding or by generalised
randomised response (Wang et al., USENIX Security 2017), and every attribute at epsilon / d by the better of these two.
The error is the mean squared error of a frequency, averaged over the categorical attributes. No estimate is clipped at
0: all are unbiased.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from ternhost.datasets.base import Floats, Indices
from ternhost.errors import UsageError
from ternhost.experiments.base import Options, Outcome
from ternhost.experiments.cells import Cell, Row, Tables
from ternhost.experiments.pictures import Curve, Panel, draw
from ternhost.experiments.rounds import simulate
from ternhost.experiments.statistics import grouped, pick, summaries, values_of, winners
from ternhost.learn.base import Population
from ternhost.learn.collect import Collect, load
from ternhost.privacy.mechanisms.grr import frequency_variance

SUMMARY = (
    "squared error of estimated frequencies against epsilon, beside sampled unary encoding and a split budget"
)

_TABLE = "flights-table"
_OWN = "collecting"

# How many hold each category -> frequencies.
Protocol = Callable[[Indices, float, np.random.Generator], Floats]


def cells(options: Options) -> list[Cell]:
    name = options.dataset or _TABLE
    if not load(name)[0].categories:
        raise UsageError(f"{name} has no categorical attribute", hint=f"leave --dataset out, for {_TABLE}")
    epsilons = (1.0, 4.0) if options.quick else (0.5, 1.0, 2.0, 3.0, 4.0, 6.0)
    common = {"name": name, "most": 20_000 if options.quick else 1_000_000}
    return Cell.each("runs", _run, common, epsilon=epsilons, seed=options.seeds(10, 2))


def _run(name: str, most: int, epsilon: float, seed: int) -> list[Row]:
    table, _ = load(name)
    clients, rng = min(most, len(table.numeric)), np.random.default_rng([seed, 5])
    options = Collect.Options(dataset=name, epsilon=f"{epsilon:g}", clients=clients, seed=seed)
    collected = simulate(Collect(options, Population(clients=len(table.numeric)), table), seed)
    attributes = [entry for entry in collected.result([])["attributes"] if "frequencies" in entry]
    held = [np.rint(clients * np.array(entry["true"])).astype(np.int64) for entry in attributes]
    frequencies = {_OWN: [np.array(entry["frequencies"], np.float64) for entry in attributes]}
    d = len(table.numeric_names) + len(table.categories)
    frequencies |= {name: way(held, d, epsilon, rng) for name, way in _WAYS.items()}
    return [
        {
            "data": name,
            "clients": clients,
            "epsilon": epsilon,
            "run": seed,
            "way": way,
            "attribute": entry["name"],
            "categories": len(holders),
            "squared_error": float(np.mean((share - holders / clients) ** 2)),
        }
        for way, shares in frequencies.items()
        for entry, holders, share in zip(attributes, held, shares, strict=True)
    ]


def _unary(held: Indices, epsilon: float, rng: np.random.Generator) -> Floats:
    n, q = held.sum(), 1 / (math.exp(epsilon) + 1)
    bits = rng.binomial(held, 0.5) + rng.binomial(n - held, q)
    shares: Floats = (bits / n - q) / (0.5 - q)
    return shares


def _response(held: Indices, epsilon: float, rng: np.random.Generator) -> Floats:
    size, e = len(held), math.exp(epsilon)
    q = 1 / (e + size - 1)
    laws = np.full((size, size), q) + (e - 1) * q * np.eye(size)
    reports = sum(rng.multinomial(n, law) for n, law in zip(held, laws, strict=True))
    shares: Floats = (reports / held.sum() - q) / ((e - 1) * q)
    return shares


def _sampled(
    protocol: Protocol, held: list[Indices], d: int, epsilon: float, rng: np.random.Generator
) -> list[Floats]:
    """One of the d attributes of each client, chosen at random."""
    return [protocol(rng.binomial(own, 1 / d), epsilon, rng) for own in held]


def _split(held: list[Indices], d: int, epsilon: float, rng: np.random.Generator) -> list[Floats]:
    """All d attributes of each client, each at its share of epsilon."""
    share = epsilon / d
    unary_variance = 4 * math.exp(share) / math.expm1(share) ** 2
    return [
        (_response if frequency_variance(share, len(one)) < unary_variance else _unary)(one, share, rng)
        for one in held
    ]


_WAYS: dict[str, Callable[[list[Indices], int, float, np.random.Generator], list[Floats]]] = {
    "one attribute, unary encoding": partial(_sampled, _unary),
    "one attribute, randomised response": partial(_sampled, _response),
    "all attributes, epsilon split": _split,
}


def outcome(options: Options, tables: Tables) -> Outcome:
    by_attribute = tables["runs"]
    means = [
        {**own[0], "attribute": "all", "squared_error": float(np.mean([row["squared_error"] for row in own]))}
        for own in grouped(by_attribute, "epsilon", "run", "way").values()
    ]
    rows = summaries(means, ("data", "epsilon"), "way", "squared_error")
    best = winners(rows, ("data", "epsilon"), "way", "squared_error")
    ways, epsilons = values_of(rows, "way"), values_of(rows, "epsilon")
    middle = 1.0 if 1.0 in epsilons else epsilons[0]
    sizes = grouped(pick(by_attribute, epsilon=middle), "way", "categories")
    up = "mean squared error of a frequency"
    panels = [
        Panel(
            f"{rows[0]['data']}: {by_attribute[0]['clients']:,} clients",
            "epsilon of a client's report",
            up,
            Curve.each(rows, "way", "epsilon", "squared_error"),
            log_y=True,
        ),
        Panel(
            f"Attribute by attribute, epsilon {middle:g}",
            "categories of an attribute",
            up,
            [_by_size(way, sizes) for way in ways],
            log_x=True,
            log_y=True,
        ),
    ]
    return Outcome(
        {"runs": rows[0]["runs"]},
        {"frequencies": rows, "best": best, "attributes": by_attribute},
        {"frequencies": draw(panels, 2)},
        [
            f"epsilon {row['epsilon']:g}, {row['way']}: mean squared error of a frequency {row['squared_error']:.3g}"
            for row in rows
        ],
    )


def _by_size(way: str, sizes: dict[tuple[object, ...], list[Row]]) -> Curve:
    points = sorted(
        (own[0]["categories"], float(np.mean([row["squared_error"] for row in own])))
        for (name, _), own in sizes.items()
        if name == way
    )
    return Curve(way, [size for size, _ in points], [error for _, error in points])
