"""Serves a fleet: a run that goes on from one start of the host to the next, with a schedule."""

from collections.abc import Collection
from dataclasses import asdict, replace
from pathlib import Path

from ternhost.datasets import in_memory
from ternhost.errors import UsageError
from ternhost.learn.schedule import Terms
from ternhost.options import flag, names_of, values_of
from ternhost.reach import fleet
from ternhost.run.begin import Place, moved_fleet, store_path
from ternhost.run.directory import RunFiles, directory_of, resume_command
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
    anew: bool = False,
    named: Collection[str] | None = None,
) -> Run:
    """Return the run that serves a fleet: the one in its store, resumed, or else a new one.

    A resumed run takes its fleet, terms and schedule from these options.

    store: the store's file, or a directory with one; None: the fleet's own store.
    name: of the directory of a new run; None: it is named by the time.
    watcher: receives status and messages for people; None: nobody does.
    anew: abandon the run in the store and begin another one. The store keeps its keys, and the
    rounds and models of the old run.
    named: the options that the user gave explicitly; None: all of them. Raises UsageError if one of
    them differs from that of the run that would be resumed.
    """
    if watcher is None:
        watcher = Watcher()
    if store is None:
        path = fleet.parse(options.fleet).default_store
    else:
        path = store_path(store)

    # Resume the last run that has served this fleet, if there is one.
    if path is not None and path.is_file():
        with Store(path, create=False) as opened:
            options = fit_deadline_to_sleepers(options, opened, watcher)
            last = _last_served(opened)
            if last is not None and not anew:
                options = _with_stored_name_of_data(last, options)
                _require_same_run(opened, last, options, named)
                if name is not None and name != last.name:
                    text = f"the run {last.name} goes on, and keeps its name"
                    raise UsageError(text, hint="leave --name out")
                watcher.note(_words_of_resumed(last, options))
                return _resume(opened, last, options, watcher)
            if last is not None and last.unfinished:
                opened.save_run(last.name, status=ABANDONED)

    # Otherwise begin a new one.
    place = Place(name, store=path, anew=anew)
    return Run.begin(options, place, watcher)


def _last_served(store: Store) -> StoredRun | None:
    """Return the newest run in the store that serves a fleet and was not abandoned, if any."""
    for run in reversed(store.runs()):
        if run.asked["schedule"] is not None and run.status != ABANDONED:
            return run
    return None


def _with_stored_name_of_data(last: StoredRun, options: RunOptions) -> RunOptions:
    """Return the options with the name that data in memory have in the stored run.

    The process that began the run had them under this name, and this one has been handed them again.
    """
    stored_name = str(last.asked["learning"].get("data", ""))
    name = getattr(options.learning, "data", "")
    if not (in_memory.is_name(name) and in_memory.is_name(stored_name)):
        return options
    in_memory.keep_as(stored_name, in_memory.named(name))
    return replace(options, learning=replace(options.learning, data=stored_name))


def fit_deadline_to_sleepers(options: RunOptions, store: Store, watcher: Watcher) -> RunOptions:
    """Return the options with a deadline of rounds that lets sleeping devices wake and answer.

    Devices on batteries sleep between rounds, and can only be asked when they wake. The default
    deadline is made longer where that is needed, and the watcher is told. A deadline that the user
    gave is never changed: if it is too short, this raises UsageError.

    store: has the devices, and for how many seconds each of them sleeps at a time.
    """
    seconds_asleep = sleepers.wakes(store)  # by device
    sleeping_devices = seconds_asleep.keys() & store.keys().keys()
    deadline = options.terms.deadline
    if not sleeping_devices or deadline is None:
        return options

    sleep_times = [seconds_asleep[device] for device in sleeping_devices]
    least = sleepers.least_deadline(sleep_times)  # in seconds
    device_count = counted(len(sleeping_devices), "sleeping device")
    sleepers_text = f"{device_count}, up to {max(sleep_times)} s at a time"
    is_default = deadline == Terms.deadline
    if deadline < least and not is_default:
        text = f"{sleepers_text}: a round of {deadline:g} s would end before they wake and answer"
        raise UsageError(text, hint=f"give --deadline {least} or more, or leave it out")

    assert options.schedule is not None
    interval = options.schedule.interval
    if interval < least:
        text = f"{sleepers_text}: a round lasts until they have answered, whatever --every "
        text += f"{interval:g} says; --every {least} gives each of them a round a wake"
        watcher.note(text)
    if deadline < least:
        watcher.note(f"{sleepers_text}: rounds have {least} s, not {deadline:g} (--deadline)")
        return replace(options, terms=replace(options.terms, deadline=float(least)))
    return options


def _require_same_run(
    store: Store, last: StoredRun, options: RunOptions, named: Collection[str] | None
) -> None:
    """Raise UsageError unless a stored run can be resumed with these options.

    Its algorithm and the algorithm's options must be the same, it must be possible to move to the
    fleet of the options, and no other run of the store may be unfinished.

    last: the run. named: the options to compare, those that the user gave explicitly; None: all.
    """
    hint = "go on with that, or begin another one with --anew"
    saved = last.asked
    compares_algorithm = named is None or "algorithm" in named
    if compares_algorithm and saved["algorithm"] != options.algorithm:
        text = f"this store holds a run of {saved['algorithm']}, not of {options.algorithm}"
        raise UsageError(text, hint=hint)

    saved_values = values_of(RunOptions.stored(saved).learning)
    for name, value in values_of(options.learning).items():
        if named is not None and name not in named:
            continue
        saved_value = saved_values.get(name)
        if saved_value != value:
            text = f"the run {last.name} has {flag(name)} {saved_value}, not {value}"
            raise UsageError(text, hint=hint)

    moved_fleet(saved["fleet"], options.fleet)  # called because it raises UsageError
    for other in store.runs():
        if other.unfinished and other.name != last.name:
            raise UsageError(
                f"{store.path} holds another unfinished run, {other.name}",
                hint=resume_command(other, store.path),
            )


def _words_of_resumed(last: StoredRun, options: RunOptions) -> str:
    """Say that a stored run goes on, and which options it keeps from its beginning.

    options: of this start. Those that the user has given are the same as in the run.
    """
    text = f"the run {last.name} goes on after {counted(last.state['rounds'], 'round')}"
    began = RunOptions.stored(last.asked)
    if began.algorithm != options.algorithm:
        return f"{text}, with {began.algorithm}, as it began"
    values, began_values = asdict(options.learning), asdict(began.learning)
    kept = []
    for name in sorted(names_of(type(options.learning))):
        if began_values[name] != values[name]:
            kept.append(f"{flag(name)} {began_values[name]}")
    if kept:
        text += f", with {' and '.join(kept)}, as it began"
    return text


def _resume(store: Store, last: StoredRun, options: RunOptions, watcher: Watcher) -> Run:
    """Resume the stored run `last` with the fleet, terms and schedule of these options.

    Its algorithm and the algorithm's options stay those with which it began. Closes `store`; the
    returned run opens it again.
    """
    skip(store, options.after_round)  # the next round has a larger number than this one
    settings = {**last.asked, **asdict(options)}
    for name in ("algorithm", "learning"):
        settings[name] = last.asked[name]
    status = last.status
    if status == FINISHED:
        status = RUNNING  # it had reached its last round, and the new schedule may allow more
    store.save_run(last.name, status=status, asked=settings)
    files = RunFiles(directory_of(last, store.path), store.path, last.name)
    store.close()
    return Run(Store(files.store, create=False), files, watcher)
