"""Work for cells of experiments, in a module that other processes can import."""

import os
from typing import Any

from ternhost.errors import UsageError


def add(x: float, y: float) -> list[dict[str, Any]]:
    return [{"sum": x + y, "process": os.getpid(), "threads": os.environ.get("OMP_NUM_THREADS")}]


def fail(x: int) -> list[dict[str, Any]]:
    raise UsageError(f"{x} is wrong", hint="take another")


def end(x: int) -> list[dict[str, Any]]:
    os._exit(1)
