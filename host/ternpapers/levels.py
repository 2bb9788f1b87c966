"""Estimates means by HierA, where ranges of values, the *levels*, have an epsilon of their own.

Source: Hao, Wu, Wan, Sensors 2023, 23, 1115, Algorithm 5, with Algorithm 3 (LHP) on the clients and
Algorithm 4 (PLC) on the server. A client reports the level of its value and a sign, both perturbed
at the epsilon of the level. The server uses each report `mu` times: it also converts the report to
the next mu - 1 more private levels, each time anew, by adding noise to the sign (PLC). Where fewer
levels are more private, the report itself takes the place of the conversions that are missing, in
step 5. So each report counts mu times, at any level. Every copy is unbiased, and so is their mean:
the sum over all levels, divided by the number of copies (step 7).

There are these differences to the paper:

- As it is printed, step 5 is biased. Its listing leaves out the reports that were converted to the
  most private levels. The sentence below the listing adds as many copies of a report as should take
  the place of the report itself, so that some reports count mu + 1 times. Either way, reports of
  different levels count differently often, and the mean leans to some ranges of values.
- A report tells a level and a sign, and both depend on the value. Together their privacy loss is
  larger than the largest epsilon of a level, which the paper states for each of the two. The
  epsilon of the card, the table from which devices draw a report, is the true one, computed exactly
  from its integers.
- Step 6 cuts the corrected counts of both signs to 0 and the number N of the reports of their level.
  That cuts the level's sum to -N and N; the mean over all levels is not clamped again. It biases
  small samples, so it is an option.

Conversion adds noise: whatever the values are, no mu has a smaller variance than 1 (`variance`).
"""

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from tern.card import Card
from tern.fixed import ONE
from ternhost.count.rounds import Counts
from ternhost.datasets import Fixed, Indices
from ternhost.errors import UsageError
from ternhost.learn import liars
from ternhost.learn.parameters import Floats
from ternhost.options import require
from ternhost.privacy import cards, certify
from ternpapers.mechanisms import lhp


@lru_cache(maxsize=64)
def design(epsilon: int, proportions: tuple[float, ...] = lhp.BUDGETS) -> Card:
    """Return LHP's card with the largest budgets whose report costs at most `epsilon`, truly.

    epsilon: in millionths. proportions: those of the budgets of the levels, from the lowest range
    of values up.
    """
    return cards.decode(lhp.design(epsilon, None, proportions).card)


def proportions_of(text: str) -> tuple[float, ...]:
    """Parse the option --proportions, from the lowest range up: `5,4,3,2,1`. Raises UsageError."""
    try:
        return tuple(float(budget) for budget in text.split(","))
    except ValueError:
        raise UsageError(
            f"{text!r} is not a list of proportions", hint="such as --proportions 5,4,3,2,1"
        ) from None


def convert(
    counts: Counts, source: float, target: float, rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Convert counts of the signs of a level (..., 2) into those of a more private level (PLC).

    Some signs are flipped at random. source, target: as of `_flip_probability`.
    """
    flipped = rng.binomial(counts, _flip_probability(source, target))
    gained = flipped[..., ::-1]  # what one sign loses, the other gains
    return counts - flipped + gained


def _flip_probability(source: float, target: float) -> float:
    """Return the probability with which PLC flips a sign of one level for a more private one.

    It is (p_i - p_j) / (2 p_i - 1) from level i to level j, where p is the probability that a level
    reports the right sign. source, target: the magnitudes of the two levels, Duchi's
    C = 1 / (2 p - 1), with target >= source; by these the probability is (1 - C_i / C_j) / 2.
    """
    return (1 - source / target) / 2


def require_mu(mu: int, levels: int) -> None:
    """Raise UsageError unless reports can count mu times with this number of levels."""
    require(mu in range(1, levels + 1), "mu", f"1 to {levels}, the number of levels", mu)


def targets_of(magnitudes: Floats, mu: int) -> list[list[int]]:
    """Return, for each level, the levels that its reports are converted to.

    They are the next mu - 1 more private ones, or all there are. magnitudes: those of the levels; a
    level is more private if its magnitude is larger. Raises UsageError for a mu out of bounds.
    """
    require_mu(mu, len(magnitudes))
    by_privacy = np.argsort(magnitudes, kind="stable").tolist()  # the least private level first
    targets_of_levels = []
    for level in range(len(magnitudes)):
        rank = by_privacy.index(level)
        targets_of_levels.append(by_privacy[rank + 1 : rank + mu])
    return targets_of_levels


def mean_of_copies(
    magnitudes: Floats, level: Indices, signs: Indices, mu: int, rng: np.random.Generator
) -> Floats:
    """Return the mean of the copies of each of n reports: what it contributes to the estimate (n).

    magnitudes: those of the levels. level, signs: the level of each report, and 1 or -1. mu: how
    many copies a report has. rng: draws the conversions. Raises UsageError for a mu out of bounds.
    """
    sums = np.zeros(signs.shape)
    for source, targets in enumerate(targets_of(magnitudes, mu)):
        is_here = level == source
        own_signs = signs[is_here]
        sums[is_here] += (mu - len(targets)) * magnitudes[source] * own_signs
        for target in targets:
            flip_probability = _flip_probability(magnitudes[source], magnitudes[target])
            is_flipped = rng.random(own_signs.shape) < flip_probability
            sums[is_here] += magnitudes[target] * np.where(is_flipped, -own_signs, own_signs)
    return sums / mu


def estimate(
    card: Card, counts: Counts, mu: int = 1, *, clamp: bool = False, seed: int | Sequence[int] = 1
) -> Floats:
    """Estimate means from the counts of reports of m levels and two signs.

    counts: an array (..., m, 2), minus before plus; the result has the shape (...), and is nan
    where there are no reports. mu: how many times each report counts, at its own level and the next
    more private ones. clamp: keep the sum of each level within plus and minus the number of its
    reports, as step 6 does; without it the estimate is unbiased. seed: that of the conversions.
    Raises UsageError for a mu below 1 or above m.
    """
    magnitudes = lhp.magnitudes(card)
    rng = np.random.default_rng(seed)
    merged = np.zeros_like(counts)  # of each level: its own reports and those converted to it
    for source, targets in enumerate(targets_of(magnitudes, mu)):
        source_counts = counts[..., source, :]
        # Conversions that have no target count at the level of the report itself.
        merged[..., source, :] += (mu - len(targets)) * source_counts
        for target in targets:
            converted = convert(source_counts, magnitudes[source], magnitudes[target], rng)
            merged[..., target, :] += converted
    # A sign stands for + or - the magnitude of its level.
    reports = merged.sum(axis=-1)
    sums = magnitudes * (merged[..., 1] - merged[..., 0])
    if clamp:
        sums = np.clip(sums, -reports, reports)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean: Floats = sums.sum(axis=-1) / reports.sum(axis=-1)
    return mean


def variance(card: Card, values: Fixed, mu: int = 1) -> Fraction:
    """Return the exact variance of `estimate`, not clamped, for one report of each of these values.

    values: n numbers in Q1.14. Raises UsageError for a mu below 1 or above m.

    C_i is the magnitude of level i. A report of level i has mu copies of mean x; the second moment
    of a copy at level j is C_j**2. The product of two copies has the mean C_i**2, since the
    conversions are independent. So the mean of the copies has the second moment C_i**2 + the sum
    over j of (C_j**2 - C_i**2) / mu**2, which is least for mu = 1.
    """
    squares = [scale**2 for scale in certify.scales(card)]
    second_moments = []  # for each reported level, that of the mean of the copies of a report
    for square, targets in zip(squares, targets_of(lhp.magnitudes(card), mu), strict=True):
        added = sum(squares[target] - square for target in targets)
        second_moments.append(square + Fraction(added, mu**2))

    # The level of a value is the number of bounds that it is below.
    hierarchy = certify.hierarchy(card)
    true_levels = (values[:, None] < np.array(hierarchy.bounds)).sum(axis=1)
    values_by_level = np.bincount(true_levels, minlength=len(squares)).tolist()
    # The sum of the variances of all reports: their second moments less the squares of the values.
    sum_of_squares = int(np.square(values, dtype=np.int64).sum())
    total = Fraction(-sum_of_squares, ONE**2)
    for level, count in enumerate(values_by_level):
        probabilities = certify.at_knot(hierarchy.level_cards[level], level)
        for probability, moment in zip(probabilities, second_moments, strict=True):
            total += count * probability * moment
    return total / len(values) ** 2


def kind_of(card: Card, reports: Counts, mu: int = 1, tau: float = 1.0) -> liars.Kind:
    """Return the kind of reports with which a class takes part in `combine`, without clamping.

    A report tells most if all of its copies keep its sign. With copies, a bound on lies is for the
    same conversions of the honest reports, with the lies and without them.

    reports: how many the class has about each coordinate (d). tau: the range of the values.
    """
    magnitudes = lhp.magnitudes(card)
    farthest = 0.0
    for source, targets in enumerate(targets_of(magnitudes, mu)):
        of_copies = (mu - len(targets)) * magnitudes[source] + magnitudes[targets].sum()
        farthest = max(farthest, tau * float(of_copies) / mu)
    weight = 1 / float(magnitudes.max()) ** 2
    return liars.Kind(reports, weight, low=-farthest, high=farthest)


def combine(
    parts: Sequence[tuple[Card, Counts]], mu: int = 1, *, clamp: bool = False, seed: int = 1
) -> Floats:
    """Estimate the means of d coordinates from all classes of devices, by `estimate` for each.

    parts: the card and the counts (d x 2m) of each class. The weight of a class at a coordinate is
    the number of its reports there, divided by the largest variance of one. It does not depend on
    what the reports say, so that the combination is as unbiased as its parts. The result is nan
    where there are no reports. mu, clamp, seed: as of `estimate`.
    """
    _, first_counts = parts[0]
    weighted_sum = np.zeros(len(first_counts))
    weight_sum = np.zeros_like(weighted_sum)
    for index, (card, counts) in enumerate(parts):
        worst_variance = float(lhp.magnitudes(card).max()) ** 2
        weights = counts.sum(axis=1) / worst_variance
        counts_by_level = counts.reshape(len(counts), card.symbols // 2, 2)
        means = estimate(card, counts_by_level, mu, clamp=clamp, seed=[seed, index])
        weighted_sum += weights * np.nan_to_num(means)
        weight_sum += weights
    no_mean = np.full(len(weighted_sum), np.nan)
    return np.asarray(np.divide(weighted_sum, weight_sum, out=no_mean, where=weight_sum > 0))
