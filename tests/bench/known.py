"""A current with a known energy: BUSY amperes in marked windows, IDLE between them, at VOLTS."""

from typing import NamedTuple

import numpy as np
import pytest

from ternbench import energy
from ternbench.traces import Trace
from ternhost.errors import TernError

VOLTS, IDLE, BUSY = 3.3, 0.010, 0.025


class Known(NamedTuple):
    """Samples of the current: seconds, amperes, and whether the marker is set."""

    seconds: np.ndarray
    amperes: np.ndarray
    marker: np.ndarray

    def trace(self, **changes):
        samples = {**self._asdict(), **changes}
        return Trace(volts=np.full(len(samples["seconds"]), VOLTS), **samples)


def known(rate, windows=6, work=0.02, rest=0.03):
    """Windows of `work` seconds, with `rest` seconds before, between and after them."""
    samples = round((rest + windows * (work + rest)) * rate)
    seconds = (np.arange(samples) + 0.5) / rate
    marker = ((seconds - rest) % (work + rest) < work) & (seconds > rest)
    return Known(seconds, np.where(marker, BUSY, IDLE), marker)


def require_known(trace, work=0.02, **options):
    """Measure a trace, and require the known energy of a window of `work` seconds."""
    report = energy.measure(trace, 1, "x", **options)
    assert report.net == pytest.approx((BUSY - IDLE) * VOLTS * work * 1e6, rel=0.01)
    assert report.gross == pytest.approx(BUSY * VOLTS * work * 1e6, rel=0.01)
    assert report.idle_milliwatts == pytest.approx(IDLE * VOLTS * 1000, rel=0.01)
    assert report.volts == pytest.approx(VOLTS, rel=0.01)
    return report


def require_refused(trace, message, **options):
    with pytest.raises(TernError, match=message) as caught:
        energy.measure(trace, 1, "x", **options)
    assert caught.value.hint
