"""`tern provision`: make a board a member of a fleet."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import Any

import numpy as np

from ternhost import datasets, errors
from ternhost.command import add_command, add_option, print_result
from ternhost.datasets import own
from ternhost.errors import UsageError
from ternhost.privacy.guarantee import Guarantee
from ternhost.privacy.units import UNIT_HELP, parse_unit
from ternhost.reach.ports import names
from ternhost.store.store import Store
from ternhost.terminal import confirm
from terntools.boards import counter, deploy, devices, provision, self_check
from terntools.boards.network import Broker, read_link
from terntools.boards.policy import policy
from terntools.boards.provision import Member
from terntools.boards.repl import Repl
from terntools.terminal import Bar

_SLOT_MS = (
    500  # on a Pico a report takes 10 ms, at most 26 (tern bench latency), and erasing flash more
)
_OF_A_RECORDER = 256  # records that count: the capacity that it has by itself


def add_parser(subparsers: Any) -> None:
    summary = "make a board a member of a fleet: key, policy, records, broker"
    example = """tern provision a0 --store fleet.sqlite --device 7 --budget 100 --largest 2 --records mine.csv
        tern provision u0 --store fleet.sqlite --device 8 --dataset flights --broker broker.local:8883 \
--authority broker/authority.der --ssid lab --wifi-password-file secret.txt
        tern provision a0 --store fleet.sqlite --device 9 --own-records"""
    parser = add_command(subparsers, "provision", summary, example, _run)
    devices.add_board(parser)
    add_options(parser, required=True)
    add_option(parser, "--lock", "lock the board's console until its flash is erased")
    text = "bind the ledger to fuses of the chip, which burn for ever, so that an old copy of the flash is refused"
    add_option(parser, "--counter", text)
    add_option(parser, "--yes", "lock, and burn fuses, without asking")


def add_options(parser: argparse.ArgumentParser, required: bool) -> None:
    """The options that `tern up` has as well."""
    member = parser.add_argument_group("member")
    add_option(
        member, "--store FILE", "the host's store, which gets the device's key", required=required
    )
    add_option(member, "--device ID", "id from 1, unique in the fleet", type=int, required=required)
    text = "go on with a device that the store knows on a board without its ledger: it and the fleet get new keys, and "
    add_option(member, "--again", text + "what it may have spent is taken off its budget")
    add_option(
        member, "--records FILE", "CSV file: each row has features, then the label, all in [-1, 1]"
    )
    add_option(
        member, "--dataset", "take records of a data set, for a trial", choices=datasets.HELD
    )
    add_option(member, "--own-records", "no records: its program collects them (tern.recorder)")
    add_option(member, "--classes", "labels are class numbers from 0, for softmax regression")
    add_option(member, "--count N", "take N records of --dataset (default: 1)", type=int)
    text = "public upper bound on the records of a device, the same for all boards (default: 64, or the next power of "
    text += "two that holds this device's; 256 with --own-records)"
    add_option(member, "--most-records N", text, type=int)
    policy = parser.add_argument_group("privacy policy, which the device enforces")
    text = "largest epsilon of a report, or rho where the budget is counted in rho (default: 2, or the budget)"
    add_option(policy, "--largest E", text)
    add_option(policy, "--unit UNIT", UNIT_HELP, "device")
    text = "lifetime epsilon of the unit, by adding up; or with --delta as (epsilon, delta), counted in rho (default: "
    text += "100)"
    add_option(policy, "--budget E", text)
    add_option(policy, "--delta D", "delta of the budget, such as 1e-6")
    add_option(policy, "--budget-rho R", "instead of --budget: lifetime rho of the unit (zCDP)")
    text = f"accepted shapes of cards, of {','.join(provision.SHAPES)} (default: all)"
    add_option(policy, "--mechanisms LIST", text)
    add_option(policy, "--pause S", "least seconds between two payments from the budget", 0)
    text = "send only at multiples of MS milliseconds after a round arrived, so that timing does not depend on the "
    text += "data; MS must be longer than a report takes; 0 sends at once"
    add_option(policy, "--slot-ms MS", text, _SLOT_MS)
    text = (
        "number of reports paid in advance, which spares the flash; a power cut loses unused ones"
    )
    add_option(policy, "--reserve N", text, 1)
    add_option(
        policy,
        "--own-key-only",
        "answer rounds for this device only, not rounds for the whole fleet",
    )
    text = "the host expects the board, whose program lets it sleep, every S seconds (docs/guides/battery.md); "
    add_option(policy, "--wake-s S", text + "needs --broker", type=int)
    text = "put the configuration FILE of your own link on the board as NAME, such as unix.json=my-link.json (its "
    text += "module comes with the program: tern deploy --main)"
    add_option(parser, "--link NAME=FILE...", text)
    network = parser.add_argument_group("network (without a broker, the link is the board's port)")
    add_option(
        network, "--broker HOST[:PORT]", "MQTT broker; for a cluster its nodes, divided by commas"
    )
    add_option(network, "--authority FILE", "the broker's CA certificate (DER)", type=Path)
    add_option(network, "--prefix NAME", "prefix of the fleet's topics (default: tern)")
    add_option(network, "--ssid NAME", "Wi-Fi network to join")
    add_option(
        network, "--wifi-password-file FILE", "file with its password, never printed", type=Path
    )
    add_option(
        network, "--wait S", "seconds to wait until the broker hears the board; 0: none", 60.0
    )


def member_of(args: argparse.Namespace) -> Member:
    if sum((args.records is not None, args.dataset is not None, args.own_records)) != 1:
        raise UsageError(
            "the device needs records from one place",
            hint="name one of --records FILE, --dataset NAME, and --own-records, where its program collects them",
        )
    if args.count is not None and args.count < 1:
        raise UsageError(f"--count must be 1 or more, not {args.count}")
    if args.own_records and (args.count is not None or args.classes):
        raise UsageError(
            f"--own-records and {'--classes' if args.count is None else '--count'} are at odds: the board is given no "
            "records",
            hint="leave it out: the board's program decides on its records (tern.recorder)",
        )
    if args.own_records:
        rows = np.zeros((1, 2), np.int16)  # they are elsewhere: storage.md, "samples/"
    elif args.records:
        rows = own.read_csv(args.records, classes=args.classes)
        if not args.classes and own.has_labels_0_and_1(rows):
            print(
                f"tern: the labels in {args.records} are 0 or 1, not -1 or 1; for logistic regression and the SVM "
                "0 means -1, linear regression predicts 0 and 1",
                file=sys.stderr,
            )
    else:
        rows = provision.dataset_records(
            args.dataset, args.device, args.count or 1, classes=args.classes
        )
    if args.broker is None:
        for name in ("authority", "prefix", "ssid", "wifi_password_file"):
            if getattr(args, name):
                option = "--" + name.replace("_", "-")
                raise UsageError(
                    f"{option} needs a broker", hint="name the broker with --broker HOST[:PORT]"
                )
    broker = None
    if args.broker:
        broker = Broker.parse(
            args.broker, args.authority, args.ssid, args.wifi_password_file, args.prefix
        )
    return Member(
        args.device,
        rows,
        policy(args.largest, args.budget, args.delta, args.budget_rho),
        tuple(args.mechanisms.split(",")) if args.mechanisms else (),
        not args.own_key_only,
        args.pause,
        args.slot_ms,
        args.reserve,
        _OF_A_RECORDER if args.own_records and args.most_records is None else args.most_records,
        broker=broker,
        wake=args.wake_s,
        link=read_link(args.link),
        again=args.again,
        unit=parse_unit(args.unit),
    )


def run_provision(
    port: str, member: Member, store: Path, authority: Path | None = None, wait: float = 0.0
) -> dict[str, Any]:
    """Provision the board on `port` and start it, as `start` does.

    Returns a summary, with the board's hello.
    """
    with Repl(port, visits=True) as repl:
        if self_check.has_module(repl, "tern"):
            self_check.require_library(repl)
        if member.modules and not self_check.has_module(repl, "tern.sums"):
            hint = f"tern deploy {port} --with sums; or do both with tern up"
            raise UsageError(
                f"the board on {port} lacks the module for this unit and budget", hint=hint
            )
        with Store(store, beside=True) as opened, Bar("provisioning") as bar:
            changes = provision.plan(repl, member, opened)
            provision.apply(repl, changes, member, opened, bar.update)
        heard = start(repl, member, store, authority, wait)
    result = {
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
    if member.link_name != "serial":
        return {**result, "heard": heard}  # its port is silent from now on
    hello = deploy.wait_for_hello(port)
    return {
        **result,
        "hello": hello.text,
        **devices.budget(hello),
        "budget": devices.budget_text(hello),
    }


def start(
    repl: Repl, member: Member, store: Path, authority: Path | None, wait: float
) -> str | None:
    """With a broker, start a board's program as `hearing.start` does, which waits for `wait`
    seconds.
    """
    if member.broker is None:
        return None
    from terntools.boards import hearing

    return hearing.start(repl, member, store, authority, wait)


def _run(args: argparse.Namespace) -> int:
    member = dataclasses.replace(member_of(args), lock=args.lock, counter=args.counter)
    port = names.resolve(args.board)
    for name, wanted in (("lock", args.lock), ("counter", args.counter)):
        if wanted:
            print(Path(__file__).with_name(f"{name}.txt").read_text(), end="", file=sys.stderr)
    if args.counter:
        with Repl(port, visits=True) as repl:
            _, left = counter.plan(repl, member.policy, member.reserve)
        text = f"  a new ledger burns 2 fuses; {left} steps are left then, for at most {left * member.reserve} reports"
        print(text, file=sys.stderr)
    if (args.lock or args.counter) and not args.yes:
        confirm()
    result = run_provision(port, member, Path(args.store), args.authority, args.wait)
    if args.own_records:
        result["records"] = result["features"] = None
    text = f"device {result['device']} on {result['port']}: {result['changes']}" + (
        f"; {result.pop('budget')}"
        if "budget" in result
        else f"; its link is {result['link']} now"
        + (f", and {result['heard']}" if result["heard"] else "")
    )
    if result["wake_s"]:
        text += f", and may sleep {result['wake_s']} s at a time"
    text += "; locked" * args.lock + "; bound to its counter" * args.counter
    policy = member.policy
    promised = Guarantee.of_budget(policy.budget, policy.measure, member.unit, devices.DELTA)
    result["guarantee"] = promised.as_json()
    print_result(result, f"{text}\n{promised.words()}", args.json)
    return errors.OK
