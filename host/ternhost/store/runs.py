"""The runs of a store with their options, status and state; and values by name."""

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
STOPPED = "stopped"  # for people: running, but no process has its store open
FINISHED = "finished"
ABANDONED = "abandoned"  # replaced by another one; its open rounds end so, too
UNFINISHED = (PREPARING, RUNNING, STOPPED)


def status_now(status: str, store: Path) -> str:
    """Return the status of a run for people: STOPPED if it is unfinished and its process is gone.

    store: its path.
    """
    if status in UNFINISHED and not store_file.in_use(store):
        return STOPPED
    return status


@dataclass(frozen=True)
class StoredRun:
    """A run with its options (`asked`), status and state."""

    name: str
    began: float  # seconds since 1970
    status: str
    asked: Mapping[str, Any]
    state: Mapping[str, Any]

    @property
    def unfinished(self) -> bool:
        return self.status in UNFINISHED


@dataclass(frozen=True)
class EndedRound:
    """What a run keeps of a round that has ended, in this way (`ended`).

    entry: its row of the run's history. weights: the model after it (float64, little-endian).
    tallies: the question and the counts of each cohort. began: seconds since 1970. unstored: the
    devices of each cohort, if the round was not stored when it was opened.
    """

    number: int
    ended: str
    entry: Mapping[str, Any]
    weights: bytes | None = None
    tallies: Sequence[Tally] = ()
    began: float | None = None
    unstored: Sequence[Sequence[int] | Integers] = ()


class RunTable(Database):
    """The tables run, history, model and state."""

    def begin_run(self, run: StoredRun) -> None:
        """Store a new run. Raises StorageError where the name is taken."""
        row = run.name, run.began, run.status, json.dumps(run.asked), json.dumps(run.state)
        self.write("INSERT INTO run VALUES (?, ?, ?, ?, ?)", *row)

    def forget_run(self, name: str) -> None:
        """Undo `begin_run` for a run without rounds."""
        self.write("DELETE FROM run WHERE name = ?", name)

    def forget_questions(self, name: str) -> None:
        """Delete the cohorts of a run that every device refused: nobody has paid for them.

        The numbers of its rounds stay used.
        """
        self.write(
            "DELETE FROM cohort WHERE round IN (SELECT number FROM round WHERE run = ?)", name
        )

    def runs(self) -> list[StoredRun]:
        """All runs of this store, in the order in which they began."""
        return self._runs("ORDER BY rowid")

    def _runs(self, clause: str, *values: str) -> list[StoredRun]:
        """Return the runs that a clause of SQL selects or orders. values: its parameters."""
        runs = []
        statement = f"SELECT name, began, status, asked, state FROM run {clause}"
        for name, began, status, asked, state in self.rows(statement, *values):
            run = StoredRun(name, began, status, asked=json.loads(asked), state=json.loads(state))
            runs.append(run)
        return runs

    def run(self, name: str) -> StoredRun | None:
        """The run of that name, if there is one."""
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
        """Change the status, the options (`asked`) or the state of a run; None leaves them."""
        texts = {}
        if status is not None:
            texts["status"] = status
        if asked is not None:
            texts["asked"] = json.dumps(asked)
        if state is not None:
            texts["state"] = json.dumps(state)
        with self.transaction():
            for column, value in texts.items():
                self._db.execute(f"UPDATE run SET {column} = ? WHERE name = ?", (value, name))

    def last_entry(self, name: str) -> dict[str, Any] | None:
        """The history entry of the last round of a run."""
        last = "SELECT entry FROM history WHERE run = ? ORDER BY number DESC LIMIT 1"
        entry: dict[str, Any] | None = json.loads(self.value(last, name) or "null")
        return entry

    def history(self, name: str) -> list[dict[str, Any]]:
        """The history of a run, oldest round first."""
        rows = self.rows("SELECT entry FROM history WHERE run = ? ORDER BY number", name)
        return [json.loads(entry) for (entry,) in rows]

    def models(self, name: str) -> dict[int, bytes]:
        """Return the weights of the models of a run, by the number of the round.

        They are float64, little-endian. Rounds without a model are left out.
        """
        statement = "SELECT number, weights FROM model WHERE run = ? ORDER BY number"
        return dict(self.rows(statement, name))

    def save_state(self, state: Mapping[str, Any]) -> None:
        """Store JSON values by name."""
        rows = [(name, json.dumps(value)) for name, value in state.items()]
        self.write_rows("INSERT OR REPLACE INTO state VALUES (?, ?)", rows)

    def state(self, name: str) -> Any:
        """The value last saved by that name; None if there is none."""
        return json.loads(self.value("SELECT value FROM state WHERE name = ?", name) or "null")
