"""The questions that rounds ask devices, and their ROUND frames (wire.md)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tern import card as cards
from tern import frames, host_frames, ledger, wire
from ternhost.errors import UsageError
from ternhost.privacy.composing import ReportKind

_SHAPE_MASK = 15  # the low four bits of a card's first byte are its shape (cards.md)
_BODY_AT = 5  # a ROUND frame is `type u8 | device u32 | body | tag`


@dataclass(frozen=True)
class Question:
    """What a round asks a device to compute and report (wire.md, ROUND).

    model: what to compute, as in wire.py: the gradient of a model, or a collection of attributes.
    parameters: of a model, classes x d int16 mantissas of 2**exponent; of a collection, d flags of
    which attributes to report.
    exponent: of a model, that of its mantissas. In a collection of categories it is 0, or 1 to 12 if
    the attributes are numbers: then the category of a number is its bin, one of 2**exponent equal
    bins of [-1, 1].
    card: the certified table from which the device samples its report (cards.md).
    k: how many values a report has.
    batch: how many records to use; 0: all.
    local: epochs, learning rate and clipping bound (tau) of training on the device.
    range: values are multiplied by 2**range before they are clipped to [-1, 1]. In a collection of
    categories, 1 if devices hash them.
    categories: how many categories a hashed answer may stand for. It is not part of the frame: a
    question that was decoded from one has 0.
    """

    model: int
    parameters: Sequence[int]
    exponent: int
    card: bytes
    k: int
    batch: int = 0
    local: tuple[int, ...] = (0, 0, 0)
    classes: int = 1
    range: int = 0
    categories: int = 0


@dataclass(frozen=True)
class Averaged:
    """A model that was learned from the reports of many devices, as devices get it.

    model: its kind, as in wire.py: LINEAR, LOGISTIC, SVM or SOFTMAX. parameters: classes x d int16
    mantissas of 2**exponent, with one class unless it is a softmax model.

    LIMITS is a kind, too. Then the parameters are the values above which the d features of a record
    are unusual (learn/models/limits.py makes them).
    """

    model: int
    parameters: Sequence[int]
    exponent: int
    classes: int = 1

    @property
    def is_limits(self) -> bool:
        """Whether these are limits of features, and not the weights of a model."""
        return self.model == wire.LIMITS

    @property
    def weights(self) -> npt.NDArray[np.float64]:
        """The weights as numbers, classes x d."""
        return np.array(self.parameters, np.float64) * 2.0**self.exponent

    def frame(self, number: int, key: bytes, device: int = wire.FLEET) -> bytes:
        """Return the MODEL frame (wire.md) that carries the model to devices.

        number: of the round after which it was learned. key: under which the frame is
        authenticated. device: the id of the device to which the key belongs; wire.FLEET: it is that
        of all devices.
        """
        frame = bytearray(wire.MAX_FRAME)
        fields = self.model, self.parameters, self.exponent, self.classes
        size = host_frames.encode_model(frame, key, device, number, *fields)
        return bytes(frame[:size])


def round_start(device: int) -> bytes:
    """Return the part of a ROUND frame before its body: the type, and the id of the device."""
    return bytes([wire.ROUND]) + device.to_bytes(4, "little")


def round_body(number: int, question: Question) -> bytes:
    """Encode the part of a ROUND frame between the device and the tag, the same for all devices.

    number: of the round. Raises UsageError if the question does not fit in a frame.
    """
    frame = bytearray(wire.MAX_FRAME)
    any_key = bytes(wire.KEY_BYTES)  # the body depends neither on a key
    any_device = 1  # nor on a device
    try:
        size = host_frames.encode_round(
            frame,
            any_key,
            any_device,
            number,
            model=question.model,
            parameters=question.parameters,
            card=question.card,
            k=question.k,
            exponent=question.exponent,
            range_=question.range,
            classes=question.classes,
            batch=question.batch,
            local=question.local,
        )
        if size > wire.MAX_FRAME:
            raise frames.FrameError(wire.ERR_FRAME, "d and the card are too long together")
        cards.decode(question.card)  # called because it raises an error for an invalid card
    except ValueError as error:
        raise UsageError(f"this round cannot be sent to devices: {error}") from error
    return bytes(frame[_BODY_AT : size - wire.TAG_BYTES])


def decode_body(body: bytes) -> frames.Round:
    """Decode a question from the part of its ROUND frame between the device and the tag."""
    any_device = 1
    no_tag = bytes(wire.TAG_BYTES)  # decoding does not check it
    request = frames.Round()
    request.decode(round_start(any_device) + body + no_tag)
    return request


def question_of(request: frames.Round) -> Question:
    """Return the question in a decoded ROUND frame."""
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
    """Return how many values a client computes for a question. It reports k of them."""
    if question.model == wire.SOFTMAX:  # the probabilities of the classes, or one label
        return question.k
    if question.model in wire.COLLECTIONS:
        # A value for each attribute, or for each category of it.
        values = int(np.count_nonzero(question.parameters)) * question.classes
    else:
        values = len(question.parameters)
    shape = question.card[0] & _SHAPE_MASK
    if shape == cards.SUM:
        values += 1  # how many records were clipped
    return values


def cost_of(request: frames.Round, measure: int = ledger.EPSILON) -> int:
    """Return what a report to this question costs a device, in millionths of the measure.

    measure: what its ledger counts, EPSILON or RHO.
    """
    return ReportKind.of_question(request).price(measure)


def report_bytes(symbols: int) -> int:
    """Return the length of a REPORT frame whose packed symbols have so many bytes."""
    size: int = frames.end_of(wire.REPORT_FIELDS) + symbols + wire.TAG_BYTES
    return size


def request_bytes(question: Question) -> int:
    """Return the length of the ROUND frame of a question, the same in all rounds."""
    any_round = 1
    return _BODY_AT + len(round_body(any_round, question)) + wire.TAG_BYTES
