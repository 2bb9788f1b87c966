"""Sites of a fleet: with a broker bridged to the central one, or with a relay for boards on USB.

A site's directory, to be copied there, holds neither a device key nor the key of the certificate
authority.
"""

import json
import math
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
_BOARD_TOPICS = (
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
        """The ids that its devices may have."""
        return range(self.first, self.last + 1)

    @property
    def has_ids(self) -> bool:
        """Whether only some of all ids are for its devices."""
        return (self.first, self.last) != (1, LAST)

    def keys(self, keys: Mapping[int, bytes]) -> dict[int, bytes]:
        """The keys of its devices among these."""
        return {device: key for device, key in keys.items() if device in self.ids}

    def access_list(self, prefix: str, keys: Mapping[int, bytes]) -> str:
        """Return its section of the central broker's access list; empty if it has no broker.

        prefix: of the fleet's topics. keys: of all devices of the fleet.
        """
        if not self.bridge:
            return ""
        boards = ["+"]
        if self.has_ids:
            boards = [mqtt.name(device) for device in sorted(self.keys(keys))]
        # Its broker says whether it is connected, and reads what is for all boards.
        rights = Rights.below(prefix, f"site/{self.name}", "round model").lines()
        text = f"user {self.user}\n{rights}"
        for topic in _BOARD_TOPICS:
            for board in boards:
                text += f"{topic.format(prefix=prefix)}{board}\n"
        return text + "\n"


# Reading


def is_site(directory: Path) -> bool:
    """Return whether the directory is that of a site."""
    return (directory / SITE).exists()


def load_all(directory: Path) -> list[BrokerSite]:
    """Load the sites of a central broker. directory: of the broker.

    Raises UsageError and StorageError.
    """
    return [_load(path) for path in sorted((directory / SITES).glob(f"*/{SITE}"))]


def ids(directory: Path) -> dict[str, range]:
    """Load the ids of sites that have a broker and own ids.

    Unreadable sites are left out, so that the host goes on.
    """
    ids_by_site = {}
    for path in (directory / SITES).glob(f"*/{SITE}"):
        with suppress(StorageError, UsageError):
            site = _load(path)
            if site.bridge and site.has_ids:
                ids_by_site[site.name] = site.ids
    return ids_by_site


def _load(path: Path) -> BrokerSite:
    try:
        return BrokerSite(**read_object(path))
    except TypeError as error:
        raise UsageError(f"{path} does not describe a site: {error}") from error


class SiteIds:
    """The ids of sites and their latest returns.

    With them, no site's broker speaks for another's boards: an access list limits its topics, which
    name the first client of a board, but not its HELLOs.
    """

    def __init__(self, load: Callable[[], Ids] = dict) -> None:
        """load: reads the current ids; it is called when a site is back, or the host connects."""
        self._load = load
        self._ids: Ids = {}
        self._returns: dict[str, float] = {}  # time of the last return, by name

    def renew(self) -> None:
        """Read the ids again: sites may have been added."""
        self._ids = self._load()

    def note_return(self, site: str, now: float) -> None:
        """Note that a site's broker claims to be connected again.

        It counts once in a while only, since anybody can claim it.
        """
        last_return = self._returns.get(site, -math.inf)
        if now - last_return >= _AGAIN:
            self.renew()
            self._returns[site] = now

    def resent(self, first: int, now: float) -> bool:
        """Return whether a message of a board may be one that its site's broker sends again.

        It may be if the site has just returned. first: the first client of the board. now: by the
        monotonic clock.
        """
        for site, last_return in self._returns.items():
            if now - last_return < RESENT and self.may_speak(site, first):
                return True
        return False

    def may_speak(self, site: str, device: int) -> bool:
        """Return whether a site's broker may speak for a device.

        A site without ids may speak for any board that is at no other.
        """
        if site in self._ids:
            return device in self._ids[site]
        return all(device not in ids_of_site for ids_of_site in self._ids.values())

    def cut(self, clients: range) -> range:
        """Return the clients that a board claims, without those of another site than its first."""
        stop = clients.stop
        for ids_of_site in self._ids.values():
            for border in (ids_of_site.start, ids_of_site.stop):
                if clients.start < border:
                    stop = min(stop, border)
        return range(clients.start, stop)


# Writing


def check(directory: Path, name: str) -> None:
    """Raise UsageError if the broker of a directory cannot have a site of this name."""
    if not _NAME.fullmatch(name):
        hint = "give 1 to 32 small letters, digits and '-', such as lab-2"
        raise UsageError(f"a site cannot be called {name!r}", hint)
    if is_site(directory):
        hint = "a site has no sites: run 'tern broker config' on the central broker's directory"
        raise UsageError(f"{directory} is the site of another broker", hint)


def _check_apart(site: BrokerSite, directory: Path, central: Access) -> None:
    """Raise UsageError if a site shares a host name or the id of a device with another broker.

    directory: of the central broker. central: how that is reached.
    """
    others = []
    for other in load_all(directory):
        if other.name != site.name and other.bridge:
            others.append(other)
    central_names = mosquitto_files.names(directory, central)
    for name in site.names:
        if name in HERE:
            continue
        if name in central_names:
            raise UsageError(
                f"{name} is the central broker", hint="give the site another name: --site-name"
            )
        for other in others:
            if name in other.names:
                raise UsageError(
                    f"{name} is the broker of site {other.name}", hint="use another --site-name"
                )
    ids_by_site = {each.name: each.ids for each in (site, *others) if each.has_ids}
    check_apart(ids_by_site)


def save(
    directory: Path,
    name: str,
    *,
    bridge: bool = False,
    relay: bool = False,
    boards: range | None = None,
    **broker_options: Any,
) -> BrokerSite:
    """Store the options of a site, which is new or changes; options that are omitted stay.

    directory: of the central broker. bridge, relay: see `BrokerSite`; what a site has it keeps.
    boards: the ids of its devices. broker_options: names, address and port of its broker. Raises
    UsageError.
    """
    check(directory, name)
    central = Access.load(directory / HOST)
    path = directory / SITES / name / SITE
    if path.exists():
        old = _load(path)
    else:
        old = BrokerSite(name, password=secrets.token_urlsafe(16))
    changes = {option: value for option, value in broker_options.items() if value is not None}
    bridge = bridge or old.bridge
    relay = relay or old.relay
    if changes and not bridge:
        raise UsageError(f"site {name} has no broker", hint="add --bridge " + name)
    device_ids = boards or old.ids
    site = replace(
        old, bridge=bridge, relay=relay, first=device_ids[0], last=device_ids[-1], **changes
    )
    check_reached(site.names, site.address, site.port)
    if site.bridge:
        _check_apart(site, directory, central)

    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # `write` makes the configuration anew, and a certificate for new names.
    (path.parent / CONFIG).unlink(missing_ok=True)
    if list(old.names) != list(site.names):
        (path.parent / CERTIFICATE).unlink(missing_ok=True)
    write_file(path, _json(asdict(site)), secret=True)
    return site


def write(directory: Path, keys: Mapping[int, bytes], anew: bool = False) -> list[BrokerSite]:
    """Write the directories of all sites of a central broker, and return the sites.

    keys: of all devices of the fleet. anew: write each mosquitto.conf again, too. Raises OSError,
    StorageError and UsageError.
    """
    sites = load_all(directory)
    for site in sites:
        if anew:
            (directory / SITES / site.name / CONFIG).unlink(missing_ok=True)
        _write(site, directory, site.keys(keys))
    return sites


def _write(site: BrokerSite, central: Path, keys: Mapping[int, bytes]) -> None:
    """Write the directory of a site.

    central: the directory of the central broker. keys: of the site's devices.
    """
    access = Access.load(central / HOST)
    directory = central / SITES / site.name
    passwords = []  # (user, password)
    for device, key in keys.items():
        passwords.append((mqtt.name(device), mqtt.password(key)))
    _write_host(site, access, directory)
    if site.relay:
        write_file(directory / BOARDS, _json(dict(passwords)), secret=True)
    if access.authority:
        write_file(directory / AUTHORITY, Path(access.authority).read_bytes())
    if site.bridge:
        _write_broker(site, access, central, passwords)


def _write_host(site: BrokerSite, access: Access, directory: Path) -> None:
    """Write how boards of a site reach their broker.

    The user is empty: only the host, at the central broker, asks boards. The path of the store is
    right as long as the directory is not moved.
    """
    host, port = access.host, access.port
    if site.bridge:
        host, port = site.names[0], site.port
    replace(access, host=host, port=port, user="", password="").save(directory / HOST)


def _write_broker(
    site: BrokerSite, access: Access, central: Path, passwords: Sequence[tuple[str, str]]
) -> None:
    """Write the certificate, the passwords, the rights and mosquitto.conf of a site's broker."""
    directory = central / SITES / site.name
    if access.authority and not (directory / CERTIFICATE).exists():
        from ternhost.reach.certificates import write_site_certificates  # they need an extra

        write_site_certificates(directory, site.names, central)
    mosquitto_files.write_password_file(directory, passwords)
    mosquitto_files.write_access_list(directory, "", access.prefix)
    if (directory / CONFIG).exists():
        mosquitto_files.update_memory(directory, len(passwords))
        return
    tls_lines = ""
    if access.authority:
        tls_lines = f"bridge_cafile {AUTHORITY}\nbridge_tls_version tlsv1.2\n"
    bridge = template("bridge.conf").format(site=site, access=access, tls=tls_lines)
    listener = mosquitto_files.Listener(site.address, site.port, access.authority is not None)
    mosquitto_files.write_conf(directory, listener, boards=len(passwords), bridge=bridge)


def _json(value: object) -> bytes:
    return json.dumps(value, indent=1).encode() + b"\n"
