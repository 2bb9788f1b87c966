"""Files of a board that hide the library in /lib, since MicroPython looks for a module in the root first.

A folder /tern is the usual one, of `mpremote cp -r tern :`; but /hashlib.py or /asyncio hides what the library imports,
and the library then fails or runs other code."""

import ast

import tern
from ternhost.errors import UsageError
from terntools.boards import modules, mpy
from terntools.boards.repl import Repl

MOVED = ".hidden"  # ends the new name of what hid the library

# Prints the paths that hide a module of NAMES. What MicroPython has built in, the root hides only in part: so each
# module is imported, and tells where it comes from.
_LOOK = """
import os, sys
if '' not in sys.path:
    sys.path.insert(0, '')  # as after a reset: see ignore()
def look(name):
    for folder in sys.path:
        if folder == '/lib':
            return
        if folder != '.frozen':
            for end in ('', '.py', '.mpy'):
                path = folder + '/' + name + end
                try:
                    os.stat(path)
                except OSError:
                    continue
                if comes_from(name, path):
                    print(repr(path))
                    return
def comes_from(name, path):
    sys.modules.pop(name, None)
    try:
        module = __import__(name)
    except Exception:
        return True
    finally:
        sys.modules.pop(name, None)
    origin = getattr(module, '__file__', None) or getattr(module, '__path__', None) or ''
    return origin.lstrip('/').startswith(path.lstrip('/'))
for name in NAMES:
    look(name)
"""
_FROZEN = """
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


def find(repl: Repl) -> tuple[str, ...]:
    """The paths on the board that hide the library or what it imports. Runs the code of modules that do.

    Raises UsageError for a firmware with another release of tern in it: nothing on the board's flash replaces it."""
    frozen = ast.literal_eval(repl.run(_FROZEN).splitlines()[-1])
    if frozen not in (None, tern.__version__):
        text = f"the firmware on {repl.name} has tern {frozen} frozen into it, which hides what is deployed"
        raise UsageError(
            text, hint="flash a MicroPython without it, or one with this tern: firmware/manifest.py"
        )
    return tuple(ast.literal_eval(line) for line in repl.run(f"NAMES = {_names()!r}{_LOOK}").splitlines())


def _names() -> tuple[str, ...]:
    """The first parts of the names of the library's modules and of all that they import."""
    imported = {name for text in mpy.library().values() for name in modules.imports(text)}
    return tuple(sorted({"tern", *(name.partition(".")[0] for name in imported)}))


def ignore(repl: Repl) -> None:
    """Import nothing from the root until the board's next reset, so that the host's own code does not meet it."""
    repl.run("import sys\nsys.path.remove('')")


_RENAME = """
import os
for path in PATHS:
    new = path + MOVED
    while True:
        try:
            os.stat(new)
        except OSError:
            break
        new += MOVED  # an earlier one stays
    os.rename(path, new)
"""


def move(repl: Repl, paths: tuple[str, ...]) -> None:
    """Give what hides the library names under which nothing is imported."""
    repl.run(f"PATHS = {paths!r}\nMOVED = {MOVED!r}{_RENAME}")
