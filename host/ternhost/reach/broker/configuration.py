"""Configures a broker for a fleet: Mosquitto, or a cluster of NATS servers.

A board may write only its own topics, and read only its own and the fleet's. With Mosquitto, a
client's id is its user name, so that no board can take over another's session.
"""

import getpass
import secrets
from collections.abc import Iterable, Mapping, Sequence
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
_PASSWORD_BYTES = 16  # of randomness in a new password


@dataclass(frozen=True)
class BrokerOptions:
    """What kind of broker to configure, and how it is reached."""

    # The names or addresses at which boards reach it; of a cluster, a name for each node. None are
    # given for a broker that is reached from its own machine only.
    names: Sequence[str] = ()
    address: str = "127.0.0.1"  # to listen on; the nodes of a cluster listen at `names`
    port: int = mosquitto_files.PORT
    prefix: str = "tern"  # the beginning of all topics
    tls: bool = True
    nats: bool = False  # a cluster of NATS servers instead of Mosquitto

    @property
    def hosts(self) -> Sequence[str]:
        """The names at which the broker is reached, by default those of this machine."""
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
    """Write all files of a broker, and host.json with how to reach it, which is returned, too.

    If the directory has a certificate authority already, a password of the host, or the path of a
    store, these stay.

    directory: the broker's directory; it is made if it is missing.
    keys: the keys of the devices, by their ids.
    options: what kind of broker it is, and how it is reached.
    store: the file with the keys, whose path is noted in host.json; None if it stays as before.
    home_assistant: the prefix of Home Assistant's discovery topics. None leaves it as it was, and
        False hides the fleet from Home Assistant again.
    Raises StorageError and UsageError.
    """
    _check_options(directory, options, home_assistant)
    directory = Path(directory).absolute()
    with storage_errors():
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        if options.tls:
            from ternhost.reach.certificates import write_certificates  # they need an extra

            write_certificates(directory, options.hosts)

        access = _access_of_host(options)
        _write_host(directory / HOST, access, store)
        if options.nats:
            cluster.write_nodes(directory, access)
        else:
            listener = mosquitto_files.Listener(options.address, options.port, options.tls)
            user = getpass.getuser()
            mosquitto_files.write_conf(directory, listener, boards=len(keys), user=user)
        _write_users(directory, keys, home_assistant, anew=True)
    return Access.load(directory / HOST)


def _access_of_host(options: BrokerOptions) -> Access:
    """Return how the host reaches a broker with these options. The password is still empty."""
    authority = None
    if options.tls:
        authority = AUTHORITY
    host = options.hosts[0]
    if options.nats:  # it may connect to any node
        host = ",".join(options.hosts)
    return Access(
        host=host,
        port=options.port,
        user=HOST_USER,
        password="",
        authority=authority,
        prefix=options.prefix,
    )


def _check_options(
    directory: str | Path, options: BrokerOptions, home_assistant: str | bool | None
) -> None:
    """Raise UsageError for options with which no broker can run.

    The parameters are those of `write_configuration`. Each of the functions that are called here
    raises for a part of them.
    """
    last_port = options.port
    if options.nats:
        last_port += 1  # at which the nodes of a cluster connect to each other
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
    """Write what users the broker has, with passwords and rights, and the files of its sites.

    The users are the host, perhaps two for Home Assistant, the brokers of the sites, and each
    board.

    directory: the broker's directory. keys: the keys of the devices, by their ids. home_assistant:
    as in `write_configuration`. anew: whether the configurations of the sites' brokers are written
    again, too, which users may have edited.
    """
    for path, access in home_access.users(directory, home_assistant).items():
        _write_host(path, access, store=None)
    host = Access.load(directory / HOST)
    rights = _rights(directory, host)
    all_sites = sites.write(directory, keys, anew)
    passwords = _passwords(rights, all_sites, keys)

    if host.is_cluster:
        cluster.write_users(directory, host, rights, passwords)
        return
    sections = ""  # of the access list, one for each user that is not a board
    for access, rights_of_user in rights.items():
        sections += f"user {access.user}\n{rights_of_user.lines()}\n"
    for site in all_sites:
        sections += site.access_list(host.prefix, keys)
    mosquitto_files.write_access_list(directory, sections, host.prefix)
    mosquitto_files.write_password_file(directory, passwords)


def _rights(directory: Path, host: Access) -> dict[Access, Rights]:
    """Return the topics that the host may write and read, and Home Assistant if it is configured.

    directory: the broker's directory. host: how the host reaches the broker. The keys of the result
    say how each user reaches it.
    """
    # The host writes what goes down to boards, and reads what comes up from them.
    host_rights = Rights.below(host.prefix, write="round model down/+", read="up/+ hello/+ site/+")
    rights = {host: host_rights}
    home = home_access.load(directory)
    if home:
        rights |= home.rights
    return rights


def _passwords(
    users: Iterable[Access], all_sites: Iterable[BrokerSite], keys: Mapping[int, bytes]
) -> list[tuple[str, str]]:
    """Return the name and the password of each user of a broker.

    users: the host and Home Assistant. all_sites: the sites, which are users if they have a broker.
    keys: the keys of the devices, by their ids.
    """
    passwords = []
    for access in users:
        passwords.append((access.user, access.password))
    for site in all_sites:
        if site.bridge:
            passwords.append((site.user, site.password))
    for device, key in keys.items():
        passwords.append((mqtt.name(device), mqtt.password(key)))
    return passwords


def _write_host(path: Path, access: Access, store: str | Path | None) -> None:
    """Write host.json, or a file like it, with a new password unless the file has one already.

    access: what to write, but for the password and the store. store: the path of the store; None
    keeps the one that is in the file, if any.
    """
    password = secrets.token_urlsafe(_PASSWORD_BYTES)
    if path.exists():
        old = Access.load(path)
        password = old.password
        store = store or old.store
    store_text = None
    if store:
        store_text = str(store)
    replace(access, password=password, store=store_text).save(path)


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

    Without options, an existing configuration changes only where it depends on the devices: in
    passwords, the access list, and the memory limit.

    directory: the broker's directory. If it is that of a site, the central broker is configured.
    store: the file with the keys of the devices, which is made if it is missing. None stands for
        the one that was named before, or else one in the directory.
    home_assistant: as in `write_configuration`.
    nats: whether it is a cluster of NATS servers; None leaves it as it was.
    options: those of `BrokerOptions`; what is left out stays as it was.
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
        new_access = replace(old, store=str(path))
        _update(directory, new_access, keys, home_assistant)
    else:
        all_options: dict[str, Any] = {"nats": bool(nats)}
        if old:
            all_options = _options_before(directory, old)
        broker_options = BrokerOptions(**{**all_options, **options})
        write_configuration(
            directory, keys, broker_options, store=path, home_assistant=home_assistant
        )
    if not path.exists():
        Store(path, beside=True).close()  # makes an empty one
    return Access.load(directory / HOST)


def _require_same_kind(directory: Path, old: Access, nats: bool | None) -> None:
    """Raise UsageError if the user wants another kind of broker than the directory has.

    old: how the present broker is reached. nats: whether a cluster is wanted; None if either will
    do.
    """
    if nats is None or nats == old.is_cluster:
        return
    raise UsageError(
        f"{directory} has another kind of broker already",
        hint="name another directory, with the same keys: "
        f"tern broker config OTHER --store {old.store} --for ...",
    )


def _is_written(directory: Path, old: Access) -> bool:
    """Return whether the broker of the directory has its configuration file, to be updated."""
    return old.is_cluster or (directory / CONFIG).exists()


def _configure_site(directory: Path, has_options: bool) -> Access:
    """Configure the central broker of a site, which writes the files of the site's broker, too.

    directory: the directory of the site, inside that of the central broker. has_options: the user
    has given options, which is an error, since they may be about either broker. Returns how the
    site's broker is reached.
    """
    central = directory.resolve().parent.parent
    if has_options or not (central / CONFIG).exists():
        hint = "run 'tern broker config' on that broker's directory, and copy the site's anew"
        raise UsageError(f"{directory} is the site of another broker, which writes it", hint)
    configure(central)
    return Access.load(directory / HOST)


def _store_path(directory: Path, store: str | Path | None, old: Access | None) -> Path:
    """Return the path of the broker's store, the file with the keys of its devices.

    store: the one that the user names, if any. old: how the broker was reached before; it may name
    a store, too. Otherwise the store is in the directory of the broker.
    """
    if store:
        return Path(store)
    if old and old.store:
        return Path(old.store)
    return directory / store_file.NAME


def _keys(path: Path) -> dict[int, bytes]:
    """Return the keys of the devices in a store, by their ids; none if there is no such file."""
    if not path.exists():
        return {}
    with Store(path, create=False, beside=True) as store:
        return store.keys()


def _options_before(directory: Path, old: Access) -> dict[str, Any]:
    """Return the options of `BrokerOptions` with which a broker was configured the last time.

    directory: the broker's directory. old: how it is reached.
    """
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
    """Change what depends on the devices in an existing configuration: users and memory.

    directory: the broker's directory. access: how it is reached. keys: the keys of the devices, by
    their ids. home_assistant: as in `write_configuration`.
    """
    home_access.check(directory, home_assistant, access.prefix)
    if access.is_cluster:
        cluster.check(access.hosts, home_assistant)
    with storage_errors():
        _write_host(directory / HOST, access, access.store)
        _write_users(directory, keys, home_assistant)
        if not access.is_cluster:
            mosquitto_files.update_memory(directory, len(keys))


def add_site(directory: str | Path, name: str, **options: Any) -> BrokerSite:
    """Add a site to a broker, or change it, and write its files.

    directory: the directory of the central broker. name: the name of the site. options: those of
    `sites.save`. Raises StorageError and UsageError.
    """
    directory = Path(directory)
    with storage_errors():
        site = sites.save(directory, name, **options)
    configure(directory)  # the central broker must know the site, too
    return site
