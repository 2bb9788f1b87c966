"""What tests read of a store and no program does."""


def ended_rounds(store):
    """(number, how it ended, reports) of every round that has ended, oldest first."""
    return store._db.execute(
        "SELECT number, ended, (SELECT coalesce(sum(reports), 0) FROM batch WHERE round = number)"
        " FROM round WHERE ended IS NOT NULL ORDER BY number"
    ).fetchall()


def weights(store, number):
    """The model after a round, as passed to `end_run_round`; None where none was."""
    row = store._db.execute("SELECT weights FROM model WHERE round = ?", (number,)).fetchone()
    return row[0] if row else None
