"""How a board reaches its host: a broker, or a link of one's own, in the files that provisioning
writes.
"""

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
_MQTT_PORT, _MQTT_TLS_PORT = 1883, 8883
_HOSTS = re.compile(r"(([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:]+\])(,(?!$)|$))+")
_LINK_FILE = re.compile(r"[A-Za-z0-9_-]{1,32}\.(json|der|pem|key)")


@dataclass(frozen=True)
class Broker:
    """A board's broker, and the Wi-Fi network that leads to it.

    The secret is never part of a repr.
    """

    host: str
    port: int
    authority: bytes | None = None  # DER; without it, no TLS
    ssid: str | None = None
    wifi_secret: str | None = field(default=None, repr=False)
    prefix: str | None = None

    @classmethod
    def parse(
        cls,
        address: str,
        authority: Path | None = None,
        ssid: str | None = None,
        wifi_secret_file: Path | None = None,
        prefix: str | None = None,
    ) -> Broker:
        """Read HOST[:PORT], or HOST,...[:PORT] of a cluster, and the files. Raises UsageError."""
        host, colon, port = (
            address.rpartition(":") if not address.endswith("]") else (address, "", "")
        )
        if not colon:
            host, port = address, str(_MQTT_TLS_PORT if authority else _MQTT_PORT)
        if not _HOSTS.fullmatch(host) or not (port.isdecimal() and 1 <= int(port) <= 65535):
            raise UsageError(
                f"--broker must be HOST[:PORT], not {address!r}", hint="such as broker.local"
            )
        if prefix is not None:
            from ternhost.reach.broker.access import check_prefix

            check_prefix(prefix)
        secret = _read_secret(wifi_secret_file) if wifi_secret_file else None
        if ssid is not None and not 1 <= len(ssid.encode()) <= 32:
            raise UsageError(f"--ssid must have 1 to 32 bytes, not {len(ssid.encode())}")
        if secret is not None and ssid is None:
            raise UsageError(
                "a Wi-Fi password needs a network", hint="name the network with --ssid"
            )
        if secret is not None and not 8 <= len(secret) <= 64:
            raise UsageError(
                "the Wi-Fi password must have 8 to 63 characters", hint="WPA2 asks for that"
            )
        certificate = read_file(authority) if authority else None
        if certificate is not None and certificate[:1] != b"\x30":
            raise UsageError(
                f"{authority} is not a certificate in DER", hint=f"use the broker's {AUTHORITY}"
            )
        return cls(re.sub(r"[\[\]]", "", host), int(port), certificate, ssid, secret, prefix)

    def files(self, wake: int | None = None) -> dict[str, bytes]:
        """The files for the board. wake: as of Member."""
        config = {
            "host": self.host,
            "port": self.port,
            "wake_s": wake,
            "authority": self.authority and AUTHORITY,
            "ssid": self.ssid,
            "wifi_password": self.wifi_secret,
            "prefix": self.prefix,
        }
        named = {name: value for name, value in config.items() if value is not None}
        files = {"/" + AUTHORITY: self.authority} if self.authority is not None else {}
        return {**files, "/" + MQTT: json.dumps(named).encode()}


def read_link(files: Sequence[str]) -> dict[str, bytes]:
    """The files of a link of one's own, name on the board -> content, from NAME=FILE. Raises
    UsageError.
    """
    link = {}
    for text in files:
        name, _, path = text.partition("=")
        if not _LINK_FILE.fullmatch(name) or not path:
            raise UsageError(
                f"--link must be NAME=FILE, not {text!r}",
                hint="such as unix.json=my-link.json; NAME ends in .json, .der, .pem or .key",
            )
        if name in links.MODULES:
            raise UsageError(
                f"--link cannot be {name}, of tern's own link", hint="name a broker: --broker"
            )
        link[name] = read_file(Path(path))
        try:
            if name.endswith(".json") and not isinstance(json.loads(link[name]), dict):
                raise ValueError("it is not an object")
        except ValueError as error:
            raise UsageError(f"{path} is not a JSON object: {error}") from error
    if link and not any(name.endswith(".json") for name in link):
        raise UsageError(
            "--link names no .json file", hint="a board finds its link by the name of that file"
        )
    return link


def _read_secret(path: Path) -> str:
    try:
        return read_file(path).decode("utf-8-sig").strip("\r\n")
    except UnicodeDecodeError:  # which holds the secret, and so is not kept as the cause
        raise UsageError(
            f"{path} is not UTF-8 text", hint="save the Wi-Fi password as text, alone"
        ) from None
