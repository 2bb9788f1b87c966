"""Sites of a fleet: places apart from the host, whose boards reach the central broker indirectly.

A site has a broker of its own, which is bridged to the central one, or a relay, which connects
boards on USB to a broker. The directory of a site is made at the central broker and copied there.
It contains neither keys of devices nor the key of the certificate authority.
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
from ternhost.reach.addresses import AUTHORITY, HERE, check_reached
from ternhost.reach.broker import for_boards, mosquitto_files
from ternhost.reach.broker.access import BOARDS, CERTIFICATE, CONFIG, HOST, Access, Rights, template

SITES = "sites"  # in the directory of the central broker, with a directory for each site
SITE = "site.json"  # the options of a site, and the password of its bridge

# By the name of a site, the ids that its devices may have. Sites that accept any id are left out.
Ids = Mapping[str, range]

_PASSWORD_BYTES = 16  # of randomness in the password of a bridge

RESENT = 3.0  # seconds in which a returning site's broker resends retained messages
_AGAIN = 60.0  # the least seconds between two returns of a site that count

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")

# What a site's bridge may do with the topics of each board. Mosquitto searches the list from its
# beginning, so the most frequent topics come first.
_BOARD_TOPICS = (
    "topic write {prefix}/up/",
    "topic read {prefix}/down/",
    "topic write {prefix}/hello/",
)


@dataclass(frozen=True)
class BrokerSite:
    """The options of a site, as they are stored in site.json."""

    name: str
    password: str  # with which its broker logs in at the central one

    # Whether it has a broker of its own, which is bridged to the central one; and that broker.
    bridge: bool = False
    names: Sequence[str] = ("localhost", "127.0.0.1")  # at which boards reach it
    address: str = "127.0.0.1"  # where it listens
    port: int = mosquitto_files.PORT

    # Whether it has a relay, and so boards.json, the passwords of its boards.
    relay: bool = False

    # Its devices have ids from `first` to `last`. Its broker passes no messages of others on.
    first: int = 1
    last: int = LAST

    @property
    def user(self) -> str:
        """The user name with which the site's broker logs in at the central one."""
        return f"tern-site-{self.name}"

    @property
    def ids(self) -> range:
        """The ids that its devices may have."""
        return range(self.first, self.last + 1)

    @property
    def has_ids(self) -> bool:
        """Whether its devices may have only some of all ids."""
        return (self.first, self.last) != (1, LAST)

    def keys(self, keys: Mapping[int, bytes]) -> dict[int, bytes]:
        """Return the keys of its own devices among the keys of all devices (by their ids)."""
        return {device: key for device, key in keys.items() if device in self.ids}

    def access_list(self, prefix: str, keys: Mapping[int, bytes]) -> str:
        """Return what the site's broker may do, as a section of the central broker's access list.

        A site is a place apart from the host. Its broker logs in at the central one as a user, and
        passes on the messages of the site's boards, and no others. A site without a broker
        (`bridge` is False) gets an empty section, since nobody logs in for it.

        prefix: the beginning of all topics of the fleet. keys: the keys of all devices of the
        fleet, by their ids.
        """
        if not self.bridge:
            return ""
        # The broker writes whether it is connected, and reads what the host sends to all boards.
        rights = Rights.below(prefix, write=f"site/{self.name}", read="round model/#")
        section = f"user {self.user}\n{rights.lines()}"

        any_board = "+"  # the wildcard of MQTT
        boards = [any_board]
        if self.has_ids:  # only the devices with these ids are the site's
            boards = [mqtt.name(device) for device in sorted(self.keys(keys))]
        for topic in _BOARD_TOPICS:
            for board in boards:
                section += f"{topic.format(prefix=prefix)}{board}\n"
        return section + "\n"


# Reading


def is_site(directory: Path) -> bool:
    """Return whether the directory is that of a site."""
    return (directory / SITE).exists()


def load_all(directory: Path) -> list[BrokerSite]:
    """Load all sites of the central broker with this directory.

    Raises UsageError and StorageError.
    """
    paths = sorted((directory / SITES).glob(f"*/{SITE}"))
    return [_load(path) for path in paths]


def ids(directory: Path) -> dict[str, range]:
    """Load which ids the devices of each site may have, from the directory of the central broker.

    Sites without a broker are left out, and those whose devices may have any id. So are sites whose
    files cannot be read, so that the host goes on without them.
    """
    ids_by_site = {}
    for path in (directory / SITES).glob(f"*/{SITE}"):
        with suppress(StorageError, UsageError):
            site = _load(path)
            if site.bridge and site.has_ids:
                ids_by_site[site.name] = site.ids
    return ids_by_site


def _load(path: Path) -> BrokerSite:
    """Load the options of a site from its site.json. Raises UsageError and StorageError."""
    try:
        return BrokerSite(**read_object(path))
    except TypeError as error:
        raise UsageError(f"{path} does not describe a site: {error}") from error


class SiteIds:
    """Which devices belong to which site, and when each site was connected again.

    It prevents that the broker of a site speaks for boards of another one. The access list cannot
    do that alone: it limits the topics, which name the first client of a board, but not what a
    HELLO says about the other clients.
    """

    def __init__(self, load: Callable[[], Ids] = dict) -> None:
        """Begin without sites.

        load: a function that reads the present ids of all sites. It is called when the host
        connects to the broker, and when a site is connected again.
        """
        self._load = load
        self._ids: Ids = {}
        self._returns: dict[str, float] = {}  # when each site was connected again, by its name

    def renew(self) -> None:
        """Read the ids again, since sites may have been added."""
        self._ids = self._load()

    def note_return(self, site: str, now: float) -> None:
        """Note that a site's broker says that it is connected again.

        That counts at most once a minute, since anybody can say so, and reading the ids takes time.
        now: the time by the monotonic clock.
        """
        last_return = self._returns.get(site, -math.inf)
        if now - last_return >= _AGAIN:
            self.renew()
            self._returns[site] = now

    def may_be_resent(self, first: int, now: float) -> bool:
        """Return whether a message of a board may be an old one that its site's broker has kept.

        That is possible if the site was connected again a few seconds ago, since its broker then
        sends what it has retained. first: the first client of the board. now: the time by the
        monotonic clock.
        """
        for site, last_return in self._returns.items():
            if now - last_return < RESENT and self.may_speak(site, first):
                return True
        return False

    def may_speak(self, site: str, device: int) -> bool:
        """Return whether messages of a device may come from the broker of a site.

        A site that accepts any id may speak for all devices that are at no other site.
        """
        if site in self._ids:
            return device in self._ids[site]
        return all(device not in ids_of_site for ids_of_site in self._ids.values())

    def clients_at_same_site(self, clients: range) -> range:
        """Return the clients of a board that can belong to the same site as its first client.

        clients: the ids that the board claims to have. The result ends where the ids of another
        site begin, or those of the board's site end.
        """
        stop = clients.stop
        for ids_of_site in self._ids.values():
            for border in (ids_of_site.start, ids_of_site.stop):
                if clients.start < border:
                    stop = min(stop, border)
        return range(clients.start, stop)


# Writing


def check(directory: Path, name: str) -> None:
    """Raise UsageError if the broker of a directory cannot have a site with this name."""
    if not _NAME.fullmatch(name):
        hint = "give 1 to 32 small letters, digits and '-', such as lab-2"
        raise UsageError(f"a site cannot be called {name!r}", hint)
    if is_site(directory):
        hint = "a site has no sites: run 'tern broker site' on the central broker's directory"
        raise UsageError(f"{directory} is the site of another broker", hint)


def _check_apart(site: BrokerSite, directory: Path, central: Access) -> None:
    """Raise UsageError if a site shares a host name or the id of a device with another broker.

    site: has a broker of its own. directory: the directory of the central broker. central: how that
    is reached.
    """
    others = []  # the other sites with a broker
    for other in load_all(directory):
        if other.name != site.name and other.bridge:
            others.append(other)

    central_names = mosquitto_files.names(directory, central)
    for name in site.names:
        if name in HERE:
            continue  # on each machine this is another broker
        if name in central_names:
            raise UsageError(
                f"{name} is the central broker",
                hint="give the site's broker another name with --host",
            )
        for other in others:
            if name in other.names:
                raise UsageError(
                    f"{name} is the broker of site {other.name}", hint="use another --host"
                )

    # Nor may two sites have the same device.
    ids_by_site = {}
    for each in (site, *others):
        if each.has_ids:
            ids_by_site[each.name] = each.ids
    check_apart(ids_by_site)  # raises if two of them overlap


def save(
    directory: Path,
    name: str,
    *,
    bridge: bool = False,
    relay: bool = False,
    ids: range | None = None,
    **broker_options: Any,
) -> BrokerSite:
    """Store the options of a site, which is new or changes, and return them.

    Options that are omitted stay as they are. Afterwards `write` writes the files of the site.

    directory: the directory of the central broker. name: the name of the site.
    bridge: the site gets a broker of its own. relay: it gets a relay. What it has it keeps.
    ids: those that its devices may have.
    broker_options: names, address and port of its broker, as in `BrokerSite`.
    Raises UsageError.
    """
    check(directory, name)
    central = Access.load(directory / HOST)
    path = directory / SITES / name / SITE
    if path.exists():
        old = _load(path)
    else:
        old = BrokerSite(name, password=secrets.token_urlsafe(_PASSWORD_BYTES))

    changes: dict[str, Any] = {"bridge": bridge or old.bridge, "relay": relay or old.relay}
    if ids:
        changes["first"] = ids[0]
        changes["last"] = ids[-1]
    for option, value in broker_options.items():
        if value is None:
            continue
        if not changes["bridge"]:
            raise UsageError(
                f"site {name} has no broker of its own", hint="give it one: bridge=True"
            )
        changes[option] = value
    site = replace(old, **changes)
    check_reached(site.names, site.address, site.port)  # raises if these are impossible
    if site.bridge:
        _check_apart(site, directory, central)

    # Files that depend on the options are removed, so that `write` makes them anew.
    site_directory = path.parent
    site_directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    (site_directory / CONFIG).unlink(missing_ok=True)
    if list(old.names) != list(site.names):
        (site_directory / CERTIFICATE).unlink(missing_ok=True)
    write_file(path, _json(asdict(site)), secret=True)
    return site


def write(directory: Path, keys: Mapping[int, bytes], anew: bool = False) -> list[BrokerSite]:
    """Write the directories of all sites of a central broker, and return the sites.

    directory: the directory of the central broker. keys: the keys of all devices of the fleet, by
    their ids. anew: whether to write each mosquitto.conf again, too, which users may have edited.
    Raises OSError, StorageError and UsageError.
    """
    sites = load_all(directory)
    for site in sites:
        if anew:
            (directory / SITES / site.name / CONFIG).unlink(missing_ok=True)
        _write(site, directory, site.keys(keys))
    return sites


def _write(site: BrokerSite, central: Path, keys: Mapping[int, bytes]) -> None:
    """Write the files in the directory of a site, whose options are stored already.

    central: the directory of the central broker. keys: the keys of the site's devices.
    """
    access = Access.load(central / HOST)
    directory = central / SITES / site.name
    passwords = []  # (user name, password) of each device
    for device, key in keys.items():
        passwords.append((mqtt.name(device), mqtt.password(key)))
    _write_host(site, access, directory)
    if site.relay:
        write_file(directory / BOARDS, _json(dict(passwords)), secret=True)
    if access.authority:
        write_file(directory / AUTHORITY, Path(access.authority).read_bytes())
    if site.bridge:
        _write_broker(site, access, central, passwords)
        for_boards.write(directory, Access.load(directory / HOST))


def _write_host(site: BrokerSite, access: Access, directory: Path) -> None:
    """Write host.json, which says at which broker the boards of a site are.

    It has no user name, since nobody at a site may send requests to boards: only the host does
    that, at the central broker. The path of the store in it is right as long as the directory is
    not moved.

    access: how the central broker is reached. directory: the directory of the site.
    """
    site_access = replace(access, user="", password="")
    if site.bridge:  # otherwise its boards are at the central broker
        site_access = replace(site_access, host=site.names[0], port=site.port)
    site_access.save(directory / HOST)


def _write_broker(
    site: BrokerSite, access: Access, central: Path, passwords: Sequence[tuple[str, str]]
) -> None:
    """Write the certificate, the passwords, the rights and mosquitto.conf of a site's broker.

    An existing mosquitto.conf stays, except that it gets enough memory for the boards. An existing
    certificate stays unless it expires soon, or is not of the present authority.

    access: how the central broker is reached, with which the site's broker is bridged. central: the
    directory of that broker. passwords: the user name and password of each board of the site.
    """
    directory = central / SITES / site.name
    if access.authority:
        from ternhost.reach import certificates  # they need an extra

        has_none = not (directory / CERTIFICATE).exists()
        if has_none or certificates.must_be_renewed(directory, signer=central):
            certificates.write_site_certificates(directory, site.names, central)
    mosquitto_files.write_password_file(directory, passwords)
    boards = [user for user, _password in passwords]
    mosquitto_files.write_access_list(directory, users="", boards=boards, prefix=access.prefix)
    if (directory / CONFIG).exists():
        mosquitto_files.update_memory(directory, len(passwords))
        return
    tls_lines = ""
    if access.authority:
        tls_lines = f"bridge_cafile {AUTHORITY}\nbridge_tls_version tlsv1.2\n"
    bridge = template("bridge.conf").format(site=site, access=access, tls=tls_lines)
    listener = mosquitto_files.Listener(site.address, site.port, tls=access.authority is not None)
    mosquitto_files.write_conf(directory, listener, boards=len(passwords), bridge=bridge)


def _json(value: object) -> bytes:
    return json.dumps(value, indent=1).encode() + b"\n"
