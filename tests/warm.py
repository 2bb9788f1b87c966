"""Python processes for tests, forked from one that has imported the host, which takes a new
interpreter a second.

`run` and `Popen` behave as in `subprocess`: the process is a child of the test's, with its own
pipes, signals and exit code. They fork for `[sys.executable, "-c" or a script, ...]`, and execute
any other command.
"""

import atexit
import ctypes
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress

# Modules that most commands import later, beside those of all commands.
_PREPARED = (
    "cryptography.x509",
    "gmqtt",
    "matplotlib.backends.backend_agg",
    "matplotlib.figure",
    "scipy.linalg",
    "scipy.optimize",
    "scipy.special",
)
TERN = [
    sys.executable,
    "-c",
    "import sys; from ternhost.cli import main; sys.exit(main())",
]  # the command
_SUBREAPER = 36  # of prctl(2)
_libc = ctypes.CDLL(None)
_server = []  # the socket of this process's server
_code = []  # the exit code of a forked process that ends by itself


class Popen(subprocess.Popen):
    """As `subprocess.Popen`."""

    def _execute_child(self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, *rest):
        plain = not (isinstance(args, str) or executable or preexec_fn or pass_fds or env)
        words = [os.fspath(word) for word in args] if plain else []
        if words[:1] != [sys.executable] or (words[1].startswith("-") and words[1] != "-c"):
            super()._execute_child(
                args, executable, preexec_fn, close_fds, pass_fds, cwd, env, *rest
            )
            return
        pipes, start_new_session = rest[3:9], rest[14]
        files = [
            end if end != -1 else number
            for number, end in enumerate((pipes[0], pipes[3], pipes[5]))
        ]
        self.pid = _fork(words[1:], os.fspath(cwd or os.getcwd()), start_new_session, files)
        self._child_created = True
        self._close_pipe_fds(*pipes)


def run(command, *, capture_output=False, timeout=None, check=False, **options):
    """As `subprocess.run`."""
    if capture_output:
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Popen(command, **options) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(command, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


def _fork(words, cwd, start_new_session, files):
    if not _server:
        here, there = socket.socketpair()
        with there:
            subprocess.Popen(
                [sys.executable, __file__, str(there.fileno())], pass_fds=[there.fileno()]
            )
        _server.append(here)
    request = json.dumps([words, cwd, dict(os.environ), start_new_session]).encode()
    with _adopting():
        socket.send_fds(_server[0], [len(request).to_bytes(4, "little")], files)
        _server[0].sendall(request)
        return int.from_bytes(_exactly(_server[0], 4), "little")


@contextmanager
def _adopting():
    """Adopt descendants of this process that lose their parent."""
    _libc.prctl(_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        _libc.prctl(_SUBREAPER, 0, 0, 0, 0)


def _exactly(connection, count):
    data = b""
    while len(data) < count:
        if not (part := connection.recv(count - len(data))):
            raise ConnectionError("the other end is gone")
        data += part
    return data


def _serve(connection):
    """Fork a process for each request; return in the forked process, with the words of its program."""
    from ternhost.cli.tree import build_parser

    build_parser()
    for name in _PREPARED:
        with suppress(ImportError):  # of an extra
            importlib.import_module(name)
    gc.freeze()
    while True:
        head, files, *_ = socket.recv_fds(connection, 4, 3)
        if not head:
            os._exit(0)
        size = int.from_bytes(head, "little")
        words, cwd, environment, start_new_session = json.loads(_exactly(connection, size))
        receiving, sending = os.pipe()
        if "infer" in words:
            importlib.import_module("sklearn.metrics")
        if "dashboard" in words:
            os.environ["NICEGUI_STORAGE_PATH"] = os.devnull  # as the command does
            importlib.import_module("ternhost.watch.page.page")
        if not (between := os.fork()):  # the test's process adopts its child
            between = os.getpid()
            if child := os.fork():
                os.write(sending, child.to_bytes(4, "little"))
                os._exit(0)
            for end in (connection.detach(), receiving, sending):
                os.close(end)
            while os.getppid() == between:
                time.sleep(0.0005)
            _become(cwd, environment, start_new_session, files)
            return words
        os.waitpid(between, 0)
        connection.sendall(os.read(receiving, 4))
        for end in (receiving, sending, *files):
            os.close(end)


def _become(cwd, environment, start_new_session, files):
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    if start_new_session:
        os.setsid()


def _main():
    words = _serve(socket.socket(fileno=int(sys.argv[1])))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    atexit.register(_leave)  # registered first, it runs last
    try:
        if words[0] == "-c":
            sys.argv, sys.path[0] = ["-c", *words[2:]], ""
            exec(words[1], {"__name__": "__main__"})
        else:
            sys.argv, sys.path[0] = words, os.path.dirname(words[0])
            runpy.run_path(words[0], run_name="__main__")
        _code.append(0)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            _code.append(end.code or 0)
        raise


def _leave():
    """End at once: an interpreter takes a tenth of a second to unload all modules."""
    if _code:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(_code[0] & 255)


if __name__ == "__main__":
    _main()
