"""The directories that `tern gateway init` writes: of the host (server), of NATS servers
(nodes/NAME), of each site.
"""

import json
import os
import secrets
import signal
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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
from ternhost.reach.addresses import (
    AUTHORITY,
    LOOPBACK,
    bracketed,
    check_reached,
    is_address,
    listening_address,
)
from ternhost.reach.broker import processes

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
PROGRAM = "nats-server"
_CERTIFICATE = ("server.pem", "server.key")
_ROUTES = "routes.secret"  # in the host's directory: the password of NATS servers among themselves

PORT = 4222  # of NATS; servers speak to each other on the next one
_MOST_CONNECTIONS = 8  # of a site and its host together; each has one, or two for a moment
_LEAST_NODES = 3  # of a cluster: of two, neither goes on alone
_MOST_NODES = 99
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
        """Load the settings of a server. Raises UsageError and StorageError.

        place: the host's directory, or the one above it.
        """
        directory = server_directory(place)
        settings = _read(directory / SETTINGS, "hosts", "port", "address")
        hosts, port = tuple(settings["hosts"]), int(settings["port"])
        return cls(directory.absolute(), hosts, port, str(settings["address"]))

    @property
    def here(self) -> tuple[str, ...]:
        """The URLs at which the host reaches a NATS server.

        A single server whose directory was not moved away runs on this machine.
        """
        is_local = len(self.hosts) == 1 and self.nodes()[self.hosts[0]].is_dir()
        if is_local:
            return urls((LOOPBACK.get(self.address, self.address),), self.port)
        return urls(self.hosts, self.port)

    def nodes(self) -> dict[str, Path]:
        """Return the directories of the NATS servers, by name."""
        return {name: self.directory.parent / NODES / name for name in self.hosts}

    def tls(self, site: str) -> ssl.SSLContext:
        """Return the context for connections of the host to the account of a site. Raises OSError."""
        certificate = self.directory / HOSTS / f"{site}.pem"
        return _tls(self.directory, certificate, self.directory / HOST_KEY)


@dataclass(frozen=True)
class GatewaySite:
    """How a site reaches its host. Other members of gateway.json are the gateway's."""

    directory: Path
    name: str
    hosts: tuple[str, ...]
    port: int

    @classmethod
    def load(cls, directory: str | Path) -> Self:
        """Load the settings of the site in this directory. Raises UsageError and StorageError."""
        directory = Path(directory)
        settings = _read(directory / GATEWAY, "site", "hosts", "port")
        hosts, port = tuple(settings["hosts"]), int(settings["port"])
        return cls(directory.absolute(), str(settings["site"]), hosts, port)

    @property
    def there(self) -> tuple[str, ...]:
        return urls(self.hosts, self.port)

    def tls(self) -> ssl.SSLContext:
        """Return the context for connections of the site to its host. Raises OSError."""
        return _tls(self.directory, self.directory / SITE, self.directory / SITE_KEY)


@contextmanager
def only_one(path: Path, hint: str) -> Iterator[BinaryIO]:
    """Open an empty file and hold its lock, so that a directory is used by one process at a time.

    Raises UsageError with this hint if another process has the lock, and OSError.
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
    """Return the state of the connection of a site's gateway; None if it does not run.

    Raises OSError.
    """
    try:
        with only_one(site.directory / SITE_LOCK, ""):
            return None
    except UsageError:
        return (site.directory / SITE_LOCK).read_text(errors="replace")


def _tls(directory: Path, certificate: Path, key: Path) -> ssl.SSLContext:
    """Return a context with this certificate, which trusts the authority of the directory alone."""
    context = ssl.create_default_context(cafile=directory / AUTHORITY)
    context.load_cert_chain(certificate, key)
    return context


def public_key(certificate: Path) -> certificates.PublicKey:
    """Return the key in a certificate. Raises StorageError."""
    _name, key = _read_certificate(certificate)
    return key


def _read_certificate(path: Path) -> tuple[str, certificates.PublicKey]:
    """Return the name (of RFC 4514) and the key in a certificate. Raises StorageError."""
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
    port: int | None = None,
) -> Server:
    """Write the directories of a host, of its NATS servers and of sites, unless they exist.

    sites: NAME, or NAME:FIRST-LAST with the ids that its devices may have, which also changes those
    of an existing site. hosts: names or addresses under which sites reach the NATS servers.
    A site's private key is in its own directory only. Raises UsageError, also if an existing server
    has other settings, and StorageError.
    """
    directory = Path(directory)
    if (directory / SETTINGS).exists():
        hint = f"name the directory above it: {directory.absolute().parent}"
        raise UsageError(f"{directory} is the directory of a server", hint=hint)
    device_ranges = dict(_parse(site) for site in sites)
    if len(device_ranges) < len(sites):
        raise UsageError(f"--site names a site twice: {', '.join(sites)}", hint="name each once")
    named_ranges = {name: ids for name, ids in device_ranges.items() if ids is not None}

    server_place = directory / SERVER
    with storage_errors():
        check_apart({**registered(directory), **named_ranges})
        if (server_place / SETTINGS).exists():
            server = _same_server(Server.load(server_place), hosts, port)
        else:
            server = _write_server(
                server_place, hosts or ["localhost"], PORT if port is None else port
            )
        for name, ids in device_ranges.items():
            _register_site(directory, name, ids, server)
        write_accounts(server)
    return server


def _register_site(directory: Path, name: str, ids: range | None, server: Server) -> None:
    """Write the ids of a site's devices (None: any), and the site itself unless it exists."""
    certificate = server.directory / SITES / f"{name}.pem"
    ids_file = server.directory / SITES / f"{name}.json"
    is_new = not certificate.exists()
    if ids is not None:
        _write_json(ids_file, {"devices": [ids.start, ids.stop - 1]})
    elif is_new:  # a removed site of that name may have left its ids
        ids_file.unlink(missing_ok=True)
    if is_new:
        _write_site(directory / name, name, server)


def remove_site(directory: str | Path, site: str) -> Server:
    """Exclude a site, at once if the NATS servers run on this machine.

    directory: the host's, or the one above it. Raises UsageError and StorageError.
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
    """Return the directory of the host: `place`, or the one in it."""
    place = Path(place)
    is_server = (place / SETTINGS).exists()
    return place if is_server else place / SERVER


def sites_of(directory: str | Path) -> list[str]:
    """Return the names of the registered sites. directory: the host's, or the one above it."""
    return sorted(path.stem for path in (server_directory(directory) / SITES).glob("*.pem"))


def registered(directory: str | Path) -> dict[str, range]:
    """Return, by site, the ids that its devices may have; sites that may have any are left out.

    directory: the host's, or the one above it. Raises StorageError.
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
    """Write the accounts of the registered sites, and have running NATS servers read them.

    Servers on other machines read the accounts once their files are copied. without: a site that
    gets no account. NATS maps a client to the user with its certificate's name, which contains a
    hash of its key. Raises OSError and StorageError.
    """
    # Without users NATS lets anybody in.
    accounts: dict[str, Any] = {"tern": {"users": [{"user": "CN=nobody"}]}}
    for site in sites_of(server.directory):
        account = _account(server.directory, site)
        if site != without:
            accounts[f"site-{site}"] = account
    content = f'"accounts": {json.dumps(accounts, indent=1)}\n'.encode()

    # The host's own copy is for the servers whose directories were moved to other machines.
    write_file(server.directory / ACCOUNTS, content)
    for node in server.nodes().values():
        if not node.is_dir():
            continue
        write_file(node / ACCOUNTS, content)
        pid = running(node)
        if pid is not None:
            os.kill(pid, signal.SIGHUP)


def _account(directory: Path, site: str) -> dict[str, Any]:
    """Return the NATS account of a site, whose users are the site and the host.

    directory: the host's. Raises StorageError.
    """
    users = []
    for folder, permissions in ((SITES, _SITE), (HOSTS, _HOST)):
        name, _key = _read_certificate(directory / folder / f"{site}.pem")
        users.append({"user": name, "permissions": permissions})
    return {"users": users, "limits": {"max_connections": _MOST_CONNECTIONS}}


def running(node: Path) -> int | None:
    """Return the process id of the NATS server that runs in this directory; None if none does."""
    return processes.running(node, PID, PROGRAM)


def urls(hosts: Sequence[str], port: int) -> tuple[str, ...]:
    """Return the URL of each NATS server."""
    return tuple(f"tls://{bracketed(host)}:{port}" for host in hosts)


def _parse(text: str) -> tuple[str, range | None]:
    """Parse NAME or NAME:FIRST-LAST into a site and the ids of its devices. Raises UsageError."""
    name, colon, ids = text.partition(":")
    check_site(name)
    return name, parse_range(ids) if colon else None


def _same_server(server: Server, hosts: Sequence[str], port: int | None) -> Server:
    """Return the server if the options that are not None agree with it. Raises UsageError."""
    options = (
        ("--host", " ".join(hosts) or None, " ".join(server.hosts)),
        ("--port", port, server.port),
    )
    for option, requested, existing in options:
        if requested is not None and requested != existing:
            text = f"{server.directory} was written with {option} {existing}, not {requested}"
            hint = "leave it as it is: its sites use it; for another server write another directory"
            raise UsageError(text, hint)
    return server


def _write_server(place: Path, hosts: Sequence[str], port: int) -> Server:
    """Write the directory of a host with its keys, and those of its NATS servers.

    place: the directory of the host. Raises UsageError, OSError.
    """
    address = listening_address(hosts)
    _check_hosts(hosts, address, port)
    for folder in (place.parent, place, place / SITES, place / HOSTS):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    certified_names = [*hosts, "localhost", *LOOPBACK.values()]
    if address not in LOOPBACK:
        certified_names.append(address)
    without_duplicates = list(dict.fromkeys(certified_names))
    certificates.write_certificates(place, without_duplicates, kind="server")
    certificates.write_key(place / HOST_KEY)
    write_file(place / _ROUTES, secrets.token_urlsafe(16).encode(), secret=True)

    is_cluster = len(hosts) > 1
    for name in hosts:
        node_address = address
        # Nodes that are named by address listen there, so that several can run on one machine.
        if is_cluster and is_address(name):
            node_address = name
        _write_node(place, name, hosts, node_address, port)
    _write_json(place / SETTINGS, {"hosts": list(hosts), "port": port, "address": address})
    return Server.load(place)


def _check_hosts(hosts: Sequence[str], address: str, port: int) -> None:
    """Raise UsageError unless sites can reach NATS servers with these names, which listen there."""
    distinct = len(set(hosts))
    is_possible = distinct == 1 or _LEAST_NODES <= distinct <= _MOST_NODES
    if not is_possible or distinct < len(hosts):
        text = f"sites have one NATS server, or a cluster of {_LEAST_NODES} or more, not {', '.join(hosts)}"
        raise UsageError(text, "name each once: --host n1.local --host n2.local --host n3.local")
    check_reached(hosts, address, port)
    for host in hosts:
        if host.lower().startswith("fe80:"):
            hint = "give a name, or an address that all sites can reach"
            raise UsageError(f"{host} is valid on one network link only", hint=hint)


def _write_node(place: Path, name: str, hosts: Sequence[str], address: str, port: int) -> None:
    """Write the directory of a NATS server: its configuration, from a template, and certificates.

    place: the directory of the host. hosts: the names of all servers. Servers of a cluster speak to
    each other on the port after `port`.
    """
    node = place.parent / NODES / name
    node.mkdir(parents=True, exist_ok=True, mode=0o700)
    password = (place / _ROUTES).read_text()
    template = Path(__file__).with_name(CONFIG).read_text()
    if len(hosts) == 1:  # the section of the cluster is the last one
        template = template[: template.index("cluster {{")]
    routes = [f"nats://node:{password}@{bracketed(host)}:{port + 1}" for host in hosts]
    configuration = template.format(
        name=name,
        address=bracketed(address),
        port=port,
        route_port=port + 1,
        payload=MOST_PAYLOAD,
        password=password,
        routes="\n    ".join(routes),
    )
    write_file(node / CONFIG, configuration.encode(), secret=True)
    for file in (AUTHORITY, *_CERTIFICATE):
        write_file(node / file, (place / file).read_bytes(), secret=True)


def _write_site(directory: Path, site: str, server: Server) -> None:
    """Write the directory of a site with a new key, and the certificates of the site and its host."""
    directory.mkdir(exist_ok=True, mode=0o700)
    place = server.directory
    write_file(directory / AUTHORITY, (place / AUTHORITY).read_bytes())

    site_key = certificates.write_key(directory / SITE_KEY).public_key()
    site_name = _certificate_name(site, site_key)
    site_certificate = certificates.client_certificate(site_name, site_key, place)
    write_file(directory / SITE, site_certificate)

    host_key = certificates.private_key(place / HOST_KEY).public_key()
    host_name = _certificate_name(f"host of {site}", host_key)
    host_certificate = certificates.client_certificate(host_name, host_key, place)
    write_file(directory / HOST, host_certificate)
    write_file(place / HOSTS / f"{site}.pem", host_certificate)

    _write_json(
        directory / GATEWAY, {"site": site, "hosts": list(server.hosts), "port": server.port}
    )
    # Last: with it the site counts as written.
    write_file(place / SITES / f"{site}.pem", site_certificate)


def _certificate_name(name: str, key: certificates.PublicKey) -> str:
    """Return the name in a certificate, which ends with a hash of the key.

    So a key of a site that was removed is not let in again under the same name.
    """
    encoded = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return f"{name} {sha256(encoded).hexdigest()[:16]}"


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    write_file(path, json.dumps(value, indent=1).encode() + b"\n")


def _read(path: Path, *required: str) -> dict[str, Any]:
    """Read a JSON object with at least the required members. Raises UsageError, StorageError."""
    hint = "'tern gateway init DIR --site NAME' writes the directories of a server and of its sites"
    settings = read_object(path, hint)
    missing = sorted(set(required) - settings.keys())
    if missing:
        text = f"{path} lacks {', '.join(missing)}"
        raise UsageError(text, hint="write it again: tern gateway init")
    return settings
