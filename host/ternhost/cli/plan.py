"""`tern plan`: estimates by simulation how many devices a model needs, or what the ones that exist
can learn.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ternhost import datasets
from ternhost.command import add_command, add_option, print_result
from ternhost.errors import OK, UsageError
from ternhost.learn.fedsum import Options
from ternhost.learn.judging import TRIVIAL, WORDS
from ternhost.learn.parameters import MODELS
from ternhost.options import exclude, flag, options_of, require
from ternhost.planning import existing
from ternhost.planning import years as lasting
from ternhost.planning.existing import Existing
from ternhost.planning.one_report import LADDER, RUNS, Planned, plan, words
from ternhost.planning.years import Lasting
from ternhost.plots.curves import Curve, Panel, draw
from ternhost.privacy.units import protected
from ternhost.terminal import Progress
from ternhost.text import counted

# Options that go with --devices only, those that go without it only, and of a budget: with it or
# with --years.
_WITH = ("records", "unit", "life", "delta", "public", "data")
_WITHOUT = ("epsilon", "goal", "reports")
_BUDGET = ("life", "delta")


def add_parser(subparsers: Any) -> None:
    summary = "estimate by simulation how many devices a good model needs, or what yours can learn"
    example = """tern plan --dataset flights-planned --epsilon 1 --plot plan.png
    tern plan --dimension 20 --epsilon 2 --goal 0.8
    tern plan --devices 20 --records 500 --life 4 --data sample.csv
    tern plan --years 2 --every 1h --life 10 --delta 1e-6"""
    parser = add_command(subparsers, "plan", summary, example, run)
    records = parser.add_mutually_exclusive_group()
    like = f"data set that resembles the devices' records: {', '.join(datasets.DATASETS)}"
    add_option(records, "--dataset D", f"{like} (default: synthetic-logistic)")
    add_option(
        records, "--dimension N", "synthetic records of N features, the constant included", type=int
    )
    text = "with --devices: CSV file of public records that resemble the devices', as 'tern provision --records' takes"
    add_option(records, "--data FILE", text)
    add_option(parser, "--epsilon E", "epsilon of a device, which reports once (default: 2)")
    add_option(parser, "--model", "model to train (default: by the labels)", choices=tuple(MODELS))
    add_option(parser, "--goal X", "wanted accuracy, AUC or mean squared error", type=float)
    numbers = f"numbers of devices to try, as N,N,... (default: {LADDER[0]} to {LADDER[-1]}; with --years "
    numbers += f"{lasting.LADDER[0]} to {lasting.LADDER[-1]})"
    add_option(parser, "--reports LIST", numbers)
    text = "each device reports in every round, about all its records"
    fleet = parser.add_argument_group("a fleet that exists", text)
    add_option(fleet, "--devices N", "number of devices, from 1 on", type=int)
    for each in options_of(Options):
        if each.name in _WITH:
            each.add_to(fleet)
    text = "each device reports in every round; --life and --delta, of the whole device, are shared by all rounds"
    years = parser.add_argument_group("rounds for years", text)
    add_option(years, "--years Y", "how long devices report", type=float)
    add_option(years, "--every T", "time from round to round: 15m, 1h, 1d, 1w, or seconds")
    add_option(parser, "--runs R", "runs for each number of devices", RUNS)
    add_option(parser, "--seed S", "seed of all random numbers", 1)
    add_option(parser, "--workers N", "number of processes (default: one per core)", type=int)
    add_option(parser, "--plot FILE.png", "also draw the curve into this file")


def run(args: argparse.Namespace) -> int:
    if args.dimension is not None:
        require(2 <= args.dimension <= 128, "dimension", "2 to 128", args.dimension)
    require(args.workers is None or args.workers >= 1, "workers", "1 or more", args.workers)
    fleet, years = args.devices is not None, args.years is not None
    if years != (args.every is not None):
        raise UsageError("--years and --every go together", "such as --years 2 --every 1h")
    exclude(
        [name for name in ("devices", "years") if getattr(args, name) is not None],
        "devices",
        "years",
    )
    wrong = _WITHOUT if fleet else [name for name in _WITH if not (years and name in _BUDGET)]
    wrong = (*wrong, "epsilon") if years else wrong
    for name in (each for each in wrong if getattr(args, each) is not None):
        once = fleet or name == "epsilon"
        text = "is about devices that report once" if once else "is about a fleet that exists"
        hint = "the budget is --life" if once else "name the number of its --devices"
        hint += ", or --years and --every" * (name in _BUDGET)
        raise UsageError(f"{flag(name)} {text}", hint)
    named = {
        "dataset": args.dataset or Planned.dataset,
        "dimension": args.dimension,
        "seed": args.seed,
    }
    asked = {name: value for name in _WITH if (value := getattr(args, name)) is not None}
    planned: Planned | Existing
    if fleet:
        data = asked.pop("data", "")
        options = Options(**named, **asked, model=args.model or "")
        planned = Existing(args.devices, options, data, args.runs, args.workers)
    else:
        budget = {name: asked[name] for name in _BUDGET if name in asked}
        rounds = Lasting(args.years, args.every, **budget) if years else None
        planned = Planned(
            rounds.epsilon if rounds else args.epsilon or "2",
            model=args.model,
            goal=args.goal,
            runs=args.runs,
            reports=_ladder(args.reports, lasting.LADDER if rounds else LADDER),
            workers=args.workers,
            rounds=rounds,
            **named,
        )
    if args.plot:
        from ternhost.plots import canvas  # loads matplotlib

        canvas.check_place(Path(args.plot))
    with Progress("plan") as progress:
        if isinstance(planned, Existing):
            result, tell, panel = (
                existing.plan(planned, progress.step),
                existing.words,
                _panel_of_rounds,
            )
        else:
            result, tell, panel = plan(planned, progress.step), words, _panel
    if args.plot:
        canvas.save(draw([panel(result)]), Path(args.plot))
    print_result(result, "\n".join(tell(result)), args.json)
    return OK


def _ladder(text: str | None, default: tuple[int, ...]) -> tuple[int, ...]:
    if text is None:
        return default
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        hint = "such as --reports 1000,10000,100000"
        raise UsageError(f"--reports must be whole numbers, not {text!r}", hint=hint) from None


def _panel(result: dict[str, Any]) -> Panel:
    name = result["measure"]
    private = _curve("private model, 95 % interval", result["curve"], "reports")
    lines = {"without privacy": result["optimum"], TRIVIAL[name]: result["baseline"]}
    if result["goal"]:
        lines["goal"] = result["goal"]["figure"]
    data = result["dataset"] or "synthetic records"
    title = f"{data}, d = {result['d']}, {result['model']}, epsilon {result['epsilon']:.8g}"
    each = "one report"
    if rounds := result["rounds"]:
        each, title = (
            counted(rounds["rounds"], "report"),
            f"{title} a round, {rounds['life']:g} for life",
        )
    return Panel(
        title, f"devices, each with {each}", WORDS[name], [private], log_x=True, lines=lines
    )


def _panel_of_rounds(result: dict[str, Any]) -> Panel:
    name, unit, last = result["measure"], protected(result["unit"]), result["curve"][-1]["rounds"]
    curves = [_curve(f"unit: {unit}, 95 % interval", result["curve"], "rounds")]
    if result["public_curve"]:
        curves.append(_curve("the same, with public rows", result["public_curve"], "rounds"))
    for label, key, at in (
        ("unit: device", "device_unit", 1),
        ("without privacy", "without_privacy", last),
    ):
        curves.append(_curve(label, [{"rounds": at, **result[key]}], "rounds"))
    devices = f"{counted(result['devices'], 'device')} of {counted(result['records'], 'record')}"
    title = f"{result['dataset'] or 'synthetic'}, {devices}, epsilon {result['life']:g} for life"
    lines = {TRIVIAL[name]: result["baseline"]}
    return Panel(title, "rounds", WORDS[name], curves, log_x=True, lines=lines)


def _curve(label: str, rows: Sequence[dict[str, Any]], x: str) -> Curve:
    bars = [row["mean"] - row["low"] for row in rows], [row["high"] - row["mean"] for row in rows]
    return Curve(label, [row[x] for row in rows], [row["mean"] for row in rows], bars)
