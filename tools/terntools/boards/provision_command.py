"""`tern provision`: make a board a member of a fleet."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import Any

import numpy as np

from ternhost import datasets, errors
from ternhost.command import add_command, print_result
from ternhost.errors import UsageError
from ternhost.store.store import Store
from terntools.boards import deploy, devices, provision, records, self_check
from terntools.boards.provision import Broker, Member
from terntools.boards.repl import Repl
from terntools.terminal import Bar, confirm

_SLOT_MS = (
    500  # on a Pico a report takes 10 ms, at most 26 (tern bench latency); slow flash may add its erasing
)
_OF_A_RECORDER = 256  # records that count: the capacity that it has by itself
_LOCKS = """\
  The board will refuse its console: no key, record or ledger can be read or written there, and no library
  updated. It answers its host as before. Errors in its Wi-Fi or broker settings cannot be corrected any more.
  A lock does not protect the flash itself: BOOTSEL or a debugger on a Pico, or the boot loader of an ESP32 without
  flash encryption and secure boot, can read and write it.
  Undo: erase the whole flash, and with it the device and its ledger (firmware/BOARDS.md, "Locked boards")."""


def add_parser(subparsers: Any) -> None:
    parser = add_command(
        subparsers,
        "provision",
        "make a board a member of a fleet: key, policy, records, broker",
        "tern provision a0 --store fleet.sqlite --device 7 --budget 100 --largest 2 --records mine.csv\n"
        "tern provision u0 --store fleet.sqlite --device 8 --dataset flights --broker broker.local:8883 "
        "--authority broker/authority.der --ssid lab --wifi-password-file secret.txt\n"
        "tern provision a0 --store fleet.sqlite --device 9 --own-records",
    )
    parser.add_argument("board", metavar="BOARD", help=devices.NAMES)
    add_options(parser, required=True)
    parser.add_argument(
        "--lock", action="store_true", help="close the board's console until its flash is erased"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask before the board is locked")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(func=_run)


def add_options(parser: argparse.ArgumentParser, required: bool) -> None:
    """The options that `tern up` has as well."""
    member = parser.add_argument_group("member")
    member.add_argument(
        "--store", metavar="FILE", required=required, help="the host's store; the device's key is made in it"
    )
    member.add_argument(
        "--device",
        type=int,
        metavar="ID",
        required=required,
        help="1 or more; no other device of the fleet has it",
    )
    member.add_argument(
        "--records", metavar="FILE", help="CSV file: a row holds features and then the label, all in [-1, 1]"
    )
    member.add_argument(
        "--dataset",
        choices=(*datasets.DATASETS, *datasets.TABLES),
        help="take records of a data set, for a trial",
    )
    member.add_argument(
        "--own-records", action="store_true", help="give it none: its program collects them (tern.recorder)"
    )
    member.add_argument(
        "--classes", action="store_true", help="labels are numbers of classes, from 0, for softmax regression"
    )
    member.add_argument("--count", type=int, metavar="N", help="take N records of --dataset (default 1)")
    member.add_argument(
        "--most-records",
        type=int,
        metavar="N",
        help="public upper bound on records per device; give all boards the same "
        "(default: the smallest power of two from 64 on that holds those of this device; 256 with --own-records)",
    )
    policy = parser.add_argument_group("privacy policy, which the device enforces")
    policy.add_argument(
        "--largest", default="2", metavar="E", help="epsilon that one report may cost (default 2)"
    )
    policy.add_argument(
        "--budget", default="100", metavar="E", help="epsilon for the device's life (default 100)"
    )
    policy.add_argument(
        "--mechanisms",
        metavar="LIST",
        help=f"shapes of cards that the device obeys, of {','.join(provision.SHAPES)} (default: all)",
    )
    policy.add_argument("--pause", type=int, default=0, metavar="S", help="least seconds between two debits")
    policy.add_argument(
        "--slot-ms",
        type=int,
        default=_SLOT_MS,
        metavar="MS",
        help="send only at whole multiples of so many milliseconds after a round came, so that the time tells nothing "
        f"of the data: longer than a report takes, 0 for at once (default {_SLOT_MS})",
    )
    policy.add_argument(
        "--reserve",
        type=int,
        default=1,
        metavar="N",
        help="reports to pay for at once, which spares the flash; a power cut loses the unused ones (default 1)",
    )
    policy.add_argument(
        "--own-key-only",
        action="store_true",
        help="answer only rounds for this device, not rounds for the whole fleet",
    )
    policy.add_argument(
        "--wake-s",
        type=int,
        metavar="S",
        help="the board sleeps, and wakes every S seconds: the host asks it then, and gives its rounds that time (the "
        "board's program sends it to sleep: docs/guides/battery.md); needs --broker",
    )
    parser.add_argument(
        "--link",
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="put FILE on the board as NAME, for a link of your own, such as unix.json=my-link.json (its module is for "
        "the board's program: tern deploy --main); may be given several times",
    )
    network = parser.add_argument_group("network (without a broker, the link is the board's port)")
    network.add_argument("--broker", metavar="HOST[:PORT]", help="connect to this MQTT broker")
    network.add_argument("--authority", type=Path, metavar="FILE", help="the broker's CA certificate (DER)")
    network.add_argument("--prefix", metavar="NAME", help="begin the fleet's topics with NAME (default tern)")
    network.add_argument("--ssid", metavar="NAME", help="join this Wi-Fi network")
    network.add_argument(
        "--wifi-password-file",
        type=Path,
        metavar="FILE",
        help="holds the network's password, which is never printed",
    )


def member_of(args: argparse.Namespace) -> Member:
    """The member that the options describe. Raises UsageError."""
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
            hint="how many there are, and what their labels are, is for its program (tern.recorder)",
        )
    if args.own_records:
        rows = np.zeros((1, 2), np.int16)  # they are elsewhere: storage.md, "samples/"
    elif args.records:
        rows = records.read_csv(args.records, classes=args.classes)
        if not args.classes and records.has_labels_0_and_1(rows):
            print(
                f"tern: the labels in {args.records} are 0 or 1, not -1 or 1; for logistic regression and the SVM "
                "0 means -1, linear regression predicts 0 and 1",
                file=sys.stderr,
            )
    else:
        rows = provision.dataset_records(args.dataset, args.device, args.count or 1, classes=args.classes)
    if args.broker is None:
        for name in ("authority", "prefix", "ssid", "wifi_password_file"):
            if getattr(args, name):
                option = "--" + name.replace("_", "-")
                raise UsageError(f"{option} needs a broker", hint="name the broker with --broker HOST[:PORT]")
    broker = (
        Broker.parse(args.broker, args.authority, args.ssid, args.wifi_password_file, args.prefix)
        if args.broker
        else None
    )
    shapes = tuple(args.mechanisms.split(",")) if args.mechanisms else ()
    policy = provision.policy(args.largest, args.budget)
    return Member(
        args.device,
        rows,
        policy,
        shapes,
        not args.own_key_only,
        args.pause,
        args.slot_ms,
        args.reserve,
        _OF_A_RECORDER if args.own_records and args.most_records is None else args.most_records,
        broker,
        wake=args.wake_s,
        link=provision.read_link(args.link),
    )


def run_provision(port: str, member: Member, store: Path) -> dict[str, Any]:
    """Provision the board on `port` and start it. Returns a summary, with the board's hello."""
    with Repl(port) as repl:
        if self_check.has_library(repl):
            self_check.require_library(repl)
        with Store(store, beside=True) as opened:
            changes = provision.plan(repl, member, opened)
        with Bar("provisioning") as bar:
            deploy.apply(repl, changes, bar.update)
        repl.start_main()
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
    }
    if member.link_name != "serial":
        return result  # its port is silent from now on
    hello = deploy.wait_for_hello(port)
    return {**result, "hello": hello.text, "epsilon_left": (hello.budget or 0) / 1_000_000}


def _run(args: argparse.Namespace) -> int:
    member = dataclasses.replace(member_of(args), lock=args.lock)
    if args.lock:
        print(_LOCKS, file=sys.stderr)
        if not args.yes:
            confirm()
    result = run_provision(devices.resolve(args.board), member, Path(args.store))
    if args.own_records:
        result["records"] = result["features"] = None
    text = f"device {result['device']} on {result['port']}: {len(result['written'])} files written" + (
        f"; epsilon left {result['epsilon_left']:g}"
        if "epsilon_left" in result
        else f"; its link is {result['link']} now"
    )
    if result["wake_s"]:
        text += f", and may sleep {result['wake_s']} s at a time"
    if args.lock:
        text += "; locked"
    print_result(result, text, args.json)
    return errors.OK
