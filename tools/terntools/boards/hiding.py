"""Files on a board that hide the library in /lib: MicroPython looks in the root first.

The usual one is a folder /tern, which `mpremote cp -r tern :` leaves there. A file such as
/hashlib.py or /asyncio.py hides what the library imports: the library then fails, or runs other
code. The files are found by their names, and none of them is run: what hides the library may be a
program that never ends.
"""

from collections.abc import Collection, Mapping

import tern
from ternhost.errors import UsageError
from terntools.boards import modules, mpy
from terntools.boards.repl import Repl

MOVED = ".hidden"  # is added to the name of what hid the library
_LIBRARY = "/lib/"
_IGNORED = "/.ignored"  # replaces the root in sys.path; there is no such folder
# After this, nothing is imported from the root.
IGNORE_ROOT = (
    f"import sys\nsys.path[:] = [{_IGNORED!r} if not entry else entry for entry in sys.path]\n"
)

# Tells each path that comes before the library and has one of NAMES. No file hides a module that is
# built into MicroPython, such as gc, unless MicroPython lets files extend it, such as hashlib. Such
# a module can also be imported as uhashlib: by this the code below tells the two kinds apart.
_TELL_HIDING_PATHS = """
import sys, uos
def folders():
    for entry in path:
        if entry == IGNORED:
            entry = ''
        if not isinstance(entry, str) or entry == '.frozen':
            continue
        entry = (entry if entry.startswith('/') else uos.getcwd() + '/' + entry).strip('/')
        while '//' in entry:
            entry = entry.replace('//', '/')
        if entry in ('lib', 'lib2'):  # where the library is, also after an update
            return
        yield '/' + entry if entry else ''
def is_built_in(name):
    loaded = sys.modules.pop(name, None)
    try:
        __import__(name)
        return True
    except ImportError:
        return False
    finally:
        sys.modules.pop(name, None)
        if loaded:
            sys.modules[name] = loaded
def exists(path, kind):
    try:
        return uos.stat(path)[0] & kind
    except OSError:
        return False
path = sys.path[:]
hideable = []
sys.path[:] = []
for name in NAMES:
    if is_built_in('u' + name) or not is_built_in(name):
        hideable.append(name)
sys.path[:] = path
for folder in folders():
    for name in hideable:
        for ending, kind in (('', 0x4000), ('.py', 0x8000), ('.mpy', 0x8000)):
            if exists(folder + '/' + name + ending, kind):
                _tell(folder + '/' + name + ending)
"""
# Tells the release of the library that is frozen into the firmware; None if none is.
_TELL_FROZEN_RELEASE = """
import sys
path = sys.path[:]
sys.path[:] = ['.frozen']
sys.modules.pop('tern', None)
try:
    import tern
    _tell(getattr(tern, '__version__', ''))
except ImportError:
    _tell(None)
finally:
    sys.path[:] = path
    sys.modules.pop('tern', None)
"""
# Tells each of PATHS with MOVED added to it, again and again while there is such a file from an
# earlier deployment.
_TELL_NEW_PATHS = """
import uos
for path in PATHS:
    new_path = path + MOVED
    while True:
        try:
            uos.stat(new_path)
        except OSError:
            break
        new_path += MOVED
    _tell((path, new_path))
"""


def find(repl: Repl, files: Collection[str]) -> tuple[str, ...]:
    """Find the files and folders on the board that hide the library or what it imports.

    files: the paths that a deployment writes. Returns the paths of what hides them. Raises
    UsageError for a firmware that has another release of tern built in, which no file on the board
    can replace; and ExecutionError and DeviceError.
    """
    frozen_release = repl.value(_TELL_FROZEN_RELEASE)
    if frozen_release not in (None, tern.__version__):
        text = f"tern {frozen_release} is frozen into the firmware on {repl.name}, and hides what is deployed"
        hint = "flash a MicroPython without tern, or build one with this release (firmware/manifest.py)"
        raise UsageError(text, hint)
    code = f"IGNORED = {_IGNORED!r}\nNAMES = {_imported_names(files)!r}{_TELL_HIDING_PATHS}"
    return tuple(sorted(repl.values(code)))


def _imported_names(files: Collection[str]) -> tuple[str, ...]:
    """Return the names of the modules and packages that the library imports, sorted.

    Submodules are left out: their packages decide. files: the paths of the library's files on the
    board.
    """
    sources = mpy.library()
    module_names = {"tern", "hashlib", "asyncio"}  # in any case: a user's program may import them
    for path in files:
        without_ending, _, _ = path.removeprefix(_LIBRARY).rpartition(".")
        module = without_ending.removesuffix("/__init__").replace("/", ".")
        for imported in modules.imports(sources.get(module, "")):
            module_names.add(imported.partition(".")[0])
    return tuple(sorted(module_names - {"sys"}))


def require_none(repl: Repl, paths: Collection[str]) -> None:
    """Raise UsageError if something hides the library, for commands that do not rename it.

    paths: what `find` has found on the board.
    """
    if paths:
        text = f"{', '.join(paths)} on {repl.name} would be imported instead of the library or what it needs"
        raise UsageError(
            text, hint=f"rename it, or let 'tern board deploy' do so: tern board deploy {repl.name}"
        )


def ignore_root(repl: Repl) -> None:
    """Import nothing from the board's root until its next reset.

    So no file there can take the place of what the host's code imports.
    """
    repl.run(IGNORE_ROOT)


def new_paths(repl: Repl, paths: Collection[str]) -> dict[str, str]:
    """Return a new path for each of these paths, under which it hides nothing: /tern.hidden for /tern.

    No file on the board has any of the new paths.
    """
    return dict(repl.values(f"PATHS = {tuple(paths)!r}\nMOVED = {MOVED!r}{_TELL_NEW_PATHS}"))


def rename(repl: Repl, renamed: Mapping[str, str]) -> None:
    """Rename files and folders on the board. renamed: the new path of each, by its path."""
    repl.run(
        f"import uos\nfor path, new_path in {dict(renamed)!r}.items():\n uos.rename(path, new_path)"
    )
