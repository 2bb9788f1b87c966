"""`tern demo`: `tern train` on emulated boards, with options for a first look."""

import argparse
from typing import Any

from ternhost import datasets
from ternhost.cli import running
from ternhost.cli.tree import build_parser
from ternhost.command import add_command, add_option, print_line
from ternhost.errors import OK

HEADING = "Set up"  # of tern --help

_BOARDS = 8
_REPORTS = 20_000
_DATASET = "flights-planned"


def add_parser(subparsers: Any) -> None:
    """Add `tern demo` to the commands."""
    summary = f"train a model on {_REPORTS:,} real flights with {_BOARDS} emulated boards, and write a report"
    parser = add_command(subparsers, "demo", summary, "tern demo", run)
    add_option(parser, "--boards N", "number of emulated boards", _BOARDS)
    add_option(parser, "--reports R", "number of reports, one per client", _REPORTS)
    add_option(parser, "--epsilon E", "epsilon of a report", "2")


def run(args: argparse.Namespace) -> int:
    """Train on emulated boards with `tern train`, then compare with another algorithm.

    Returns the exit code of the training.
    """
    command = [
        "train",
        "fedsgd",
        f"--data={_DATASET}",
        f"--fleet=emulated:{args.boards}",
        f"--reports={args.reports}",
        f"--epsilon={args.epsilon}",
    ]
    everywhere = argparse.Namespace(json=args.json, quiet=args.quiet, from_project={})
    train_args = build_parser(command).parse_args(command, everywhere)
    code = running.run(train_args)
    if code == OK and not args.json:
        _print_comparison(args)
    return code


def _print_comparison(args: argparse.Namespace) -> None:
    """Print the AUC that the same devices could have reached with tern's default algorithm.

    There each device reports once, about its whole gradient. It is simulated, since that takes only
    a moment.
    """
    from ternhost.planning.simulation import default, simulate  # needs simulated fleets

    seed = 1
    data = datasets.load(_DATASET)
    learner = default(data, args.reports, seed, "logistic", args.epsilon)
    auc = simulate(learner, seed).figures()["auc"]
    print_line(
        f"the same devices could have answered once, about their whole gradient: AUC {auc:.4f} in two rounds "
        f"(simulated; tern train --data {_DATASET} --fleet emulated:{args.boards} --reports {args.reports} "
        f"--epsilon {args.epsilon})"
    )
