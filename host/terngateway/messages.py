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
from typing import Any, NamedTuple

import numpy as np

from tern import card as cards
from tern import frames, ledger, wire
from terngateway.post import MOST_TEXT
from ternhost.count.members import Integers, distinct, id_bytes, pack_ids, unpack_ids
from ternhost.count.questions import Averaged, decode_body
from ternhost.count.rounds import COMPLETE, DEADLINE, QUORUM, StoredCohort

PROTOCOL = 3  # the version of these messages
_WRONG = "a message of a gateway or its host is wrong, or of another version of tern"
MOST_DEVICES = 1 << 24  # of a gateway
MOST_COHORTS = 4000  # of a round, each with the devices that get the same question
MOST_REASONS = 64  # different refusals in one answer
MOST_BUDGETS = 64  # different budgets in one HERE
MOST_UNIT = 0xFFFF  # records that a report may protect together
MOST_TOLD = 10**15  # micro-epsilon; a larger privacy loss is reported as this
LONGEST_HOLD = 60.0  # seconds for which a gateway keeps an ASK until it has an answer
NO_ROUND = 0  # the number of a refusal that is about no round
LENGTH = struct.Struct("<I")  # before each part of a message


# The kinds of messages. The host sends HELLO, ASK, MODEL and DEAL; gateways send the others.
HELLO, ASK, MODEL, HERE, STILL, ANSWER, REFUSED, TAKEN, DEAL, DEALT = range(1, 11)

_MOST_PARTS = 1 << 13  # of a message: above two for each cohort, and a head
_MOST_JSON = 1 << 20  # bytes of a head


class MessageError(ValueError):
    """These bytes are not a message, or one of another version."""


class BudgetRow(NamedTuple):
    """A lifetime budget that boards report, and how many devices have it.

    measure: ledger.EPSILON or ledger.RHO. unit: how many records the budget protects together; 0:
    whole devices; None: unknown. left, spent: what is left of the budget and what is spent, in
    millionths.
    """

    measure: int
    unit: int | None
    left: int
    spent: int
    devices: int


# Messages of the host


@dataclass(frozen=True)
class Hello:
    """Ask a gateway about its state."""

    def encode(self) -> bytes:
        return _pack(HELLO, {})


@dataclass(frozen=True)
class Ask:
    """Ask a gateway to collect the reports of a round from its devices.

    Two messages that differ only in quorum, deadline, hold and toward_server ask the same question.

    number: that of the round.
    cohorts: the questions, each with the ids of the devices that get it, ascending.
    individual: whether single results are wanted, or the supports of hashed answers.
    categories: for each cohort, the number of categories that devices answer with a hash of, or 0
    if they do not hash; empty if that is not needed.
    quorum: the share of all reports at which the round ends.
    deadline: the seconds after which the round ends; None if it has none.
    hold: the seconds after which the gateway reports its progress if it has no answer yet.
    toward_server: the bound of the run, as `Bound.fields` has it; None if it has none.
    """

    number: int
    cohorts: Sequence[StoredCohort]
    individual: bool = False
    categories: Sequence[int] = ()
    quorum: float = 1.0
    deadline: float | None = None
    hold: float = 0.0
    toward_server: Sequence[float] | None = None

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
        """Return the bytes of the message; its blobs are the question and devices of each cohort."""
        blobs = []
        for cohort in self.cohorts:
            blobs.append(cohort.body)
            blobs.append(pack_ids(cohort.devices))
        head = dict(vars(self))
        del head["cohorts"]
        head["categories"] = [int(count) for count in self.categories]  # not numbers of NumPy
        return _pack(ASK, head, blobs)


@dataclass(frozen=True)
class Model:
    """Give a gateway the model or the limits of a run, for its devices."""

    averaged: Averaged

    def encode(self) -> bytes:
        head = dict(vars(self.averaged))
        head["parameters"] = [int(value) for value in self.averaged.parameters]
        return _pack(MODEL, head)


@dataclass(frozen=True)
class Deal:
    """Ask for groups of devices that the gateway draws with its own randomness.

    It deals each pool, like cards, into so many nearly equal parts, and gives one of them that no
    other round has got. number: that of the round. parts: into how many parts it deals each pool.
    pools: the ids of the devices in each, ascending.
    """

    number: int
    parts: Sequence[int]
    pools: Sequence[Integers]

    def encode(self) -> bytes:
        head = {"number": self.number, "parts": list(self.parts)}
        return _pack(DEAL, head, [pack_ids(pool) for pool in self.pools])


# Messages of a gateway


@dataclass(frozen=True)
class Here:
    """What a gateway says about itself.

    devices: the ids of the devices that can be asked now, ascending.
    last: the last round number that it has used.
    fleet: the kind of its devices, such as "mqtt".
    version: that of tern.
    boards: the number of its boards; None if it does not know.
    budgets: what boards say of the budgets of their devices.
    single_results: whether it passes on the results of single devices.
    toward_server: the bound of the site, as `Bound.fields` has it; None if it has none.
    told: the largest privacy loss of a device through its counts so far, in micro-epsilon, at the
    delta of its bound, or 1e-6 without one.
    registered: how many devices the site has, if more than those that can be asked now.
    """

    devices: Integers
    last: int
    fleet: str
    version: str
    boards: int | None = None
    budgets: Sequence[BudgetRow] = ()
    single_results: bool = False
    toward_server: Sequence[float] | None = None
    told: int = 0
    registered: int = 0

    def encode(self) -> bytes:
        head = dict(vars(self))
        del head["devices"]
        head["budgets"] = [list(row) for row in self.budgets]
        return _pack(HERE, head, [pack_ids(self.devices)])


@dataclass(frozen=True)
class Still:
    """A gateway's progress in a round: how many reports it has so far.

    number: that of the round.
    """

    number: int
    reports: int = 0

    def encode(self) -> bytes:
        return _pack(STILL, vars(self))


@dataclass(frozen=True)
class Answer:
    """A gateway's result of a round, with cohorts in the order of the question.

    number: that of the round.
    digest: `Ask.digest` of the question.
    ended: how the round has ended: COMPLETE, QUORUM or DEADLINE.
    reports: the number of reports of each cohort.
    refusals: rows (code, detail, devices): why so many devices have refused.
    counts: for each cohort, how often each symbol was reported for each coordinate (d x symbols,
    int64, little-endian, deflated).
    results: for each cohort what it has beside counts, packed like these: the single results that
    were wanted, the number of reports that support each hashed category, or the sum of vectors.
    Empty if no cohort has any.
    """

    number: int
    digest: bytes
    ended: str
    reports: Sequence[int]
    refusals: Sequence[tuple[int, ...]]
    counts: Sequence[bytes] = field(repr=False)
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
    """A gateway's reason for not doing what the host asked.

    number: that of the round; NO_ROUND if the reason is about none. hint: what may help.
    """

    number: int
    message: str
    hint: str = ""

    def encode(self) -> bytes:
        head = {
            "number": self.number,
            "message": self.message[:MOST_TEXT],
            "hint": self.hint[:MOST_TEXT],
        }
        return _pack(REFUSED, head)


@dataclass(frozen=True)
class Dealt:
    """The groups of devices that a gateway has drawn for a round, one of each pool.

    number: that of the round. draws: for each group, the number of its draw, counted over the life
    of the gateway. dealt: how many devices were in each pool. groups: the ids of the devices of
    each, ascending.
    """

    number: int
    draws: Sequence[int]
    dealt: Sequence[int]
    groups: Sequence[Integers]

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

    kind: such as ASK. head: its fields, which become the first part, as JSON. blobs: the other
    parts.
    """
    encoded_head = json.dumps(head, sort_keys=True, separators=(",", ":")).encode()
    message = bytearray((PROTOCOL, kind))
    for part in (encoded_head, *blobs):
        message += LENGTH.pack(len(part))
        message += part
    return bytes(message)


# Reading

Message = Hello | Ask | Model | Deal | Here | Still | Answer | Refused | Dealt | Taken


def kind_of(data: bytes) -> int:
    """Return the kind of a message, such as ASK, from its first two bytes. Raises MessageError."""
    _require(len(data) >= 2, "it is too short")
    _require(data[0] == PROTOCOL, f"it is of protocol {data[0]}, not {PROTOCOL}")
    return data[1]


def decode(data: bytes) -> Message:
    """Return the message in these bytes. Raises MessageError if they are not a valid message.

    A message is a head, which is a JSON object, and perhaps blobs. The head must have exactly the
    members of its kind of message, each of which must pass its check.
    """
    kind = kind_of(data)
    head, blobs = _parts(bytes(data))
    _require(kind in _HEADS, f"unknown kind {kind}")
    checks = _HEADS[kind]
    members = ", ".join(checks) or "no members"
    _require(head.keys() == checks.keys(), f"its head must have {members}")
    for name, is_valid in checks.items():
        _require(is_valid(head[name]), f"{name!r} is not as it must be")
    may_have_blobs = kind in (ASK, HERE, ANSWER, DEAL, DEALT)
    _require(may_have_blobs or not blobs, "it has more than a head")
    read = _READ[kind]
    return read(head, blobs)


def decode_ask(data: bytes) -> Ask:
    """Return the question in these bytes. Raises MessageError, also for another kind of message."""
    message = decode(data)
    if not isinstance(message, Ask):
        raise MessageError("this is not a question to a gateway")
    return message


def _require(condition: bool, what: str) -> None:
    """Raise MessageError unless a condition holds. what: the error, without its beginning."""
    if not condition:
        raise MessageError(f"{_WRONG}: {what}")


def _parts(data: bytes) -> tuple[dict[str, Any], list[bytes]]:
    """Return the head of a message, and its blobs.

    data: the whole message, whose parts begin after two bytes, each of them after its length.
    Raises MessageError if the parts do not fill the message, or the first is not a JSON object.
    """
    parts: list[bytes] = []
    position = 2  # behind protocol and kind
    while position < len(data):
        has_length = len(data) - position >= LENGTH.size
        _require(has_length and len(parts) <= _MOST_PARTS, "it does not end with a part")
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
"""Returns whether a value from JSON is as the member of a head must be."""


def _whole(low: int, high: int) -> Check:
    """Return a check for whole numbers from `low` to `high`."""
    # isinstance would take True and False for numbers, too.
    return lambda value: type(value) is int and low <= value <= high


def _number(low: float, high: float) -> Check:
    """Return a check for numbers from `low` to `high`, whole or not."""
    # NaN, which JSON of Python may have, is in no bounds.
    return lambda value: type(value) in (int, float) and low <= value <= high


def _flag(value: Any) -> bool:
    """Whether a value is True or False."""
    return type(value) is bool


def _text(most: int = MOST_TEXT) -> Check:
    """Return a check for texts of at most so many characters."""
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
    """Return a check for values that are valid, or None."""
    return lambda value: value is None or is_valid(value)


def _digest(value: Any) -> bool:
    """Whether a value is a SHA-256 in hexadecimal digits."""
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None


_is_budget = _row(  # a BudgetRow
    _whole(ledger.EPSILON, ledger.RHO),  # measure
    _or_none(_whole(0, MOST_UNIT)),  # unit
    _whole(0, ledger.MAX_BUDGET),  # left
    _whole(0, ledger.MAX_BUDGET),  # spent
    _whole(1, MOST_DEVICES),  # devices
)
_is_bound = _row(  # Bound.fields
    _whole(1, ledger.MAX_BUDGET),  # epsilon, in millionths
    _number(1e-300, math.nextafter(1, 0)),  # delta: above 0 and below 1
    _number(1e-9, 1),  # honest: a share above 0
)
_ROUND = _whole(1, wire.MAX_ROUND)
_COUNT = _whole(0, MOST_DEVICES)
# For each kind of message, the members of its head, each with its check.
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
    """Unpack the ids of at most `most` devices, which must be ascending. Raises MessageError."""
    try:
        ids = np.asarray(unpack_ids(blob, most), np.int64)
    except ValueError as error:
        raise MessageError(f"{_WRONG}: {error}") from error
    # Since the ids ascend, only the first and the last can be out of range.
    ids_are_possible = len(ids) == 0 or (ids[0] >= 1 and ids[-1] < wire.FLEET)
    _require(ids_are_possible, "an id cannot be a device's")
    _require(bool(np.all(ids[1:] > ids[:-1])), "devices are out of order")
    return ids


def _ask(head: dict[str, Any], blobs: Sequence[bytes]) -> Ask:
    """Read an ASK, which has two blobs for each cohort: its question, and its devices.

    Raises MessageError if a device is asked twice, or a question is not one that devices get.
    """
    has_cohorts = 2 <= len(blobs) <= 2 * MOST_COHORTS and len(blobs) % 2 == 0
    _require(has_cohorts, "it has no cohorts")
    questions, packed_devices = blobs[::2], blobs[1::2]
    cohorts: list[StoredCohort] = []
    most_devices = MOST_DEVICES  # that the remaining cohorts may have together
    for body, packed in zip(questions, packed_devices, strict=True):
        _require_question(body, head["number"])
        devices = _devices(packed, most_devices)
        _require(len(devices) > 0, "a cohort has no devices")
        most_devices -= len(devices)
        cohorts.append(StoredCohort(body, devices))

    all_devices = np.concatenate([cohort.devices for cohort in cohorts])
    _require(len(distinct([all_devices])) == len(all_devices), "a device is asked twice")
    has_categories = len(head["categories"]) in (0, len(cohorts))
    _require(has_categories, "it lacks the number of categories of a cohort")
    return Ask(cohorts=cohorts, **head)


def _require_question(body: bytes, number: int) -> None:
    """Raise MessageError unless `body` is a valid question to devices in the round `number`."""
    try:
        question = decode_body(body)
        cards.decode(bytes(question.card))  # raises CardError for a card that no device accepts
    except (frames.FrameError, cards.CardError) as error:
        raise MessageError(f"a host asks what no frame can carry: {error}") from error
    _require(question.round == number, "a cohort is of another round")


def _model(head: dict[str, Any], _blobs: Sequence[bytes]) -> Model:
    """Read a MODEL, which has no blobs. Raises MessageError if no frame to a device can hold it."""
    averaged = Averaged(**head)
    any_round, any_key = 1, bytes(wire.KEY_BYTES)
    try:
        averaged.frame(any_round, any_key)  # raises if the model does not fit
    except (ValueError, struct.error, OverflowError) as error:
        raise MessageError(f"a host sends a model that no frame can carry: {error}") from error
    return Model(averaged)


def _deal(head: dict[str, Any], blobs: Sequence[bytes]) -> Deal:
    """Read a DEAL, which has one blob for each pool. Raises MessageError."""
    pools = _sets(blobs, len(head["parts"]))
    return Deal(head["number"], head["parts"], pools)


def _dealt(head: dict[str, Any], blobs: Sequence[bytes]) -> Dealt:
    """Read a DEALT, which has one blob for each group. Raises MessageError."""
    draws, pool_sizes = head["draws"], head["dealt"]
    _require(len(draws) == len(pool_sizes), "it lacks a number of a group")
    groups = _sets(blobs, len(draws))
    return Dealt(head["number"], draws, pool_sizes, groups)


def _sets(blobs: Sequence[bytes], count: int) -> list[Integers]:
    """Return `count` sets of devices, each packed in one blob. Raises MessageError."""
    _require(len(blobs) == count, "it lacks a set of devices")
    sets: list[Integers] = []
    most_devices = MOST_DEVICES  # that the remaining sets may have together
    for blob in blobs:
        devices = _devices(blob, most_devices)
        most_devices -= len(devices)
        sets.append(devices)
    return sets


def _here(head: dict[str, Any], blobs: Sequence[bytes]) -> Here:
    """Read a HERE, whose only blob has the devices. Raises MessageError."""
    _require(len(blobs) == 1, "it has not one set of devices")
    budgets = [BudgetRow(*row) for row in head["budgets"]]
    fields = {**head, "budgets": budgets}
    return Here(devices=_devices(blobs[0]), **fields)


def _answer(head: dict[str, Any], blobs: Sequence[bytes]) -> Answer:
    """Read an ANSWER: a blob of counts for each cohort, then perhaps as many blobs of results.

    Raises MessageError if a cohort has no blob.
    """
    cohorts = len(head["reports"])
    _require(len(blobs) in (cohorts, 2 * cohorts), "it lacks the counts of a cohort")
    counts, results = blobs[:cohorts], blobs[cohorts:]
    _require(not results or any(results), "it has results without any content")
    return Answer(
        number=head["number"],
        digest=bytes.fromhex(head["digest"]),
        ended=head["ended"],
        reports=head["reports"],
        refusals=[tuple(row) for row in head["refusals"]],
        counts=counts,
        results=results,
    )


# For each kind of message, the function that reads it from its head and blobs.
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
