"""`tern bench latency`: how long a report takes on a device, and where the time goes."""

import argparse
from typing import Any

from ternbench import current_model, latency, subjects
from ternhost import errors
from ternhost.command import add_command, add_option
from ternhost.learn import projections
from ternhost.learn.parameters import LINEAR_MODELS
from ternhost.privacy import mechanisms
from terntools.boards import devices
from terntools.sessions import Session, Telling


def add_action(actions: Any) -> None:
    summary = "measure how long a report takes on a board, and where the time goes"
    example = """tern bench latency --fleet pico-emulated:1 --json
    tern bench latency a0
    tern bench latency --fleet xtensa-emulated:1"""
    parser = add_command(actions, "latency", summary, example, _run)
    add_options(parser)


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that `tern bench energy` has as well."""
    case = latency.Case()
    text = "an emulated board: pico-emulated:1 or emulated:1; for latency also rv32-emulated:1 (ESP32-C3) "
    text += (
        "and xtensa-emulated:1 (ESP32), which count instructions and give the least time of a chip"
    )
    devices.add_board_or_fleet(parser, text, "pico-emulated:1")
    add_option(
        parser,
        "--mechanism NAME",
        "mechanism of a report",
        case.mechanism,
        choices=mechanisms.NAMES,
    )
    add_option(parser, "--epsilon E", "epsilon of a report", case.epsilon)
    add_option(parser, "--d D", "number of coordinates", case.d)
    add_option(parser, "--k K", "number of coordinates in the report", case.k)
    models = tuple(LINEAR_MODELS)
    add_option(parser, "--model", "model whose gradient is reported", case.model, choices=models)
    add_option(
        parser, "--sessions DIR", "write log, JSON and pictures to a new folder in DIR", "sessions"
    )


def case_of(args: argparse.Namespace) -> latency.Case:
    return latency.Case(args.mechanism, args.epsilon, args.d, args.k, args.model)


def _run(args: argparse.Namespace) -> int:
    case = case_of(args)
    session = Session(args.sessions)
    spec = devices.fleet_of(args)
    with Telling(session, latency.plan(spec, case)) as progress:
        result = latency.measure(spec, case, progress.say)
    session.finish("latency", result, summary(result), pictures(result), args.json)
    return errors.OK


def summary(result: dict[str, Any]) -> str:
    unit = result["unit"]
    is_time = unit == subjects.MICROSECONDS
    thousands = "ms" if is_time else "thousand instructions"
    report = result[f"{unit}_per_report"]
    times = f"median {report['median'] / 1000:,.2f} {thousands}, slowest {report['slowest'] / 1000:,.2f}"
    lines = [result["device"], f"a report ({result['case']['name']}): {times}"]
    lines += [
        f"  {part:12}{value / 1000:10,.2f} {thousands}"
        for part, value in report["breakdown"].items()
    ]
    if not is_time:
        least = result["us_per_report_at_least"].items()
        bounds = " and ".join(f"{us / 1000:.2f} ms at {clock}" for clock, us in least)
        line = f"a chip that executes as many takes at least {bounds}: a cycle for each, none for SHA-256 "
        line += "and AES, which it has in hardware; "
        lines.append(f"{line}what flash, caches and slow instructions add is not known here")
    line = f"{'microseconds' if is_time else unit} a coordinate, entropy included; in plain float, and times "
    line += "that; with the sampler in C:"
    lines.append(line)
    in_c = result[f"{unit}_per_coordinate_native_c"] or {}
    for name, value in result[f"{unit}_per_coordinate"].items():
        plain = result[f"{unit}_per_coordinate_plain_float"][name]
        native = f"{in_c[name]:10.2f}" if name in in_c else "         -"
        lines.append(f"  {name:14}{value:8.2f}{plain:10.1f} {plain / value:6.1f}{native}")
    line = f"entropy {result[f'entropy_{unit}_per_byte']:.2f} {unit} a byte; heap: at most "
    line += f"{result['heap_bytes_peak']:,} bytes in use, {result['heap']['free']:,} free; "
    lines.append(f"{line}library {result['mpy_bytes']:,} bytes of .mpy (Pico)")
    for one in result["reports"]:
        if one["records"] or one["mechanism"] == projections.NAME:
            noise = f"noise {one['noise'] / 1000:.2f} a " + (
                "coordinate" if one["records"] else "report"
            )
            lines.append(f"{one['name']}: median {one['median'] / 1000:,.2f} {thousands}, {noise}")
    if result["runs_differ_by"] is not None:
        lines.append(f"two boots differ by {100 * result['runs_differ_by']:.2f} % in a report")
    if result["identical_runs"] is not None:
        agree = "agree to the microsecond" if result["identical_runs"] else "do NOT agree"
        lines.append(f"two boots {agree}")
    return "\n".join(lines)


def pictures(result: dict[str, Any]) -> dict[str, Any]:
    from ternbench import plots  # takes long to import

    reports = result["reports"]
    parts = {one["name"]: one["breakdown"] for one in reports if not one["records"]}
    if result["unit"] == subjects.MICROSECONDS:
        unit = "milliseconds from the round's first byte to the report's last"
        panels = [plots.Panel("Latency of a report", unit, parts, 1e-3, 1)]
    else:
        panels = [
            plots.Panel("Instructions of a report", "thousands, without the link", parts, 1e-3)
        ]
    if result["chip"] in current_model.chips():
        case = result["case"]
        of_case = [
            one
            for one in reports
            if all(one[name] == case[name] for name in ("mechanism", "model"))
        ]
        by_link = current_model.by_link(current_model.load(result["chip"]), of_case)
        panels.append(plots.energy(by_link, "modelled"))
    sizes = {one["name"].rpartition(", ")[0]: one["bytes_out"] for one in reports}
    sizes |= {f"float32, {one['d']} of {one['d']}": one["bytes_float32"] for one in reports}
    head = latency.OVERHEAD
    rows = {name: {"header and tag": head, "content": n - head} for name, n in sizes.items()}
    panels.append(plots.Panel("Bytes of a report", "bytes, before COBS or MQTT", rows))
    return {"page": plots.page(panels)}
