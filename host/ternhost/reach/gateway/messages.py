"""The messages between a host and its gateways, as bytes (shared_specs/gateways.md).

A message is its protocol and its kind, a byte each; then parts, each after its length (u32, little-endian), the first
an object of JSON. Anybody may have sent it, so it is read strictly: an extra field, a missing one, a number out of
bounds or devices out of order is a MessageError, and nothing is inflated beyond its upper bound.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tern import card as cards
from tern import frames, ledger, wire
from ternhost.count.members import Integers, id_bytes, pack_ids, unpack_ids
from ternhost.count.questions import Averaged, decode_body
from ternhost.count.rounds import COMPLETE, DEADLINE, QUORUM, Cohort
from ternhost.reach.gateway.post import MOST_TEXT

PROTOCOL = 1
MOST_DEVICES = 1 << 24  # of a gateway
MOST_COHORTS = 4000
MOST_REASONS = 64  # different refusals in one answer
LONGEST_HOLD = 60.0  # seconds for which a gateway keeps an ASK until it has an answer
LENGTH = struct.Struct("<I")

HELLO, ASK, MODEL, HERE, STILL, ANSWER, REFUSED, TAKEN = range(1, 9)  # the first three are the host's

_MOST_PARTS = 1 << 13
_MOST_JSON = 1 << 20


class MessageError(ValueError):
    """These bytes are no such message, or of another version."""


# Messages of the host


@dataclass(frozen=True)
class Hello:
    """Ask a gateway who it is."""

    def encode(self) -> bytes:
        return _pack(HELLO, {})


@dataclass(frozen=True)
class Ask:
    """A round, for the devices of one gateway: ascending ids in each cohort.

    individual: single results are wanted, too; of a cohort of hashed answers, only how many speak for each of its
    `categories` (a number a cohort, 0 for others; or none). quorum: share of the reports that ends it; deadline: s.
    hold: s for which the gateway may keep the question before it reports its progress. Two messages that differ only
    in the last three ask the same question.
    """

    number: int
    cohorts: Sequence[Cohort]
    individual: bool = False
    categories: Sequence[int] = ()
    quorum: float = 1.0
    deadline: float | None = None
    hold: float = 0.0

    @property
    def asked(self) -> int:
        """The number of devices."""
        return sum(len(cohort.devices) for cohort in self.cohorts)

    @property
    def digest(self) -> bytes:
        """SHA-256 of the question and its devices: it tells which answer belongs to it."""
        counts = (len(self.cohorts), len(self.categories))
        head = struct.pack(f"<IB{2 + counts[1]}I", self.number, self.individual, *counts, *self.categories)
        digest = hashlib.sha256(b"tern question" + head)
        for cohort in self.cohorts:
            digest.update(LENGTH.pack(len(cohort.body)) + cohort.body + LENGTH.pack(len(cohort.devices)))
            digest.update(id_bytes(np.asarray(cohort.devices, np.int64)).tobytes())
        return digest.digest()

    def encode(self) -> bytes:
        blobs = [part for cohort in self.cohorts for part in (cohort.body, pack_ids(cohort.devices))]
        head = {name: value for name, value in vars(self).items() if name != "cohorts"}
        return _pack(ASK, {**head, "categories": [int(count) for count in self.categories]}, blobs)


@dataclass(frozen=True)
class Model:
    """The model that a run has learned, for devices."""

    averaged: Averaged

    def encode(self) -> bytes:
        model = self.averaged
        head = {"model": model.model, "exponent": model.exponent, "classes": model.classes}
        return _pack(MODEL, {**head, "parameters": [int(value) for value in model.parameters]})


# Messages of a gateway


@dataclass(frozen=True)
class Here:
    """A gateway's registered devices (ascending ids), the last round number that it has used, and its software.

    budget_left: the smallest budget that a board has reported for its first device, micro-epsilon.
    """

    devices: Integers
    last: int
    fleet: str
    version: str
    boards: int | None = None
    budget_left: int | None = None
    single_results: bool = False

    def encode(self) -> bytes:
        head = {name: value for name, value in vars(self).items() if name != "devices"}
        return _pack(HERE, head, [pack_ids(self.devices)])


@dataclass(frozen=True)
class Still:
    """A gateway's progress: reports so far."""

    number: int
    reports: int = 0

    def encode(self) -> bytes:
        return _pack(STILL, vars(self))


@dataclass(frozen=True)
class Answer:
    """A gateway's result of a round, for the question of that digest; cohorts in the order of the question.

    reports: of each cohort. refusals: (code, detail, devices). counts: of each cohort, d x symbols int64, little-endian
    and deflated. results: of each cohort, packed in the same way, the single results where they were wanted, or, of
    hashed answers, how many speak for each category; or empty.
    """

    number: int
    digest: bytes
    ended: str
    reports: Sequence[int]
    refusals: Sequence[tuple[int, ...]]
    counts: Sequence[bytes] = field(repr=False)
    results: Sequence[bytes] = field(default=(), repr=False)

    def encode(self) -> bytes:
        head = {"number": self.number, "digest": self.digest.hex(), "ended": self.ended}
        lists = {"reports": list(self.reports), "refusals": [list(row) for row in self.refusals]}
        return _pack(ANSWER, {**head, **lists}, [*self.counts, *self.results])


@dataclass(frozen=True)
class Refused:
    """A gateway's reason for not doing what the host asked; number 0: no round."""

    number: int
    message: str
    hint: str = ""

    def encode(self) -> bytes:
        message, hint = self.message[:MOST_TEXT], self.hint[:MOST_TEXT]
        return _pack(REFUSED, {"number": self.number, "message": message, "hint": hint})


@dataclass(frozen=True)
class Taken:
    """A gateway has accepted the model."""

    def encode(self) -> bytes:
        return _pack(TAKEN, {})


def _pack(kind: int, head: Mapping[str, Any], blobs: Sequence[bytes] = ()) -> bytes:
    encoded = json.dumps(head, sort_keys=True, separators=(",", ":")).encode()
    return bytes((PROTOCOL, kind)) + b"".join(LENGTH.pack(len(part)) + part for part in (encoded, *blobs))


# Reading

Message = Hello | Ask | Model | Here | Still | Answer | Refused | Taken


def kind_of(data: bytes) -> int:
    """The kind of a message, by its first two bytes. Raises MessageError."""
    _require(len(data) >= 2, "it is too short")
    _require(data[0] == PROTOCOL, f"it is of protocol {data[0]}, not {PROTOCOL}")
    return data[1]


def decode(data: bytes) -> Message:
    """The message in these bytes. Raises MessageError."""
    kind = kind_of(data)
    head, blobs = _parts(bytes(data))
    _require(kind in _READ, f"there is no kind {kind}")
    _require(not blobs or kind in (ASK, HERE, ANSWER), "it has more than a head")
    fields = _Fields(head)
    message = _READ[kind](fields, blobs)
    fields.end()
    return message


def decode_ask(data: bytes) -> Ask:
    """The question in these bytes. Raises MessageError."""
    message = decode(data)
    if not isinstance(message, Ask):
        raise MessageError("this is no question to a gateway")
    return message


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise MessageError(f"a message of a gateway or its host is not in order: {what}")


def _parts(data: bytes) -> tuple[dict[str, Any], list[bytes]]:
    parts: list[bytes] = []
    at = 2
    while at < len(data):
        _require(len(data) - at >= LENGTH.size and len(parts) <= _MOST_PARTS, "it does not end in order")
        (length,) = LENGTH.unpack_from(data, at)
        at += LENGTH.size
        _require(length <= len(data) - at, "it is cut off")
        parts.append(data[at : at + length])
        at += length
    _require(len(parts) >= 1 and len(parts[0]) <= _MOST_JSON, "it has no head")
    try:
        head = json.loads(parts[0])
    except (ValueError, RecursionError) as error:
        raise MessageError(f"its head is no JSON: {error}") from error
    _require(isinstance(head, dict), "its head is no object")
    return head, parts[1:]


class _Fields:
    """The members of a message's head: each is read once, and none may be left."""

    def __init__(self, head: dict[str, Any]) -> None:
        self._head = head

    def take(self, name: str) -> Any:
        """A member of any type."""
        _require(name in self._head, f"it lacks {name!r}")
        return self._head.pop(name)

    def integer(self, name: str, low: int, high: int) -> int:
        """A whole number within bounds."""
        return _integer(self.take(name), name, low, high)

    def integer_or_none(self, name: str, low: int, high: int) -> int | None:
        value = self.take(name)
        return None if value is None else _integer(value, name, low, high)

    def number(self, name: str, low: float, high: float) -> float:
        """A number within bounds."""
        return _number(self.take(name), name, low, high)

    def number_or_none(self, name: str, low: float, high: float) -> float | None:
        value = self.take(name)
        return None if value is None else _number(value, name, low, high)

    def flag(self, name: str) -> bool:
        value = self.take(name)
        _require(type(value) is bool, f"{name!r} is neither true nor false")
        return bool(value)

    def text(self, name: str, most: int = MOST_TEXT) -> str:
        """Text of bounded length."""
        value = self.take(name)
        in_order = isinstance(value, str) and len(value) <= most
        _require(in_order, f"{name!r} is no text of at most {most} characters")
        return str(value)

    def _list(self, name: str, most: int) -> list[Any]:
        value = self.take(name)
        _require(isinstance(value, list) and len(value) <= most, f"{name!r} is no list of at most {most}")
        return list(value)

    def integers(self, name: str, most: int, low: int, high: int) -> list[int]:
        """A list of at most `most` whole numbers within bounds."""
        return [_integer(value, name, low, high) for value in self._list(name, most)]

    def rows(self, name: str, most: int, width: int, high: int) -> list[tuple[int, ...]]:
        """A list of at most `most` lists of `width` whole numbers from 0 to `high`."""
        rows = self._list(name, most)
        for row in rows:
            _require(isinstance(row, list) and len(row) == width, f"{name!r} has a row of another width")
        return [tuple(_integer(value, name, 0, high) for value in row) for row in rows]

    def end(self) -> None:
        _require(not self._head, f"it has {next(iter(self._head), '')!r} too much")


def _integer(value: Any, name: str, low: int, high: int) -> int:
    _require(type(value) is int and low <= value <= high, f"{name!r} is not {low} to {high}")
    return int(value)


def _number(value: Any, name: str, low: float, high: float) -> float:
    in_order = type(value) in (int, float) and low <= value <= high  # NaN is in no bounds
    _require(in_order, f"{name!r} is not {low:g} to {high:g}")
    return float(value)


def _devices(blob: bytes, most: int = MOST_DEVICES) -> Integers:
    try:
        ids = np.asarray(unpack_ids(blob, most), np.int64)
    except ValueError as error:
        raise MessageError(f"a message of a gateway or its host is not in order: {error}") from error
    _require(len(ids) == 0 or (ids[0] >= 1 and ids[-1] < wire.FLEET), "an id is none of a device")
    _require(bool(np.all(ids[1:] > ids[:-1])), "devices are out of order")
    return ids


def _ask(fields: _Fields, blobs: Sequence[bytes]) -> Ask:
    _require(2 <= len(blobs) <= 2 * MOST_COHORTS and len(blobs) % 2 == 0, "it has no cohorts")
    number = fields.integer("number", 1, wire.MAX_ROUND)
    cohorts: list[Cohort] = []
    left = MOST_DEVICES  # for all cohorts
    for body, packed in zip(blobs[::2], blobs[1::2], strict=True):
        try:
            question = decode_body(body)
            cards.decode(bytes(question.card))
            _require(question.round == number, "a cohort is of another round")
        except (frames.FrameError, cards.CardError) as error:
            raise MessageError(f"a host asks what no frame can carry: {error}") from error
        devices = _devices(packed, left)
        _require(len(devices) > 0, "a cohort has no devices")
        left -= len(devices)
        cohorts.append(Cohort(body, devices))
    all_devices = np.concatenate([cohort.devices for cohort in cohorts])
    _require(len(np.unique(all_devices)) == len(all_devices), "a device is asked twice")
    categories = fields.integers("categories", MOST_COHORTS, 0, wire.MAX_BASE)
    _require(len(categories) in (0, len(cohorts)), "it has not a number of categories a cohort")
    return Ask(
        number,
        cohorts,
        fields.flag("individual"),
        categories,
        fields.number("quorum", 0, 1),
        fields.number_or_none("deadline", 0, 1e9),
        fields.number("hold", 0, LONGEST_HOLD),
    )


def _model(fields: _Fields, blobs: Sequence[bytes]) -> Model:
    parameters = fields.integers("parameters", wire.MAX_VALUES, -32768, 32767)
    _require(len(parameters) >= 1, "it has no parameters")
    exponent, classes = fields.integer("exponent", -127, 127), fields.integer("classes", 1, 255)
    averaged = Averaged(fields.integer("model", 0, 255), parameters, exponent, classes)
    try:
        averaged.frame(1, bytes(wire.KEY_BYTES))
    except (ValueError, struct.error, OverflowError) as error:
        raise MessageError(f"a host sends a model that no frame can carry: {error}") from error
    return Model(averaged)


def _here(fields: _Fields, blobs: Sequence[bytes]) -> Here:
    _require(len(blobs) == 1, "it has not one set of devices")
    return Here(
        _devices(blobs[0]),
        fields.integer("last", 0, wire.MAX_ROUND),
        fields.text("fleet", 100),
        fields.text("version", 100),
        fields.integer_or_none("boards", 0, MOST_DEVICES),
        fields.integer_or_none("budget_left", 0, ledger.MAX_BUDGET),
        fields.flag("single_results"),
    )


def _still(fields: _Fields, blobs: Sequence[bytes]) -> Still:
    return Still(fields.integer("number", 1, wire.MAX_ROUND), fields.integer("reports", 0, MOST_DEVICES))


def _answer(fields: _Fields, blobs: Sequence[bytes]) -> Answer:
    number, digest = fields.integer("number", 1, wire.MAX_ROUND), fields.text("digest", 64)
    _require(len(digest) == 64 and all(one in "0123456789abcdef" for one in digest), "it has no digest")
    ended = fields.text("ended", 20)
    _require(ended in (COMPLETE, QUORUM, DEADLINE), "its round has ended as none does")
    reports = fields.integers("reports", MOST_COHORTS, 0, MOST_DEVICES)
    _require(len(reports) >= 1, "it has no cohorts")
    _require(len(blobs) in (len(reports), 2 * len(reports)), "it has not the counts of each cohort")
    refusals = fields.rows("refusals", MOST_REASONS, 3, 0xFFFFFFFF)
    counts, results = blobs[: len(reports)], blobs[len(reports) :]
    return Answer(number, bytes.fromhex(digest), ended, reports, refusals, counts, results)


def _refused(fields: _Fields, blobs: Sequence[bytes]) -> Refused:
    return Refused(fields.integer("number", 0, wire.MAX_ROUND), fields.text("message"), fields.text("hint"))


_READ: dict[int, Callable[[_Fields, Sequence[bytes]], Message]] = {
    HELLO: lambda fields, blobs: Hello(),
    ASK: _ask,
    MODEL: _model,
    HERE: _here,
    STILL: _still,
    ANSWER: _answer,
    REFUSED: _refused,
    TAKEN: lambda fields, blobs: Taken(),
}
