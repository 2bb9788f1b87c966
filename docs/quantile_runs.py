"""The runs behind the tables about quantiles: functions as in `simulated_runs`, for `Cell`.

Each device holds one number of a distribution, or the records of a board are dealt to it. Errors
and widths are in shares of the public range.
"""

import math

import numpy as np
import quantile_peers as peers

from tern.fixed import ONE
from ternhost.datasets import Table
from ternhost.learn.base import Population
from ternhost.learn.distributions.quantiles import Quantiles
from ternhost.planning.simulation import collection, simulate

METHODS = (
    "tern",
    "flat",
    "square wave, EM",
    "square wave, EMS",
    "bisection",
    "Bayesian search",
)
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
_LIST = "0.5,0.9,0.99"
RUNS_OF_A_SEED = 25  # so that 16 seeds make 400 runs
_HELD = 1  # of the random numbers of devices, so that they differ from those of a run


def _uniform(count, rng):
    return rng.random(count)


def _skewed(count, rng):
    return rng.beta(2, 12, count)


def _two_peaks(count, rng):
    lower, upper = rng.normal(0.25, 0.05, count), rng.normal(0.75, 0.08, count)
    return np.where(rng.random(count) < 0.6, lower, upper)


def _heavy_tail(count, rng):
    return rng.pareto(1.2, count) / 50


def _constant(count, rng):
    return np.full(count, 0.37)


DISTRIBUTIONS = {  # on a public range from 0 to 1, to which numbers outside of it are clipped
    "uniform": _uniform,
    "skewed": _skewed,
    "two peaks": _two_peaks,
    "heavy tail": _heavy_tail,
    "constant": _constant,
}


def held_values(distribution, count, seed):
    """Return the numbers of devices as they hold them, in Q1.14 (n).

    distribution: a name of DISTRIBUTIONS.
    """
    rng = np.random.default_rng([_HELD, seed])
    values = DISTRIBUTIONS[distribution](count, rng).clip(0, 1)
    return np.round((2 * values - 1) * ONE).astype(np.int16)


def shares_of_range(held):
    """Return numbers in Q1.14 as numbers from 0 to 1."""
    return (held / ONE + 1) / 2


def true_quantiles(held):
    """Return the QUANTILES of numbers in Q1.14: the least ones that such shares do not exceed."""
    ascending = np.sort(held)
    ranks = [math.ceil(share * len(held)) for share in QUANTILES.values()]
    return ascending[np.array(ranks) - 1]


# Methods beside each other


def estimated(method, held, epsilon, seed):
    """Return the estimates of QUANTILES by a method, from 0 to 1.

    method: a name of METHODS. held: the numbers of the devices, in Q1.14. epsilon: that of the one
    report of each device, as a text.
    """
    shares = list(QUANTILES.values())
    values = shares_of_range(held)
    if method == "tern":
        entry = collected(held, epsilon, seed)
        return [shares_of_range(ONE * each["value"]) for each in entry["quantiles"]]
    if method == "flat":
        return peers.flat_histogram(values, shares, epsilon, seed)
    if method.startswith("square wave"):
        is_smoothed = method.endswith("EMS")
        return peers.square_wave(values, shares, epsilon, seed, is_smoothed)
    # All devices answer about one quantile, and for another one all of them report again.
    search = peers.bisection if method == "bisection" else peers.bayesian_search
    return [search(values, share, epsilon, seed) for share in shares]


def errors(method, distribution, devices, epsilon, seed):
    """Estimate once; return the errors of QUANTILES, by their names, in shares of the range."""
    held = held_values(distribution, devices, seed)
    true = shares_of_range(true_quantiles(held))
    found = np.abs(estimated(method, held, epsilon, seed) - true)
    return [dict(zip(QUANTILES, found.tolist(), strict=True))]


# Intervals


def widths(distribution, devices, epsilon, seed):
    """Run once; return the figures of `covered`."""
    held = held_values(distribution, devices, seed)
    return [covered(collected(held, epsilon, seed))]


def coverage(distribution, devices, epsilon, runs, seed):
    """Run so many times, with other numbers each time; return the means of `covered`."""
    rows = []
    for seed_of_run in seeds_of_runs(seed, runs):
        held = held_values(distribution, devices, seed_of_run)
        rows.append(covered(collected(held, epsilon, seed_of_run)))
    return [means(rows)]


def seeds_of_runs(seed, runs=RUNS_OF_A_SEED):
    """Return the seeds of so many runs that belong to a seed, and to no other one."""
    return range(seed * runs, (seed + 1) * runs)


def covered(entry):
    """Return how good the intervals of a run are. entry: of its result.

    The figures are whether the interval of a quantile has the true one of the devices (by its name
    in QUANTILES), and half its width, as a share of the range (`half_p50`, and so on); and the
    shares of the intervals of bins (`bins`) and of cumulative shares (`cumulative`) that have the
    true share.
    """
    row = {}
    for name, quantile in zip(QUANTILES, entry["quantiles"], strict=True):
        low, high = quantile["interval"]
        row[name] = low <= quantile["true"] <= high
        row[f"half_{name}"] = (high - low) / 2 / 2  # the range is 2 wide
    row["bins"] = _share_within(entry["histogram"])
    # The last cumulative share is always 1, so that its interval proves nothing.
    row["cumulative"] = _share_within(entry["cumulative"], slice(-1))
    return row


def _share_within(estimates, counted=slice(None)):
    """Return the share of intervals that have the true value. counted: which ones."""
    lows, highs = np.array(estimates["intervals"])[counted].T
    true = np.array(estimates["true"])[counted]
    rounding = 1e-9  # of sums that are 1
    return float(((lows <= true + rounding) & (true - rounding <= highs)).mean())


def means(rows):
    """Return the mean of each figure of several rows."""
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}


# Runs of tern


def collected(held, epsilon, seed):
    """Return the entry of the result of `tern collect quantiles` for one number of each device."""
    options = {"epsilon": epsilon, "seed": seed, "quantiles": _LIST}
    learner = collection(held[:, None], Quantiles, **options)
    (entry,) = simulate(learner, seed).entries()
    return entry


def coverage_of_records(distribution, boards, records, epsilon, runs, seed):
    """Run so many times with boards that hold many records; return the means of `covered`.

    records: how many each board holds. A record is a number of the distribution, and is protected.
    epsilon: of all reports of a board, as a text.
    """
    rows = []
    for seed_of_run in seeds_of_runs(seed, runs):
        held = held_values(distribution, boards * records, seed_of_run)
        table = Table(name="values", numeric_names=("x",), numeric=held[:, None])
        options = Quantiles.Options(
            unit="record",
            run_epsilon=epsilon,
            records=records,
            seed=seed_of_run,
            quantiles=_LIST,
        )
        learner = Quantiles.suited(options, Population(clients=boards), table)
        (entry,) = simulate(learner, seed_of_run).result([])["attributes"]
        rows.append(covered(entry))
    return [means(rows)]
