"""The tables about quantiles in the guides, as those of `learning_tables`."""

import quantile_runs as runs
from learning_tables import Figure, LearningTable

_SETTINGS = (("1", 10_000), ("1", 100_000), ("4", 10_000), ("4", 100_000))  # epsilon, devices
# Epsilon, devices, and how many runs there are with each seed: fewer of those that take long.
_COVERED = (
    ("1", 10_000, runs.RUNS_OF_A_SEED),
    ("4", 10_000, runs.RUNS_OF_A_SEED),
    ("1", 100_000, 5),
)
_BOARDS = (("1", 20, 500), ("1", 300, 250))  # epsilon, boards, and records of each
_RUNS_OF_BOARDS = 6  # with each seed
_PLANNED = (1_000, 10_000, 100_000)  # devices
_SHOWN = ("uniform", "skewed")  # distributions whose intervals are shown


def errors_of(epsilon, devices):
    """Return the table of the errors of all methods."""
    rows = []
    for distribution in runs.DISTRIBUTIONS:
        for quantile in runs.QUANTILES:
            figures = []
            for method in runs.METHODS:
                arguments = (
                    ("method", method),
                    ("distribution", distribution),
                    ("devices", devices),
                    ("epsilon", epsilon),
                )
                figures.append(Figure(quantile, runs.errors, arguments, digits=3))
            rows.append((distribution, quantile, *figures))
    headings = ("distribution", "quantile", *runs.METHODS)
    how = f"Mean absolute errors in shares of the range: epsilon {epsilon}, {devices:,} devices."
    return LearningTable(headings, tuple(rows), how)


def _arguments(distribution, devices, epsilon):
    return (("distribution", distribution), ("devices", devices), ("epsilon", epsilon))


def coverage():
    """Return the table of how many intervals have the true value, in 400 runs."""
    rows = []
    for distribution in runs.DISTRIBUTIONS:
        for epsilon, devices, count in _COVERED:
            arguments = (*_arguments(distribution, devices, epsilon), ("runs", count))
            figures = []
            for name in (*runs.QUANTILES, "bins", "cumulative"):
                figures.append(Figure(name, runs.coverage, arguments, is_share=True))
            rows.append((distribution, epsilon, f"{devices:,}", f"{16 * count}", *figures))
    headings = ("distribution", "epsilon", "devices", "runs", *runs.QUANTILES)
    headings += ("bins of the histogram", "cumulative shares")
    return LearningTable(headings, tuple(rows), "Each run of other numbers.")


def records():
    """Return the table of intervals where a few boards hold many records."""
    rows = []
    for distribution in runs.DISTRIBUTIONS:
        for epsilon, boards, records_of_board in _BOARDS:
            arguments = (
                ("distribution", distribution),
                ("boards", boards),
                ("records", records_of_board),
                ("epsilon", epsilon),
                ("runs", _RUNS_OF_BOARDS),
            )
            run = runs.coverage_of_records
            figures = [Figure(f"half_{name}", run, arguments) for name in runs.QUANTILES]
            for name in (*runs.QUANTILES, "bins"):
                figures.append(Figure(name, run, arguments, is_share=True))
            rows.append((distribution, f"{boards} x {records_of_board}", epsilon, *figures))
    headings = ["distribution", "boards x records of each", "epsilon of a board's reports"]
    headings += [f"half the interval of {name}" for name in runs.QUANTILES]
    headings += [f"true {name} in it" for name in runs.QUANTILES]
    headings += ["true shares of bins in theirs"]
    return LearningTable(tuple(headings), tuple(rows), "6 runs with each seed.")


def widths():
    """Return the table of the widths of intervals, by devices and epsilon."""
    rows = []
    for devices in _PLANNED:
        for epsilon in ("1", "2", "4"):
            figures = []
            for distribution in _SHOWN:
                arguments = _arguments(distribution, devices, epsilon)
                for quantile in runs.QUANTILES:
                    figures.append(Figure(f"half_{quantile}", runs.widths, arguments, digits=3))
            rows.append((f"{devices:,}", epsilon, *figures))
    headings = ["devices", "epsilon"]
    for distribution in _SHOWN:
        headings += [f"{distribution}: {quantile}" for quantile in runs.QUANTILES]
    how = "Half the width of the 95 % interval, in shares of the range."
    return LearningTable(tuple(headings), tuple(rows), how)


TABLES = {
    "quantile-widths": widths(),
    "quantile-coverage": coverage(),
    "quantile-records": records(),
}
for _epsilon, _devices in _SETTINGS:
    TABLES[f"quantile-errors-{_epsilon}-{_devices}"] = errors_of(_epsilon, _devices)
