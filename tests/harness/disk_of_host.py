"""A host whose power fails, or whose disk is full, at a given step of a command.

A step is a file that is opened for writing, renamed or removed, a directory that is made or removed,
or a statement with which SQLite writes. The command runs in a forked process.
"""

import errno
import os
import signal
import sqlite3
import sys

from ternhost.cli import main

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_STEPS = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree"}
_STATEMENTS = {"INSERT", "UPDATE", "DELETE", "BEGIN", "COMMIT", "CREATE", "PRAGMA"}

KILLED = -signal.SIGKILL


def power_cut():
    os.kill(os.getpid(), signal.SIGKILL)


def full_disk():
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "a file")


class _FailingDisk:
    """Counts the steps of this process in `folder`, and fails at one of them, or from it on."""

    def __init__(self, step, fail, for_good, folder):
        self.left = step
        self.fail = fail
        self.for_good = for_good
        self.folder = os.fspath(folder)

    def step(self):
        self.left -= 1
        if self.left == 0 or (self.for_good and self.left < 0):
            self.fail()

    def on_event(self, event, arguments):
        """Be called for each event that Python audits."""
        is_step = event in _STEPS
        if event == "open":
            _path, _mode, flags = arguments
            is_step = isinstance(flags, int) and bool(flags & _WRITING)
        if is_step and self._is_inside(arguments[0]):
            self.step()

    def _is_inside(self, path):
        if isinstance(path, int):  # a descriptor
            return False
        return os.path.abspath(os.fsdecode(path)).startswith(self.folder)

    def connection(self):
        """A class of connections to SQLite whose writing statements are steps."""
        disk = self

        class Connection(sqlite3.Connection):
            def execute(self, statement, *values):
                words = statement.split()
                if words and words[0].upper() in _STATEMENTS:
                    try:
                        disk.step()
                    except OSError:
                        error = sqlite3.OperationalError("database or disk is full")
                        error.sqlite_errorname = "SQLITE_FULL"
                        raise error from None
                return super().execute(statement, *values)

        return Connection


def run_failing(words, step, fail=power_cut, for_good=False):
    """Run `tern` with a disk that fails at a step, counted from 1, and return its exit code.

    fail: `power_cut` or `full_disk`. for_good: all later steps fail, too. The code is KILLED after a
    power cut, and that of the command if it has fewer steps.
    """
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        code = 70
        try:
            disk = _FailingDisk(step, fail, for_good, os.getcwd())
            connect, connection_class = sqlite3.connect, disk.connection()
            sqlite3.connect = lambda *a, **options: connect(*a, factory=connection_class, **options)
            sys.addaudithook(disk.on_event)
            code = main([str(word) for word in words])
        except SystemExit as ended:
            code = ended.code
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)
