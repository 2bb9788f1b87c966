"""`tern papers`: repeat experiments of the papers."""

import argparse
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ternhost.command import add_command, add_option, print_result
from ternhost.errors import OK, InterruptedByUser, StorageError, UsageError
from ternhost.files import storage_errors
from ternhost.run.directory import new_directory
from ternhost.terminal import Progress
from ternpapers import experiments
from ternpapers.experiments import Contender, Options
from ternpapers.listed_commands import PAPERS


def add_parser(subparsers: Any) -> None:
    """Add `tern papers` with its options."""
    example = """tern papers zhao --figure 6 --output zhao-6
    tern papers variance --output variance
    tern papers erm --data digits --quick --output erm-digits"""
    parser = add_command(subparsers, PAPERS.name, PAPERS.summary, example, run)
    summaries = experiments.summaries()
    text = "an experiment, or a paper, whose figures it lists"
    parser.add_argument("name", metavar="NAME", choices=summaries, help=text)
    width = max(map(len, summaries)) + 2
    descriptions = [f"  {name:{width}}{summary}" for name, summary in summaries.items()]
    parser.description = "\n".join([str(parser.description), "", "names:", *descriptions])
    papers = ", ".join(experiments.PAPERS)
    add_option(parser, "--figure N", f"figure of {papers}: 4, or table-1")
    chosen = "chosen by the experiment"
    add_option(parser, "--data D", shown=chosen)
    add_option(parser, "--runs R", shown=chosen, type=int)
    add_option(parser, "--quick", "run a small version: a figure takes less than a minute")
    add_option(parser, "--in-full", "as many runs as the paper says, and more clients")
    add_option(parser, "--seed S", default=1)
    add_option(parser, "--output DIR", shown="runs/<time>")
    add_option(parser, "--workers N", shown="one per core", type=int)
    add_option(parser, "--mechanism NAME")
    compared = ", ".join(experiments.COMPARING)
    parser.epilog = "\n".join(
        [
            f"{compared} also measure the --mechanism.",
            "The same command with the same --output resumes.",
            str(parser.epilog),
        ]
    )


def run(args: argparse.Namespace) -> int:
    """`tern papers`: compute an experiment or a figure, and write its results.

    Without --figure, list the figures of a paper. Raises UsageError, StorageError and
    InterruptedByUser.
    """
    if args.name in experiments.PAPERS and args.figure is None:
        return _list_figures(args)
    with Progress(args.name, quiet=args.quiet) as bar:
        options = Options(
            data=args.data,
            runs=args.runs,
            quick=args.quick,
            seed=args.seed,
            contender=None if args.mechanism is None else Contender(args.mechanism),
            progress=bar.step,
            workers=args.workers,
            in_full=args.in_full,
        )
        with _output_directory(args.output) as directory:  # made first: this may fail
            try:
                outcome = experiments.run(args.name, options, directory, args.figure)
            except KeyboardInterrupt:
                raise _interrupted(directory) from None
            paths = [str(path) for path in experiments.write(outcome, directory)]
    result = {"experiment": args.name, "files": paths, "lines": list(outcome.lines)}
    text = "\n".join([*outcome.lines, "", *paths])
    print_result(result, text, args.json)
    return OK


def _interrupted(directory: Path) -> InterruptedByUser:
    """Return the error after Ctrl-C, which says how to resume if `directory` has finished parts."""
    if not any(directory.iterdir()):
        return InterruptedByUser("interrupted at once", None)
    text = f"interrupted: finished parts are kept in {directory}"
    return InterruptedByUser(text, f"run the same command with --output {directory} to resume")


def _list_figures(args: argparse.Namespace) -> int:
    """Print the figures of a paper. Raises UsageError for options that are about one figure."""
    has_options = args.output or args.data or args.mechanism or args.runs is not None
    if has_options or args.quick or args.in_full:
        hint = f"name it with --figure: tern papers {args.name}"
        raise UsageError(f"which figure of {args.name}?", hint=hint)

    figures = experiments.figures(args.name)
    titles = {number: figure.title for number, figure in figures.items()}
    width = max(map(len, titles))
    lines = [f"{number:<{width}}  {title}" for number, title in titles.items()]
    lines += ["", f"compute one with: tern papers {args.name} --figure N"]
    print_result({"experiment": args.name, "figures": titles}, "\n".join(lines), args.json)
    return OK


@contextlib.contextmanager
def _output_directory(output: str | None) -> Iterator[Path]:
    """Make the directory of the results if necessary, and remove it again if it stays empty.

    output: the value of --output; None for a new directory that is named after the time. Raises
    StorageError.
    """
    is_new = not output or not Path(output).exists()
    try:
        if output:
            directory = Path(output)
        else:
            directory = new_directory()
        with storage_errors(what=f"cannot make {output}"):
            directory.mkdir(parents=True, exist_ok=True)
    except StorageError as error:
        raise StorageError(error.message, hint="name another directory with --output") from error
    try:
        yield directory
    finally:
        if is_new:
            with contextlib.suppress(OSError):  # it is not empty
                directory.rmdir()
