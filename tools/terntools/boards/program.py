"""The program of a board as the files of a package: the library for its processor, and its main.py."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from tern.update import MAIN
from ternhost.errors import TernError, UsageError
from terntools.boards import deploy, modules, mpy

EMULATED = "emulated"  # a board of this computer runs the sources
MACHINES = (*mpy.BOARDS, EMULATED)
_ALWAYS = ("update",)  # without it a board takes no further package


def program_files(
    machine: str, main: Path, more: Iterable[str] = (), others: Mapping[str, bytes] | None = None
) -> dict[str, bytes]:
    """The files of a program on `machine`, one of MACHINES, by path in its folder. Raises UsageError.

    main: the user's program, which must import tern.update; more: further modules of the library; others: the user's
    files.
    """
    program = deploy.read_file(main)
    try:
        text = program.decode()
        mpy.compiled(text, "armv6m", main.name)  # one that does not would be rolled back
    except (TernError, UnicodeError) as error:
        raise UsageError(f"{main} is no program for MicroPython: {error}") from error
    if "tern.update" not in modules.imports(text):
        raise UsageError(
            f"{main} does not import tern.update: it would take no further package, and be rolled back",
            hint="give its App an Update(board), out of tern.update: docs/guides/application.md",
        )
    more = [*more, *_ALWAYS]
    if machine == EMULATED:
        board = mpy.Board("", "linux", True)
        sources = mpy.sources_for(board, whole=True, more=more)
        files = {f"{mpy.file_of(name)}.py": source.encode() for name, source in sources.items()}
    else:
        files = mpy.files_of(mpy.compile_set(mpy.BOARDS[machine], more=more, program=text))
    return {**files, **(others or {}), MAIN: program}
