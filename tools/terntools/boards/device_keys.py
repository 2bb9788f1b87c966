"""`tern device add|rotate|revoke|list`: the keys of a fleet's devices."""

import argparse
import time
from pathlib import Path
from typing import Any

from ternhost.command import add_command, add_option, print_result, warn
from ternhost.errors import OK, UsageError
from ternhost.files import private, storage_errors
from ternhost.privacy.accounting import MEASURES
from ternhost.privacy.base import MICRO
from ternhost.provision import keys
from ternhost.store.boards import BoardRow
from ternhost.store.fleet_key import FleetKey
from ternhost.store.store import Store
from ternhost.text import counted

_STAYS = "the fleet's key stays; a thief of a device's key has it too: see 'tern device rotate --fleet-key'"


def add_actions(actions: Any) -> None:
    summary = "make a key for each device, and keep it in a store, which is made if it is missing"
    example = "tern device add 1-20 --store my-fleet/store.sqlite --keys new-keys"
    add = add_command(actions, "add", summary, example, run_add)
    summary = "make new keys for devices, or a new fleet key; the old ones are refused from the next round on"
    example = "tern device rotate 7 --store my-fleet/store.sqlite --keys new-keys\n"
    example += "tern device rotate --fleet-key --store my-fleet/store.sqlite"
    rotate = add_command(actions, "rotate", summary, example, run_rotate)
    summary = "revoke the keys of devices: their reports are refused from now on, and the others get a new fleet key"
    example = "tern device revoke 7 12-15 --store my-fleet/store.sqlite"
    revoke = add_command(actions, "revoke", summary, example, run_revoke)
    example = "tern device list --store my-fleet/store.sqlite"
    show = add_command(
        actions,
        "list",
        "list the devices of a store, and what boards said of their budgets",
        example,
        run_list,
    )
    for parser in (add, rotate, revoke, show):
        add_option(parser, "--store FILE", "file with the keys", required=True)
    for parser in (add, rotate):
        add_option(
            parser, "--keys DIR", "also write each key, 32 bytes, into DIR/<id, 8 hex digits>.key"
        )
    for parser in (add, rotate, revoke):
        several = "*" if parser is rotate else "+"
        parser.add_argument(
            "devices", nargs=several, metavar="ID", help="ids, or ranges such as 10-19"
        )
    text = "make a new fleet key, which the host sends to its boards over their broker"
    add_option(rotate, "--fleet-key", text)


def run_add(args: argparse.Namespace) -> int:
    devices = keys.parse_ids(args.devices)
    with Store(args.store, beside=True) as store:
        again = sorted(store.revoked().keys() & devices)
        made = keys.add(store, devices)
    if again:
        warn(
            f"device {again[0]} had a key before: 'tern provision --again' counts what it has spent"
        )
    return _made(args, made, "added")


def run_rotate(args: argparse.Namespace) -> int:
    if args.keys and not args.devices:
        raise UsageError(
            "--keys writes the keys of devices, and none is named", hint="name the devices"
        )
    devices = keys.parse_ids(args.devices) if args.devices or not args.fleet_key else []
    with Store(args.store, create=False, beside=True) as store, store.transaction():
        made = keys.rotate(store, devices) if devices else {}
        fleet = keys.rotate_fleet(store) if args.fleet_key else None
    return _made(args, made, "rotated", fleet)


def _made(
    args: argparse.Namespace, made: dict[int, bytes], word: str, fleet: FleetKey | None = None
) -> int:
    if args.keys:
        _write(Path(args.keys), made)
    text = f"{word}: {counted(len(made), 'device')}"
    text += (f"; keys in {args.keys}" if args.keys else "") + (_of_fleet(fleet) if fleet else "")
    if word == "rotated" and made:
        text += "\n  give each board its new key before the next round, which refuses the old one: "
        text += f"tern provision BOARD --store {args.store} --device {min(made)}"
    if word == "rotated" and not fleet:
        text += f"\n  {_STAYS}"
    result = {word: list(made), "store": args.store, "keys": args.keys}
    print_result({**result, "fleet_epoch": fleet.epoch} if fleet else result, text, args.json)
    return OK


def _of_fleet(fleet: FleetKey) -> str:
    return f"; the fleet has a new key (epoch {fleet.epoch}), which a host brings to the boards on its broker"


def _write(directory: Path, made: dict[int, bytes]) -> None:
    with storage_errors(
        "the store has the keys; 'rotate' makes new ones", f"cannot write to {directory}"
    ):
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        for device, key in made.items():
            with open(directory / f"{device:08x}.key", "wb", opener=private) as file:
                file.write(key)


def run_revoke(args: argparse.Namespace) -> int:
    devices = keys.parse_ids(args.devices)
    with Store(args.store, create=False, beside=True) as store:
        fleet = keys.revoke(store, devices)
    text = f"revoked: {counted(len(devices), 'device')}; 'tern broker config' takes their passwords away too"
    text += _of_fleet(fleet)
    print_result(
        {"revoked": devices, "store": args.store, "fleet_epoch": fleet.epoch}, text, args.json
    )
    return OK


def run_list(args: argparse.Namespace) -> int:
    with Store(args.store, create=False, beside=True) as store:
        devices = keys.list_devices(store)
        boards = {board.first: board for board in store.boards()}
    lines, rows = [], []
    for device in devices:
        line = f"{device.id:>10}  "
        line += f"revoked {_when(device.revoked)}" if device.revoked is not None else "has a key"
        line += f", wakes every {device.wake} s" if device.wake else ""
        line += f", heard {_when(device.heard)}" if device.heard else ""
        row = {
            "id": device.id,
            "revoked": device.revoked,
            "wake_s": device.wake,
            "heard": device.heard,
        }
        if (board := boards.get(device.id)) is not None:
            row |= _budget(board)
            line += _budget_words(board)
        lines.append(line)
        rows.append(row)
    print_result({"devices": rows}, "\n".join(lines) or "no devices", args.json)
    return OK


def _budget(board: BoardRow) -> dict[str, float]:
    """What the first device of a board has left and has spent, for JSON, as far as the board has
    said it.
    """
    amounts = {"left": board.budget_left, "spent": board.paid}
    name = MEASURES[board.measure]
    return {
        f"{name}_{what}": amount / MICRO for what, amount in amounts.items() if amount is not None
    }


def _budget_words(board: BoardRow) -> str:
    """The same for people. A board says it for its first device alone."""
    if board.budget_left is None or board.paid is None:
        return ""
    words = f", {MEASURES[board.measure]} left {board.budget_left / MICRO:g}, spent {board.paid / MICRO:g}"
    others = f" (its board has {counted(board.clients, 'device')})" if board.clients > 1 else ""
    return f"{words}{others}, as of {_when(board.heard)}"


def _when(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
