"""What a call takes of the heap, on MicroPython: on CPython it is only called."""

import gc

from tern.compat import MICROPYTHON


def without_heap(function):
    """Call it where an allocation raises MemoryError."""
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
