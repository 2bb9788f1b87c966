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

    # Names or addresses at which boards reach it; of a cluster, of each node; none: this machine.
    names: Sequence[str] = ()
    address: str = "127.0.0.1"  # to listen on; the nodes of a cluster listen at `names`
    port: int = mosquitto_files.PORT
    prefix: str = "tern"  # of all topics
    tls: bool = True
    nats: bool = False  # a cluster of NATS servers instead of Mosquitto

    @property
    def hosts(self) -> Sequence[str]:
        """The names, or else those of this machine."""
        if self.names:
            return self.names
        if self.nats:
            return cluster.HERE
        return ("localhost", "127.0.0.1")


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
    """Write the files of a broker and host.json, which says how to reach it; return the latter.

    An authority, a host's password and the path of a store that exist already stay.

    keys: of the devices, by their ids. store: the file that holds them. home_assistant: the prefix
    of Home Assistant's discovery topics; None: as before; False: hide the fleet again. Raises
    StorageError and UsageError.
    """
    _check_options(directory, options, home_assistant)
    directory = Path(directory).absolute()
    with storage_errors():
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        if options.tls:
            from ternhost.reach.certificates import write_certificates  # they need an extra

            write_certificates(directory, options.hosts)
        access = Access(
            host=",".join(options.hosts) if options.nats else options.hosts[0],
            port=options.port,
            user=HOST_USER,
            password="",  # `_write_host` makes one
            authority=AUTHORITY if options.tls else None,
            prefix=options.prefix,
        )
        _write_host(directory / HOST, access, store)
        if options.nats:
            cluster.write_nodes(directory, access)
        else:
            listener = mosquitto_files.Listener(options.address, options.port, options.tls)
            user = getpass.getuser()
            mosquitto_files.write_conf(directory, listener, boards=len(keys), user=user)
        _write_users(directory, keys, home_assistant, anew=True)
    return Access.load(directory / HOST)


def _check_options(
    directory: str | Path, options: BrokerOptions, home_assistant: str | bool | None
) -> None:
    """Raise UsageError for options with which no broker can run; see `write_configuration`."""
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
    """Write the access list and the passwords of all users, and the files of the sites.

    keys: of the devices. home_assistant: as in `write_configuration`. anew: write the
    configurations of the sites' brokers again, too.
    """
    for path, access in home_access.users(directory, home_assistant).items():
        _write_host(path, access, None)
    host = Access.load(directory / HOST)
    home = home_access.load(directory)
    # The host may write what goes down to boards, and read what comes up.
    rights = {host: Rights.below(host.prefix, "round model down/+", "up/+ hello/+ site/+")}
    if home:
        rights |= home.rights
    all_sites = sites.write(directory, keys, anew)

    passwords = []  # (user, password)
    for access in rights:
        passwords.append((access.user, access.password))
    for site in all_sites:
        if site.bridge:
            passwords.append((site.user, site.password))
    for device, key in keys.items():
        passwords.append((mqtt.name(device), mqtt.password(key)))

    if host.is_cluster:
        cluster.write_users(directory, host, rights, passwords)
        return
    sections = ""  # of the access list
    for access, rights_of_user in rights.items():
        sections += f"user {access.user}\n{rights_of_user.lines()}\n"
    for site in all_sites:
        sections += site.access_list(host.prefix, keys)
    mosquitto_files.write_access_list(directory, sections, host.prefix)
    mosquitto_files.write_password_file(directory, passwords)


def _write_host(path: Path, access: Access, store: str | Path | None) -> None:
    """Write host.json, or a file like that, with a new password unless it has one already.

    store: None: the one that is in the file stays.
    """
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
    """Configure a broker for the devices of a store, for the first time or again.

    store: is made if it is missing; None: the one of before, or one in the directory.
    home_assistant: as in `write_configuration`. nats: whether it is a cluster of NATS servers;
    None: as before. options: of `BrokerOptions`; omitted ones stay as they are. Without options,
    an existing configuration changes only in its passwords, its access list and its memory.
    Raises StorageError and UsageError.
    """
    directory = Path(directory)
    if sites.is_site(directory):
        has_options = bool(store or options or home_assistant is not None)
        return _configure_site(directory, has_options)

    old: Access | None = None
    if (directory / HOST).exists():
        old = Access.load(directory / HOST)
        _require_same_kind(directory, old, nats)
    path = _store_path(directory, store, old)
    keys = _keys(path)
    if old and old.store and not options and _is_written(directory, old):
        _update(directory, replace(old, store=str(path)), keys, home_assistant)
    else:
        all_options: dict[str, Any] = {"nats": bool(nats)}
        if old:
            all_options = _options_before(directory, old)
        broker_options = BrokerOptions(**{**all_options, **options})
        write_configuration(
            directory, keys, broker_options, store=path, home_assistant=home_assistant
        )
    if not path.exists():
        Store(path, beside=True).close()
    return Access.load(directory / HOST)


def _require_same_kind(directory: Path, old: Access, nats: bool | None) -> None:
    """Raise UsageError if the broker of the directory is of another kind than is asked for."""
    if nats in (None, old.is_cluster):
        return
    raise UsageError(
        f"{directory} has another kind of broker already",
        hint="name another directory, with the same keys: "
        f"tern broker config OTHER --store {old.store} --for ...",
    )


def _is_written(directory: Path, old: Access) -> bool:
    """Return whether the broker of the directory has its configuration file."""
    return old.is_cluster or (directory / CONFIG).exists()


def _configure_site(directory: Path, has_options: bool) -> Access:
    """Configure the central broker of a site, and so the site's, too."""
    central = directory.resolve().parent.parent
    if has_options or not (central / CONFIG).exists():
        hint = "run 'tern broker config' on that broker's directory, and copy the site's anew"
        raise UsageError(f"{directory} is the site of another broker, which writes it", hint)
    configure(central)
    return Access.load(directory / HOST)


def _store_path(directory: Path, store: str | Path | None, old: Access | None) -> Path:
    """Return the store that is named, or else the one of before, or else the directory's own."""
    if store:
        return Path(store)
    if old and old.store:
        return Path(old.store)
    return directory / store_file.NAME


def _keys(path: Path) -> dict[int, bytes]:
    """Return the keys of a store; none if it does not exist."""
    if not path.exists():
        return {}
    with Store(path, create=False, beside=True) as store:
        return store.keys()


def _options_before(directory: Path, old: Access) -> dict[str, Any]:
    """Return the options of `BrokerOptions` with which a broker was configured before."""
    options: dict[str, Any] = {
        "nats": old.is_cluster,
        "names": mosquitto_files.names(directory, old),
        "port": old.port,
        "prefix": old.prefix,
        "tls": old.authority is not None,
    }
    listener = mosquitto_files.listening(directory)
    if listener:
        options["address"], _port = listener
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
