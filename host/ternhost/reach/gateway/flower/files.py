"""The files of a server and of its sites, which 'tern gateway init' writes, and what Flower's processes are told."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_public_key

from ternhost.errors import StorageError, UsageError
from ternhost.reach.gateway.post import SERVER

AUTHORITY = "authority.pem"  # in both kinds of directory

# In the server's directory.
SETTINGS = "server.json"
CERTIFICATE = "server.pem"
KEY = "server.key"
SITES = "sites"  # NAME.pub: the public key of a site
CONTROL = "control.secret"  # without it nobody starts an app or registers a site
EXECUTOR = "executor.secret"  # without it nobody takes the place of the ServerApp
HOST = "host.sock"  # where the ServerApp finds the host
LOG = "superlink.log"

# In a site's directory.
GATEWAY = "gateway.json"
NODE_KEY = "node.key"
NODE = "node.id"  # the number under which the SuperLink knows the site
NODE_LOG = "node.log"

_HOME = "flower"  # Flower's own files
LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # where this machine finds who listens on every address


@dataclass(frozen=True)
class Server:
    """How the SuperLink listens: `host` is the name under which sites reach it, `address` what it listens on."""

    directory: Path
    host: str
    port: int
    address: str

    @classmethod
    def load(cls, place: str | Path) -> Server:
        """The server whose directory, or the directory above it, is `place`. Raises UsageError and StorageError."""
        directory = server_directory(place)
        told = _read(directory / SETTINGS)
        return cls(directory.absolute(), str(told["host"]), int(told["port"]), str(told["address"]))

    @property
    def here(self) -> str:
        """The host and port by which processes of this machine reach the SuperLink."""
        return endpoint(LOOPBACK.get(self.address, self.address), self.port)


@dataclass(frozen=True)
class Site:
    """How a site reaches its server. Other fields of gateway.json are the gateway's."""

    directory: Path
    name: str
    host: str
    port: int

    @classmethod
    def load(cls, directory: str | Path) -> Site:
        """The site with this directory. Raises UsageError and StorageError."""
        directory = Path(directory)
        told = _read(directory / GATEWAY)
        return cls(directory.absolute(), str(told["site"]), str(told["host"]), int(told["port"]))


def server_directory(place: str | Path) -> Path:
    """That of the server: `place`, or the one in it."""
    place = Path(place)
    return place if (place / SETTINGS).exists() else place / SERVER


def public_keys(sites: Path) -> tuple[dict[str, ec.EllipticCurvePublicKey], dict[str, str]]:
    """The key of each site, by its name, and why others have none. sites: the directory of these keys."""
    keys, wrong = {}, {}
    for path in sorted(sites.glob("*.pub")):
        try:
            key = load_ssh_public_key(path.read_bytes())
        except (OSError, ValueError, UnsupportedAlgorithm) as error:
            wrong[path.stem] = f"{path}: {error}"
            continue
        if isinstance(key, ec.EllipticCurvePublicKey):
            keys[path.stem] = key
        else:
            wrong[path.stem] = f"{path} has a key of another kind"
    return keys, wrong


def endpoint(host: str, port: int) -> str:
    """Host and port as a URL has them, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _read(path: Path) -> dict[str, Any]:
    try:
        told = json.loads(path.read_text())
    except OSError as error:
        raise StorageError(
            f"{path}: {error.strerror}",
            hint="'tern gateway init' writes the directories of a server and of its sites",
        ) from error
    except ValueError as error:
        raise UsageError(f"{path} is no JSON: {error}") from error
    wanted = {"host", "port", "address" if path.name == SETTINGS else "site"}
    if not isinstance(told, dict) or not wanted <= told.keys():
        raise UsageError(
            f"{path} lacks {', '.join(sorted(wanted))}", hint="write it again: tern gateway init"
        )
    return told


def environment(directory: Path) -> dict[str, str]:
    """What Flower's processes are told: to keep their files in `directory`, and to call, check and install nothing."""
    beside = [os.environ[name] for name in ("NO_PROXY", "no_proxy") if os.environ.get(name)]
    return {
        **os.environ,
        # Flower starts the ServerApp by the name of a command, which is beside our interpreter.
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
