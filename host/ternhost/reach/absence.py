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
# What happened, and its remedy, by the reason's number.
REASONS: Mapping[int, tuple[str, str]] = {
    getattr(absence, name): (words, remedy) for name, (words, remedy) in _TEXTS.items()
}


def refuses(error: BaseException | None) -> bool:
    """Return whether a connection ended because there is no broker, or because it refuses.

    A broker that refuses a client will do so again.
    """
    reason = getattr(error, "reason", 0)
    return reason in (absence.NO_BROKER, absence.CREDENTIALS, absence.DECLINED)


def describe(fields: Mapping[str, Any]) -> str:
    """Describe the absence of a board from its broker, such as "was away 3 min: connection lost".

    fields: of its HELLO (`hello_fields`). The result is empty if nothing has failed.
    """
    reason, seconds = fields.get("absent"), fields.get("absent_seconds", 0)
    if not reason:
        if fields.get("absent_now"):
            return f"connecting to its broker for {duration(seconds)}"
        return ""
    unknown = f"reason {reason}, unknown here", "update this host's tern"
    words, remedy = REASONS.get(reason, unknown)
    if fields["absent_now"]:
        return f"not on its broker for {duration(seconds)}: {words}; {remedy}"
    if seconds:
        return f"was away {duration(seconds)}: {words}"
    return f"was away: {words}"


def require_at_port(name: str, hello: Hello) -> Hello:
    """Return the HELLO of the board on a port, if the board can be asked there.

    name: of the port. Raises RefusedError for a board that answers its broker, and at its port
    only with HELLO.
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
