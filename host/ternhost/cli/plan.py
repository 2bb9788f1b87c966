"""`tern plan`: estimates by simulation how many devices a model needs."""

import argparse
from pathlib import Path
from typing import Any

from ternhost import datasets
from ternhost.command import add_command, add_option, print_result
from ternhost.errors import OK, UsageError
from ternhost.experiments.planning import LADDER, RUNS, Planned, plan, words
from ternhost.learn.judging import TRIVIAL, WORDS
from ternhost.learn.parameters import MODELS
from ternhost.options import require
from ternhost.terminal import Progress


def add_parser(subparsers: Any) -> None:
    summary = "estimate by simulation how many devices a good model needs"
    example = """tern plan --dataset flights-planned --epsilon 1 --plot plan.png
    tern plan --dimension 20 --epsilon 2 --goal 0.8"""
    parser = add_command(subparsers, "plan", summary, example, run)
    records = parser.add_mutually_exclusive_group()
    like = f"data set that resembles the devices' records: {', '.join(datasets.DATASETS)}"
    add_option(records, "--dataset D", f"{like} (default: synthetic-logistic)")
    add_option(records, "--dimension N", "synthetic records of N features, the constant included", type=int)
    add_option(parser, "--epsilon E", "epsilon of a device, which reports once", "2")
    add_option(parser, "--model", "model to train (default: by the labels)", choices=tuple(MODELS))
    add_option(parser, "--goal X", "wanted accuracy, AUC or mean squared error", type=float)
    numbers = f"numbers of devices to try, as N,N,... (default: {LADDER[0]} to {LADDER[-1]})"
    add_option(parser, "--reports LIST", numbers)
    add_option(parser, "--runs R", "runs for each number of devices", RUNS)
    add_option(parser, "--seed S", "seed of all random numbers", 1)
    add_option(parser, "--workers N", "number of processes (default: one per core)", type=int)
    add_option(parser, "--plot FILE.png", "also draw the curve into this file")


def run(args: argparse.Namespace) -> int:
    if args.dimension is not None:
        require(2 <= args.dimension <= 128, "dimension", "2 to 128", args.dimension)
    require(args.workers is None or args.workers >= 1, "workers", "1 or more", args.workers)
    named = {"dataset": args.dataset} if args.dataset else {}
    planned = Planned(
        args.epsilon, dimension=args.dimension, model=args.model, goal=args.goal, reports=_ladder(args.reports),
        runs=args.runs, seed=args.seed, workers=args.workers, **named,
    )  # fmt: skip
    if args.plot:
        from ternhost.run.report import plots  # loads matplotlib

        plots.check_place(Path(args.plot))
    with Progress("plan") as progress:
        result = plan(planned, progress.step)
    if args.plot:
        _plot(result, Path(args.plot))
    print_result(result, "\n".join(words(result)), args.json)
    return OK


def _ladder(text: str | None) -> tuple[int, ...]:
    if text is None:
        return LADDER
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        hint = "such as --reports 1000,10000,100000"
        raise UsageError(f"--reports must be whole numbers, not {text!r}", hint=hint) from None


def _plot(result: dict[str, Any], path: Path) -> None:
    from ternhost.experiments.pictures import Curve, Panel, draw
    from ternhost.run.report import plots  # loads matplotlib

    name, curve = result["measure"], result["curve"]
    reports, means = [row["reports"] for row in curve], [row["mean"] for row in curve]
    bars = [row["mean"] - row["low"] for row in curve], [row["high"] - row["mean"] for row in curve]
    private = Curve("private model, 95 % interval", reports, means, bars)
    lines = {"without privacy": result["optimum"], TRIVIAL[name]: result["baseline"]}
    if result["goal"]:
        lines["goal"] = result["goal"]["figure"]
    data = result["dataset"] or "synthetic records"
    title = f"{data}, d = {result['d']}, {result['model']}, epsilon {result['epsilon']:g}"
    panel = Panel(title, "devices, each with one report", WORDS[name], [private], log_x=True, lines=lines)
    plots.save(draw([panel]), path)
