"""Make a board a member of a fleet: its key, what it may release, its records, and where its host is.

The device's key is in the host's store before it is on the board, and clients.bin, which makes it a member, comes last:
so what was cut off goes on with the same key. A ledger is made where there is none, and never written over.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from tern import storage, wire
from tern.fixed import ONE
from tern.ledger import Ledger, LedgerError
from ternhost import datasets
from ternhost.errors import RefusedError, UsageError
from ternhost.privacy import cards
from ternhost.privacy.accounting import Policy
from ternhost.privacy.base import MICRO, parse_epsilon
from ternhost.provision import keys
from ternhost.provision.boards import Rows, provision_board
from ternhost.reach.broker.attach import fleet_file
from ternhost.reach.broker.configuration import check_prefix
from ternhost.store import sleepers
from ternhost.store.fleet_key import OWN_KEY_ONLY, FleetKey
from ternhost.store.round_numbers import last_number
from ternhost.store.store import Store
from terntools.boards import deploy, lock
from terntools.boards.repl import Repl

MQTT = "mqtt.json"
AUTHORITY = "authority.der"
SHAPES = {name: number for number, name in cards.SHAPES.items()}

_MQTT_PORT, _MQTT_TLS_PORT = 1883, 8883
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:]+\]")
_MAX_RECORDS = 0xFFFF
_LEAST_BOUND = 64
_RECORD = "a row is a record: its features, then its label"


@dataclass(frozen=True)
class Broker:
    """Where a board finds its broker, and through which Wi-Fi network. The secret is never part of a repr."""

    host: str
    port: int
    authority: bytes | None = None  # DER; without it, no TLS
    ssid: str | None = None
    wifi_secret: str | None = field(default=None, repr=False)
    prefix: str | None = None

    @classmethod
    def parse(
        cls,
        address: str,
        authority: Path | None = None,
        ssid: str | None = None,
        wifi_secret_file: Path | None = None,
        prefix: str | None = None,
    ) -> Broker:
        """Read HOST[:PORT] and the files. Raises UsageError."""
        host, colon, port = address.rpartition(":") if not address.endswith("]") else (address, "", "")
        if not colon:
            host, port = address, str(_MQTT_TLS_PORT if authority else _MQTT_PORT)
        if not _HOST.fullmatch(host) or not (port.isdecimal() and 1 <= int(port) <= 65535):
            raise UsageError(
                f"--broker must be HOST or HOST:PORT, not {address!r}", hint="such as broker.example:8883"
            )
        if prefix is not None:
            check_prefix(prefix)
        secret = _read_secret(wifi_secret_file) if wifi_secret_file else None
        if ssid is not None and not 1 <= len(ssid.encode()) <= 32:
            raise UsageError(f"--ssid must have 1 to 32 bytes, not {len(ssid.encode())}")
        if secret is not None and ssid is None:
            raise UsageError("a Wi-Fi password needs a network", hint="name the network with --ssid")
        if secret is not None and not 8 <= len(secret) <= 64:
            raise UsageError("the Wi-Fi password must have 8 to 63 characters", hint="WPA2 asks for that")
        certificate = deploy.read_file(authority) if authority else None
        if certificate is not None and certificate[:1] != b"\x30":
            raise UsageError(
                f"{authority} is not a certificate in DER", hint=f"take {AUTHORITY} of the broker's folder"
            )
        return cls(host.strip("[]"), int(port), certificate, ssid, secret, prefix)

    def files(self, wake: int | None = None) -> dict[str, bytes]:
        """What goes on the board. wake: as of Member."""
        config: dict[str, Any] = {"host": self.host, "port": self.port}
        if wake is not None:
            config["wake_s"] = wake
        files = {}
        if self.authority is not None:
            config["authority"] = AUTHORITY
            files["/" + AUTHORITY] = self.authority
        for name, value in (
            ("ssid", self.ssid),
            ("wifi_password", self.wifi_secret),
            ("prefix", self.prefix),
        ):
            if value is not None:
                config[name] = value
        files["/" + MQTT] = json.dumps(config).encode()
        return files


@dataclass(frozen=True)
class Member:
    """The wanted state of a board: one client of a fleet. Epsilons are in millionths; no `shapes` mean all."""

    device: int
    rows: Rows
    policy: Policy
    shapes: tuple[str, ...] = ()
    whole_fleet: bool = True  # it has the fleet's key, and so answers rounds for the whole fleet
    pause: int = 0  # as of fleet_file: s,
    slot: int = 0  # ms,
    reserve: int = 1  # reports
    most_records: int | None = None  # public upper bound; None: large enough for `rows`
    broker: Broker | None = None
    lock: bool = False  # the board's console is closed
    wake: int | None = None  # it sleeps, and wakes every so many seconds

    def __post_init__(self) -> None:
        keys.parse_ids([str(self.device)])
        if unknown := set(self.shapes) - set(SHAPES):
            raise UsageError(
                f"--mechanisms must be of {', '.join(SHAPES)}, not {sorted(unknown)[0]!r}",
                hint="separate them with commas",
            )
        if self.most_records is not None and not 1 <= self.most_records <= _MAX_RECORDS:
            raise UsageError(f"--most-records must be 1 to {_MAX_RECORDS}, not {self.most_records}")
        self._check_wake()
        self.fleet_file(FleetKey(bytes(wire.KEY_BYTES), 1))
        check_fits(self.rows)

    def _check_wake(self) -> None:
        if self.wake is None:
            return
        if not 1 <= self.wake <= sleepers.LONGEST:
            raise UsageError(
                f"--wake-s must be 1 to {sleepers.LONGEST} seconds, not {self.wake}",
                hint="a board that does not sleep needs no --wake-s",
            )
        if self.broker is None:
            raise UsageError(
                "--wake-s needs a broker: a sleeping board receives nothing at its port",
                hint="name the broker with --broker HOST[:PORT], which keeps the round until it wakes",
            )
        if self.reserve > 1:
            raise UsageError(
                f"--reserve {self.reserve} and --wake-s are at odds: a sleep is as a power cut, and each would throw "
                f"away up to {self.reserve - 1} reports that are paid for",
                hint="leave out --reserve: each report is then paid for by itself",
            )
        if self.pause > 0:
            raise UsageError(
                f"--pause {self.pause} and --wake-s are at odds: a board that has just started waits {self.pause} s "
                "before it answers, and sleeps by then",
                hint="leave out --pause, and give the host that interval: tern serve --interval",
            )
        if self.lock:
            raise UsageError(
                "--lock and --wake-s are at odds: a locked board runs tern's own main.py, which never sleeps",
                hint="leave out one of the two",
            )

    def fleet_file(self, fleet: FleetKey) -> bytes:
        """fleet.bin with the fleet's key. Raises UsageError."""
        records = self.most_records or _most_records(len(self.rows))
        return fleet_file(fleet.key, self.pause, self.slot, self.reserve, fleet.epoch, records)


def check_fits(rows: Rows) -> None:
    """Raise UsageError where these are more records, or larger ones, than a device holds."""
    if not 1 <= len(rows) <= _MAX_RECORDS or not 1 <= rows.shape[1] - 1 <= wire.MAX_DIMENSION:
        raise UsageError(
            f"{len(rows)} records of {rows.shape[1] - 1} features do not fit a device",
            hint=f"at most {_MAX_RECORDS} records of 1 to {wire.MAX_DIMENSION} features, the constant one included",
        )


def _most_records(count: int) -> int:
    # Everybody may know it, and it tells little: the smallest power of two from 64 on that is not below `count`.
    return min(max(_LEAST_BOUND, 1 << (count - 1).bit_length()), _MAX_RECORDS)


def policy(largest: str, budget: str) -> Policy:
    """Read the policy from epsilons in decimal. Raises UsageError."""
    parsed = Policy(parse_epsilon(largest), _budget(budget))
    if parsed.largest > parsed.budget:
        raise UsageError(
            f"--largest must be at most --budget, the device's budget for life ({budget}), not {largest}",
            hint="--budget = --largest x the number of reports pays for that many",
        )
    return parsed


def _budget(text: str) -> int:
    # In micro-epsilon. A budget for life may be more than any card's epsilon.
    try:
        micro = Decimal(text) * MICRO
    except ArithmeticError:
        raise UsageError(f"--budget must be a number, not {text!r}", hint="such as --budget 100") from None
    if not micro.is_finite() or micro != micro.to_integral_value():
        raise UsageError(
            f"--budget must be a whole number of millionths, not {text!r}", hint="such as --budget 100"
        )
    return int(micro)


def read_records(path: str | Path, *, classes: bool = False) -> Rows:
    """Records of a CSV file, as int16, Q1.14: a row a record, features and then the label, all in [-1, 1].

    classes: labels are numbers of classes, from 0, and stay as they are. A first row of names and empty lines are
    skipped. Raises UsageError, which names the line.
    """
    values: list[list[float]] = []
    try:
        # Without -sig a byte order mark would make the first row one of names.
        with open(path, newline="", encoding="utf-8-sig") as file:
            rows = csv.reader(file)
            for number, row in enumerate(rows, 1):
                if not row or (number == 1 and not any(map(_is_number, row))):
                    continue
                values.append(
                    _record(row, f"{path}, line {rows.line_num}", len(values[0]) if values else None, classes)
                )
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path} is no CSV file in UTF-8", hint="save it as CSV, in UTF-8") from error
    if not values:
        raise UsageError(f"{path} holds no records", hint=_RECORD)
    units = np.full(len(values[0]), ONE)
    if classes:
        units[-1] = 1
    scaled: Rows = np.rint(np.array(values) * units).astype(np.int16)
    return scaled


def _record(row: Sequence[str], where: str, width: int | None, classes: bool) -> list[float]:
    # `width`: of the rows before. `where`: begins every complaint.
    if len(row) != (width or max(2, len(row))):
        raise UsageError(f"{where} must have {width or '2 or more'} values, not {len(row)}", hint=_RECORD)
    if classes and not (row[-1].strip().isdigit() and int(row[-1]) < wire.MAX_DIMENSION):
        raise UsageError(
            f"{where}: the label must be the number of a class, 0 to {wire.MAX_DIMENSION - 1}, not {row[-1].strip()}"
        )
    for cell in row[:-1] if classes else row:
        if not _is_number(cell):
            raise UsageError(f"{where}: {cell!r} is not a number", hint=_RECORD)
        if abs(float(cell)) > 1:
            raise UsageError(
                f"{where}: values must be in [-1, 1], not {cell.strip()}",
                hint="scale each feature by bounds that you fix beforehand",
            )
    return [float(cell) for cell in row]


def _is_number(cell: str) -> bool:
    try:
        return not math.isnan(float(cell))
    except ValueError:
        return False


def has_labels_0_and_1(rows: Rows) -> bool:
    """Whether the labels are 0, or 0 and 1: not what is usual here, -1 and 1."""
    labels = set(rows[:, -1].tolist())
    return 0 in labels and labels <= {0, ONE}


def dataset_records(name: str, device: int, count: int, *, classes: bool = False) -> Rows:
    """`count` training records of a data set for a trial: those that follow from the device's id."""
    dataset = datasets.held(name, classes=classes)
    at = (np.arange(count) + (device - 1) * count) % len(dataset.training)
    return dataset.records(dataset.training[at])


def plan(repl: Repl, member: Member, store: Store) -> deploy.Changes:
    """Changes that make the board this member. The device's key is taken from `store`, or made there.

    Raises RefusedError where the board is another device or its ledger is lost or damaged, and UsageError.
    """
    if member.lock:
        lock.check(repl, network=member.broker is not None)
    there = _device(repl)
    if there is not None and there != member.device:
        raise RefusedError(
            f"the board on {repl.name} is device {there} already, with a ledger of its own",
            hint=f"provision it as --device {there}; to make it another one, flash it with --erase first",
        )
    ledger = "/" + storage.ledger_name(member.device)
    has_ledger = ledger in repl.directory("/" + storage.LEDGERS)
    if has_ledger:
        _check_ledger(repl, ledger, member)
    elif there is not None:
        # clients.bin is written last: there was a ledger, whatever is asked for now.
        raise _ledger_refusal(repl, member, "has lost its ledger")
    known = store.keys()
    key = known[member.device] if member.device in known else keys.add(store, [member.device])[member.device]
    sleepers.set_wake(store, member.device, member.wake)
    # Without the fleet's key it gets one that nobody asks with and that none follows; and the same each time.
    alone = FleetKey(hashlib.sha256(b"tern alone" + key).digest(), OWN_KEY_ONLY)
    fleet = keys.fleet_key(store) if member.whole_fleet else alone
    files = _files(member, key, fleet, last_number(store))
    if has_ledger:
        del files[ledger]
    changes = deploy.compare(repl, files)
    optional = ("/" + MQTT, "/" + AUTHORITY, *((lock.BOOT,) if member.lock else ()))
    present = repl.hashes([path for path in optional if path not in files])
    return deploy.Changes(changes.write, tuple(present))


def _files(member: Member, key: bytes, fleet: FleetKey, last: int) -> dict[str, bytes]:
    # Path on the board -> content; clients.bin last, but for the lock: after that there is no way back.
    with tempfile.TemporaryDirectory(prefix="tern-provision-") as folder:
        board = Path(folder, "board")
        provision_board(board, member.device, [key], member.rows, member.policy, _mask(member.shapes), last)
        names = (storage.RECORDS, storage.ledger_name(member.device), storage.CLIENTS)
        records, ledger, clients = ((board / name).read_bytes() for name in names)
    files = {"/" + names[0]: records, "/" + names[1]: ledger}
    files["/" + storage.FLEET] = member.fleet_file(fleet)
    if member.broker:
        files.update(member.broker.files(member.wake))
    files["/" + names[2]] = clients
    if member.lock:
        files.update(lock.files(network=member.broker is not None))
    return files


def _mask(shapes: Sequence[str]) -> int:
    return sum(1 << SHAPES[shape] for shape in set(shapes))


def _device(repl: Repl) -> int | None:
    # Whose clients.bin is on the board.
    path = "/" + storage.CLIENTS
    if path not in repl.directory("/"):
        return None
    return int.from_bytes(repl.read_file(path)[:4], "little")


def _check_ledger(repl: Repl, path: str, member: Member) -> None:
    # The device would obey the smaller of the two budgets, and the user believe in the larger one.
    account = Ledger()
    with tempfile.TemporaryDirectory(prefix="tern-provision-") as folder:
        copy = Path(folder, "ledger")
        copy.write_bytes(repl.read_file(path))
        try:
            account.load(str(copy))
        except LedgerError as error:
            raise _ledger_refusal(repl, member, f"has a bad ledger ({error})") from error
    if member.policy.budget > account.budget:
        fixed, wanted = (f"{Decimal(micro) / MICRO:f}" for micro in (account.budget, member.policy.budget))
        raise UsageError(
            f"the budget of device {member.device} was set to {fixed} for life and cannot be raised to {wanted}",
            hint=f"name --budget {fixed} or less; a new device id needs an erased board (tern flash --erase)",
        )


def _ledger_refusal(repl: Repl, member: Member, what: str) -> RefusedError:
    return RefusedError(
        f"device {member.device} on {repl.name} {what}: nobody knows what it has released",
        hint="give the board a new device id and key, on erased flash",
    )


def _read_secret(path: Path) -> str:
    try:
        return deploy.read_file(path).decode("utf-8-sig").strip("\r\n")
    except UnicodeDecodeError:  # which holds the secret, and so is not kept as the cause
        raise UsageError(
            f"{path} is no text in UTF-8", hint="save the Wi-Fi password as text, alone"
        ) from None
