"""Figures of a board, such as "latency-us": their names, and the functions that measure them.

A hardware map, which lists boards to test, can say what to expect of a figure. A package adds a
figure by an entry point in the group `tern.board_figures`: the figure's name, which ends with its
unit, and a function that measures it. The package ternbench measures those in STANDARD.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from ternhost.registry import Registry

if TYPE_CHECKING:
    from terntools.testing.hardware import MappedBoard

# Measures a board. Returns the values of one or more figures by name.
Measurement: TypeAlias = "Callable[[MappedBoard], Mapping[str, float]]"

MEASUREMENTS: Registry[Measurement] = Registry("figure of a board", "tern.board_figures", {})

NEED_A_METER = ("energy-uj", "asleep-ua")
# Maps may name these also where ternbench is missing. docs/guides/emulators.md describes them.
STANDARD = (
    "latency-us",
    "latency-slowest-us",
    "latency-instructions",
    "latency-slowest-instructions",
    "heap-bytes",
    "garbage-bytes",
    "library-bytes",
    *NEED_A_METER,
)


def names() -> list[str]:
    """Return the names of all figures that a hardware map may name."""
    return list(dict.fromkeys((*STANDARD, *MEASUREMENTS)))


def why_not_measured(figure: str, board: MappedBoard) -> str | None:
    """Return why a figure of a board cannot be measured here; None if it can."""
    try:
        MEASUREMENTS[figure]  # raises if no installed package measures it
    except (KeyError, ModuleNotFoundError):
        return f"{figure} is measured by the package ternbench, which is not installed"

    if figure in NEED_A_METER and not board.meter:
        return f"{figure} needs a meter: add meter: to the board in the hardware map"
    return None
