"""What stores, and the ledgers of boards, keep: as tests read it and no program does."""

from tern import ledger, storage


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


def accounts(boards):
    """(device, its ledger) of every client on these boards; the Ledger is the same each time, loaded anew."""
    account = ledger.Ledger()
    for board in boards:
        for path in (board / storage.LEDGERS).glob("????????"):
            account.load(str(path))
            yield int(path.name, 16), account


def spent(boards):
    """The micro-epsilon that each of these devices has spent."""
    return {device: account.spent for device, account in accounts(boards)}
