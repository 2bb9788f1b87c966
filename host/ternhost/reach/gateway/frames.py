"""The frame of what hosts and gateways say to each other: protocol and kind, a byte each; then parts, each after its
length (u32, little-endian), the first an object of JSON. It is read strictly: what is in it may come from anybody.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from ternhost.reach.gateway.post import MOST_TEXT

PROTOCOL = 1
MOST_PARTS = 1 << 13

_MOST_JSON = 1 << 20
LENGTH = struct.Struct("<I")


class MessageError(ValueError):
    """These bytes are no such message, or of another version."""


def pack(kind: int, fields: Mapping[str, Any], blobs: Sequence[bytes] = ()) -> bytes:
    head = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
    return bytes((PROTOCOL, kind)) + b"".join(LENGTH.pack(len(part)) + part for part in (head, *blobs))


def unpack(data: bytes) -> tuple[int, Fields, list[bytes]]:
    require(len(data) >= 2, "it is too short")
    require(data[0] == PROTOCOL, f"it is of protocol {data[0]}, not {PROTOCOL}")
    parts: list[bytes] = []
    at = 2
    while at < len(data):
        require(len(data) - at >= LENGTH.size and len(parts) <= MOST_PARTS, "it does not end in order")
        (length,) = LENGTH.unpack_from(data, at)
        at += LENGTH.size
        require(length <= len(data) - at, "it is cut off")
        parts.append(data[at : at + length])
        at += length
    require(len(parts) >= 1 and len(parts[0]) <= _MOST_JSON, "it has no head")
    try:
        head = json.loads(parts[0])
    except (ValueError, RecursionError) as error:
        raise MessageError(f"its head is no JSON: {error}") from error
    require(isinstance(head, dict), "its head is no object")
    return data[1], Fields(head), parts[1:]


def require(condition: bool, what: str) -> None:
    if not condition:
        raise MessageError(f"a message of a gateway or its host is not in order: {what}")


class Fields:
    """The members of a message's head: each is taken once, and none may be left."""

    def __init__(self, head: dict[str, Any]) -> None:
        self._head = head

    def take(self, name: str) -> Any:
        """A member, whatever it is."""
        require(name in self._head, f"it lacks {name!r}")
        return self._head.pop(name)

    def integer(self, name: str, low: int, high: int) -> int:
        """A whole number within bounds."""
        return integer_of(self.take(name), name, low, high)

    def maybe(self, name: str, low: int, high: int) -> int | None:
        """The same, or null."""
        value = self.take(name)
        return None if value is None else integer_of(value, name, low, high)

    def number(self, name: str, low: float, high: float) -> float:
        """A number within bounds."""
        value = self.take(name)
        in_order = type(value) in (int, float) and low <= value <= high  # NaN is in no bounds
        require(in_order, f"{name!r} is not {low:g} to {high:g}")
        return float(value)

    def flag(self, name: str) -> bool:
        """True or false."""
        value = self.take(name)
        require(type(value) is bool, f"{name!r} is neither true nor false")
        return bool(value)

    def text(self, name: str, most: int = MOST_TEXT) -> str:
        """Text of bounded length."""
        value = self.take(name)
        require(
            isinstance(value, str) and len(value) <= most, f"{name!r} is no text of at most {most} characters"
        )
        return str(value)

    def numbers(self, name: str, most: int, high: int) -> list[int]:
        """A list of at most so many whole numbers from 0 to `high`."""
        value = self.take(name)
        require(isinstance(value, list) and len(value) <= most, f"{name!r} is no list of at most {most}")
        return [integer_of(one, name, 0, high) for one in value]

    def rows(self, name: str, most: int, width: int, high: int) -> list[tuple[int, ...]]:
        """A list of at most so many lists of `width` whole numbers from 0 to `high`."""
        value = self.take(name)
        require(isinstance(value, list) and len(value) <= most, f"{name!r} is no list of at most {most}")
        for row in value:
            require(isinstance(row, list) and len(row) == width, f"{name!r} has a row of another width")
        return [tuple(integer_of(one, name, 0, high) for one in row) for row in value]

    def end(self) -> None:
        """There must be nothing else."""
        require(not self._head, f"it has {next(iter(self._head), '')!r} too much")


def integer_of(value: Any, name: str, low: int, high: int) -> int:
    require(type(value) is int and low <= value <= high, f"{name!r} is not {low} to {high}")
    return int(value)
