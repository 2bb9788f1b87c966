"""`tern plan`: how many devices a model needs, or what the ones that exist can learn.

The estimates are by simulation. There are three kinds of plans: for devices that report once
(--epsilon, the epsilon of this report), for devices that report for years (--years), and for a fleet
that exists (--run-epsilon and the other options of `_OF_A_FLEET`), with both units of privacy side by
side. Only --records goes with two kinds: with --epsilon new devices hold so many records, and
otherwise a fleet that exists does.

With --statistic it plans for a mean, a share, a quantile or a histogram instead of a model.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ternhost.command import add_command, add_option, print_result, warn
from ternhost.datasets.schemas import findings
from ternhost.errors import OK, UsageError
from ternhost.learn.data_options import DataOptions
from ternhost.learn.parameters import MODELS
from ternhost.learn.sums.fedsum import Options
from ternhost.listed_commands import PLAN
from ternhost.options import flag, options_of, require
from ternhost.planning import (
    existing_plan,
    pictures,
    side_by_side,
    statistic_options,
    statistic_plan,
)
from ternhost.planning import years as lasting
from ternhost.planning.existing import Existing
from ternhost.planning.one_report import (
    LADDER,
    LADDER_OF_MANY,
    RUNS,
    Planned,
    ladder_of,
    plan,
    text_lines,
)
from ternhost.planning.years import RoundsForYears
from ternhost.privacy.units import DEVICE, parse_unit
from ternhost.terminal import Progress

# Options that only some kinds of plans have.
_OF_A_FLEET = ("unit", "public")  # each of them asks for a plan of a fleet that exists
_RECORDS = ("records",)  # of a fleet that exists, or with --epsilon of new devices
_OF_A_BUDGET = ("run_epsilon", "delta")  # also with --years
_OF_ONE_REPORT = ("epsilon", "goal")
_USUAL_EPSILON = "2"
# With --statistic: its own options, those that a statistic has no use for, and those of each unit.
_OF_A_STATISTIC = ("quantiles", "attributes", "categories")
_OF_A_MODEL = ("by", "time", "held_out", "model", "workers", "public", "years", "every")
_OF_RECORDS = (*_RECORDS, *_OF_A_BUDGET)

_EXAMPLE = """tern plan --data flights-planned --epsilon 1 --plot plan.png
    tern plan --data devices:20 --epsilon 2 --goal 0.8
    tern plan --devices 20,100,300 --records 500 --epsilon 1 --data flights-planned
    tern plan --devices 20 --records 500 --run-epsilon 4 --data sample.csv
    tern plan --data my.csv --by home --run-epsilon 4
    tern plan --years 2 --every 1h --run-epsilon 10
    tern plan --statistic quantile --devices 500 --epsilon 1 --liars 0.01"""


def add_parser(subparsers: Any) -> None:
    """Add `tern plan` to the commands."""
    parser = add_command(subparsers, PLAN.name, PLAN.summary, _EXAMPLE, run)
    # What --data names resembles the records of the devices. `planning.records.load` loads it.
    data = f"{Planned.data}; with --statistic none: the plan assumes distributions"
    add_option(parser, "--data D", shown=data)
    add_option(parser, "--by COLUMN", shown="the schema's, or none")
    add_option(parser, "--time COLUMN", shown="the schema's, or none")
    add_option(parser, "--held-out SHARE", shown="the schema's, or 0.1", type=float)
    ladders = (
        f"{LADDER[0]} to {LADDER[-1]}, until one suffices; "
        f"with --years {lasting.LADDER[0]} to {lasting.LADDER[-1]}; "
        f"with --epsilon and --records {LADDER_OF_MANY[0]} to {LADDER_OF_MANY[-1]}; with --statistic "
        f"{statistic_options.LADDER[0]} to {statistic_options.LADDER[-1]}"
    )
    add_option(parser, "--devices N[,N...]", shown=ladders)
    add_option(parser, "--epsilon E", shown=_USUAL_EPSILON)
    models = tuple(MODELS)
    add_option(parser, "--model", shown="by the labels", choices=models)
    text = "wanted accuracy, AUC or mean squared error; or half-length of a statistic's interval"
    add_option(parser, "--goal X", text, type=float)
    add_option(
        parser, "--runs R", shown=f"{RUNS}; of a statistic {statistic_options.RUNS}", type=int
    )
    add_option(parser, "--workers N", shown="one per core", type=int)
    add_option(parser, "--plot FILE.png")
    add_option(parser, "--liars SHARE", "share of the devices that report whatever they like")

    text = (
        "Without a model: the 95 % interval to expect, in shares of the range of a number. --epsilon is\n"
        "that of a report; with --run-epsilon, --records or --unit, devices sum over their records."
    )
    statistic = parser.add_argument_group("a statistic", text)
    declared = {option.name: option for option in options_of(statistic_options.Options)}
    for name in ("statistic", *_OF_A_STATISTIC):
        declared[name].add_to(statistic)

    text = (
        "Protects single records, and beside it whole devices. Name one number of --devices, or the\n"
        "column --by. With --epsilon, --records is the number of records of each new device."
    )
    fleet = parser.add_argument_group("a fleet that exists", text)
    for option in options_of(Options):
        if option.name in (*_RECORDS, *_OF_A_FLEET, *_OF_A_BUDGET):
            option.add_to(fleet)

    text = "Each device reports in every round; all rounds share --run-epsilon."
    years = parser.add_argument_group("rounds for years", text)
    add_option(years, "--years Y", "how long devices report", type=float)
    add_option(years, "--every T")


def run(args: argparse.Namespace) -> int:
    """Plan for devices that report once, for a fleet that exists, or for rounds over years.

    Prints the estimates, draws them for --plot, and returns the exit code.
    """
    if args.statistic is not None:
        return _run_statistic(args)
    _check(args)
    planned = _planned(args)
    source = planned.options if isinstance(planned, Existing) else planned
    found = findings.of_run(source.data, source.selection)
    findings.warn_of(found, source.data, warn)
    _check_place(args.plot)
    with Progress("plan", quiet=args.quiet) as progress:
        if isinstance(planned, Existing):
            result = existing_plan.plan(planned, progress.step, epsilons=bool(args.plot))
        else:
            result = plan(planned, progress.step)

    result["data_findings"] = [finding.summary() for finding in found]
    if isinstance(planned, Existing):
        lines = side_by_side.text_lines(result)
    else:
        lines = text_lines(result)
    _draw(result, args.plot)
    print_result(result, "\n".join(lines), args.json)
    return OK


def _run_statistic(args: argparse.Namespace) -> int:
    """Plan for a statistic. Prints the intervals to expect, draws them, and returns the exit code."""
    options = _statistic_options(args)
    devices = None
    if args.devices is not None:
        devices = _device_counts(args.devices, default=())
    _check_place(args.plot)
    with Progress("plan", quiet=args.quiet) as progress:
        result = statistic_plan.plan(options, devices, progress.step)
    _draw(result, args.plot)
    print_result(result, "\n".join(statistic_plan.text_lines(result)), args.json)
    return OK


def _statistic_options(args: argparse.Namespace) -> statistic_options.Options:
    """Return the options of a plan for a statistic.

    Raises UsageError for those that would change nothing.
    """
    _refuse(args, _OF_A_MODEL, "a plan for a statistic has no model, and deals out the values")
    statistic_options.refuse_of_others(args.statistic, _given(args, _OF_A_STATISTIC))
    unit = args.unit
    if unit is None:
        unit = "device"
        if _given(args, _OF_RECORDS):
            unit = "record"
    if parse_unit(unit) == DEVICE:
        _refuse(args, _OF_RECORDS, "the unit device spends --epsilon, for a single value")
    else:
        _refuse(args, ("epsilon",), "devices that sum over records spend --run-epsilon")
    common = ("statistic", "data", "goal", "liars", "runs", "epsilon")
    given = _given(args, (*common, *_OF_RECORDS, *_OF_A_STATISTIC))
    given["unit"] = unit
    return statistic_options.Options(**given)


def _check_place(plot: str | None) -> None:
    """Raise UsageError before a long simulation if its picture cannot be written."""
    if plot:
        from ternhost.plots import canvas  # loads matplotlib

        canvas.check_place(Path(plot))


def _draw(result: dict[str, Any], plot: str | None) -> None:
    """Draw the result of a plan into a file, if the user names one."""
    if plot:
        from ternhost.plots import canvas

        canvas.save(pictures.figure(result), Path(plot))


def _check(args: argparse.Namespace) -> None:
    """Raise UsageError for options that do not go together."""
    _refuse(args, _OF_A_STATISTIC, "it is for a plan with --statistic")
    if args.workers is not None:
        require(args.workers >= 1, "workers", "1 or more", args.workers)
    has_years = args.years is not None
    has_interval = args.every is not None
    if has_years != has_interval:
        raise UsageError("--years and --every go together", "such as --years 2 --every 1h")
    if has_years:
        _refuse(args, (*_RECORDS, *_OF_A_FLEET), "--years plans for devices with a record each")
        _refuse(args, ("liars",), "the rounds of years are simulated by other reports")
        _refuse(
            args, ("epsilon",), "with --years the epsilon of a report follows from --run-epsilon"
        )
    elif _is_of_a_fleet(args):
        reason = "a fleet that exists spends --run-epsilon over the life of a device"
        _refuse(args, _OF_ONE_REPORT, reason)
        _refuse(args, ("liars",), "no bound is known for sums over records in many rounds")


def _is_of_a_fleet(args: argparse.Namespace) -> bool:
    """Return whether the options ask for a plan of a fleet that exists."""
    if args.years is not None:
        return False
    names = [*_OF_A_FLEET, *_OF_A_BUDGET]
    if args.epsilon is None:  # with an epsilon of a report, new devices have so many records
        names += [*_RECORDS, "by"]
    return any(getattr(args, name) is not None for name in names)


def _refuse(args: argparse.Namespace, names: Sequence[str], reason: str) -> None:
    """Raise UsageError if one of these options is given, which would change nothing."""
    for name in names:
        if getattr(args, name) is not None:
            raise UsageError(f"{flag(name)} would change nothing: {reason}", "leave it out")


def _planned(args: argparse.Namespace) -> Planned | Existing:
    """Return what the options ask to plan: a fleet that exists, or a new one."""
    population: dict[str, Any] = {"data": args.data or Planned.data}
    runs = RUNS if args.runs is None else args.runs
    selection = _given(args, ("by", "time", "held_out"))
    if _is_of_a_fleet(args):
        fleet_options = _given(args, (*_RECORDS, *_OF_A_FLEET, *_OF_A_BUDGET))
        options = Options(**population, **selection, **fleet_options, model=args.model or "")
        return Existing(
            devices=_only_number_of_devices(args.devices),
            options=options,
            runs=runs,
            workers=args.workers,
        )

    if args.years is not None:
        rounds = RoundsForYears(args.years, args.every, **_given(args, _OF_A_BUDGET))
        epsilon = rounds.epsilon
        device_counts = _device_counts(args.devices, default=lasting.LADDER)
    else:
        rounds = None  # each device reports once
        epsilon = args.epsilon or _USUAL_EPSILON
        device_counts = _device_counts(args.devices, default=ladder_of(args.records))
    return Planned(
        epsilon,
        records=args.records,
        model=args.model,
        goal=args.goal,
        liars=args.liars,
        runs=runs,
        devices=device_counts,
        ends_early=args.devices is None,
        workers=args.workers,
        rounds=rounds,
        selection=DataOptions(**population, **selection).selection,
        **population,
    )


def _given(args: argparse.Namespace, names: Sequence[str]) -> dict[str, Any]:
    """Return the values of those of the named options that the user has given."""
    values = {}
    for name in names:
        value = getattr(args, name)
        if value is not None:
            values[name] = value
    return values


def _device_counts(text: str | None, default: tuple[int, ...]) -> tuple[int, ...]:
    """Return the numbers of devices to try.

    text: the value of --devices, such as "1000,10000"; None stands for `default`. Raises UsageError
    if they are not whole numbers.
    """
    if text is None:
        return default
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        hint = "such as --devices 1000,10000,100000"
        raise UsageError(f"--devices must be whole numbers, not {text!r}", hint=hint) from None


def _only_number_of_devices(text: str | None) -> int | None:
    """Return the number of devices of a fleet that exists; None if the option is left out.

    text: the value of --devices. Raises UsageError for several numbers.
    """
    if text is None:
        return None
    numbers = _device_counts(text, default=())
    if len(numbers) != 1:
        text = "a plan for a fleet that exists needs one number of --devices"
        hint = (
            "such as --devices 20; to plan one answer of each of several numbers of new devices, "
            "name --epsilon instead of --run-epsilon"
        )
        raise UsageError(text, hint)
    return numbers[0]
