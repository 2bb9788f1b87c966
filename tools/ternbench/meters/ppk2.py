"""Nordic's Power Profiler Kit II, through ppk2-api (GPL-2.0, an optional extra: `energy`); marker:
input D0.

It takes 100,000 current samples per second; it supplies the voltage, or in ampere mode the user
gives it. A sample has 32 bits, the lowest first: 14 of the converter, 3 of the range, 1 unused, 6
of a counter, 8 of the digital inputs (SerialDevice of Nordic's pc-nrfconnect-ppk).
"""

import time
from typing import Any

import numpy as np

from ternbench.energy import LOST, LOST_HINT, Trace
from ternhost import extras
from ternhost.errors import DeviceError, UsageError
from ternhost.reach.ports.link import BAUD, open_port

RATE = 100_000.0
MARKER_BIT = 0
_POLL = 0.01
_FULL = (1 << 14) - 1  # of the converter
_CLIPPED = 3  # successive samples at full scale: a change to the next range takes fewer


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
            raise DeviceError(
                f"cannot open the Power Profiler Kit II on {port}: {error}"
            ) from error
        if not self._kit.get_modifiers():
            hint = "see `tern devices` for its port; it has two"
            raise DeviceError(f"no Power Profiler Kit II answers on {port}", hint)
        if supply:
            self._kit.use_source_meter()
        else:
            self._kit.use_ampere_meter()
        self._kit.set_source_voltage(round(1000 * volts))
        self._kit.toggle_DUT_power("ON")

    def record(self, seconds: float) -> Trace:
        self._kit.stop_measuring()
        while self._kit.get_data():  # of a recording before
            time.sleep(_POLL)
        self._kit.remainder = {"sequence": b"", "len": 0}
        data = bytearray()
        self._kit.start_measuring()
        end = time.monotonic() + seconds
        try:
            while time.monotonic() < end:
                time.sleep(_POLL)
                data += self._kit.get_data()
        finally:
            self._kit.stop_measuring()
        data += self._kit.get_data()
        words = np.frombuffer(data[: len(data) // 4 * 4], "<u4").astype(np.int64)
        steps = (np.diff(words >> 18) - 1) % 64 + 1
        jumps = np.count_nonzero(steps > 1)
        # Bytes out of step show as jumps everywhere, and the counter does not show a loss of 64
        # samples.
        if len(words) < (1 - LOST) * seconds * RATE or jumps > LOST * len(words):
            text = f"the Power Profiler Kit II lost samples: {seconds * RATE - len(words):.0f} of "
            text += f"{seconds * RATE:.0f}, and its counter jumps {jumps} times"
            raise DeviceError(text, LOST_HINT)
        amperes = np.array(self._kit.get_samples(words.astype("<u4").tobytes())[0]) * 1e-6
        full = np.convolve(words & _FULL == _FULL, np.ones(_CLIPPED), "same") == _CLIPPED
        return Trace(
            np.concatenate(([0], np.cumsum(steps))) / RATE,
            amperes,
            np.full(len(words), self._volts),
            words >> 24 + MARKER_BIT & 1 == 1,
            words >> 14 & 7,
            full,
        )
