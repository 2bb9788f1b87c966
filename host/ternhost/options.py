"""Options that declare themselves: a dataclass field says what it means; parsers and messages are made of that."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, Field, field, fields
from typing import Any

from ternhost.errors import UsageError

_KEY = "option"


def option(
    default: Any,
    text: str,
    *,
    group: str,
    kind: Callable[[str], Any] = str,
    metavar: str | None = None,
    choices: Callable[[], Iterable[str]] | Sequence[str] | None = None,
    shown: str | None = None,
) -> Any:
    """A dataclass field that is also an option of the command line.

    text: its help. group: the heading it stands under. choices: the values it can have, or what returns them.
    shown: how the help words the default (None: as it is; "": not at all).
    """
    told = {
        "help": text,
        "group": group,
        "kind": kind,
        "metavar": metavar,
        "choices": choices,
        "shown": shown,
    }
    return field(default=default, metadata={_KEY: told})


def options_of(cls: Any) -> list[Field[Any]]:
    """The fields of a dataclass that are options of the command line, in order."""
    return [own for own in fields(cls) if _KEY in own.metadata]


def names_of(cls: Any) -> set[str]:
    """The names of those fields."""
    return {own.name for own in options_of(cls)}


def flag(name: str) -> str:
    """How an option is written on the command line."""
    return "--" + name.replace("_", "-")


def add_arguments(parser: argparse.ArgumentParser, *classes: Any, leave_out: Iterable[str] = ()) -> None:
    """Add the options of these dataclasses, those of one name once. Nothing is a default here: see `given`."""
    groups = {group.title: group for group in parser._action_groups}
    seen = set(leave_out)
    for cls in classes:
        for own in options_of(cls):
            if own.name in seen:
                continue
            seen.add(own.name)
            told = own.metadata[_KEY]
            group = groups.get(told["group"])
            if group is None:
                group = groups[told["group"]] = parser.add_argument_group(told["group"])
            group.add_argument(flag(own.name), help=_help(own), default=None, **_form(told))


def _form(told: Any) -> dict[str, Any]:
    choices = told["choices"]() if callable(told["choices"]) else told["choices"]
    form: dict[str, Any] = {"type": told["kind"], "metavar": told["metavar"]}
    if told["kind"] is bool:
        return {"action": argparse.BooleanOptionalAction}
    if choices is not None:
        form["choices"] = tuple(choices)
    return form


def _help(own: Field[Any]) -> str:
    told = own.metadata[_KEY]
    shown = told["shown"]
    if shown is None and own.default is not MISSING and own.default is not None:
        shown = f"{own.default:g}" if isinstance(own.default, float) else str(own.default)
    text = f"{told['help']} (default: {shown})" if shown else str(told["help"])
    return text.replace("%", "%%")


def given(args: argparse.Namespace, *classes: Any) -> dict[str, Any]:
    """What was named on the command line of the options of these dataclasses."""
    names = [own.name for cls in classes for own in options_of(cls)]
    return {name: value for name in names if (value := getattr(args, name, None)) is not None}


def require(condition: bool, name: str, must: str, value: object) -> None:
    """Raise UsageError, "--name must be ..., not value", unless the condition holds."""
    if not condition:
        raise UsageError(f"{flag(name)} must be {must}, not {value}")


def exclude(named: Iterable[str], *alternatives: str) -> None:
    """Raise UsageError where more than one of these options was named, which say the same."""
    found = [name for name in alternatives if name in named]
    if len(found) > 1:
        raise UsageError(f"{flag(found[0])} and {flag(found[1])} say the same", hint="give one of them")
