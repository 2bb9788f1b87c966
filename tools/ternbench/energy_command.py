"""`tern bench energy`: measures or models the energy of a report, in microjoules."""

import argparse
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from tern import card as cards
from ternbench import latency_command
from ternbench.cases import Case
from ternbench.meters import choice
from ternbench.meters.base import Finding, Task
from ternbench.meters.choice import MeterChoice
from ternhost import errors
from ternhost.command import add_command, add_option
from ternhost.errors import UsageError
from ternhost.options import shown
from ternhost.reach import fleet
from ternhost.reach.ports.fleet import OnPorts
from terntools.boards import devices
from terntools.sessions import Session, SessionProgress


def add_parser(actions: Any) -> None:
    """Add `energy` to the actions of `tern bench`."""
    summary = "measure or model the energy of a report in microjoules"
    example = """tern bench energy --meter model --fleet pico-emulated:1
    tern bench energy a0 --meter ppk2:a1,volts=3.3
    tern bench energy --meter csv:export.csv,volts=5"""
    parser = add_command(actions, "energy", summary, example, _run)
    latency_command.add_options(parser, hidden=True)
    text = "power meter, file of a recording, or model; see below"
    add_option(parser, "--meter METER", text, required=True)
    text = "also measure the current of the board in deep sleep, for 'tern bench battery --sleep'"
    add_option(parser, "--asleep", text)
    add_option(parser, "--anyway", "accept a mean power or a supply voltage that looks wrong")
    others = "It also takes the options of 'tern bench latency --help'."
    parser.epilog = "\n".join([others, "", *choice.help_lines(), "", str(parser.epilog)])


def _run(args: argparse.Namespace) -> int:
    """Find the energy of a report with a meter, and write it to the session's folder.

    The folder gets the result as JSON and as text, a picture, and a log.
    """
    chosen = choice.parse(args.meter)
    fleet_name = devices.fleet_of(args)
    case = latency_command.case_of(args)
    _check_board(args.asleep, chosen, fleet_name)
    session = Session(args.sessions)
    with SessionProgress(session) as progress:
        task = Task(
            case=case,
            fleet=fleet_name,
            # The marker of a file is a column, and no pin of a board.
            marker=chosen.settings.get("marker") if chosen.meter.needs_board else None,
            active_low=chosen.settings.get("active_low", False),
            asleep=args.asleep,
            anyway=args.anyway,
            say=progress.say,
        )
        finding = chosen.open().find(task)

    result = {
        **finding.report.as_dict(_bits_per_report(case)),
        **finding.more,
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


def _check_board(asleep: bool, chosen: MeterChoice, fleet_name: str) -> None:
    """Raise UsageError if the meter needs a board at a port and none is named, or --asleep a meter."""
    if asleep and not chosen.meter.needs_board:
        raise UsageError("--asleep needs a meter", "such as --meter ppk2:PORT")
    if chosen.meter.needs_board and not isinstance(fleet.parse(fleet_name), OnPorts):
        hint = "name it: tern bench energy a0 ...; or use --meter model"
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
    ]
    asleep = result["asleep_microamperes"]
    if asleep is not None:
        lines.append(f"{asleep:,.1f} uA asleep")
    if result["mean_milliwatts"] is not None:
        lines.append(f"  mean power of the recording: {result['mean_milliwatts']:,.4g} mW")
    if "recording" in result:
        lines += _recording_lines(result["recording"], result["windows"])
    return "\n".join(lines)


def _recording_lines(recording: Mapping[str, Any], windows: int) -> list[str]:
    """Return what was taken for what in a recording, a line for each.

    recording: as --json prints it. windows: how many the marker marks.
    """
    notes = {
        "time": f"{recording['samples_per_second']:,.6g} samples a second for {recording['seconds']:.3g} s",
        "marker": f"{windows} windows, in which it is {recording['marked_by']}",
    }
    lines = []
    for name in ("time", "current", "power", "supply", "marker"):
        parts = []
        taken = recording["taken"].get(name)
        if taken:
            parts.append(_taken_words(taken))
        if name in notes:
            parts.append(notes[name])
        if parts:
            lines.append(f"  {name + ':':9}{'; '.join(parts)}")
    return lines


def _taken_words(taken: Mapping[str, str]) -> str:
    """Return what a quantity was taken from in words, such as "column 'I/mA' in mA"."""
    if "setting" in taken:
        return f"as stated, {taken['setting']}"
    words = f"column {shown(taken['column'])}"
    if "input" in taken:
        words = f"input {taken['input']} in {words}"
    if "unit" in taken:
        words += f" in {taken['unit']}"
    if "file" in taken:
        words += f" of {taken['file']}"
    return words
