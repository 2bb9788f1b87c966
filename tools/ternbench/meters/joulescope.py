"""Joulescope JS110 and JS220, through the joulescope package (Apache-2.0, an optional extra:
`energy`).

The marker is the input IN0, the lowest bit of the JS110's raw current samples.
"""

import math
from typing import Any

import numpy as np

from ternbench.energy import Trace
from ternhost import extras
from ternhost.errors import DeviceError

_FIELDS = ["current", "voltage", "current_lsb", "current_range"]
RANGES = {"2A": 2.0, "180mA": 0.18, "18mA": 0.018, "1.8mA": 0.0018}  # amperes


class Joulescope:
    """The only Joulescope that is plugged in."""

    source = "measured with a Joulescope"

    def __init__(self, scale: str | None = None) -> None:
        """scale: a fixed range of RANGES, instead of the automatic ones."""
        extras.require("joulescope")
        import joulescope

        self._scale = scale
        try:
            self._device: Any = joulescope.scan_require_one(config="auto")
        except (
            Exception
        ) as error:  # the package raises plain RuntimeError, and others of its backends
            raise DeviceError(
                f"no Joulescope is found: {error}", hint="plug in exactly one"
            ) from error

    def record(self, seconds: float) -> Trace:
        with self._device as device:
            device.parameter_set("current_lsb", "gpi0")
            if self._scale:
                device.parameter_set(
                    "i_range", self._scale.replace("mA", " mA").replace("2A", "2 A")
                )
            data = device.read(
                contiguous_duration=seconds, out_format="samples_get", fields=_FIELDS
            )
        return from_samples(data, RANGES.get(self._scale or "", math.inf))


def from_samples(data: Any, most: float = math.inf) -> Trace:
    """The trace of what `read(out_format="samples_get")` returns; most: the amperes where a fixed
    range ends.
    """
    signals = [np.asarray(data["signals"][name]["value"], np.float64) for name in _FIELDS]
    good = np.isfinite(signals[0]) & np.isfinite(signals[1])  # missing samples are NaN
    amperes, volts, marker, ranges = (signal[good] for signal in signals)
    rate = float(data["time"]["output_sampling_frequency"]["value"])
    return Trace(
        np.flatnonzero(good) / rate,
        amperes,
        volts,
        marker > 0.5,
        ranges.astype(np.int64),
        amperes >= most,
    )
