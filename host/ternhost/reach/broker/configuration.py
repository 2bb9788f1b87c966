"""A Mosquitto broker for a fleet: its configuration with certificates, passwords and an access list.

A board may write only its own topics and read only its own and the fleet's; the host may write what boards read. Its
client id is its user name, so that no board can take another's session.
"""

from __future__ import annotations

import getpass
import json
import os
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tern.links import mqtt
from ternhost.errors import StorageError, UsageError
from ternhost.files import write_file
from ternhost.reach.addresses import AUTHORITY, check_reached
from ternhost.reach.broker import sites
from ternhost.reach.broker.access import CONFIG, HOST, Access
from ternhost.reach.broker.home_access import access_list, check_apart, home_access, users_of
from ternhost.reach.broker.mosquitto_files import (
    ACCESS,
    PASSWORDS,
    PID,
    PORT,
    QUEUED,
    listening,
    names,
    update_memory,
    write_access_list,
    write_conf,
    write_password_file,
)
from ternhost.reach.broker.sites import BrokerSite
from ternhost.store.store import Store

__all__ = [
    "ACCESS", "HOST_USER", "PASSWORDS", "PID", "PORT", "STORE",
    "add_site", "check_prefix", "configure", "write_configuration", "write_passwords",
]  # fmt: skip

HOST_USER = "tern-host"
STORE = "store.sqlite"  # of the devices' keys, unless host.json names another

_PREFIX = re.compile(r"[\w.-]+(/[\w.-]+)*", re.ASCII)
_LONGEST_PREFIX = 64

_HOST_ACCESS = """\
user {host}
topic write {prefix}/round
topic write {prefix}/model
topic write {prefix}/down/+
topic read {prefix}/up/+
topic read {prefix}/hello/+
topic read {prefix}/site/+

"""


def check_prefix(prefix: str) -> None:
    """Raise UsageError where no fleet's topics can begin so."""
    if len(prefix) > _LONGEST_PREFIX or not _PREFIX.fullmatch(prefix):
        raise UsageError(
            f"topics cannot begin with {prefix!r}",
            hint=f"give at most {_LONGEST_PREFIX} letters, digits, '_', '-' and '.', in parts divided by '/'",
        )


def write_configuration(
    directory: str | Path,
    keys: Mapping[int, bytes],
    *,
    names: Sequence[str] = ("localhost", "127.0.0.1"),
    address: str = "127.0.0.1",
    port: int = PORT,
    prefix: str = "tern",
    tls: bool = True,
    persistence: bool = True,
    queued: int = QUEUED,
    store: str | Path | None = None,
    home_assistant: str | bool | None = None,
) -> Access:
    """Write all that Mosquitto needs into `directory`, and host.json, with which the host reaches it.

    keys: of the first client of each board. names: host names and addresses under which boards reach the broker, which
    its certificate carries. queued: messages that may wait for one client; 0: no limit, and none to the broker's
    memory. store: where the keys are, which host.json tells from then on. home_assistant: what its topics of
    discovery begin with, to let Home Assistant see the fleet; False: no more. What is there already stays: the
    authority, the host's password and the store. Raises StorageError and UsageError.
    """
    check_reached(names, address, port)
    for topics in (prefix, home_assistant):
        if isinstance(topics, str):
            check_prefix(topics)
    check_apart(directory, home_assistant, prefix)
    directory = Path(directory).absolute()
    if any(character.isspace() for character in str(directory)):
        raise UsageError(f"{directory}: Mosquitto takes no path with a space", hint="name another directory")
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        if tls:
            from ternhost.reach.certificates import write_certificates  # they need an extra

            write_certificates(directory, names)
        access = Access(names[0], port, HOST_USER, "", AUTHORITY if tls else None, prefix)
        _write_host(directory / HOST, access, store)
        write_conf(
            directory,
            address=address,
            port=port,
            boards=len(keys),
            tls=tls,
            user=getpass.getuser(),
            persistence=persistence,
            queued=queued,
        )
        _write_users(directory, keys, home_assistant, anew=True)
    except OSError as error:
        raise StorageError(f"cannot write {error.filename}: {error.strerror}") from error
    return Access.load(directory / HOST)


def _write_users(
    directory: Path, keys: Mapping[int, bytes], home_assistant: str | bool | None = None, anew: bool = False
) -> None:
    # Who may do what: the host, Home Assistant, sites and boards; and the files of the sites, each for its own boards.
    for path, access in users_of(directory, home_assistant).items():
        _write_host(path, access, None)
    host = Access.load(directory / HOST)
    users = _HOST_ACCESS.format(host=host.user, prefix=host.prefix) + access_list(directory)
    users += "".join(site.access_list(host.prefix, keys) for site in sites.write(directory, keys, anew))
    write_access_list(directory, users, host.prefix)
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
    """Write the configuration of a broker for the devices of a store, which is made, empty, where there is none.

    store: by default the one that host.json tells, or store.sqlite in the directory. home_assistant, options: of
    `write_configuration`; where there is a configuration, what is not named stays as it is. If no other option is
    named, its passwords change, its memory with their number, and the access list; `reload` has a Mosquitto that runs
    take them. Raises StorageError and UsageError.
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
    path = Path(store or (old and old.store) or directory / STORE)
    keys: dict[int, bytes] = {}
    if path.exists():
        with Store(path, create=False, beside=True) as there:
            keys = there.keys()
    if old and old.store and not options and (directory / CONFIG).exists():
        if isinstance(home_assistant, str):
            check_prefix(home_assistant)
        check_apart(directory, home_assistant, old.prefix)
        _write_host(directory / HOST, replace(old, authority=old.authority and AUTHORITY), path)
        try:
            _write_users(directory, keys, home_assistant)
        except OSError as error:
            raise StorageError(f"cannot write {error.filename}: {error.strerror}") from error
        update_memory(directory, len(keys))
    else:
        if old:
            options = {**_configured(directory, old), **options}
        write_configuration(directory, keys, store=path, home_assistant=home_assistant, **options)
    if not path.exists():
        Store(path, beside=True).close()
    return Access.load(directory / HOST)


def _configured(directory: Path, access: Access) -> dict[str, Any]:
    # The options of `write_configuration`, as they were last time.
    return {
        **listening(directory),
        "names": names(directory, access),
        "port": access.port,
        "prefix": access.prefix,
        "tls": access.authority is not None,
    }


def add_site(directory: str | Path, name: str, **options: Any) -> BrokerSite:
    """Make, or change, a site of the broker in `directory`, which is configured: its files are below sites/`name`.

    options: of `sites.describe`. Raises StorageError and UsageError.
    """
    directory = Path(directory)
    try:
        site = sites.describe(directory, name, **options)
    except OSError as error:
        raise StorageError(f"cannot write {error.filename}: {error.strerror}") from error
    configure(directory)
    return site


def write_passwords(directory: str | Path, keys: Mapping[int, bytes]) -> None:
    """Write the password file anew, for the host, the sites and the boards whose first clients have `keys`.

    A broker that runs takes it on SIGHUP. Raises StorageError.
    """
    directory = Path(directory)
    users = [Access.load(directory / HOST), *(home_access(directory) or ())]
    passwords = [(access.user, access.password) for access in users]
    passwords += [(site.user, site.password) for site in sites.load_all(directory) if site.bridge]
    passwords += [(mqtt.name(device), mqtt.password(key)) for device, key in keys.items()]
    try:
        write_password_file(directory, passwords)
    except OSError as error:
        raise StorageError(f"cannot write {error.filename}: {error.strerror}") from error
