"""`tern privacy`: writes the privacy statement of a run, a store, a board, or a run that has not
begun.
"""

import argparse
from pathlib import Path
from typing import Any

from ternhost.command import add_command, add_option, print_result
from ternhost.errors import OK, UsageError
from ternhost.learn.base import ALGORITHMS, algorithms_of
from ternhost.listed_commands import PRIVACY
from ternhost.statement import gather, sentences
from ternhost.statement.facts import Facts
from ternhost.statement.find import find
from ternhost.watch.stores import newest_run

_PLANNED = ("train", "collect", "infer", "serve")


def add_parser(subparsers: Any) -> None:
    """Add `tern privacy` to the commands."""
    example = """tern privacy mine\ntern privacy my-fleet/store.sqlite\ntern privacy a0
        tern privacy --plan train --fleet simulated:20 --unit record --run-epsilon 1"""
    parser = add_command(subparsers, PRIVACY.name, PRIVACY.summary, example, run)
    what = "name or directory of a run, a store, or a board such as a0 (default: the newest run)"
    parser.add_argument("what", nargs="?", metavar="RUN|STORE|BOARD", help=what)
    add_option(parser, "--output DIR", shown="the run's own directory; of others privacy-NAME")
    text = "the command of a run that has not begun: train, collect, infer or serve, with its options; comes last"
    parser.add_argument("--plan", nargs=argparse.REMAINDER, metavar="COMMAND ...", help=text)


def run(args: argparse.Namespace) -> int:
    """Write the privacy statement as a page, and print its first section."""
    facts, default_place = _facts(args)
    from ternhost.statement import page  # matplotlib takes a second

    place = Path(args.output) if args.output else default_place
    written_files = page.write(facts, place)
    first_section = sentences.sections(facts)[0]
    lines = []
    for part in first_section.parts:
        if isinstance(part, sentences.Sentence):  # not a table or a picture
            lines.append(part.text)
    lines.append(f"the statement is in {written_files['html']} and {written_files['md']}")
    result = {**page.as_json(facts), "files": written_files}
    print_result(result, "\n".join(lines), args.json)
    return OK


def _facts(args: argparse.Namespace) -> tuple[Facts, Path]:
    """Gather what the privacy statement says, and choose the default directory of its page.

    The argument may name a run, a store or a board, or --plan a run that has not begun; without
    both, the newest run is meant. Raises
    UsageError if there is no such thing, and other errors of tern if it cannot be read.
    """
    if args.plan is not None:
        if args.what is not None:
            raise UsageError(
                f"{args.what} and --plan exclude each other", hint="leave one of them out"
            )
        return _plan(args.plan), Path("privacy-plan")
    if args.what is None:
        newest = newest_run()
        return gather.of_run(newest), newest.directory

    return find(args.what)


def _plan(words: list[str]) -> Facts:
    """Gather what the privacy statement of a run that has not begun says.

    words: the command that would begin it, with its options, such as ["train", "--epsilon", "1"].
    """
    from ternhost.cli import running
    from ternhost.cli.tree import build_parser

    if not words or words[0] not in _PLANNED:
        text = f"--plan takes a command: {', '.join(_PLANNED)}"
        raise UsageError(text, hint="such as --plan train --epsilon 1")
    command = words[0]
    everywhere = argparse.Namespace(from_project={})
    args = build_parser(words).parse_args(words, everywhere)
    if command == "serve":
        options = running.parsed(args, ALGORITHMS, served=True)
    else:
        options = running.parsed(args, algorithms_of(command))
    store = None if args.store is None else Path(args.store)
    return gather.of_plan(options, store, words)
