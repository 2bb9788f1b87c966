"""`tern bench latency`: how long a report takes on a device, and where the time goes."""

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ternbench import cases, current_model, latency, subjects
from ternbench.cases import Case
from ternhost import errors
from ternhost.command import add_command, add_option
from ternhost.learn.models import projections
from ternhost.privacy import mechanisms
from ternhost.words import HELP
from terntools.boards import devices
from terntools.sessions import Session, SessionProgress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ternbench.plots import Panel


def add_parser(actions: Any) -> None:
    """Add `latency` to the actions of `tern bench`."""
    summary = "measure how long a report takes on a board, and where the time goes"
    example = """tern bench latency --fleet pico-emulated:1 --json
    tern bench latency a0 --compare
    tern bench latency --fleet xtensa-emulated:1"""
    parser = add_command(actions, "latency", summary, example, _run)
    add_options(parser)
    text = "also measure reports with other mechanisms, sizes and models, which takes some minutes"
    add_option(parser, "--compare", text)
    explanation = """The fleet is one board. rv32-emulated:1 (ESP32-C3) and xtensa-emulated:1 (ESP32)
count instructions, and give the least time of a chip."""
    parser.epilog = f"{explanation}\n{parser.epilog}"


def add_options(parser: argparse.ArgumentParser, hidden: bool = False) -> None:
    """Add the options that name a board and describe a report, which `tern bench energy` has as well.

    hidden: the help shows only the board and --fleet.
    """
    devices.add_board_or_fleet(parser, HELP["fleet"], "pico-emulated:1")
    add_report_options(parser, hidden)


def add_report_options(parser: argparse.ArgumentParser, hidden: bool = False) -> None:
    """Add the options that describe a report. hidden: the help does not show them."""
    case = Case()
    add_option(
        parser,
        "--mechanism NAME",
        default=case.mechanism,
        choices=mechanisms.NAMES,
        hidden=hidden,
    )
    add_option(parser, "--d D", default=case.d, hidden=hidden)
    add_option(parser, "--k K", default=case.k, hidden=hidden)
    add_option(
        parser,
        "--records N",
        "number of records of a device: a report is about the mean gradient of all",
        default=case.records,
        hidden=hidden,
    )
    add_option(parser, "--sessions DIR", default="sessions", hidden=hidden)


def case_of(args: argparse.Namespace) -> Case:
    """Return the kind of report that the options describe. Raises UsageError."""
    return Case(args.mechanism, d=args.d, k=args.k, records=args.records)


def _run(args: argparse.Namespace) -> int:
    """Measure the times of reports, and write them to the session's folder with text and pictures."""
    case = case_of(args)
    session = Session(args.sessions)
    fleet_name = devices.fleet_of(args)
    mechanisms_to_compare = latency.MECHANISMS if args.compare else ()
    with SessionProgress(session) as progress:
        result = latency.measure(fleet_name, case, progress, mechanisms_to_compare)
    session.finish("latency", result, summary(result), pictures(result), args.json)
    return errors.OK


def summary(result: Mapping[str, Any]) -> str:
    """Return the result of `latency.measure` as text for people.

    The result's "unit" says whether its times are microseconds or numbers of instructions.
    """
    lines = [result["device"], *_report_lines(result)]
    if result["unit"] == subjects.INSTRUCTIONS:
        lines.append(_bound_line(result))
    if result[f"{result['unit']}_per_coordinate"]:
        lines += _coordinate_lines(result)
    lines.append(_memory_line(result))
    lines += _other_report_lines(result)
    if result["runs_differ_by"] is not None:
        lines.append(f"two boots differ by {100 * result['runs_differ_by']:.2f} % in a report")
    if result["identical_runs"] is not None:
        comparison = "agree to the microsecond" if result["identical_runs"] else "do NOT agree"
        lines.append(f"two boots {comparison}")
    return "\n".join(lines)


def _thousands(result: Mapping[str, Any]) -> str:
    """Return what a thousand of the result's units of time is called."""
    if result["unit"] == subjects.MICROSECONDS:
        return "ms"
    return "thousand instructions"


def _report_lines(result: Mapping[str, Any]) -> list[str]:
    """Return lines about the report of the user's options: its time, and the time of each part of it."""
    thousands = _thousands(result)
    report = result[f"{result['unit']}_per_report"]
    median, slowest = report["median"] / 1000, report["slowest"] / 1000
    times = f"median {median:,.2f} {thousands}, slowest {slowest:,.2f}"
    lines = [f"a report ({result['case']['name']}): {times}"]
    for part, value in report["breakdown"].items():
        lines.append(f"  {part:12}{value / 1000:10,.2f} {thousands}")
    return lines


def _bound_line(result: Mapping[str, Any]) -> str:
    """Return a line about the least time that a chip needs for the instructions that were counted."""
    bounds = []
    for clock, microseconds in result["us_per_report_at_least"].items():
        bounds.append(f"{microseconds / 1000:.2f} ms at {clock}")
    return (
        f"a chip that executes as many takes at least {' and '.join(bounds)}: a cycle for each, "
        "none for SHA-256 and AES, which it has in hardware; what flash, caches and slow "
        "instructions add is not known here"
    )


def _coordinate_lines(result: Mapping[str, Any]) -> list[str]:
    """Return a table with the time that each mechanism takes to randomize one coordinate.

    The columns are the time, the time of the same mechanism in plain floats, by which factor that
    is slower, and the time with the sampler in C, or "-" if the device cannot run that.
    """
    unit = result["unit"]
    unit_words = "microseconds" if unit == subjects.MICROSECONDS else unit
    lines = [
        f"{unit_words} a coordinate, entropy included; in plain float, and times that; "
        "with the sampler in C:"
    ]
    native_times = result[f"{unit}_per_coordinate_native_c"] or {}
    plain_times = result[f"{unit}_per_coordinate_plain_float"]
    for name, time in result[f"{unit}_per_coordinate"].items():
        plain_time = plain_times[name]
        factor = plain_time / time
        native_text = "-"
        if name in native_times:
            native_text = f"{native_times[name]:.2f}"
        columns = f"{time:8.2f}{plain_time:10.1f} {factor:6.1f}{native_text:>10}"
        lines.append(f"  {name:14}{columns}")
    return lines


def _memory_line(result: Mapping[str, Any]) -> str:
    """Return a line about the cost of random bytes, the heap in use, and the library's size."""
    unit = result["unit"]
    entropy_time = result[f"entropy_{unit}_per_byte"]
    used, free = result["heap_bytes_peak"], result["heap"]["free"]
    entropy = f"entropy {entropy_time:.2f} {unit} a byte"
    heap = f"heap: at most {used:,} bytes in use, {free:,} free"
    return f"{entropy}; {heap}; library {result['mpy_bytes']:,} bytes of .mpy (Pico)"


def _other_report_lines(result: Mapping[str, Any]) -> list[str]:
    """Return a line about each report that is compared with the one of the user's options."""
    lines = []
    for report in result["reports"]:
        if report["name"] == result["case"]["name"]:
            continue
        line = f"{report['name']}: median {report['median'] / 1000:,.2f} {_thousands(result)}"
        is_sum = report["mechanism"] == cases.SUM
        if is_sum or report["mechanism"] == projections.NAME:
            # Their noise takes most of the time. That of a projection is drawn once; that of a sum
            # for each coordinate.
            noise_unit = "coordinate" if is_sum else "report"
            line += f", noise {report['noise'] / 1000:.2f} a {noise_unit}"
        lines.append(line)
    return lines


def pictures(result: Mapping[str, Any]) -> "dict[str, Figure]":
    """Draw a page with the times, energies and bytes of the reports.

    Energies are modelled from datasheet currents, and left out if those of the chip are unknown.
    """
    from ternbench import plots  # takes long to import

    panels = [time_panel(result)]
    if result["chip"] in current_model.chips():
        panels.append(_energy_panel(result))
    panels.append(_bytes_panel(result))
    return {"page": plots.page(panels)}


def time_panel(result: Mapping[str, Any]) -> "Panel":
    """Return a bar for each report with the time of its parts, or with their instructions.

    Reports about many records are left out: they take so long that no other bar could be read.
    """
    from ternbench.plots import Panel

    bars = {}
    for report in result["reports"]:
        if report["records"] == result["case"]["records"]:
            bars[report["name"]] = report["breakdown"]
    if result["unit"] == subjects.MICROSECONDS:
        unit = "milliseconds from the round's first byte to the report's last"
        return Panel("Latency of a report", unit, bars, scale=1e-3, digits=1)
    return Panel("Instructions of a report", "thousands, without the link", bars, scale=1e-3)


def _energy_panel(result: Mapping[str, Any]) -> "Panel":
    """Return bars of the modelled energy of reports with the mechanism and model of the user's options."""
    from ternbench import plots

    case = result["case"]
    reports = []
    for report in result["reports"]:
        if report["mechanism"] == case["mechanism"] and report["model"] == case["model"]:
            reports.append(report)
    bars = current_model.by_link(current_model.load(result["chip"]), reports)
    return plots.energy_panel(bars, "modelled")


def _bytes_panel(result: Mapping[str, Any]) -> "Panel":
    """Return a bar with the size of each report, and of a report with a float for each coordinate.

    The size depends on the mechanism and the number of coordinates, but not on the model. So the
    model, which ends the name of a report, is left out, and reports that differ in it share a bar.
    """
    from ternbench.plots import Panel

    bytes_by_name = {}
    for report in result["reports"]:
        without_model = report["name"].rpartition(", ")[0]
        bytes_by_name[without_model] = report["bytes_out"]
    for report in result["reports"]:
        coordinates = report["d"]
        bytes_by_name[f"float32, {coordinates} of {coordinates}"] = report["bytes_float32"]

    header_bytes = cases.OVERHEAD
    bars = {}
    for name, size in bytes_by_name.items():
        bars[name] = {"header and tag": header_bytes, "content": size - header_bytes}
    return Panel("Bytes of a report", "bytes, before COBS or MQTT", bars)
