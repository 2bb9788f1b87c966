"""Work for cells of experiments, in a module that other processes can import."""

import os
from typing import Any

import numpy as np

from ternhost.errors import UsageError


def add(x: float, y: float, times: int = 1) -> list[dict[str, Any]]:
    return [{"sum": x + y, "process": os.getpid()}] * times


def fail(x: int) -> list[dict[str, Any]]:
    raise UsageError(f"{x} is wrong", hint="take another")


def end(x: int) -> list[dict[str, Any]]:
    os._exit(1)


def algebra(n: int) -> list[dict[str, Any]]:
    a = np.random.default_rng(n).normal(size=(300, 300))
    return [{"determinant": float(np.linalg.slogdet(a @ a.T)[1])}]
