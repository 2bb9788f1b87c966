"""What tests check of a call, on every interpreter: which exception it raises, and how much of the heap it takes."""

import gc

from tern.compat import MICROPYTHON


def raises(kind, function, *args):
    """The exception of this kind that the call raises; it fails where there is none."""
    try:
        function(*args)
    except kind as error:
        return error
    raise AssertionError("nothing was raised")


def without_heap(function):
    """Call it where an allocation raises MemoryError; on CPython it is only called."""
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
