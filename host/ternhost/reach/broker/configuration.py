"""Configures a broker for a fleet: Mosquitto, or a cluster of NATS servers.

A board may write only its own topics, and read only its own and the fleet's. With Mosquitto, a
client's id is its user name, so that no board can take over another's session.
"""

import getpass
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tern.links import mqtt
from ternhost.errors import UsageError
from ternhost.files import storage_errors
from ternhost.reach.addresses import AUTHORITY, check_reached
from ternhost.reach.broker import cluster, home_access, mosquitto_files, sites
from ternhost.reach.broker.access import CONFIG, HOST, Access, Rights, check_prefix
from ternhost.reach.broker.sites import BrokerSite
from ternhost.store import store_file
from ternhost.store.store import Store

HOST_USER = "tern-host"


def write_configuration(
    directory: str | Path,
    keys: Mapping[int, bytes],
    *,
    names: Sequence[str] = (),
    address: str = "127.0.0.1",
    port: int = mosquitto_files.PORT,
    prefix: str = "tern",
    tls: bool = True,
    store: str | Path | None = None,
    home_assistant: str | bool | None = None,
    nats: bool = False,
) -> Access:
    """Write the broker's files and host.json; an existing authority, host password and store stay.

    keys: by the first client of each board. names: host names and addresses under which boards
    reach the broker. home_assistant: the prefix of discovery topics; False: hide the fleet again.
    nats: a cluster, whose nodes are at `names`, and listen there. Raises StorageError and
    UsageError.
    """
    names = names or (cluster.HERE if nats else ("localhost", "127.0.0.1"))
    check_reached(
        names, address, port + nats
    )  # the nodes of a cluster use the next port among themselves
    check_prefix(prefix)
    home_access.check(directory, home_assistant, prefix)
    if nats:
        cluster.check(names, prefix, home_assistant)
    directory = Path(directory).absolute()
    if not nats and any(character.isspace() for character in str(directory)):
        raise UsageError(
            f"{directory}: Mosquitto takes no path with a space", hint="name another directory"
        )
    with storage_errors():
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        if tls:
            from ternhost.reach.certificates import write_certificates  # they need an extra

            write_certificates(directory, names)
        host = ",".join(names) if nats else names[0]
        access = Access(host, port, HOST_USER, "", AUTHORITY if tls else None, prefix)
        _write_host(directory / HOST, access, store)
        if nats:
            cluster.write_nodes(directory, access)
        else:
            boards, user = len(keys), getpass.getuser()
            mosquitto_files.write_conf(
                directory, address=address, port=port, boards=boards, tls=tls, user=user
            )
        _write_users(directory, keys, home_assistant, anew=True)
    return Access.load(directory / HOST)


def _write_users(
    directory: Path,
    keys: Mapping[int, bytes],
    home_assistant: str | bool | None = None,
    anew: bool = False,
) -> None:
    """Write the access list and the passwords of all users, and the files of the sites."""
    for path, access in home_access.users(directory, home_assistant).items():
        _write_host(path, access, None)
    host, home = Access.load(directory / HOST), home_access.load(directory)
    rights = {host: Rights.below(host.prefix, "round model down/+", "up/+ hello/+ site/+")}
    rights |= home.rights if home else {}
    written = sites.write(directory, keys, anew)
    passwords = [(access.user, access.password) for access in rights]
    passwords += [(site.user, site.password) for site in written if site.bridge]
    passwords += [(mqtt.name(device), mqtt.password(key)) for device, key in keys.items()]
    if host.is_cluster:
        cluster.write_users(directory, host, rights, passwords)
        return
    users = "".join(
        f"user {access.user}\n{of_user.lines()}\n" for access, of_user in rights.items()
    )
    users += "".join(site.access_list(host.prefix, keys) for site in written)
    mosquitto_files.write_access_list(directory, users, host.prefix)
    mosquitto_files.write_password_file(directory, passwords)


def _write_host(path: Path, access: Access, store: str | Path | None) -> None:
    old = Access.load(path) if path.exists() else None
    password = old.password if old else secrets.token_urlsafe(16)
    store = store or (old.store if old else None)
    replace(access, password=password, store=str(store) if store else None).save(path)


def configure(
    directory: str | Path,
    store: str | Path | None = None,
    *,
    home_assistant: str | bool | None = None,
    nats: bool | None = None,
    **options: Any,
) -> Access:
    """Configure a broker for the devices of a store, which is made if it is missing.

    Without options, an existing configuration changes only in its passwords, its access list and
    its memory. Raises StorageError and UsageError.
    """
    directory = Path(directory)
    if sites.is_site(directory):
        central = directory.resolve().parent.parent
        if store or options or home_assistant is not None or not (central / CONFIG).exists():
            hint = "run 'tern broker config' on that broker's directory, and copy the site's anew"
            raise UsageError(f"{directory} is the site of another broker, which writes it", hint)
        configure(central)
        return Access.load(directory / HOST)
    old = Access.load(directory / HOST) if (directory / HOST).exists() else None
    if old and nats not in (None, old.is_cluster):
        hint = f"name another directory, with the same keys: tern broker config OTHER --store {old.store} "
        hint += "--for ..."
        raise UsageError(f"{directory} has another kind of broker already", hint)
    nats = old.is_cluster if old else nats
    path = Path(store or (old and old.store) or directory / store_file.NAME)
    keys: dict[int, bytes] = {}
    if path.exists():
        with Store(path, create=False, beside=True) as existing:
            keys = existing.keys()
    if old and old.store and not options and (old.is_cluster or (directory / CONFIG).exists()):
        home_access.check(directory, home_assistant, old.prefix)
        if nats:
            cluster.check(old.hosts, home_assistant)
        with storage_errors():
            _write_host(directory / HOST, old, path)
            _write_users(directory, keys, home_assistant)
            if not nats:
                mosquitto_files.update_memory(directory, len(keys))
    else:
        if old:
            before = {
                "names": mosquitto_files.names(directory, old),
                "port": old.port,
                "prefix": old.prefix,
            }
            if listener := mosquitto_files.listening(directory):
                before["address"] = listener[0]
            options = {**before, "tls": old.authority is not None, **options}
        options["nats"] = bool(nats)
        write_configuration(directory, keys, store=path, home_assistant=home_assistant, **options)
    if not path.exists():
        Store(path, beside=True).close()
    return Access.load(directory / HOST)


def add_site(directory: str | Path, name: str, **options: Any) -> BrokerSite:
    """Add or change a site with the options of `sites.describe`.

    Raises StorageError and UsageError.
    """
    directory = Path(directory)
    with storage_errors():
        site = sites.describe(directory, name, **options)
    configure(directory)
    return site
