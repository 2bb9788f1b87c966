"""Bring the device library to a board, and a program that is compiled as the library is."""

from collections.abc import Sequence
from pathlib import Path

from terntools.boards import deploy, fold, hiding, mpy
from terntools.boards.repl import Repl


def install_library(repl: Repl, more: Sequence[str] = ()) -> deploy.Machine:
    """Deploy the device library with the modules `more`. Raises UsageError and DeviceError."""
    machine, changes = deploy.plan(repl, more=more)
    hiding.require_none(repl, changes.move)
    deploy.install(repl, machine, changes)
    return machine


def install(repl: Repl, program: Path, more: Sequence[str] = ()) -> deploy.Machine:
    """Deploy the device library with the modules `more`, and put `program` beside it.

    The board can import the program by the name of its file. Raises UsageError and DeviceError.
    """
    machine = install_library(repl, more)

    # The library's constants are folded on a board, so the program's uses of them are, too.
    source = fold.fold_program(program.read_text(), mpy.library(machine.processor))
    compiled = mpy.compiled(source, machine.processor, program.name, optimise=True)
    changes_to_program = deploy.compare(repl, {f"/lib/{program.stem}.mpy": compiled})
    deploy.apply(repl, changes_to_program)
    return machine
