"""Configures a broker for a fleet, of any kind that is registered.

A board may write only its own topics, and read only its own and the fleet's.
"""

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tern.links import mqtt
from ternhost.errors import UsageError
from ternhost.files import storage_errors
from ternhost.reach.addresses import AUTHORITY, check_reached
from ternhost.reach.broker import for_boards, guests, kinds, mosquitto_files, sites
from ternhost.reach.broker.access import (
    CONFIG,
    HOST,
    HOST_USER,
    OBSERVER,
    TO_ALL_BOARDS,
    Access,
    Rights,
    check_prefix,
)
from ternhost.reach.broker.guests import NO_CHANGES, GuestPrefixes
from ternhost.reach.broker.kinds import KINDS, BrokerKind, BrokerUsers
from ternhost.reach.broker.sites import BrokerSite
from ternhost.store import store_file
from ternhost.store.store import Store

OBSERVER_USER = "tern-watch"
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
    kind: str = kinds.DEFAULT  # a name in `kinds.KINDS`

    @property
    def hosts(self) -> Sequence[str]:
        """The names at which the broker is reached, by default those of this machine."""
        return self.names or KINDS.named(self.kind).names_here


DEFAULTS = BrokerOptions()


# Writing


def write_configuration(
    directory: str | Path,
    keys: Mapping[int, bytes],
    options: BrokerOptions = DEFAULTS,
    *,
    store: str | Path | None = None,
    guest_prefixes: GuestPrefixes = NO_CHANGES,
) -> Access:
    """Write all files of a broker, and host.json with how to reach it, which is returned, too.

    If the directory has a certificate authority already, a password of the host, or the path of a
    store, these stay.

    directory: the broker's directory; it is made if it is missing.
    keys: the keys of the devices, by their ids.
    options: what kind of broker it is, and how it is reached.
    store: the file with the keys, which is made if it is missing, and whose path is noted in
        host.json; None if it stays as before.
    guest_prefixes: which guests may see the fleet from now on, or no longer.
    Raises StorageError and UsageError.
    """
    kind = KINDS.named(options.kind)
    _check_options(directory, kind, options, guest_prefixes)
    directory = Path(directory).absolute()
    with storage_errors():
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        if options.tls:
            from ternhost.reach.certificates import write_certificates  # they need an extra

            write_certificates(directory, options.hosts)

        # The store comes before host.json names it, so that a named store that is missing was lost.
        if store is not None:
            _make_store(Path(store))
        access = _access_of_host(kind, options)
        _write_host(directory / HOST, access, store)
        kind.write(directory, access, address=options.address, boards=len(keys))
        _write_users(directory, kind, keys, guest_prefixes, anew=True)
    return Access.load(directory / HOST)


def _access_of_host(kind: BrokerKind, options: BrokerOptions) -> Access:
    """Return how the host reaches a broker with these options. The password is still empty."""
    authority = None
    if options.tls:
        authority = AUTHORITY
    return Access(
        host=kind.host(options.hosts),
        port=options.port,
        user=HOST_USER,
        password="",
        authority=authority,
        prefix=options.prefix,
    )


def _check_options(
    directory: str | Path,
    kind: BrokerKind,
    options: BrokerOptions,
    guest_prefixes: GuestPrefixes,
) -> None:
    """Raise UsageError for options with which no broker of this kind can run.

    The parameters are those of `write_configuration`. Each of the functions that are called here
    raises for a part of them.
    """
    last_port = options.port + kind.port_count - 1
    check_reached(options.hosts, options.address, last_port)
    check_prefix(options.prefix)
    guests.check(Path(directory), guest_prefixes, options.prefix)
    kind.check_place(Path(directory).absolute(), options.hosts)
    kind.check_users(_prefixes(options.prefix, guest_prefixes))


def _prefixes(fleet_prefix: str, guest_prefixes: GuestPrefixes) -> list[str]:
    """Return the prefixes of the fleet's topics and of those of guests that are let in."""
    of_guests = [prefix for prefix in guest_prefixes.values() if prefix is not None]
    return [fleet_prefix, *of_guests]


def _write_users(
    directory: Path,
    kind: BrokerKind,
    keys: Mapping[int, bytes],
    guest_prefixes: GuestPrefixes = NO_CHANGES,
    anew: bool = False,
) -> None:
    """Write what users the broker has, with passwords and rights, and the files of its sites.

    for-boards.json is written, too, which says how the boards reach it.

    The users are the host, observers, those of guests, the brokers of the sites, and each board.

    directory: the broker's directory. kind: the kind of the broker. keys: the keys of the devices,
    by their ids. guest_prefixes: as in `write_configuration`. anew: whether the configurations of
    the sites' brokers are written again, too, which users may have edited.
    """
    for guest in guests.registered():
        for path, access in guest.accesses(directory, guest_prefixes).items():
            _write_host(path, access, store=None)
    host = Access.load(directory / HOST)
    _write_host(directory / OBSERVER, replace(host, user=OBSERVER_USER), host.store)
    for_boards.write(directory, host)
    rights = _rights(directory, host)
    all_sites = sites.write(directory, keys, anew)
    bridges = ""
    for site in all_sites:
        bridges += site.access_list(host.prefix, keys)
    users = BrokerUsers(
        passwords=_passwords(rights, all_sites, keys),
        boards=[mqtt.name(device) for device in keys],
        rights={access.user: rights_of_user for access, rights_of_user in rights.items()},
        bridges=bridges,
    )
    kind.write_users(directory, host, users)


def _rights(directory: Path, host: Access) -> dict[Access, Rights]:
    """Return the topics that the host, observers and the guests of a broker may write and read.

    directory: the broker's directory. host: how the host reaches the broker. The keys of the result
    say how each user reaches it.
    """
    # The host writes what goes down to boards, and reads what comes up from them.
    host_rights = Rights.below(
        host.prefix, write=f"{TO_ALL_BOARDS} down/+", read="up/+ hello/+ site/+"
    )
    # Observers see which boards are there, and nothing else. At a Mosquitto, each user may write the
    # HELLO of its own name; the name of observers is no board's.
    observer = Access.load(directory / OBSERVER)
    observer_rights = Rights.below(
        host.prefix,
        write=f"hello/{OBSERVER_USER}",
        read="hello/+",
        denied=f"{TO_ALL_BOARDS} down/+ up/+",
    )
    return {host: host_rights, observer: observer_rights, **guests.rights(directory)}


def _passwords(
    users: Iterable[Access], all_sites: Iterable[BrokerSite], keys: Mapping[int, bytes]
) -> dict[str, str]:
    """Return the password of each user of a broker, by the user's name.

    users: the host, observers and those of guests. all_sites: the sites, which are users if they have a broker.
    keys: the keys of the devices, by their ids.
    """
    passwords = {}
    for access in users:
        passwords[access.user] = access.password
    for site in all_sites:
        if site.bridge:
            passwords[site.user] = site.password
    for device, key in keys.items():
        passwords[mqtt.name(device)] = mqtt.password(key)
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
    guest_prefixes: GuestPrefixes = NO_CHANGES,
    kind: str | None = None,
    **options: Any,
) -> Access:
    """Configure a broker for the devices of a store, for the first time or again.

    Without options, an existing configuration changes only where it depends on the devices: in
    passwords, the access list, and the memory limit. A certificate that expires soon is renewed.

    directory: the broker's directory. If it is that of a site, the central broker is configured.
    store: the file with the keys of the devices, which is made if it is missing. None stands for
        the one that was named before, or else one in the directory.
    guest_prefixes: as in `write_configuration`.
    kind: the name of its kind; None leaves it as it was, and stands for Mosquitto in a new one.
    options: those of `BrokerOptions`; what is left out stays as it was.
    Raises StorageError and UsageError.
    """
    directory = Path(directory)
    if sites.is_site(directory):
        has_options = bool(store or options or guest_prefixes)
        return _configure_site(directory, has_options)

    old: Access | None = None
    if (directory / HOST).exists():
        old = Access.load(directory / HOST)
    broker_kind = chosen_kind(directory, kind)
    path = _store_path(directory, store, old)
    if store is None and old is not None and old.store and not path.exists():
        raise UsageError(
            f"{directory / HOST} names the store {path}, which is not there",
            hint="bring it back, or name the file with the keys of the devices: "
            f"tern broker config {directory} --store FILE",
        )
    keys = _keys(path)
    if old and old.store and not options and broker_kind.is_written(directory):
        new_access = replace(old, store=str(path))
        _update(directory, broker_kind, new_access, keys, guest_prefixes)
    else:
        all_options: dict[str, Any] = {}
        if old:
            all_options = _options_before(directory, broker_kind, old)
        all_options |= options
        broker_options = BrokerOptions(kind=broker_kind.name, **all_options)
        write_configuration(
            directory, keys, broker_options, store=path, guest_prefixes=guest_prefixes
        )
    return Access.load(directory / HOST)


def chosen_kind(directory: Path, name: str | None) -> BrokerKind:
    """Return the kind of broker to configure in a directory, which is no site's.

    name: the name of the kind that the user wants; None for the one that the directory has, or for
    Mosquitto in a new one. Raises UsageError if the user wants another kind than the directory has,
    or if its kind is not registered.
    """
    if not (directory / HOST).exists():
        return KINDS.named(name or kinds.DEFAULT)
    old = Access.load(directory / HOST)
    kind = kinds.kind_of(directory, old)
    if name not in (None, kind.name):
        raise UsageError(
            f"{directory} has another kind of broker already",
            hint="name another directory, with the same keys: "
            f"tern broker config OTHER --store {old.store} --for ...",
        )
    return kind


def _configure_site(directory: Path, has_options: bool) -> Access:
    """Configure the central broker of a site, which writes the files of the site's broker, too.

    directory: the directory of the site, inside that of the central broker. has_options: the user
    has given options, which is an error, since they may be about either broker. Returns how the
    site's broker is reached.
    """
    central = directory.resolve().parent.parent
    if has_options or not (central / CONFIG).exists():
        hint = "run 'tern broker config' on that broker's directory, and copy the site's directory again"
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


def _make_store(path: Path) -> None:
    """Make an empty store, unless the file is there. Raises StorageError."""
    if not path.exists():
        Store(path, beside=True).close()


def _keys(path: Path) -> dict[int, bytes]:
    """Return the keys of the devices in a store, by their ids; none if there is no such file."""
    if not path.exists():
        return {}
    with Store(path, create=False, beside=True) as store:
        return store.keys()


def _options_before(directory: Path, kind: BrokerKind, old: Access) -> dict[str, Any]:
    """Return the options of `BrokerOptions` with which a broker was configured the last time.

    directory: the broker's directory. old: how it is reached.
    """
    options: dict[str, Any] = {
        "names": mosquitto_files.names(directory, old),
        "port": old.port,
        "prefix": old.prefix,
        "tls": old.authority is not None,
    }
    address = kind.listening_address(directory)
    if address is not None:
        options["address"] = address
    return options


def _update(
    directory: Path,
    kind: BrokerKind,
    access: Access,
    keys: Mapping[int, bytes],
    guest_prefixes: GuestPrefixes,
) -> None:
    """Change what depends on the devices in an existing configuration: users and memory.

    directory: the broker's directory. kind: the kind of the broker. access: how it is reached.
    keys: the keys of the devices, by their ids. guest_prefixes: as in `write_configuration`.
    """
    guests.check(directory, guest_prefixes, access.prefix)
    kind.check_users(_prefixes(access.prefix, guest_prefixes))
    with storage_errors():
        if access.store is not None:
            _make_store(Path(access.store))
        if access.authority and kind.name == kinds.DEFAULT:
            _renew_certificate(directory, access)
        _write_host(directory / HOST, access, access.store)
        _write_users(directory, kind, keys, guest_prefixes)
        kind.update(directory, len(keys))


def _renew_certificate(directory: Path, access: Access) -> None:
    """Renew the certificate of a broker if it expires soon, for the same names and authority.

    directory: the broker's directory. access: how it is reached. Raises OSError.
    """
    from ternhost.reach import certificates  # they need an extra

    if certificates.must_be_renewed(directory, signer=directory):
        names = mosquitto_files.names(directory, access)
        certificates.write_certificates(directory, names)


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
