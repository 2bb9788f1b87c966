"""How a board reaches its host: the files of a broker, or of a link of one's own."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tern import links
from ternhost.errors import UsageError
from terntools.boards.program import read_file

AUTHORITY = "authority.der"
MQTT = "mqtt.json"
_MQTT_PORT = 1883
_MQTT_TLS_PORT = 8883
# Names or addresses of hosts, separated by commas; an IPv6 address is in brackets.
_HOSTS = re.compile(r"(([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:]+\])(,(?!$)|$))+")
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

    @classmethod
    def parse(
        cls,
        address: str,
        authority: Path | None = None,
        ssid: str | None = None,
        wifi_secret_file: Path | None = None,
        prefix: str | None = None,
    ) -> Broker:
        """Make a Broker from its address and the files with its certificate and a password.

        address: HOST[:PORT], or HOST,HOST,...[:PORT] for a cluster. authority: the file with the
        broker's certificate (DER). wifi_secret_file: the file with the password of the Wi-Fi network.
        prefix: of the fleet's topics. Raises UsageError.
        """
        host, port = _parse_address(address, with_tls=authority is not None)
        if prefix is not None:
            from ternhost.reach.broker.access import check_prefix

            check_prefix(prefix)  # raises
        wifi_secret = None
        if wifi_secret_file:
            wifi_secret = _read_secret(wifi_secret_file)
        _check_wifi(ssid, wifi_secret)
        certificate = None
        if authority:
            certificate = read_file(authority)
            if certificate[:1] != b"\x30":  # a sequence, with which each certificate begins
                raise UsageError(
                    f"{authority} is not a certificate in DER", hint=f"use the broker's {AUTHORITY}"
                )
        return cls(
            host=host,
            port=port,
            authority=certificate,
            ssid=ssid,
            wifi_secret=wifi_secret,
            prefix=prefix,
        )

    def files(self, wake: int | None = None) -> dict[str, bytes]:
        """Return the files by which the board finds this broker, by their path.

        wake: seconds between two wakes of a board that sleeps; None if it does not.
        """
        config: dict[str, object] = {"host": self.host, "port": self.port}
        if wake is not None:
            config["wake_s"] = wake
        if self.authority is not None:
            config["authority"] = AUTHORITY
        if self.ssid is not None:
            config["ssid"] = self.ssid
        if self.wifi_secret is not None:
            config["wifi_password"] = self.wifi_secret
        if self.prefix is not None:
            config["prefix"] = self.prefix

        files = {}
        if self.authority is not None:
            files["/" + AUTHORITY] = self.authority
        files["/" + MQTT] = json.dumps(config).encode()
        return files


def _parse_address(address: str, with_tls: bool) -> tuple[str, int]:
    """Split an address into its host and its port.

    The host comes without the brackets of an IPv6 address. An address without a port has the usual
    one of MQTT, or of MQTT over TLS. Raises UsageError.
    """
    host = address
    port = str(_MQTT_PORT)
    if with_tls:
        port = str(_MQTT_TLS_PORT)
    # An address that ends with "]" is IPv6 without a port; its colons separate nothing.
    if ":" in address and not address.endswith("]"):
        host, _, port = address.rpartition(":")
    is_port = port.isdecimal() and 1 <= int(port) <= 65535
    if not _HOSTS.fullmatch(host) or not is_port:
        raise UsageError(
            f"--broker must be HOST[:PORT], not {address!r}", hint="such as broker.local"
        )
    return re.sub(r"[\[\]]", "", host), int(port)


def _check_wifi(ssid: str | None, secret: str | None) -> None:
    """Raise UsageError for the name of a network, or a password, that Wi-Fi cannot have."""
    if ssid is not None and not 1 <= len(ssid.encode()) <= 32:
        raise UsageError(f"--ssid must have 1 to 32 bytes, not {len(ssid.encode())}")
    if secret is not None and ssid is None:
        raise UsageError("a Wi-Fi password needs a network", hint="name the network with --ssid")
    if secret is not None and not 8 <= len(secret) <= 64:
        raise UsageError(
            "the Wi-Fi password must have 8 to 63 characters", hint="WPA2 asks for that"
        )


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
        if name.endswith(".json"):
            _require_object(link[name], path)
    if link and not any(name.endswith(".json") for name in link):
        raise UsageError(
            "--link names no .json file", hint="a board finds its link by the name of that file"
        )
    return link


def _require_object(data: bytes, path: str) -> None:
    """Raise UsageError for a file that does not hold a JSON object."""
    try:
        is_object = isinstance(json.loads(data), dict)
    except ValueError as error:
        raise UsageError(f"{path} is not a JSON object: {error}") from error
    if not is_object:
        raise UsageError(f"{path} is not a JSON object: it is not an object")


def _read_secret(path: Path) -> str:
    """Return the Wi-Fi password in a file. Raises UsageError."""
    try:
        return read_file(path).decode("utf-8-sig").strip("\r\n")
    except UnicodeDecodeError:
        # This exception has the password in it, and so must not become the cause (`from None`).
        raise UsageError(
            f"{path} is not UTF-8 text", hint="save the Wi-Fi password as text, alone"
        ) from None
