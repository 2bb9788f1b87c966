"""No meter: the energy of a report by a board's times and the datasheet's currents."""

import argparse
from dataclasses import replace
from typing import Self

from ternbench import current_model, latency, subjects
from ternbench.energy import ReportEnergy
from ternbench.meters.base import Finding, Meter, Task
from ternhost.errors import UsageError
from ternhost.reach import fleet
from ternhost.reach.ports.fleet import OnPorts
from terntools.emulators.fleets import Pico


class DatasheetModel(Meter):
    """Times reports on a board, and multiplies them by `current_model`."""

    needs_board = False  # an emulated Pico does as well

    @classmethod
    def from_options(cls, args: argparse.Namespace) -> Self:
        return cls()

    def find(self, task: Task) -> Finding:
        """Time reports on a board, and compute their energies by the currents of its chip.

        Besides the report of the task, reports of one and of all coordinates are drawn. Raises
        UsageError if the fleet has no board's times.
        """
        if not isinstance(fleet.parse(task.fleet), (OnPorts, Pico)):
            text = f"--meter model needs a board's times, and {task.fleet} has none"
            raise UsageError(text, hint="take --fleet pico-emulated:1, or name a board")

        with subjects.subject(task.fleet) as device:
            chip = device.chip
            currents = current_model.load(chip)
            bench = latency.Bench(device)
            reports = []
            for coordinates in dict.fromkeys((task.case.k, 1, task.case.d)):
                case = replace(task.case, k=coordinates)
                task.say(f"{device.name}: timing a report, {case.label}")
                reports.append(bench.figures(case))

        seconds = reports[0]["median"] / 1e6
        gross = currents.report_energies(reports[0]).total
        report = ReportEnergy(
            gross=gross,
            net=gross - currents.sleep_microjoules(seconds),
            idle_milliwatts=currents.volts * currents.sleep_ma,
            volts=currents.volts,
            seconds_per_report=seconds,
            source=current_model.SOURCE,
            asleep_microamperes=1000 * currents.sleep_ma,
        )
        bars = current_model.by_link(currents, reports)
        more = {
            "microjoules_by_link": {name: sum(parts.values()) for name, parts in bars.items()},
            "modelled": True,
            "currents": {
                "chip": currents.name,
                "active_milliampere": currents.active_ma,
                "sleep_milliampere": currents.sleep_ma,
                "sources": currents.sources,
            },
        }
        return Finding(report, bars, chip, more)
