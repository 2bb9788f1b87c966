"""`tern bench energy`: energy of a report in microjoules."""

import argparse
import math
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from tern import card as cards
from ternbench import current_model, energy, latency, latency_command, subjects
from ternbench.meters import csv, ina, joulescope, ppk2
from ternhost import errors
from ternhost.command import add_command, add_option
from ternhost.errors import TernError, UsageError
from ternhost.reach import fleet
from ternhost.reach.ports import names
from ternhost.reach.ports.fleet import OnPorts
from terntools.boards import devices
from terntools.emulators.fleets import Pico
from terntools.sessions import Session, Telling
from terntools.terminal import require_positive

METERS = ("ppk2", "joulescope", "ina226", "ina228", "csv", "model")
_SESSIONS = 5
_SECONDS = 12.0
_REST = 1.0  # of these before and after the board works, so that its idle power is seen
_BURST = 200  # reports that a board makes in one go

Energy = tuple[energy.ReportEnergy, str | None]  # of a report, and the chip
Meter = joulescope.Joulescope | ppk2.Ppk2 | ina.Ina
# The result, the microjoules of each bar's parts, and the chip.
Measured = tuple[dict[str, Any], dict[str, dict[str, float]], str | None]


def add_action(actions: Any) -> None:
    summary = "measure or model the energy of a report in microjoules"
    example = """tern bench energy --meter model --fleet pico-emulated:1 --json
    tern bench energy a0 --meter ppk2 --meter-port a1 --volts 3.3
    tern bench energy --meter csv --file export.csv --volts 5"""
    parser = add_command(actions, "energy", summary, example, _run)
    latency_command.add_options(parser)
    meter = parser.add_argument_group("meter")
    add_option(
        meter, "--meter", "instrument, its exported file or a model", required=True, choices=METERS
    )
    add_option(
        meter,
        "--meter-port PORT",
        "port of the ppk2, or of the Pico that reads the ina226 or ina228",
    )
    add_option(
        meter, "--volts VOLTS", "supply voltage in V, if the meter does not measure it", type=float
    )
    add_option(meter, "--no-supply", "ppk2: only measure; the board has its own supply")
    add_option(
        meter, "--shunt OHMS", "ina226, ina228: shunt resistance (default: 0.1, 0.015)", type=float
    )
    add_option(
        meter, "--range", "joulescope: fixed range of the current", choices=tuple(joulescope.RANGES)
    )
    add_option(meter, "--file CSV", "csv: exported file of the instrument", type=Path)
    add_option(
        meter,
        "--marker PIN",
        "the board's pin that marks reports (default: a Pico's GP15)",
        type=int,
    )
    add_option(meter, "--active-low", "the marker pin is low during a window")
    asleep = "also measure the current of the board in deep sleep, for the battery's life"
    add_option(meter, "--asleep", asleep)
    add_option(meter, "--reports N", "csv: number of reports in a window", 1)
    life = parser.add_argument_group("battery life")
    add_option(life, "--battery MAH", "capacity of the battery in mAh", 2000.0)
    add_option(life, "--every S", "seconds between reports", 3600.0)
    add_option(
        life, "--sleep-milliwatts MW", "power asleep in mW (default: by the datasheet)", type=float
    )


def _run(args: argparse.Namespace) -> int:
    require_positive(args, "volts", "shunt", "battery", "every", "reports")
    if args.sleep_milliwatts is not None and not 0 <= args.sleep_milliwatts < math.inf:
        text = f"--sleep-milliwatts must be a number, 0 or more, not {args.sleep_milliwatts:g}"
        raise UsageError(text, "leave it out for what the chip's datasheet says")
    args.fleet = devices.fleet_of(args)
    case = latency_command.case_of(args)
    without = args.meter in ("csv", "model")
    if args.asleep and without:
        raise UsageError(
            "--asleep needs a meter", hint="such as --meter ppk2; or give --sleep-milliwatts"
        )
    if not without and not isinstance(fleet.parse(args.fleet), OnPorts):
        hint = "name it: tern bench energy a0 ...; or --meter model"
        raise UsageError("a meter needs a board to measure", hint)
    session = Session(args.sessions)
    bits = math.ceil(case.k * math.log2(cards.decode(case.card).symbols))
    with Telling(session) as progress:
        how = _model if args.meter == "model" else _measure
        result, rows, chip = how(args, case, bits, progress.say)
    from ternbench import plots  # takes long to import

    source = "modelled" if args.meter == "model" else result["source"]
    pictures = {"page": plots.page([plots.energy(rows, source)])}
    result.update(_battery(args, result, chip))
    result["case"] = {**asdict(case), "bytes_per_report": case.report_bytes}
    session.finish("energy", result, summary(result), pictures, args.json)
    return errors.OK


def summary(result: dict[str, Any]) -> str:
    lines = [
        f"{result['microjoules_per_report']:,.1f} uJ a report, {result['microjoules_per_bit']:,.1f} uJ a bit "
        f"({result['bits_per_report']} bits), at {result['volts']:g} V: {result['source']}",
        f"  with the idle power of {result['idle_milliwatts']:.2f} mW in it: "
        f"{result['microjoules_per_report_with_idle']:,.1f} uJ",
        f"a battery of {result['battery_milliampere_hours']:g} mAh lasts {result['battery_days']:,.0f} days with a "
        f"report every {result['report_every_seconds']:g} s and {result['sleep_milliwatts']:.3f} mW asleep "
        f"({result['sleep_source']})",
    ]
    return "\n".join(lines)


def _battery(args: argparse.Namespace, result: dict[str, Any], chip: str | None) -> dict[str, Any]:
    asleep, source = args.sleep_milliwatts, "given"
    if asleep is None and args.asleep:
        asleep, source = result["volts"] * result["asleep_microamperes"] / 1000, "measured"
    if asleep is None and chip in current_model.chips():
        model = current_model.load(chip)
        asleep, source = model.volts * model.sleep_ma, f"modelled: {model.sources['sleep']}"
    elif asleep is None:
        asleep, source = result["idle_milliwatts"], "as it rests between windows"
    active = result["milliseconds_per_report"] / 1000
    days = energy.battery_days(
        args.battery,
        result["volts"],
        result["microjoules_per_report_with_idle"],
        asleep,
        args.every,
        active,
    )
    return {
        "battery_days": days,
        "battery_milliampere_hours": args.battery,
        "report_every_seconds": args.every,
        "sleep_milliwatts": asleep,
        "sleep_source": source,
    }


def _model(args: argparse.Namespace, case: latency.Case, bits: int, say: latency.Tell) -> Measured:
    if not isinstance(fleet.parse(args.fleet), (OnPorts, Pico)):
        hint = "take --fleet pico-emulated:1, or name a board"
        raise UsageError(f"--meter model needs a board's times, and {args.fleet} has none", hint)
    with subjects.subject(args.fleet) as on:
        model = current_model.load(on.chip)
        bench = latency.Bench(on)
        reports = []
        for k in dict.fromkeys((case.k, 1, case.d)):
            say(f"{on.name}: timing a report, {replace(case, k=k).label}")
            reports.append(bench.figures(replace(case, k=k)))
    rows = current_model.by_link(model, reports)
    gross = sum(model.report_microjoules(reports[0]))
    seconds = reports[0]["median"] / 1e6
    modelled = energy.ReportEnergy(
        gross,
        gross - model.sleep_microjoules(seconds),
        model.volts * model.sleep_ma,
        model.volts,
        seconds,
        current_model.SOURCE,
        asleep_microamperes=1000 * model.sleep_ma,
    )
    currents = {
        "chip": model.name,
        "active_milliampere": model.active_ma,
        "sleep_milliampere": model.sleep_ma,
        "sources": model.sources,
    }
    by_link = {name: sum(parts.values()) for name, parts in rows.items()}
    more = {"microjoules_by_link": by_link, "modelled": True, "currents": currents}
    return {**modelled.as_dict(bits), **more}, rows, on.chip


def _measure(
    args: argparse.Namespace, case: latency.Case, bits: int, say: latency.Tell
) -> Measured:
    measured, chip = _exported(args) if args.meter == "csv" else _on_board(args, case, say)
    parts = {"the report's": measured.net, "idle": measured.gross - measured.net}
    return measured.as_dict(bits), {case.label: parts}, chip


def _exported(args: argparse.Namespace) -> Energy:
    if args.file is None:
        raise UsageError("--meter csv needs a --file to read", hint="such as --file export.csv")
    source = f"measured, from {args.file.name}"
    return energy.measure(
        csv.read(args.file, args.volts), args.reports, source, args.active_low
    ), None


def _on_board(args: argparse.Namespace, case: latency.Case, say: latency.Tell) -> Energy:
    meter = _meter(args)
    results = []
    with subjects.subject(args.fleet, args.marker) as on:
        bench = latency.Bench(on)
        bench.prepare(case)
        if not on.call("has_marker()"):
            hint = "wire one to the meter and name it: --marker 4"
            raise UsageError("no pin of this board marks the windows", hint)
        for number in range(1, _SESSIONS + 1):
            say(f"{meter.source}: window {number} of {_SESSIONS}, {_SECONDS:g} s")
            results.append(_session(meter, bench, case, args.active_low))
        asleep = None
        if args.asleep:
            say(f"{meter.source}: the board asleep, {_SECONDS:g} s")
            assert isinstance(on, subjects.BoardSubject)
            on.sleep(_SECONDS + 2 * _REST)
            trace = meter.record(_SECONDS)
            energy.require_samples(trace, [])
            asleep = 1e6 * float(np.mean(trace.amperes))
    middle = sorted(results, key=lambda result: result.net)[_SESSIONS // 2]
    if middle.net <= 0:
        hint = "is the meter in the board's supply line?"
        raise TernError(
            "a report seems to cost no more energy than idling, which is impossible", hint
        )
    return replace(middle, asleep_microamperes=asleep), on.chip


def _session(
    meter: Meter, bench: latency.Bench, case: latency.Case, active_low: bool
) -> energy.ReportEnergy:
    with ThreadPoolExecutor(1) as pool:  # the meter records while the board works
        recording = pool.submit(meter.record, _SECONDS + 2 * _REST)
        time.sleep(_REST)
        spent, bursts = 0.0, 0
        while spent < _SECONDS and not recording.done():
            spent += bench.burst(case, _BURST)
            bursts += 1
    made = bursts * _BURST
    least = (made - _BURST) // 2  # the recording may begin late, and end within a burst
    return energy.measure(recording.result(), 1, meter.source, active_low, (least, made))


def _meter(args: argparse.Namespace) -> Meter:
    if args.meter == "joulescope":
        return joulescope.Joulescope(args.range)
    if args.meter_port is None:
        hint = "such as --meter-port a1; see `tern devices`"
        raise UsageError(f"--meter-port is missing: the port of the {args.meter}", hint)
    port = names.resolve(args.meter_port)
    if args.meter == "ppk2":
        return ppk2.Ppk2(port, args.volts or 3.3, supply=not args.no_supply)
    return ina.Ina(port, args.meter, args.shunt or (0.1 if args.meter == "ina226" else 0.015))
