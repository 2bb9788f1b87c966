"""A process beside a benchmark, such as one that sends it reports."""

import multiprocessing

from ternhost.errors import DeviceError


class Child:
    """Runs `work(*arguments, pipe)` in a process of its own; pipe: a Connection to this one.

    A context manager: the process has sent its first message once it is entered, and it is killed
    at the end. Raises DeviceError(failure) if it ends before that message.
    """

    def __init__(self, work, arguments, failure):
        context = multiprocessing.get_context("spawn")
        self.pipe, end_of_child = context.Pipe()
        self._failure = failure
        self._process = context.Process(target=work, args=(*arguments, end_of_child), daemon=True)
        self._process.start()
        end_of_child.close()

    def __enter__(self):
        try:
            self.pipe.recv()
        except EOFError:
            raise DeviceError(self._failure, hint="see the messages above") from None
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.join()
