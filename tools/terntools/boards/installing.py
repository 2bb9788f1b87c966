"""Put the device library on a board, whose old program comes back if that is interrupted."""

import contextlib
from collections.abc import Collection
from dataclasses import replace

from ternhost.errors import TernError
from terntools.boards import hiding, mpy, room, self_check
from terntools.boards.file_changes import Changes, apply, compare
from terntools.boards.files import FileProgress
from terntools.boards.machines import Machine
from terntools.boards.program import Program
from terntools.boards.repl import Repl
from terntools.boards.self_check import MiscompiledError
from terntools.boards.software import LIBRARY, MAIN, library_files
from terntools.boards.undo import keep_for_undo

# Runs on the board at the end of a deployment, and ends any update in the field that was under way:
# from now on the loader starts the files in /lib. For that it sets two fields of boot.bin, the folder
# whose program works (byte 4; 0 is /lib) and the state of the last package (byte 5). The number of
# that package (bytes 6 to 9) stays, so that the board accepts no older one.
_SETTLE = """
try:
    with open("/boot.bin", "rb") as file:
        data = file.read()
except OSError:
    data = b""
if len(data) == 14:
    from binascii import crc32
    from struct import pack
    data = data[:4] + b"\\0\\3" + data[6:10]
    with open("/boot.bin", "wb") as file:
        file.write(data + pack("<I", crc32(data)))
"""


def plan(
    repl: Repl,
    whole: bool = False,
    more: Collection[str] = (),
    program: Program | None = None,
) -> tuple[Machine, Changes]:
    """Return the kind of the board, and the changes that `tern board deploy` would make to it.

    Optional modules (`mpy.choices`) that are on the board already are kept, and brought up to date.
    As a side effect the board imports nothing from its root until its next reset. whole, more,
    program: as in `library_files`. Raises TooOldError, and UsageError for a firmware that has
    another release of tern built in.
    """
    hiding.ignore_root(repl)
    machine = Machine.of(repl)
    if not whole:
        library_on_board = repl.files.sizes(LIBRARY)
        requested_modules = list(more)
        more = []
        for name in mpy.choices():
            is_on_board = f"{LIBRARY}/{name}.mpy" in library_on_board
            if is_on_board or name in requested_modules:
                more.append(name)
    files = library_files(machine, whole, more, program)
    changes = compare(repl, files, prune=LIBRARY)
    return machine, replace(changes, move=hiding.find(repl, files))


def install(
    repl: Repl, machine: Machine, changes: Changes, progress: FileProgress | None = None
) -> None:
    """Make the changes to the board's files, and check that the new library computes right.

    First a test is compiled and run, to show that the compiler is right for this processor. Then
    the files are written. Until the library is checked, main.py is a program that gives the old
    files their names back. So a board whose deployment is interrupted runs its old program, and
    never sends a wrong report. At the end the board is at its prompt, with a fresh heap.

    machine: the kind of the board. changes: from `plan`. Raises MiscompiledError if something is
    computed wrong, and StorageError if the flash has no room for the new files beside the old ones.
    """
    room.require(repl, changes.size)
    if changes:
        self_check.require_compiler(repl, machine.processor)

    # Files such as /tern.py hide the library, and get other names.
    new_names = hiding.new_paths(repl, changes.move)
    all_but_main = {path: data for path, data in changes.write.items() if path != MAIN}
    paths_to_keep = [*all_but_main, *changes.remove]
    kept_for_undo = keep_for_undo(repl, paths_to_keep, new_names)
    hiding.rename(repl, new_names)
    apply(repl, Changes(all_but_main, changes.remove), progress)

    try:
        self_check.require_library(repl)
    except MiscompiledError:
        # Neither the old program nor a wrong library is to run. A board that crashed restarts, and
        # then cannot be reached here.
        with contextlib.suppress(TernError):
            repl.files.remove(MAIN)
        raise

    # From here on the new program counts, and the old files are removed.
    repl.run(_SETTLE)
    repl.files.write(MAIN, changes.main or mpy.MAIN.read_bytes())
    repl.run(f"import os\nfor path in {kept_for_undo!r}:\n os.remove(path)")
