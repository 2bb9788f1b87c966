"""What a round asked in protocol 1, told as a question of today's: so that a store knows for life what it has asked."""

from __future__ import annotations

import struct

from tern import wire
from ternhost.count.questions import Question, round_body
from ternhost.errors import UsageError

# round, model, exponent, k, batch, deadline, d; then d parameters, the length of the card, the card, and what local
# training needs besides
_FIELDS = struct.Struct("<IBbHHHH")
_LOCAL = struct.Struct("<BBI")


def translate(body: bytes) -> bytes:
    """A ROUND of protocol 1 between device and tag, as one of today's; what is none stays as it is."""
    try:
        number, model, exponent, k, batch, _, d = _FIELDS.unpack_from(body)
        at = _FIELDS.size
        parameters = struct.unpack_from(f"<{d}h", body, at)
        (length,) = struct.unpack_from("<H", body, at + 2 * d)
        at += 2 * d + 2
        card = body[at : at + length]
        local = _LOCAL.unpack_from(body, at + length) if wire.SOFTMAX < model < wire.VALUES else (0, 0, 0)
        alone = model in (wire.SOFTMAX, wire.VALUES, wire.CATEGORIES)  # of one record
        question = Question(
            model,
            parameters,
            0 if model in (wire.VALUES, wire.CATEGORIES) else exponent,
            card,
            k,
            0 if alone else batch,
            local,
            k if model == wire.SOFTMAX else 1,
        )
        return round_body(number, question)
    except (struct.error, UsageError):
        return body
