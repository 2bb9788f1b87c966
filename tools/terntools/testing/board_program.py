"""Brings the device library to a board, and a test's program that is compiled as the library is."""

from collections.abc import Sequence
from pathlib import Path

from terntools.boards import file_changes, fold, hiding, installing, machines, mpy
from terntools.boards.repl import Repl


def install_library(repl: Repl, more: Sequence[str] = ()) -> machines.Machine:
    """Install the device library on a board, and return what kind of board it is.

    repl: the board's console. more: names of extra modules to install. Raises UsageError and
    DeviceError.
    """
    machine, changes = installing.plan(repl, more=more)
    hiding.require_none(repl, changes.move)
    installing.install(repl, machine, changes)
    return machine


def install(repl: Repl, program: Path, more: Sequence[str] = ()) -> machines.Machine:
    """Install the device library on a board, and a program that the board can import by its file's name.

    repl: the board's console. more: names of extra modules to install. Returns what kind of board it
    is. Raises UsageError and DeviceError.
    """
    machine = install_library(repl, more)

    # On a board the names of the library's constants are replaced by their values, to save memory.
    # So they have to be replaced in the program, too.
    source = fold.fold_program(program.read_text(), mpy.library(machine.processor))
    compiled = mpy.compiled(source, machine.processor, program.name, optimise=True)
    changes_to_program = file_changes.compare(repl, {f"/lib/{program.stem}.mpy": compiled})
    file_changes.apply(repl, changes_to_program)
    return machine
