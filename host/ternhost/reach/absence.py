"""Why a board is, or was, not on its broker, in words: the reasons of shared_specs/mqtt.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tern import absence
from ternhost.errors import RefusedError
from ternhost.store.boards import hello_fields
from ternhost.terminal import duration

_WIFI = "tern provision BOARD ... --broker HOST --ssid NAME --wifi-password-file FILE"
_BROKER = "tern provision BOARD ... --broker HOST:PORT --authority FILE"

# Reason -> what happened, and its remedy.
REASONS: Mapping[int, tuple[str, str]] = {
    absence.NO_SETTINGS: ("no Wi-Fi: the board is on no network, and knows none", f"name one: {_WIFI}"),
    absence.NO_NETWORK: ("no Wi-Fi network of that name", f"check its name, range and band (2.4 GHz): {_WIFI}"),
    absence.WIFI_KEY: ("Wi-Fi password refused, or signal too weak", f"check both: {_WIFI}"),
    absence.NOT_JOINED: ("Wi-Fi network not joined", "check its range, and its security: WPA2, or none"),
    absence.NO_LEASE: ("no address on the Wi-Fi network", "check the network's DHCP server"),
    absence.NO_NAME: ("no address for the broker's name", f"check the name, or use an address: {_BROKER}"),
    absence.NAME_SILENT: ("name server silent", f"check the network's name server, or use an address: {_BROKER}"),
    absence.REFUSED: ("connection refused: no broker there", f"tern broker run DIR; check the port: {_BROKER}"),
    absence.SILENT: ("no answer from the broker", f"check its firewall, network and address: {_BROKER}"),
    absence.CLOSED: (
        "the broker closed the connection before it let the board in",
        f"check its limit of connections, and that both use TLS or neither does: {_BROKER}"),
    absence.NO_BROKER: ("no MQTT broker there, or only one side uses TLS", f"check the port: {_BROKER}"),
    absence.CERTIFICATE: (
        "the broker's certificate is not of the board's authority, or not for this name",
        f"check the name and give the board the broker's authority.der: {_BROKER}"),
    absence.DATES: (
        "the broker's certificate has expired or is not valid yet, or the board's clock is wrong",
        "check the certificate's dates and the board's clock; tern broker config DIR makes certificates valid to 2049"),
    absence.CREDENTIALS: (
        "the broker refused the board's name or password", "tern broker config DIR writes the passwords of all boards"),
    absence.DECLINED: (
        "the broker refused the session or its topics", "read its log; tern broker config DIR writes its access list"),
    absence.LOST: ("connection lost", "check the broker, the range, and that no other board uses this board's name"),
    absence.FAULT: ("fault on the board, such as too little memory", "see its exceptions: tern device info BOARD"),
}  # fmt: skip


def describe(fields: Mapping[str, Any]) -> str:
    """The absence that a HELLO tells (fields of `store.boards.hello_fields`): "was away 3 min 2 s: connection lost".

    Empty where nothing has failed: on a board that is on its broker, or whose link is its port.
    """
    reason, seconds = fields.get("absent"), fields.get("absent_seconds", 0)
    if not reason:
        return f"connecting to its broker for {duration(seconds)}" if fields.get("absent_now") else ""
    words, remedy = REASONS.get(reason, (f"reason {reason}, unknown here", "update this host's tern"))
    if fields["absent_now"]:
        return f"not on its broker for {duration(seconds)}: {words}; {remedy}"
    return f"was away{f' {duration(seconds)}' * bool(seconds)}: {words}"


def require_at_port(name: str, hello: Any) -> None:
    """Raise RefusedError for a board on the port `name` that answers nobody but its broker, except by this HELLO."""
    fields = hello_fields(hello)
    if "absent" in fields:
        why = describe(fields)
        raise RefusedError(
            f"the board on {name} answers its broker, and at its port only HELLO{why and f'; {why}'}",
            hint="reach it through the broker: --fleet mqtt:DIR; or provision it without --broker",
        )
