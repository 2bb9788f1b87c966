"""Finds the store that an argument of the command line names, without opening it."""

from contextlib import suppress
from pathlib import Path

from ternhost.errors import StorageError, UsageError
from ternhost.run.directory import RUN_NAME, RUNS, RunFiles

Shown = tuple[Path, str | None]  # a store, and the name of a run in it where the argument named one


def chosen(text: str | Path | None = None, parent: Path = RUNS) -> Shown:
    """Find the store of a file, of a run's directory or name, or of the newest run in a directory
    (default: `parent`). Raises UsageError, StorageError.
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
    runs = sorted(path.glob(f"*/{RUN_NAME}"), key=lambda run: run.stat().st_mtime)
    if not runs:
        raise UsageError(
            f"there is no run in {path}", hint="begin one (tern train --help), or name a store"
        )
    return _of_run(runs[-1].parent)


def _of_run(directory: Path) -> Shown:
    place = RunFiles.read(directory)
    if not place.store.is_file():
        raise StorageError(
            f"the store of {directory} is not at {place.store}", hint="name the store itself"
        )
    return place.store, place.name


def beside(store: Path) -> list[Path]:
    """That store and the stores of the runs in the same directory, the newest last."""
    stores = {store.resolve(): store}
    with suppress(OSError):
        for path in sorted(
            store.parent.parent.glob(f"*/{RUN_NAME}"), key=lambda run: run.stat().st_mtime
        ):
            with suppress(UsageError, StorageError):
                other = RunFiles.read(path.parent).store
                if other.is_file():
                    stores.setdefault(other.resolve(), other)
    return list(stores.values())
