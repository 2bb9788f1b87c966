"""Joulescope JS110 and JS220, through the joulescope package (Apache-2.0, an optional extra: `energy`).

The marker is the input IN0, the lowest bit of the JS110's raw current samples.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ternhost import extras
from ternhost.errors import DeviceError
from terntools.bench.energy import Trace


class Joulescope:
    """The only Joulescope that is plugged in."""

    source = "measured with a Joulescope"

    def __init__(self) -> None:
        extras.require("joulescope")
        import joulescope

        try:
            self._device: Any = joulescope.scan_require_one(config="auto")
        except Exception as error:  # the package raises plain RuntimeError, and others of its backends
            raise DeviceError(f"no Joulescope is found: {error}", hint="plug in exactly one") from error

    def record(self, seconds: float) -> Trace:
        with self._device as device:
            device.parameter_set("current_lsb", "gpi0")
            data = device.read(
                contiguous_duration=seconds,
                out_format="samples_get",
                fields=["current", "voltage", "current_lsb"],
            )
        return from_samples(data)


def from_samples(data: Any) -> Trace:
    """The trace of what `read(out_format="samples_get")` returns."""
    signals = data["signals"]
    amperes, volts, marker = (
        np.asarray(signals[name]["value"]) for name in ("current", "voltage", "current_lsb")
    )
    good = np.isfinite(amperes) & np.isfinite(volts)  # missing samples are NaN
    rate = float(data["time"]["output_sampling_frequency"]["value"])
    seconds = np.arange(len(amperes)) / rate
    return Trace(
        seconds[good],
        amperes[good].astype(np.float64),
        volts[good].astype(np.float64),
        marker[good].astype(np.bool_),
    )
