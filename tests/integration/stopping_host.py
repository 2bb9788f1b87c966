"""`tern N ...`: `tern` that stops, as by SIGSTOP, in its first transaction after N reports are
stored.
"""

import os
import signal
import sys
from contextlib import contextmanager

from ternhost.cli import main
from ternhost.store.store import Store

_reports = int(sys.argv.pop(1))
_add_reports = Store.add_reports
_transaction = Store.transaction
_reached = False  # the number of reports


def _adding(store, reports):
    global _reached, _reports
    _add_reports(store, reports)
    if _reports and store.report_count() >= _reports:
        _reached = True
        _reports = 0


@contextmanager
def _stopping(store):
    global _reached
    with _transaction(store):
        yield
        if _reached:
            _reached = False
            os.kill(os.getpid(), signal.SIGSTOP)


Store.add_reports = _adding
Store.transaction = _stopping
sys.exit(main())
