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
    """Counts in the format of the store."""
    return zlib.compress(np.ascontiguousarray(counts, "<i8").tobytes(), 1)


def unpack_counts(packed: bytes, body: bytes) -> tuple[Counts, Counts | None]:
    """The counts and the vectors of a cohort with this question, as in `CohortCounts`."""
    card = cards.decode(bytes(decode_body(body).card))
    numbers = np.frombuffer(zlib.decompress(packed), "<i8").astype(np.int64)
    if card.shape == cards.PROJECTION:
        return numbers[None, : card.symbols], numbers[card.symbols :]
    return numbers.reshape(-1, card.symbols), None


def _numbers(tally: Tally) -> Counts:
    return (
        tally.counts if tally.vectors is None else np.concatenate([tally.counts[0], tally.vectors])
    )


class TallyTable(Database):
    """The table tally."""

    def _add_tallies(self, number: int, tallies: Sequence[Tally]) -> None:
        rows = (
            (number, position, tally.body, tally.asked, tally.reports, pack_counts(_numbers(tally)))
            for position, tally in enumerate(tallies)
        )
        self._db.executemany("INSERT OR REPLACE INTO tally VALUES (?, ?, ?, ?, ?, ?)", rows)

    def counted_reports(self) -> dict[int, list[int]]:
        """By the number of each ended round of a run, how many reports of each cohort were counted."""
        found: dict[int, list[int]] = {}
        for number, reports in self.rows(
            "SELECT round, reports FROM tally ORDER BY round, position"
        ):
            found.setdefault(number, []).append(reports)
        return found

    def tallies(self, number: int) -> list[Tally]:
        """The cohorts of an ended round of a run."""
        statement = (
            "SELECT body, asked, reports, counts FROM tally WHERE round = ? ORDER BY position"
        )
        return [
            Tally(body, asked, reports, *unpack_counts(packed, body))
            for body, asked, reports, packed in self.rows(statement, number)
        ]
