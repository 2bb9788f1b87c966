"""Work for cells of experiments, in a module that other processes can import."""

import os

from ternhost.errors import UsageError


def add(x, y):
    return [{"sum": x + y, "process": os.getpid(), "threads": os.environ.get("OMP_NUM_THREADS")}]


def fail(x):
    raise UsageError(f"{x} is wrong", hint="take another")


def end(x):
    os._exit(1)
