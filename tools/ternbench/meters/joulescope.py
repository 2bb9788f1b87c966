"""Measures with a Joulescope JS110 or JS220, through the package joulescope.

The package has the licence Apache-2.0 and is in tern's extra `energy`. The marker is the input IN0,
which a JS110 sends as the lowest bit of its raw current samples.
"""

import math
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from ternbench.meters.instrument import Instrument
from ternbench.traces import Trace
from ternhost import extras
from ternhost.errors import DeviceError
from ternhost.options import Option

_SIGNALS = ["current", "voltage", "current_lsb", "current_range"]
RANGES = {"2A": 2.0, "180mA": 0.18, "18mA": 0.018, "1.8mA": 0.0018}  # amperes
_DEVICE_RANGES = {"2A": "2 A", "180mA": "180 mA", "18mA": "18 mA", "1.8mA": "1.8 mA"}


_RANGE = Option(
    "range",
    f"fixed range of the current: {', '.join(RANGES)}",
    metavar="RANGE",
    choices=tuple(RANGES),
)


class Joulescope(Instrument):
    """The only Joulescope that is plugged into this computer."""

    source = "measured with a Joulescope"
    about = "the Joulescope JS110 or JS220 that is plugged in"
    settings = (_RANGE, *Instrument.settings)

    def __init__(self, fixed_range: str | None = None) -> None:
        """Find the Joulescope.

        fixed_range: the measuring range, a key of RANGES; None: the device chooses. Raises UsageError if
        the package is not installed, and DeviceError unless exactly one Joulescope is there.
        """
        extras.require("joulescope")
        import joulescope

        self._range = fixed_range
        try:
            self._device: Any = joulescope.scan_require_one(config="auto")
        except Exception as error:  # the package raises RuntimeError, and errors of its backends
            text = f"no Joulescope is found: {error}"
            raise DeviceError(text, hint="plug in exactly one") from error

    @classmethod
    def opened(cls, place: str, settings: Mapping[str, Any]) -> Self:
        return cls(settings.get("range"))

    def record(self, seconds: float) -> Trace:
        """Record for so many seconds, in the fixed range if there is one."""
        with self._device as device:
            device.parameter_set("current_lsb", "gpi0")
            if self._range is not None:
                device.parameter_set("i_range", _DEVICE_RANGES[self._range])
            samples = device.read(
                contiguous_duration=seconds, out_format="samples_get", fields=_SIGNALS
            )
        max_amperes = math.inf
        if self._range is not None:
            max_amperes = RANGES[self._range]
        return from_samples(samples, max_amperes)


def from_samples(samples: Any, max_amperes: float = math.inf) -> Trace:
    """Convert samples of the package joulescope into a trace.

    samples: what its `read(out_format="samples_get")` returns. max_amperes: the end of the
    measuring range, if that is fixed; samples there are marked as clipped.
    """
    signals = []
    for name in _SIGNALS:
        signals.append(np.asarray(samples["signals"][name]["value"], np.float64))
    amperes, volts, marker, ranges = signals
    is_valid = np.isfinite(amperes) & np.isfinite(volts)  # samples that were lost are NaN
    amperes = amperes[is_valid]
    samples_per_second = float(samples["time"]["output_sampling_frequency"]["value"])
    return Trace(
        seconds=np.flatnonzero(is_valid) / samples_per_second,
        amperes=amperes,
        volts=volts[is_valid],
        marker=marker[is_valid] > 0.5,
        ranges=ranges[is_valid].astype(np.int64),
        clipped=amperes >= max_amperes,
    )
