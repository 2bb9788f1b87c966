"""Saves a host's directory, while its programs run."""

import os
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from ternhost.backup import archive, stores
from ternhost.backup.contents import Contents, contents_of
from ternhost.backup.manifest import Manifest, StoreFigures
from ternhost.backup.working import working_directory
from ternhost.errors import StorageError, UsageError
from ternhost.files import private, real, storage_errors
from ternhost.store import last_backup, schema

_MOST_ATTEMPTS = 10  # to copy the files while none of them changes
_PAUSE = 0.2  # seconds between two attempts
_AFTERWARDS = "then save it again"


@dataclass(frozen=True)
class Saved:
    """A backup that was made and checked."""

    path: Path
    manifest: Manifest
    size: int  # in bytes
    boards: int  # how many directories of boards were left out


def save(directory: Path, path: Path) -> Saved:
    """Save the directory of a broker, a store or a run into a new archive, and check that.

    Programs may use the directory meanwhile. Each database is copied as it is at one moment. The
    other files are copied at a moment between two changes of any of them.

    path: of the archive. An earlier backup there is replaced once the new one is complete. Raises
    UsageError and StorageError; then `path` is as before.
    """
    _check_target(directory, path)
    place = real(path)  # the working directory must be on the same disk
    with (
        storage_errors(what=path.parent, afterwards=_AFTERWARDS),
        working_directory(place.parent) as work,
    ):
        new_archive, copies = work / "archive", work / "copies"
        copies.mkdir()
        began = time.time()  # what comes later may be missing
        contents = _copy_files(directory, copies)
        figures = _copy_databases(contents, copies)
        sources = {name: copies / name for name in [*contents.files, *contents.databases]}
        manifest = _manifest(directory, contents, figures, sources, began)
        with storage_errors(what=path, afterwards=_AFTERWARDS):
            archive.write(new_archive, manifest, sources)
            os.replace(new_archive, place)
    for name in figures:
        with suppress(OSError):  # only a metric is missing then
            last_backup.note(contents.databases[name], began)
    return Saved(path, manifest, path.stat().st_size, contents.boards)


def _check_target(directory: Path, path: Path) -> None:
    """Raise UsageError if an archive at this path would overwrite something, or save itself."""
    if path.resolve().is_relative_to(directory.resolve()):
        raise UsageError(
            f"{path} is in the directory that it would save", hint="name a file elsewhere"
        )
    if not path.parent.is_dir():
        raise UsageError(f"there is no directory {path.parent}", hint="make it first")
    if path.exists():
        try:
            with archive.opened(path):
                return
        except (UsageError, StorageError) as error:
            text = f"{path} is there already, and is no backup that can be read"
            raise UsageError(text, hint="name another file") from error


def _copy_files(directory: Path, work: Path) -> Contents:
    """Copy the files that are no databases, until none of them has changed meanwhile.

    Return what belongs into the backup. Raises StorageError if they change all the time.
    """
    for _attempt in range(_MOST_ATTEMPTS):
        contents = contents_of(directory)
        before = _states(contents.files)
        with suppress(FileNotFoundError):  # a program has removed one: that is a change
            for name, source in contents.files.items():
                _copy_file(source, work / name)
            if before == _states(contents_of(directory).files):
                return contents
        time.sleep(_PAUSE)
    raise StorageError(
        f"files of {directory} change all the time", hint="save it when nobody provisions boards"
    )


def _states(files: Mapping[str, Path]) -> dict[str, tuple[int, int, int]]:
    """Return for each file what changes if it is written or replaced. Raises FileNotFoundError."""
    states = {}
    for name, path in files.items():
        status = path.stat()
        states[name] = (status.st_ino, status.st_size, status.st_mtime_ns)
    return states


def _copy_file(source: Path, target: Path) -> None:
    """Copy a file with its mode. Raises OSError."""
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    target.unlink(missing_ok=True)
    with open(source, "rb") as file, open(target, "xb", opener=private) as copy:
        shutil.copyfileobj(file, copy)
        os.fchmod(copy.fileno(), os.fstat(file.fileno()).st_mode & 0o777)


def _copy_databases(contents: Contents, work: Path) -> dict[str, StoreFigures]:
    """Copy the databases. Return what those hold that are stores of tern, by name."""
    figures = {}
    for name, source in contents.databases.items():
        target = work / name
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        copied = stores.copy(source, target)
        if copied is not None:
            figures[name] = copied
    return figures


def _manifest(
    directory: Path,
    contents: Contents,
    figures: Mapping[str, StoreFigures],
    sources: Mapping[str, Path],
    began: float,
) -> Manifest:
    """Return the manifest of a backup. sources: the copied files, by their names."""
    return Manifest(
        saved=began,
        release=version("tern-ldp"),
        schema=schema.VERSION,
        directory=str(directory.resolve()),
        files={name: archive.describe(source) for name, source in sources.items()},
        stores=figures,
        runs=contents.runs,
    )
