"""`tern experiment`: reproduce an experiment of the papers."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ternhost import experiments
from ternhost.command import add_command, add_option, print_result
from ternhost.errors import OK, InterruptedByUser, StorageError, UsageError
from ternhost.experiments import Contender, Options
from ternhost.files import storage_errors
from ternhost.privacy import mechanisms
from ternhost.run.directory import new_directory
from ternhost.terminal import Progress


def add_parser(subparsers: Any) -> None:
    parser = add_command(
        subparsers,
        "experiment",
        "reproduce an experiment of the papers, as CSV, JSON and PNG",
        "tern experiment variance --output variance\ntern experiment erm --dataset digits --quick --output erm-digits",
        run,
    )
    names = "; ".join(f"{name}: {summary}" for name, summary in experiments.EXPERIMENTS.items())
    parser.add_argument("name", metavar="NAME", choices=experiments.EXPERIMENTS, help=names)
    add_option(parser, "--dataset D", "use this data set instead of the experiment's own; see 'tern train'")
    add_option(parser, "--runs R", "repeat it R times (erm: use R folds)", type=int)
    add_option(parser, "--quick", "run a small version for a first look")
    add_option(parser, "--seed S", "seed of everything random", 1)
    add_option(parser, "--output DIR", "write the files to DIR, or continue there (default: runs/<time>)")
    add_option(parser, "--workers N", "number of processes (default: one for each core)", type=int)
    compared = f"also compare this mechanism, with its options below (for {', '.join(experiments.COMPARING)})"
    add_option(parser, "--mechanism NAME", compared)
    add_option(parser, "--levels N", "number of outputs of this mechanism, if it can be chosen", type=int)
    mechanisms.add_options(parser)


def run(args: argparse.Namespace) -> int:
    with Progress(args.name) as progress:
        contender = _contender(args)
        options = Options(
            args.dataset, args.runs, args.quick, args.seed, contender, progress.step, args.workers
        )
        with _place(args.output) as directory:  # first, since it may fail
            try:
                outcome = experiments.run(args.name, options, directory)
            except KeyboardInterrupt:
                raise InterruptedByUser(
                    f"interrupted; the finished cells are in {directory}",
                    hint=f"the same command with --output {directory} continues",
                ) from None
            paths = [str(path) for path in experiments.write(outcome, directory)]
    result = {"experiment": args.name, "files": paths, "lines": list(outcome.lines)}
    print_result(result, "\n".join([*outcome.lines, "", *paths]), args.json)
    return OK


def _contender(args: argparse.Namespace) -> Contender | None:
    """The mechanism of --mechanism. Raises UsageError."""
    if args.mechanism is None:
        extra = mechanisms.options_named(args) + (["--levels"] if args.levels is not None else [])
        if extra:
            raise UsageError(f"{extra[0]} is of a mechanism", hint="name the mechanism with --mechanism")
        return None
    named = mechanisms.options_given(args, args.mechanism)
    return Contender(args.mechanism, args.levels, tuple(sorted(named.items())))


@contextlib.contextmanager
def _place(named: str | None) -> Iterator[Path]:
    """The directory of the results, made if necessary and removed again if it stays empty. Raises StorageError."""
    hint = "name another directory with --output"
    made = not named or not Path(named).exists()
    try:
        directory = Path(named) if named else new_directory()
        with storage_errors(what=f"{named} cannot be made"):
            directory.mkdir(parents=True, exist_ok=True)
    except StorageError as error:
        raise StorageError(error.message, hint=hint) from error
    try:
        yield directory
    finally:
        if made:
            with contextlib.suppress(OSError):  # it is not empty
                directory.rmdir()
