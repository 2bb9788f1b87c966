"""Why a board is, or was, not on its broker, in words: the reasons of shared_specs/mqtt.md."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tern import absence
from tern.host_frames import Hello
from ternhost.errors import RefusedError
from ternhost.store.boards import hello_fields
from ternhost.terminal import duration

_TEXTS = json.loads(Path(__file__).with_suffix(".json").read_text())  # by the names of tern.absence
# Reason -> (what happened, its remedy)
REASONS: Mapping[int, tuple[str, str]] = {
    getattr(absence, name): (*texts,) for name, texts in _TEXTS.items()
}


def refuses(error: BaseException | None) -> bool:
    """Whether a connection ended by an answer of the broker that it will give again, or no broker."""
    reason = getattr(error, "reason", 0)
    return reason in (absence.NO_BROKER, absence.CREDENTIALS, absence.DECLINED)


def describe(fields: Mapping[str, Any]) -> str:
    """The absence in the fields of a HELLO; empty if nothing failed.

    Such as "was away 3 min 2 s: connection lost".
    """
    reason, seconds = fields.get("absent"), fields.get("absent_seconds", 0)
    if not reason:
        is_connecting = fields.get("absent_now")
        return f"connecting to its broker for {duration(seconds)}" if is_connecting else ""
    unknown = f"reason {reason}, unknown here", "update this host's tern"
    words, remedy = REASONS.get(reason, unknown)
    if fields["absent_now"]:
        return f"not on its broker for {duration(seconds)}: {words}; {remedy}"
    if seconds:
        return f"was away {duration(seconds)}: {words}"
    return f"was away: {words}"


def require_at_port(name: str, hello: Hello) -> Hello:
    """The HELLO of the board on a port.

    Raises RefusedError for one that answers only its broker, except by HELLO.
    """
    fields = hello_fields(hello)
    if "absent" in fields:
        text = f"the board on {name} answers its broker, and at its port only HELLO"
        away = describe(fields)
        if away:
            text += f"; {away}"
        hint = "reach it through the broker: --fleet mqtt:DIR; or provision it without --broker"
        raise RefusedError(text, hint)
    return hello
