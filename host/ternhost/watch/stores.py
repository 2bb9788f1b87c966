"""Finds the store that an argument of the command line names, without opening it."""

from contextlib import suppress
from pathlib import Path

from ternhost.errors import StorageError, UsageError
from ternhost.run.directory import RUN_NAME, RUNS, RunFiles, hint_for_name
from ternhost.store import store_file

# A store, and the name of the run in it; None if the user did not name a run.
StoreAndRun = tuple[Path, str | None]


def find(text: str | Path | None = None, parent: Path = RUNS) -> StoreAndRun:
    """Find the store that an argument of the command line names.

    text: the file of a store, the directory or the name of a run, a directory with one store, or a
    directory with runs, of which the newest is taken. None stands for the directory `parent`.
    parent: where runs are looked for by name. Raises UsageError if nothing has that name,
    StorageError if a run has lost its store.
    """
    path = parent if text is None else Path(text)

    # A run, by its directory or by its name.
    for directory in (path, parent / path):
        if (directory / RUN_NAME).is_file():
            return _of_run(directory)

    # A store, by its file or by its directory.
    if path.is_file():
        return path, None
    stores = store_file.stores_in(path)
    if len(stores) > 1:
        names = ", ".join(store.name for store in stores)
        raise UsageError(f"{path} has several stores: {names}", hint="name one of them")
    if stores:
        return stores[0], None

    # A directory with runs.
    if not path.is_dir() and text is not None:
        hint = hint_for_name(str(text), parent)
        raise UsageError(f"there is no run or store {str(text)!r}", hint=hint)
    return _of_run(newest_run(path).directory)


def newest_run(parent: Path = RUNS) -> RunFiles:
    """Return the files of the newest run in a directory of runs. Raises UsageError if it has none."""
    run_files = _run_files_in(parent)
    if not run_files:
        raise UsageError(
            f"there is no run in {parent}", hint="begin one (tern train --help), or name a store"
        )
    return RunFiles.read(run_files[-1].parent)


def _run_files_in(directory: Path) -> list[Path]:
    """Return the files that describe the runs in a directory, the newest last."""

    def last_change(path: Path) -> float:
        """Return when a file was last changed, in seconds since 1970."""
        return path.stat().st_mtime

    paths = [path for path in directory.glob(f"*/{RUN_NAME}") if path.is_file()]
    return sorted(paths, key=last_change)


def _of_run(directory: Path) -> StoreAndRun:
    """Return the store and the name of the run in this directory."""
    files = RunFiles.read(directory)
    if not files.store.is_file():
        raise StorageError(
            f"the store of {directory} is not at {files.store}", hint="name the store itself"
        )
    return files.store, files.name


def with_neighbours(store: Path) -> list[Path]:
    """Return a store, and the stores of the runs whose directories are beside its own.

    The given store comes first, then the others, the newest last. Each store is listed once, and
    runs that cannot be read are left out.
    """
    stores = {store.resolve(): store}
    directory_of_runs = store.parent.parent
    with suppress(OSError):
        for run_file in _run_files_in(directory_of_runs):
            with suppress(UsageError, StorageError):
                other_store = RunFiles.read(run_file.parent).store
                resolved = other_store.resolve()
                if other_store.is_file() and resolved not in stores:
                    stores[resolved] = other_store
    return list(stores.values())
