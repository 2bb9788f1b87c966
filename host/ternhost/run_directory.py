"""The directory of a run: its store, its result, and the emulated boards."""

from __future__ import annotations

import json
import os
import shutil
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ternhost.errors import StorageError, UsageError
from ternhost.store import Store

STORE_NAME = "store.sqlite"
RESULT_NAME = "result.json"
FLEET_NAME = "fleet"
PACKED_NAME = "fleet.tar.gz"


def new_directory(parent: str | Path = "runs") -> Path:
    """Make a directory for a run, named by the time. Raises StorageError."""
    name = time.strftime("%Y%m%d-%H%M%S")
    try:
        Path(parent).mkdir(parents=True, exist_ok=True)
        for suffix in ("", *(f"-{i}" for i in range(2, 100))):
            directory = Path(parent) / (name + suffix)
            try:
                directory.mkdir()
                return directory
            except FileExistsError:
                continue
    except OSError as error:
        raise StorageError(
            f"cannot make a directory in {parent}: {error.strerror}", hint="name another place with --store"
        ) from error
    raise StorageError(f"{parent} is full of runs of this second")


def store_path(path: str | Path) -> Path:
    """The store that is at `path`, or in that directory."""
    path = Path(path)
    return path / STORE_NAME if path.is_dir() else path


def require_no_run(command: str, store: Store, run: dict[str, Any] | None, asked: bool) -> None:
    """Raise UsageError where the `run` of a store has not finished, and has asked boards or made some."""
    if not run or run["finished"]:
        return
    if asked or store.open_rounds() or (store.path.parent / FLEET_NAME).exists():
        raise UsageError(
            f"{store.path} holds a run that has not finished",
            hint=f"go on with it: tern {command} --resume {store.path}",
        )


def finished(command: str, store: Path) -> UsageError:
    """What to say where a finished run is to go on."""
    result = store.parent / RESULT_NAME
    return UsageError(
        f"the run in {store} has finished",
        hint=f"see {result}" if result.exists() else f"begin another: tern {command} --help",
    )


def save_result(
    directory: Path, result: dict[str, Any], hint: str = "make room, then go on with --resume"
) -> None:
    """Write result.json. Raises StorageError, with `hint`."""
    path = directory / RESULT_NAME
    try:
        path.write_text(json.dumps(result, indent=1) + "\n")
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror}", hint=hint) from error


def board_directories(directory: Path, boards: int) -> list[Path]:
    """Where the files of a run's emulated boards are."""
    return [directory / FLEET_NAME / f"board-{board:03d}" for board in range(boards)]


def pack_boards(directory: Path, warn: Callable[[str], None]) -> None:
    """Keep the boards of a finished run, keys, records and ledgers, as one file instead of several a client."""
    boards = directory / FLEET_NAME
    packed = directory / PACKED_NAME
    try:
        with (
            open(os.open(packed, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file,
            tarfile.open(fileobj=file, mode="w:gz", compresslevel=1) as archive,
        ):
            archive.add(boards, FLEET_NAME)
        shutil.rmtree(boards)
    except OSError as error:
        warn(f"the boards' files stay in {boards}: {error.strerror}")
