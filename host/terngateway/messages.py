"""The messages between a host and its gateways, as bytes (shared_specs/gateways.md).

Reading is strict, since anybody may be the sender: an extra member, a missing one, a number out of
bounds or devices out of order is a MessageError, and nothing is inflated beyond its upper bound.
"""

import hashlib
import json
import math
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tern import card as cards
from tern import frames, ledger, wire
from terngateway.post import MOST_TEXT
from ternhost.count.members import Integers, id_bytes, pack_ids, unpack_ids
from ternhost.count.questions import Averaged, decode_body
from ternhost.count.rounds import COMPLETE, DEADLINE, QUORUM, StoredCohort

PROTOCOL = 3
_WRONG = "a message of a gateway or its host is wrong, or of another version of tern"
MOST_DEVICES = 1 << 24  # of a gateway
MOST_COHORTS = 4000
MOST_REASONS = 64  # different refusals in one answer
MOST_BUDGETS = 64  # different budgets in one HERE
MOST_UNIT = 0xFFFF  # records
MOST_TOLD = 10**15  # micro-epsilon; more is told as this
LONGEST_HOLD = 60.0  # seconds for which a gateway keeps an ASK until it has an answer
NO_ROUND = 0  # the number of a refusal that is about no round
LENGTH = struct.Struct("<I")  # before each part of a message

BudgetRow = tuple[int, int | None, int, int, int]
"""A budget that boards report, and how many devices have it: (measure, unit, left, spent, devices).

left, spent: in millionths.
"""

HELLO, ASK, MODEL, HERE, STILL, ANSWER, REFUSED, TAKEN, DEAL, DEALT = range(1, 11)
# The host sends HELLO, ASK, MODEL and DEAL.

_MOST_PARTS = 1 << 13
_MOST_JSON = 1 << 20


class MessageError(ValueError):
    """These bytes are not a message, or one of another version."""


# Messages of the host


@dataclass(frozen=True)
class Hello:
    """Ask a gateway who it is."""

    def encode(self) -> bytes:
        return _pack(HELLO, {})


@dataclass(frozen=True)
class Ask:
    """A round for one gateway.

    Two that differ only in quorum, deadline, hold and bound ask the same question.
    """

    number: int
    cohorts: Sequence[StoredCohort]  # with ascending ids
    individual: bool = False  # single results are wanted, or the supports of hashed answers
    # For each cohort of hashed answers the number of categories, 0 for others; or empty.
    categories: Sequence[int] = ()
    quorum: float = 1.0  # share of the reports that ends it
    deadline: float | None = None  # seconds
    hold: float = 0.0  # seconds until the gateway reports its progress
    toward_server: Sequence[float] | None = None  # the run's bound: `Bound.fields`

    @property
    def asked(self) -> int:
        """The number of devices."""
        return sum(len(cohort.devices) for cohort in self.cohorts)

    @property
    def digest(self) -> bytes:
        """SHA-256 of the question and its devices, which identifies its answer.

        Each part is preceded by its length, so that no two questions have the same bytes.
        """
        digest = hashlib.sha256(b"tern question")
        digest.update(struct.pack("<IB", self.number, self.individual))
        digest.update(struct.pack("<II", len(self.cohorts), len(self.categories)))
        digest.update(struct.pack(f"<{len(self.categories)}I", *self.categories))
        for cohort in self.cohorts:
            ids = id_bytes(np.asarray(cohort.devices, np.int64)).tobytes()
            digest.update(LENGTH.pack(len(cohort.body)) + cohort.body)
            digest.update(LENGTH.pack(len(cohort.devices)) + ids)
        return digest.digest()

    def encode(self) -> bytes:
        """Return the bytes of the message, with two blobs for each cohort."""
        blobs = []
        for cohort in self.cohorts:
            blobs += [cohort.body, pack_ids(cohort.devices)]
        head = {name: value for name, value in vars(self).items() if name != "cohorts"}
        head["categories"] = [int(count) for count in self.categories]
        return _pack(ASK, head, blobs)


@dataclass(frozen=True)
class Model:
    """The model of a run, for devices."""

    averaged: Averaged

    def encode(self) -> bytes:
        parameters = [int(value) for value in self.averaged.parameters]
        return _pack(MODEL, {**vars(self.averaged), "parameters": parameters})


@dataclass(frozen=True)
class Deal:
    """Ask for groups of devices that the gateway draws with its own randomness.

    It deals each pool into so many nearly equal parts, and gives one that no other round has got.
    """

    number: int  # of the round
    parts: Sequence[int]  # of each pool
    pools: Sequence[Integers]  # with ascending ids

    def encode(self) -> bytes:
        head = {"number": self.number, "parts": list(self.parts)}
        return _pack(DEAL, head, [pack_ids(pool) for pool in self.pools])


# Messages of a gateway


@dataclass(frozen=True)
class Here:
    """A gateway's state."""

    devices: Integers  # ascending
    last: int  # the last round number that it has used
    fleet: str
    version: str
    boards: int | None = None
    budgets: Sequence[BudgetRow] = ()  # what boards say of the budgets of their devices
    single_results: bool = False
    toward_server: Sequence[float] | None = None  # the site's bound, as in Ask
    told: int = 0  # micro-epsilon, at its delta or 1e-6: what its counts have told of a device
    registered: int = 0  # devices of the site, if more than those that can be asked now

    def encode(self) -> bytes:
        head = {name: value for name, value in vars(self).items() if name != "devices"}
        head["budgets"] = [list(row) for row in self.budgets]
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
    """A gateway's result of a round, with cohorts in the order of the question."""

    number: int
    digest: bytes  # of the question
    ended: str
    reports: Sequence[int]  # by cohort
    refusals: Sequence[tuple[int, ...]]  # (code, detail, devices)
    # By cohort, d x symbols int64, little-endian, deflated.
    counts: Sequence[bytes] = field(repr=False)
    # Packed like counts: the wanted single results, or the number that supports each hashed
    # category; or empty.
    results: Sequence[bytes] = field(default=(), repr=False)

    def encode(self) -> bytes:
        """Return the bytes of the message; its blobs are the counts, then the results."""
        head = {
            "number": self.number,
            "digest": self.digest.hex(),
            "ended": self.ended,
            "reports": list(self.reports),
            "refusals": [list(row) for row in self.refusals],
        }
        return _pack(ANSWER, head, [*self.counts, *self.results])


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
class Dealt:
    """The groups that a gateway has drawn for a round, one of each pool."""

    number: int
    draws: Sequence[int]  # which draw each is
    dealt: Sequence[int]  # how many devices were dealt
    groups: Sequence[Integers]  # with ascending ids

    def encode(self) -> bytes:
        head = {"number": self.number, "draws": list(self.draws), "dealt": list(self.dealt)}
        return _pack(DEALT, head, [pack_ids(group) for group in self.groups])


@dataclass(frozen=True)
class Taken:
    """A gateway has accepted the model."""

    def encode(self) -> bytes:
        return _pack(TAKEN, {})


def _pack(kind: int, head: Mapping[str, Any], blobs: Sequence[bytes] = ()) -> bytes:
    """Return the bytes of a message: protocol, kind, and its parts, each after its length.

    The first part is the head, as JSON; the blobs are the others.
    """
    message = bytearray((PROTOCOL, kind))
    encoded = json.dumps(head, sort_keys=True, separators=(",", ":")).encode()
    for part in (encoded, *blobs):
        message += LENGTH.pack(len(part)) + part
    return bytes(message)


# Reading

Message = Hello | Ask | Model | Deal | Here | Still | Answer | Refused | Dealt | Taken


def kind_of(data: bytes) -> int:
    """Return the kind of a message, such as ASK, from its first two bytes. Raises MessageError."""
    _require(len(data) >= 2, "it is too short")
    _require(data[0] == PROTOCOL, f"it is of protocol {data[0]}, not {PROTOCOL}")
    return data[1]


def decode(data: bytes) -> Message:
    """Return the message in these bytes. Raises MessageError.

    The head must have exactly the members of its kind, each of which must pass its check.
    """
    kind = kind_of(data)
    head, blobs = _parts(bytes(data))
    _require(kind in _HEADS, f"unknown kind {kind}")
    checks = _HEADS[kind]
    members = ", ".join(checks) or "no members"
    _require(head.keys() == checks.keys(), f"its head must have {members}")
    for name, is_valid in checks.items():
        _require(is_valid(head[name]), f"{name!r} is not as it must be")
    _require(not blobs or kind in (ASK, HERE, ANSWER, DEAL, DEALT), "it has more than a head")
    return _READ[kind](head, blobs)


def decode_ask(data: bytes) -> Ask:
    """Return the question in these bytes. Raises MessageError, also for another kind of message."""
    message = decode(data)
    if not isinstance(message, Ask):
        raise MessageError("this is not a question to a gateway")
    return message


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise MessageError(f"{_WRONG}: {what}")


def _parts(data: bytes) -> tuple[dict[str, Any], list[bytes]]:
    """Return the head of a message, and its other parts. Raises MessageError."""
    parts: list[bytes] = []
    position = 2  # behind protocol and kind
    while position < len(data):
        may_be_part = len(data) - position >= LENGTH.size and len(parts) <= _MOST_PARTS
        _require(may_be_part, "it does not end with a part")
        (length,) = LENGTH.unpack_from(data, position)
        position += LENGTH.size
        _require(length <= len(data) - position, "it is cut off")
        parts.append(data[position : position + length])
        position += length
    _require(len(parts) >= 1 and len(parts[0]) <= _MOST_JSON, "it has no head")
    try:
        head = json.loads(parts[0])
    except (ValueError, RecursionError) as error:
        raise MessageError(f"its head is not JSON: {error}") from error
    _require(isinstance(head, dict), "its head is not an object")
    return head, parts[1:]


# Checks of the members of a head

Check = Callable[[Any], bool]


def _whole(low: int, high: int) -> Check:
    return lambda value: type(value) is int and low <= value <= high


def _number(low: float, high: float) -> Check:
    # NaN is in no bounds.
    return lambda value: type(value) in (int, float) and low <= value <= high


def _flag(value: Any) -> bool:
    return type(value) is bool


def _text(most: int = MOST_TEXT) -> Check:
    return lambda value: isinstance(value, str) and len(value) <= most


def _list(is_valid: Check, least: int, most: int) -> Check:
    """Return a check for lists of `least` to `most` members, each of which is valid."""

    def is_list(value: Any) -> bool:
        if not isinstance(value, list) or not least <= len(value) <= most:
            return False
        return all(is_valid(member) for member in value)

    return is_list


def _row(*checks: Check) -> Check:
    """Return a check for lists with one member for each of these checks, in their order."""

    def is_row(value: Any) -> bool:
        if not isinstance(value, list) or len(value) != len(checks):
            return False
        return all(is_valid(member) for is_valid, member in zip(checks, value, strict=True))

    return is_row


def _or_none(is_valid: Check) -> Check:
    return lambda value: value is None or is_valid(value)


def _digest(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None


_is_budget = _row(
    _whole(ledger.EPSILON, ledger.RHO),
    _or_none(_whole(0, MOST_UNIT)),
    _whole(0, ledger.MAX_BUDGET),
    _whole(0, ledger.MAX_BUDGET),
    _whole(1, MOST_DEVICES),
)
_is_bound = _row(
    _whole(1, ledger.MAX_BUDGET),
    _number(1e-300, math.nextafter(1, 0)),
    _number(1e-9, 1),
)
_ROUND, _COUNT = _whole(1, wire.MAX_ROUND), _whole(0, MOST_DEVICES)
_HEADS: dict[int, dict[str, Check]] = {
    HELLO: {},
    ASK: {
        "number": _ROUND,
        "individual": _flag,
        "categories": _list(_whole(0, wire.MAX_BASE), 0, MOST_COHORTS),
        "quorum": _number(0, 1),
        "deadline": _or_none(_number(0, 1e9)),
        "hold": _number(0, LONGEST_HOLD),
        "toward_server": _or_none(_is_bound),
    },
    MODEL: {
        "model": _whole(0, 255),
        "parameters": _list(_whole(-32768, 32767), 1, wire.MAX_VALUES),
        "exponent": _whole(-127, 127),
        "classes": _whole(1, 255),
    },
    DEAL: {"number": _ROUND, "parts": _list(_whole(1, MOST_DEVICES), 1, MOST_COHORTS)},
    HERE: {
        "last": _whole(0, wire.MAX_ROUND),
        "registered": _COUNT,
        "fleet": _text(100),
        "version": _text(100),
        "boards": _or_none(_COUNT),
        "budgets": _list(_is_budget, 0, MOST_BUDGETS),
        "single_results": _flag,
        "toward_server": _or_none(_is_bound),
        "told": _whole(0, MOST_TOLD),
    },
    STILL: {"number": _ROUND, "reports": _COUNT},
    ANSWER: {
        "number": _ROUND,
        "digest": _digest,
        "ended": lambda value: value in (COMPLETE, QUORUM, DEADLINE),
        "reports": _list(_COUNT, 1, MOST_COHORTS),
        "refusals": _list(_list(_whole(0, 0xFFFFFFFF), 3, 3), 0, MOST_REASONS),
    },
    REFUSED: {"number": _whole(0, wire.MAX_ROUND), "message": _text(), "hint": _text()},
    DEALT: {
        "number": _ROUND,
        "draws": _list(_whole(1, 2**53), 1, MOST_COHORTS),
        "dealt": _list(_COUNT, 1, MOST_COHORTS),
    },
    TAKEN: {},
}


def _devices(blob: bytes, most: int = MOST_DEVICES) -> Integers:
    """Return the ascending ids of a packed set of at most `most` devices. Raises MessageError."""
    try:
        ids = np.asarray(unpack_ids(blob, most), np.int64)
    except ValueError as error:
        raise MessageError(f"{_WRONG}: {error}") from error
    ids_are_possible = len(ids) == 0 or (ids[0] >= 1 and ids[-1] < wire.FLEET)
    _require(ids_are_possible, "an id cannot be a device's")
    _require(bool(np.all(ids[1:] > ids[:-1])), "devices are out of order")
    return ids


def _ask(head: dict[str, Any], blobs: Sequence[bytes]) -> Ask:
    """Read an ASK, which has two blobs for each cohort: its question, and its devices.

    Raises MessageError if a device is asked twice, or a question does not fit a frame.
    """
    has_cohorts = 2 <= len(blobs) <= 2 * MOST_COHORTS and len(blobs) % 2 == 0
    _require(has_cohorts, "it has no cohorts")
    cohorts: list[StoredCohort] = []
    left = MOST_DEVICES  # how many the remaining cohorts may have together
    for body, packed in zip(blobs[::2], blobs[1::2], strict=True):
        try:
            question = decode_body(body)
            cards.decode(bytes(question.card))
            _require(question.round == head["number"], "a cohort is of another round")
        except (frames.FrameError, cards.CardError) as error:
            raise MessageError(f"a host asks what no frame can carry: {error}") from error
        devices = _devices(packed, left)
        _require(len(devices) > 0, "a cohort has no devices")
        left -= len(devices)
        cohorts.append(StoredCohort(body, devices))
    all_devices = np.concatenate([cohort.devices for cohort in cohorts])
    _require(len(np.unique(all_devices)) == len(all_devices), "a device is asked twice")
    has_categories = len(head["categories"]) in (0, len(cohorts))
    _require(has_categories, "it lacks the number of categories of a cohort")
    return Ask(cohorts=cohorts, **head)


def _model(head: dict[str, Any], _blobs: Sequence[bytes]) -> Model:
    """Read a MODEL, which must fit the frame to a device. Raises MessageError."""
    averaged = Averaged(**head)
    try:
        averaged.frame(1, bytes(wire.KEY_BYTES))
    except (ValueError, struct.error, OverflowError) as error:
        raise MessageError(f"a host sends a model that no frame can carry: {error}") from error
    return Model(averaged)


def _deal(head: dict[str, Any], blobs: Sequence[bytes]) -> Deal:
    """Read a DEAL, which has one blob for each pool. Raises MessageError."""
    pools = _sets(blobs, len(head["parts"]))
    return Deal(head["number"], head["parts"], pools)


def _dealt(head: dict[str, Any], blobs: Sequence[bytes]) -> Dealt:
    """Read a DEALT, which has one blob for each group. Raises MessageError."""
    groups = len(head["draws"])
    _require(groups == len(head["dealt"]), "it lacks a number of a group")
    return Dealt(head["number"], head["draws"], head["dealt"], _sets(blobs, groups))


def _sets(blobs: Sequence[bytes], count: int) -> list[Integers]:
    """Return `count` sets of devices, each packed in one blob. Raises MessageError."""
    _require(len(blobs) == count, "it lacks a set of devices")
    sets: list[Integers] = []
    left = MOST_DEVICES  # how many the remaining sets may have together
    for blob in blobs:
        devices = _devices(blob, left)
        sets.append(devices)
        left -= len(devices)
    return sets


def _here(head: dict[str, Any], blobs: Sequence[bytes]) -> Here:
    """Read a HERE, whose only blob has the devices. Raises MessageError."""
    _require(len(blobs) == 1, "it has not one set of devices")
    head["budgets"] = [tuple(row) for row in head["budgets"]]
    return Here(_devices(blobs[0]), **head)


def _answer(head: dict[str, Any], blobs: Sequence[bytes]) -> Answer:
    """Read an ANSWER: a blob of counts for each cohort, then perhaps as many blobs of results.

    Raises MessageError.
    """
    cohorts = len(head["reports"])
    _require(len(blobs) in (cohorts, 2 * cohorts), "it lacks the counts of a cohort")
    counts, results = blobs[:cohorts], blobs[cohorts:]
    _require(not results or any(results), "it has results without any content")
    head["digest"] = bytes.fromhex(head["digest"])
    head["refusals"] = [tuple(row) for row in head["refusals"]]
    return Answer(counts=counts, results=results, **head)


_READ: dict[int, Callable[[dict[str, Any], Sequence[bytes]], Message]] = {
    HELLO: lambda head, blobs: Hello(),
    ASK: _ask,
    MODEL: _model,
    HERE: _here,
    STILL: lambda head, blobs: Still(**head),
    ANSWER: _answer,
    REFUSED: lambda head, blobs: Refused(**head),
    DEAL: _deal,
    DEALT: _dealt,
    TAKEN: lambda head, blobs: Taken(),
}
