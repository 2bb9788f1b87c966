"""A session of measurements: a folder sessions/<time>/ with its log, its figures as JSON and its pictures."""

from __future__ import annotations

import contextlib
import json
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ternhost.run.directory import new_directory
from ternhost.terminal import Progress, duration

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Session:
    """The folder of one session, made with the first line of its log, so that a wrong command leaves none."""

    def __init__(self, parent: str | Path = "sessions") -> None:
        self._parent = Path(parent)

    @cached_property
    def directory(self) -> Path:
        made = new_directory(parent=self._parent, hint="name another place with --sessions")
        about = f"tern {version('tern-ldp')}, {platform.platform()}, Python {platform.python_version()}"
        _log(made, about)
        return made

    @contextlib.contextmanager
    def telling(self, plan: Sequence[float] = ()) -> Iterator[Callable[[str], None]]:
        """A function that prints messages on standard error and adds them to the log.

        plan: relative durations of the steps that the messages begin, for an estimate of the time left.
        """
        began: list[float] = []
        with Progress() as progress:

            def say(line: str) -> None:
                _log(self.directory, line)
                began.append(time.monotonic())
                if done := sum(plan[: len(began) - 1]):
                    left = (began[-1] - began[0]) * (sum(plan) - done) / done
                    line += f" (about {duration(left)} left)"
                progress.say(line)

            yield say

    def finish(self, name: str, result: dict[str, Any], text: str, pictures: dict[str, Figure]) -> None:
        """Write the figures, the text for people, and the pictures. Raises StorageError."""
        from ternhost.run.report import plots  # takes long to import

        (self.directory / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
        (self.directory / f"{name}.txt").write_text(text + "\n")
        for title, figure in pictures.items():
            plots.save(figure, self.directory / f"{title}.png")


def _log(directory: Path, line: str) -> None:
    with open(directory / "log.txt", "a", encoding="utf-8") as log:
        log.write(f"{time.strftime('%H:%M:%S')} {line}\n")
