"""Mutants: modules of the library with a part of the text replaced, which the published vectors
must catch.

The vectors alone must reveal each likely mistake of a device that was written from the
specifications. The functions of tests/device with `vectors` in their names check them.
"""

import importlib.util
import runpy
import signal
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_SECONDS = (
    24  # of the processor; the right library takes 3, and three times as long beside other work
)
DEVICE_TESTS = Path(__file__).parent / "device"
LIBRARY = Path(__file__).parents[1] / "firmware" / "tern"

# A mutant that raises one of these is not a program that computes something else.
BROKEN = (NameError, ImportError, AttributeError, TypeError, SyntaxError)


@dataclass(frozen=True)
class Wrong:
    """`module` (for example tern.card) with `wrong` instead of `right`, which occurs once; empty:
    no change.
    """

    what: str
    module: str
    right: str
    wrong: str


def of(module, *wrongs):
    """The mutants of tern.`module`, each (what, right, wrong)."""
    return [Wrong(what, f"tern.{module}", right, wrong) for what, right, wrong in wrongs]


def file_of(module):
    return LIBRARY.parent / (module.replace(".", "/") + ".py")


def misplaced(mutants):
    """The mutants whose text does not occur exactly once in their module."""
    sources = {
        module: file_of(module).read_text() for module in {mutant.module for mutant in mutants}
    }
    return [mutant for mutant in mutants if sources[mutant.module].count(mutant.right) != 1]


def end_boards(emulated):
    """End the boards of this process, as its end would. emulated: the module, or a copy."""
    while emulated._held:
        for part in emulated._held.popitem()[1]:
            part.close()


@contextmanager
def imported(mutant):
    """Import the library again, with the mutant in it; restore the imported modules afterwards."""
    folders = (str(LIBRARY), str(DEVICE_TESTS))
    kept = {
        n: m for n, m in sys.modules.items() if str(getattr(m, "__file__", "")).startswith(folders)
    }
    for name in kept:
        del sys.modules[name]
    try:
        path = file_of(mutant.module)
        source = path.read_text()
        module = importlib.util.module_from_spec(
            importlib.util.spec_from_file_location(mutant.module, path)
        )
        sys.modules[mutant.module] = module
        exec(
            compile(source.replace(mutant.right, mutant.wrong, 1), str(path), "exec"), vars(module)
        )
        yield
    finally:
        if copy := sys.modules.get("tern.boards.emulated"):
            end_boards(copy)
        for name, module in [*sys.modules.items()]:
            if str(getattr(module, "__file__", None) or "").startswith(folders):
                del sys.modules[name]
        sys.modules.update(kept)


class Endless(Exception):
    """A mutant does not end in time."""


@contextmanager
def limited():
    def stop(number, frame):
        raise Endless(f"no end within {_SECONDS} s")

    previous = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, _SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, previous)


def caught(mutant, *files):
    """The failure of a vector under the mutant, or None; files: of tests/device, with functions
    that check vectors.

    A mutant that does not end counts as caught.
    """
    with imported(mutant), limited():
        for file in files:
            for name, check in runpy.run_path(str(DEVICE_TESTS / file)).items():
                if name.startswith("test_") and "vectors" in name:
                    try:
                        check()
                    except BROKEN:
                        raise
                    except Exception as failure:
                        return f"{file}, {name}: {failure!r}"
    return None
