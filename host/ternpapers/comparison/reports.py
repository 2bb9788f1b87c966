"""How a client reports d numbers with a total epsilon: drawn at random, and the variance of that."""

from functools import partial

import numpy as np

from ternhost.datasets import Floats
from ternpapers import baseline, laws
from ternpapers.perturbing import (
    MECHANISMS,
    WINDOWED,
    Perturb,
    duchi_tuples,
    largest_output,
    rounded,
    tuple_bound,
)

_SPLIT = ("laplace", "scdf", "staircase")  # these report all numbers, at epsilon / d each
TUPLES = "duchi"  # this one reports all numbers at once


def _numbers_in_report(name: str, epsilon: float, d: int) -> int:
    """Return k: how many of d numbers a client reports by a mechanism, each at epsilon / k."""
    if name in _SPLIT:
        return d
    return baseline.numbers_in_report(epsilon, d)


def of_a_number(
    name: str, epsilon: float, d: int, outputs: int | None = None
) -> tuple[int, Perturb]:
    """Return how many of d numbers a client reports, and the mechanism that perturbs these.

    If the client reports all of them, the mechanism is for whole tuples. The arguments are as of
    `reported`.
    """
    if name == TUPLES:
        return d, partial(_tuples, epsilon)
    k = _numbers_in_report(name, epsilon, d)
    perturb = MECHANISMS[name](epsilon / k)
    if outputs and name in WINDOWED:
        perturb = rounded(perturb, largest_output(name, epsilon / k), outputs)
    return k, perturb


def _tuples(epsilon: float, x: Floats, rng: np.random.Generator) -> Floats:
    """Perturb tuples (n x d) by Duchi's mechanism for them."""
    return duchi_tuples(x, epsilon, rng)


def reported(
    x: Floats, name: str, epsilon: float, rng: np.random.Generator, outputs: int | None = None
) -> Floats:
    """Perturb tuples (n x d) by a mechanism of perturbing.py; return unbiased reports (n x d).

    A report is 0 at the numbers that its client leaves out. name: the mechanism. epsilon: what the
    whole report costs. outputs: how many values each number of a report can have, by Algorithm 5 of
    Zhao et al., which rounds the reports of some mechanisms; None for no rounding.
    """
    n, d = x.shape
    k, perturb = of_a_number(name, epsilon, d, outputs)
    if k == d:
        return perturb(x, rng)

    coordinates = baseline.choose(n, d, k, rng)
    values = np.take_along_axis(x, coordinates, axis=1)
    reports = np.zeros((n, d))
    # The factor d / k makes up for the numbers that are left out.
    np.put_along_axis(reports, coordinates, d / k * perturb(values, rng), axis=1)
    return reports


def variances_of_reports(
    x: Floats, name: str, epsilon: float, d: int, outputs: int | None = None
) -> Floats:
    """Return the exact variance of the report of each number x, in a tuple of d numbers.

    The tuple is reported as by `reported`, with the same arguments. A client that reports k of d
    numbers perturbs each of them at epsilon / k, and multiplies it by d / k. With the probability
    1 - k / d the report of a number is 0. Both together multiply the mean square by d / k.
    """
    if name == TUPLES:
        return tuple_bound(epsilon, d) ** 2 - x * x  # each report is this bound or its negative
    k = _numbers_in_report(name, epsilon, d)
    mean_squares = laws.variances(name, epsilon / k, x, outputs) + x * x
    return d / k * mean_squares - x * x
