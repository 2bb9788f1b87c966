"""The files of a board on a broker: mqtt.json, the authority that it trusts, fleet.bin (shared_specs/storage.md)."""

from __future__ import annotations

import json
import ssl
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tern import storage
from tern.links import mqtt
from ternhost.errors import UsageError
from ternhost.files import storage_errors, write_file
from ternhost.provision import keys
from ternhost.reach.addresses import DEVICE_AUTHORITY
from ternhost.reach.broker.access import Access, host_file
from ternhost.store.store import Store

_POLICY = {"pause", "slot", "ahead", "epoch", "records"}  # options of `fleet_file`


def attach(directories: Sequence[str | Path], broker: str | Path, store: str | Path, **options: Any) -> None:
    """Connect boards whose keys are in `store` to a broker: a directory of 'tern broker config', or its host.json.
    options: of `write_network`. Raises UsageError and StorageError.
    """
    access = Access.load(host_file(broker))
    with Store(store, create=False, beside=True) as keys_store:
        fleet = keys.fleet_key(keys_store)
    for directory in directories:
        write_network(directory, access, fleet.key, epoch=fleet.epoch, **options)


def fleet_file(
    fleet_key: bytes, pause: int = 0, slot: int = 0, ahead: int = 1, epoch: int = 1, records: int = 0
) -> bytes:
    """The bytes of fleet.bin. pause: least seconds between two debits; slot: ms after which to send; ahead: reports
    paid for at once; epoch: of the key; records: public upper bound on records per client (0: none). Raises UsageError.
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


def write_network(directory: str | Path, access: Access, fleet_key: bytes, **options: Any) -> None:
    """Write mqtt.json and fleet.bin into a board's directory. options: of `fleet_file`, and other members of mqtt.json,
    such as ssid. Raises UsageError and StorageError.
    """
    directory = Path(directory)
    policy = {name: options.pop(name) for name in _POLICY & options.keys()}
    fleet = fleet_file(fleet_key, **policy)
    config = {"host": access.host, "port": access.port, "prefix": access.prefix, **options}
    with storage_errors():
        if access.authority:
            certificate = ssl.PEM_cert_to_DER_cert(Path(access.authority).read_text())
            write_file(directory / DEVICE_AUTHORITY, certificate, secret=True)
            config["authority"] = DEVICE_AUTHORITY
        write_file(directory / storage.FLEET, fleet, secret=True)
        write_file(directory / mqtt.CONFIG, json.dumps(config).encode() + b"\n", secret=True)
