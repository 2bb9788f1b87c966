"""The device's side of a test, on MicroPython. Lines that begin with `mark` are for the host.

`mark start NAME` precedes the test's output, `mark pass NAME` or `mark fail NAME` follows.
"""

import gc
import os
import sys

# Where a test may leave files. On a Pico a folder alone takes 8 KB of 1.4 MB.
_FOLDER = "tern-tests"


def run(mark, module_name, name):
    """Run the function `name` of a module, whatever it raises."""
    remove(_FOLDER)  # of a test that was cut off
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
    """Remove a file, or a folder with its content, if it is there. path: text or bytes."""
    try:
        is_folder = os.stat(path)[0] & 0x4000
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
    """Undo what a test that failed under micropython.heap_lock() left behind."""
    import micropython

    micropython.heap_lock()
    while micropython.heap_unlock():
        pass
