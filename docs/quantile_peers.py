"""Other ways to estimate quantiles under local differential privacy, to compare tern's with.

No package that can be installed has them (pure-ldp 1.2 and multi-freq-ldpy 0.2 estimate the
frequencies of categories), so they are written here after their papers. They draw their noise in
floating point, and so they are for measurements only: their epsilon is not certified.

The numbers of the devices are from 0 to 1, and so are the estimates. Each device reports once, at
the epsilon that is named. The first three methods estimate all quantiles from the same reports.
The last two ask for one quantile only, and choose each question by the answers so far.
"""

import math

import numpy as np

from ternhost.datasets import Table
from ternhost.learn.base import Population
from ternhost.learn.collecting.collect import Values
from ternhost.planning.simulation import simulate

BINS = 256  # of the distributions that the peers estimate
_MOST_ITERATIONS = 10_000  # of EM
_LEAST_GAIN = 1e-3  # of the log-likelihood by which an iteration is worth another one
# Rounds of `bayesian_search`: more devices than this share a round, in equal numbers.
_MOST_ROUNDS = 1_000
_STEP = 0.6  # the constant of `bayesian_search` that its authors use


def flat_histogram(values, quantiles, epsilon, seed):
    """Estimate quantiles from a histogram of equal bins, each device's bin being a category.

    It is what `tern collect` estimates of a category: by randomised response or local hashing,
    whichever has less variance. There are 64 bins: more would make the noise larger.

    values: of the devices (n). quantiles: shares. epsilon: a text. Returns an array like quantiles.
    """
    bins = 64
    codes = _bins_of(values, bins).astype(np.int16)
    table = Table(
        name="bins",
        numeric_names=(),
        numeric=np.zeros((len(codes), 0), np.int16),
        categorical_names=("bin",),
        codes=codes[:, None],
        categories=(tuple(str(number) for number in range(bins)),),
    )
    options = Values.Options(epsilon=epsilon, seed=seed)
    collected = simulate(Values(options, Population(clients=len(codes)), table), seed)
    (entry,) = collected.result([])["attributes"]
    frequencies = np.array(entry["frequencies"])
    missing = 1 - frequencies.sum()  # since the estimates are unbiased, but do not add up to 1
    return _quantiles_of(frequencies + missing / bins, quantiles)


# The square wave: Li, Wang, Lopuhaa-Zwakenberg, Skoric and Li, Estimating Numerical Distributions
# under Local Differential Privacy, SIGMOD 2020.


def square_wave(values, quantiles, epsilon, seed, is_smoothed=True):
    """Estimate quantiles by the square wave mechanism, and EM with smoothing (EMS) or without (EM).

    Each device reports a number near its own with a higher density than any other one. The
    distribution is the one under which the reports are most likely.

    Arguments and result: as of `flat_histogram`. is_smoothed: whether each step of EM is followed
    by an average of neighbouring bins.
    """
    epsilon = float(epsilon)
    reports = _square_wave_reports(values, epsilon, np.random.default_rng(seed))
    width = _wave_width(epsilon)
    counts, _ = np.histogram(reports, BINS, (-width, 1 + width))
    likelihoods = _likelihoods(epsilon)
    shares = np.full(BINS, 1 / BINS)
    least_gain = _LEAST_GAIN
    if not is_smoothed:
        least_gain *= math.exp(epsilon)
    before = -math.inf
    for _ in range(_MOST_ITERATIONS):
        shares = shares * (likelihoods.T @ (counts / (likelihoods @ shares)))
        if is_smoothed:
            shares = _smoothed(shares)
        shares /= shares.sum()
        now = float(counts @ np.log(likelihoods @ shares))
        if abs(now - before) < least_gain:
            break
        before = now
    return _quantiles_of(shares, quantiles)


def _wave_width(epsilon):
    """Return the distance up to which reports are near, by equation 5 of the paper."""
    factor = math.exp(epsilon)
    return (epsilon * factor - factor + 1) / (2 * factor * (factor - 1 - epsilon))


def _wave_densities(epsilon):
    """Return the density of a report near the device's number, and of any other report."""
    factor = math.exp(epsilon)
    far = 1 / (2 * _wave_width(epsilon) * factor + 1)
    return factor * far, far


def _square_wave_reports(values, epsilon, rng):
    """Return a report of each device, from -width to 1 + width."""
    width = _wave_width(epsilon)
    near_density, _ = _wave_densities(epsilon)
    near = values + rng.uniform(-width, width, len(values))
    # The far reports have the length 1 in all: what is below the number, and what is above.
    place = rng.random(len(values))
    far = np.where(place < values, place - width, place + width)
    is_near = rng.random(len(values)) < 2 * width * near_density
    return np.where(is_near, near, far)


def _likelihoods(epsilon):
    """Return the probability of each bin of reports, if a number is in the middle of each bin.

    The result is BINS of reports x BINS of numbers.
    """
    width = _wave_width(epsilon)
    near_density, far_density = _wave_densities(epsilon)
    edges = np.linspace(-width, 1 + width, BINS + 1)
    middles = (np.arange(BINS) + 0.5) / BINS
    lowest = np.maximum(edges[:-1, None], middles - width)
    highest = np.minimum(edges[1:, None], middles + width)
    near_length = np.maximum(highest - lowest, 0)
    length = edges[1] - edges[0]
    return far_density * length + (near_density - far_density) * near_length


def _smoothed(shares):
    """Return the average of each bin and its neighbours, with the weights 1, 2 and 1."""
    weights = np.convolve(np.ones(len(shares)), (1, 2, 1), "same")  # fewer at both ends
    return np.convolve(shares, (1, 2, 1), "same") / weights


# Questions that depend on earlier answers


def bisection(values, quantile, epsilon, seed):
    """Estimate one quantile by a noisy binary search; return its estimate.

    In each of 8 rounds an eighth of the devices says, by randomised response, whether its number is
    below the middle of the interval that is left. Sources: Gaboardi, Rogers and Sheffet, Locally
    Private Mean Estimation, AISTATS 2019; the baseline of Aamand et al., ICML 2025.
    """
    rng = np.random.default_rng(seed)
    edges = np.arange(1, BINS) / BINS
    return _bisected(rng.permutation(values), edges, quantile, float(epsilon), rng)


def bayesian_search(values, quantile, epsilon, seed):
    """Estimate one quantile by a Bayesian search; return its estimate.

    The first devices are asked one after the other. Each says, by randomised response, whether its
    number is below the edge that is the median of what the host believes, and then the host
    believes less in the bins that the answer speaks against. The other devices bisect the edges
    that were asked about most. With more than 1,000 devices, several share each round.

    Source: Aamand, Boninsegna, Gentle, Imola and Pagh, Lightweight Protocols for Distributed
    Private Quantile Estimation, ICML 2025, after Gretta and Price, ICALP 2024. Their program is for
    the median; for another quantile, this one changes the probability of an answer accordingly.
    """
    epsilon = float(epsilon)
    rng = np.random.default_rng(seed)
    values = rng.permutation(values)
    log_bins = math.log(BINS)
    parts = log_bins + math.log(log_bins) + 1
    searching = int(len(values) * (log_bins + math.log(log_bins)) / parts)
    # How far the probability of an answer is taken to be from that at the quantile.
    difference = _STEP * math.sqrt(log_bins / len(values))
    probability = _answer_probability(quantile, epsilon)

    belief = np.full(BINS, 1 / BINS)  # that the quantile is in each bin
    visited = []
    for asked in np.array_split(values[:searching], min(searching, _MOST_ROUNDS)):
        cumulative = np.cumsum(belief)
        middle = int(np.searchsorted(cumulative, 0.5))
        is_left_nearer = middle > 0 and 2 * (0.5 - cumulative[middle - 1]) < belief[middle]
        edge = middle if is_left_nearer or middle == BINS - 1 else middle + 1
        visited.append(edge)
        yes = int(_answers(asked <= edge / BINS, epsilon, rng).sum())
        no = len(asked) - yes
        # The quantile is at the left of the edge if more than its share of numbers is.
        factors = []
        for likely_yes in (probability + difference, probability - difference):
            factors.append((likely_yes / probability) ** yes)
            factors[-1] *= ((1 - likely_yes) / (1 - probability)) ** no
        belief[:edge] *= factors[0]
        belief[edge:] *= factors[1]
        belief /= belief.sum()

    # Of the edges that were asked about, those at equal distances in the list of all questions.
    gamma = 1 / log_bins**2
    kept = np.quantile(visited, np.arange(1, int(1 / gamma) + 1) * gamma)
    edges = np.unique(np.round(kept)) / BINS
    return _bisected(values[searching:], edges, quantile, epsilon, rng, takes_nearest=True)


def _bisected(values, edges, quantile, epsilon, rng, takes_nearest=False):
    """Return the edge at which the share of smaller numbers crosses a quantile, by binary search.

    values: of the devices, in the order in which they are asked. edges: candidates, ascending.
    takes_nearest: whether the result is the edge with the nearest share, and not the last one.
    """
    steps = max(1, math.ceil(math.log2(len(edges) + 1)))
    probability = _answer_probability(quantile, epsilon)
    nearest, least_distance = edges[0], math.inf
    low, high = 0, len(edges) - 1
    for asked in np.array_split(values, steps):
        if low > high:
            break
        middle = (low + high) // 2
        share = _answers(asked <= edges[middle], epsilon, rng).mean()
        if abs(share - probability) < least_distance:
            nearest, least_distance = edges[middle], abs(share - probability)
        if share > probability:
            high = middle - 1
        else:
            low = middle + 1
    if takes_nearest:
        return float(nearest)
    return float(edges[min(low, len(edges) - 1)])


def _answers(is_true, epsilon, rng):
    """Return the answers yes of devices by randomised response. is_true: their true answers (n)."""
    keeps = rng.random(len(is_true)) < 1 / (1 + math.exp(-epsilon))
    return is_true == keeps


def _answer_probability(share, epsilon):
    """Return the probability that a device answers yes, if this share of all has the answer yes."""
    keeps = 1 / (1 + math.exp(-epsilon))
    return keeps * share + (1 - keeps) * (1 - share)


# Common


def _bins_of(values, bins):
    """Return the number of the bin of each value."""
    return np.minimum((values * bins).astype(np.int64), bins - 1)


def _quantiles_of(shares, quantiles):
    """Return quantiles of a distribution over equal bins, interpolated within a bin.

    shares: of the bins; they may be below 0. The cumulative shares are replaced by the nearest ones
    that never fall.
    """
    from scipy.optimize import isotonic_regression

    cumulative = np.clip(isotonic_regression(np.cumsum(shares)).x, 0, 1)
    cumulative = np.concatenate([[0], cumulative])
    bins = len(shares)
    estimates = []
    for quantile in quantiles:
        upper = min(max(int(np.searchsorted(cumulative, quantile)), 1), bins)
        before, after = cumulative[upper - 1], cumulative[upper]
        part = 0.5
        if after > before:
            part = min(max((quantile - before) / (after - before), 0), 1)
        estimates.append((upper - 1 + part) / bins)
    return np.array(estimates)
