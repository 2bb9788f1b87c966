"""Measures with Nordic's Power Profiler Kit II, through the package ppk2-api.

The package has the licence GPL-2.0 and is in tern's extra `energy`. The kit takes 100,000 samples
of the current a second. It supplies the board with a set voltage; if the board has its own supply,
the user states the voltage. The marker is the digital input D0.

A sample has 32 bits, from the lowest: 14 bits of the converter, 3 bits of the measuring range, 1
unused, 6 bits of a counter, 8 bits of the digital inputs. Source: SerialDevice in Nordic's
pc-nrfconnect-ppk.
"""

import time
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from ternbench.meters.base import VOLTS
from ternbench.meters.instrument import Instrument
from ternbench.traces import LOST_HINT, MAX_LOST, Bools, Ints, Trace
from ternhost import extras
from ternhost.errors import DeviceError, UsageError
from ternhost.options import Option
from ternhost.reach.ports import names
from ternhost.reach.ports.link import BAUD, open_port

RATE = 100_000.0  # samples a second
MARKER_BIT = 0  # of the digital inputs
_DEFAULT_VOLTS = 3.3
_POLL = 0.01  # seconds
_FULL_SCALE = (1 << 14) - 1  # of the converter
_RANGE_SHIFT, _RANGE_MASK = 14, 7
_COUNTER_SHIFT, _COUNTER_PERIOD = 18, 64
_INPUTS_SHIFT = 24
_CLIPPED = 3  # successive samples at full scale: a change to the next range takes fewer


_NO_SUPPLY = Option("no_supply", "only measure: the board has its own supply", bool, default=False)


class Ppk2(Instrument):
    """A Power Profiler Kit II at a serial port."""

    about = "a Power Profiler Kit II at a port; it also supplies the board"
    place = "PORT"
    example = "a1"
    settings = (VOLTS, _NO_SUPPLY, *Instrument.settings)
    source = "measured with a Power Profiler Kit II"

    def __init__(self, port: str, volts: float = _DEFAULT_VOLTS, supply: bool = True) -> None:
        """Open the kit at a port, and switch the board's power on.

        volts: the board's voltage. supply: whether the kit supplies it; if not, the board has its own
        supply. Raises UsageError for a voltage that the kit cannot have, and DeviceError if no kit
        answers.
        """
        extras.require("ppk2_api")
        if not 0.8 <= volts <= 5.0:
            raise UsageError(f"volts must be 0.8 to 5 for a Power Profiler Kit II, not {volts:g}")
        self._volts = volts
        self._kit: Any = _open_kit(port)
        if supply:
            self._kit.use_source_meter()
        else:
            self._kit.use_ampere_meter()
        self._kit.set_source_voltage(round(1000 * volts))
        self._kit.toggle_DUT_power("ON")

    @classmethod
    def opened(cls, place: str, settings: Mapping[str, Any]) -> Self:
        volts = settings.get("volts", _DEFAULT_VOLTS)
        has_own_supply = settings.get("no_supply", False)
        return cls(names.resolve(place), volts, supply=not has_own_supply)

    def record(self, seconds: float) -> Trace:
        """Record for so many seconds. Raises DeviceError if too many samples were lost.

        A sample of the kit is a number of 32 bits. It has the current and the measuring range, a
        counter that is incremented with each sample, and the digital inputs, of which one is the
        marker.
        """
        samples = self._read_samples(seconds)
        # The counter tells how many samples were lost before each one.
        counter_steps = np.diff(samples >> _COUNTER_SHIFT)
        lost_before_sample = (counter_steps - 1) % _COUNTER_PERIOD
        jump_count = int(np.count_nonzero(lost_before_sample))
        _require_complete(len(samples), expected=seconds * RATE, jump_count=jump_count)

        microamperes = self._kit.get_samples(samples.astype("<u4").tobytes())[0]
        # The time of each sample since the first one, counted in samples.
        sample_times = np.concatenate(([0], np.cumsum(lost_before_sample + 1)))
        marker_bits = samples >> (_INPUTS_SHIFT + MARKER_BIT)
        return Trace(
            seconds=sample_times / RATE,
            amperes=np.array(microamperes) * 1e-6,
            volts=np.full(len(samples), self._volts),
            marker=(marker_bits & 1) == 1,
            ranges=samples >> _RANGE_SHIFT & _RANGE_MASK,
            clipped=_is_clipped(samples),
        )

    def _read_samples(self, seconds: float) -> Ints:
        """Return the samples that the kit sends in so many seconds, each a number of 32 bits."""
        self._kit.stop_measuring()
        while self._kit.get_data():  # what is left of an earlier recording
            time.sleep(_POLL)
        # The package keeps the bytes of a sample that is not complete; forget them, too.
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

        whole_samples = len(received) // 4
        return np.frombuffer(received[: 4 * whole_samples], "<u4").astype(np.int64)


def _open_kit(port: str) -> Any:
    """Open the kit at a port; return the object of ppk2-api for it. Raises DeviceError."""
    from ppk2_api.ppk2_api import PPK2_API

    open_port(port, BAUD).close()  # its error says what keeps a port from being opened
    try:
        # PPK2_API, which is polled: PPK2_MP drops what is waiting when it is stopped.
        kit = PPK2_API(port, timeout=1, write_timeout=1)
    except OSError as error:
        text = f"cannot open the Power Profiler Kit II on {port}: {error}"
        raise DeviceError(text) from error
    if not kit.get_modifiers():
        hint = "see 'tern board list' for its port; it has two"
        raise DeviceError(f"no Power Profiler Kit II answers on {port}", hint)
    return kit


def _require_complete(sample_count: int, expected: float, jump_count: int) -> None:
    """Raise DeviceError if the kit lost too many samples.

    expected: how many samples there should be. jump_count: how often the counter in the samples
    jumps. If bytes get out of step, it jumps everywhere. It does not show a loss of exactly 64
    samples, its period, but the number of samples does.
    """
    too_few = sample_count < (1 - MAX_LOST) * expected
    too_many_jumps = jump_count > MAX_LOST * sample_count
    if too_few or too_many_jumps:
        text = (
            f"the Power Profiler Kit II lost samples: {expected - sample_count:.0f} of "
            f"{expected:.0f}, and its counter jumps {jump_count} times"
        )
        raise DeviceError(text, LOST_HINT)


def _is_clipped(samples: Ints) -> Bools:
    """Return for each sample whether it and its neighbours are at full scale of the converter.

    A single one at full scale is usual: the kit is about to change to the next range.
    """
    is_full = (samples & _FULL_SCALE) == _FULL_SCALE
    # How many of the _CLIPPED samples around each one are at full scale.
    full_around = np.convolve(is_full, np.ones(_CLIPPED), "same")
    return np.asarray(full_around == _CLIPPED, np.bool_)
