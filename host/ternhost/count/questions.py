"""The questions to cohorts, and their ROUND frames (wire.md)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tern import card as cards
from tern import frames, host_frames, ledger, wire
from ternhost.errors import UsageError
from ternhost.privacy.composing import ReportKind

_SHAPE_MASK = 15  # of the first byte of a card (cards.md)
_BODY_AT = 5  # a ROUND frame is `type u8 | device u32 | body | tag`


@dataclass(frozen=True)
class Question:
    """The question to a cohort: the fields of a ROUND (wire.md) but for the device and the round."""

    model: int
    # classes x d int16 mantissas of 2**exponent; to collect, d flags of features.
    parameters: Sequence[int]
    exponent: int
    card: bytes
    k: int
    batch: int = 0  # 0: all records
    local: tuple[int, ...] = (0, 0, 0)  # epochs, rate and tau of local training
    classes: int = 1
    range: int = 0  # values are multiplied by 2**range
    categories: int = 0  # that a hashed answer may stand for; no frame holds the number


@dataclass(frozen=True)
class Averaged:
    """A learned model for devices.

    model: 1, 2, 3 or 4 (softmax). parameters: classes x d int16 mantissas of `2**exponent`.
    """

    model: int
    parameters: Sequence[int]
    exponent: int
    classes: int = 1

    @property
    def weights(self) -> npt.NDArray[np.float64]:
        """The weights as numbers, classes x d."""
        return np.array(self.parameters, np.float64) * 2.0**self.exponent

    def frame(self, number: int, key: bytes, device: int = wire.FLEET) -> bytes:
        """Return the MODEL frame (wire.md) that carries the model to devices.

        number: of the round after which it was learned. key: of the fleet, or of the device.
        """
        frame = bytearray(wire.MAX_FRAME)
        fields = self.model, self.parameters, self.exponent, self.classes
        size = host_frames.encode_model(frame, key, device, number, *fields)
        return bytes(frame[:size])


def round_start(device: int) -> bytes:
    """A ROUND frame for a device, up to the body."""
    return bytes([wire.ROUND]) + device.to_bytes(4, "little")


def round_body(number: int, question: Question) -> bytes:
    """Encode the part of a ROUND frame between the device and the tag.

    number: of the round. Raises UsageError if no frame can carry the question.
    """
    frame = bytearray(wire.MAX_FRAME)
    any_key, any_device = bytes(wire.KEY_BYTES), 1  # the body does not depend on them
    try:
        size = host_frames.encode_round(
            frame,
            any_key,
            any_device,
            number,
            question.model,
            question.parameters,
            question.card,
            question.k,
            question.exponent,
            question.range,
            question.classes,
            question.batch,
            question.local,
        )
        if size > wire.MAX_FRAME:
            raise frames.FrameError(wire.ERR_FRAME, "d and the card are too long together")
        cards.decode(question.card)
    except ValueError as error:
        raise UsageError(f"this round cannot be asked: {error}") from error
    return bytes(frame[_BODY_AT : size - wire.TAG_BYTES])


def decode_body(body: bytes) -> frames.Round:
    """The question of a cohort from its stored body."""
    request = frames.Round()
    request.decode(round_start(1) + body + bytes(wire.TAG_BYTES))
    return request


def question_of(request: frames.Round) -> Question:
    """The question of a decoded ROUND."""
    parameters: Sequence[int] = request.parameters
    if request.model in wire.COLLECTIONS:
        parameters = list(request.asked[: request.d])
    return Question(
        model=request.model,
        parameters=parameters,
        exponent=request.exponent,
        card=bytes(request.card),
        k=request.k,
        batch=request.batch,
        local=(request.epochs, request.rate, request.tau),
        classes=request.classes,
        range=request.range,
    )


def values_of(question: Question) -> int:
    """Return how many values a client computes for a question, of which it reports k."""
    if question.model == wire.SOFTMAX:  # the probabilities of the classes, or one label
        return question.k
    if question.model in wire.COLLECTIONS:
        # A value for each attribute, or for each category of it.
        values = int(np.count_nonzero(question.parameters)) * question.classes
    else:
        values = len(question.parameters)
    shape = question.card[0] & _SHAPE_MASK
    if shape == cards.SUM:
        values += 1  # the tally
    return values


def cost_of(request: frames.Round, measure: int = ledger.EPSILON) -> int:
    """The price of a report to a ledger of this measure, in millionths, as `ReportKind.price`."""
    return ReportKind.of_question(request).price(measure)


def report_bytes(symbols: int) -> int:
    """Return the length of a REPORT frame with `symbols` bytes of packed symbols."""
    size: int = frames.end_of(wire.REPORT_FIELDS) + symbols + wire.TAG_BYTES
    return size


def request_bytes(question: Question) -> int:
    """Return the length of the ROUND frame of a question, the same in all rounds."""
    any_round = 1
    return _BODY_AT + len(round_body(any_round, question)) + wire.TAG_BYTES
