"""Connects emulated boards to a broker: mqtt.json, the authority that they trust, and fleet.bin."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tern import storage
from tern.links import mqtt
from ternhost.files import storage_errors, write_file
from ternhost.provision import keys
from ternhost.provision.boards import fleet_file
from ternhost.reach.addresses import DEVICE_AUTHORITY
from ternhost.reach.authority import read_der
from ternhost.store.store import Store

if TYPE_CHECKING:
    from ternhost.reach.broker.access import Access

_POLICY = {"pause", "slot", "ahead", "epoch", "records"}  # options of `fleet_file`


def attach(
    directories: Sequence[str | Path], broker: str | Path, store: str | Path, **options: Any
) -> None:
    """Connect emulated boards to a broker, by writing the files that say how they reach it.

    directories: each has the files of one board. broker: a directory that 'tern broker config' has
    made, or the host.json in it. store: the database with the boards' keys and the fleet's key.
    options: as in `write_network`. Raises UsageError and StorageError.
    """
    from ternhost.reach.broker.access import Access, host_file

    access = Access.load(host_file(broker))
    with Store(store, create=False, beside=True) as keys_store:
        fleet = keys.fleet_key(keys_store)
    for directory in directories:
        write_network(directory, access, fleet.key, epoch=fleet.epoch, **options)


def write_network(directory: str | Path, access: Access, fleet_key: bytes, **options: Any) -> None:
    """Write the two files by which an emulated board finds its broker into the board's directory.

    They are mqtt.json, with the address of the broker, and fleet.bin, with the key of the fleet.

    access: the address and the certificate of the broker. options: any parameters of `fleet_file`,
    such as epoch, go into fleet.bin; all others, such as ssid, become members of mqtt.json. Raises
    UsageError and StorageError.
    """
    directory = Path(directory)
    # The unit of privacy says whether the device or a number of records is protected. It holds for
    # the device's whole life, so it is copied from the fleet.bin that is there.
    old_fields = storage.read_fleet(str(directory / storage.FLEET))
    fleet_options = {"unit": old_fields[-1]}  # the last field
    config = {"host": access.host, "port": access.port, "prefix": access.prefix}
    for name, value in options.items():
        if name in _POLICY:
            fleet_options[name] = value
        else:
            config[name] = value
    fleet = fleet_file(fleet_key, **fleet_options)
    with storage_errors():
        if access.authority:
            certificate = read_der(Path(access.authority).read_bytes(), access.authority)
            write_file(directory / DEVICE_AUTHORITY, certificate, secret=True)
            config["authority"] = DEVICE_AUTHORITY
        write_file(directory / storage.FLEET, fleet, secret=True)
        write_file(directory / mqtt.CONFIG, json.dumps(config).encode() + b"\n", secret=True)
