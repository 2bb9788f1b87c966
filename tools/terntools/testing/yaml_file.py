"""Reads YAML files that people write, and says for each wrong value where it is.

A value stays the text that the file has. Whoever needs a value says what it must be. YAML by itself
guesses the type of a text without quotes: it makes 0006 the number 6, 24:58:07 a number of seconds,
and on a bool.
"""

from __future__ import annotations

import codecs
import math
import re
import unicodedata
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from ternhost.errors import UsageError
from ternhost.options import shown
from ternhost.text import did_you_mean

_LARGEST = 250_000  # bytes of a file: 3,000 boards, which PyYAML reads in some seconds
_DEEPEST = 20  # levels of lists and tables in each other
_TAG = "tag:yaml.org,2002:"
_TYPES = ("str", "int", "float", "bool", "null", "timestamp", "value", "merge", "seq", "map")
_TAGS = frozenset(_TAG + name for name in _TYPES)  # that YAML gives to values without a tag
_LINE_END = re.compile("\r\n|[\n\r\x85\u2028\u2029]")  # as YAML counts lines
_WHOLE_NUMBER = re.compile("0|[1-9][0-9]{0,17}")
_NUMBER = re.compile(r"(?:0|[1-9][0-9]*)(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?")


@dataclass(frozen=True)
class Value:
    """A value in a YAML file: a text, a list or a table.

    file: as the user has named it. name: what the value is, for messages, such as its key.
    """

    file: Path
    name: str
    node: yaml.Node

    @property
    def place(self) -> str:
        """Where the value begins, such as "boards.yaml, line 3, column 9"."""
        return _place(self.file, self.node.start_mark)

    @property
    def line(self) -> int:
        """The line on which the value begins, from 1."""
        return self.node.start_mark.line + 1

    @property
    def is_empty(self) -> bool:
        """Whether nothing stands there, or what means nothing in YAML: null or ~."""
        return self._is_plain and self.node.tag == _TAG + "null"

    @property
    def is_text(self) -> bool:
        """Whether it is neither a list nor a table, nor empty."""
        return isinstance(self.node, yaml.ScalarNode) and not self.is_empty

    @property
    def is_table(self) -> bool:
        """Whether it is a table of keys and values."""
        return isinstance(self.node, yaml.MappingNode)

    @property
    def _is_plain(self) -> bool:
        """Whether it is a text without quotes."""
        return isinstance(self.node, yaml.ScalarNode) and self.node.style is None

    @property
    def _found(self) -> str:
        """What the value is, for messages."""
        if self.is_empty:
            return "empty"
        if isinstance(self.node, yaml.ScalarNode):
            found = shown(self.node.value)
            return found if self._is_plain else f"{found} in quotes"
        return "a table of keys and values" if self.is_table else "a list"

    def called(self, name: str) -> Value:
        """Return the same value with another name."""
        return replace(self, name=name)

    def wrong(self, expected: str, hint: str | None = None) -> UsageError:
        """Return the error for a value that is not what it must be.

        expected: what it must be, such as "a whole number".
        """
        text = f"{self.place}: {self.name} must be {expected}, and it is {self._found}"
        return UsageError(text, hint)

    def text(self, expected: str = "a text", *, lines: bool = False) -> str:
        """Return a text as it is written, without its quotes. Raises UsageError if it is none.

        expected: what it must be, for the error. lines: whether it may have several lines.
        """
        if not self.is_text:
            raise self.wrong(expected)
        text = str(self.node.value)
        if not text.strip() or (not lines and re.search("[\n\t]", text)):
            raise self.wrong(expected)
        return text

    def flag(self) -> bool:
        """Return whether it is true or false. Raises UsageError for anything else.

        As in YAML 1.1, which twister reads, yes and on mean true, and no and off mean false.
        """
        if not self._is_plain or self.node.tag != _TAG + "bool":
            raise self.wrong("true or false, without quotes")
        return str(self.node.value).lower() in ("true", "yes", "on")

    def whole_number(self, least: int, most: int) -> int:
        """Return a whole number between two bounds. Raises UsageError if it is none."""
        expected = f"a whole number from {least} to {most}"
        if not self._is_plain or not _WHOLE_NUMBER.fullmatch(self.node.value):
            raise self.wrong(expected)
        number = int(self.node.value)
        if not least <= number <= most:
            raise self.wrong(expected)
        return number

    def number(self, expected: str) -> float:
        """Return a finite number of at least 0. Raises UsageError if it is none.

        expected: what it must be, for the error.
        """
        if not self._is_plain or not _NUMBER.fullmatch(self.node.value):
            raise self.wrong(expected)
        number = float(self.node.value)
        if not math.isfinite(number):
            raise self.wrong(expected)
        return number

    def items(self, expected: str, hint: str | None = None) -> list[Value]:
        """Return the values in a list. Raises UsageError if it is none.

        expected: what it must be, for the error.
        """
        if not isinstance(self.node, yaml.SequenceNode):
            raise self.wrong(expected, hint)
        items = []
        for number, node in enumerate(self.node.value, 1):
            items.append(Value(self.file, f"item {number} of {self.name}", node))
        return items

    def table(self, keys: Collection[str], hint: str | None = None) -> dict[str, Value]:
        """Return the values in a table by their keys, without the empty ones.

        keys: those that it may have. hint: what to do if it is no table. Raises UsageError for
        anything but a table, and for a key that is unknown or occurs twice.
        """
        if not isinstance(self.node, yaml.MappingNode):
            raise self.wrong("a table of keys and values", hint)
        values = {}
        for key, (key_node, node) in self._pairs(self.node, {}).items():
            if key not in keys:
                text = (
                    f"{_place(self.file, key_node.start_mark)}: {self.name} has no key {shown(key)}"
                )
                advice = did_you_mean(key, keys) or f"it may have {', '.join(sorted(keys))}"
                raise UsageError(text, advice)
            value = Value(self.file, key, node)
            if not value.is_empty:
                values[key] = value
        return values

    def _pairs(
        self, node: yaml.MappingNode, known: dict[int, dict[str, tuple[yaml.Node, yaml.Node]]]
    ) -> dict[str, tuple[yaml.Node, yaml.Node]]:
        """Return the nodes of a table's keys and values, with those of tables that `<<` names.

        known: the result for nodes that were looked at already, by their identity: so many aliases
        of one table cost no time, and a table may name itself. Raises UsageError.
        """
        if id(node) in known:
            return known[id(node)]
        pairs: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        known[id(node)] = pairs
        merged: list[yaml.Node] = []
        for key_node, value_node in node.value:
            place = _place(self.file, key_node.start_mark)
            if key_node.tag == _TAG + "merge":
                is_list = isinstance(value_node, yaml.SequenceNode)
                merged += value_node.value if is_list else [value_node]
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                raise UsageError(f"{place}: a key of {self.name} must be a text, without - or {{")
            key = str(key_node.value)
            if key in pairs:
                first_line = pairs[key][0].start_mark.line + 1
                text = f"{place}: {self.name} has the key {shown(key)} twice"
                raise UsageError(text, f"it is also on line {first_line}: keep one of them")
            pairs[key] = (key_node, value_node)
        for source in merged:
            if not isinstance(source, yaml.MappingNode):
                raise Value(self.file, "<<", source).wrong("the alias of a table, such as *pico")
            for key, pair in self._pairs(source, known).items():
                pairs.setdefault(key, pair)
        return pairs


def read(path: Path, name: str) -> Value:
    """Read a YAML file, and return the value that it holds.

    name: what the file is, for messages. Raises UsageError for a file that cannot be read as YAML,
    with the line and the column.
    """
    text = _decoded(_content(path, name), path)
    loader = None
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
    except yaml.reader.ReaderError as error:
        place = _place_in_text(path, text[: error.position])
        problem = f"the character U+{ord(text[error.position]):04X} is not allowed in YAML"
        raise UsageError(f"{place}: {problem}", "remove it") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = ": ".join(filter(None, (error.context, error.problem)))
        place = _place(path, mark) if mark else str(path)
        raise UsageError(f"{place}: this is no YAML: {problem}", error.note) from error
    except (ValueError, OverflowError) as error:  # such as an escape of no character
        assert loader is not None  # ReaderError is all that its constructor raises
        place = _place(path, loader.get_mark())
        raise UsageError(f"{place}: this is no YAML: {error}") from error
    finally:
        if loader is not None:
            loader.dispose()
    if node is None:
        place = _place_in_text(path, "")
        raise UsageError(f"{place}: the {name} is empty")
    return Value(path, f"the {name}", node)


class _Loader(yaml.SafeLoader):
    """Reads YAML into nodes, and refuses what a file of plain values does not need.

    PyYAML follows each level of lists and tables by a call of itself, and could do so without end.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Return the next node. Raises yaml.MarkedYAMLError, with its place."""
        mark = self.peek_event().start_mark
        self._depth += 1
        if self._depth > _DEEPEST:
            problem = f"more than {_DEEPEST} lists and tables are in each other"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        if node is not None and node.tag not in _TAGS:
            problem = f"the tag {shown(node.tag)} is not known"
            raise yaml.MarkedYAMLError(
                problem=problem, problem_mark=mark, note="leave out what begins with !"
            )
        if isinstance(node, yaml.ScalarNode):
            _require_characters(node.value, mark)
        return node


def _require_characters(text: str, mark: yaml.Mark) -> None:
    """Raise yaml.MarkedYAMLError for a control character, or half of one, that was escaped."""
    for character in text:
        if character not in "\n\t" and unicodedata.category(character) in ("Cc", "Cs"):
            problem = f"the text has the control character U+{ord(character):04X}"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=mark)


def _content(path: Path, name: str) -> bytes:
    """Return the bytes of a file. Raises UsageError if it cannot be read or is too large."""
    try:
        with open(path, "rb") as file:
            data = file.read(_LARGEST + 1)
    except OSError as error:
        raise UsageError(f"cannot read the {name} {path}: {error.strerror}") from error
    except ValueError as error:  # a name that no file can have
        raise UsageError(f"cannot read the {name} {shown(str(path))}: {error}") from error
    if len(data) > _LARGEST:
        text = f"{path} is no {name}: it has more than {_LARGEST} bytes"
        raise UsageError(text, "divide it, or see whether another file is meant")
    return data


def _decoded(data: bytes, path: Path) -> str:
    """Return the text in the bytes of a file: UTF-8, or UTF-16 with a byte order mark.

    Raises UsageError for other bytes, with their place.
    """
    encoding = "utf-8-sig"
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        before = data[: error.start].decode(encoding, errors="replace")
        place = _place_in_text(path, before)
        text = f"{place}: the byte 0x{data[error.start]:02x} is no character in UTF-8"
        raise UsageError(text, "save the file in UTF-8") from error


def _place(path: Path, mark: yaml.Mark) -> str:
    """Return where something is, for messages. mark: as PyYAML gives it, from 0."""
    return f"{path}, line {mark.line + 1}, column {mark.column + 1}"


def _place_in_text(path: Path, before: str) -> str:
    """Return where something is, for messages. before: the text of the file up to there."""
    lines = _LINE_END.split(before)
    return f"{path}, line {len(lines)}, column {len(lines[-1]) + 1}"
