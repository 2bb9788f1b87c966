"""What 'tern gateway init' writes: the directory of a server, and one for each of its sites, to be copied there."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from pathlib import Path

from ternhost.errors import StorageError, UsageError
from ternhost.files import write_file
from ternhost.provision.ids import check_apart, parse_range
from ternhost.reach.addresses import check_reached, is_address
from ternhost.reach.gateway.flower import files
from ternhost.reach.gateway.flower.files import Server
from ternhost.reach.gateway.post import SERVER, check_site

PORT = 9092  # Flower's own for sites

_LISTENS = {"localhost": "127.0.0.1", "127.0.0.1": "127.0.0.1", "::1": "::1"}  # by the server's name


def write_gateways(
    directory: str | Path,
    sites: Sequence[str],
    host: str | None = None,
    address: str | None = None,
    port: int | None = None,
) -> Server:
    """Write the server's directory, if there is none, and those of `sites` that are new; what is there stays.

    sites: NAME, or NAME:FIRST-LAST with the ids that its devices may have; those of one that is there change then.
    host: name or address under which sites reach the server (default: localhost). address: what it listens on
    (default: every address of IPv4, or of IPv6 where `host` is one; for localhost, that alone). port: default 9092. A
    site's directory gets its private key and the server's certificate authority; the server keeps the site's public
    key. Raises UsageError and StorageError.
    """
    directory = Path(directory)
    if (directory / files.SETTINGS).exists():
        raise UsageError(
            f"{directory} is the directory of a server",
            hint=f"name the one above: {directory.absolute().parent}",
        )
    ranges = dict(map(_parse, sites))
    place = directory / SERVER
    try:
        check_apart({**registered(directory), **_named(ranges)})
        if (place / files.SETTINGS).exists():
            server = _the_same(Server.load(place), host, address, port)
        else:
            server = _write_server(place, host or "localhost", address, PORT if port is None else port)
        for site, devices in ranges.items():
            new = not (place / files.SITES / f"{site}.pub").exists()
            if devices is not None:
                told = json.dumps({"devices": [devices.start, devices.stop - 1]})
                write_file(place / files.SITES / f"{site}.json", told.encode() + b"\n")
            elif new:  # what a site of that name had, which has been removed
                (place / files.SITES / f"{site}.json").unlink(missing_ok=True)
            if new:
                _write_site(directory / site, site, server)
    except OSError as error:
        raise StorageError(f"cannot write {error.filename}: {error.strerror}") from error
    return server


def sites_of(directory: str | Path) -> list[str]:
    """The names of the sites of a server. directory: its own, or the one above it."""
    return sorted(path.stem for path in (files.server_directory(directory) / files.SITES).glob("*.pub"))


def registered(directory: str | Path) -> dict[str, range]:
    """The ids that the devices of sites may have, by site; of others any. directory: as of `sites_of`.

    A site without its key has been removed, and has no ids. Raises StorageError.
    """
    found = {}
    for site in sites_of(directory):
        path = files.server_directory(directory) / files.SITES / f"{site}.json"
        try:
            first, last = json.loads(path.read_text())["devices"]
            found[site] = range(int(first), int(last) + 1)
        except FileNotFoundError:
            continue
        except (OSError, ValueError, KeyError, TypeError) as error:
            hint = "write it again: tern gateway init DIR --site NAME:FIRST-LAST"
            raise StorageError(f"{path}: {error}", hint=hint) from error
    return found


def _parse(text: str) -> tuple[str, range | None]:
    name, colon, ids = text.partition(":")
    check_site(name)
    return name, parse_range(ids) if colon else None


def _named(ranges: dict[str, range | None]) -> dict[str, range]:
    return {site: devices for site, devices in ranges.items() if devices is not None}


def _the_same(server: Server, host: str | None, address: str | None, port: int | None) -> Server:
    asked = {
        "--name": (host, server.host),
        "--address": (address, server.address),
        "--port": (port, server.port),
    }
    for option, (wanted, there) in asked.items():
        if wanted is not None and wanted != there:
            raise UsageError(
                f"{server.directory} has been written with {option} {there}, not {wanted}",
                hint="its sites know it so; for another server write another directory",
            )
    return server


def _write_server(place: Path, host: str, address: str | None, port: int) -> Server:
    from ternhost.reach.certificates import write_certificates  # they need an extra

    address = address or _LISTENS.get(host, "::" if ":" in host else "0.0.0.0")
    check_reached([host], address, port)
    if host.lower().startswith("fe80:"):
        raise UsageError(
            f"{host} is an address of one link alone",
            hint="give a name, or an address that all sites can reach",
        )
    if not is_address(address):
        raise UsageError(f"--address must be an IP address, not {address!r}", hint="such as 0.0.0.0 or ::")
    for part in (place.parent, place, place / files.SITES):
        part.mkdir(parents=True, exist_ok=True, mode=0o700)
    here = [*files.LOOPBACK.values(), *([] if address in files.LOOPBACK else [address])]
    write_certificates(place, list(dict.fromkeys([host, "localhost", *here])), of="server")
    for name in (files.CONTROL, files.EXECUTOR):
        write_file(place / name, secrets.token_urlsafe(32).encode() + b"\n", secret=True)
    settings = {"host": host, "port": port, "address": address}
    write_file(place / files.SETTINGS, json.dumps(settings, indent=1).encode() + b"\n")
    return Server.load(place)


def _write_site(directory: Path, site: str, server: Server) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    directory.mkdir(exist_ok=True, mode=0o700)
    key = ec.generate_private_key(ec.SECP384R1())  # of the curves that Flower takes
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    write_file(directory / files.NODE_KEY, private, secret=True)
    write_file(directory / files.AUTHORITY, (server.directory / files.AUTHORITY).read_bytes())
    told = {"site": site, "host": server.host, "port": server.port}
    write_file(directory / files.GATEWAY, json.dumps(told, indent=1).encode() + b"\n")
    # Last, since it says that the site has been written.
    write_file(server.directory / files.SITES / f"{site}.pub", public + f" {site}\n".encode())
