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
    facts, place = _facts(args)
    from ternhost.statement import page  # matplotlib takes a second

    written = page.write(facts, Path(args.output or place))
    lines = [
        part.text
        for part in sentences.sections(facts)[0].parts
        if isinstance(part, sentences.Sentence)
    ]
    lines += [f"the statement is in {written['html']} and {written['md']}"]
    print_result({**page.as_json(facts), "files": written}, "\n".join(lines), args.json)
    return OK


def _facts(args: argparse.Namespace) -> tuple[Facts, Path]:
    """The facts of what is named, and the directory for its page. Raises TernError."""
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
    stores = sorted(path.glob("*.sqlite")) if path.is_dir() else []
    if len(stores) == 1:
        path = stores[0]
    elif path.is_dir():
        raise UsageError(
            f"{path} is neither a run nor the directory of one store", hint="'tern runs' lists runs"
        )
    if path.is_file():
        return gather.of_store(path), Path(f"privacy-{_safe(path.stem)}")
    try:
        return gather.of_board(args.what), Path(f"privacy-{_safe(args.what)}")
    except UsageError as error:
        text = f"there is no run, no store and no board {args.what!r}: {error.message}"
        raise UsageError(
            text, hint="'tern runs' lists runs, 'tern devices' lists boards"
        ) from error


def _plan(words: list[str]) -> Facts:
    from ternhost.cli import build_parser, running

    if not words or words[0] not in _PLANNED:
        raise UsageError(
            f"--plan takes a command: {', '.join(_PLANNED)}",
            hint="such as: --plan train --epsilon 1",
        )
    served = words[0] == "serve"
    args = build_parser([words[0]]).parse_args(words)
    options = running.parsed(args, ALGORITHMS if served else algorithms_of(words[0]), served)
    store = None if args.store is None else Path(args.store)
    return gather.of_plan(options, store, words)


def _safe(name: str) -> str:
    """A name as part of the name of a directory."""
    return re.sub(r"[^\w.-]+", "-", name).strip("-.") or "statement"
