"""Restores a backup into a new directory, and prepares its stores for boards that know more."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from ternhost.backup import archive, stores
from ternhost.backup.manifest import STORE_OUTSIDE, Manifest, check_name
from ternhost.backup.working import working_directory
from ternhost.errors import StorageError, UsageError
from ternhost.files import storage_errors
from ternhost.reach.broker import configuration, sites
from ternhost.reach.broker.access import FLEET, HOST, OBSERVER, Access
from ternhost.run.directory import RunFiles
from ternhost.store import restored, round_numbers, schema, store_file
from ternhost.store.store import Store

_AFTERWARDS = "then restore it again"


@dataclass(frozen=True)
class RestoredBackup:
    """A backup that was restored."""

    directory: Path
    manifest: Manifest
    next_round: int  # the least number of the next round, of the store that has the largest one


def restore(path: Path, directory: Path) -> RestoredBackup:
    """Restore a backup into a directory that does not exist yet, or is empty.

    The directory appears as a whole, after everything in it was checked. Raises UsageError if it
    has files, or if `path` is not a backup; StorageError if the backup is damaged or cannot be
    written, or if another version of tern is needed to use it.
    """
    directory = directory.absolute()
    _check_target(directory)
    with _new_directory(directory) as work:
        manifest = archive.extract(path, work)
        if manifest.schema > schema.VERSION:
            raise UsageError(
                f"{path} was made by a later release of tern, {manifest.release}",
                hint="restore it with that release",
            )
        _check_stores(path, manifest, work)
        _move_outer_store(work)
        now = time.time()
        next_round = 1
        for name in manifest.stores:
            store_path = work / _place(name)
            next_round = max(next_round, _prepare(store_path, manifest, directory, now))
        if _is_central_broker(work):
            configuration.configure(work)  # passwords and rights as the keys in the store say
        _remove_locks(work, manifest)
    _write_runs(manifest, directory)
    return RestoredBackup(directory, manifest, next_round)


def _check_target(directory: Path) -> None:
    """Raise UsageError if something would be overwritten."""
    is_taken = directory.is_symlink() or directory.exists()
    if is_taken and not (directory.is_dir() and not any(directory.iterdir())):
        raise UsageError(
            f"{directory} is there already, and a restore overwrites nothing",
            hint="name a directory that does not exist",
        )


@contextmanager
def _new_directory(directory: Path) -> Iterator[Path]:
    """Yield a directory that becomes `directory` at the end; after an error nothing is left."""
    parent = directory.parent
    with storage_errors(what=directory, afterwards=_AFTERWARDS):
        parent.mkdir(parents=True, exist_ok=True)
        with working_directory(parent) as work:
            yield work
            os.replace(work, directory)


def _check_stores(path: Path, manifest: Manifest, work: Path) -> None:
    """Check every store of a backup. Raises StorageError if one is not as it was saved.

    A store that the manifest does not list would be used without being prepared.
    """
    for name in manifest.stores:
        if name not in manifest.files:
            raise StorageError(f"{path} lacks {name}", hint="use another backup")
    for name in manifest.files:
        saved = manifest.stores.get(name)
        if saved is None and not store_file.is_sqlite(work / name):
            continue
        found = stores.check(work / name, what=f"{name} in {path}")
        if found != saved:
            text = f"{name} in {path} holds {found}, not {saved}"
            raise StorageError(text, hint="use another backup")


def _place(name: str) -> str:
    """Return where a file of a backup is restored: below the directory, by its name there."""
    if name == STORE_OUTSIDE:
        return store_file.NAME
    return name


def _move_outer_store(work: Path) -> None:
    """Put a broker's store that was elsewhere into the directory, and name it in host.json."""
    outer = work / STORE_OUTSIDE
    if not outer.exists():
        return
    store_path = work / store_file.NAME
    os.replace(outer, store_path)
    for name in (HOST, OBSERVER):
        if (work / name).exists():
            access = Access.load(work / name)
            replace(access, store=str(store_path)).save(work / name)


def _prepare(store_path: Path, manifest: Manifest, directory: Path, now: float) -> int:
    """Prepare a store for its first use; return the least number of its next round.

    Its runs and their fleets get their new places. directory: where the backup will be.
    """
    with Store(store_path, create=False) as store:
        restored.mark(store, manifest.saved, now)
        next_round = round_numbers.last_number(store) + 1
        for run in store.runs():
            asked = dict(run.asked)
            asked["directory"] = str(_run_directory(manifest, run.name, directory))
            if asked.get("fleet") == FLEET + manifest.directory:
                asked["fleet"] = f"{FLEET}{directory}"
            store.save_run(run.name, asked=asked)
    return next_round


def _run_directory(manifest: Manifest, run: str, directory: Path) -> Path:
    """Return where the directory of a run will be. It always lies in the restored directory.

    Raises UsageError if the backup names no directory for the run, and the name of the run is not
    possible for a directory.
    """
    folder = manifest.runs.get(run)
    if folder is None:
        check_name(run)
        folder = run
    return directory / folder


def _is_central_broker(work: Path) -> bool:
    """Return whether a directory has a broker that takes its passwords from the keys in its store."""
    if not (work / HOST).exists() or sites.is_site(work):
        return False
    store = Access.load(work / HOST).store
    return store is not None and Path(store).is_file()


def _remove_locks(work: Path, manifest: Manifest) -> None:
    """Remove the files beside stores by which programs lock them: their names are of this place."""
    for name in manifest.stores:
        store_path = work / _place(name)
        store_path.with_name(f"{store_path.name}-lock").unlink(missing_ok=True)


def _write_runs(manifest: Manifest, directory: Path) -> None:
    """Write in the directory of each run which store has it, now that the store is in its place."""
    for name in manifest.stores:
        store_path = directory / _place(name)
        with Store(store_path, create=False, beside=True) as store:
            runs = store.runs()
        for run in runs:
            run_directory = _run_directory(manifest, run.name, directory)
            with storage_errors(what=run_directory):
                run_directory.mkdir(parents=True, exist_ok=True)
            RunFiles(run_directory, store_path, run.name).write()
