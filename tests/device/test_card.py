"""Cards: which decode, which are certified, for which epsilon, and in which time."""

import gc
import sys
import time

from checks import raises
from vectors import cases

from tern.card import HIERARCHY, PROJECTION, TABLE, CardError, card_hash, certify, decode


def test_shared_vectors_of_cards():
    # A card is the table a device draws its noise from. cards.json, which other implementations
    # share, says of many byte strings whether they decode as a card, and of a card whether it keeps
    # the privacy it states ("certified"), its hash and its number of symbols.
    for case in cases("cards.json"):
        data = bytes.fromhex(case["card"])
        try:
            card = decode(data)
        except CardError:
            card = None
        assert (card is not None) == case["decodes"], case["comment"]
        if card:
            assert certify(card) == case["certified"], case["comment"]
            assert card_hash(data).hex() == case["hash"], case["comment"]
            assert card.symbols == case["symbols"], case["comment"]
            assert TABLE <= card.shape <= PROJECTION  # the first and the last kind of card


def test_vectors_are_certified_down_to_their_smallest_epsilon():
    for case in cases("cards.json"):
        if case["certified"]:
            card = decode(bytes.fromhex(case["card"]))
            assert not case["too_small"] or not certify(card, case["too_small"]), case["comment"]
            assert certify(card, case["too_small"] + 1), case["comment"]


def test_truncated_cards_are_refused():
    for case in cases("cards.json"):
        if case["decodes"]:
            data = bytes.fromhex(case["card"])
            for end in list(range(0, len(data), 1 + len(data) // 100)) + [len(data) - 1]:
                raises(CardError, decode, data[:end])


def test_decoding_and_certifying_take_at_most_half_of_the_time_that_a_slot_allows_for_them():
    # A card is the table a device draws its noise from; the device certifies it, which means that
    # it computes its privacy loss itself. client.work_ms reserves time for that in a slot; on a
    # Pico, half of that must suffice.
    if sys.platform != "rp2":
        return  # client.work_ms is of a Pico
    gc.threshold(-1)  # as a Client does
    for case in cases("cards.json"):
        if case["decodes"]:
            data = bytes.fromhex(case["card"])
            decode(data)  # loads the module of its shape, for which a slot has time of its own
            start = time.ticks_us()
            card = decode(data)
            certify(card)
            taken = time.ticks_diff(time.ticks_us(), start)
            most = 80 + (len(data) >> (3 if card.shape == HIERARCHY else 6))  # ms
            assert 2 * taken <= 1000 * most, (case["comment"], taken)
