"""`tern runs`: lists runs, draws their reports again, and shows or saves their models."""

import argparse
import time
from typing import Any

from ternhost.command import add_command, add_option, print_result
from ternhost.errors import OK, UsageError
from ternhost.learn.judging import WORDS
from ternhost.run import directory, guarantees
from ternhost.run import result as results
from ternhost.text import counted, visible


def add_parser(subparsers: Any) -> None:
    summary = (
        "list the runs in a directory or a store, oldest first; draw a report again; show a model"
    )
    example = """tern runs\ntern runs my-fleet/store.sqlite --json\ntern runs --draw mine
    tern runs --model mine --save model.bin"""
    parser = add_command(subparsers, "runs", summary, example, run)
    place = "directory with runs, or a store (default: runs)"
    parser.add_argument(
        "place", nargs="?", default=str(directory.RUNS), metavar="DIR|STORE", help=place
    )
    of_run = parser.add_mutually_exclusive_group()
    add_option(of_run, "--draw RUN", "draw the pictures and report.html of a finished run again")
    model = "show the model of a run as devices have it; while the run goes on, the last one sent to them"
    add_option(of_run, "--model RUN", model)
    add_option(
        parser, "--save FILE", "with --model: write the model to FILE, as a board's model.bin"
    )


def run(args: argparse.Namespace) -> int:
    if args.save is not None and args.model is None:
        raise UsageError("--save needs a model", hint="name its run: --model RUN")
    if args.draw is not None:
        drawn = results.draw(results.load(args.draw, directory.existing(args.place)))
        print_result(drawn, f"report: {drawn['report']}", args.json)
        return OK
    if args.model is not None:
        return _model(args)
    runs = directory.listed(directory.existing(args.place))
    text = "\n".join(visible(_line(entry)) for entry in runs) or f"no runs in {args.place}"
    print_result({"runs": runs}, text, args.json)
    return OK


def _model(args: argparse.Namespace) -> int:
    from ternhost.run.device_model import DeviceModel

    model = DeviceModel.of_run(args.model, args.place)
    lines = [str(model)]
    for name, weights in zip(model.labels or [""] * model.classes, model.weights, strict=False):
        lines += [f"of {name}:"] * bool(name)
        features = model.features or [f"x{i}" for i in range(model.d)]
        lines += [
            f"{weight:12.6f}  {feature}" for feature, weight in zip(features, weights, strict=True)
        ]
    summary = model.summary()
    if args.save is not None:
        model.save(args.save)
        summary |= {"saved": args.save}
        lines[1:] = [
            f"written to {args.save}: put it on a board as /model.bin, and restart the board"
        ]
    print_result(summary, "\n".join(map(visible, lines)), args.json)
    return OK


def _line(entry: dict[str, Any]) -> str:
    if "algorithm" not in entry:
        return f"{entry['run']:20} {entry['status']}"
    began = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry["began"]))
    words = [counted(entry["rounds"], "round"), counted(entry["reports"], "report")]
    classes = sorted(guarantees.classes_of(entry), key=lambda each: each.life.bounds.epsilon)
    for worst in classes[-1:]:
        words += worst.words()
    words += [f"{WORDS.get(name, name)} {value:.4f}" for name, value in entry["figures"].items()]
    what = (
        f"{entry['algorithm']} on {entry['dataset'] or 'records of the devices'}, {entry['fleet']}"
    )
    line = f"{entry['run']:20} {began}  {entry['status']:9}  {what}: "
    return line + ", ".join(words) + (f"; go on with: {entry['resume']}" if entry["resume"] else "")
