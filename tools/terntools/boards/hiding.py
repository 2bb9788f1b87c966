"""Files in a board's root that hide the library in /lib, since MicroPython looks for a module in the root first.

The usual one is a folder /tern, which `mpremote cp -r tern :` leaves there. A file such as /hashlib.py or /asyncio.py
hides what the library imports: the library then fails, or runs other code."""

import ast

import tern
from ternhost.errors import UsageError
from terntools.boards import modules, mpy
from terntools.boards.repl import Repl

MOVED = ".hidden"  # is added to the name of what hid the library

# Prints each path that hides a module of NAMES. A file in the root does not hide every built-in module. So each module
# that has such a file is imported, and tells where it comes from.
_PRINT_HIDING_PATHS = """
import os, sys
if '' not in sys.path:
    sys.path.insert(0, '')  # as after a reset: ignore_root() may have removed it
def print_hiding_path(name):
    for folder in sys.path:
        if folder == '/lib':
            return
        if folder == '.frozen':
            continue
        for ending in ('', '.py', '.mpy'):
            path = folder + '/' + name + ending
            if exists(path) and comes_from(name, path):
                print(repr(path))
                return
def exists(path):
    try:
        os.stat(path)
    except OSError:
        return False
    return True
def comes_from(name, path):
    sys.modules.pop(name, None)
    try:
        module = __import__(name)
    except Exception:
        return True  # a built-in module would not fail
    finally:
        sys.modules.pop(name, None)
    origin = getattr(module, '__file__', None) or getattr(module, '__path__', None) or ''
    return origin.lstrip('/').startswith(path.lstrip('/'))
for name in NAMES:
    print_hiding_path(name)
"""
# Prints the release of the library that is frozen into the firmware; None if none is.
_PRINT_FROZEN_RELEASE = """
import sys
path = sys.path[:]
sys.path[:] = ['.frozen']
sys.modules.pop('tern', None)
try:
    import tern
    print(repr(getattr(tern, '__version__', '')))
except ImportError:
    print('None')
finally:
    sys.path[:] = path
    sys.modules.pop('tern', None)
"""
# Adds MOVED to the name of each of PATHS: once more if there is such a file already, from an earlier deployment.
_RENAME = """
import os
for path in PATHS:
    new_path = path + MOVED
    while True:
        try:
            os.stat(new_path)
        except OSError:
            break
        new_path += MOVED
    os.rename(path, new_path)
"""


def find(repl: Repl) -> tuple[str, ...]:
    """The paths on the board that hide the library or what it imports. Runs the code of these files.

    Raises UsageError for a firmware with another release of tern in it: no file on the board can replace that one.
    Raises ExecutionError and DeviceError."""
    frozen_release = ast.literal_eval(repl.run(_PRINT_FROZEN_RELEASE).splitlines()[-1])
    if frozen_release not in (None, tern.__version__):
        text = f"tern {frozen_release} is frozen into the firmware on {repl.name}, and hides what is deployed"
        hint = "flash a MicroPython without tern, or build one with this release (firmware/manifest.py)"
        raise UsageError(text, hint)
    printed = repl.run(f"NAMES = {_imported_names()!r}{_PRINT_HIDING_PATHS}")
    return tuple(ast.literal_eval(line) for line in printed.splitlines())


def _imported_names() -> tuple[str, ...]:
    """The names of the library and of all modules that it imports, without those of submodules, sorted."""
    names = {"tern"}
    for text in mpy.library().values():
        for module in modules.imports(text):
            names.add(module.partition(".")[0])
    return tuple(sorted(names))


def ignore_root(repl: Repl) -> None:
    """Import nothing from the root until the board's next reset, so that the host's own code is not hidden either."""
    repl.run("import sys\nsys.path.remove('')")


def rename(repl: Repl, paths: tuple[str, ...]) -> None:
    """Rename what hides the library, such as /tern to /tern.hidden, so that nothing imports it."""
    repl.run(f"PATHS = {paths!r}\nMOVED = {MOVED!r}{_RENAME}")
