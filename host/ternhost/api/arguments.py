"""Checks of what a program hands to the public functions, before anything is done with it."""

from __future__ import annotations

import operator
import os

from ternhost.errors import UsageError

_LONGEST_PART = 255  # bytes of a name in a directory
_LONGEST_PATH = 4095  # bytes
_LARGEST = 2**63 - 1


def whole(value: int, what: str) -> int:
    """Return a whole number as an int. Raises UsageError for another type, or one that is huge.

    what: its parameter, for the message.
    """
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise UsageError(f"{what} must be a whole number, not {type(value).__name__}") from None
    if abs(number) > _LARGEST:
        raise UsageError(f"{what} is too large a number")
    return number


def text(value: str, what: str) -> str:
    """Return a text that is not empty, and that can be the path of a file.

    what: its parameter, for the message. Raises UsageError for anything else.
    """
    if not isinstance(value, str) or not value.strip():
        raise UsageError(f"{what} must be a text that is not empty, not {type(value).__name__}")
    return path(value, what)


def path(value: str | os.PathLike[str], what: str) -> str:
    """Return a path as a text. Raises UsageError for anything that no file can have as its path.

    what: the parameter that it is for, for the message.
    """
    if not isinstance(value, str | os.PathLike):
        raise UsageError(f"{what} must be a name or a path, not {type(value).__name__}")
    name = os.fspath(value)
    if not isinstance(name, str) or not name or "\0" in name:
        raise UsageError(f"{what} must be a name or a path that is not empty")
    try:
        encoded = name.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{what} has a character that no file's name has") from None
    longest_part = max(map(len, encoded.split(b"/")))
    if longest_part > _LONGEST_PART or len(encoded) > _LONGEST_PATH:
        raise UsageError(f"{what} is too long for the path of a file")
    return name
