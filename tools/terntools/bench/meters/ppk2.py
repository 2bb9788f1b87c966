"""Nordic's Power Profiler Kit II, through ppk2-api (GPL-2.0, an optional extra: `energy`); marker: input D0.

It takes 100,000 current samples per second; it supplies the voltage, or in ampere mode the user gives it.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from ternhost import extras
from ternhost.errors import DeviceError, UsageError
from ternhost.reach.ports.link import BAUD, open_port
from terntools.bench.energy import Trace, uniform

RATE = 100_000.0
MARKER_BIT = 0
_POLL = 0.01


class Ppk2:
    source = "measured with a Power Profiler Kit II"

    def __init__(self, port: str, volts: float = 3.3, supply: bool = True) -> None:
        """supply: it powers the board with `volts`; otherwise it only measures, at that voltage."""
        extras.require("ppk2_api")
        from ppk2_api.ppk2_api import PPK2_API

        if not 0.8 <= volts <= 5.0:
            raise UsageError(f"--volts must be 0.8 to 5 for a Power Profiler Kit II, not {volts:g}")
        self._volts = volts
        open_port(port, BAUD).close()  # says clearly what keeps a port from being opened
        try:
            # PPK2_API polled here, and not PPK2_MP: that drops what was waiting when it is stopped.
            self._kit: Any = PPK2_API(port, timeout=1, write_timeout=1)
        except OSError as error:
            raise DeviceError(f"cannot open the Power Profiler Kit II on {port}: {error}") from error
        if not self._kit.get_modifiers():
            raise DeviceError(
                f"no Power Profiler Kit II answers on {port}",
                hint="see `tern devices` for its port; it has two",
            )
        if supply:
            self._kit.use_source_meter()
        else:
            self._kit.use_ampere_meter()
        self._kit.set_source_voltage(round(1000 * volts))
        self._kit.toggle_DUT_power("ON")

    def record(self, seconds: float) -> Trace:
        amperes: list[float] = []
        marker: list[int] = []
        self._kit.start_measuring()
        end = time.monotonic() + seconds
        try:
            while time.monotonic() < end:
                time.sleep(_POLL)
                self._take(amperes, marker)
        finally:
            self._kit.stop_measuring()
        self._take(amperes, marker)
        return uniform(
            RATE, np.array(amperes), self._volts, np.array(marker, np.int64) >> MARKER_BIT & 1 == 1
        )

    def _take(self, amperes: list[float], marker: list[int]) -> None:
        data = self._kit.get_data()
        if data:
            samples, digital = self._kit.get_samples(data)
            amperes += [sample * 1e-6 for sample in samples]
            marker += digital
