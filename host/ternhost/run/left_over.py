"""What a run leaves that is killed while it begins: a directory without run.json.

No device was asked anything yet, so that nothing is lost with it. The name can be used again.
"""

import re
import shutil
from contextlib import suppress
from pathlib import Path

from ternhost.errors import StorageError
from ternhost.store import store_file
from ternhost.store.runs import PREPARING
from ternhost.store.store import Store

# The files that a run makes as it begins: its store, with those of SQLite beside it, and run.json
# while it is being written.
_FILES = re.compile(rf"{re.escape(store_file.NAME)}(-lock|-wal|-shm|-journal)?|\.run-\d+\.json")


def remove(directory: Path) -> bool:
    """Remove a directory that a killed run has left, and return whether it was one."""
    if not _is_left_over(directory):
        return False
    shutil.rmtree(directory, ignore_errors=True)
    return True


def _is_left_over(directory: Path) -> bool:
    """Return whether a directory has nothing but the beginnings of a run that asked no device."""
    if directory.is_symlink() or not directory.is_dir():
        return False
    if not all(_FILES.fullmatch(path.name) and path.is_file() for path in directory.iterdir()):
        return False
    store = directory / store_file.NAME
    return not store.exists() or _is_unused(store)


def _is_unused(path: Path) -> bool:
    """Return whether a store has no devices and no rounds, and no process uses it."""
    if path.stat().st_size == 0:
        return not store_file.in_use(path)
    with suppress(StorageError), Store(path, create=False) as store:
        return not store.keys() and store.last_round() == 0
    return False


def forget(store: Store, name: str | None, parent: Path) -> None:
    """Forget the run of this name in a store that was killed before it had written run.json.

    name: of the run that is to begin now; None: it has none. parent: of the directories of runs.
    """
    if name is None:
        return
    run = store.run(name)
    directory = parent / name
    if run is None or run.status != PREPARING:
        return
    if not directory.exists() or _is_left_over(directory):
        store.forget_run(name)
