"""The directories of a server and its sites, which 'tern gateway init' writes, and the environment of Flower."""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from ternhost.errors import StorageError, UsageError
from ternhost.files import read_object, storage_errors, write_file
from ternhost.provision.keys import check_apart, parse_range
from ternhost.reach.addresses import check_reached, is_address
from ternhost.reach.certificates import write_certificates
from ternhost.reach.gateway.post import SERVER, check_site

AUTHORITY = "authority.pem"  # in both kinds of directory

# In the server's directory.
SETTINGS = "server.json"
CERTIFICATE = "server.pem"
KEY = "server.key"
SITES = "sites"  # NAME.pub: the public key of a site; NAME.json: the ids that its devices may have
CONTROL = "control.secret"  # needed to start an app or to register a site
EXECUTOR = "executor.secret"  # needed to replace the ServerApp
HOST = "host.sock"  # on which the host serves the ServerApp
LOG = "superlink.log"

# In a site's directory.
GATEWAY = "gateway.json"
NODE_KEY = "node.key"
NODE = "node.id"  # the site's number at the SuperLink
NODE_LOG = "node.log"

PORT = 9092  # Flower's own for sites
LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # address that listens everywhere -> address on this machine

_HOME = "flower"  # Flower's own files
_LISTENS = {"localhost": "127.0.0.1", "127.0.0.1": "127.0.0.1", "::1": "::1"}  # by the server's name


@dataclass(frozen=True)
class Server:
    """How the SuperLink listens: `host` is the name under which sites reach it, `address` what it listens on."""

    directory: Path
    host: str
    port: int
    address: str

    @classmethod
    def load(cls, place: str | Path) -> Server:
        """The server in `place`, its directory or the one above it. Raises UsageError and StorageError."""
        directory = server_directory(place)
        settings = _read(directory / SETTINGS)
        host, port = str(settings["host"]), int(settings["port"])
        return cls(directory.absolute(), host, port, str(settings["address"]))

    @property
    def here(self) -> str:
        """The host and port by which processes of this machine reach the SuperLink."""
        return endpoint(LOOPBACK.get(self.address, self.address), self.port)


@dataclass(frozen=True)
class GatewaySite:
    """How a site reaches its server. Other members of gateway.json are the gateway's."""

    directory: Path
    name: str
    host: str
    port: int

    @classmethod
    def load(cls, directory: str | Path) -> GatewaySite:
        """The site with this directory. Raises UsageError and StorageError."""
        directory = Path(directory)
        settings = _read(directory / GATEWAY)
        return cls(directory.absolute(), str(settings["site"]), str(settings["host"]), int(settings["port"]))


def node_state(site: GatewaySite) -> tuple[int, str]:
    """When the log of a site's node was written (ns), and its last line, the state of its connection; else 0 and ""."""
    path = site.directory / NODE_LOG
    try:
        lines = path.read_text(errors="replace").splitlines()
        return path.stat().st_mtime_ns, lines[-1] if lines else ""
    except OSError:
        return 0, ""


def write_gateways(
    directory: str | Path,
    sites: Sequence[str],
    host: str | None = None,
    address: str | None = None,
    port: int | None = None,
) -> Server:
    """Write the server's directory, if it is missing, and those of new `sites`; existing ones stay. sites: NAME, or
    NAME:FIRST-LAST with the ids that its devices may have, which also changes an existing site's. host: name or address
    under which sites reach the server. address: to listen on. A site's private key is in its directory only. Raises
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
            server = _same_server(Server.load(place), host, address, port)
        else:
            server = _write_server(place, host or "localhost", address, PORT if port is None else port)
        for site, devices in ranges.items():
            new = not (place / SITES / f"{site}.pub").exists()
            if devices is not None:
                _write_json(place / SITES / f"{site}.json", {"devices": [devices.start, devices.stop - 1]})
            elif new:  # left by a removed site of that name
                (place / SITES / f"{site}.json").unlink(missing_ok=True)
            if new:
                _write_site(directory / site, site, server)
    return server


def server_directory(place: str | Path) -> Path:
    """The directory of the server: `place`, or the one in it."""
    place = Path(place)
    return place if (place / SETTINGS).exists() else place / SERVER


def sites_of(directory: str | Path) -> list[str]:
    """The names of the sites of a server. directory: its own, or the one above it."""
    return sorted(path.stem for path in (server_directory(directory) / SITES).glob("*.pub"))


def registered(directory: str | Path) -> dict[str, range]:
    """By site, the ids that its devices may have; others may have any. directory: as of `sites_of`. A site without a
    key was removed, and has no ids. Raises StorageError.
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


def public_keys(sites: Path) -> tuple[dict[str, ec.EllipticCurvePublicKey], dict[str, str]]:
    """By site, its key, or the reason why it has none. sites: the directory of these keys."""
    keys, wrong = {}, {}
    for path in sorted(sites.glob("*.pub")):
        try:
            key = serialization.load_ssh_public_key(path.read_bytes())
        except (OSError, ValueError, UnsupportedAlgorithm) as error:
            wrong[path.stem] = f"{path}: {error}"
            continue
        if isinstance(key, ec.EllipticCurvePublicKey):
            keys[path.stem] = key
        else:
            wrong[path.stem] = f"{path} has a key of another kind"
    return keys, wrong


def endpoint(host: str, port: int) -> str:
    """Host and port in the format of a URL, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _parse(text: str) -> tuple[str, range | None]:
    name, colon, ids = text.partition(":")
    check_site(name)
    return name, parse_range(ids) if colon else None


def _same_server(server: Server, host: str | None, address: str | None, port: int | None) -> Server:
    for option, wanted, there in (
        ("--name", host, server.host),
        ("--address", address, server.address),
        ("--port", port, server.port),
    ):
        if wanted is not None and wanted != there:
            raise UsageError(
                f"{server.directory} has been written with {option} {there}, not {wanted}",
                hint="its sites use this; for another server write another directory",
            )
    return server


def _write_server(place: Path, host: str, address: str | None, port: int) -> Server:
    address = address or _LISTENS.get(host, "::" if ":" in host else "0.0.0.0")
    check_reached([host], address, port)
    if host.lower().startswith("fe80:"):
        hint = "give a name, or an address that all sites can reach"
        raise UsageError(f"{host} is valid on one link only", hint=hint)
    if not is_address(address):
        raise UsageError(f"--address must be an IP address, not {address!r}", hint="such as 0.0.0.0 or ::")
    for part in (place.parent, place, place / SITES):
        part.mkdir(parents=True, exist_ok=True, mode=0o700)
    here = [*LOOPBACK.values(), *([] if address in LOOPBACK else [address])]
    write_certificates(place, list(dict.fromkeys([host, "localhost", *here])), of="server")
    for name in (CONTROL, EXECUTOR):
        write_file(place / name, secrets.token_urlsafe(32).encode() + b"\n", secret=True)
    _write_json(place / SETTINGS, {"host": host, "port": port, "address": address})
    return Server.load(place)


def _write_site(directory: Path, site: str, server: Server) -> None:
    directory.mkdir(exist_ok=True, mode=0o700)
    key = ec.generate_private_key(ec.SECP384R1())  # of the curves that Flower takes
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    write_file(directory / NODE_KEY, private, secret=True)
    write_file(directory / AUTHORITY, (server.directory / AUTHORITY).read_bytes())
    _write_json(directory / GATEWAY, {"site": site, "host": server.host, "port": server.port})
    # Last: with it the site counts as written.
    write_file(server.directory / SITES / f"{site}.pub", public + f" {site}\n".encode())


def _write_json(path: Path, value: object) -> None:
    write_file(path, json.dumps(value, indent=1).encode() + b"\n")


def _read(path: Path) -> dict[str, Any]:
    hint = "'tern gateway init DIR --site NAME' writes the directories of a server and of its sites"
    settings = read_object(path, hint)
    wanted = {"host", "port", "address" if path.name == SETTINGS else "site"}
    if not wanted <= settings.keys():
        raise UsageError(
            f"{path} lacks {', '.join(sorted(wanted))}", hint="write it again: tern gateway init"
        )
    return settings


def environment(directory: Path) -> dict[str, str]:
    """The environment of Flower's processes: their files are in `directory`; no telemetry, updates or installation."""
    beside = [os.environ[name] for name in ("NO_PROXY", "no_proxy") if os.environ.get(name)]
    return {
        **os.environ,
        # Flower starts the ServerApp by a command that is beside our interpreter.
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath))),
        "FLWR_HOME": str(directory / _HOME),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_LOG_LEVEL": "WARNING",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",
        "NO_PROXY": ",".join([*beside[:1], *LOOPBACK.values(), "localhost"]),
        "PYTHONUNBUFFERED": "1",
    }
