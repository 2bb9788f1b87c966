"""Says in words why a board is, or was, not connected to its broker (shared_specs/mqtt.md)."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tern import absence
from tern.host_frames import Hello
from ternhost.errors import RefusedError
from ternhost.store.boards import hello_fields
from ternhost.terminal import duration


def _read_reasons() -> dict[int, tuple[str, str]]:
    """Read what has happened and what to do, by the number with which a board reports it.

    The file has the names of these numbers in tern.absence instead.
    """
    texts = json.loads(Path(__file__).with_suffix(".json").read_text())
    reasons = {}
    for name, (words, remedy) in texts.items():
        number = getattr(absence, name)
        reasons[number] = (words, remedy)
    return reasons


REASONS: Mapping[int, tuple[str, str]] = _read_reasons()


def refuses(error: BaseException | None) -> bool:
    """Return whether a connection failed for a reason that stays: to try again is of no use.

    Either there is no MQTT broker at the address, or the broker refuses this client.
    """
    reason = getattr(error, "reason", 0)
    return reason in (absence.NO_BROKER, absence.CREDENTIALS, absence.DECLINED)


def describe(fields: Mapping[str, Any]) -> str:
    """Describe the absence of a board from its broker, such as "was away 3 min: connection lost".

    fields: the fields of its HELLO, the message in which a board describes itself (`hello_fields`).
    The result is empty if the board's connection has not failed.
    """
    reason = fields.get("absent")  # a number of tern.absence; 0 or missing if nothing has failed
    seconds = fields.get("absent_seconds", 0)
    if not reason:
        if fields.get("absent_now"):
            return f"connecting to its broker for {duration(seconds)}"
        return ""
    if reason in REASONS:
        words, remedy = REASONS[reason]
    else:
        words = f"reason {reason}, unknown here"
        remedy = "update this host's tern"
    if fields["absent_now"]:
        return f"not on its broker for {duration(seconds)}: {words}; {remedy}"
    if seconds:
        return f"was away {duration(seconds)}: {words}"
    return f"was away: {words}"


def require_at_port(name: str, hello: Hello) -> Hello:
    """Return the HELLO of a board on a port, if the board answers requests for reports there.

    name: the name of the port. Raises RefusedError for a board that takes part in rounds through a
    broker, and at its port only describes itself with HELLO.
    """
    fields = hello_fields(hello)
    if "absent" in fields:  # only boards that use a broker report when they were absent from it
        text = f"the board on {name} answers its broker, and at its port only HELLO"
        away = describe(fields)
        if away:
            text += f"; {away}"
        hint = "reach it through the broker: --fleet mqtt:DIR; or provision it without --broker"
        raise RefusedError(text, hint)
    return hello
