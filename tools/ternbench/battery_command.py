"""`tern bench battery`: how long a battery lasts on a board that wakes for each round."""

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ternbench import battery
from ternhost import errors
from ternhost.command import add_command, add_option, print_result
from ternhost.errors import UsageError
from terntools.terminal import require_positive


def add_action(actions: Any) -> None:
    summary = "model how long a battery lasts on a board that sleeps and wakes for each round"
    example = """tern bench battery --chip esp32 --interval-s 3600 --capacity-mah 2000
    tern bench battery --chip pico-w --sleep timer --awake-ms join=2500 --plot battery.png"""
    parser = add_command(actions, "battery", summary, example, _run)
    boards = battery.figures()["boards"]
    sleeps = "; ".join(f"{name}: {', '.join(of['sleeps'])}" for name, of in boards.items())
    add_option(parser, "--chip", "kind of board", required=True, choices=tuple(boards))
    add_option(parser, "--interval-s S", "seconds from one wake to the next", 3600.0)
    add_option(parser, "--capacity-mah MAH", "capacity of the battery in mAh", 2000.0)
    add_option(parser, "--sleep HOW", f"kind of sleep; {sleeps}", "deepsleep")
    phases = ", ".join(boards["esp32"]["phases"])
    add_option(parser, "--awake-ms PHASE=MS...", f"duration of a phase in milliseconds: {phases}")
    add_option(parser, "--volts V", "voltage of the battery (default: 3.7)", type=float)
    lost = (
        "share of the capacity that self-discharge loses in a month (default: 0.025, lithium-ion)"
    )
    add_option(parser, "--self-discharge SHARE", lost, type=float)
    add_option(parser, "--sources", "add the source of each figure")
    add_option(parser, "--plot FILE.png", "also draw into this file where the charge goes")


def _times(words: list[str]) -> dict[str, float]:
    times = {}
    for word in words:
        name, _, value = word.partition("=")
        try:
            times[name] = float(value)
        except ValueError:
            times[name] = -1.0
        if not 0 <= times[name] < 1e9:
            raise UsageError(
                f"--awake-ms must be PHASE=MS, not {word!r}", hint="such as --awake-ms join=800"
            )
    return times


def _run(args: argparse.Namespace) -> int:
    require_positive(args, "interval_s", "capacity_mah", "volts")
    if args.self_discharge is not None and not 0 <= args.self_discharge < 1:
        raise UsageError(
            f"--self-discharge must be a share from 0 to below 1, not {args.self_discharge:g}"
        )
    wakes = battery.load(
        args.chip, args.sleep, volts=args.volts, self_discharge=args.self_discharge
    )
    wakes = wakes.with_ms(_times(args.awake_ms))
    life = wakes.life(args.capacity_mah, args.interval_s)
    phases = {name: {**asdict(phase), "mas": phase.charge} for name, phase in wakes.phases.items()}
    result = {
        "board": args.chip,
        "sleep": args.sleep,
        "interval_s": args.interval_s,
        "capacity_mah": args.capacity_mah,
        "volts": wakes.volts,
        "awake_s": wakes.awake_s,
        "milliampere_seconds_a_wake": wakes.charge,
        "phases": phases,
        "sleep_ma": wakes.sleep,
        "sleep_source": wakes.sleep_source,
        "longest_sleep_s": wakes.longest,
        "self_discharge": wakes.self_discharge,
        "milliampere": life.milliampere,
        "milliampere_average": life.average,
        "years": life.years,
        "modelled": True,
    }
    if args.plot:
        from ternbench import plots  # loads matplotlib
        from ternhost.run.report import plots as report

        report.check_place(Path(args.plot))
        bar = {f"{args.chip}, {args.sleep}, every {args.interval_s:g} s": life.milliampere}
        panel = plots.Panel(
            "Where a battery's charge goes (modelled)", "microampere on average", bar, 1000
        )
        report.save(plots.page([panel]), Path(args.plot))
        result["plot"] = args.plot
    print_result(result, _text(result, wakes, life, args.sources), args.json)
    return errors.OK


def _text(result: dict[str, Any], wakes: battery.Wakes, life: battery.Life, sources: bool) -> str:
    lines = [
        f"{wakes.name}, a wake every {result['interval_s']:g} s, {result['capacity_mah']:g} mAh at {wakes.volts:g} V: "
        f"{life.years:.2f} years (modelled), {1000 * life.average:.0f} uA on average",
        f"  a wake takes {wakes.awake_s:.1f} s and {wakes.charge:.0f} mAs:",
    ]
    lines += [
        f"  {name:15} {phase.ms:6.0f} ms x {phase.ma:5.1f} mA = {phase.charge:6.1f} mAs "
        f"{1000 * life.milliampere[name]:9.1f} uA"
        for name, phase in wakes.phases.items()
    ]
    asleep = result["sleep"] + ", asleep"
    lines.append(f"  {asleep:46} {1000 * life.milliampere[battery.SLEEP]:9.1f} uA")
    lines.append(f"  {battery.SELF:46} {1000 * life.milliampere[battery.SELF]:9.1f} uA")
    if wakes.longest is not None and result["interval_s"] > wakes.longest:
        most = f"{wakes.longest:g} s at a time"
        lines.append(
            f"  it cannot sleep longer than {most}: it would wake in between, and sleep again"
        )
    if not sources:
        lines.append("  --sources adds where each figure is from")
        return "\n".join(lines)
    lines += [f"  {name}: {phase.source}" for name, phase in wakes.phases.items()]
    lines.append(f"  {asleep}: {wakes.sleep_source}")
    lines.append(f"  {battery.SELF}: {100 * wakes.self_discharge:g} % of its capacity a month")
    return "\n".join(lines)
