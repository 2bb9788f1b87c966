"""Sites of a fleet: with a broker bridged to the central one, or with a relay for boards on USB. A
site's directory, to be copied there, holds neither a device key nor the key of the certificate
authority.
"""

import json
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tern.links import mqtt
from ternhost.errors import StorageError, UsageError
from ternhost.files import read_object, write_file
from ternhost.provision.keys import LAST, check_apart
from ternhost.reach.addresses import AUTHORITY, check_reached
from ternhost.reach.broker import mosquitto_files
from ternhost.reach.broker.access import BOARDS, CERTIFICATE, CONFIG, HOST, Access, Rights, template

SITES = "sites"
SITE = "site.json"  # the options of the site, and the bridge's password

Ids = Mapping[str, range]  # by site, the ids of its devices; without sites that accept any

RESENT = 3.0  # seconds in which a returning site's broker resends retained messages
_AGAIN = 60.0  # least seconds between two returns of a site that count

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")
HERE = {"localhost", "127.0.0.1", "::1"}

# Mosquitto searches a list from its beginning: the most frequent topics are first.
_OF_BOARDS = (
    "topic write {prefix}/up/",
    "topic read {prefix}/down/",
    "topic write {prefix}/hello/",
)


@dataclass(frozen=True)
class BrokerSite:
    """The options of a site."""

    name: str
    password: str
    bridge: bool = False  # it has a broker, with names, address and port
    relay: bool = False  # it has `boards.json`
    names: Sequence[str] = ("localhost", "127.0.0.1")
    address: str = "127.0.0.1"
    port: int = mosquitto_files.PORT
    first: int = 1  # the ids of its devices, up to `last`; messages of others do not pass
    last: int = LAST

    @property
    def user(self) -> str:
        """Its broker's user name at the central one."""
        return f"tern-site-{self.name}"

    @property
    def ids(self) -> range:
        return range(self.first, self.last + 1)

    @property
    def has_ids(self) -> bool:
        return (self.first, self.last) != (1, LAST)

    def keys(self, keys: Mapping[int, bytes]) -> dict[int, bytes]:
        """The keys of its devices among these."""
        return {device: key for device, key in keys.items() if device in self.ids}

    def access_list(self, prefix: str, keys: Mapping[int, bytes]) -> str:
        """Its section of the central broker's access list."""
        if not self.bridge:
            return ""
        boards = (
            [mqtt.name(device) for device in sorted(self.keys(keys))] if self.has_ids else ["+"]
        )
        lines = [f"{topic}{board}\n" for topic in _OF_BOARDS for board in boards]
        rights = Rights.below(prefix, f"site/{self.name}", "round model").lines()
        return f"user {self.user}\n{rights}{''.join(lines).format(prefix=prefix)}\n"


def is_site(directory: Path) -> bool:
    return (directory / SITE).exists()


def load_all(directory: Path) -> list[BrokerSite]:
    """The sites of the central broker whose directory this is.

    Raises UsageError and StorageError.
    """
    return [_load(path) for path in sorted((directory / SITES).glob(f"*/{SITE}"))]


def ids(directory: Path) -> dict[str, range]:
    """Load the ids of sites that have a broker and own ids, without unreadable sites, so that the
    host goes on.
    """
    by_site = {}
    for path in (directory / SITES).glob(f"*/{SITE}"):
        with suppress(StorageError, UsageError):
            site = _load(path)
            if site.bridge and site.has_ids:
                by_site[site.name] = site.ids
    return by_site


def _load(path: Path) -> BrokerSite:
    try:
        return BrokerSite(**read_object(path))
    except TypeError as error:
        raise UsageError(f"{path} does not describe a site: {error}") from error


class SiteIds:
    """The ids of sites and their latest returns, so that no site's broker speaks for another's
    boards: an access list limits its topics, which name the first client of a board, but not its
    HELLOs.
    """

    def __init__(self, load: Callable[[], Ids] = dict) -> None:
        """load: reads the current ids; called when a site is back, or the host is connected."""
        self._load = load
        self._ids: Ids = {}
        self._back: dict[str, float] = {}  # time of the last return, by name

    def renew(self) -> None:
        """Sites may have been added."""
        self._ids = self._load()

    def back(self, site: str, now: float) -> None:
        """A site's broker claims to be connected again; counts once in a while only, since anybody
        can claim it.
        """
        if now - self._back.get(site, -_AGAIN) >= _AGAIN:
            self.renew()
            self._back[site] = now

    def resent(self, first: int, now: float) -> bool:
        """Whether a message of the board with this first client may be old: its site has just
        returned.
        """
        return any(
            now - then < RESENT and self.may_speak(site, first) for site, then in self._back.items()
        )

    def may_speak(self, site: str, device: int) -> bool:
        # A site without ids may speak for any board that is at no other.
        if site in self._ids:
            return device in self._ids[site]
        return not any(device in ids for ids in self._ids.values())

    def cut(self, clients: range) -> range:
        """The clients that a board claims, up to the first that belongs to another site than its
        first client.
        """
        stop = clients.stop
        for ids in self._ids.values():
            for end in (ids.start, ids.stop):
                if clients.start < end:
                    stop = min(stop, end)
        return range(clients.start, stop)


def check(directory: Path, name: str) -> None:
    """Raise UsageError where the broker of a directory cannot have a site of this name."""
    if not _NAME.fullmatch(name):
        hint = "give 1 to 32 small letters, digits and '-', such as lab-2"
        raise UsageError(f"a site cannot be called {name!r}", hint)
    if is_site(directory):
        hint = "a site has no sites: run 'tern broker config' on the central broker's directory"
        raise UsageError(f"{directory} is the site of another broker", hint)


def _check_apart(site: BrokerSite, directory: Path, central: Access) -> None:
    # Two brokers share neither names nor ids of devices.
    others = [other for other in load_all(directory) if other.name != site.name and other.bridge]
    for name in site.names:
        if name in HERE:
            continue
        if name in mosquitto_files.names(directory, central):
            raise UsageError(
                f"{name} is the central broker", hint="give the site another name: --site-name"
            )
        for other in others:
            if name in other.names:
                raise UsageError(
                    f"{name} is the broker of site {other.name}", hint="use another --site-name"
                )
    check_apart({each.name: each.ids for each in (site, *others) if each.has_ids})


def describe(
    directory: Path,
    name: str,
    *,
    bridge: bool = False,
    relay: bool = False,
    boards: range | None = None,
    **options: Any,
) -> BrokerSite:
    """Store the options of a site; omitted ones stay. boards: the ids of its devices. options:
    names, address and port of its broker. Raises UsageError.
    """
    check(directory, name)
    central = Access.load(directory / HOST)
    path = directory / SITES / name / SITE
    site = _load(path) if path.exists() else BrokerSite(name, secrets.token_urlsafe(16))
    options = {option: value for option, value in options.items() if value is not None}
    bridge, relay = bridge or site.bridge, relay or site.relay
    if options and not bridge:
        raise UsageError(f"site {name} has no broker", hint="add --bridge " + name)
    boards, before = boards or site.ids, list(site.names)
    site = replace(site, bridge=bridge, relay=relay, first=boards[0], last=boards[-1], **options)
    check_reached(site.names, site.address, site.port)
    if site.bridge:
        _check_apart(site, directory, central)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    (path.parent / CONFIG).unlink(missing_ok=True)
    if before != list(site.names):
        (path.parent / CERTIFICATE).unlink(missing_ok=True)  # `write` makes one for the new names
    write_file(path, json.dumps(asdict(site), indent=1).encode() + b"\n", secret=True)
    return site


def write(directory: Path, keys: Mapping[int, bytes], anew: bool = False) -> list[BrokerSite]:
    """Write the directories of all sites. anew: mosquitto.conf, too.

    Raises OSError, StorageError and UsageError.
    """
    sites = load_all(directory)
    for site in sites:
        if anew:
            (directory / SITES / site.name / CONFIG).unlink(missing_ok=True)
        _write(site, directory, site.keys(keys))
    return sites


def _write(site: BrokerSite, central: Path, keys: Mapping[int, bytes]) -> None:
    access = Access.load(central / HOST)
    directory = central / SITES / site.name
    passwords = [(mqtt.name(device), mqtt.password(key)) for device, key in keys.items()]
    # How boards reach their broker. The user is empty: only the host, at the central broker, asks
    # boards. The path of the store is right as long as the directory is not moved.
    host, port = (site.names[0], site.port) if site.bridge else (access.host, access.port)
    replace(access, host=host, port=port, user="", password="").save(directory / HOST)
    if site.relay:
        write_file(
            directory / BOARDS, json.dumps(dict(passwords), indent=1).encode() + b"\n", secret=True
        )
    if access.authority:
        write_file(directory / AUTHORITY, Path(access.authority).read_bytes())
    if not site.bridge:
        return
    if access.authority and not (directory / CERTIFICATE).exists():
        from ternhost.reach.certificates import write_site_certificates  # they need an extra

        write_site_certificates(directory, site.names, central)
    mosquitto_files.write_password_file(directory, passwords)
    mosquitto_files.write_access_list(directory, "", access.prefix)
    if (directory / CONFIG).exists():
        mosquitto_files.update_memory(directory, len(keys))
        return
    tls_lines = (
        f"bridge_cafile {AUTHORITY}\nbridge_tls_version tlsv1.2\n" if access.authority else ""
    )
    bridge = template("bridge.conf").format(site=site, access=access, tls=tls_lines)
    address, port, tls = site.address, site.port, access.authority is not None
    mosquitto_files.write_conf(
        directory, address=address, port=port, boards=len(keys), tls=tls, user=None, bridge=bridge
    )
