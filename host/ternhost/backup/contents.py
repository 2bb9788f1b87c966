"""Which files belong into a backup.

A backup has what a host cannot make again: keys, rounds, reports and models, certificates,
passwords and settings. It leaves out what belongs to a running program, and every board: an old
ledger of a board would give back budget that the board has spent (shared_specs/ledger.md).
"""

import os
from dataclasses import dataclass, field
from pathlib import Path

from tern import storage
from ternhost.backup import stores
from ternhost.backup.manifest import RUNS, STORE_OUTSIDE
from ternhost.errors import UsageError
from ternhost.files import storage_errors
from ternhost.provision.boards import FLEET_NAME
from ternhost.reach.broker import mosquitto_files
from ternhost.reach.broker.access import HOST, Access
from ternhost.run.directory import PACKED_NAME, directory_of
from ternhost.store import last_backup, store_file
from ternhost.store.runs import StoredRun

# Of Mosquitto: its process, its log, and the messages that it holds, also in databases that are
# called mosquitto.db.new or mosquitto.db.damaged. Boards say again who they are, and the host asks
# again.
_OF_MOSQUITTO = frozenset({mosquitto_files.PID, mosquitto_files.LOG})
_DATABASES_OF_MOSQUITTO = mosquitto_files.DATABASE  # how their names begin
# What SQLite has beside a database.
_BESIDE_STORES = ("-wal", "-shm", "-lock", "-journal")


@dataclass
class Contents:
    """The files to be saved, by their names in the archive."""

    files: dict[str, Path] = field(default_factory=dict)  # to be copied as they are
    databases: dict[str, Path] = field(default_factory=dict)  # of SQLite
    runs: dict[str, str] = field(default_factory=dict)  # by a run's name its folder in the archive
    boards: int = 0  # how many directories of boards were left out


def contents_of(directory: Path) -> Contents:
    """Find what belongs into a backup of a directory: of a broker, of a store, or of a run.

    Files elsewhere that belong to it are included: the store that the broker's host.json names, and
    the directories of the store's runs. Raises UsageError if the directory is none of these.
    """
    if not directory.is_dir():
        raise UsageError(f"there is no directory {directory}")
    contents = Contents()
    with storage_errors():
        _add_tree(contents, directory, prefix="")
    _add_store_of_broker(contents, directory)
    if not contents.databases:
        raise UsageError(
            f"{directory} has no store", hint="name the directory of a broker or of a store"
        )
    for path in list(contents.databases.values()):
        _add_runs(contents, directory, path)
    return contents


def _add_tree(contents: Contents, directory: Path, prefix: str) -> None:
    """Add the files below a directory. prefix: of their names in the archive. Raises OSError."""
    for folder, folders, names in os.walk(directory, onerror=_raise):
        if storage.CLIENTS in names:
            contents.boards += 1
            folders.clear()
            continue
        boards = [name for name in folders if (Path(folder, name) / storage.CLIENTS).is_file()]
        if Path(folder).name == FLEET_NAME and boards:  # what else is in it is about these boards
            contents.boards += len(boards)
            folders.clear()
            continue
        if PACKED_NAME in names:
            contents.boards += 1
        folders.sort()
        for name in sorted(names):
            path = Path(folder, name)
            if _is_left_out(path):
                continue
            name_in_archive = prefix + path.relative_to(directory).as_posix()
            if store_file.is_sqlite(path):
                contents.databases[name_in_archive] = path
            else:
                contents.files[name_in_archive] = path


def _raise(error: OSError) -> None:
    raise error


def _is_left_out(path: Path) -> bool:
    """Return whether a file is of a running program, temporary, or not a regular one."""
    name = path.name
    is_of_mosquitto = name in _OF_MOSQUITTO or name.startswith(_DATABASES_OF_MOSQUITTO)
    is_of_program = is_of_mosquitto or name.endswith(_BESIDE_STORES)
    is_made_anew = name in (PACKED_NAME, last_backup.NAME)
    is_temporary = name.startswith(".")
    return is_of_program or is_made_anew or is_temporary or not path.is_file()


def _add_store_of_broker(contents: Contents, directory: Path) -> None:
    """Add the store that the host.json of a directory names, unless it is there already."""
    if not (directory / HOST).exists():
        return
    store = Access.load(directory / HOST).store
    if store is None or not Path(store).is_file():
        return
    found = Path(store).resolve()
    same = [name for name, path in contents.databases.items() if path.resolve() == found]
    place = Path(os.path.realpath(Path(store).parent), Path(store).name)
    if place.is_relative_to(directory.resolve()) and same:
        return
    # A link in the directory may lead to this store, too. If it were restored in place of the link,
    # the broker would not use it.
    for name in same:
        del contents.databases[name]
    contents.databases[STORE_OUTSIDE] = found


def _add_runs(contents: Contents, directory: Path, store: Path) -> None:
    """Note where the runs of a store are, and add the directories of those that are elsewhere."""
    for name, options in stores.options_of_runs(store).items():
        run = StoredRun(name, began=0.0, status="", asked=options, state={})
        run_directory = directory_of(run, store).resolve()
        if run_directory.is_relative_to(directory.resolve()):
            contents.runs[name] = run_directory.relative_to(directory.resolve()).as_posix()
            continue
        contents.runs[name] = f"{RUNS}/{name}"
        if run_directory.is_dir():
            with storage_errors():
                _add_run(contents, run_directory, prefix=f"{RUNS}/{name}/")


def _add_run(contents: Contents, run_directory: Path, prefix: str) -> None:
    """Add the files of a run that is elsewhere, but no store that is there."""
    of_run = Contents()
    _add_tree(of_run, run_directory, prefix)
    contents.files |= of_run.files
    contents.boards += of_run.boards
