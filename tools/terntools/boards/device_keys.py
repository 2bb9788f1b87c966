"""`tern keys add|rotate|revoke|list`: the keys of a fleet's devices."""

import argparse
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from ternhost.command import add_command, add_group, add_option, print_result, warn
from ternhost.errors import OK, UsageError
from ternhost.files import private, storage_errors
from ternhost.privacy.accounting import MEASURES
from ternhost.privacy.base import MICRO
from ternhost.provision import keys
from ternhost.store.boards import BoardRow
from ternhost.store.fleet_key import FleetKey
from ternhost.store.store import Store
from ternhost.text import counted
from ternhost.watch.stores import find

_STAYS = (
    "the fleet's key stays; a thief of a device's key has it too: see 'tern keys rotate "
    "--fleet-key'"
)


def add_parser(subparsers: Any) -> None:
    """Add `tern keys` with its verbs add, rotate, revoke and list."""
    actions = add_group(
        subparsers,
        "keys",
        "the keys of a fleet's devices, and what is left of their budgets",
        "tern keys list my-broker",
    )
    add = add_command(
        actions,
        "add",
        "make a key for each device in a store, which is made if it is missing; with --output, also "
        "write each, 32 bytes, into DIR/<id, 8 hex digits>.key",
        "tern keys add 1-20 --store my-fleet/store.sqlite --output new-keys",
        run_add,
    )
    rotate = add_command(
        actions,
        "rotate",
        "make new keys for devices, or a new fleet key; the old ones are refused from the next "
        "round on",
        """tern keys rotate 7 --store my-fleet/store.sqlite --output new-keys
        tern keys rotate --fleet-key --store my-fleet/store.sqlite""",
        run_rotate,
    )
    revoke = add_command(
        actions,
        "revoke",
        "revoke the keys of devices: their reports are refused from now on, and the others get a "
        "new fleet key",
        "tern keys revoke 7 12-15 --store my-fleet/store.sqlite",
        run_revoke,
    )
    show = add_command(
        actions,
        "list",
        "list the devices of a fleet, and what is left of their budgets, as boards said last",
        """tern keys list
        tern keys list my-broker
        tern keys list my-fleet/store.sqlite""",
        run_list,
    )
    text = "name or directory of a run, or a store (default: the newest run)"
    show.add_argument("run", nargs="?", metavar="RUN|STORE", help=text)
    # Options that several actions have.
    for parser in (add, rotate, revoke):
        add_option(parser, "--store FILE", required=True)
    for parser in (add, rotate):
        add_option(parser, "--output DIR", shown="none: the keys are in the store alone")
    for parser, nargs in ((add, "+"), (rotate, "*"), (revoke, "+")):
        parser.add_argument(
            "devices", nargs=nargs, metavar="ID", help="ids, or ranges such as 10-19"
        )
    add_option(
        rotate,
        "--fleet-key",
        "make a new fleet key, which the host sends to its boards over their broker",
    )


def run_add(args: argparse.Namespace) -> int:
    """Make a key for each named device, store it, and print how many there are."""
    devices = keys.parse_ids(args.devices)
    with Store(args.store, beside=True) as store:
        revoked = sorted(store.revoked().keys() & devices)  # which had a key before
        device_keys = keys.add(store, devices)
    if revoked:
        warn(
            f"device {revoked[0]} had a key before: 'tern board provision --again' counts what it has "
            "spent"
        )
    _write(args.output, device_keys)
    result = {"added": list(device_keys), "store": args.store, "output": args.output}
    print_result(result, _head("added", device_keys, args.output), args.json)
    return OK


def run_rotate(args: argparse.Namespace) -> int:
    """Make new keys for devices, a new key for the fleet, or both, and say how boards get them.

    Without --fleet-key, the devices must be named.
    """
    if args.output and not args.devices:
        raise UsageError(
            "--output is for the keys of devices, and none is named", hint="name the devices"
        )
    devices = []
    if args.devices or not args.fleet_key:
        devices = keys.parse_ids(args.devices)  # raises if there are none
    device_keys: dict[int, bytes] = {}
    new_fleet_key = None
    with Store(args.store, create=False, beside=True) as store, store.transaction():
        if devices:
            device_keys = keys.rotate(store, devices)
        if args.fleet_key:
            new_fleet_key = keys.rotate_fleet(store)
    _write(args.output, device_keys)

    result = {"rotated": list(device_keys), "store": args.store, "output": args.output}
    text = _head("rotated", device_keys, args.output)
    if new_fleet_key:
        result["fleet_epoch"] = new_fleet_key.epoch
        text += _fleet_text(new_fleet_key)
    if device_keys:
        text += (
            "\n  give each board its new key before the next round, which refuses the old one: "
            f"tern board provision BOARD --store {args.store} --device {min(device_keys)} --data DATA"
        )
    if not new_fleet_key:
        text += f"\n  {_STAYS}"
    print_result(result, text, args.json)
    return OK


def _head(verb: str, device_keys: dict[int, bytes], directory: str | None) -> str:
    """Return a line for people about the keys that were made.

    verb: what was done, such as "added". directory: where the keys were written, too; None if they
    were not.
    """
    text = f"{verb}: {counted(len(device_keys), 'device')}"
    if directory:
        text += f"; keys in {directory}"
    return text


def _fleet_text(fleet: FleetKey) -> str:
    """Return words for people that a fleet has a new key, to be added to a line."""
    return (
        f"; the fleet has a new key (epoch {fleet.epoch}), which a host brings to the boards on its "
        "broker"
    )


def _write(directory: str | None, device_keys: dict[int, bytes]) -> None:
    """Write each key into a file of its own in a directory; do nothing if none is named.

    device_keys: by device. Only the user can read the files. Raises StorageError.
    """
    if not directory:
        return
    folder = Path(directory)
    hint = "the store has the keys; 'rotate' makes new ones"
    with storage_errors(hint, f"cannot write to {folder}"):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for device, key in device_keys.items():
            with open(folder / f"{device:08x}.key", "wb", opener=private) as file:
                file.write(key)


def run_revoke(args: argparse.Namespace) -> int:
    """Revoke the keys of the named devices, make a new fleet key, and print that."""
    devices = keys.parse_ids(args.devices)
    with Store(args.store, create=False, beside=True) as store:
        new_fleet_key = keys.revoke(store, devices)
    text = f"revoked: {counted(len(devices), 'device')}; "
    text += f"'tern broker config' takes their passwords away too{_fleet_text(new_fleet_key)}"
    result = {"revoked": devices, "store": args.store, "fleet_epoch": new_fleet_key.epoch}
    print_result(result, text, args.json)
    return OK


def run_list(args: argparse.Namespace) -> int:
    """Print the devices of a store, with what their boards have said about their budgets."""
    path, _ = find(args.run)
    with Store(path, create=False, beside=True) as store:
        devices = keys.list_devices(store)
        boards = {board.first: board for board in store.boards()}
    rows = []
    for device in devices:
        row: dict[str, Any] = {
            "id": device.id,
            "revoked": device.revoked,
            "wake_s": device.wake,
            "heard": device.heard,
        }
        if device.id in boards:
            row |= _budget(boards[device.id])
        rows.append(row)

    valid = {device.id for device in devices if device.revoked is None}
    left = _left([board for first, board in boards.items() if first in valid])
    lines = [group.line() for group in _groups(devices, boards)]
    if not lines:
        lines.append(f"no device has a key in {path}; simulated devices need none")
    elif not left:
        lines.append("no board has said what is left of its budget: boards do when a run begins")
    for entry in left:
        lines.append(_left_text(entry))
    print_result({"devices": rows, "left": left, "store": str(path)}, "\n".join(lines), args.json)
    return OK


@dataclass
class _Group:
    """Devices with successive ids about which the list says the same.

    They are a single device, the devices of one board, or devices that are on no board.
    """

    first: int
    last: int
    key_state: str  # words about its keys, such as "has a key"
    board: BoardRow | None  # that of the first device

    def takes(self, device: int, key_state: str) -> bool:
        """Return whether a device belongs to the group, too. key_state: words about its key."""
        if device != self.last + 1 or key_state != self.key_state:
            return False
        return self.board is None or device < self.board.first + self.board.clients

    def line(self) -> str:
        """Describe the devices in one line for people."""
        ids = str(self.first)
        if self.last > self.first:
            ids = f"{self.first}-{self.last}"
        line = f"{ids:>12}  {self.key_state}"
        if self.board is not None:
            line += _budget_text(self.board)
        return line


def _groups(devices: Sequence[keys.Device], boards: Mapping[int, BoardRow]) -> list[_Group]:
    """Return the devices of a store in groups, ordered by id. boards: by their first device."""
    groups: list[_Group] = []
    for device in devices:
        key_state = _key_state(device)
        is_first_of_board = device.id in boards
        if groups and not is_first_of_board and groups[-1].takes(device.id, key_state):
            groups[-1].last = device.id
        else:
            groups.append(_Group(device.id, device.id, key_state, boards.get(device.id)))
    return groups


def _key_state(device: keys.Device) -> str:
    """Return words about the key of a device, and whether it sleeps."""
    text = "has a key"
    if device.revoked is not None:
        text = f"revoked {_when(device.revoked)}"
    if device.wake:
        text += f", wakes every {device.wake} s"
    if device.heard:
        text += f", heard {_when(device.heard)}"
    return text


def _budget(board: BoardRow) -> dict[str, float]:
    """Return what a board's first device has left of its budget and has spent, for JSON.

    The keys have the measure in their names, such as "epsilon_left". What the board has not said is
    left out.
    """
    measure = MEASURES[board.measure]
    amounts = {}
    if board.budget_left is not None:
        amounts[f"{measure}_left"] = board.budget_left / MICRO
    if board.paid is not None:
        amounts[f"{measure}_spent"] = board.paid / MICRO
    return amounts


def _budget_text(board: BoardRow) -> str:
    """Return words about what a board's first device has left of its budget and has spent.

    The result is "" if the board has not said it. A board says it for its first device alone.
    """
    if board.budget_left is None or board.paid is None:
        return ""
    left = board.budget_left / MICRO
    spent = board.paid / MICRO
    text = f", {MEASURES[board.measure]} left {left:g}, spent {spent:g}"
    if board.clients > 1:
        text += f" (of device {board.first})"
    return f"{text}, as of {_when(board.heard)}"


def _left(boards: Sequence[BoardRow]) -> list[dict[str, Any]]:
    """Return what is left of the budgets of a fleet, for JSON: an object for each measure.

    It is about the first device of each board, since a board says it for that one alone.
    """
    amounts_by_measure = defaultdict(list)
    devices_by_measure: Counter[str] = Counter()
    for board in boards:
        if board.budget_left is not None:
            measure = MEASURES[board.measure]
            amounts_by_measure[measure].append(board.budget_left / MICRO)
            devices_by_measure[measure] += board.clients
    entries = []
    for measure, amounts in amounts_by_measure.items():
        entry = {
            "measure": measure,
            "boards": len(amounts),
            "devices": devices_by_measure[measure],
            "least": min(amounts),
            "mean": fmean(amounts),
            "most": max(amounts),
        }
        entries.append(entry)
    return entries


def _left_text(entry: Mapping[str, Any]) -> str:
    """Return a line for people about an object of `_left`."""
    boards = counted(entry["boards"], "board")
    devices = counted(entry["devices"], "device")
    amount = f"{entry['least']:g} to {entry['most']:g}, on average {entry['mean']:g}"
    if entry["least"] == entry["most"]:
        amount = f"{entry['mean']:g}"
    text = f"{entry['measure']} left: {amount} ({boards} with {devices}"
    if entry["devices"] > entry["boards"]:
        text += ", of which each board tells it of its first"
    return f"{text})"


def _when(seconds: float) -> str:
    """Return a time of time.time() for people, such as "2026-03-01 14:05"."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
