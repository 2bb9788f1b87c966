"""Nordic's Power Profiler Kit II, through ppk2-api (GPL-2.0, in the extra `energy`).

It takes 100,000 current samples a second. It supplies the voltage; in ampere mode the user states
it. The marker is the digital input D0. A sample has 32 bits, from the lowest: 14 of the converter,
3 of the range, 1 unused, 6 of a counter, 8 of the digital inputs (SerialDevice of Nordic's
pc-nrfconnect-ppk).
"""

import argparse
import time
from typing import Any, Self

import numpy as np

from ternbench.meters import ports
from ternbench.meters.instrument import Instrument
from ternbench.traces import LOST_HINT, MAX_LOST, Bools, Ints, Trace
from ternhost import extras
from ternhost.errors import DeviceError, UsageError
from ternhost.reach.ports.link import BAUD, open_port

RATE = 100_000.0
MARKER_BIT = 0
_DEFAULT_VOLTS = 3.3
_POLL = 0.01  # seconds
_FULL_SCALE = (1 << 14) - 1  # of the converter
_RANGE_SHIFT, _RANGE_MASK = 14, 7
_COUNTER_SHIFT, _COUNTER_PERIOD = 18, 64
_INPUTS_SHIFT = 24
_CLIPPED = 3  # successive samples at full scale: a change to the next range takes fewer


class Ppk2(Instrument):
    """A Power Profiler Kit II at a port."""

    source = "measured with a Power Profiler Kit II"

    def __init__(self, port: str, volts: float = _DEFAULT_VOLTS, supply: bool = True) -> None:
        """Open the kit at a port, and switch it on.

        supply: whether it powers the board with `volts`; if not, it measures at that voltage.
        Raises UsageError for a voltage that it cannot have, and DeviceError if no kit answers.
        """
        extras.require("ppk2_api")
        from ppk2_api.ppk2_api import PPK2_API

        if not 0.8 <= volts <= 5.0:
            raise UsageError(f"--volts must be 0.8 to 5 for a Power Profiler Kit II, not {volts:g}")
        self._volts = volts
        open_port(port, BAUD).close()  # its error says what keeps a port from being opened
        try:
            # PPK2_API, polled here: PPK2_MP drops what is waiting when it is stopped.
            self._kit: Any = PPK2_API(port, timeout=1, write_timeout=1)
        except OSError as error:
            text = f"cannot open the Power Profiler Kit II on {port}: {error}"
            raise DeviceError(text) from error
        if not self._kit.get_modifiers():
            hint = "see `tern devices` for its port; it has two"
            raise DeviceError(f"no Power Profiler Kit II answers on {port}", hint)
        if supply:
            self._kit.use_source_meter()
        else:
            self._kit.use_ampere_meter()
        self._kit.set_source_voltage(round(1000 * volts))
        self._kit.toggle_DUT_power("ON")

    @classmethod
    def add_options(cls, options: argparse._ArgumentGroup) -> None:
        text = "ppk2: only measure; the board has its own supply"
        options.add_argument("--no-supply", action="store_true", help=text)

    @classmethod
    def from_options(cls, args: argparse.Namespace) -> Self:
        volts = args.volts or _DEFAULT_VOLTS
        return cls(ports.meter_port(args), volts, supply=not args.no_supply)

    def record(self, seconds: float) -> Trace:
        """Record for so many seconds. Raises DeviceError if too many samples were lost."""
        samples = self._read_samples(seconds)
        # The counter in a sample tells how many samples were lost since the last one.
        lost_before_sample = (np.diff(samples >> _COUNTER_SHIFT) - 1) % _COUNTER_PERIOD
        jump_count = np.count_nonzero(lost_before_sample)

        # Bytes out of step show as jumps everywhere. The counter does not show a loss of exactly 64
        # samples, but their number does.
        expected = seconds * RATE
        if len(samples) < (1 - MAX_LOST) * expected or jump_count > MAX_LOST * len(samples):
            text = (
                f"the Power Profiler Kit II lost samples: {expected - len(samples):.0f} of "
                f"{expected:.0f}, and its counter jumps {jump_count} times"
            )
            raise DeviceError(text, LOST_HINT)

        microamperes = self._kit.get_samples(samples.astype("<u4").tobytes())[0]
        sample_times = np.concatenate(([0], np.cumsum(lost_before_sample + 1)))
        marker_shift = _INPUTS_SHIFT + MARKER_BIT
        return Trace(
            seconds=sample_times / RATE,
            amperes=np.array(microamperes) * 1e-6,
            volts=np.full(len(samples), self._volts),
            marker=samples >> marker_shift & 1 == 1,
            ranges=samples >> _RANGE_SHIFT & _RANGE_MASK,
            clipped=_is_clipped(samples),
        )

    def _read_samples(self, seconds: float) -> Ints:
        """Read what the kit sends in so many seconds: a number of 32 bits for each sample."""
        self._kit.stop_measuring()
        while self._kit.get_data():  # of an earlier recording
            time.sleep(_POLL)
        self._kit.remainder = {"sequence": b"", "len": 0}

        received = bytearray()
        self._kit.start_measuring()
        end_time = time.monotonic() + seconds
        try:
            while time.monotonic() < end_time:
                time.sleep(_POLL)
                received += self._kit.get_data()
        finally:
            self._kit.stop_measuring()
        received += self._kit.get_data()

        whole = received[: len(received) // 4 * 4]
        return np.frombuffer(whole, "<u4").astype(np.int64)


def _is_clipped(samples: Ints) -> Bools:
    """Whether each sample is in the middle of _CLIPPED samples at full scale."""
    is_full = samples & _FULL_SCALE == _FULL_SCALE
    full_around = np.convolve(is_full, np.ones(_CLIPPED), "same")
    return np.asarray(full_around == _CLIPPED, np.bool_)
