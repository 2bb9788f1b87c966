"""Reads a recording of Joulescope's program, a .jls file, through the package pyjls.

The package has the licence Apache-2.0 and is in tern's extra `energy`. It reads the second version
of the format. The file names its signals and their units.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from ternbench.meters.recording import Recording
from ternbench.traces import Floats, Trace
from ternhost import extras
from ternhost.errors import UsageError
from ternhost.options import Option

_MARKER = Option("marker", "signal of the marker", metavar="SIGNAL", shown="gpi[0]")
_USUAL_MARKER = "gpi[0]"
_MAX_SAMPLES = 20_000_000  # for which a computer has room


class JlsRecording(Recording):
    """A .jls file."""

    about = "a recording of Joulescope's program"
    example = "recording.jls"
    settings: ClassVar[Sequence[Option]] = (*Recording.settings, _MARKER)

    def __init__(
        self, path: Path, reports_per_window: int, volts: float | None, marker: str | None
    ) -> None:
        """Remember which file to read, and the signal of the marker; None for the usual one."""
        super().__init__(path, reports_per_window, volts)
        self.marker = marker or _USUAL_MARKER

    @classmethod
    def opened(cls, place: str, settings: Mapping[str, Any]) -> Self:
        return cls(
            Path(place), settings.get("reports", 1), settings.get("volts"), settings.get("marker")
        )

    def read(self) -> Trace:
        extras.require("pyjls")
        import pyjls

        if not self.path.is_file():
            raise UsageError(f"cannot read {self.path}: no such file", hint="name the recording")
        try:
            with pyjls.Reader(str(self.path)) as reader:
                return self._read(reader)
        except RuntimeError as error:
            hint = "open it with Joulescope's program, and save it again"
            raise UsageError(
                f"{self.path} is no recording that can be read: {error}", hint
            ) from error

    def _read(self, reader: Any) -> Trace:
        """Return the samples of the current, with the voltage and the marker at their times."""
        current = self._signal(reader, "current", unit="A")
        if current.length > _MAX_SAMPLES:
            text = f"{self.path} has {current.length:,} samples, and {_MAX_SAMPLES:,} at most can be read"
            raise UsageError(text, hint="export a part of it, or record fewer samples a second")
        amperes = np.asarray(reader.fsr(current.signal_id, 0, current.length), np.float64)
        seconds = (np.arange(len(amperes)) + current.sample_id_offset) / current.sample_rate
        taken: dict[str, dict[str, object]] = {"current": {"column": "current", "unit": "A"}}
        if self.volts is None:
            voltage = self._signal(reader, "voltage", unit="V")
            volts = _at(seconds, voltage, reader.fsr(voltage.signal_id, 0, voltage.length))
            taken["supply"] = {"column": "voltage", "unit": "V"}
        else:
            volts = np.full(len(amperes), self.volts)
            taken["supply"] = {"setting": f"volts={self.volts:g}"}
        marker = self._signal(reader, self.marker, unit="")
        levels = _at(seconds, marker, _levels(reader, marker))
        taken["marker"] = {"column": self.marker}

        is_valid = np.isfinite(amperes) & np.isfinite(volts)  # samples that were lost are NaN
        return Trace(
            seconds=seconds[is_valid] - seconds[0],
            amperes=amperes[is_valid],
            volts=volts[is_valid],
            marker=levels[is_valid] > 0.5,
            taken=taken,
        )

    def _signal(self, reader: Any, name: str, unit: str) -> Any:
        """Return the only signal with a name. Raises UsageError if there is none, or several."""
        signals = [signal for signal in reader.signals.values() if signal.length]
        found = [signal for signal in signals if signal.name == name]
        names = ", ".join(signal.name for signal in signals)
        if not found:
            hint = f"its signals are: {names}"
            if name == self.marker:
                hint = f"record the input of the marker; or name another signal, marker=SIGNAL: {names}"
            raise UsageError(f"{self.path} has no signal {name!r}", hint)
        if len(found) > 1:
            text = f"{self.path} has {len(found)} signals {name!r}"
            raise UsageError(text, hint="export the signals of one instrument")
        if unit and found[0].units != unit:
            text = f"the signal {name!r} of {self.path} is in {found[0].units!r}, and not in {unit}"
            raise UsageError(text, hint="record with Joulescope's program")
        return found[0]


def _levels(reader: Any, signal: Any) -> Any:
    """Return the samples of a digital input, of which eight are in a byte."""
    samples = reader.fsr(signal.signal_id, 0, signal.length)
    if samples.dtype == np.uint8 and len(samples) < signal.length:
        return np.unpackbits(samples, bitorder="little")[: signal.length]
    return samples


def _at(seconds: Floats, signal: Any, samples: Any) -> Floats:
    """Return the samples of a signal at these times, each until the next one comes."""
    values = np.asarray(samples, np.float64)
    positions = np.round(seconds * signal.sample_rate - signal.sample_id_offset).astype(np.int64)
    return np.asarray(values[np.clip(positions, 0, len(values) - 1)])
