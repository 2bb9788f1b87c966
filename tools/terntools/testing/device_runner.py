"""The device's side of a test run, on MicroPython. Lines that begin with `mark` are for the host.

`mark start NAME` precedes a test's output, `mark pass NAME` or `mark fail NAME` follows; `mark end FAILED` is the last.
"""

import gc
import os
import sys

_FOLDER = "tern-tests"  # where tests may leave files; on a Pico a folder alone takes 8 KB of 1.4 MB


def run(mark, module_name, names):
    """Run the functions `names` of a module, one after the other, whatever they raise."""
    failed = 0
    remove(_FOLDER)  # of a run that was cut off
    os.mkdir(_FOLDER)
    os.chdir(_FOLDER)
    module = __import__(module_name)
    for name in names:
        gc.collect()
        print(mark, "start", name)
        try:
            getattr(module, name)()
            print(mark, "pass", name)
        except Exception as error:
            _unlock_heap()
            failed += 1
            sys.print_exception(error)
            print(mark, "fail", name)
    os.chdir("..")
    remove(_FOLDER)
    print(mark, "end", failed)


def remove(path):
    """Remove a file or a folder with its content, if there is one."""
    try:
        is_folder = os.stat(path)[0] & 0x4000
    except OSError:  # nothing there
        return
    for name in os.listdir(path) if is_folder else ():
        remove(path + "/" + name)
    (os.rmdir if is_folder else os.remove)(path)


def _unlock_heap():
    """Undo what a test that failed under micropython.heap_lock() left behind."""
    import micropython

    micropython.heap_lock()
    while micropython.heap_unlock():
        pass


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2], sys.argv[3:])
