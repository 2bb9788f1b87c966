"""The target of the fuzzing for messages between gateways and their host."""

from contextlib import suppress
from dataclasses import replace

import numpy as np

from tern import wire
from terngateway import messages
from terngateway import round as round_
from terngateway.messages import Answer, Ask, MessageError
from ternhost.count.questions import Averaged, Question, round_body
from ternhost.count.rounds import StoredCohort
from ternhost.privacy.mechanisms import design
from ternhost.store.tallies import pack_counts

HERE = 5  # the number of the open round
CARD = design("three-outputs", 1).card
_BODY = round_body(HERE, Question(wire.LOGISTIC, [100] * 3, -14, CARD, 1))
_ASK = Ask(HERE, [StoredCohort(_BODY, np.arange(1, 9))])


def check(data):
    """A message of a gateway or its host is refused or restored by encoding; an accepted answer has
    possible counts.
    """
    try:
        message = messages.decode(data)
    except MessageError:
        return
    again = message.encode()
    assert messages.decode(again).encode() == again
    if isinstance(message, Answer):
        with suppress(MessageError):
            (cohort,) = round_.check_answer(replace(message, number=HERE, digest=_ASK.digest), _ASK)
            assert cohort.counts.shape == (3, 3)
            assert cohort.counts.min() >= 0
            assert cohort.counts.sum() == cohort.reports <= 8


def seeds():
    """One message of each kind."""
    counts = np.zeros((3, 3), np.int64)
    counts[0, 1] = 2
    answer = Answer(HERE, _ASK.digest, "complete", [2], [(6, 1, 1)], [pack_counts(counts)])
    here = messages.Here(np.arange(1, 9), 3, "mqtt", "1", 2, [(0, 5, 1, 8)], True)
    model = messages.Model(Averaged(1, [1, -2], -14))
    still, refused = messages.Still(HERE, 1), messages.Refused(HERE, "no", "why")
    deal = messages.Deal(HERE, [2], [np.arange(1, 9)])
    dealt = messages.Dealt(HERE, [1], [4], [np.arange(1, 5)])
    of_host = (messages.Hello(), _ASK, model, deal)
    kinds = (*of_host, here, still, answer, refused, messages.Taken(), dealt)
    return [message.encode() for message in kinds]
