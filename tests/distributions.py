"""Entries of attributes whose quantiles were collected, as the result of a run has them, by hand."""

import numpy as np

BINS = 16
SHOWN = 4  # bins of a picture
LOW, HIGH = -60, 540  # minutes, which -1 and 1 stand for
UNIT = {"low": LOW, "high": HIGH, "unit": "min"}
TRUE_SHARES = np.arange(BINS) / np.arange(BINS).sum()
SHARES = TRUE_SHARES + np.where(np.arange(BINS) % 2, 0.005, -0.005)
HALF_LENGTH = 0.02  # of each interval
# The level of a quantile with its scaled value, interval and true value.
QUANTILES = ((0.5, 0.4, (0.35, 0.45), 0.41), (0.999, 0.98, (0.9, 1.0), 0.99))


def entry(name="delay", unit=UNIT, true=True):
    """The entry of an attribute. unit: what its result says of its bounds; true: it is known."""
    quantiles = []
    for level, value, interval, true_value in QUANTILES:
        quantile = {"quantile": level, "value": value, "interval": list(interval)}
        if true:
            quantile["true"] = true_value
        quantiles.append(quantile)
    edges = np.linspace(-1, 1, BINS + 1)
    return {
        "name": name,
        "reports": 12_345,
        **unit,
        "quantiles": quantiles,
        "histogram": {"edges": edges.tolist(), **_member(SHARES, TRUE_SHARES, true)},
        "cumulative": _member(np.cumsum(SHARES), np.cumsum(TRUE_SHARES), true),
        "shown_histogram": {
            "edges": edges[:: BINS // SHOWN].tolist(),
            **_member(_merged(SHARES), _merged(TRUE_SHARES), true),
        },
        "levels": [
            {"bins": 4, "reports": 6000, "mechanism": "grr"},
            {"bins": BINS, "reports": 6345, "mechanism": "olh"},
        ],
    }


def _merged(shares):
    """The shares of the bins of a picture."""
    return shares.reshape(SHOWN, -1).sum(axis=1)


def _member(shares, true_shares, true):
    """Shares with their intervals, as JSON has them."""
    ends = np.clip([shares - HALF_LENGTH, shares + HALF_LENGTH], 0, 1)
    member = {"shares": shares.tolist(), "intervals": ends.T.tolist()}
    if true:
        member["true"] = true_shares.tolist()
    return member
