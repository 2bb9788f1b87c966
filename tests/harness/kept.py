"""Reads what only tests need from stores and from the ledgers of boards."""

from tern import ledger, storage


def ended_rounds(store):
    """(number, how it ended, reports) of every round that has ended, oldest first."""
    return store._db.execute(
        "SELECT number, ended, (SELECT coalesce(sum(reports), 0) FROM batch WHERE round = number)"
        " FROM round WHERE ended IS NOT NULL ORDER BY number"
    ).fetchall()


def weights(store, number):
    """The model after a round, as `EndedRound` has it; None if there was none."""
    row = store._db.execute("SELECT weights FROM model WHERE number = ?", (number,)).fetchone()
    return row[0] if row else None


def accounts(boards):
    """(device, its ledger) of every client on these boards; all share one Ledger, which is loaded
    anew each time.
    """
    account = ledger.Ledger()
    for board in boards:
        # A kill may leave a .new beside them, which no device reads.
        for path in (board / storage.LEDGERS).glob("????????"):
            account.load(str(path))
            yield int(path.name, 16), account


def spent(boards):
    """The micro-epsilon that each device on these boards has spent, by device."""
    return {device: account.spent for device, account in accounts(boards)}
