"""Serves a fleet: a run that goes on from one start of the host to the next, with a schedule."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from ternhost import fleet
from ternhost.aggregate.store import ABANDONED, FINISHED, RUNNING, Store, StoredRun
from ternhost.errors import UsageError
from ternhost.runs.beginning import store_path
from ternhost.runs.directory import Place, directory_of
from ternhost.runs.options import Schedule, Where
from ternhost.runs.run import Run
from ternhost.runs.status import Watcher


def serve(
    algorithm: str,
    options: Any,
    where: Where,
    schedule: Schedule,
    *,
    store: str | Path | None = None,
    name: str | None = None,
    watcher: Watcher | None = None,
    new_model: bool = False,
) -> Run:
    """The run of a served fleet: the one in its store goes on, with the options of this start; else one begins.

    new_model: give up the one in the store; its keys, rounds and models stay. Raises UsageError where that one learns
    something else.
    """
    path = fleet.parse(where.fleet).default_store if store is None else store_path(store)
    if path is not None and path.is_file():
        with Store(path, create=False) as opened:
            last = _last(opened)
            if last is not None and new_model:
                opened.save_run(last.name, status=ABANDONED)
            elif last is not None:
                return _again(opened, last, algorithm, options, where, schedule, watcher or Watcher())
    return Run.begin(
        algorithm, options, where, store=path, name=name, watcher=watcher, schedule=schedule, anew=new_model
    )


def _last(store: Store) -> StoredRun | None:
    served = [run for run in store.runs() if run.asked["schedule"] is not None and run.status != ABANDONED]
    return served[-1] if served else None


def _again(
    store: Store,
    last: StoredRun,
    algorithm: str,
    options: Any,
    where: Where,
    schedule: Schedule,
    watcher: Watcher,
) -> Run:
    was, now = last.asked, asdict(options)
    same = was["algorithm"] == algorithm and all(
        was["options"].get(name) == now.get(name) for name in ("model", "dataset", "dimension", "method")
    )
    if not same:
        what = was["options"].get("model", was["algorithm"])
        raise UsageError(
            f"this store holds a run of {was['algorithm']} ({what}, {was['options'].get('dataset')})",
            hint="go on with that, or begin another one with --new-model",
        )
    asked = {
        **was,
        "options": now,
        "where": asdict(where),
        "schedule": asdict(schedule),
    }
    store.save_run(last.name, status=RUNNING if last.status == FINISHED else last.status, asked=asked)
    place = Place(directory_of(last, store.path), store.path, last.name)
    store.close()
    return Run(Store(place.store, create=False), place, watcher)
