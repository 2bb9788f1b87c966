"""The directories of runs: their files, and how a run is found by its name, directory or store."""

import json
import os
import shlex
import shutil
import tarfile
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from ternhost.errors import StorageError, UsageError
from ternhost.files import read_object, replacing, storage_errors, write_file
from ternhost.learn.base import ALGORITHMS, Learner
from ternhost.provision.boards import FLEET_NAME
from ternhost.store.runs import STOPPED, StoredRun, status_now
from ternhost.store.store import Store

RUNS = Path("runs")
RESULT_NAME = "result.json"
RUN_NAME = "run.json"  # which run of which store this directory belongs to
PACKED_NAME = "fleet.tar.gz"
# What every entry of the history has; the other numbers are figures of the algorithm.
_COMMON_KEYS = {
    "round",
    "began",
    "finished",
    "ended",
    "asked",
    "reports",
    "refusals",
    "reasons",
    "tau",
    "rate",
    "spent",
}


def check_name(name: str | None) -> None:
    """Raise UsageError unless this can be the name of a run's directory."""
    if name is None:
        return
    is_one_part = Path(name).name == name and name.isprintable()
    if not is_one_part or name.startswith((".", "-")) or not name:
        raise UsageError(f"--name must be a name for a directory, not {name!r}")


def new_directory(
    name: str | None = None,
    parent: Path = RUNS,
    taken: Collection[str] = (),
    hint: str = "change to a directory that you may write to",
) -> Path:
    """Make the directory of a run and return its path.

    name: None: the time, with a number behind it if that is in use. taken: names that the
    directory must not have. hint: of the StorageError if it cannot be made. Raises UsageError if
    the name is in use.
    """
    check_name(name)
    stem = name or time.strftime("%Y%m%d-%H%M%S")
    names = [stem]
    if not name:
        names += [f"{stem}-{i}" for i in range(2, 100)]
    with storage_errors(hint, f"cannot make a directory in {parent.absolute()}"):
        parent.mkdir(parents=True, exist_ok=True)
        for free_name in names:
            if free_name in taken:
                continue
            directory = parent / free_name
            with suppress(FileExistsError):
                directory.mkdir()
                return directory
    hint = "give another --name, or go on with that one: --resume, or the same tern serve (--store ...)"
    raise UsageError(f"there is a run {stem} already", hint=hint)


def remove(directory: Path) -> None:
    """Remove the directory of a run, and its parent where no other run is in it."""
    shutil.rmtree(directory, ignore_errors=True)
    with suppress(OSError):
        directory.parent.rmdir()


@dataclass(frozen=True)
class RunFiles:
    """Where a run is kept: its directory, its store, and its name in the store."""

    directory: Path
    store: Path
    name: str

    def write(self) -> None:
        """Write run.json. Raises StorageError."""
        store = self.store.resolve()
        # The relative path still holds if both are moved together.
        relative = os.path.relpath(store, self.directory.resolve())
        content = {"name": self.name, "store": relative, "store_was": str(store)}
        write_json(self.directory / RUN_NAME, content)

    def make(self) -> None:
        """Make the directory again if somebody has removed it. Raises StorageError."""
        with storage_errors(what=self.directory):
            self.directory.mkdir(exist_ok=True)

    @classmethod
    def read(cls, directory: Path) -> Self:
        """Read run.json of a directory. Raises UsageError, StorageError."""
        path = directory / RUN_NAME
        try:
            content = read_object(path)
            store = Path(os.path.normpath(directory / content["store"]))
            if not store.is_file():  # the directory was moved without its store
                store = Path(content["store_was"])
            return cls(directory, store, content["name"])
        except (KeyError, TypeError) as error:
            raise UsageError(f"{path} does not name a run: {error}") from error


def find(text: str, parent: Path = RUNS) -> RunFiles:
    """Find a run by what --resume names.

    text: the name of the run's directory in `parent`, its path, a store, or a directory with one
    store. Raises UsageError if there is no such run.
    """
    if not text:
        raise UsageError("--resume must name a run", hint="'tern runs' lists them")
    for directory in (Path(text), parent / text):
        if (directory / RUN_NAME).is_file():
            return RunFiles.read(directory)
    path = Path(text)
    if path.is_dir():
        stores = sorted(path.glob("*.sqlite"))
        if len(stores) == 1:
            path = stores[0]
    if not path.is_file():
        raise UsageError(f"there is no run {text!r}", hint="'tern runs' lists those that there are")
    run = _only_run(path)
    return RunFiles(directory_of(run, path), path, run.name)


def _only_run(path: Path) -> StoredRun:
    """Return the unfinished run of a store, or the last run if all have finished.

    Raises UsageError if there is no run, or more than one has not finished.
    """
    with Store(path, create=False, beside=True) as store:
        runs = store.runs()
    if not runs:
        raise UsageError(f"{path} holds no run", hint="begin one: tern train --help")
    unfinished = [run for run in runs if run.unfinished]
    if len(unfinished) > 1:
        names = ", ".join(run.name for run in unfinished)
        text = f"{path} holds several runs that have not finished: {names}"
        raise UsageError(text, "name one of them")
    if unfinished:
        return unfinished[0]
    return runs[-1]


def directory_of(run: StoredRun, store: Path) -> Path:
    """Return the directory of a run, also after it was moved together with its store.

    store: the path of the store, beside or in which the directory is sought.
    """
    saved = Path(run.asked["directory"])
    if saved.is_dir():
        return saved

    directories = [store.parent]
    directories += [path.parent for path in store.parent.parent.glob(f"*/{RUN_NAME}")]
    for directory in directories:
        with suppress(UsageError, StorageError):
            if RunFiles.read(directory).name == run.name:
                return directory
    return store.parent / run.name


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file, whole or not at all. Raises StorageError."""
    with storage_errors("make room, then go on with --resume", path):
        write_file(path, json.dumps(content, indent=1).encode() + b"\n")


def pack_boards(directory: Path, warn: Callable[[str], None]) -> None:
    """Pack the emulated boards of a finished run into one archive, instead of several files each.

    warn: gets a message if that fails; the files then stay as they are.
    """
    boards = directory / FLEET_NAME
    packed = directory / PACKED_NAME
    try:
        with (
            replacing(packed) as new_path,
            # It holds the devices' keys: only the owner may read it.
            open(os.open(new_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file,
            tarfile.open(fileobj=file, mode="w:gz", compresslevel=1) as archive,
        ):
            archive.add(boards, FLEET_NAME)
        shutil.rmtree(boards)
    except OSError as error:
        warn(f"the boards' files stay in {boards}: {error.strerror}")


def existing_place(place: str | Path) -> Path:
    """Return the directory or store whose runs are to be listed.

    Raises UsageError if it does not exist; only the default directory may be missing.
    """
    path = Path(place)
    if not path.exists() and path != RUNS:
        raise UsageError(f"there is no directory or store {place}")
    return path


def list_runs(parent: Path = RUNS) -> list[dict[str, Any]]:
    """Summarise each run of a store, of a run's directory, or of the directories below `parent`.

    Return a dict for JSON for each run, the oldest first. Raises StorageError for a file that is
    no store.
    """
    if parent.is_file():
        return _sort_by_age(_summarise_store(parent))

    summaries = {}  # by directory
    for path in sorted((*parent.glob(RUN_NAME), *parent.glob(f"*/{RUN_NAME}"))):
        directory = path.parent
        summary = _summarise_directory(directory)
        if summary is not None:
            summaries[str(directory.resolve())] = summary
    for path in sorted(parent.glob("*.sqlite")):
        for summary in _summarise_store(path):
            summaries.setdefault(str(Path(summary["directory"]).resolve()), summary)
    return _sort_by_age(summaries.values())


def _summarise_directory(directory: Path) -> dict[str, Any] | None:
    """Summarise the run of a directory; None if its store does not know the run.

    If run.json or the store cannot be read, the status says why.
    """
    try:
        files = RunFiles.read(directory)
        with Store(files.store, create=False, beside=True) as store:
            run = store.run(files.name)
            if run is None:
                return None
            return _summary(store, run, directory)
    except (StorageError, UsageError) as error:
        return {"run": directory.name, "directory": str(directory), "status": error.message}


def _sort_by_age(summaries: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(summaries, key=lambda summary: float(summary.get("began", 0)))


def _summarise_store(path: Path) -> list[dict[str, Any]]:
    with Store(path, create=False, beside=True) as store:
        return [_summary(store, run, directory_of(run, path)) for run in store.runs()]


def resume_command(run: StoredRun) -> str:
    """Return the command that resumes a run."""
    if run.asked["schedule"] is not None:
        return f"tern serve --fleet {shlex.quote(run.asked['fleet'])}"
    name = run.asked["algorithm"]
    learner = ALGORITHMS.get(name, Learner)
    return f"tern {learner.command} --resume {shlex.quote(run.name)}"


def _summary(store: Store, run: StoredRun, directory: Path) -> dict[str, Any]:
    """Summarise a run: where it is, how far it has come, and what it promises, for JSON."""
    status = status_now(run.status, store.path)
    learning = run.asked["learning"]
    return {
        "run": run.name,
        "directory": str(directory),
        "store": str(store.path),
        "began": run.began,
        "status": status,
        "resume": resume_command(run) if status == STOPPED else None,
        "algorithm": run.asked["algorithm"],
        "dataset": None if learning.get("dimension") else learning.get("dataset"),
        "fleet": run.asked["fleet"],
        "rounds": run.state.get("rounds", 0),
        "reports": run.state.get("reports", 0),
        "guarantees": run.state.get("guarantees") or [],
        "figures": figures_of(store.last_entry(run.name)),
    }


def figures_of(entry: Mapping[str, Any] | None) -> dict[str, float]:
    """Return the algorithm's figures of a round by name, such as the accuracy of its model.

    entry: of the history of a run; None: no round has ended yet.
    """
    if entry is None:
        return {}
    figures = {}
    for name, value in entry.items():
        if name not in _COMMON_KEYS and isinstance(value, (int, float)):
            figures[name] = value
    return figures
