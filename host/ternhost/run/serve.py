"""Serves a fleet: a run that goes on from one start of the host to the next, with a schedule."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ternhost.errors import UsageError
from ternhost.options import flag
from ternhost.reach import fleet
from ternhost.run.begin import going_on, moved, store_path
from ternhost.run.directory import Place, directory_of
from ternhost.run.options import DEADLINE, Schedule, Where
from ternhost.run.run import Run
from ternhost.run.status import Watcher
from ternhost.store import sleepers
from ternhost.store.round_numbers import skip
from ternhost.store.runs import ABANDONED, FINISHED, RUNNING, StoredRun
from ternhost.store.store import Store


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
    named: Collection[str] | None = None,
) -> Run:
    """The run of a served fleet: the one in its store goes on, with the options of this start; else one begins.

    new_model: give up the one in the store; its keys, rounds and models stay. named: the options that somebody asked
    for (None: all). A run that goes on keeps its own: UsageError is raised where another value is asked for.
    """
    path = fleet.parse(where.fleet).default_store if store is None else store_path(store)
    if path is not None and path.is_file():
        with Store(path, create=False) as opened:
            where = _long_enough(where, schedule, opened, watcher or Watcher())
            last = _last(opened)
            if last is not None and new_model:
                if last.unfinished:
                    opened.save_run(last.name, status=ABANDONED)
            elif last is not None:
                now = json.loads(json.dumps(asdict(options)))  # as they come out of a store
                _check_the_same(opened, last, algorithm, now, where, named)
                if name not in (None, last.name):
                    raise UsageError(
                        f"the run {last.name} goes on, and keeps its name", hint="leave --name out"
                    )
                return _again(opened, last, where, schedule, watcher or Watcher())
    return Run.begin(
        algorithm, options, where, store=path, name=name, watcher=watcher, schedule=schedule, anew=new_model
    )


def _long_enough(where: Where, schedule: Schedule, store: Store, watcher: Watcher) -> Where:
    """`where` with a deadline that devices which sleep can keep. Raises UsageError where another one was asked for."""
    wakes = sleepers.wakes(store)
    asleep = wakes.keys() & store.keys().keys()
    least = sleepers.least_deadline(wakes[device] for device in asleep)
    if not asleep or where.deadline is None:
        return where
    longest = max(wakes[device] for device in asleep)
    many = f"{len(asleep)} devices sleep, up to {longest} s at a time"
    if where.deadline < least and where.deadline != DEADLINE:
        raise UsageError(
            f"{many}: a round of {where.deadline:g} s would end before they wake and answer",
            hint=f"give --deadline {least} or more, or leave it out",
        )
    if schedule.interval < least:
        watcher.note(
            f"{many}: a round lasts until they have answered, whatever --interval {schedule.interval:g} says; "
            f"--interval {least} gives each of them a round a wake"
        )
    if where.deadline < least:
        watcher.note(f"{many}: rounds have {least} s, not {where.deadline:g} (--deadline)")
        return replace(where, deadline=float(least))
    return where


def _last(store: Store) -> StoredRun | None:
    served = [run for run in store.runs() if run.asked["schedule"] is not None and run.status != ABANDONED]
    return served[-1] if served else None


def _check_the_same(
    store: Store,
    last: StoredRun,
    algorithm: str,
    options: Mapping[str, Any],
    where: Where,
    named: Collection[str] | None,
) -> None:
    """Raise UsageError where the run that goes on would be another one, or is not the only one under way.

    What it has counted, and what it has cost, is by its own options: they stay.
    """
    hint = "go on with that, or begin another one with --new-model"
    was = last.asked
    if was["algorithm"] != algorithm and (named is None or "algorithm" in named):
        raise UsageError(f"this store holds a run of {was['algorithm']}, not of {algorithm}", hint=hint)
    for name, value in options.items():
        if (named is None or name in named) and was["options"].get(name) != value:
            raise UsageError(
                f"the run {last.name} has {flag(name)} {was['options'].get(name)}, not {value}", hint=hint
            )
    if where.fleet != was["where"]["fleet"]:
        moved(was["where"]["fleet"], where.fleet)
    for other in store.runs():
        if other.unfinished and other.name != last.name:
            raise UsageError(f"{store.path} holds another unfinished run, {other.name}", hint=going_on(other))


def _again(store: Store, last: StoredRun, where: Where, schedule: Schedule, watcher: Watcher) -> Run:
    skip(store, where.after_round)
    asked = {**last.asked, "where": asdict(where), "schedule": asdict(schedule)}
    store.save_run(last.name, status=RUNNING if last.status == FINISHED else last.status, asked=asked)
    place = Place(directory_of(last, store.path), store.path, last.name)
    store.close()
    return Run(Store(place.store, create=False), place, watcher)
