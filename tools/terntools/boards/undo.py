"""A board whose deployment is interrupted gets its old files back, by a program at its next start."""

import ast
from collections.abc import Iterable, Mapping

from terntools.boards.repl import Repl
from terntools.boards.software import MAIN

# Ends the names of a board's old files while it gets new ones. Its main.py is _UNDOER then, a
# program that gives these files their own names back and then starts the old main.py.
UNDO = ".undo"
_UNDOER = b"""# The deployment was interrupted: the program before it comes back.
RENAMED = {}
import uos
for path, new_path in RENAMED.items():
    try:
        uos.rename(new_path, path)
    except OSError:  # it had not been renamed yet
        pass
folders = [b""]  # in bytes, since a name need not be UTF-8
while folders:
    folder = folders.pop()
    entries = uos.ilistdir(folder or b"/.")  # with b"/", names would be text, and have to be UTF-8
    entries = [(name, kind) for name, kind, *_ in entries if kind & 0x4000 or name.endswith(b".undo")]
    for name, kind in entries:
        path = folder + b"/" + name
        if kind & 0x4000:
            folders.append(path)
        elif path != b"/main.py.undo":
            uos.rename(path, path[:-5])
uos.rename("/main.py.undo", "/main.py")  # last
execfile("/main.py")
"""


def keep_for_undo(repl: Repl, paths: Iterable[str], new_names: Mapping[str, str]) -> list[str]:
    """Rename the files at `paths`, and make main.py the program that gives them their names back.

    A file gets the ending UNDO behind its name. If the deployment is interrupted, the board starts
    main.py at its next reset, which undoes it. If an earlier deployment was interrupted, and not
    undone, its renamed files are kept, since they belong to the last program that worked.

    new_names: the new paths, by old path, of other files that the deployment renames, and that the
    program renames back as well. Returns the paths of the renamed files, which end with UNDO; that
    of the old main.py is the last one.
    """
    paths_on_board = set(repl.files.sizes("/"))
    old_main = b""
    if MAIN in paths_on_board:
        old_main = repl.files.read(MAIN)
    # The files that an earlier deployment renamed.
    kept_paths = {path for path in paths_on_board if path.endswith(UNDO)}

    first_line_of_undoer, _, _ = _UNDOER.partition(b"\n")
    was_interrupted = old_main.startswith(first_line_of_undoer)
    if was_interrupted:
        # The kept files are those of the last program that worked; they are still to come back.
        new_names = {**renamed_before(old_main), **new_names}
    else:
        for path in kept_paths:  # left by a deployment that was completed
            repl.files.remove(path)
        kept_paths = set()
        if old_main:
            repl.files.write(MAIN + UNDO, old_main)
            kept_paths.add(MAIN + UNDO)

    # main.py comes first: from the first renamed file on, a restart must undo what was done.
    repl.files.write(MAIN, undoer(new_names))
    paths_to_move = []
    for path in paths:
        if path in paths_on_board and path + UNDO not in kept_paths:
            paths_to_move.append(path)
    repl.run(f"import os\nfor path in {paths_to_move!r}:\n os.rename(path, path + '{UNDO}')")
    kept_paths.update(path + UNDO for path in paths_to_move)
    return sorted(kept_paths, key=_is_old_main)  # False sorts first


def _is_old_main(path: str) -> bool:
    return path == MAIN + UNDO


def undoer(new_names: Mapping[str, str]) -> bytes:
    """Return the main.py that undoes an interrupted deployment.

    new_names: the new paths, by old path, of files that hid the library and were renamed.
    """
    return _UNDOER.replace(b"{}", repr(dict(new_names)).encode(), 1)


def renamed_before(main: bytes) -> dict[str, str]:
    """Return the new paths, by old path, of the files that an interrupted deployment renamed.

    The main.py that it left, `main`, has them in a line such as
    RENAMED = {'/tern.py': '/tern.py.hidden'}. A main.py of an earlier release of tern has no such
    line, and the result is empty.
    """
    _, separator, rest = main.partition(b"\nRENAMED = ")
    if not separator:
        return {}
    literal, _, _ = rest.partition(b"\n")
    new_names: dict[str, str] = ast.literal_eval(literal.decode())
    return new_names
