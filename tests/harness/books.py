"""What devices have paid, by the ledgers of their boards."""

from tern import ledger, storage


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
