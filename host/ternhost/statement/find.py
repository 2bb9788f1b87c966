"""Finds the run, the store or the board that a privacy statement is to be about."""

import re
from pathlib import Path

from ternhost.errors import UsageError
from ternhost.run import directory as run_directory
from ternhost.statement import gather
from ternhost.statement.facts import Facts
from ternhost.store import store_file


def find(what: str) -> tuple[Facts, Path]:
    """Gather what a privacy statement says, and choose the default directory of its page.

    what: the name or the directory of a run, a store, a directory with one store, or a board. Raises
    UsageError if there is no such thing, and other errors of tern if it cannot be read.
    """
    # A run, by its directory or by its name.
    path = Path(what)
    for directory in (path, run_directory.RUNS / path):
        if (directory / run_directory.RUN_NAME).is_file():
            files = run_directory.RunFiles.read(directory)
            return gather.of_run(files), directory

    # A store, by its file or by its directory.
    if path.is_dir():
        stores = store_file.stores_in(path)
        if len(stores) != 1:
            text = f"{path} is neither a run nor the directory of one store"
            raise UsageError(text, hint="'tern runs' lists runs")
        path = stores[0]
    if path.is_file():
        return gather.of_store(path), Path(f"privacy-{_file_name(path.stem)}")

    # A board.
    try:
        return gather.of_board(what), Path(f"privacy-{_file_name(what)}")
    except UsageError as error:
        text = f"there is no run, no store and no board {what!r}: {error.message}"
        hint = "'tern runs' lists runs, 'tern board list' lists boards"
        raise UsageError(text, hint=hint) from error


def _file_name(name: str) -> str:
    """Return a name in which everything but letters, digits, "_", "." and "-" is replaced by "-".

    It can be a part of the name of a directory. If nothing is left, it is "statement".
    """
    safe_name = re.sub(r"[^\w.-]+", "-", name).strip("-.")
    return safe_name or "statement"
