"""Models the energy of a report, from its times and sizes and the currents in datasheets.

The currents are in shared_specs/currents.json. Nothing of this is measured.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ternspecs
from ternhost.errors import UsageError

FIGURES = Path(next(iter(ternspecs.__path__))) / "currents.json"
SOURCE = "modelled from datasheet currents, not measured"


@dataclass(frozen=True)
class LinkCurrent:
    """What a link, such as a serial port or Wi-Fi, needs to send a message.

    ma: milliampere that it draws while bytes pass, in addition to the processor. bits_per_byte: bits on
    the wire for a byte of a message. overhead_bytes: what every message adds to its content.
    """

    ma: float
    bits_per_second: float
    bits_per_byte: float
    overhead_bytes: int = 0

    def seconds(self, content_bytes: int) -> float:
        """Return how long a message with so many bytes of content takes."""
        bits = (content_bytes + self.overhead_bytes) * self.bits_per_byte
        return bits / self.bits_per_second


@dataclass(frozen=True)
class ReportEnergies:
    """The energy of a report in microjoules: of computing it, and of the link."""

    computing: float
    link: float

    @property
    def total(self) -> float:
        return self.computing + self.link


@dataclass(frozen=True)
class ChipCurrents:
    """The currents of a chip, from its datasheet.

    volts: of its supply. active_ma, sleep_ma: milliampere of the processor at work and in deep sleep.
    links: by name. sources: where "active" and "sleep" are from, for people.
    """

    name: str
    volts: float
    active_ma: float
    sleep_ma: float
    links: Mapping[str, LinkCurrent]
    sources: Mapping[str, str]

    def compute_microjoules(self, seconds: float) -> float:
        """Return the energy of the processor at work for so many seconds."""
        return self.volts * self.active_ma * seconds * 1000

    def sleep_microjoules(self, seconds: float) -> float:
        """Return the energy of the processor in deep sleep for so many seconds."""
        return self.volts * self.sleep_ma * seconds * 1000

    def report_energies(self, figures: Mapping[str, Any]) -> ReportEnergies:
        """Return the energies of a report that is requested and sent over a serial port.

        The energy is voltage times current times time. The processor works also while bytes pass;
        its energy in that time counts for the link.

        figures: the report's times in microseconds ("median" is that of the whole report) and its
        sizes in bytes, from `latency.Bench.figures`.
        """
        serial = self.links["serial"]
        link_seconds = (figures["receive"] + figures["send"]) / 1e6
        wire_seconds = serial.seconds(figures["bytes_in"]) + serial.seconds(figures["bytes_out"])
        # Volts times milliampere times seconds is millijoules.
        wire_microjoules = self.volts * serial.ma * wire_seconds * 1000
        computing_seconds = figures["median"] / 1e6 - link_seconds
        return ReportEnergies(
            computing=self.compute_microjoules(computing_seconds),
            link=self.compute_microjoules(link_seconds) + wire_microjoules,
        )


def chips() -> dict[str, Any]:
    """Return the table of chips, by lower-case names such as "rp2040"."""
    boards: dict[str, Any] = json.loads(FIGURES.read_text())["boards"]
    return boards


def load(chip: str | None) -> ChipCurrents:
    """Load the currents of a chip, such as "rp2040", from the table.

    Raises UsageError for a chip without currents, and for None, a device that is no known chip.
    """
    table = chips()
    if chip not in table:
        hint = f"there are currents for {', '.join(table)}"
        raise UsageError(f"no currents are known for {chip or 'this'}", hint)

    entry = table[chip]
    links = {}
    for name, link in entry["links"].items():
        links[name] = LinkCurrent(
            ma=link["ma"],
            bits_per_second=link["bits_per_second"],
            bits_per_byte=link["bits_per_byte"],
            overhead_bytes=link.get("overhead_bytes", 0),
        )
    sources = {}
    for state in ("active", "sleep"):
        figure = entry[state]
        sources[state] = f"{figure['source']}, page {figure['page']}"
    return ChipCurrents(
        name=entry["name"],
        volts=entry["volts"],
        active_ma=entry["active"]["ma"],
        sleep_ma=entry["sleep"]["ma"],
        links=links,
        sources=sources,
    )


def by_link(
    model: ChipCurrents, reports: Sequence[Mapping[str, Any]]
) -> dict[str, dict[str, float]]:
    """Return the bars of a picture that compares the energy of reports over serial and by Wi-Fi.

    A bar is a table of microjoules by part, such as {"computing": 900.0, "link": 300.0}. Each report
    over serial has a bar with these two parts. For Wi-Fi there is a bar for each size of a report,
    and one for each number of floats that would be sent without randomization. It has the part
    "link" only, since the figures are for sending alone, from an ESP32.

    model: the chip that makes the reports. reports: their times and sizes, from
    `latency.Bench.figures`. Returns the bars by the name that the picture shows.
    """
    microjoules_by_bar: dict[str, dict[str, float]] = {}
    for report in reports:
        energies = model.report_energies(report)
        microjoules_by_bar[f"serial: {report['name']}"] = {
            "computing": energies.computing,
            "link": energies.link,
        }

    bytes_by_name = {}
    for report in reports:
        bytes_by_name[f"{report['bytes_out']} bytes"] = report["bytes_out"]
    for report in reports:
        bytes_by_name[f"float32 x {report['d']}"] = report["bytes_float32"]

    esp32 = load("esp32")
    wifi = esp32.links["wifi"]
    # The link draws current, and so does the processor while it waits for it.
    milliampere = wifi.ma + esp32.active_ma
    for name, content_bytes in bytes_by_name.items():
        seconds = wifi.seconds(content_bytes)
        microjoules = esp32.volts * milliampere * seconds * 1000  # from millijoules
        microjoules_by_bar[f"Wi-Fi (ESP32), sending alone: {name}"] = {"link": microjoules}
    return microjoules_by_bar
