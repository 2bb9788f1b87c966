"""The directories that `tern gateway init` writes: of the host (server), of NATS servers
(nodes/NAME), of each site.
"""

import json
import os
import secrets
import signal
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, Self

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from terngateway.nats.exchange import MOST_PAYLOAD, SUBJECT
from terngateway.post import NODES, SERVER, check_site
from ternhost.errors import StorageError, UsageError
from ternhost.files import private, read_object, storage_errors, write_file
from ternhost.provision.keys import check_apart, parse_range
from ternhost.reach import certificates
from ternhost.reach.addresses import AUTHORITY, LOOPBACK, bracketed, check_reached, is_address

# In the directory of the host.
SETTINGS = "server.json"
SITES = "sites"  # NAME.pem, the certificate of a site; NAME.json, the ids that its devices may have
HOSTS = "hosts"  # NAME.pem, the host's certificate for that site
HOST_KEY = "host.key"
HOST_LOCK = "host.lock"

# In the directory of a site.
GATEWAY = "gateway.json"
SITE_KEY, SITE = "site.key", "site.pem"
HOST = "host.pem"  # the host's certificate for this site
SITE_LOCK = "gateway.lock"

# In the directory of a NATS server.
CONFIG = "nats.conf"
ACCOUNTS = "accounts.conf"
PID = "nats.pid"
_CERTIFICATE = ("server.pem", "server.key")
_ROUTES = "routes.secret"  # in the host's directory: the password of NATS servers among themselves

PORT = 4222  # of NATS; servers speak to each other on the next one
_LISTENS = {
    "localhost": "127.0.0.1",
    "127.0.0.1": "127.0.0.1",
    "::1": "::1",
}  # by the server's name
_MOST_CONNECTIONS = 8  # of a site and its host together; each has one, or two for a moment
_LEAST_NODES = 3  # of a cluster: of two, neither goes on alone
# A site can only answer, once each question; its account has nobody but itself and the host.
_SITE = {
    "subscribe": SUBJECT,
    "publish": {"deny": ">"},
    "allow_responses": {"max": 1, "expires": "5m"},
}
_HOST = {"subscribe": "_INBOX.>", "publish": SUBJECT}


@dataclass(frozen=True)
class Server:
    """The host's directory.

    `hosts`: the names of the NATS servers, `address` what each listens on ("": its name).
    """

    directory: Path
    hosts: tuple[str, ...]
    port: int
    address: str

    @classmethod
    def load(cls, place: str | Path) -> Self:
        """The server in `place`, its directory or the one above it.

        Raises UsageError and StorageError.
        """
        directory = server_directory(place)
        settings = _read(directory / SETTINGS, "hosts", "port", "address")
        hosts, port = tuple(settings["hosts"]), int(settings["port"])
        return cls(directory.absolute(), hosts, port, str(settings["address"]))

    @property
    def here(self) -> tuple[str, ...]:
        """The URLs at which the host reaches a NATS server; a single one that was not moved away is
        on this machine.
        """
        local = len(self.hosts) == 1 and self.nodes()[self.hosts[0]].is_dir()
        return urls((LOOPBACK.get(self.address, self.address),) if local else self.hosts, self.port)

    def nodes(self) -> dict[str, Path]:
        """The directories of the NATS servers, by name."""
        return {name: self.directory.parent / NODES / name for name in self.hosts}

    def tls(self, site: str) -> ssl.SSLContext:
        """For connections of the host to the account of a site. Raises OSError."""
        return _tls(
            self.directory, self.directory / HOSTS / f"{site}.pem", self.directory / HOST_KEY
        )


@dataclass(frozen=True)
class GatewaySite:
    """How a site reaches its host. Other members of gateway.json are the gateway's."""

    directory: Path
    name: str
    hosts: tuple[str, ...]
    port: int

    @classmethod
    def load(cls, directory: str | Path) -> Self:
        """The site with this directory. Raises UsageError and StorageError."""
        directory = Path(directory)
        settings = _read(directory / GATEWAY, "site", "hosts", "port")
        hosts, port = tuple(settings["hosts"]), int(settings["port"])
        return cls(directory.absolute(), str(settings["site"]), hosts, port)

    @property
    def there(self) -> tuple[str, ...]:
        return urls(self.hosts, self.port)

    def tls(self) -> ssl.SSLContext:
        """For connections of the site. Raises OSError."""
        return _tls(self.directory, self.directory / SITE, self.directory / SITE_KEY)


@contextmanager
def only_one(path: Path, hint: str) -> Iterator[BinaryIO]:
    """The file, whose lock is held while the context is open.

    Raises UsageError if another process has it; OSError.
    """
    import fcntl  # absent on Windows, as gateways are

    with open(path, "ab", opener=private) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"{path} is locked by another process", hint) from None
        file.truncate(0)
        yield file


def state_of(site: GatewaySite) -> str | None:
    """The state of the connection of a site's gateway; None: it does not run. Raises OSError."""
    try:
        with only_one(site.directory / SITE_LOCK, ""):
            return None
    except UsageError:
        return (site.directory / SITE_LOCK).read_text(errors="replace")


def _tls(directory: Path, certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=directory / AUTHORITY)
    context.load_cert_chain(certificate, key)
    return context


def public_key(certificate: Path) -> certificates.PublicKey:
    """The key that a certificate is for. Raises StorageError."""
    return _opened(certificate)[1]


def _opened(path: Path) -> tuple[str, certificates.PublicKey]:
    with storage_errors():
        data = path.read_bytes()
    try:
        certificate = x509.load_pem_x509_certificate(data)
        key = certificate.public_key()
    except ValueError as error:
        raise StorageError(f"{path} is not a certificate: {error}") from error
    assert isinstance(key, certificates.PublicKey)
    return certificate.subject.rfc4514_string(), key


def write_gateways(
    directory: str | Path,
    sites: Sequence[str],
    hosts: Sequence[str] = (),
    address: str | None = None,
    port: int | None = None,
) -> Server:
    """Write the directories of the host and of NATS servers, if they are missing, and those of new
    `sites`; existing ones stay. sites: NAME, or NAME:FIRST-LAST with the ids that its devices may
    have, which also changes an existing site's. hosts: names or addresses under which sites reach
    the NATS servers. address: to listen on. A site's private key is in its directory only. Raises
    UsageError and StorageError.
    """
    directory = Path(directory)
    if (directory / SETTINGS).exists():
        hint = f"name the one above: {directory.absolute().parent}"
        raise UsageError(f"{directory} is the directory of a server", hint=hint)
    ranges = dict(map(_parse, sites))
    if len(ranges) < len(sites):
        raise UsageError(f"--site names a site twice: {', '.join(sites)}", hint="name each once")
    place = directory / SERVER
    with storage_errors():
        named = {site: devices for site, devices in ranges.items() if devices is not None}
        check_apart({**registered(directory), **named})
        if (place / SETTINGS).exists():
            server = _same_server(Server.load(place), hosts, address, port)
        else:
            server = _write_server(
                place, hosts or ["localhost"], address, PORT if port is None else port
            )
        for site, devices in ranges.items():
            new = not (place / SITES / f"{site}.pem").exists()
            if devices is not None:
                _write_json(
                    place / SITES / f"{site}.json", {"devices": [devices.start, devices.stop - 1]}
                )
            elif new:  # left by a removed site of that name
                (place / SITES / f"{site}.json").unlink(missing_ok=True)
            if new:
                _write_site(directory / site, site, server)
        write_accounts(server)
    return server


def remove_site(directory: str | Path, site: str) -> Server:
    """Exclude a site, at once where the NATS servers run here.

    Raises UsageError and StorageError.
    """
    server = Server.load(directory)
    if site not in sites_of(directory):
        hint = f"it has {', '.join(sites_of(directory))}"
        raise UsageError(f"{server.directory} has no site {site!r}", hint)
    with storage_errors():
        write_accounts(server, without=site)  # first: whatever comes between, it is out
        (server.directory / SITES / f"{site}.pem").unlink()
    return server


def server_directory(place: str | Path) -> Path:
    """The directory of the host: `place`, or the one in it."""
    place = Path(place)
    return place if (place / SETTINGS).exists() else place / SERVER


def sites_of(directory: str | Path) -> list[str]:
    """The names of the registered sites. directory: the host's, or the one above it."""
    return sorted(path.stem for path in (server_directory(directory) / SITES).glob("*.pem"))


def registered(directory: str | Path) -> dict[str, range]:
    """By site, the ids of its devices; others may have any. directory: as of `sites_of`.

    Raises StorageError.
    """
    ranges = {}
    for site in sites_of(directory):
        path = server_directory(directory) / SITES / f"{site}.json"
        try:
            first, last = json.loads(path.read_text())["devices"]
            ranges[site] = range(int(first), int(last) + 1)
        except FileNotFoundError:
            continue
        except (OSError, ValueError, KeyError, TypeError) as error:
            hint = "write it again: tern gateway init DIR --site NAME:FIRST-LAST"
            raise StorageError(f"{path}: {error}", hint=hint) from error
    return ranges


def write_accounts(server: Server, without: str = "") -> None:
    """Write the accounts of the registered sites, and have the NATS servers that run here read
    them. Raises OSError and StorageError.

    NATS maps a client to the user with its certificate's name, which contains a hash of its key.
    """
    # Without users NATS lets anybody in.
    accounts: dict[str, Any] = {"tern": {"users": [{"user": "CN=nobody"}]}}
    for site in sites_of(server.directory):
        users = [
            {
                "user": _opened(server.directory / place / f"{site}.pem")[0],
                "permissions": permissions,
            }
            for place, permissions in ((SITES, _SITE), (HOSTS, _HOST))
        ]
        if site != without:
            accounts[f"site-{site}"] = {
                "users": users,
                "limits": {"max_connections": _MOST_CONNECTIONS},
            }
    text = f'"accounts": {json.dumps(accounts, indent=1)}\n'.encode()
    write_file(
        server.directory / ACCOUNTS, text
    )  # for those whose directories were moved to their machines
    for node in server.nodes().values():
        if node.is_dir():
            write_file(node / ACCOUNTS, text)
            if (pid := running(node)) is not None:
                os.kill(pid, signal.SIGHUP)


def running(node: Path) -> int | None:
    """The process id of the NATS server that runs in this directory; None: there is none.

    Needs /proc.
    """
    with suppress(OSError, ValueError):
        pid = int((node / PID).read_text())
        if Path(f"/proc/{pid}/cwd").samefile(node):  # no later process has its number
            return pid
    return None


def urls(hosts: Sequence[str], port: int) -> tuple[str, ...]:
    return tuple(f"tls://{bracketed(host)}:{port}" for host in hosts)


def _parse(text: str) -> tuple[str, range | None]:
    name, colon, ids = text.partition(":")
    check_site(name)
    return name, parse_range(ids) if colon else None


def _same_server(
    server: Server, hosts: Sequence[str], address: str | None, port: int | None
) -> Server:
    for option, wanted, there in (
        ("--name", " ".join(hosts) or None, " ".join(server.hosts)),
        ("--address", address, server.address),
        ("--port", port, server.port),
    ):
        if wanted is not None and wanted != there:
            hint = "its sites use this; for another server write another directory"
            raise UsageError(
                f"{server.directory} has been written with {option} {there}, not {wanted}", hint
            )
    return server


def _write_server(place: Path, hosts: Sequence[str], address: str | None, port: int) -> Server:
    if len(set(hosts)) not in (1, *range(_LEAST_NODES, 100)) or len(set(hosts)) < len(hosts):
        text = f"sites have one NATS server, or a cluster of {_LEAST_NODES} or more, not {', '.join(hosts)}"
        raise UsageError(text, "name each once: --name n1.local --name n2.local --name n3.local")
    alone, given = hosts[0] if len(hosts) == 1 else "", address
    address = address or _LISTENS.get(alone, "::" if ":" in alone else "0.0.0.0")
    check_reached(hosts, address, port)
    if linked := [host for host in hosts if host.lower().startswith("fe80:")]:
        hint = "give a name, or an address that all sites can reach"
        raise UsageError(f"{linked[0]} is valid on one link only", hint=hint)
    if not is_address(address):
        raise UsageError(
            f"--address must be an IP address, not {address!r}", hint="such as 0.0.0.0 or ::"
        )
    for part in (place.parent, place, place / SITES, place / HOSTS):
        part.mkdir(parents=True, exist_ok=True, mode=0o700)
    here = [*LOOPBACK.values(), *([] if address in LOOPBACK else [address])]
    certificates.write_certificates(
        place, list(dict.fromkeys([*hosts, "localhost", *here])), of="server"
    )
    certificates.write_key(place / HOST_KEY)
    write_file(place / _ROUTES, secrets.token_urlsafe(16).encode(), secret=True)
    for name in hosts:
        several_here = not alone and not given and is_address(name)
        _write_node(place, name, hosts, name if several_here else address, port)
    _write_json(place / SETTINGS, {"hosts": list(hosts), "port": port, "address": address})
    return Server.load(place)


def _write_node(place: Path, name: str, hosts: Sequence[str], address: str, port: int) -> None:
    node = place.parent / NODES / name
    node.mkdir(parents=True, exist_ok=True, mode=0o700)
    password = (place / _ROUTES).read_text()
    text = Path(__file__).with_name(CONFIG).read_text()
    if len(hosts) == 1:
        text = text[: text.index("cluster {{")]
    routes = "\n    ".join(f"nats://node:{password}@{bracketed(host)}:{port + 1}" for host in hosts)
    fields = {"payload": MOST_PAYLOAD, "password": password, "routes": routes}
    conf = text.format(
        name=name, address=bracketed(address), port=port, route_port=port + 1, **fields
    )
    write_file(node / CONFIG, conf.encode(), secret=True)
    for file in (AUTHORITY, *_CERTIFICATE):
        write_file(node / file, (place / file).read_bytes(), secret=True)


def _write_site(directory: Path, site: str, server: Server) -> None:
    directory.mkdir(exist_ok=True, mode=0o700)
    place = server.directory
    write_file(directory / AUTHORITY, (place / AUTHORITY).read_bytes())
    key = certificates.write_key(directory / SITE_KEY).public_key()
    certificate = certificates.client_certificate(_named(site, key), key, place)
    host_key = certificates.private_key(place / HOST_KEY).public_key()
    of_host = certificates.client_certificate(_named(f"host of {site}", host_key), host_key, place)
    write_file(directory / SITE, certificate)
    for path in (directory / HOST, place / HOSTS / f"{site}.pem"):
        write_file(path, of_host)
    _write_json(
        directory / GATEWAY, {"site": site, "hosts": list(server.hosts), "port": server.port}
    )
    # Last: with it the site counts as written.
    write_file(place / SITES / f"{site}.pem", certificate)


def _named(name: str, key: certificates.PublicKey) -> str:
    """The name in a certificate: it changes with the key, so that a removed key of a site is not
    let in again.
    """
    encoded = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return f"{name} {sha256(encoded).hexdigest()[:16]}"


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    write_file(path, json.dumps(value, indent=1).encode() + b"\n")


def _read(path: Path, *wanted: str) -> dict[str, Any]:
    hint = "'tern gateway init DIR --site NAME' writes the directories of a server and of its sites"
    settings = read_object(path, hint)
    if lacking := sorted(set(wanted) - settings.keys()):
        raise UsageError(
            f"{path} lacks {', '.join(lacking)}", hint="write it again: tern gateway init"
        )
    return settings
