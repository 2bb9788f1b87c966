"""Collecting what a record holds: some of its features as they are, for means and frequencies (Algorithm 6).

Source: Zhao et al., IEEE IoT J. 8, 2021. Numeric features are Q1.14 values, multiplied by 2**range and clipped; a
category is a number from 0, and whatever it is, it counts as one of those that the card has.
"""

from array import array

from tern.card import CardError
from tern.fixed import saturate
from tern.sampler import sample, sample_categories
from tern.shapes import WINDOW
from tern.wire import CATEGORIES, MAX_DIMENSION


class Answerer:
    """Computes what a client reports to a ROUND that asks for the record's values or categories."""

    def __init__(self, request):
        """request: the frames.Round, whose fields change from round to round."""
        self._request = request
        self.draw = sample_categories if request.model == CATEGORIES else sample
        self._row = array("h", (0 for _ in range(MAX_DIMENSION + 1)))
        self._values = array("h", (0 for _ in range(MAX_DIMENSION)))

    def cost(self, card):
        """Return what a report costs: every feature, the card's epsilon. Raises CardError for one of no categories."""
        if self._request.model == CATEGORIES and (card.shape != WINDOW or card.window != 1):
            raise CardError("categories need a window of 1")
        return self._request.k * card.epsilon

    def values(self, client, records, card):
        """Return the features asked for, of the record whose turn it is."""
        request = self._request
        row = memoryview(self._row)[: request.d + 1]
        records.read(client.start + (request.round - 1) % client.records, row)
        n = 0
        for j in range(request.d):
            if request.asked[j]:
                value = self._row[j]
                if request.model == CATEGORIES:
                    value = max(0, min(value, card.symbols - 1))
                else:
                    value = saturate(value << request.range)
                self._values[n] = value
                n += 1
        return self._values
