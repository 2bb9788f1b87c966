"""`tern experiment`: do again what the papers report."""

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
        "do again what the papers report, as CSV, JSON and PNG",
        "tern experiment variance --output variance\ntern experiment erm --dataset digits --quick --output erm-digits",
        run,
    )
    parser.add_argument("name", metavar="NAME", choices=experiments.NAMES, help=", ".join(experiments.NAMES))
    add_option(parser, "--dataset D", "use this instead of the experiment's own choice; see 'tern train'")
    add_option(parser, "--runs R", "repeat it R times (folds, for erm)", type=int)
    add_option(parser, "--quick", "run a small version, to look at")
    add_option(parser, "--seed S", "seed of all that is random", 1)
    output = "write the files to DIR (default: runs/<time>); the same command with the same DIR goes on where it ended"
    add_option(parser, "--output DIR", output)
    add_option(parser, "--workers N", "how many processes to use (default: one a core)", type=int)
    compared = f"compare this mechanism, too, with the options below ({', '.join(experiments.COMPARING)})"
    add_option(parser, "--mechanism NAME", compared)
    add_option(parser, "--levels N", "how many outputs it has, where it has a choice", type=int)
    mechanisms.add_options(parser)


def run(args: argparse.Namespace) -> int:
    with Progress(args.name) as progress:
        contender = _contender(args)
        options = Options(
            args.dataset, args.runs, args.quick, args.seed, contender, progress.step, args.workers
        )
        with _place(args.output) as directory:  # made first: it may be that it cannot be
            try:
                outcome = experiments.run(args.name, options, directory)
            except KeyboardInterrupt:
                raise InterruptedByUser(
                    f"interrupted: what is finished is kept in {directory}",
                    hint=f"the same command with --output {directory} goes on",
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
            raise UsageError(f"{extra[0]} is of a mechanism", hint="say of which with --mechanism")
        return None
    named = mechanisms.options_given(args, args.mechanism)
    return Contender(args.mechanism, args.levels, tuple(sorted(named.items())))


@contextlib.contextmanager
def _place(named: str | None) -> Iterator[Path]:
    """The directory of the results; one that is made here and stays empty goes again. Raises StorageError."""
    hint = "name another place with --output"
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
