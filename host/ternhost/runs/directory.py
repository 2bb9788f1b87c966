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
from ternhost.aggregate.store import Store

STORE_NAME = "store.sqlite"
RESULT_NAME = "result.json"
FLEET_NAME = "fleet"
PACKED_NAME = "fleet.tar.gz"
ABANDONED = "abandoned"  # how a round ends whose run is given up

_RUNS = {"train": "run", "infer": "infer", "collect": "collect"}  # command: its state in a store
_PORTS = "port:"


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


def require_no_run(store: Store, anew: bool = False, serving: bool = False) -> None:
    """Make sure that no other run is under way in a store; one that has asked nobody, and made no boards, is forgotten.

    The rounds of a store are one command's at a time. anew: end what is under way; its open rounds are lost.
    serving: open rounds of nobody else are the caller's. Raises UsageError.
    """
    for command, name in _RUNS.items():
        run = store.state(name)
        if not run or run["finished"]:
            continue
        made = (store.path.parent / FLEET_NAME).exists()
        if made or (not anew and (store.open_rounds() or run.get("history") or run.get("answers"))):
            hint = f"go on with it: tern {command} --resume {store.path}"
            if not serving:
                hint += "; or begin another in another directory" if made else "; or end it with --anew"
            raise UsageError(f"{store.path} holds a run that has not finished", hint=hint)
        abandon(store)
        store.save_state({name: {**run, "finished": True}})
    if store.open_rounds() and not serving:
        if not anew:
            raise UsageError(
                f"{store.path} holds a round of tern serve",
                hint="go on with tern serve, or end it with --anew",
            )
        abandon(store)


def abandon(store: Store) -> None:
    """End the rounds that are under way."""
    for asked in store.open_rounds():
        store.end_round(asked.number, ABANDONED, {})


def moved(saved: str, named: str | None) -> str:
    """The fleet of a run that is resumed; boards may be at other ports by now. Raises UsageError."""
    if named is None:
        return saved
    if not saved.startswith(_PORTS) or not named.startswith(_PORTS):
        raise UsageError(
            f"a run that is resumed keeps its fleet, {saved}", hint="only boards at ports may move to others"
        )
    return named


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
