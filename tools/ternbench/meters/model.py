"""Models the energy of a report without a meter, from a board's times and datasheet currents."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

from ternbench import current_model, latency, subjects
from ternbench.current_model import ChipCurrents
from ternbench.energy import ReportEnergy
from ternbench.meters.base import Finding, Meter, Task
from ternhost.errors import UsageError
from ternhost.reach import fleet
from ternhost.reach.ports.fleet import OnPorts
from terntools.emulators.fleets import Pico


class DatasheetModel(Meter):
    """Times reports on a board, and computes their energy with `current_model`."""

    needs_board = False  # an emulated Pico does as well
    about = "no meter: the times of the board, and currents of datasheets"

    @classmethod
    def opened(cls, place: str, settings: Mapping[str, Any]) -> Self:
        return cls()

    def find(self, task: Task) -> Finding:
        """Time reports on a board, and compute their energies from the currents of its chip.

        For the picture, reports of one coordinate and of all coordinates are timed as well. Raises
        UsageError for a fleet whose times are not those of a board.
        """
        if not isinstance(fleet.parse(task.fleet), (OnPorts, Pico)):
            text = f"--meter model needs a board's times, and {task.fleet} has none"
            raise UsageError(text, hint="use --fleet pico-emulated:1, or name a board")

        with subjects.subject(task.fleet) as device:
            chip = device.chip
            currents = current_model.load(chip)
            bench = latency.Bench(device)
            timed_reports = []
            # The report of the task comes first; none is timed twice.
            for coordinates in dict.fromkeys((task.case.k, 1, task.case.d)):
                case = replace(task.case, k=coordinates)
                task.say(f"{device.name}: timing a report, {case.label}")
                timed_reports.append(bench.figures(case))

        bars = current_model.by_link(currents, timed_reports)
        microjoules_by_link = {name: sum(parts.values()) for name, parts in bars.items()}
        more = {
            "microjoules_by_link": microjoules_by_link,
            "modelled": True,
            "currents": {
                "chip": currents.name,
                "active_milliampere": currents.active_ma,
                "sleep_milliampere": currents.sleep_ma,
                "sources": currents.sources,
            },
        }
        report = _modelled_energy(currents, timed_reports[0])
        return Finding(report=report, bars=bars, chip=chip, more=more)


def _modelled_energy(currents: ChipCurrents, timed_report: Mapping[str, Any]) -> ReportEnergy:
    """Return the energy of a report by the currents of the chip that made it.

    timed_report: its times and sizes, from `latency.Bench.figures`. An idle board is taken to be
    in deep sleep.
    """
    seconds = timed_report["median"] / 1e6
    gross = currents.report_energies(timed_report).total
    return ReportEnergy(
        gross=gross,
        net=gross - currents.sleep_microjoules(seconds),
        idle_milliwatts=currents.volts * currents.sleep_ma,
        volts=currents.volts,
        seconds_per_report=seconds,
        source=current_model.SOURCE,
        asleep_microamperes=1000 * currents.sleep_ma,
    )
