"""`tern` that stops, as by SIGSTOP, before the first commit after that of so many reports."""

import os
import signal
import sys
from contextlib import contextmanager

from ternhost.cli import main
from ternhost.store.store import Store

_reports = int(sys.argv.pop(1))
_add_reports = Store.add_reports
_transaction = Store.transaction
_there = False  # whether so many are committed


def _adding(store, reports):
    global _there, _reports
    _add_reports(store, reports)
    if _reports and store.report_count() >= _reports:
        _there = True
        _reports = 0


@contextmanager
def _stopping(store):
    global _there
    with _transaction(store):
        yield
        if _there:
            _there = False
            os.kill(os.getpid(), signal.SIGSTOP)


Store.add_reports = _adding
Store.transaction = _stopping
sys.exit(main())
