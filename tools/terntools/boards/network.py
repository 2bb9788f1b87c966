"""How a board reaches its host: the files of a broker, or of a link of one's own."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tern import links
from ternhost.errors import UsageError
from ternhost.reach import authority
from ternhost.reach.addresses import DEVICE_AUTHORITY, HERE
from ternhost.text import counted
from terntools.boards.program import read_file

MQTT = "mqtt.json"
_PASSPHRASE = re.compile(r"[ -~]{8,63}")  # of WPA2 and WPA3
_KEY = re.compile(r"[0-9A-Fa-f]{64}")  # that follows from a passphrase
_LINK_HINT = "NAME ends in .der for a certificate or key in DER, and in .pem for one in PEM"
_LINK_FILE = re.compile(r"[A-Za-z0-9_-]{1,32}\.(json|der|pem|key)")


@dataclass(frozen=True)
class Broker:
    """A board's broker, and the Wi-Fi network by which the board reaches it."""

    host: str  # or the hosts of a cluster, separated by commas
    port: int
    authority: bytes | None = None  # the broker's certificate (DER); None: no TLS
    ssid: str | None = None  # the name of the Wi-Fi network; None: the board needs none
    wifi_secret: str | None = field(default=None, repr=False)  # its password, never shown
    prefix: str | None = None  # of the fleet's topics; None for the default
    # The broker's directory on this machine; None if there is only a copy of its for-boards.json.
    directory: Path | None = None

    @classmethod
    def at(
        cls, place: str | Path, ssid: str | None = None, wifi_secret_file: str | Path | None = None
    ) -> Broker:
        """Make a Broker from what `tern broker config` has written.

        place: the directory of the broker or of a site, or a copy of its for-boards.json.
        wifi_secret_file: the file with the password of the Wi-Fi network. Raises UsageError.
        """
        from ternhost.reach.broker import for_boards, sites
        from ternhost.reach.broker.access import HOST

        path = Path(place)
        known = for_boards.read(path)
        directory = None
        is_here = (path / HOST).exists() and not sites.is_site(path)
        if is_here:
            directory = path
        wifi_secret = None
        if wifi_secret_file:
            wifi_secret = _read_secret(Path(wifi_secret_file))
        _check_wifi(ssid, wifi_secret)
        if ssid is not None and known.host in HERE:
            raise UsageError(
                f"a board on Wi-Fi cannot reach {known.host}, the only name of the broker in {path}",
                hint=f"give it one: tern broker config {path} --host HOST",
            )
        return cls(
            host=known.host,
            port=known.port,
            authority=known.authority_der,
            ssid=ssid,
            wifi_secret=wifi_secret,
            prefix=known.prefix,
            directory=directory,
        )

    @property
    def store(self) -> Path | None:
        """The store with the keys of the broker's devices; None if it is not on this machine."""
        if self.directory is None:
            return None
        from ternhost.reach.broker.access import HOST, Access

        store = Access.load(self.directory / HOST).store
        if store is None:
            return None
        return Path(store)

    def files(self, wake: int | None = None) -> dict[str, bytes]:
        """Return the files by which the board finds this broker, by their path.

        wake: seconds between two wakes of a board that sleeps; None if it does not.
        """
        config: dict[str, object] = {"host": self.host, "port": self.port}
        if wake is not None:
            config["wake_s"] = wake
        if self.authority is not None:
            config["authority"] = DEVICE_AUTHORITY
        if self.ssid is not None:
            config["ssid"] = self.ssid
        if self.wifi_secret is not None:
            config["wifi_password"] = self.wifi_secret
        if self.prefix is not None:
            config["prefix"] = self.prefix

        files = {}
        if self.authority is not None:
            files["/" + DEVICE_AUTHORITY] = self.authority
        files["/" + MQTT] = json.dumps(config).encode()
        return files


def _check_wifi(ssid: str | None, secret: str | None) -> None:
    """Raise UsageError for the name of a network, or a password, that Wi-Fi cannot have."""
    if ssid is not None:
        # A shell may hand over bytes that are no UTF-8; they count, too.
        byte_count = len(ssid.encode(errors="surrogateescape"))
        if not 1 <= byte_count <= 32:
            raise UsageError(f"--ssid must have 1 to 32 bytes, not {byte_count}")
        if not ssid.isprintable():
            raise UsageError(
                "--ssid has a character that cannot be printed", hint="give the network's name"
            )
    if secret is not None and ssid is None:
        raise UsageError("a Wi-Fi password needs a network", hint="name the network with --ssid")
    if secret is not None and not (_PASSPHRASE.fullmatch(secret) or _KEY.fullmatch(secret)):
        raise UsageError(
            f"the file of --wifi-password-file has no password of Wi-Fi, but {_told(secret)}",
            hint="WPA2 has 8 to 63 characters of ASCII, or 64 hexadecimal digits, alone in the file",
        )


def _told(secret: str) -> str:
    """Return what is wrong with a password of Wi-Fi, without telling the password."""
    if "\n" in secret:
        return "several lines"
    if not (secret.isascii() and secret.isprintable()):
        return "a character that is not printable ASCII"
    return counted(len(secret), "character")


def read_link(files: Sequence[str]) -> dict[str, bytes]:
    """Read the files of a user's own link, and return them by their name on the board.

    files: the arguments of --link, NAME=FILE each. Raises UsageError.
    """
    link = {}
    for argument in files:
        name, _, path = argument.partition("=")
        if not _LINK_FILE.fullmatch(name) or not path:
            raise UsageError(
                f"--link must be NAME=FILE, not {argument!r}",
                hint="such as unix.json=my-link.json; NAME ends in .json, .der, .pem or .key",
            )
        if name in links.MODULES:
            raise UsageError(
                f"--link cannot be {name}, of tern's own link", hint="name a broker: --broker"
            )
        link[name] = read_file(Path(path))
        _check_link_file(name, link[name], path)
        if name.endswith(".json"):
            _require_object(link[name], path)
    if link and not any(name.endswith(".json") for name in link):
        raise UsageError(
            "--link names no .json file", hint="a board finds its link by the name of that file"
        )
    return link


def _check_link_file(name: str, content: bytes, path: str) -> None:
    """Raise UsageError for a file of a link that its name does not fit: a certificate or a key.

    name: on the board. path: of the user's file.
    """
    suffix = name.rpartition(".")[2]
    if name.startswith("authority."):
        authority.read_der(content, path)
    elif suffix == "pem":
        is_pem = b"-----BEGIN " in content and b"-----END " in content
        if not is_pem:
            raise UsageError(f"{path} is not in PEM, or it is cut", hint=_LINK_HINT)
    elif suffix == "der" and not _is_der(content):
        raise UsageError(f"{path} is neither a certificate nor a key in DER", hint=_LINK_HINT)


def _is_der(content: bytes) -> bool:
    """Return whether the content is one ASN.1 sequence in DER, as certificates and keys are.

    Its header says how long the sequence is: bytes that are missing or left over are noticed.
    """
    if len(content) < 4 or content[0] != 0x30:
        return False
    length = content[1]
    header = 2
    if length & 0x80:  # the length itself stands in the next bytes, and they are so many
        length_bytes = length & 0x7F
        header += length_bytes
        length = int.from_bytes(content[2:header], "big")
    return len(content) == header + length


def _require_object(data: bytes, path: str) -> None:
    """Raise UsageError for a file that does not hold a JSON object."""
    try:
        is_object = isinstance(json.loads(data), dict)
    except ValueError as error:
        raise UsageError(f"{path} is not a JSON object: {error}") from error
    if not is_object:
        raise UsageError(f"{path} is not a JSON object: it is not an object")


def _read_secret(path: Path) -> str:
    """Return the Wi-Fi password in a file, without the line's end. Raises UsageError."""
    try:
        return read_file(path).decode("utf-8-sig").strip("\r\n")
    except UnicodeDecodeError:
        # This exception has the password in it, and so must not become the cause (`from None`).
        raise UsageError(
            f"{path} is not UTF-8 text", hint="save the Wi-Fi password as text, alone"
        ) from None
