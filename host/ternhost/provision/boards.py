"""Makes the files of boards (shared_specs/storage.md, ledger.md): keys, records, fresh ledgers."""

import secrets
import struct
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tern import ledger, storage, wire
from ternhost.datasets import Dataset, Table
from ternhost.errors import StorageError, UsageError
from ternhost.files import private
from ternhost.options import require
from ternhost.privacy.accounting import Policy
from ternhost.privacy.base import MICRO
from ternhost.privacy.sums import epsilon_of
from ternhost.store.fleet_key import OWN_KEY_ONLY
from ternhost.store.round_numbers import last_number
from ternhost.store.store import Store

_FIELDS = ["id", "key", "largest", "budget", "start", "records", "shapes"]
_CLIENT = np.dtype({"names": _FIELDS, "formats": ["<u4", "V32", "<u4", "<u4", "<u4", "<u2", "<u2"]})
assert _CLIENT.itemsize == storage.CLIENT_BYTES == struct.calcsize(storage.CLIENT)

Rows = npt.NDArray[np.int16]


def new_keys(devices: Sequence[int]) -> dict[int, bytes]:
    """Draw a key for each device from the operating system's generator."""
    drawn = secrets.token_bytes(wire.KEY_BYTES * len(devices))  # at once: there may be a million
    keys = {}
    for start, device in zip(range(0, len(drawn), wire.KEY_BYTES), devices, strict=True):
        keys[device] = drawn[start : start + wire.KEY_BYTES]
    return keys


@dataclass(frozen=True)
class BoardSettings:
    """What else the files of a new board say.

    shapes: of cards that its clients accept (storage.md). last_round: they refuse rounds up to this
    one. step: of a counter to which the ledger of an only client is bound.
    """

    shapes: int = 0
    last_round: int = 0
    step: int = 0


_DEFAULTS = BoardSettings()


def board_files(
    first: int,
    keys: Sequence[bytes],
    rows: Rows,
    policy: Policy,
    settings: BoardSettings = _DEFAULTS,
    spent: int = 0,
) -> dict[str, bytes]:
    """Return the contents of the files that `provision_board` writes.

    spent: what the only client has paid in an earlier life, for rounds up to the last one, in
    millionths and below its budget. The contents are by path below the board's directory.
    """
    with tempfile.TemporaryDirectory(prefix="tern-board-") as folder:
        board = Path(folder, "board")
        provision_board(board, first, keys, rows, policy, settings)
        if spent:
            _pay(board / storage.ledger_name(first), spent)
        contents = {}
        for path in board.rglob("*"):
            if path.is_file():
                contents[path.relative_to(board).as_posix()] = path.read_bytes()
        return contents


def _pay(path: Path, amount: int) -> None:
    """Enter a payment for the last round of a ledger, without a report that could be repeated."""
    account = ledger.Ledger()
    account.load(str(path))
    last_round = account.round
    account.round = last_round - 1  # a ledger pays only for a later round than its last
    account.pay(last_round, bytes(wire.KEY_BYTES), amount, b"")


def provision_board(
    directory: str | Path,
    first: int,
    keys: Sequence[bytes],
    rows: Rows,
    policy: Policy | Sequence[Policy],
    settings: BoardSettings = _DEFAULTS,
) -> None:
    """Write the files of a board with clients `first`, `first + 1`, and so on, one for each key.

    rows: the records of all clients (n x d + 1, in Q1.14): d features and a label in each row. The
    clients share them as evenly as possible. policy: of all clients, or of each. Raises UsageError;
    and StorageError, also if the directory holds a board already: its ledgers must not be reset.
    """
    directory = Path(directory)
    devices = range(first, first + len(keys))
    if not 1 <= first <= devices.stop - 1 < wire.FLEET or not len(keys) <= len(rows):
        raise UsageError("every client needs an id from 1 and at least one record")
    if isinstance(policy, Policy):
        policies: Sequence[Policy] = [policy] * len(keys)
    else:
        policies = policy
    clients = _clients_table(devices, keys, policies, len(rows))
    clients["shapes"] = settings.shapes
    header = struct.pack(storage.RECORDS_HEADER, storage.MAGIC, rows.shape[1] - 1, len(rows))
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        (directory / storage.LEDGERS).mkdir(mode=0o700)
        _write(directory / storage.RECORDS, header + np.ascontiguousarray(rows, "<i2").tobytes())
        _write_ledgers(directory, devices, policies, settings)
        _write(directory / storage.CLIENTS, clients.tobytes())
    except FileExistsError as error:
        hint = "name another directory (--store), or go on with a run that made it (--resume)"
        raise StorageError(f"{directory} holds a board already", hint) from error
    except (OSError, ledger.LedgerError) as error:
        text = f"cannot write a board's files: {error}"
        raise StorageError(text, hint="make room on the disk") from error


def _clients_table(
    devices: range, keys: Sequence[bytes], policies: Sequence[Policy], records: int
) -> npt.NDArray[np.void]:
    """Return the rows of clients.bin (storage.md).

    policies: of each device. records: how many the board has; its clients share them evenly.
    """
    starts = np.arange(len(keys) + 1) * records // len(keys)  # the last one is the end
    clients = np.zeros(len(keys), _CLIENT)
    clients["id"] = devices
    clients["key"] = np.frombuffer(b"".join(keys), "V32")
    clients["largest"] = [each.largest for each in policies]
    clients["budget"] = [each.budget for each in policies]
    clients["start"] = starts[:-1]
    clients["records"] = np.diff(starts)
    return clients


def fleet_file(
    fleet_key: bytes,
    pause: int = 0,
    slot: int = 0,
    ahead: int = 1,
    epoch: int = 1,
    records: int = 0,
    unit: int = 0,
) -> bytes:
    """Encode fleet.bin (storage.md), which all boards of a fleet have. Raises UsageError.

    pause: least seconds between two debits. slot: ms after which to send. ahead: reports paid for
    at once. epoch: of the key. records: public upper bound on records per client (0: none). unit:
    records of a run that is protected (0: the client).
    """
    require(0 <= pause <= storage.MAX_PAUSE, "pause", f"0 to {storage.MAX_PAUSE} seconds", pause)
    require(0 <= slot <= 0xFFFF, "slot_ms", "0 to 65535", slot)
    require(1 <= ahead <= storage.MAX_AHEAD, "reserve", f"1 to {storage.MAX_AHEAD} reports", ahead)
    if not (0 <= epoch <= 0xFFFFFFFF and 0 <= records <= 0xFFFF):
        text = f"an epoch has 32 bits and a bound of records 16, not {epoch} and {records}"
        raise UsageError(text)
    numbers = (pause, slot, ahead, epoch, records, unit)
    return struct.pack(storage.FLEET_FIELDS, storage.FLEET_MAGIC, fleet_key, *numbers)


FLEET_NAME = "fleet"  # directory of a run with the files of its boards
_EMULATED = "emulated"  # in a store: the last of the emulated devices, which begin with 1


def board_directories(directory: Path, boards: int) -> list[Path]:
    """Return the directories of the boards that tern makes for a run.

    directory: of the run. boards: how many there are.
    """
    return [directory / FLEET_NAME / f"board-{board:03d}" for board in range(boards)]


def provision_fleet(
    store: Store,
    directories: Sequence[Path],
    rows: Rows,
    policies: Policy | Sequence[Policy],
    each: int = 1,
    unit: int = 0,
) -> None:
    """Make emulated boards with devices from 1 on, and store their keys.

    rows: records with labels, `each` of them for a device. policies: of all devices, or of each.
    unit: how many records of a run the boards protect; 0: the whole device. Raises UsageError if
    the store has the keys of other devices.
    """
    devices = len(rows) // each
    last_emulated = store.state(_EMULATED) or 0
    if max(store.keys(), default=0) > last_emulated:
        text = f"{store.path} holds keys of devices that are not emulated, and they would be lost"
        raise UsageError(text, "name another --store")
    keys = new_keys(range(1, devices + 1))
    settings = BoardSettings(last_round=last_number(store))
    # Board b has the devices after the first `bounds[b]`, up to `bounds[b + 1]`.
    bounds = [devices * board // len(directories) for board in range(len(directories) + 1)]
    for directory, (start, end) in zip(directories, pairwise(bounds), strict=True):
        board_keys = [keys[device] for device in range(start + 1, end + 1)]
        board_rows = rows[start * each : end * each]
        board_policies = policies
        if not isinstance(policies, Policy):
            board_policies = policies[start:end]
        provision_board(directory, start + 1, board_keys, board_rows, board_policies, settings)
        if unit:
            # The unit stands beside the fleet's key. Here that is a key that nobody uses: the
            # devices answer under their own keys.
            unused_key = secrets.token_bytes(wire.KEY_BYTES)
            content = fleet_file(unused_key, epoch=OWN_KEY_ONLY, unit=unit)
            _write(directory / storage.FLEET, content)
    store.save_state({_EMULATED: max(last_emulated, devices)})
    store.add_devices(keys)  # last: existing boards keep their keys


def dealt_records(dataset: Dataset | Table, clients: int, each: int, seed: int) -> Rows:
    """Draw records of a data set for clients, `each` for every client.

    Raises UsageError if the data set has fewer.
    """
    most = len(dataset.training)
    if clients * each > most:
        text = f"{dataset.name} has {most} records, {each} a client, not {clients * each}"
        raise UsageError(text, f"ask for at most --clients {most // each}")
    positions = np.random.default_rng(seed).permutation(dataset.training)[: clients * each]
    if each == 1:
        positions.sort()
    return dataset.records(positions)


def epsilon_spent(directories: Sequence[Path], delta: float = 1e-6) -> list[list[float]]:
    """Count the clients of boards by what they have spent, as their ledgers say.

    Return pairs [epsilon, number of clients], the smallest epsilon first. delta: at which the rho
    of a ledger is converted to an epsilon. A ledger that cannot be read is left out: its client
    never reports again.
    """
    clients_by_spent: Counter[float] = Counter()
    account = ledger.Ledger()
    for directory in directories:
        for path in (directory / storage.LEDGERS).iterdir():
            if path.suffix:  # a killed board may leave half of a new ledger (NAME.new)
                continue
            with suppress(ledger.LedgerError):
                account.load(str(path))
                spent = account.spent / MICRO
                if account.measure == ledger.RHO:
                    spent = epsilon_of(account.spent, delta)
                clients_by_spent[spent] += 1
    return [[spent, clients] for spent, clients in sorted(clients_by_spent.items())]


def _write_ledgers(
    directory: Path, devices: Sequence[int], policies: Sequence[Policy], settings: BoardSettings
) -> None:
    """Write a fresh ledger for each device.

    Ledgers with the same budget have the same contents: one is made, and copied for the others.
    """
    measure = policies[0].measure
    contents_by_budget: dict[int, bytes] = {}
    for device, policy in zip(devices, policies, strict=True):
        path = directory / storage.ledger_name(device)
        if policy.budget in contents_by_budget:
            _write(path, contents_by_budget[policy.budget])
        else:
            ledger.create(str(path), policy.budget, settings.last_round, settings.step, measure)
            contents_by_budget[policy.budget] = path.read_bytes()


def _write(path: Path, data: bytes) -> None:
    with open(path, "xb", opener=private) as file:
        file.write(data)
