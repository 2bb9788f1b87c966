"""How often each symbol was reported in each round, stored for observers with the questions.

A cohort is a part of the devices of a round, those with the same question. The question contains a
card, the certified table from which a device samples a symbol for each coordinate that it reports.
"""

import zlib
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from tern import card as cards
from ternhost.count.questions import decode_body
from ternhost.count.rounds import Counts, Tally
from ternhost.store.database import Database


def pack_counts(counts: Counts) -> bytes:
    """Return counts as the store holds them: compressed int64 numbers, little-endian."""
    numbers = np.ascontiguousarray(counts, "<i8").tobytes()
    return zlib.compress(numbers, level=1)  # the fastest level


def unpack_counts(packed: bytes, body: bytes) -> tuple[Counts, Counts | None]:
    """Return the counts of a cohort (a row for each coordinate), and the sums of its vectors.

    Only reports on a random projection also have vectors; otherwise the second result is None.
    packed: from `pack_counts`. body: the question of the cohort, as in a ROUND frame.
    """
    question = decode_body(body)
    card = cards.decode(bytes(question.card))
    numbers = np.frombuffer(zlib.decompress(packed), "<i8").astype(np.int64)
    if card.shape == cards.PROJECTION:
        counts = numbers[: card.symbols].reshape(1, card.symbols)
        sums_of_vectors = numbers[card.symbols :]
        return counts, sums_of_vectors
    return numbers.reshape(-1, card.symbols), None


def _pack_tally(tally: Tally) -> bytes:
    """Return the counts of a cohort as `unpack_counts` reads them.

    If the reports are of a random projection, the sums of their vectors follow the counts.
    """
    if tally.vectors is None:
        return pack_counts(tally.counts)
    counts_of_directions = tally.counts[0]  # a projection has only one row of counts
    return pack_counts(np.concatenate([counts_of_directions, tally.vectors]))


class TallyTable(Database):
    """The table tally."""

    def _add_tallies(self, number: int, tallies: Sequence[Tally]) -> None:
        """Store the counts of each cohort of a round that ends. number: of the round."""
        statement = "INSERT OR REPLACE INTO tally VALUES (?, ?, ?, ?, ?, ?)"
        for position, tally in enumerate(tallies):
            packed_counts = _pack_tally(tally)
            row = (number, position, tally.body, tally.asked, tally.reports, packed_counts)
            self._db.execute(statement, row)

    def counted_reports(self) -> dict[int, list[int]]:
        """Return how many reports of each cohort were counted, by the number of the ended round."""
        statement = "SELECT round, reports FROM tally ORDER BY round, position"
        counts_by_round: defaultdict[int, list[int]] = defaultdict(list)
        for number, reports in self.rows(statement):
            counts_by_round[number].append(reports)
        return dict(counts_by_round)

    def tallies(self, number: int) -> list[Tally]:
        """Return the question and the counts of each cohort of the round with this number."""
        statement = (
            "SELECT body, asked, reports, counts FROM tally WHERE round = ? ORDER BY position"
        )
        tallies = []
        for body, asked, reports, packed in self.rows(statement, number):
            counts, vectors = unpack_counts(packed, body)
            tallies.append(Tally(body, asked, reports, counts, vectors))
        return tallies
