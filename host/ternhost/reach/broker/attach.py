"""Puts a board on a broker: mqtt.json, the certificate that it trusts, fleet.bin (shared_specs/storage.md)."""

from __future__ import annotations

import json
import ssl
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tern import storage
from tern.links import mqtt
from ternhost.errors import StorageError, UsageError
from ternhost.files import private
from ternhost.provision import keys
from ternhost.reach.addresses import DEVICE_AUTHORITY
from ternhost.reach.broker.access import Access, host_file
from ternhost.store.store import Store


def attach(directories: Sequence[str | Path], broker: str | Path, store: str | Path, **options: Any) -> None:
    """Put boards, whose keys are in `store`, on the broker of a directory (or host.json) of 'tern broker config'.

    options: as of `write_network`. Raises UsageError and StorageError.
    """
    access = Access.load(host_file(broker))
    with Store(store, create=False, beside=True) as keys_store:
        fleet = keys.fleet_key(keys_store)
    for directory in directories:
        write_network(directory, access, fleet.key, epoch=fleet.epoch, **options)


def fleet_file(
    fleet_key: bytes, pause: int = 0, slot: int = 0, ahead: int = 1, epoch: int = 1, records: int = 0
) -> bytes:
    """fleet.bin. pause: least seconds between two debits; slot: ms at which to send; ahead: reports paid for at once;
    epoch: of the key; records: public upper bound on records per client (0: none).

    Raises UsageError.
    """
    if not 0 <= pause <= storage.MAX_PAUSE:
        raise UsageError(f"a pause must be 0 to {storage.MAX_PAUSE} seconds, not {pause}")
    if not 0 <= slot <= 0xFFFF:
        raise UsageError(f"a slot must be 0 to 65535 ms, not {slot}")
    if not 1 <= ahead <= storage.MAX_AHEAD:
        raise UsageError(f"1 to {storage.MAX_AHEAD} reports can be paid for at once, not {ahead}")
    if not (0 <= epoch <= 0xFFFFFFFF and 0 <= records <= 0xFFFF):
        raise UsageError(f"an epoch has 32 bits and a bound of records 16, not {epoch} and {records}")
    return struct.pack(
        storage.FLEET_FIELDS, storage.FLEET_MAGIC, fleet_key, pause, slot, ahead, epoch, records
    )


def write_network(
    directory: str | Path,
    access: Access,
    fleet_key: bytes,
    *,
    pause: int = 0,
    slot: int = 0,
    ahead: int = 1,
    epoch: int = 1,
    records: int = 0,
    **options: Any,
) -> None:
    """Write, into a board's directory, how it reaches the broker of `access`, and the fleet's key.

    pause, slot, ahead, epoch, records: as of `fleet_file`. options: other members of mqtt.json, such as keep_alive or
    ssid. Raises UsageError and StorageError.
    """
    directory = Path(directory)
    fleet = fleet_file(fleet_key, pause, slot, ahead, epoch, records)
    config = {"host": access.host, "port": access.port, "prefix": access.prefix, **options}
    try:
        if access.authority:
            certificate = ssl.PEM_cert_to_DER_cert(Path(access.authority).read_text())
            _write(directory / DEVICE_AUTHORITY, certificate)
            config["authority"] = DEVICE_AUTHORITY
        _write(directory / storage.FLEET, fleet)
        _write(directory / mqtt.CONFIG, json.dumps(config).encode() + b"\n")
    except OSError as error:
        raise StorageError(f"cannot write {error.filename}: {error.strerror}") from error


def _write(path: Path, data: bytes) -> None:
    with open(path, "wb", opener=private) as file:
        file.write(data)
