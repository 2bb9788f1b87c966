"""Energy from times and bytes by datasheet currents (shared_specs/currents.json).

Whatever comes of it is modelled.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import ternspecs
from ternhost.errors import UsageError

FIGURES = Path(next(iter(ternspecs.__path__))) / "currents.json"
SOURCE = "modelled from datasheet currents, not measured"


@dataclass(frozen=True)
class LinkCurrent:
    """A link: milliampere that it adds while bytes pass, bits a second, bits a byte, bytes that
    every message adds.
    """

    ma: float
    bits_per_second: float
    bits_per_byte: float
    overhead_bytes: int = 0

    def seconds(self, n: int) -> float:
        return (n + self.overhead_bytes) * self.bits_per_byte / self.bits_per_second


@dataclass(frozen=True)
class ChipCurrents:
    """The currents of a chip, in milliampere, and where each figure is from."""

    name: str
    volts: float
    active_ma: float
    sleep_ma: float
    links: dict[str, LinkCurrent]
    sources: dict[str, str]

    def compute_microjoules(self, seconds: float) -> float:
        return self.volts * self.active_ma * seconds * 1000

    def report_microjoules(self, figures: Mapping[str, Any]) -> tuple[float, float]:
        """Energy of computing and of the link for a report over serial; figures: of
        latency.Bench.figures.
        """
        line, serial = (figures["receive"] + figures["send"]) / 1e6, self.links["serial"]
        on_line = serial.seconds(figures["bytes_in"]) + serial.seconds(figures["bytes_out"])
        link = self.compute_microjoules(line) + self.volts * serial.ma * on_line * 1000
        return self.compute_microjoules(figures["median"] / 1e6 - line), link

    def sleep_microjoules(self, seconds: float) -> float:
        return self.volts * self.sleep_ma * seconds * 1000


def chips() -> dict[str, Any]:
    boards: dict[str, Any] = json.loads(FIGURES.read_text())["boards"]
    return boards


def load(chip: str | None) -> ChipCurrents:
    """The model of a chip, such as "rp2040". Raises UsageError."""
    if chip not in chips():
        hint = f"there are currents for {', '.join(chips())}"
        raise UsageError(f"no currents are known for {chip or 'this'}", hint)
    of = chips()[chip]
    figures = [field.name for field in fields(LinkCurrent)]
    links = {
        name: LinkCurrent(**{figure: link[figure] for figure in figures if figure in link})
        for name, link in of["links"].items()
    }
    sources = {
        name: f"{of[name]['source']}, page {of[name]['page']}" for name in ("active", "sleep")
    }
    return ChipCurrents(
        of["name"], of["volts"], of["active"]["ma"], of["sleep"]["ma"], links, sources
    )


def by_link(
    model: ChipCurrents, reports: Sequence[Mapping[str, Any]]
) -> dict[str, dict[str, float]]:
    """Microjoules of "computing" and "link" for reports (latency.Bench.figures) over serial, and to
    send by Wi-Fi.
    """
    energies = {
        f"serial: {one['name']}": dict(
            zip(("computing", "link"), model.report_microjoules(one), strict=True)
        )
        for one in reports
    }
    esp32 = load("esp32")
    wifi = esp32.links["wifi"]
    sizes = {f"{one['bytes_out']} bytes": one["bytes_out"] for one in reports}
    sizes |= {f"float32 x {one['d']}": one["bytes_float32"] for one in reports}
    for name, n in sizes.items():
        # What the link draws, and the processor while it waits for it.
        joules = esp32.volts * (wifi.ma + esp32.active_ma) * wifi.seconds(n) * 1000
        energies[f"Wi-Fi (ESP32), sending alone: {name}"] = {"link": joules}
    return energies
