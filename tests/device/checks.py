"""Checks of a call on every interpreter.

Which exception it raises, how much heap it takes, and what it does without memory.
"""

import gc
import sys

from tern.compat import MICROPYTHON


def raises(kind, function, *args):
    """Return the exception of this kind that the call raises.

    Raises AssertionError if there is none.
    """
    try:
        function(*args)
    except kind as error:
        return error
    raise AssertionError("nothing was raised")


class replaced:
    """A context manager that gives attributes of `owner`, a module or an object, other values."""

    def __init__(self, owner, **attributes):
        self._owner = owner
        self._attributes = attributes

    def __enter__(self):
        self._saved = {}
        for name in self._attributes:
            if hasattr(self._owner, name):
                self._saved[name] = getattr(self._owner, name)
            setattr(self._owner, name, self._attributes[name])
        return self

    def __exit__(self, *_):
        for name in self._attributes:
            if name in self._saved:
                setattr(self._owner, name, self._saved[name])
            else:
                delattr(self._owner, name)


class FakeClock:
    """Stands in for the clock of modules: a test sets `ms`, and no time passes by itself."""

    def __init__(self, *users):
        self.ms = 0
        clock = {"ticks_ms": lambda: self.ms, "ticks_diff": lambda later, earlier: later - earlier}
        self._replaced = [replaced(user, **clock) for user in users]

    def __enter__(self):
        for each in self._replaced:
            each.__enter__()
        return self

    def __exit__(self, *_):
        for each in self._replaced:
            each.__exit__()


class FakeMachine:
    """Stands in for `machine` and `micropython`, and records what is done to the console.

    MicroPython imports an attribute of an object, and no method.
    """

    def __init__(self):
        calls = []
        self.calls = calls
        self.kbd_intr = lambda byte: calls.append("kbd_intr %d" % byte)
        self.reset = lambda: calls.append("reset")


class modules:
    """A context manager within which imports find these modules, by name.

    None as a module: the name is not imported yet.
    """

    def __init__(self, by_name):
        self._by_name = by_name

    def __enter__(self):
        self._saved = {name: sys.modules.pop(name, None) for name in self._by_name}
        self._set(self._by_name)

    def __exit__(self, *_):
        self._set(self._saved)

    def _set(self, by_name):
        """Put these modules into sys.modules, without those that are None."""
        for name, module in by_name.items():
            sys.modules.pop(name, None)
            if module:
                sys.modules[name] = module


def plain(program):
    """Return the program with `os` for `uos` and `machine` for `umachine`.

    Under the names with u, what is built into MicroPython cannot be replaced.
    """
    return program.replace(b"umachine", b"machine").replace(b"uos", b"os")


def no_memory(*arguments, **named):
    """Stands in for a function that finds the heap full."""
    raise MemoryError


def without_heap(function):
    """Call `function` where an allocation raises MemoryError; on CPython only call it."""
    if not MICROPYTHON:
        function()
        return
    import micropython

    micropython.heap_lock()
    try:
        function()
    finally:
        micropython.heap_unlock()


def taken_by(function):
    """Return how many bytes of the heap a call takes, garbage included; 0 on CPython."""
    if not MICROPYTHON:
        function()
        return 0
    gc.collect()
    gc.disable()
    try:
        before = gc.mem_alloc()
        function()
        return gc.mem_alloc() - before
    finally:
        gc.enable()
