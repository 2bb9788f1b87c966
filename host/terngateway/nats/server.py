"""Runs the NATS server of a directory that `tern gateway init` has written.

It is restarted when it ends.
"""

import os
import re
import signal
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

from terngateway.nats.directories import CONFIG, PROGRAM, Server, only_one, running
from terngateway.nats.line import next_pause
from ternhost import child_processes, programs
from ternhost.errors import UsageError

_LOG = "nats.log"
_LOCK = "server.lock"
_LARGEST_LOG = 1 << 24  # bytes; then it is emptied
_LOOK = 0.1  # seconds
_PATIENCE = 5.0  # seconds from SIGTERM to SIGKILL
_FATAL = re.compile(r"\[FTL\] (.*)|^nats-server: (.*)", re.M)


class NatsServer:
    """The process of a NATS server, in a process group of its own.

    A context manager that ends it.
    """

    def __init__(self, node: Path) -> None:
        """Prepare the server in the directory `node`, which entering the context starts.

        Raises DeviceError if nats-server is not installed.
        """
        self._program = programs.find(PROGRAM)
        self.node = node
        self._process: subprocess.Popen[bytes] | None = None
        self._trouble = ""
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._supervise, daemon=True)

    @property
    def pid(self) -> int | None:
        """The process id of the server; None while it does not run."""
        process = self._process
        if process is None or process.poll() is not None:
            return None
        return process.pid

    @property
    def condition(self) -> str:
        """A sentence on why the server does not run; "" while it does."""
        if self.pid:
            return ""
        trouble = self._trouble or "it is starting"
        return f"the NATS server in {self.node} does not run: {trouble}"

    def __enter__(self) -> Self:
        self._lock = only_one(self.node / _LOCK, "it runs this server already")
        self._lock.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()
        self._lock.__exit__(None, None, None)

    def _supervise(self) -> None:
        """Run the server again and again until the end, with a pause if it has ended soon."""
        pause = 0.0
        while not self._ending.wait(pause):
            began = time.monotonic()
            try:
                self._run()
            except OSError as error:  # it cannot be started now
                self._trouble = str(error)
            pause = next_pause(pause, time.monotonic() - began)

    def _run(self) -> None:
        """Run the server until it ends, or is to end, and keep the reason from its log.

        Raises OSError if it cannot be started.
        """
        left_over = running(self.node)
        if left_over is not None:  # by a command that was killed
            os.kill(left_over, signal.SIGTERM)
        log_path = self.node / _LOG
        with suppress(FileNotFoundError):
            log_path.replace(log_path.with_suffix(".log.1"))
        with open(log_path, "a+b") as log:
            self._process = process = child_processes.start(
                [str(self._program), "-c", CONFIG],
                cwd=self.node,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for its parent
            )
            while process.poll() is None and not self._ending.wait(_LOOK):
                if log.seek(0, os.SEEK_END) > _LARGEST_LOG:  # anybody can have it write
                    log.truncate(0)
            _end(process)
            log.seek(0)
            reasons = _FATAL.findall(log.read().decode(errors="replace"))
        self._trouble = f"exit code {process.returncode}"
        for logged, printed in reasons:  # the last one counts
            self._trouble = logged or printed


def _end(process: subprocess.Popen[bytes]) -> None:
    """Terminate a process, and kill it if it is still there after _PATIENCE seconds."""
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def node_of(place: str | Path) -> Path:
    """Return the directory of the NATS server to run: `place`, or the only one of a host.

    place: the directory of a server, of a host, or the one above it. Raises UsageError if the host
    has several servers on this machine, or none.
    """
    if (Path(place) / CONFIG).exists():
        return Path(place).absolute()
    nodes = [node for node in Server.load(place).nodes().values() if node.is_dir()]
    if len(nodes) == 1:
        return nodes[0]

    directories = ", ".join(str(node) for node in nodes)
    if not nodes:
        directories = "none here: run it where its directory was moved"
    text = f"{place} has {len(nodes)} NATS servers"
    raise UsageError(text, hint=f"name the directory of one: {directories}")
