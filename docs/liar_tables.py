"""Computes the table of docs/guides/liars.md: `python docs/liar_tables.py` rewrites it.

Nothing is measured: the numbers follow from the integers of the cards (ternhost.learn.liars).
"""

from pathlib import Path

import numpy as np

from ternhost.datasets import Table
from ternhost.learn import liars
from ternhost.learn.collecting import attributes
from ternhost.learn.collecting.collect import Options
from ternhost.learn.collecting.estimate import CategoryReports, frequency_law
from ternhost.learn.designs import DeviceClass
from ternhost.learn.distributions.bin_levels import levels_of
from ternhost.learn.distributions.bin_tree import Distribution, ReportedLevel
from ternhost.privacy import mechanisms
from ternhost.privacy.base import MICRO

PAGE = Path(__file__).parent / "guides/liars.md"
BEGIN, END = "<!-- computed by docs/liar_tables.py -->\n", "<!-- end of what is computed -->\n"
EPSILONS = (0.5, 1, 2, 4, 8)
REPORTS = 10_000
MECHANISMS = {
    "the mean of a number, `duchi`": "duchi",
    "the same, `three-outputs`": "three-outputs",
    "the same, `pm-sub`": "pm-sub",
    "the same, `laplace`": "laplace",
}
CATEGORIES = 10
BINS_EXPONENT = 4  # 16 finest bins


def of_mean(mechanism, epsilon):
    """How far 1 % of the devices can move a mean whose honest value is 0."""
    card = mechanisms.design(mechanism, epsilon_micro=round(epsilon * MICRO)).decode()
    return float(liars.before([liars.kind_of_means(card, [REPORTS])], [0.0]).most[0])


def device_class_of(epsilon):
    return DeviceClass(round(epsilon * MICRO), 1.0)


def of_share(epsilon):
    """How far they can move the share of a category that no honest device has."""
    categories = tuple(str(number) for number in range(CATEGORIES))
    table = Table("one", (), np.zeros((1, 0)), categorical_names=("one",), categories=(categories,))
    (part,) = attributes.parts_of(Options(), table, device_class_of(epsilon))
    kind = liars.kind_of_categories(part.design.card, REPORTS, CATEGORIES, hashed=part.hashed)
    return float(liars.before([kind], np.zeros(CATEGORIES)).most[0])


def of_median(epsilon):
    """How far they can have moved the median of a number that is spread evenly over [-1, 1]."""
    device_class = device_class_of(epsilon)
    exponents = levels_of(
        BINS_EXPONENT, lambda exponent: attributes.variance_of_bins(device_class, exponent)
    )
    table = Table("one", ("one",), np.zeros((1, 1)))
    parts = attributes.parts_of_bins(table, (0,), exponents, device_class)
    levels = []
    for part in parts:
        reports = REPORTS // len(parts)
        same, other = frequency_law(part.design.card, hashed=part.hashed)
        supported = round(reports * (other + (same - other) / part.categories))
        counts = np.full(part.categories, supported)
        hashed_reports = reports if part.hashed else None
        levels.append(ReportedLevel(CategoryReports(part.design.card, counts, hashed_reports)))
    distribution = Distribution(levels)
    low, high = liars.quantile_range(distribution, 0.5, liars.cumulative(distribution))
    return max(abs(low), abs(high))


def rows():
    """The lines of the table, the heading first."""
    lines = [
        "| what 1 % of the devices can move, by at most | "
        + " | ".join(f"epsilon {epsilon:g}" for epsilon in EPSILONS)
        + " |",
        "|---" * (len(EPSILONS) + 1) + "|",
    ]
    bounds = {words: (of_mean, mechanism) for words, mechanism in MECHANISMS.items()}
    for words, (bound, mechanism) in bounds.items():
        lines.append(line(words, [bound(mechanism, epsilon) for epsilon in EPSILONS]))
    share = f"the share of one of {CATEGORIES} categories"
    lines.append(line(share, [of_share(epsilon) for epsilon in EPSILONS]))
    median = f"the median of a number, in {2**BINS_EXPONENT} bins"
    lines.append(line(median, [of_median(epsilon) for epsilon in EPSILONS]))
    return lines


def line(words, values):
    return f"| {words} | " + " | ".join(f"{value:.2g}" for value in values) + " |"


def text():
    """The page with the table that is computed now."""
    page = PAGE.read_text()
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    table = "\n".join(rows())
    return f"{before}{BEGIN}\n{table}\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(text())
