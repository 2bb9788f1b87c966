"""The folder sessions/<time>/ in which a command of measurements or tests leaves its results."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Mapping
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ternhost.command import print_result
from ternhost.run.directory import new_directory
from ternhost.terminal import Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Session:
    """The folder of one run of a command, with a log and the results.

    It is made when the first line of the log is written, so that a command that is refused leaves none.
    """

    def __init__(self, parent: str | Path = "sessions") -> None:
        self._parent = Path(parent)

    @cached_property
    def directory(self) -> Path:
        """The folder, made at the first use. Raises StorageError if that fails."""
        folder = new_directory(parent=self._parent, hint="name another place with --sessions")
        tern_version = version("tern-ldp")
        python_version = platform.python_version()
        _log(folder, f"tern {tern_version}, {platform.platform()}, Python {python_version}")
        return folder

    def finish(
        self,
        name: str,
        result: Mapping[str, Any],
        text: str,
        pictures: Mapping[str, Figure],
        as_json: bool,
    ) -> None:
        """Write the result as NAME.json and NAME.txt, write the pictures, and print the result.

        text: the result for people. pictures: by the names of their files, without ".png". as_json: print
        the result as JSON instead of the text. Raises StorageError.
        """
        from ternhost.plots import canvas  # takes long to import

        (self.directory / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
        (self.directory / f"{name}.txt").write_text(text + "\n")
        for title, figure in pictures.items():
            canvas.save(figure, self.directory / f"{title}.png")
        printed = {**result, "directory": str(self.directory)}
        print_result(printed, f"{text}\nall of it is in {self.directory}", as_json)


class SessionProgress(Progress):
    """Shows the progress of a session on standard error, and writes it to the session's log."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session

    def say(self, text: str) -> None:
        """Log a step, and show it."""
        _log(self._session.directory, text)
        super().say(text)


def _log(directory: Path, line: str) -> None:
    """Append a line with the time of day to the log in a session's folder."""
    with open(directory / "log.txt", "a", encoding="utf-8") as log:
        log.write(f"{time.strftime('%H:%M:%S')} {line}\n")
