"""The runs of a store: their options, status, state and history. Also single values by name."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ternhost.count.members import Integers
from ternhost.count.rounds import Tally
from ternhost.store import store_file
from ternhost.store.database import Database

# The status of a run.
PREPARING = "preparing"  # its boards are being made; no device was asked yet
RUNNING = "running"
STOPPED = "stopped"  # only shown, never stored: running, but no process has its store open
FINISHED = "finished"
ABANDONED = "abandoned"  # replaced by another one; its open rounds end with this word, too
UNFINISHED = (PREPARING, RUNNING, STOPPED)


def status_now(status: str, store: Path) -> str:
    """Return the status of a run as it is shown: STOPPED if it is unfinished without a process.

    status: as stored. store: the path of the store with the run.
    """
    if status in UNFINISHED and not store_file.in_use(store):
        return STOPPED
    return status


@dataclass(frozen=True)
class StoredRun:
    """A run as the store has it."""

    name: str
    began: float  # seconds since 1970
    status: str
    asked: Mapping[str, Any]  # its options, as JSON
    state: Mapping[str, Any]  # how far it is, as JSON: what a process needs to resume it

    @property
    def unfinished(self) -> bool:
        return self.status in UNFINISHED


@dataclass(frozen=True)
class EndedRound:
    """What a run keeps of a round that has ended.

    A cohort is a part of the devices of a round, those with the same question.
    """

    number: int
    ended: str  # why it has ended, such as "deadline"
    entry: Mapping[str, Any]  # what the run's history says of it
    weights: bytes | None = None  # the model after it: float64, little-endian
    tallies: Sequence[Tally] = ()  # the question and the counts of each cohort
    began: float | None = None  # seconds since 1970
    # The devices of each cohort, if the round was not stored when it was opened.
    unstored: Sequence[Sequence[int] | Integers] = ()


class RunTable(Database):
    """The tables run, history, model and state."""

    def begin_run(self, run: StoredRun) -> None:
        """Store a new run. Raises StorageError if there is a run of that name."""
        options_text = json.dumps(run.asked)
        state_text = json.dumps(run.state)
        row = (run.name, run.began, run.status, options_text, state_text)
        self.write("INSERT INTO run VALUES (?, ?, ?, ?, ?)", *row)

    def forget_run(self, name: str) -> None:
        """Undo `begin_run` for a run without rounds."""
        self.write("DELETE FROM run WHERE name = ?", name)

    def forget_questions(self, name: str) -> None:
        """Delete the questions of a run that every device has refused, and who was asked them.

        A refusal costs a device nothing, so its ledger must not count these rounds. The numbers of
        the rounds stay used.
        """
        self.write(
            "DELETE FROM cohort WHERE round IN (SELECT number FROM round WHERE run = ?)", name
        )

    def runs(self) -> list[StoredRun]:
        """Return all runs of this store, in the order in which they began."""
        return self._runs("ORDER BY rowid")

    def _runs(self, clause: str, *values: str) -> list[StoredRun]:
        """Return the runs that a clause of SQL selects or orders.

        clause: the end of the statement, such as "WHERE name = ?". values: its parameters.
        """
        runs = []
        statement = f"SELECT name, began, status, asked, state FROM run {clause}"
        for name, began, status, options_text, state_text in self.rows(statement, *values):
            run = StoredRun(
                name=name,
                began=began,
                status=status,
                asked=json.loads(options_text),
                state=json.loads(state_text),
            )
            runs.append(run)
        return runs

    def run(self, name: str) -> StoredRun | None:
        """Return the run of that name, or None if there is none."""
        runs = self._runs("WHERE name = ?", name)
        return runs[0] if runs else None

    def save_run(
        self,
        name: str,
        *,
        status: str | None = None,
        asked: Mapping[str, Any] | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        """Change the status, the options (`asked`) or the state of a run.

        What is None stays as it is.
        """
        new_values = {}  # by column
        if status is not None:
            new_values["status"] = status
        if asked is not None:
            new_values["asked"] = json.dumps(asked)
        if state is not None:
            new_values["state"] = json.dumps(state)
        with self.transaction():
            for column, value in new_values.items():
                self._db.execute(f"UPDATE run SET {column} = ? WHERE name = ?", (value, name))

    def last_entry(self, name: str) -> dict[str, Any] | None:
        """Return what the history of a run says of its last round; None before the first one."""
        statement = "SELECT entry FROM history WHERE run = ? ORDER BY number DESC LIMIT 1"
        text = self.value(statement, name)
        if text is None:
            return None
        entry: dict[str, Any] = json.loads(text)
        return entry

    def history(self, name: str) -> list[dict[str, Any]]:
        """Return the history of a run: an entry for each ended round, the oldest first."""
        rows = self.rows("SELECT entry FROM history WHERE run = ? ORDER BY number", name)
        return [json.loads(entry) for (entry,) in rows]

    def models(self, name: str) -> dict[int, bytes]:
        """Return the weights of the model after each round of a run, by the number of the round.

        They are the bytes of float64 numbers, little-endian. Rounds without a model are left out.
        """
        statement = "SELECT number, weights FROM model WHERE run = ? ORDER BY number"
        return dict(self.rows(statement, name))

    def save_state(self, state: Mapping[str, Any]) -> None:
        """Store values of JSON by name; each replaces the last one of that name."""
        rows = [(name, json.dumps(value)) for name, value in state.items()]
        self.write_rows("INSERT OR REPLACE INTO state VALUES (?, ?)", rows)

    def state(self, name: str) -> Any:
        """Return the value that was last saved by that name, or None if there is none."""
        text = self.value("SELECT value FROM state WHERE name = ?", name)
        if text is None:
            return None
        return json.loads(text)
