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
from ternhost.datasets.holdings import MOST_RECORDS
from ternhost.errors import StorageError, UsageError
from ternhost.files import private
from ternhost.options import require
from ternhost.privacy.accounting import Policy
from ternhost.privacy.base import MICRO
from ternhost.privacy.sums import epsilon_of
from ternhost.store import labels
from ternhost.store.fleet_key import OWN_KEY_ONLY
from ternhost.store.round_numbers import last_number
from ternhost.store.store import Store

# A row of clients.bin (storage.md), as NumPy describes it: little-endian integers, and a key.
_FIELDS = ["id", "key", "largest", "budget", "start", "records", "shapes"]
_CLIENT = np.dtype({"names": _FIELDS, "formats": ["<u4", "V32", "<u4", "<u4", "<u4", "<u2", "<u2"]})
assert _CLIENT.itemsize == storage.CLIENT_BYTES == struct.calcsize(storage.CLIENT)

Rows = npt.NDArray[np.int16]


def new_keys(devices: Sequence[int]) -> dict[int, bytes]:
    """Draw a random key for each device id; return the keys by device."""
    # All at once from the operating system's generator: there may be a million.
    drawn = secrets.token_bytes(wire.KEY_BYTES * len(devices))
    keys = {}
    for start, device in zip(range(0, len(drawn), wire.KEY_BYTES), devices, strict=True):
        keys[device] = drawn[start : start + wire.KEY_BYTES]
    return keys


@dataclass(frozen=True)
class BoardSettings:
    """Further settings in the files of a new board.

    shapes: which shapes of cards (certified tables from which reports are sampled) its clients
    accept, bit s for shape s (storage.md); 0: all.
    last_round: its clients refuse rounds with this number or a smaller one.
    counts: how many records each client has, one after the other; empty: they share the records as
    evenly as possible.
    step: of the chip's counter that guards the ledger against an old copy of the flash; 0: none. It
    needs a board with a single client.
    """

    shapes: int = 0
    last_round: int = 0
    step: int = 0
    counts: Sequence[int] = ()


_DEFAULTS = BoardSettings()


def board_files(
    first: int,
    keys: Sequence[bytes],
    rows: Rows,
    policy: Policy,
    settings: BoardSettings = _DEFAULTS,
    spent: int = 0,
) -> dict[str, bytes]:
    """Return the contents of the files that `provision_board` writes, by their path on the board.

    spent: what the only client has spent before it got these files, in millionths of its measure,
    and less than its budget. The other parameters are those of `provision_board`.
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
    """Write into a new ledger file that `amount` (millionths) was spent in its last round.

    The ledger then holds no report that the device could send again.
    """
    account = ledger.Ledger()
    account.load(str(path))
    last_round = account.round
    account.round = last_round - 1  # a ledger pays only for a round after its last one
    no_key = bytes(wire.KEY_BYTES)
    no_report = b""
    account.pay(last_round, no_key, amount, no_report)


def provision_board(
    directory: str | Path,
    first: int,
    keys: Sequence[bytes],
    rows: Rows,
    policy: Policy | Sequence[Policy],
    settings: BoardSettings = _DEFAULTS,
) -> None:
    """Write the files of a new board: its clients, their records, and a fresh ledger for each.

    directory: for the files; it is made. first: the id of the first client; the others have the
    ids after it. keys: one for each client. rows: the records of all clients together, n x (d + 1)
    numbers in Q1.14: d features and the label. The clients share them as `settings` say.
    policy: the limits of all clients, or of each.

    Raises UsageError; StorageError, also if there is a board in the directory, since that would
    reset ledgers.
    """
    directory = Path(directory)
    devices = range(first, first + len(keys))
    ids_are_valid = 1 <= first <= devices.stop - 1 < wire.FLEET
    if not ids_are_valid or len(rows) < len(keys):
        raise UsageError("every client needs an id from 1 and at least one record")
    if isinstance(policy, Policy):
        policies: Sequence[Policy] = [policy] * len(keys)
    else:
        policies = policy
    clients = _clients_table(
        devices, keys, policies, _starts(settings.counts, len(keys), len(rows))
    )
    clients["shapes"] = settings.shapes
    features = rows.shape[1] - 1
    header = struct.pack(storage.RECORDS_HEADER, storage.MAGIC, features, len(rows))
    records = np.ascontiguousarray(rows, "<i2").tobytes()
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        (directory / storage.LEDGERS).mkdir(mode=0o700)
        _write(directory / storage.RECORDS, header + records)
        _write_ledgers(directory, devices, policies, settings)
        _write(directory / storage.CLIENTS, clients.tobytes())
    except FileExistsError as error:
        hint = "name another directory (--store), or go on with a run that made it ('tern resume')"
        raise StorageError(f"{directory} holds a board already", hint) from error
    except (OSError, ledger.LedgerError) as error:
        text = f"cannot write a board's files: {error}"
        raise StorageError(text, hint="make room on the disk") from error


def _clients_table(
    devices: range,
    keys: Sequence[bytes],
    policies: Sequence[Policy],
    starts: npt.NDArray[np.int64],
) -> npt.NDArray[np.void]:
    """Return the rows of the file clients.bin (storage.md), one for each device of a board.

    keys, policies: of each device. starts: where the records of each device begin, and at last
    where those of the last one end. Raises UsageError for more records than a device can hold.
    """
    most = int(np.diff(starts).max())
    if most > MOST_RECORDS:
        text = f"a device holds at most {MOST_RECORDS:,} records, not {most:,}"
        raise UsageError(text, "name a smaller number: --records")
    clients = np.zeros(len(keys), _CLIENT)
    clients["id"] = devices
    clients["key"] = np.frombuffer(b"".join(keys), "V32")
    clients["largest"] = [policy.largest for policy in policies]
    clients["budget"] = [policy.budget for policy in policies]
    clients["start"] = starts[:-1]
    clients["records"] = np.diff(starts)
    return clients


def _starts(counts: Sequence[int], clients: int, records: int) -> npt.NDArray[np.int64]:
    """Return where the records of each client begin, and at last where those of the last one end.

    counts: how many each client has; empty: client i gets the records from floor(i records /
    clients) on, so that all have equally many, up to one.
    """
    if len(counts):
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return np.arange(clients + 1) * records // clients


def fleet_file(
    fleet_key: bytes,
    pause: int = 0,
    slot: int = 0,
    ahead: int = 1,
    epoch: int = 1,
    records: int = 0,
    unit: int = 0,
) -> bytes:
    """Encode the file fleet.bin (storage.md), which every board of a fleet has.

    fleet_key: under which the host addresses all boards at once.
    pause: a device waits at least so many seconds between two reports that it pays for.
    slot: boards answer only at multiples of so many milliseconds, so that the time tells nothing.
    ahead: how many reports a device pays for at once, which saves its flash.
    epoch: of the key; each later key of the fleet has a larger one.
    records: the public upper bound on the records of a client; 0: there is none.
    unit: what is protected, in consecutive records; 0: the whole device.

    Raises UsageError for a number out of range.
    """
    require(0 <= pause <= storage.MAX_PAUSE, "pause", f"0 to {storage.MAX_PAUSE} seconds", pause)
    require(0 <= slot <= 0xFFFF, "slot_ms", "0 to 65535", slot)
    require(1 <= ahead <= storage.MAX_AHEAD, "reserve", f"1 to {storage.MAX_AHEAD} reports", ahead)
    if not (0 <= epoch <= 0xFFFFFFFF and 0 <= records <= 0xFFFF):
        text = f"an epoch has 32 bits and a bound of records 16, not {epoch} and {records}"
        raise UsageError(text)
    numbers = (pause, slot, ahead, epoch, records, unit)
    return struct.pack(storage.FLEET_FIELDS, storage.FLEET_MAGIC, fleet_key, *numbers)


FLEET_NAME = "fleet"  # in the directory of a run, the directory with the files of its boards
_EMULATED = "emulated"  # in the state of a store, the largest id of its emulated devices


def board_directories(directory: Path, boards: int) -> list[Path]:
    """Return the directories of the emulated boards of a run.

    directory: of the run. boards: how many there are.
    """
    return [directory / FLEET_NAME / f"board-{board:03d}" for board in range(boards)]


def provision_fleet(
    store: Store,
    directories: Sequence[Path],
    rows: Rows,
    policies: Policy | Sequence[Policy],
    each: int | Sequence[int] = 1,
    unit: int = 0,
) -> None:
    """Make emulated boards with devices 1, 2, 3, ... and store the devices' keys.

    directories: one for each board. rows: the records of all devices, with labels, one device after
    the other. each: how many of them a device gets, or how many each device gets. policies: the
    limits of all devices, or of each. unit: what the boards protect, in consecutive records; 0: the
    whole device. Raises UsageError if the store has keys of devices that are not emulated.
    """
    if isinstance(each, int):
        each = [each] * (len(rows) // each)
    devices = len(each)
    starts = _starts(each, clients=devices, records=len(rows))
    last_emulated = store.state(_EMULATED) or 0
    if max(store.keys(), default=0) > last_emulated:
        text = f"{store.path} holds keys of devices that are not emulated, and they would be lost"
        raise UsageError(text, "name another --store")
    keys = new_keys(range(1, devices + 1))
    last_round = last_number(store)
    devices_by_board = _split_evenly(devices, parts=len(directories))
    for directory, board_devices in zip(directories, devices_by_board, strict=True):
        first = board_devices.start
        before = first - 1  # how many devices are on the boards before this one
        up_to = before + len(board_devices)
        board_policies = policies
        if not isinstance(policies, Policy):
            board_policies = policies[before:up_to]
        provision_board(
            directory,
            first=first,
            keys=[keys[device] for device in board_devices],
            rows=rows[starts[before] : starts[up_to]],
            policy=board_policies,
            settings=BoardSettings(last_round=last_round, counts=each[before:up_to]),
        )
        if unit:
            _write_unit(directory, unit)
    store.save_state({_EMULATED: max(last_emulated, devices)})
    labels.keep(store, first=1, last=devices, classes=labels.classes_in(rows[:, -1]))
    # Last, so that after an error above the boards that exist still have their keys in the store.
    store.add_devices(keys)


def _split_evenly(devices: int, parts: int) -> list[range]:
    """Split the device ids 1 to `devices` into consecutive ranges that are as long as each other.

    If they cannot be, their lengths differ by 1.
    """
    ends = [devices * part // parts for part in range(parts + 1)]
    return [range(start + 1, end + 1) for start, end in pairwise(ends)]


def _write_unit(directory: Path, unit: int) -> None:
    """Write what a board protects into its file fleet.bin. unit: consecutive records."""
    # The file must have a key of the fleet. Nobody knows this one: devices answer under their own.
    unused_key = secrets.token_bytes(wire.KEY_BYTES)
    content = fleet_file(unused_key, epoch=OWN_KEY_ONLY, unit=unit)
    _write(directory / storage.FLEET, content)


def dealt_records(dataset: Dataset | Table, clients: int, each: int, seed: int) -> Rows:
    """Draw records of a data set at random for some clients, and return them as rows.

    each: how many records a client gets. seed: of the draw. Raises UsageError if the data set has
    too few.
    """
    available = len(dataset.training)
    wanted = clients * each
    if wanted > available:
        text = f"{dataset.name} has {available} records, {each} a client, not {wanted}"
        hint = f"use fewer --records, at most {available}"
        if available >= each:
            hint = f"use at most --clients {available // each}"
        raise UsageError(text, hint)
    positions = np.random.default_rng(seed).permutation(dataset.training)[:wanted]
    if each == 1:
        positions.sort()
    return dataset.records(positions)


def epsilon_spent(directories: Sequence[Path], delta: float = 1e-6) -> list[list[float]]:
    """Read from their ledgers what the clients of boards have spent, and count clients by that.

    directories: of the boards. delta: at which a ledger's rho is converted to an epsilon. Return
    pairs of an epsilon and the number of clients that have spent it, the smallest epsilon first. A
    ledger that cannot be read is left out: its client does not report any more.
    """
    clients_by_epsilon: Counter[float] = Counter()
    account = ledger.Ledger()
    for directory in directories:
        for path in (directory / storage.LEDGERS).iterdir():
            is_incomplete = bool(path.suffix)  # NAME.new, of a board that was killed as it wrote
            if is_incomplete:
                continue
            with suppress(ledger.LedgerError):
                account.load(str(path))
                epsilon = account.spent / MICRO
                if account.measure == ledger.RHO:
                    epsilon = epsilon_of(account.spent, delta)
                clients_by_epsilon[epsilon] += 1
    return [[epsilon, clients] for epsilon, clients in sorted(clients_by_epsilon.items())]


def _write_ledgers(
    directory: Path, devices: Sequence[int], policies: Sequence[Policy], settings: BoardSettings
) -> None:
    """Write a fresh ledger for each device of a board.

    Ledgers with the same budget have the same contents: one is made, and copied for the others,
    which is faster. policies: the limits of each device, all in the same measure.
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
    """Write a new file that only its owner may read. Raises FileExistsError, OSError."""
    with open(path, "xb", opener=private) as file:
        file.write(data)
