"""Configures a Mosquitto broker for a fleet. A board may write only its own topics, and read only its own and the
fleet's. A client's id is its user name, so that no board can take over another's session.
"""

from __future__ import annotations

import getpass
import json
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tern.links import mqtt
from ternhost.errors import UsageError
from ternhost.files import storage_errors, write_file
from ternhost.reach.addresses import AUTHORITY, check_reached
from ternhost.reach.broker import home_access, mosquitto_files, sites
from ternhost.reach.broker.access import CONFIG, HOST, Access, check_prefix
from ternhost.reach.broker.mosquitto_files import PASSWORDS, PORT
from ternhost.reach.broker.sites import BrokerSite
from ternhost.store import store_file
from ternhost.store.store import Store

__all__ = ["PASSWORDS", "add_site", "configure", "write_configuration", "write_passwords"]

HOST_USER = "tern-host"


def write_configuration(
    directory: str | Path,
    keys: Mapping[int, bytes],
    *,
    names: Sequence[str] = ("localhost", "127.0.0.1"),
    address: str = "127.0.0.1",
    port: int = PORT,
    prefix: str = "tern",
    tls: bool = True,
    store: str | Path | None = None,
    home_assistant: str | bool | None = None,
) -> Access:
    """Write Mosquitto's files and host.json; an existing authority, host password and store stay.

    keys: by the first client of each board. names: host names and addresses under which boards reach the broker.
    home_assistant: the prefix of discovery topics; False: hide the fleet again. Raises StorageError and UsageError.
    """
    check_reached(names, address, port)
    check_prefix(prefix)
    home_access.check(directory, home_assistant, prefix)
    directory = Path(directory).absolute()
    if any(character.isspace() for character in str(directory)):
        raise UsageError(f"{directory}: Mosquitto takes no path with a space", hint="name another directory")
    with storage_errors():
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        if tls:
            from ternhost.reach.certificates import write_certificates  # they need an extra

            write_certificates(directory, names)
        access = Access(names[0], port, HOST_USER, "", AUTHORITY if tls else None, prefix)
        _write_host(directory / HOST, access, store)
        user = getpass.getuser()
        mosquitto_files.write_conf(
            directory, address=address, port=port, boards=len(keys), tls=tls, user=user
        )
        _write_users(directory, keys, home_assistant, anew=True)
    return Access.load(directory / HOST)


def _write_users(
    directory: Path, keys: Mapping[int, bytes], home_assistant: str | bool | None = None, anew: bool = False
) -> None:
    """Write the access list and the passwords of all users, and the files of the sites."""
    for path, access in home_access.users(directory, home_assistant).items():
        _write_host(path, access, None)
    host, home = Access.load(directory / HOST), home_access.load(directory)
    users = mosquitto_files.template("host.access").format(host=host.user, prefix=host.prefix) + (
        home.access_list if home else ""
    )
    users += "".join(site.access_list(host.prefix, keys) for site in sites.write(directory, keys, anew))
    mosquitto_files.write_access_list(directory, users, host.prefix)
    write_passwords(directory, keys)


def _write_host(path: Path, access: Access, store: str | Path | None) -> None:
    old = Access.load(path) if path.exists() else None
    password = old.password if old else secrets.token_urlsafe(16)
    store = store or (old.store if old else None)
    relative = os.path.relpath(store, path.parent) if store else None
    whole = asdict(replace(access, password=password, store=relative))
    write_file(path, json.dumps(whole, indent=1).encode() + b"\n", secret=True)


def configure(
    directory: str | Path,
    store: str | Path | None = None,
    *,
    home_assistant: str | bool | None = None,
    **options: Any,
) -> Access:
    """Configure a broker for the devices of a store, which is made if it is missing. Without options, an existing
    configuration changes only in its passwords, its access list and its memory. Raises StorageError and UsageError.
    """
    directory = Path(directory)
    if sites.is_site(directory):
        central = directory.resolve().parent.parent
        if store or options or home_assistant is not None or not (central / CONFIG).exists():
            raise UsageError(
                f"{directory} is the site of another broker, which writes it",
                hint="run 'tern broker config' on that broker's directory, and copy the site's anew",
            )
        configure(central)
        return Access.load(directory / HOST)
    old = Access.load(directory / HOST) if (directory / HOST).exists() else None
    path = Path(store or (old and old.store) or directory / store_file.NAME)
    keys: dict[int, bytes] = {}
    if path.exists():
        with Store(path, create=False, beside=True) as existing:
            keys = existing.keys()
    if old and old.store and not options and (directory / CONFIG).exists():
        home_access.check(directory, home_assistant, old.prefix)
        with storage_errors():
            _write_host(directory / HOST, replace(old, authority=old.authority and AUTHORITY), path)
            _write_users(directory, keys, home_assistant)
            mosquitto_files.update_memory(directory, len(keys))
    else:
        if old:
            before = {"names": mosquitto_files.names(directory, old), "port": old.port, "prefix": old.prefix}
            if listener := mosquitto_files.listening(directory):
                before["address"] = listener[0]
            options = {**before, "tls": old.authority is not None, **options}
        write_configuration(directory, keys, store=path, home_assistant=home_assistant, **options)
    if not path.exists():
        Store(path, beside=True).close()
    return Access.load(directory / HOST)


def add_site(directory: str | Path, name: str, **options: Any) -> BrokerSite:
    """Add or change a site with the options of `sites.describe`. Raises StorageError and UsageError."""
    directory = Path(directory)
    with storage_errors():
        site = sites.describe(directory, name, **options)
    configure(directory)
    return site


def write_passwords(directory: str | Path, keys: Mapping[int, bytes]) -> None:
    """Write all passwords; a running broker takes them on SIGHUP. keys: by first client. Raises StorageError."""
    directory = Path(directory)
    home = home_access.load(directory)
    users = [Access.load(directory / HOST), *([home.publisher, home.home] if home else [])]
    passwords = [(access.user, access.password) for access in users]
    passwords += [(site.user, site.password) for site in sites.load_all(directory) if site.bridge]
    passwords += [(mqtt.name(device), mqtt.password(key)) for device, key in keys.items()]
    with storage_errors():
        mosquitto_files.write_password_file(directory, passwords)
