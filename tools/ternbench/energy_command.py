"""`tern bench energy`: measures or models the energy of a report, in microjoules."""

import argparse
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tern import card as cards
from ternbench import current_model, energy, latency_command
from ternbench.cases import Case
from ternbench.meters import METERS
from ternbench.meters.base import Finding, Meter, Task
from ternhost import errors
from ternhost.command import add_command, add_option
from ternhost.errors import UsageError
from ternhost.reach import fleet
from ternhost.reach.ports.fleet import OnPorts
from terntools.boards import devices
from terntools.sessions import Session, SessionProgress
from terntools.terminal import require_positive


def add_action(actions: Any) -> None:
    """Add `energy` to the actions of `tern bench`."""
    summary = "measure or model the energy of a report in microjoules"
    example = """tern bench energy --meter model --fleet pico-emulated:1 --json
    tern bench energy a0 --meter ppk2 --meter-port a1 --volts 3.3
    tern bench energy --meter csv --file export.csv --volts 5"""
    parser = add_command(actions, "energy", summary, example, _run)
    latency_command.add_options(parser)
    _add_meter_options(parser)

    battery_options = parser.add_argument_group("battery life")
    add_option(battery_options, "--battery MAH", "capacity of the battery in mAh", 2000.0)
    add_option(battery_options, "--every S", "seconds between reports", 3600.0)
    text = "power asleep in mW (default: by the datasheet)"
    add_option(battery_options, "--sleep-milliwatts MW", text, type=float)


def _add_meter_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that name the meter, and those that only one meter has."""
    meter_options = parser.add_argument_group("meter")
    text = "instrument, its exported file or a model"
    add_option(meter_options, "--meter", text, required=True, choices=tuple(METERS))
    text = "port of the ppk2, or of the Pico that reads the ina226 or ina228"
    add_option(meter_options, "--meter-port PORT", text)
    text = "supply voltage in V, if the meter does not measure it"
    add_option(meter_options, "--volts VOLTS", text, type=float)
    for meter_class in METERS.available():
        meter_class.add_options(meter_options)
    add_option(meter_options, "--file CSV", "csv: exported file of the instrument", type=Path)
    text = "the board's pin that marks reports (default: a Pico's GP15)"
    add_option(meter_options, "--marker PIN", text, type=int)
    add_option(meter_options, "--active-low", "the marker pin is low during a window")
    text = "also measure the current of the board in deep sleep, for the battery's life"
    add_option(meter_options, "--asleep", text)
    add_option(meter_options, "--reports N", "csv: number of reports in a window", 1)


def _run(args: argparse.Namespace) -> int:
    """Find the energy of a report with a meter, and write it to the session's folder.

    The folder gets the result as JSON and as text, a picture, and a log.
    """
    _check_numbers(args)
    fleet_name = devices.fleet_of(args)
    case = latency_command.case_of(args)
    meter_class = METERS.named(args.meter)
    _check_board(args, meter_class, fleet_name)
    session = Session(args.sessions)
    with SessionProgress(session) as progress:
        meter = meter_class.from_options(args)
        task = Task(
            case=case,
            fleet=fleet_name,
            marker=args.marker,
            active_low=args.active_low,
            asleep=args.asleep,
            say=progress.say,
        )
        finding = meter.find(task)

    result = {
        **finding.report.as_dict(_bits_per_report(case)),
        **finding.more,
        **_battery_life(args, finding),
        "case": {**asdict(case), "bytes_per_report": case.report_bytes},
    }
    session.finish("energy", result, summary(result), _pictures(finding), args.json)
    return errors.OK


def _bits_per_report(case: Case) -> int:
    """Return how many bits of information a report has.

    Each of its k coordinates is sent as one of a number of symbols, as the table that the device
    samples from (its card) has them.
    """
    symbols = cards.decode(case.card).symbols
    return math.ceil(case.k * math.log2(symbols))


def _check_numbers(args: argparse.Namespace) -> None:
    """Raise UsageError for a number among the options that is out of range."""
    require_positive(args, "volts", "shunt", "battery", "every", "reports")
    milliwatts = args.sleep_milliwatts
    is_given = milliwatts is not None
    if is_given and not 0 <= milliwatts < math.inf:
        text = f"--sleep-milliwatts must be a number, 0 or more, not {milliwatts:g}"
        raise UsageError(text, "leave it out for what the chip's datasheet says")


def _check_board(args: argparse.Namespace, meter_class: type[Meter], fleet_name: str) -> None:
    """Raise UsageError if the meter needs a board at a port and none is named, or --asleep a meter."""
    if args.asleep and not meter_class.needs_board:
        hint = "such as --meter ppk2; or give --sleep-milliwatts"
        raise UsageError("--asleep needs a meter", hint)
    if meter_class.needs_board and not isinstance(fleet.parse(fleet_name), OnPorts):
        hint = "name it: tern bench energy a0 ...; or --meter model"
        raise UsageError("a meter needs a board to measure", hint)


def _pictures(finding: Finding) -> dict[str, Any]:
    """Draw the bars of the finding: where the energy of a report goes."""
    from ternbench import plots  # takes long to import

    is_modelled = bool(finding.more.get("modelled"))
    source = "modelled" if is_modelled else finding.report.source
    return {"page": plots.page([plots.energy_panel(finding.bars, source)])}


def summary(result: dict[str, Any]) -> str:
    """Return the result of the command as text for people.

    result: what --json prints.
    """
    lines = [
        f"{result['microjoules_per_report']:,.1f} uJ a report, "
        f"{result['microjoules_per_bit']:,.1f} uJ a bit "
        f"({result['bits_per_report']} bits), at {result['volts']:g} V: {result['source']}",
        f"  with the idle power of {result['idle_milliwatts']:.2f} mW in it: "
        f"{result['microjoules_per_report_with_idle']:,.1f} uJ",
        f"a battery of {result['battery_milliampere_hours']:g} mAh lasts "
        f"{result['battery_days']:,.0f} days with a report every "
        f"{result['report_every_seconds']:g} s and {result['sleep_milliwatts']:.3f} mW asleep "
        f"({result['sleep_source']})",
    ]
    return "\n".join(lines)


def _battery_life(args: argparse.Namespace, finding: Finding) -> dict[str, Any]:
    """Return the entries of the result about how long a battery lasts.

    The battery and the time between reports are from the options, the energy from the finding.
    """
    report = finding.report
    milliwatts, source = _sleep_milliwatts(args, finding)
    duty = energy.Duty(
        microjoules=report.gross,
        sleep_milliwatts=milliwatts,
        every=args.every,
        report_seconds=report.seconds_per_report,
    )
    return {
        "battery_days": energy.battery_days(args.battery, report.volts, duty),
        "battery_milliampere_hours": args.battery,
        "report_every_seconds": args.every,
        "sleep_milliwatts": milliwatts,
        "sleep_source": source,
    }


def _sleep_milliwatts(args: argparse.Namespace, finding: Finding) -> tuple[float, str]:
    """Return the power of the board asleep, in milliwatts, and where the number is from.

    It is what --sleep-milliwatts gives, else what was measured, else what the datasheet of the chip
    says, else the power of the board as it idles between reports.
    """
    report = finding.report
    if args.sleep_milliwatts is not None:
        return args.sleep_milliwatts, "given"
    if args.asleep and report.asleep_microamperes is not None:
        return report.volts * report.asleep_microamperes / 1000, "measured"
    if finding.chip in current_model.chips():
        model = current_model.load(finding.chip)
        return model.volts * model.sleep_ma, f"modelled: {model.sources['sleep']}"
    return report.idle_milliwatts, "as it rests between windows"
