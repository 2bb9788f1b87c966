"""Questions and counts of the cohorts of each round, stored for observers; also of simulated
fleets.
"""

import zlib
from collections.abc import Sequence

import numpy as np

from tern import card as cards
from ternhost.count.questions import decode_body
from ternhost.count.rounds import Counts, Tally
from ternhost.store.database import Database


def pack_counts(counts: Counts) -> bytes:
    """Compress counts for the store: int64, little-endian."""
    return zlib.compress(np.ascontiguousarray(counts, "<i8").tobytes(), 1)


def unpack_counts(packed: bytes, body: bytes) -> tuple[Counts, Counts | None]:
    """Read the counts of a cohort, and of projections also the sums of their vectors.

    body: the question of the cohort, as in a ROUND. The counts are coordinates x symbols.
    """
    card = cards.decode(bytes(decode_body(body).card))
    numbers = np.frombuffer(zlib.decompress(packed), "<i8").astype(np.int64)
    if card.shape == cards.PROJECTION:
        return numbers[None, : card.symbols], numbers[card.symbols :]
    return numbers.reshape(-1, card.symbols), None


def _pack_tally(tally: Tally) -> bytes:
    """Compress the counts of a cohort; of projections the sums of vectors follow them."""
    if tally.vectors is None:
        return pack_counts(tally.counts)
    return pack_counts(np.concatenate([tally.counts[0], tally.vectors]))


class TallyTable(Database):
    """The table tally."""

    def _add_tallies(self, number: int, tallies: Sequence[Tally]) -> None:
        """Store the tallies of a round that ends, one for each cohort."""
        statement = "INSERT OR REPLACE INTO tally VALUES (?, ?, ?, ?, ?, ?)"
        for position, tally in enumerate(tallies):
            counts = _pack_tally(tally)
            row = number, position, tally.body, tally.asked, tally.reports, counts
            self._db.execute(statement, row)

    def counted_reports(self) -> dict[int, list[int]]:
        """Return how many reports of each cohort were counted, by the number of the ended round."""
        statement = "SELECT round, reports FROM tally ORDER BY round, position"
        by_round: dict[int, list[int]] = {}
        for number, reports in self.rows(statement):
            by_round.setdefault(number, []).append(reports)
        return by_round

    def tallies(self, number: int) -> list[Tally]:
        """Return the tally of each cohort of an ended round."""
        statement = (
            "SELECT body, asked, reports, counts FROM tally WHERE round = ? ORDER BY position"
        )
        tallies = []
        for body, asked, reports, packed in self.rows(statement, number):
            counts, vectors = unpack_counts(packed, body)
            tallies.append(Tally(body, asked, reports, counts, vectors))
        return tallies
