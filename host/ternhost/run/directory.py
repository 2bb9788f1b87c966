"""The directories of runs: their files, and how a run is found by its name, directory or store."""

import json
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from ternhost.errors import StorageError, TernError, UsageError
from ternhost.files import LONGEST_NAME, private, read_object, replacing, storage_errors, write_file
from ternhost.learn.schedule import Schedule, Terms
from ternhost.options import flag, values_of
from ternhost.provision.boards import FLEET_NAME
from ternhost.reach import fleet
from ternhost.run import left_over
from ternhost.store import store_file
from ternhost.store.runs import STOPPED, StoredRun, status_now
from ternhost.store.snapshot import is_endless
from ternhost.store.store import Store
from ternhost.text import did_you_mean

RUNS = Path("runs")
RESULT_NAME = "result.json"
RUN_NAME = "run.json"  # which run of which store this directory belongs to
PACKED_NAME = "fleet.tar.gz"
# Each round's entry in the history of a run has these; other numbers come from the algorithm.
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
    "radius",
    "rate",
    "spent",
}


def check_name(name: str | None) -> None:
    """Raise UsageError unless `name` can be the name of a run's directory (None: no name)."""
    if name is None:
        return
    is_one_part = Path(name).name == name and name.isprintable()
    if not is_one_part or name.startswith((".", "-")) or not name:
        raise UsageError(f"--name must be a name for a directory, not {name!r}")
    length = len(os.fsencode(name))
    if length > LONGEST_NAME:
        text = f"--name must have at most {LONGEST_NAME} bytes, not {length}"
        raise UsageError(text, hint="give a shorter one")


def new_directory(
    name: str | None = None,
    parent: Path = RUNS,
    taken: Collection[str] = (),
    hint: str = "change to a directory that you may write to",
) -> Path:
    """Make a new directory for a run in `parent`, and return its path.

    name: of the directory; None: the present time, followed by a number if that name is in use.
    taken: names that the directory must not have, even though there are no such directories.
    hint: what the StorageError advises if the directory cannot be made. Raises UsageError if `name`
    is in use.
    """
    check_name(name)
    stem = name or time.strftime("%Y%m%d-%H%M%S")
    names = [stem]
    if not name:
        names += [f"{stem}-{number}" for number in range(2, 100)]
    with storage_errors(hint, f"cannot make a directory in {parent.absolute()}"):
        parent.mkdir(parents=True, exist_ok=True)
        for candidate in names:
            if candidate in taken:
                continue
            directory = parent / candidate
            left_over.remove(directory)
            with suppress(FileExistsError):
                directory.mkdir()
                return directory
    raise UsageError(
        f"there is a run {stem} already",
        hint="give another --name, or go on with that one: tern resume, or the same "
        "'tern serve' (--store ...)",
    )


def remove(directory: Path) -> None:
    """Remove the directory of a run, and also its parent if that is empty then."""
    shutil.rmtree(directory, ignore_errors=True)
    with suppress(OSError):
        directory.parent.rmdir()  # fails if something else is in it


@dataclass(frozen=True)
class RunFiles:
    """Where the files of a run are.

    name: under which the store knows the run.
    """

    directory: Path
    store: Path
    name: str

    def write(self) -> None:
        """Write run.json, which says to which run of which store the directory belongs.

        Raises StorageError.
        """
        store = self.store.resolve()
        # The relative path is still right after the directory and the store were moved together.
        relative = os.path.relpath(store, self.directory.resolve())
        content = {"name": self.name, "store": relative, "store_was": str(store)}
        write_json(self.directory / RUN_NAME, content, afterwards="then begin the run again")

    def make(self) -> None:
        """Make the directory and run.json again if they are missing. Raises StorageError."""
        with storage_errors(what=self.directory):
            self.directory.mkdir(exist_ok=True)
        if not (self.directory / RUN_NAME).exists():  # killed before it was written, or removed
            self.write()

    @classmethod
    def read(cls, directory: Path) -> Self:
        """Read run.json in the directory of a run.

        Raises StorageError if it cannot be read, UsageError if it does not name a run.
        """
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
    """Find the run that the user wants to resume.

    text: the name of the run's directory in `parent`, the path of this directory, a store, or a
    directory that has exactly one store. Raises UsageError if there is no such run, or if the store
    has several runs that it could be.
    """
    if not text:
        raise UsageError("the name of a run must not be empty", hint="'tern runs' lists the runs")
    for directory in (Path(text), parent / text):
        if (directory / RUN_NAME).is_file():
            return RunFiles.read(directory)
    path = Path(text)
    if not path.exists():
        path = parent / text  # where a run that was killed as it began has left its store
    if path.is_dir():
        stores = store_file.stores_in(path)
        if len(stores) == 1:
            path = stores[0]
    if not path.is_file():
        raise UsageError(f"there is no run {text!r}", hint=hint_for_name(text, parent))
    run = _only_run(path)
    return RunFiles(directory_of(run, path), path, run.name)


def hint_for_name(text: str, parent: Path) -> str:
    """Return what a user can do who names a run that does not exist.

    text: its name. parent: the directory of all runs.
    """
    names = sorted(path.parent.name for path in parent.glob(f"*/{RUN_NAME}"))
    suggestion = did_you_mean(text, names)
    if suggestion:
        return f"{suggestion} 'tern runs' lists the runs"
    return "'tern runs' lists the runs"


def _only_run(path: Path) -> StoredRun:
    """Return the unfinished run of the store at `path`, or its last run if all have finished.

    Raises UsageError if the store has no run, or several unfinished ones.
    """
    with Store(path, create=False, beside=True) as store:
        runs = store.runs()
    if not runs:
        raise UsageError(
            f"{path} holds no run",
            hint="begin one, or begin one again that was killed at once: tern train --help",
        )
    unfinished = [run for run in runs if run.unfinished]
    if len(unfinished) > 1:
        names = ", ".join(run.name for run in unfinished)
        text = f"{path} holds several runs that have not finished: {names}"
        raise UsageError(text, hint="name one of them")
    if unfinished:
        return unfinished[0]
    return runs[-1]


def directory_of(run: StoredRun, store: Path) -> Path:
    """Return the directory of a run, even if it was moved together with its store.

    store: the path of the store. If the run is not in the directory in which it began, it is
    sought in the store's directory and in the directories beside that.
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


def write_json(path: Path, content: Any, afterwards: str) -> None:
    """Write `content` to a JSON file; if that fails, the old file stays.

    afterwards: what the user can do once the reason of a failure is gone, as in `storage_errors`.
    Raises StorageError.
    """
    with storage_errors(what=path, afterwards=afterwards):
        write_file(path, json.dumps(content, indent=1).encode() + b"\n")


def pack_boards(directory: Path, warn: Callable[[str], None]) -> None:
    """Replace the files of a finished run's emulated boards, which may be many, by one archive.

    directory: of the run. warn: is called with a message if that fails; then the files stay.
    """
    boards = directory / FLEET_NAME
    packed = directory / PACKED_NAME
    if shutil.which("tar") is None:
        warn(
            f"the boards' files stay in {boards}: the program tar, which packs them, is not installed"
        )
        return
    # The program tar, since Python's tarfile looks up the names of the owner and the group of every
    # single file, which takes ten times as long. Without `-f -` it may write to a tape instead: that
    # of the variable TAPE, or the usual one of the system.
    command = ["tar", "-czf", "-", "-C", str(directory), FLEET_NAME]
    try:
        with (
            replacing(packed) as new_path,
            open(new_path, "wb", opener=private) as file,  # it has the devices' keys
        ):
            subprocess.run(
                command, stdout=file, stderr=subprocess.PIPE, check=True, errors="replace"
            )
        shutil.rmtree(boards)
    except OSError as error:
        warn(f"the boards' files stay in {boards}: {error.strerror}")
    except subprocess.CalledProcessError as error:
        warn(f"the boards' files stay in {boards}: {error.stderr.strip()}")


def existing_place(place: str | Path) -> Path:
    """Return the path of a directory or store whose runs are to be listed.

    Raises UsageError if it does not exist, unless it is the default directory, `RUNS`: before the
    first run, that is not there.
    """
    path = Path(place)
    if not path.exists() and path != RUNS:
        raise UsageError(f"there is no directory or store {place}")
    return path


def list_runs(parent: Path = RUNS) -> list[dict[str, Any]]:
    """Return a summary of each run in a place, as dicts for JSON, the oldest run first.

    parent: a store, the directory of a run, or a directory that has such directories. Raises
    StorageError for a file that is no store.
    """
    if parent.is_file():
        return _sort_by_age(_summarise_store(parent))

    summaries: dict[str, dict[str, Any]] = {}  # by directory
    for path in sorted((*parent.glob(RUN_NAME), *parent.glob(f"*/{RUN_NAME}"))):
        if not path.is_file():  # a run may be named run.json, and then this is its directory
            continue
        directory = path.parent
        summary = _summarise_directory(directory)
        if summary is not None:
            summaries[str(directory.resolve())] = summary
    # A run whose directory is elsewhere is only found through its store.
    for path in store_file.stores_in(parent):
        for summary in _summarise_store(path):
            resolved = str(Path(summary["directory"]).resolve())
            if resolved not in summaries:
                summaries[resolved] = summary
    return _sort_by_age(summaries.values())


def _summarise_directory(directory: Path) -> dict[str, Any] | None:
    """Return a summary of the run of a directory, or None if its store does not have the run.

    If run.json or the store cannot be read, the `status` of the summary says why.
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
    """Sort summaries of runs, the oldest first; those that could not be read come before all."""
    return sorted(summaries, key=lambda summary: float(summary.get("began", 0)))


def _summarise_store(path: Path) -> list[dict[str, Any]]:
    """Return a summary of each run in the store at `path`."""
    with Store(path, create=False, beside=True) as store:
        return [_summary(store, run, directory_of(run, path)) for run in store.runs()]


def resume_command(run: StoredRun, store: Path) -> str:
    """Return the command with which the user can resume a run. store: the path of its store."""
    schedule = run.asked["schedule"]
    if schedule is None:
        return f"tern resume {shlex.quote(run.name)}"

    # A served run takes its schedule and its terms from the options of each start.
    fleet_now = _fleet_now(run.asked["fleet"], store)
    words = ["tern", "serve", "--fleet", fleet_now]
    if store.resolve() != _default_store(fleet_now):
        words += ["--store", os.path.relpath(store)]
    stored = {**schedule, **run.asked["terms"]}
    for name, default in {**values_of(Schedule()), **values_of(Terms())}.items():
        value = stored.get(name, default)
        if value != default:
            words += [flag(name), str(value)]
    return shlex.join(words)


def _fleet_now(fleet_text: str, store: Path) -> str:
    """Return the name of a run's fleet, which may have moved together with the run's store.

    fleet_text: the fleet as the run was given it.
    """
    with suppress(TernError):  # its directory may be gone
        return fleet.parse(fleet_text).moved_with(store) or fleet_text
    return fleet_text


def _default_store(fleet_text: str) -> Path | None:
    """Return the path of a fleet's own store; None if it has none, or if it is of no known kind.

    fleet_text: the fleet as `--fleet` names it.
    """
    with suppress(UsageError):
        path = fleet.parse(fleet_text).default_store
        if path is not None:
            return path.resolve()
    return None


def _summary(store: Store, run: StoredRun, directory: Path) -> dict[str, Any]:
    """Return a summary of a run for JSON: where it is, how far it is, and what it guarantees."""
    status = status_now(run.status, store.path)
    resume = None
    if status == STOPPED:
        resume = resume_command(run, store.path)
    learning = run.asked["learning"]
    return {
        "run": run.name,
        "directory": str(directory),
        "store": str(store.path),
        "began": run.began,
        "status": status,
        "resume": resume,
        "algorithm": run.asked["algorithm"],
        "data": learning.get("data"),
        "fleet": run.asked["fleet"],
        "rounds": run.state.get("rounds", 0),
        "reports": run.state.get("reports", 0),
        "guarantees": run.state.get("guarantees") or [],
        "endless": is_endless(
            run.asked["schedule"], run.asked.get("references") or {}, run.state.get("rounds", 0)
        ),
        "figures": figures_of(store.last_entry(run.name)),
    }


def figures_of(entry: Mapping[str, Any] | None) -> dict[str, float]:
    """Return the numbers that the algorithm computed in a round, such as its model's accuracy.

    entry: the round in the history of a run; None: no round has ended yet. The result is by name.
    """
    if entry is None:
        return {}
    figures = {}
    for name, value in entry.items():
        if name not in _COMMON_KEYS and isinstance(value, (int, float)):
            figures[name] = value
    return figures
