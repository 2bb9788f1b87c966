"""Reads and writes for-boards.json, which says what boards need to know of their broker.

The file has no secrets, so that it can be copied to any machine at which boards are set up. `tern
broker config` writes it into the broker's directory, and into those of sites with a broker of their own.
"""

import json
import ssl
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Self

from ternhost.errors import UsageError
from ternhost.files import read_object, write_file
from ternhost.reach import authority
from ternhost.reach.addresses import HERE
from ternhost.reach.broker import mosquitto_files
from ternhost.reach.broker.access import Access

FILE = "for-boards.json"


@dataclass(frozen=True)
class BrokerForBoards:
    """How a board reaches its broker. The fields are the members of for-boards.json."""

    host: str  # its name or address; for a cluster all of its nodes, divided by commas
    port: int
    prefix: str  # the beginning of all topics of the fleet
    authority: str | None  # the certificate of its authority, in PEM; None without TLS

    @classmethod
    def of(cls, access: Access) -> Self:
        """Return what boards need to know of a broker.

        access: how somebody else reaches it. Raises OSError if the certificate cannot be read, and
        UsageError if it is none of an authority.
        """
        certificate = None
        if access.authority:
            der = authority.read_der(Path(access.authority).read_bytes(), access.authority)
            certificate = ssl.DER_cert_to_PEM_cert(der)
        return cls(access.host, access.port, access.prefix, certificate)

    @property
    def authority_der(self) -> bytes | None:
        """The certificate of the authority in DER, as boards read it; None without TLS."""
        if self.authority is None:
            return None
        return ssl.PEM_cert_to_DER_cert(self.authority)


def read(place: str | Path) -> BrokerForBoards:
    """Read what boards need to know of a broker.

    place: a directory with for-boards.json, such as the broker's or that of a site with its own
    broker, or this file itself or a copy. Raises UsageError if there is no such file or if it says something else, and
    StorageError if it cannot be read.
    """
    path = Path(place)
    if path.is_dir():
        path /= FILE
    hint = f"name the directory of 'tern broker config', or a copy of the {FILE} in it"
    content = read_object(path, hint)
    try:
        known = BrokerForBoards(**content)
        # Values of the right kinds.
        is_right = isinstance(known.host, str) and isinstance(known.port, int)
        is_right = is_right and isinstance(known.prefix, str)
        is_right = is_right and isinstance(known.authority, str | None)
    except TypeError:
        is_right = False
    if not is_right:
        raise UsageError(f"{path} does not say how boards reach a broker", hint)
    if known.authority is not None:
        authority.read_der(known.authority.encode(), f"the authority in {path}")
    return known


def write(directory: Path, access: Access) -> None:
    """Write for-boards.json into the directory of a broker or a site.

    Boards get the broker's first name that means the same machine everywhere, so not localhost,
    unless it has no other name.

    access: how somebody else reaches the broker. Raises OSError.
    """
    known = BrokerForBoards.of(access)
    if not access.is_cluster:
        names = mosquitto_files.names(directory, access)
        names_elsewhere = [name for name in names if name not in HERE]
        if names_elsewhere:
            known = replace(known, host=names_elsewhere[0])
    text = json.dumps(asdict(known), indent=1) + "\n"
    write_file(directory / FILE, text.encode())
