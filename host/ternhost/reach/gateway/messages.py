"""What a host and its gateways say to each other, as bytes (shared_specs/gateways.md).

What comes from another machine is read strictly: a field too many or too few, a number out of bounds, devices out of
order, all of it is a MessageError; and nothing is inflated beyond what it may be.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from tern import card as cards
from tern import frames, ledger, wire
from ternhost.count.members import Integers, id_bytes, pack_ids, unpack_ids
from ternhost.count.questions import Averaged, decode_body
from ternhost.count.rounds import COMPLETE, DEADLINE, QUORUM, Cohort
from ternhost.reach.gateway.frames import (
    LENGTH,
    PROTOCOL,
    Fields,
    MessageError,
    integer_of,
    pack,
    require,
    unpack,
)
from ternhost.reach.gateway.post import MOST_TEXT

MOST_DEVICES = 1 << 24  # of a gateway
MOST_COHORTS = 4000
MOST_REASONS = 64  # kinds of refusals that are told apart
LONGEST_HOLD = 60.0  # seconds for which a gateway keeps an ASK, in the hope of an answer

HELLO, ASK, MODEL, HERE, STILL, ANSWER, REFUSED, TAKEN = range(1, 9)  # the first three are the host's


def kind_of(data: bytes) -> int:
    """Which message these bytes are, by their first two. Raises MessageError."""
    require(len(data) >= 2 and data[0] == PROTOCOL, "it is of another protocol")
    return data[1]


def _devices(blob: bytes, most: int = MOST_DEVICES) -> Integers:
    try:
        ids = np.asarray(unpack_ids(blob, most), np.int64)
    except ValueError as error:
        raise MessageError(f"a message of a gateway or its host is not in order: {error}") from error
    require(len(ids) == 0 or (ids[0] >= 1 and ids[-1] < wire.FLEET), "an id is none of a device")
    require(bool(np.all(ids[1:] > ids[:-1])), "devices are out of order")
    return ids


# What the host says


@dataclass(frozen=True)
class Hello:
    """Who are you?"""

    def encode(self) -> bytes:
        return pack(HELLO, {})


@dataclass(frozen=True)
class Ask:
    """A round, for the devices of one gateway: ascending ids in each cohort. It says which question has which answer.

    individual: single results are wanted, too; of a cohort of hashed answers, only how many speak for each of its
    `categories` (a number a cohort, 0 for others; or none). quorum: share of the reports that ends it; deadline: s.
    hold: s for which the gateway may keep the question before it says how far it is. The last three make no other
    question.
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
        """How many devices."""
        return sum(len(cohort.devices) for cohort in self.cohorts)

    @property
    def digest(self) -> bytes:
        """SHA-256 of what it asks of whom."""
        counts = (len(self.cohorts), len(self.categories))
        head = struct.pack(f"<IB{2 + counts[1]}I", self.number, self.individual, *counts, *self.categories)
        digest = hashlib.sha256(b"tern question" + head)
        for cohort in self.cohorts:
            digest.update(LENGTH.pack(len(cohort.body)) + cohort.body + LENGTH.pack(len(cohort.devices)))
            digest.update(id_bytes(np.asarray(cohort.devices, np.int64)).tobytes())
        return digest.digest()

    def encode(self) -> bytes:
        blobs = [part for cohort in self.cohorts for part in (cohort.body, pack_ids(cohort.devices))]
        told = {"number": self.number, "individual": self.individual, "quorum": self.quorum}
        more = {"categories": [int(one) for one in self.categories]}
        return pack(ASK, {**told, **more, "deadline": self.deadline, "hold": self.hold}, blobs)


@dataclass(frozen=True)
class Model:
    """What a run has learned, for devices."""

    averaged: Averaged

    def encode(self) -> bytes:
        own = self.averaged
        fields = {"model": own.model, "exponent": own.exponent, "classes": own.classes}
        return pack(MODEL, {**fields, "parameters": [int(one) for one in own.parameters]})


# What a gateway says


@dataclass(frozen=True)
class Here:
    """Who a gateway is: its registered devices (ascending ids), the last number that it has used, what it runs.

    budget_left: the least that a board has said its first device may still spend, micro-epsilon.
    """

    devices: Integers
    last: int
    fleet: str
    version: str
    boards: int | None = None
    budget_left: int | None = None
    single_results: bool = False

    def encode(self) -> bytes:
        told = {"last": self.last, "fleet": self.fleet, "version": self.version, "boards": self.boards}
        more = {"budget_left": self.budget_left, "single_results": self.single_results}
        return pack(HERE, {**told, **more}, [pack_ids(self.devices)])


@dataclass(frozen=True)
class Still:
    """A gateway is at it: reports so far."""

    number: int
    reports: int = 0

    def encode(self) -> bytes:
        return pack(STILL, {"number": self.number, "reports": self.reports})


@dataclass(frozen=True)
class Answer:
    """What a round has told at a gateway, to the question of that digest; cohorts in the order of the question.

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
        told = {"number": self.number, "digest": self.digest.hex(), "ended": self.ended}
        told |= {"reports": list(self.reports), "refusals": [list(row) for row in self.refusals]}
        return pack(ANSWER, told, [*self.counts, *self.results])


@dataclass(frozen=True)
class Refused:
    """A gateway does not do what it was asked, and says why; number 0: no round."""

    number: int
    message: str
    hint: str = ""

    def encode(self) -> bytes:
        message, hint = self.message[:MOST_TEXT], self.hint[:MOST_TEXT]
        return pack(REFUSED, {"number": self.number, "message": message, "hint": hint})


@dataclass(frozen=True)
class Taken:
    """A gateway has taken the model."""

    def encode(self) -> bytes:
        return pack(TAKEN, {})


# Reading them

Message = Hello | Ask | Model | Here | Still | Answer | Refused | Taken


def decode(data: bytes) -> Message:
    """The message that these bytes are. Raises MessageError."""
    kind, fields, blobs = unpack(bytes(data))
    require(kind in _READ, f"there is no kind {kind}")
    message = _READ[kind](fields, blobs)
    fields.end()
    return message


def decode_ask(data: bytes) -> Ask:
    """The question that these bytes are. Raises MessageError."""
    message = decode(data)
    if not isinstance(message, Ask):
        raise MessageError("this is no question to a gateway")
    return message


def _none(blobs: Sequence[bytes]) -> None:
    require(not blobs, "it has more than a head")


def _hello(fields: Fields, blobs: Sequence[bytes]) -> Message:
    _none(blobs)
    return Hello()


def _ask(fields: Fields, blobs: Sequence[bytes]) -> Message:
    require(2 <= len(blobs) <= 2 * MOST_COHORTS and len(blobs) % 2 == 0, "it has no cohorts")
    number = fields.integer("number", 1, wire.MAX_ROUND)
    cohorts: list[Cohort] = []
    left = MOST_DEVICES  # for all cohorts
    for body, packed in zip(blobs[::2], blobs[1::2], strict=True):
        try:
            asked = decode_body(body)
            cards.decode(bytes(asked.card))
            require(asked.round == number, "a cohort is of another round")
        except (frames.FrameError, cards.CardError) as error:
            raise MessageError(f"a host asks what no frame can carry: {error}") from error
        devices = _devices(packed, left)
        require(len(devices) > 0, "a cohort has no devices")
        left -= len(devices)
        cohorts.append(Cohort(body, devices))
    everybody = np.concatenate([cohort.devices for cohort in cohorts])
    require(len(np.unique(everybody)) == len(everybody), "a device is asked twice")
    deadline, categories = fields.take("deadline"), fields.numbers("categories", MOST_COHORTS, wire.MAX_BASE)
    require(len(categories) in (0, len(cohorts)), "it has not a number of categories a cohort")
    return Ask(
        number,
        cohorts,
        fields.flag("individual"),
        categories,
        fields.number("quorum", 0, 1),
        None if deadline is None else Fields({"deadline": deadline}).number("deadline", 0, 1e9),
        fields.number("hold", 0, LONGEST_HOLD),
    )


def _model(fields: Fields, blobs: Sequence[bytes]) -> Message:
    _none(blobs)
    parameters = fields.take("parameters")
    in_order = isinstance(parameters, list) and 1 <= len(parameters) <= wire.MAX_VALUES
    require(in_order, "it has no parameters, or too many")
    averaged = Averaged(
        fields.integer("model", 0, 255),
        [integer_of(one, "parameters", -32768, 32767) for one in parameters],
        fields.integer("exponent", -127, 127),
        fields.integer("classes", 1, 255),
    )
    try:
        averaged.frame(1, bytes(wire.KEY_BYTES))
    except (ValueError, struct.error, OverflowError) as error:
        raise MessageError(f"a host sends a model that no frame can carry: {error}") from error
    return Model(averaged)


def _here(fields: Fields, blobs: Sequence[bytes]) -> Message:
    require(len(blobs) == 1, "it has not one set of devices")
    return Here(
        _devices(blobs[0]),
        fields.integer("last", 0, wire.MAX_ROUND),
        fields.text("fleet", 100),
        fields.text("version", 100),
        fields.maybe("boards", 0, MOST_DEVICES),
        fields.maybe("budget_left", 0, ledger.MAX_BUDGET),
        fields.flag("single_results"),
    )


def _still(fields: Fields, blobs: Sequence[bytes]) -> Message:
    _none(blobs)
    return Still(fields.integer("number", 1, wire.MAX_ROUND), fields.integer("reports", 0, MOST_DEVICES))


def _answer(fields: Fields, blobs: Sequence[bytes]) -> Message:
    number = fields.integer("number", 1, wire.MAX_ROUND)
    digest = fields.text("digest", 64)
    require(len(digest) == 64 and all(one in "0123456789abcdef" for one in digest), "it has no digest")
    ended = fields.text("ended", 20)
    require(ended in (COMPLETE, QUORUM, DEADLINE), "its round has ended as none does")
    reports = fields.numbers("reports", MOST_COHORTS, MOST_DEVICES)
    require(len(reports) >= 1, "it has no cohorts")
    require(len(blobs) in (len(reports), 2 * len(reports)), "it has not the counts of each cohort")
    return Answer(
        number,
        bytes.fromhex(digest),
        ended,
        reports,
        fields.rows("refusals", MOST_REASONS, 3, 0xFFFFFFFF),
        blobs[: len(reports)],
        blobs[len(reports) :],
    )


def _refused(fields: Fields, blobs: Sequence[bytes]) -> Message:
    _none(blobs)
    return Refused(fields.integer("number", 0, wire.MAX_ROUND), fields.text("message"), fields.text("hint"))


def _taken(fields: Fields, blobs: Sequence[bytes]) -> Message:
    _none(blobs)
    return Taken()


_READ: dict[int, Callable[[Fields, Sequence[bytes]], Message]] = {
    HELLO: _hello,
    ASK: _ask,
    MODEL: _model,
    HERE: _here,
    STILL: _still,
    ANSWER: _answer,
    REFUSED: _refused,
    TAKEN: _taken,
}
