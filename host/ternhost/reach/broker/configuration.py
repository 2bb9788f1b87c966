"""Configures a broker for a fleet: Mosquitto, or a cluster of NATS servers.

A board may write only its own topics, and read only its own and the fleet's. With Mosquitto, a
client's id is its user name, so that no board can take over another's session.
"""

import getpass
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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


@dataclass(frozen=True)
class BrokerOptions:
    """What kind of broker it is, and how it is reached."""

    names: Sequence[str] = ()  # at which boards reach it; of a cluster, of each node; (): here
    address: str = "127.0.0.1"  # to listen on; the nodes of a cluster listen at `names`
    port: int = mosquitto_files.PORT
    prefix: str = "tern"  # of all topics
    tls: bool = True
    nats: bool = False  # a cluster of NATS servers instead of Mosquitto

    @property
    def hosts(self) -> Sequence[str]:
        """The names, or those of this machine."""
        if self.names:
            return self.names
        return cluster.HERE if self.nats else ("localhost", "127.0.0.1")


DEFAULTS = BrokerOptions()


# Writing


def write_configuration(
    directory: str | Path,
    keys: Mapping[int, bytes],
    options: BrokerOptions = DEFAULTS,
    *,
    store: str | Path | None = None,
    home_assistant: str | bool | None = None,
) -> Access:
    """Write the broker's files and host.json; an existing authority, host password and store stay.

    keys: by the first client of each board. home_assistant: the prefix of discovery topics; False:
    hide the fleet again. Raises StorageError and UsageError.
    """
    _check(directory, options, home_assistant)
    directory = Path(directory).absolute()
    with storage_errors():
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        if options.tls:
            from ternhost.reach.certificates import write_certificates  # they need an extra

            write_certificates(directory, options.hosts)
        host = ",".join(options.hosts) if options.nats else options.hosts[0]
        authority = AUTHORITY if options.tls else None
        access = Access(host, options.port, HOST_USER, "", authority, options.prefix)
        _write_host(directory / HOST, access, store)
        if options.nats:
            cluster.write_nodes(directory, access)
        else:
            listener = mosquitto_files.Listener(options.address, options.port, options.tls)
            user = getpass.getuser()
            mosquitto_files.write_conf(directory, listener, boards=len(keys), user=user)
        _write_users(directory, keys, home_assistant, anew=True)
    return Access.load(directory / HOST)


def _check(
    directory: str | Path, options: BrokerOptions, home_assistant: str | bool | None
) -> None:
    last_port = options.port
    if options.nats:
        last_port += 1  # the nodes of a cluster use it among themselves
    check_reached(options.hosts, options.address, last_port)
    check_prefix(options.prefix)
    home_access.check(directory, home_assistant, options.prefix)
    path = Path(directory).absolute()
    if options.nats:
        cluster.check(options.hosts, options.prefix, home_assistant)
    elif any(character.isspace() for character in str(path)):
        raise UsageError(
            f"{path}: Mosquitto takes no path with a space", hint="name another directory"
        )


def _write_users(
    directory: Path,
    keys: Mapping[int, bytes],
    home_assistant: str | bool | None = None,
    anew: bool = False,
) -> None:
    """Write the access list and the passwords of all users, and the files of the sites."""
    for path, access in home_access.users(directory, home_assistant).items():
        _write_host(path, access, None)
    host = Access.load(directory / HOST)
    home = home_access.load(directory)
    rights = {host: Rights.below(host.prefix, "round model down/+", "up/+ hello/+ site/+")}
    if home:
        rights |= home.rights
    all_sites = sites.write(directory, keys, anew)
    passwords = [(access.user, access.password) for access in rights]
    passwords += [(site.user, site.password) for site in all_sites if site.bridge]
    passwords += [(mqtt.name(device), mqtt.password(key)) for device, key in keys.items()]
    if host.is_cluster:
        cluster.write_users(directory, host, rights, passwords)
        return
    sections = ""
    for access, own_rights in rights.items():
        sections += f"user {access.user}\n{own_rights.lines()}\n"
    for site in all_sites:
        sections += site.access_list(host.prefix, keys)
    mosquitto_files.write_access_list(directory, sections, host.prefix)
    mosquitto_files.write_password_file(directory, passwords)


def _write_host(path: Path, access: Access, store: str | Path | None) -> None:
    """Write host.json, or a file like that; an existing password and store stay."""
    password = secrets.token_urlsafe(16)
    if path.exists():
        old = Access.load(path)
        password = old.password
        store = store or old.store
    replace(access, password=password, store=str(store) if store else None).save(path)


# Configuring, again and again


def configure(
    directory: str | Path,
    store: str | Path | None = None,
    *,
    home_assistant: str | bool | None = None,
    nats: bool | None = None,
    **options: Any,
) -> Access:
    """Configure a broker for the devices of a store, which is made if it is missing.

    options: of `BrokerOptions`; omitted ones stay as they are. Without options, an existing
    configuration changes only in its passwords, its access list and its memory. Raises StorageError
    and UsageError.
    """
    directory = Path(directory)
    if sites.is_site(directory):
        has_options = bool(store or options or home_assistant is not None)
        return _configure_site(directory, has_options)
    old = Access.load(directory / HOST) if (directory / HOST).exists() else None
    if old and nats not in (None, old.is_cluster):
        raise UsageError(
            f"{directory} has another kind of broker already",
            hint="name another directory, with the same keys: "
            f"tern broker config OTHER --store {old.store} --for ...",
        )
    path = _store_path(directory, store, old)
    keys = _keys(path)
    is_written = old is not None and (old.is_cluster or (directory / CONFIG).exists())
    if old and old.store and is_written and not options:
        _update(directory, replace(old, store=str(path)), keys, home_assistant)
    else:
        nats = old.is_cluster if old else bool(nats)
        before = _options_before(directory, old) if old else {}
        all_options = BrokerOptions(**{**before, **options, "nats": nats})
        write_configuration(directory, keys, all_options, store=path, home_assistant=home_assistant)
    if not path.exists():
        Store(path, beside=True).close()
    return Access.load(directory / HOST)


def _configure_site(directory: Path, has_options: bool) -> Access:
    """Configure the central broker of a site, and so the site's, too."""
    central = directory.resolve().parent.parent
    if has_options or not (central / CONFIG).exists():
        hint = "run 'tern broker config' on that broker's directory, and copy the site's anew"
        raise UsageError(f"{directory} is the site of another broker, which writes it", hint)
    configure(central)
    return Access.load(directory / HOST)


def _store_path(directory: Path, store: str | Path | None, old: Access | None) -> Path:
    if store:
        return Path(store)
    if old and old.store:
        return Path(old.store)
    return directory / store_file.NAME


def _keys(path: Path) -> dict[int, bytes]:
    """The keys of a store; none if it does not exist."""
    if not path.exists():
        return {}
    with Store(path, create=False, beside=True) as store:
        return store.keys()


def _options_before(directory: Path, old: Access) -> dict[str, Any]:
    options = {
        "names": mosquitto_files.names(directory, old),
        "port": old.port,
        "prefix": old.prefix,
        "tls": old.authority is not None,
    }
    listener = mosquitto_files.listening(directory)
    if listener:
        options["address"], _ = listener
    return options


def _update(
    directory: Path,
    access: Access,
    keys: Mapping[int, bytes],
    home_assistant: str | bool | None,
) -> None:
    """Write what depends on the keys into an existing configuration."""
    home_access.check(directory, home_assistant, access.prefix)
    if access.is_cluster:
        cluster.check(access.hosts, home_assistant)
    with storage_errors():
        _write_host(directory / HOST, access, access.store)
        _write_users(directory, keys, home_assistant)
        if not access.is_cluster:
            mosquitto_files.update_memory(directory, len(keys))


def add_site(directory: str | Path, name: str, **options: Any) -> BrokerSite:
    """Add or change a site with the options of `sites.save`.

    Raises StorageError and UsageError.
    """
    directory = Path(directory)
    with storage_errors():
        site = sites.save(directory, name, **options)
    configure(directory)
    return site
