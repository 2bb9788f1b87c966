"""Collections: reports some features of a record as they are (shared_specs/arithmetic.md).

The host estimates means and frequencies from them. Source: Zhao et al., IEEE IoT J. 8, 2021,
Algorithm 6. With range 1 a category is hashed: optimised local hashing (Wang et al., USENIX
Security 2017).
"""

import hashlib
from array import array
from struct import pack, unpack_from

from tern.compat import const
from tern.fixed import bin_of, saturate
from tern.frames import FrameError
from tern.sampler import sample, sample_categories
from tern.shapes import WINDOW
from tern.wire import CATEGORIES, ERR_CARD, MAX_DIMENSION

PRIME = const(8191)  # 2**13 - 1: as many categories can be told apart by their hashes


def hash_of(device, round_number):
    """Return a and b of a client's public hash in a round: (a * category + b) % PRIME % buckets.

    Over all clients, such hashes are pairwise independent (Carter and Wegman, J. Comput. Syst. Sci.
    18, 1979). They depend on the device and the round alone, so that the host knows them too.
    """
    a, b = unpack_from("<II", hashlib.sha256(pack("<II", device, round_number)).digest())
    return a % PRIME, b % PRIME


class Answerer:
    """Computes what a client reports to a ROUND that asks for the record's values or categories."""

    def __init__(self, request):
        """request: the frames.Round, whose fields change from round to round."""
        self._request = request
        self.draw = sample_categories if request.model == CATEGORIES else sample
        self._row = array("h", (0 for _ in range(MAX_DIMENSION + 1)))
        self._values = array("h", (0 for _ in range(MAX_DIMENSION)))

    def cost(self, card):
        """Return the price of a report: each of its k features costs the card's epsilon.

        Raises FrameError where the question is about categories, and the card is not.
        """
        if self._request.model == CATEGORIES and (card.shape != WINDOW or card.window != 1):
            raise FrameError(ERR_CARD, "categories need a window of 1")
        return self._request.k * card.epsilon

    def values(self, client, records, card):
        """Return the requested features of the record whose turn it is (array('h')).

        Values are multiplied by 2**range and clipped to Q1.14. Categories are clipped to those of
        the card, or, with range 1, hashed to them. With an exponent, a category is the bin of a
        number.
        """
        request = self._request
        row = memoryview(self._row)[: request.d + 1]
        records.read(client.start + (request.round - 1) % client.records, row)
        hashed = request.model == CATEGORIES and request.range
        if hashed:
            a, b = hash_of(client.device, request.round)
        count = 0
        for j in range(request.d):
            if request.asked[j]:
                value = self._row[j]
                if request.exponent:  # of categories alone: the feature is a number
                    value = bin_of(value, request.exponent)
                if hashed:
                    value = (a * max(0, min(value, PRIME - 1)) + b) % PRIME % card.symbols
                elif request.model == CATEGORIES:
                    value = max(0, min(value, card.symbols - 1))
                else:
                    value = saturate(value << request.range)
                self._values[count] = value
                count += 1
        return self._values
