"""`tern privacy`: writes the privacy statement of a run, a store, a board, or a run that has not
begun.
"""

import argparse
import re
from pathlib import Path
from typing import Any

from ternhost.command import add_command, add_option, print_result
from ternhost.errors import OK, UsageError
from ternhost.learn.base import ALGORITHMS, algorithms_of
from ternhost.run import directory as run_directory
from ternhost.statement import gather, sentences
from ternhost.statement.facts import Facts

_PLANNED = ("train", "collect", "infer", "serve")


def add_parser(subparsers: Any) -> None:
    """Add `tern privacy` to the commands."""
    summary = (
        "write what a run, a store or a board promises, as a page for people who are no engineers"
    )
    example = """tern privacy mine\ntern privacy my-fleet/store.sqlite\ntern privacy a0
        tern privacy --plan train --fleet simulated:20 --unit record --life 1"""
    parser = add_command(subparsers, "privacy", summary, example, run)
    what = "a run (its name or directory), a store, or a board such as a0"
    parser.add_argument("what", nargs="?", metavar="RUN|STORE|BOARD", help=what)
    default = "the run's own directory; of others privacy-NAME"
    add_option(parser, "--output DIR", f"directory of the page (default: {default})")
    text = "the command of a run that has not begun: train, collect, infer or serve, with its options; comes last"
    parser.add_argument("--plan", nargs=argparse.REMAINDER, metavar="COMMAND ...", help=text)


def run(args: argparse.Namespace) -> int:
    """Write the statement, and print its first section."""
    facts, place = _facts(args)
    from ternhost.statement import page  # matplotlib takes a second

    written = page.write(facts, Path(args.output or place))
    first_section = sentences.sections(facts)[0]
    lines = [part.text for part in first_section.parts if isinstance(part, sentences.Sentence)]
    lines.append(f"the statement is in {written['html']} and {written['md']}")
    print_result({**page.as_json(facts), "files": written}, "\n".join(lines), args.json)
    return OK


def _facts(args: argparse.Namespace) -> tuple[Facts, Path]:
    """Gather the facts about what the arguments name, and choose the directory of the page.

    Raises TernError if there is no such run, store or board.
    """
    if (args.plan is None) == (args.what is None):
        raise UsageError(
            "name a run, a store or a board, or a --plan", hint="such as: tern privacy my-run"
        )
    if args.plan is not None:
        return _plan(args.plan), Path("privacy-plan")
    path = Path(args.what)
    for directory in (path, run_directory.RUNS / path):
        if (directory / run_directory.RUN_NAME).is_file():
            return gather.of_run(run_directory.RunFiles.read(directory)), directory
    if path.is_dir():
        stores = sorted(path.glob("*.sqlite"))
        if len(stores) != 1:
            text = f"{path} is neither a run nor the directory of one store"
            raise UsageError(text, hint="'tern runs' lists runs")
        path = stores[0]
    if path.is_file():
        return gather.of_store(path), Path(f"privacy-{_safe(path.stem)}")
    try:
        return gather.of_board(args.what), Path(f"privacy-{_safe(args.what)}")
    except UsageError as error:
        text = f"there is no run, no store and no board {args.what!r}: {error.message}"
        hint = "'tern runs' lists runs, 'tern devices' lists boards"
        raise UsageError(text, hint=hint) from error


def _plan(words: list[str]) -> Facts:
    """Gather the facts of a run that has not begun. words: its command and options."""
    from ternhost.cli import build_parser, running

    if not words or words[0] not in _PLANNED:
        text = f"--plan takes a command: {', '.join(_PLANNED)}"
        raise UsageError(text, hint="such as: --plan train --epsilon 1")
    command = words[0]
    args = build_parser([command]).parse_args(words)
    if command == "serve":
        options = running.parsed(args, ALGORITHMS, served=True)
    else:
        options = running.parsed(args, algorithms_of(command))
    store = None if args.store is None else Path(args.store)
    return gather.of_plan(options, store, words)


def _safe(name: str) -> str:
    """A name as part of the name of a directory."""
    return re.sub(r"[^\w.-]+", "-", name).strip("-.") or "statement"
