"""A text in TOML whose values have places: messages name the line that the user has to change.

Python's tomllib reads the values, but does not say on which line each of them is.
"""

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from ternhost.errors import UsageError

_BARE = r"[A-Za-z0-9_-]+"
_KEY = rf"""(?:{_BARE}|"(?:[^"\\]|\\.)*"|'[^']*')"""
_KEYS = rf"{_KEY}(?:\s*\.\s*{_KEY})*"
_HEADER = re.compile(rf"\s*\[\s*({_KEYS})\s*\]\s*(?:#.*)?")
_ASSIGNMENT = re.compile(rf"\s*({_KEYS})\s*=")
_DECIMAL_COMMA = re.compile(r"^[^#\n=]*=\s*[+-]?\d+,\d+\s*(?:#.*)?$", re.M | re.A)
_BROKEN = (ArithmeticError, RecursionError, ValueError)  # what tomllib lets through


@dataclass(frozen=True)
class TomlText:
    """The text of a file. name: that of the file, for messages."""

    name: str
    text: str

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file. Raises UsageError."""
        try:
            text = path.read_text(encoding="utf-8-sig")
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise UsageError(f"{path} is no text in UTF-8", "save it in UTF-8") from error
        return cls(path.name, text)

    def values(self) -> dict[str, Any]:
        """Return the values; numbers with a point or an exponent are Decimals.

        Raises UsageError with the line that is no TOML.
        """
        try:
            return _values(self.text)
        except tomllib.TOMLDecodeError as error:
            hint = 'each key stands once, and texts in quotes: label = "activity"'
            if _DECIMAL_COMMA.search(self.text):
                hint = "numbers have decimal points: high = 40.5"
            raise UsageError(f"{self.name} is no TOML: {error}", hint) from error
        except _BROKEN as error:
            text = f"{self._place(self._broken_line())} cannot be read"
            raise UsageError(text, "write a shorter number or a simpler value") from error

    def _broken_line(self) -> int:
        """Return the first line that tomllib cannot read by itself; 0 if there is none."""
        for number, line in enumerate(self.text.split("\n"), 1):
            try:
                _values(line)
            except tomllib.TOMLDecodeError:
                continue  # such as a line within a list
            except _BROKEN:
                return number
        return 0

    def where(self, *path: str) -> str:
        """Return the place of a value, such as "my.toml, line 7", or of the table that has it.

        path: the keys that lead to it, such as "columns", "temperature", "low".
        """
        for length in range(len(path), 0, -1):
            number = self._lines.get(path[:length])
            if number:
                return self._place(number)
        return self.name

    def _place(self, number: int) -> str:
        return f"{self.name}, line {number}" if number else self.name

    @cached_property
    def _lines(self) -> Mapping[tuple[str, ...], int]:
        """The line on which each table or value begins, by the keys that lead to it."""
        lines: dict[tuple[str, ...], int] = {}
        table: tuple[str, ...] = ()
        for number, line in enumerate(self.text.split("\n"), 1):
            header = _HEADER.fullmatch(line)
            assignment = _ASSIGNMENT.match(line)
            if header:
                table = _path_of(header[1])
                lines.setdefault(table, number)
            elif assignment:
                path = (*table, *_path_of(assignment[1]))
                for length in range(1, len(path) + 1):
                    lines.setdefault(path[:length], number)
        return lines


def _values(text: str) -> dict[str, Any]:
    return tomllib.loads(text, parse_float=Decimal)


def _path_of(keys: str) -> tuple[str, ...]:
    """Return the keys of a dotted key, without their quotes."""
    try:
        value: Any = _values(f"{keys} = 0")
    except _BROKEN:
        return ()
    path = []
    while isinstance(value, dict):
        ((key, value),) = value.items()
        path.append(key)
    return tuple(path)


def key_text(name: str) -> str:
    """Return a name as a key in TOML: in quotes if it has other characters than bare keys have."""
    if re.fullmatch(_BARE, name):
        return name
    return text_of(name)


def text_of(value: Any) -> str:
    """Return a text, a number, a truth value or a list of them as TOML."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        # JSON escapes what TOML does, but for one control character.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(text_of, value))}]"
    return str(value)
