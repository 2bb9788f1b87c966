"""The page as a process beside the one that runs the rounds: it takes none of its time, and ends with it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PATIENCE = 5.0


@contextmanager
def shown(run: Path, port: int | None = None, quiet: bool = False) -> Iterator[None]:
    """Serve the page of a run's directory meanwhile. quiet: its address is told on standard error.

    However this process ends, the other one sees that its standard input does, and ends too.
    """
    options = ["--while-stdin", *([] if port is None else ["--port", str(port)])]
    child = subprocess.Popen(
        [sys.executable, "-m", "ternhost", "dashboard", str(run), *options],
        stdin=subprocess.PIPE,
        stdout=sys.stderr if quiet else None,
        start_new_session=True,  # Ctrl-C ends the rounds, and only then the page
    )
    try:
        yield
    finally:
        assert child.stdin is not None
        child.stdin.close()
        try:
            child.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
