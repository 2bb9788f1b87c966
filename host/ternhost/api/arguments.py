"""Checks of what a program hands to the public functions, before anything is done with it."""

from __future__ import annotations

import operator

from ternhost.errors import UsageError
from ternhost.files import path_text

_LARGEST = 2**63 - 1

path = path_text  # a path as a text, checked


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
