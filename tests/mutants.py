"""Wrong implementations: a module of the library with some of its text replaced, against the published vectors.

Whoever writes a device from the specs checks it with the vectors alone. So each likely mistake must fail there, and not
only in our own tests. What checks the vectors are the functions of tests/device that have `vectors` in their names.
"""

import importlib.util
import runpy
import signal
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_SECONDS = 20  # of the processor; the right library takes less than 2
DEVICE_TESTS = Path(__file__).parent / "device"
LIBRARY = Path(__file__).parents[1] / "firmware" / "tern"

# A mutant that ends so is no program, rather than one that computes something else.
BROKEN = (NameError, ImportError, AttributeError, TypeError, SyntaxError)


@dataclass(frozen=True)
class Wrong:
    """`module` (tern.card) with the text `right`, which it has once, replaced; empty: the module as it is."""

    what: str
    module: str
    right: str
    wrong: str


@contextmanager
def imported(mutant):
    """Within it, what is imported of the library uses the mutant; everything is imported anew, and restored after."""
    folders = (str(LIBRARY), str(DEVICE_TESTS))
    kept = {
        n: m for n, m in sys.modules.items() if str(getattr(m, "__file__", None) or "").startswith(folders)
    }
    for name in kept:
        del sys.modules[name]
    try:
        path = LIBRARY.parent / (mutant.module.replace(".", "/") + ".py")
        source = path.read_text()
        assert not mutant.right or source.count(mutant.right) == 1, (
            f"{mutant.what}: its text is not once in {mutant.module}"
        )
        module = importlib.util.module_from_spec(importlib.util.spec_from_file_location(mutant.module, path))
        sys.modules[mutant.module] = module
        exec(compile(source.replace(mutant.right, mutant.wrong, 1), str(path), "exec"), vars(module))
        yield
    finally:
        for name, module in [*sys.modules.items()]:
            if str(getattr(module, "__file__", None) or "").startswith(folders):
                del sys.modules[name]
        sys.modules.update(kept)


class Endless(Exception):
    """A mutant does not come to an end."""


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
    """What the vectors say against the mutant, None if nothing; files: those of tests/device that check them.

    A mutant that does not come to an end is caught, too: nobody mistakes it for a device.
    """
    with imported(mutant), limited():
        for file in files:
            for name, check in runpy.run_path(str(DEVICE_TESTS / file)).items():
                if name.startswith("test_") and "vectors" in name:
                    try:
                        check()
                    except BROKEN:
                        raise
                    except Exception as said:
                        return f"{file}, {name}: {said!r}"
    return None
