"""`tern bench battery`: how long a battery lasts on a board that wakes for each round.

It also says what one could change, and how long the battery would last then.
"""

import argparse
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ternbench import battery, battery_changes
from ternbench.battery import Life, Wakes
from ternbench.battery_changes import Change
from ternhost import errors
from ternhost.command import add_command, add_option, print_result
from ternhost.errors import UsageError
from ternhost.options import seconds_of
from terntools.terminal import require_positive

_MAX_MS = 1e9  # of a phase of a wake: eleven days, more than anything that makes sense


def add_parser(actions: Any) -> None:
    """Add `battery` to the actions of `tern bench`."""
    summary = "model how long a battery lasts on a board that sleeps and wakes for each round"
    example = """tern bench battery --chip esp32 --every 1h --capacity 2000
    tern bench battery --chip pico-w --sleep timer --awake-ms join=2500 --plot battery.png"""
    parser = add_command(actions, "battery", summary, example, _run)
    boards = battery.figures()["boards"]
    sleeps = "; ".join(f"{name}: {', '.join(board['sleeps'])}" for name, board in boards.items())
    add_option(parser, "--chip", "kind of board", required=True, choices=tuple(boards))
    add_option(parser, "--every T", default="1h")
    add_option(
        parser, "--capacity MAH", "capacity of the battery, of lithium-ion at 3.7 V, in mAh", 2000.0
    )
    text = f"kind of sleep ({sleeps}), or the current asleep, such as 90uA"
    add_option(parser, "--sleep HOW", text, battery.DEEP_SLEEP)
    phases = ", ".join(boards["esp32"]["phases"])
    add_option(parser, "--awake-ms PHASE=MS...", f"duration of a phase in milliseconds: {phases}")
    add_option(parser, "--plot FILE.png")


def _times(settings: list[str]) -> dict[str, float]:
    """Parse the values of --awake-ms, such as "join=800", and return milliseconds by phase.

    A phase is a part of the time that the board is awake. Raises UsageError for any other text.
    """
    milliseconds_by_phase = {}
    for setting in settings:
        phase, _, value = setting.partition("=")
        try:
            milliseconds = float(value)
        except ValueError:
            milliseconds = math.nan
        if not 0 <= milliseconds < _MAX_MS:
            hint = "such as --awake-ms join=800"
            raise UsageError(f"--awake-ms must be PHASE=MS, not {setting!r}", hint)
        milliseconds_by_phase[phase] = milliseconds
    return milliseconds_by_phase


def _run(args: argparse.Namespace) -> int:
    """Model the life of a battery by the options, and print the result, and draw it on request."""
    require_positive(args, "capacity")
    every = seconds_of(args.every, "every")
    wakes = _wakes(args).with_ms(_times(args.awake_ms))
    life = wakes.life(args.capacity, every)
    changes = battery_changes.ranked(args.chip, args.sleep, wakes, args.capacity, every)
    result = _result(args, wakes, life, changes)
    if args.plot:
        _draw(args, life, changes)
        result["plot"] = args.plot
    print_result(result, _text(args, wakes, life, changes), args.json)
    return errors.OK


def _wakes(args: argparse.Namespace) -> Wakes:
    """Return the board's wakes and sleep, with the current asleep that --sleep names, if it is one."""
    microampere = _microampere(args.sleep)
    if microampere is None:
        return battery.load(args.chip, args.sleep)
    wakes = battery.load(args.chip)
    return replace(wakes, sleep=microampere / 1000, sleep_source="given", longest=None)


def _microampere(sleep: str) -> float | None:
    """Return the current that --sleep names, such as 90uA, in microamperes; None for a kind of sleep.

    Raises UsageError for a current that is none.
    """
    number, unit, rest = sleep.partition("uA")
    if not unit or rest:
        return None
    try:
        microampere = float(number)
    except ValueError:
        microampere = math.nan
    if not 0 <= microampere < math.inf:
        raise UsageError(f"--sleep must be a current of 0 or more, not {sleep!r}", "such as 90uA")
    return microampere


def _result(
    args: argparse.Namespace, wakes: Wakes, life: Life, changes: list[Change]
) -> dict[str, Any]:
    """Return the result as --json prints it.

    wakes: the currents and durations of the board. life: the battery's life with them. changes: what
    could be changed, the longest life first.
    """
    phases = {}
    for name, phase in wakes.phases.items():
        phases[name] = {**asdict(phase), "mas": phase.charge}
    return {
        "board": args.chip,
        "sleep": args.sleep,
        "every": life.every,
        "capacity": args.capacity,
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
        "changes": [_change_result(change) for change in changes],
        "modelled": True,
    }


def _change_result(change: Change) -> dict[str, Any]:
    """Return a change as --json prints it."""
    return {
        "name": change.name,
        "what": change.what,
        "cost": change.cost,
        "today": change.today,
        "needs": change.needs,
        "why": change.why,
        "years": change.life.years,
        "years_gained": change.years_gained,
        "milliampere_seconds_saved_a_wake": change.saved_mas,
        "milliampere_more_on_average": change.more_ma,
    }


def _draw(args: argparse.Namespace, life: Life, changes: list[Change]) -> None:
    """Draw where the battery's charge goes, and its life with each change, into the file of --plot.

    life: the battery's life now. changes: as for `_result`. Raises UsageError and StorageError.
    """
    from ternbench import plots  # loads matplotlib
    from ternhost.plots import canvas

    path = Path(args.plot)
    canvas.check_place(path)
    name = f"{args.chip}, {args.sleep}, every {life.every:g} s"
    charge = plots.Panel(
        title="Where a battery's charge goes (modelled)",
        unit="microampere on average",
        bars={name: life.milliampere},
        scale=1000,
    )
    years = {"now": {"years": life.years}}
    for change in changes:
        years[change.name] = {"years": change.life.years}
    lives = plots.Panel(
        title="How long the battery lasts with each change (modelled)",
        unit="years",
        bars=years,
        digits=2,
    )
    canvas.save(plots.page([charge, lives]), path)


def _text(args: argparse.Namespace, wakes: Wakes, life: Life, changes: list[Change]) -> str:
    """Return the result as text for people.

    wakes: the currents and durations of the board. life: the battery's life with them. changes: what
    could be changed, the longest life first.
    """
    interval = f"a wake every {life.every:g} s"
    supply = f"{args.capacity:g} mAh at {wakes.volts:g} V"
    years = f"{life.years:.2f} years (modelled), {1000 * life.average:.0f} uA on average"
    lines = [
        f"{wakes.name}, {interval}, {supply}: {years}",
        f"  a wake takes {wakes.awake_s:.1f} s and {wakes.charge:.0f} mAs:",
    ]
    sleep_words = f"{args.sleep}, asleep"
    lines += _charge_lines(wakes, life, sleep_words)
    if wakes.longest is not None and life.every > wakes.longest:
        longest_words = f"{wakes.longest:g} s at a time"
        lines.append(
            f"  it cannot sleep longer than {longest_words}: it would wake in between, and sleep again"
        )
    lines += _change_lines(changes)
    lines.append("  --json has the source of each figure")
    return "\n".join(lines)


def _charge_lines(wakes: Wakes, life: Life, sleep_words: str) -> list[str]:
    """Return a table: the charge of each phase of a wake, and the average current of all.

    sleep_words: the board's kind of sleep, for people.
    """
    lines = []
    for name, phase in wakes.phases.items():
        charge_words = f"{phase.ms:6.0f} ms x {phase.ma:5.1f} mA = {phase.charge:6.1f} mAs"
        microampere = 1000 * life.milliampere[name]
        lines.append(f"  {name:15} {charge_words} {microampere:9.1f} uA")

    sleep_microampere = 1000 * life.milliampere[battery.SLEEP]
    lost_microampere = 1000 * life.milliampere[battery.SELF_DISCHARGE]
    lines.append(f"  {sleep_words:46} {sleep_microampere:9.1f} uA")
    lines.append(f"  {battery.SELF_DISCHARGE:46} {lost_microampere:9.1f} uA")
    return lines


def _change_lines(changes: list[Change]) -> list[str]:
    """Return a list of what could be changed, with the battery's life and the price of each."""
    lines = ["  what to change, the longest life first (modelled):"]
    for change in changes:
        years = f"{change.life.years:5.2f} years ({change.years_gained:+.2f})"
        more_mas = 0.0 - change.saved_mas  # 0 without a minus sign
        charge = f"a wake {more_mas:+.0f} mAs, on average {1000 * change.more_ma:+.0f} uA"
        lines.append(f"  {change.name}: {years}, {charge}")
        lines.append(f"    {change.what}")
        lines.append(f"    price: {change.cost}")
        if not change.today:
            lines.append(f"    not possible yet: it needs {change.needs}")
    return lines
