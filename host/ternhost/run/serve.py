"""Serves a fleet: a run that goes on from one start of the host to the next, with a schedule."""

from collections.abc import Collection
from dataclasses import asdict, replace
from pathlib import Path

from ternhost.errors import UsageError
from ternhost.learn.schedule import Terms
from ternhost.options import flag, values_of
from ternhost.reach import fleet
from ternhost.run.begin import Place, moved, store_path
from ternhost.run.directory import RunFiles, directory_of, going_on
from ternhost.run.options import RunOptions
from ternhost.run.run import Run
from ternhost.run.status import Watcher
from ternhost.store import sleepers
from ternhost.store.round_numbers import skip
from ternhost.store.runs import ABANDONED, FINISHED, RUNNING, StoredRun
from ternhost.store.store import Store
from ternhost.text import counted


def serve(
    options: RunOptions,
    *,
    store: str | Path | None = None,
    name: str | None = None,
    watcher: Watcher | None = None,
    new_model: bool = False,
    named: Collection[str] | None = None,
) -> Run:
    """The run of a served fleet: the one in its store goes on, or else one begins.

    The run goes on with the fleet, terms and schedule of this start. new_model: give up the one in
    the store, but keep its keys, rounds and models. named: the options given explicitly (None:
    all). Raises UsageError if one of them differs from those of the run that goes on.
    """
    watcher = watcher or Watcher()
    path = fleet.parse(options.fleet).default_store if store is None else store_path(store)
    if path is not None and path.is_file():
        with Store(path, create=False) as opened:
            options = _long_enough(options, opened, watcher)
            last = _last_served(opened)
            if last is not None and not new_model:
                _check_the_same(opened, last, options, named)
                if name not in (None, last.name):
                    text = f"the run {last.name} goes on, and keeps its name"
                    raise UsageError(text, hint="leave --name out")
                return _again(opened, last, options, watcher)
            if last is not None and last.unfinished:
                opened.save_run(last.name, status=ABANDONED)
    place = Place(name, store=path, anew=new_model)
    return Run.begin(options, place, watcher)


def _last_served(store: Store) -> StoredRun | None:
    """The last run of a served fleet in a store that was not abandoned."""
    for run in reversed(store.runs()):
        if run.asked["schedule"] is not None and run.status != ABANDONED:
            return run
    return None


def _long_enough(options: RunOptions, store: Store, watcher: Watcher) -> RunOptions:
    """The options with a deadline that sleeping devices can keep.

    Raises UsageError where another was asked for.
    """
    wakes = sleepers.wakes(store)
    asleep = wakes.keys() & store.keys().keys()
    least = sleepers.least_deadline(wakes[device] for device in asleep)
    deadline = options.terms.deadline
    if not asleep or deadline is None:
        return options
    assert options.schedule is not None
    longest = max(wakes[device] for device in asleep)
    sleepers_text = f"{counted(len(asleep), 'sleeping device')}, up to {longest} s at a time"
    if deadline < least and deadline != Terms.deadline:
        text = f"{sleepers_text}: a round of {deadline:g} s would end before they wake and answer"
        raise UsageError(text, hint=f"give --deadline {least} or more, or leave it out")
    if options.schedule.interval < least:
        text = f"{sleepers_text}: a round lasts until they have answered, whatever --interval "
        text += f"{options.schedule.interval:g} says; --interval {least} gives each of them a round a wake"
        watcher.note(text)
    if deadline < least:
        watcher.note(f"{sleepers_text}: rounds have {least} s, not {deadline:g} (--deadline)")
        return replace(options, terms=replace(options.terms, deadline=float(least)))
    return options


def _check_the_same(
    store: Store, last: StoredRun, options: RunOptions, named: Collection[str] | None
) -> None:
    """Raise UsageError if the run that goes on has other options, or another run is under way."""
    hint = "go on with that, or begin another one with --new-model"
    stored = last.asked
    if stored["algorithm"] != options.algorithm and (named is None or "algorithm" in named):
        text = f"this store holds a run of {stored['algorithm']}, not of {options.algorithm}"
        raise UsageError(text, hint=hint)
    kept = values_of(RunOptions.stored(stored).learning)
    for name, value in values_of(options.learning).items():
        if (named is None or name in named) and kept.get(name) != value:
            raise UsageError(
                f"the run {last.name} has {flag(name)} {kept.get(name)}, not {value}", hint=hint
            )
    if options.fleet != stored["fleet"]:
        moved(stored["fleet"], options.fleet)
    for other in store.runs():
        if other.unfinished and other.name != last.name:
            raise UsageError(
                f"{store.path} holds another unfinished run, {other.name}", hint=going_on(other)
            )


def _again(store: Store, last: StoredRun, options: RunOptions, watcher: Watcher) -> Run:
    """The run that goes on; what it learns stays."""
    skip(store, options.after_round)
    kept = {name: last.asked[name] for name in ("algorithm", "learning")}
    status = RUNNING if last.status == FINISHED else last.status
    store.save_run(last.name, status=status, asked={**last.asked, **asdict(options), **kept})
    files = RunFiles(directory_of(last, store.path), store.path, last.name)
    store.close()
    return Run(Store(files.store, create=False), files, watcher)
