"""`tern runs`: lists runs, draws their reports again, and shows or saves their models."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ternhost.command import add_command, add_option, print_result
from ternhost.errors import OK, UsageError
from ternhost.learn.models.judging import SIGNS, WORDS
from ternhost.learn.models.learning import share_in_words
from ternhost.listed_commands import RUNS
from ternhost.privacy.guarantee import rounded
from ternhost.run import directory, guarantees
from ternhost.run import result as results
from ternhost.text import columns_of, visible

if TYPE_CHECKING:
    from ternhost.run.device_model import DeviceModel

_WIDE = 200  # columns of an output that is no terminal


def add_parser(subparsers: Any) -> None:
    """Add `tern runs` to the commands."""
    example = """tern runs\ntern runs my-fleet/store.sqlite --json\ntern runs --draw mine
    tern runs --model-of mine --output model.bin"""
    parser = add_command(subparsers, RUNS.name, RUNS.summary, example, run)
    text = "directory with runs, or a store (default: runs)"
    default = str(directory.RUNS)
    parser.add_argument("place", nargs="?", default=default, metavar="DIR|STORE", help=text)
    of_run = parser.add_mutually_exclusive_group()
    add_option(of_run, "--draw RUN", "draw the pictures and report.html of a finished run again")
    text = "show the model of a run as devices have it; while the run goes on, the last one sent to them"
    add_option(of_run, "--model-of RUN", text)
    add_option(parser, "--output FILE")
    add_option(parser, "--threshold P")
    parser.epilog = (
        "--model-of also shows what other thresholds would find. With --output it writes a board's "
        f"model.bin, and with --threshold a model that decides differently.\n{parser.epilog}"
    )


def run(args: argparse.Namespace) -> int:
    """List runs, or draw the report of one run again, or show its model; return the exit code."""
    if args.output is not None and args.model_of is None:
        raise UsageError("--output needs a model", hint="name its run: --model-of RUN")
    if args.threshold is not None and args.model_of is None:
        raise UsageError("--threshold needs a model", hint="name its run: --model-of RUN")
    if args.draw is not None:
        result = results.load(args.draw, directory.existing_place(args.place))
        drawn = results.draw(result)
        print_result(drawn, f"report: {drawn['report']}", args.json)
        return OK
    if args.model_of is not None:
        return _show_model(args)

    runs = directory.list_runs(directory.existing_place(args.place))
    columns = columns_of(sys.stdout) if sys.stdout.isatty() else _WIDE
    lines = _lines(runs, columns)
    if not lines:
        lines = [f"no runs in {args.place}"]
    print_result({"runs": runs}, "\n".join(lines), args.json)
    return OK


def _show_model(args: argparse.Namespace) -> int:
    """Print the weights of the model of a run, or write it to --output as a board's model.bin."""
    from ternhost.run.device_model import DeviceModel

    model = DeviceModel.of_run(args.model_of, args.place)
    if args.threshold is not None:
        model = model.with_threshold(args.threshold)
    summary = model.summary()
    lines = [str(model)]
    if args.output is None:
        lines += _weights(model)
        summary["choices"] = _choices(args)
        lines += _choice_lines(model, summary["choices"])
    else:
        model.save(args.output)
        summary["saved"] = args.output
        lines.append(
            f"written to {args.output}: put it on a board as /model.bin, and restart the board"
        )
    text = "\n".join(visible(line) for line in lines)
    print_result(summary, text, args.json)
    return OK


def _weights(model: DeviceModel) -> list[str]:
    """Return a line for each weight of a model, under the name of its class if that has one."""
    features = model.features or [f"x{i}" for i in range(model.d)]
    labels = model.labels or [""] * model.classes
    lines = []
    if model.classes == 1 and model.class_names:
        negative, positive = model.class_names
        lines.append(f"label +1 is {positive}, and -1 is {negative}")
    for label, weights_of_class in zip(labels, model.weights, strict=True):
        if label:
            lines.append(f"of {label}:")
        for feature, weight in zip(features, weights_of_class, strict=True):
            lines.append(f"{weight:12.6f}  {feature}")
    return lines


def _choices(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Return other thresholds for the model of a run, as of `judging.choices`.

    There are none while the run goes on, since the model is not judged yet.
    """
    try:
        result = results.load(args.model_of, Path(args.place))
    except UsageError:  # the run has not finished
        return []
    return result.get("choices") or []


def _choice_lines(model: DeviceModel, choices: Sequence[dict[str, Any]]) -> list[str]:
    """Return a table of the thresholds that a model could have, with what each finds."""
    if not choices:
        return []
    _, positive = model.class_names or SIGNS
    lines = [
        "",
        f"what other thresholds do on the held-out records (above it, {positive} is predicted; "
        "recall and precision are of the rarer class):",
        f"{'threshold':>12}  {'recall':>9}  {'precision':>9}  {'predicted for':>13}",
    ]
    for choice in choices:
        shares = [share_in_words(choice[name]) for name in ("recall", "precision", "predicted")]
        lines.append(
            f"{choice['threshold']:>12.4g}  {shares[0]:>9}  {shares[1]:>9}  {shares[2]:>13}"
        )
    return lines


def _epsilon_for_life(of_class: guarantees.ClassGuarantees) -> float:
    """Return the epsilon that is guaranteed to a class of devices for all runs so far."""
    return of_class.life.bounds.epsilon


@dataclass(frozen=True)
class _Row:
    """What the table shows of a run, in words."""

    name: str
    began: str
    status: str
    learner: str
    epsilon: str  # of the devices that lose most, in all runs so far
    figure: str  # the first one that judges it

    @classmethod
    def of(cls, entry: dict[str, Any]) -> _Row:
        """Return the row of a run. entry: from `directory.list_runs`, of a run that can be read."""
        epsilon = ""
        classes = sorted(guarantees.classes_of(entry), key=_epsilon_for_life)
        if classes:
            epsilon = rounded(_epsilon_for_life(classes[-1]))
            if entry["endless"]:  # what it guarantees for life was computed for fewer rounds
                epsilon = f"{rounded(classes[-1].report.bounds.epsilon)} a report"
        figure = ""
        for name, value in entry["figures"].items():
            figure = f"{WORDS.get(name, name)} {value:.4f}"
            break
        return cls(
            name=visible(entry["run"]),
            began=time.strftime("%Y-%m-%d", time.localtime(entry["began"])),
            status=entry["status"],
            learner=visible(entry["algorithm"]),
            epsilon=epsilon,
            figure=figure,
        )

    @property
    def cells(self) -> tuple[str, ...]:
        """The cells of the table, from the left to the right."""
        return (self.name, self.began, self.status, self.learner, self.epsilon, self.figure)


_HEADINGS = ("run", "began", "status", "learner", "epsilon", "result")
_GAP = "  "  # between two columns


def _lines(runs: Sequence[dict[str, Any]], columns: int) -> list[str]:
    """Return the list of runs: as a table if it fits so many columns, else with two lines a run.

    runs: from `directory.list_runs`. They lack "algorithm" if they cannot be read.
    """
    rows = [_Row.of(entry) for entry in runs if "algorithm" in entry]
    lines = []
    if rows:
        table = [_HEADINGS, *(row.cells for row in rows)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        if sum(widths) + len(_GAP) * (len(widths) - 1) <= columns:
            for cells in table:
                padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]
                lines.append(_GAP.join(padded).rstrip())
        else:
            for row in rows:
                lines.append(f"{row.name}: {row.learner}, {row.status}")
                epsilon = f"epsilon {row.epsilon}" if row.epsilon else ""
                words = ", ".join(filter(None, (row.began, epsilon, row.figure)))
                lines.append(f"{_GAP}{words}")
        lines.append("epsilon: what a device may have lost in all its runs so far, at most")

    # What needs a sentence.
    for entry in runs:
        name = visible(entry["run"])
        if "algorithm" not in entry:
            lines.append(f"{name}: {visible(entry['status'])}")
        elif entry["resume"]:
            lines += [f"{name} can go on with:", f"{_GAP}{visible(entry['resume'])}"]
    return lines
