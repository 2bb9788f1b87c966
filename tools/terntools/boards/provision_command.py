"""`tern board provision`: make a board a member of a fleet."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import Any

from ternhost import errors
from ternhost.command import add_command, add_option, print_result
from ternhost.errors import UsageError
from ternhost.privacy.guarantee import Guarantee
from ternhost.reach.ports import names
from ternhost.store.store import Store
from ternhost.terminal import confirm
from terntools.boards import counter, devices, member_options, provision, self_check, starting
from terntools.boards.member import Member
from terntools.boards.repl import Repl
from terntools.terminal import Bar


def add_parser(subparsers: Any) -> None:
    """Add `tern board provision` to the commands."""
    summary = "make a board a member of a fleet: key, policy, records, broker"
    example = """tern board provision a0 --store fleet.sqlite --device 7 --data mine.csv --budget 100
        tern board provision u0 --device 8 --data flights --broker my-broker --ssid lab \
--wifi-password-file secret.txt
        tern board provision a0 --store fleet.sqlite --device 9 --data own"""
    parser = add_command(subparsers, "provision", summary, example, _run)
    parser.usage = "tern board provision BOARD --device ID --data DATA [OPTION ...]"
    parser.epilog = f"{member_options.ABOUT_FILES}\n\n{parser.epilog}"
    devices.add_board(parser)
    member_options.add_options(parser)
    final = parser.add_argument_group("steps that nothing undoes")
    add_option(final, "--lock", "lock the board's console until its flash is erased")
    add_option(
        final, "--counter", "bind the ledger to fuses of the chip, so that no old copy is accepted"
    )
    add_option(final, "--yes")


def run_provision(port: str, member: Member, store: Path) -> dict[str, Any]:
    """Provision the board on `port`, start its program, and return a summary for JSON.

    For a board that reaches its host by its port, the summary has what the board says then; for one
    with another link, whether its broker hears it. store: the file with the devices' keys. Raises
    TernError.
    """
    with Bar("provisioning") as bar:
        bar.step("waiting for the board's console")
        with Repl(port, visits=True) as repl:
            bar.step("testing the library on the board")
            _check_library(repl, member)
            with Store(store, beside=True) as opened:
                changes = provision.plan(repl, member, opened)
                provision.apply(repl, changes, member, opened, bar.update)
            bar.step("starting the program")
            heard = start(repl, member, store)
        hello = None
        if member.link_name == "serial":
            bar.step("waiting for the program to answer")
            hello = starting.wait_for_hello(port, member.settings.slot / 1000)
        bar.step("done")
    summary: dict[str, Any] = {
        "port": port,
        "device": member.device,
        "records": len(member.rows),
        "features": member.rows.shape[1] - 1,
        "written": list(changes.write),
        "removed": list(changes.remove),
        "link": member.link_name,
        "locked": member.lock,
        "wake_s": member.wake,
        "changes": changes.text(),
    }
    if hello is None:  # its port is silent from now on
        summary["heard"] = heard
        return summary
    summary["hello"] = hello.text
    summary |= devices.budget(hello)
    summary["budget"] = devices.budget_text(hello)
    return summary


def _check_library(repl: Repl, member: Member) -> None:
    """Check that the library on the board computes right, and has the modules that it needs.

    Raises MiscompiledError, and UsageError for a missing module.
    """
    if self_check.has_module(repl, "tern"):
        self_check.require_library(repl)
    if member.modules and not self_check.has_module(repl, "tern.sums"):
        raise UsageError(
            f"the board on {repl.name} lacks the module for this unit and budget",
            hint=f"install it: tern board deploy {repl.name} --module sums; or do both with 'tern board up'",
        )


def start(repl: Repl, member: Member, store: Path) -> str | None:
    """Start the program of a board that uses a broker, and wait until the broker hears it.

    Returns a sentence about that for the user. Without a broker nothing happens, and the result is
    None. store: the file with the devices' keys.
    """
    if member.broker is None:
        return None
    from terntools.boards import hearing

    return hearing.start(repl, member, store)


def _run(args: argparse.Namespace) -> int:
    """Provision the named board, and print what was changed and its privacy guarantee for life."""
    member = member_options.member_of(args)
    member = dataclasses.replace(member, lock=args.lock, counter=args.counter)
    store = member_options.store_of(args, member)
    port = names.resolve(args.board)
    _confirm_what_is_final(args, port, member)
    result = run_provision(port, member, store)
    if args.data == member_options.OWN:  # the record that the board has is a placeholder
        result["records"] = result["features"] = None
    text = _summary(result, member)
    result.pop("budget", None)  # words about the budget, whose numbers the JSON has as well
    policy = member.policy
    guarantee = Guarantee.of_budget(
        policy.budget, policy.measure, member.settings.unit, devices.DELTA
    )
    result["guarantee"] = guarantee.as_json()
    print_result(result, f"{text}\n{guarantee.words()}", args.json)
    return errors.OK


def _confirm_what_is_final(args: argparse.Namespace, port: str, member: Member) -> None:
    """Explain what --lock and --counter do, and ask for consent, since nothing undoes it.

    Raises UsageError if the user does not agree.
    """
    if args.lock:
        _print_explanation("lock.txt")
    if args.counter:
        _print_explanation("counter.txt")
        reserve = member.settings.reserve
        with Repl(port, visits=True) as repl:
            _, steps_left = counter.plan(repl, member.policy, reserve)
        print(
            f"  a new ledger burns 2 fuses; {steps_left} steps are left then, for at most "
            f"{steps_left * reserve} reports",
            file=sys.stderr,
        )
    if (args.lock or args.counter) and not args.yes:
        confirm()


def _print_explanation(file_name: str) -> None:
    """Print a text that lies beside this module."""
    explanation = Path(__file__).with_name(file_name).read_text()
    print(explanation, end="", file=sys.stderr)


def _summary(result: dict[str, Any], member: Member) -> str:
    """Describe in one line for people what was done to the board.

    result: what run_provision has returned.
    """
    text = f"device {result['device']} on {result['port']}: {result['changes']}"
    if "budget" in result:
        text += f"; {result['budget']}"
    else:
        text += f"; its link is {result['link']} now"
        if result["heard"]:
            text += f", and {result['heard']}"
    if result["wake_s"]:
        text += f", and may sleep {result['wake_s']} s at a time"
    if member.lock:
        text += "; locked"
    if member.counter:
        text += "; bound to its counter"
    return text
