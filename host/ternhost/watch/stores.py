"""Finds the store that an argument of the command line names, without opening it."""

from contextlib import suppress
from pathlib import Path

from ternhost.errors import StorageError, UsageError
from ternhost.run.directory import RUN_NAME, RUNS, RunFiles

Shown = tuple[Path, str | None]  # a store, and the name of a run in it where the argument named one


def chosen(text: str | Path | None = None, parent: Path = RUNS) -> Shown:
    """Find the store that an argument of the command line names.

    text: a file, a run's directory or name, or a directory with runs, of which the newest is meant
    (default: `parent`). Raises UsageError if nothing has that name, StorageError if a run has lost
    its store.
    """
    path = parent if text is None else Path(text)
    for directory in (path, parent / path):
        if (directory / RUN_NAME).is_file():
            return _of_run(directory)
    if path.is_file():
        return path, None
    stores = sorted(path.glob("*.sqlite"))
    if len(stores) > 1:
        names = ", ".join(store.name for store in stores)
        raise UsageError(f"{path} has several stores: {names}", hint="name one of them")
    if stores:
        return stores[0], None
    if not path.is_dir() and text is not None:
        raise UsageError(
            f"there is no run or store {str(text)!r}", hint="'tern runs' lists the runs"
        )
    runs = _runs_in(path)
    if not runs:
        raise UsageError(
            f"there is no run in {path}", hint="begin one (tern train --help), or name a store"
        )
    return _of_run(runs[-1].parent)


def _runs_in(directory: Path) -> list[Path]:
    """The files of the runs in a directory, the newest last."""
    return sorted(directory.glob(f"*/{RUN_NAME}"), key=lambda run: run.stat().st_mtime)


def _of_run(directory: Path) -> Shown:
    """Return the store and the name of the run in this directory."""
    files = RunFiles.read(directory)
    if not files.store.is_file():
        raise StorageError(
            f"the store of {directory} is not at {files.store}", hint="name the store itself"
        )
    return files.store, files.name


def beside(store: Path) -> list[Path]:
    """List a store and the stores of the runs in the same directory, the newest last.

    Runs that cannot be read are left out.
    """
    stores = {store.resolve(): store}
    with suppress(OSError):
        for path in _runs_in(store.parent.parent):
            with suppress(UsageError, StorageError):
                other = RunFiles.read(path.parent).store
                if other.is_file():
                    stores.setdefault(other.resolve(), other)
    return list(stores.values())
