"""`tern demo`: two ways of learning in private, through emulated boards, in about a minute."""

import argparse
from typing import Any

from ternhost.command import add_command, print_result
from ternhost.listed_commands import DEMO
from ternhost.terminal import Progress


def add_parser(subparsers: Any) -> None:
    """Add `tern demo` to the commands."""
    add_command(subparsers, DEMO.name, DEMO.summary, "tern demo", run)


def run(args: argparse.Namespace) -> int:
    """Run the demo, write its report, and print what it shows; return the exit code."""
    # These import matplotlib and the data sets, which takes a second.
    from ternhost import demo
    from ternhost.demo import page, words

    with Progress(quiet=args.quiet) as progress:
        shown = demo.run(words.Printer(progress))
        report = page.write_report(shown)
    result = {**shown.as_json(), "report": str(report)}
    print_result(result, "\n".join(words.summary(shown, str(report))), args.json)
    return shown.exit_code
