"""A session of measurements: a folder sessions/<time>/ with its log, its figures as JSON and its
pictures.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Sequence
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ternhost.command import print_result
from ternhost.run.directory import new_directory
from ternhost.terminal import Progress, duration

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Session:
    """The folder of one session, made with the first line of its log, so that a wrong command
    leaves none.
    """

    def __init__(self, parent: str | Path = "sessions") -> None:
        self._parent = Path(parent)

    @cached_property
    def directory(self) -> Path:
        made = new_directory(parent=self._parent, hint="name another place with --sessions")
        about = (
            f"tern {version('tern-ldp')}, {platform.platform()}, Python {platform.python_version()}"
        )
        _log(made, about)
        return made

    def finish(
        self,
        name: str,
        result: dict[str, Any],
        text: str,
        pictures: dict[str, Figure],
        as_json: bool,
    ) -> None:
        """Write and print the figures and the text for people; write the pictures.

        Raises StorageError.
        """
        from ternhost.run.report import plots  # takes long to import

        (self.directory / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
        (self.directory / f"{name}.txt").write_text(text + "\n")
        for title, figure in pictures.items():
            plots.save(figure, self.directory / f"{title}.png")
        result = {**result, "directory": str(self.directory)}
        print_result(result, f"{text}\nall of it is in {self.directory}", as_json)


class Telling(Progress):
    """The progress of a session, on standard error. What it says is also logged."""

    def __init__(self, session: Session, plan: Sequence[float] = ()) -> None:
        """plan: relative durations of the steps that say() begins, for an estimate of the time
        left.
        """
        super().__init__()
        self._session, self._plan = session, plan
        self._began: list[float] = []

    def say(self, text: str) -> None:
        _log(self._session.directory, text)
        self._began.append(time.monotonic())
        if done := sum(self._plan[: len(self._began) - 1]):
            left = (self._began[-1] - self._began[0]) * (sum(self._plan) - done) / done
            text += f" (about {duration(left)} left)"
        super().say(text)


def _log(directory: Path, line: str) -> None:
    with open(directory / "log.txt", "a", encoding="utf-8") as log:
        log.write(f"{time.strftime('%H:%M:%S')} {line}\n")
