"""`tern resume`: goes on with a run that was interrupted."""

import argparse
from typing import Any

from ternhost.cli.running import run_to_its_end
from ternhost.command import add_command, add_option
from ternhost.listed_commands import RESUME
from ternhost.run.run import Run
from ternhost.run.status import Watcher


def add_parser(subparsers: Any) -> None:
    """Add `tern resume` to the commands."""
    example = """tern resume 20260102-030405
    tern resume my-fleet/store.sqlite --fleet port:a0,a1"""
    parser = add_command(subparsers, RESUME.name, RESUME.summary, example, run)
    text = "the run: its name in runs, its directory, or its store"
    parser.add_argument("run", metavar="RUN", help=text)
    text = "the devices, if their boards have moved; 'tern fleet kinds' lists the kinds"
    add_option(parser, "--fleet KIND", text, metavar="KIND:...")
    text = "continue after round N, if the store was restored from a backup"
    add_option(parser, "--after-round N", text, type=int)
    text = "write no pictures and no report.html"
    add_option(parser, "--no-report", text, dest="report", action="store_false")


def run(args: argparse.Namespace) -> int:
    """Resume a run, run it to its end, and print its result; return the exit code."""

    def resume(watcher: Watcher) -> Run:
        """Open the run as its store has it."""
        return Run.resume(args.run, watcher, args.fleet, args.after_round)

    return run_to_its_end(args, resume)
