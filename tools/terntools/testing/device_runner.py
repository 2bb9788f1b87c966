"""Runs a test function on a device (MicroPython), and prints its outcome for the host.

The lines for the host begin with `mark`, a word that no test prints. `mark start NAME` precedes
the test's output, and `mark pass NAME` or `mark fail NAME` follows it.
"""

import gc
import os
import sys

# Where a test may leave files. On a Pico a folder alone takes 8 KB of 1.4 MB.
_FOLDER = "tern-tests"


def run(mark, module_name, name):
    """Run the function `name` of a module in an empty folder; print whether it passes or raises an error.

    mark: begins the lines that are for the host.
    """
    remove(_FOLDER)  # it is there if an earlier test was cut off
    os.mkdir(_FOLDER)
    os.chdir(_FOLDER)
    module = __import__(module_name)
    gc.collect()
    print(mark, "start", name)
    try:
        getattr(module, name)()
        print(mark, "pass", name)
    except Exception as error:
        _unlock_heap()
        sys.print_exception(error)
        print(mark, "fail", name)
    os.chdir("..")
    remove(_FOLDER)


def remove(path):
    """Remove a file, or a folder with all that is in it. It need not be there.

    path: text or bytes.
    """
    try:
        is_folder = os.stat(path)[0] & 0x4000  # a bit of the mode
    except OSError:  # nothing there
        return
    if not is_folder:
        os.remove(path)
        return
    folder = path.encode() if isinstance(path, str) else path
    # Names are in bytes, since `folder` is: they need not be UTF-8.
    for name, *_ in list(os.ilistdir(folder)):
        remove(folder + b"/" + name)
    os.rmdir(path)


def _unlock_heap():
    """Let the heap be used again after a test that failed under micropython.heap_lock()."""
    import micropython

    # heap_unlock() returns how often the heap is still locked. Locking it once more makes sure
    # that there is a lock to undo.
    micropython.heap_lock()
    while micropython.heap_unlock():
        pass
