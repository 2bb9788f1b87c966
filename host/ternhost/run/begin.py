"""How a run begins: options that make no sense are refused first, and a refused run leaves nothing
behind.
"""

import shutil
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tern import ledger, wire
from ternhost.count.disclosures import Disclosures
from ternhost.datasets.schemas import findings
from ternhost.datasets.schemas.findings import Finding
from ternhost.errors import DeviceError, TernError, UsageError
from ternhost.extensions import EXTENSIONS, StatementPart
from ternhost.learn.base import ALGORITHMS, Learner, Population
from ternhost.learn.data_options import OwnerOptions
from ternhost.learn.devices import Devices, clients_of
from ternhost.learn.schedule import Schedule
from ternhost.privacy.base import MICRO
from ternhost.provision.boards import provision_fleet
from ternhost.reach import fleet, refusals
from ternhost.reach.fleet import Fleet
from ternhost.run import costs, left_over
from ternhost.run import directory as run_directory
from ternhost.run.directory import RunFiles
from ternhost.run.options import RunOptions
from ternhost.run.state import RunState
from ternhost.store import store_file
from ternhost.store.round_numbers import check_skip, skip
from ternhost.store.runs import ABANDONED, PREPARING, StoredRun
from ternhost.store.store import Store
from ternhost.text import counted


@dataclass(frozen=True)
class Place:
    """Where the files of a run are kept.

    name: of the run's directory in `parent`; None: the directory is named by the time.
    store: the file of the store, or a directory with one; None: the fleet's own store, or, if the
    fleet has none, a new store in the run's directory.
    anew: abandon an unfinished run that is found in the store; otherwise finding one is an error.
    """

    name: str | None = None
    parent: Path = run_directory.RUNS
    store: str | Path | None = None
    anew: bool = False


def create_run(options: RunOptions, place: Place) -> tuple[Store, RunFiles, Learner]:
    """Check the options of a new run, make its directory, and write the run into its store.

    Return the open store, the paths of the run's files, and the learner that was made to check the
    options (to make another one may take a minute). If this raises TernError, it has removed the
    directory and the run again.
    """
    kind = fleet.parse(options.fleet)
    path = _path_of_store(kind, place.store)
    run_directory.check_name(place.name)
    learner = _check_before_opening(options, kind, path)
    # Whatever fails below, `undo` closes the store and removes what was made so far.
    with ExitStack() as undo:
        # Open the store, if there is one already, and make the directory.
        store: Store | None = None
        names_in_use: list[str] = []
        if path is not None:
            store = undo.enter_context(Store(path))
            left_over.forget(store, place.name, place.parent)
            names_in_use = [run.name for run in store.runs()]
        directory = run_directory.new_directory(place.name, place.parent, names_in_use)
        undo.callback(run_directory.remove, directory)
        if store is None:
            store = undo.enter_context(Store(directory / store_file.NAME))
        abandon_or_refuse_unfinished(store, place.anew)

        # Check the options against the devices of the store.
        first_round = check_skip(store, options.after_round) + 1
        clients = population(kind, options.schedule, store)
        options, learner = _fit_to_fleet(options, learner, kind, store, clients)
        _check_options(learner, kind, options, first_round)

        # Write the run.
        files = RunFiles(directory, store.path, directory.name)
        undo.callback(store.forget_run, files.name)
        skip(store, options.after_round)
        new_run = StoredRun(
            files.name,
            began=time.time(),
            status=PREPARING,
            asked=_settings(options, learner, kind, clients, directory),
            state=RunState(first_round).as_json(),
        )
        store.begin_run(new_run)
        files.write()
        undo.pop_all()  # nothing has failed: keep everything, and the store open
    return store, files, learner


def _settings(
    options: RunOptions, learner: Learner, kind: Fleet, clients: Population, directory: Path
) -> dict[str, Any]:
    """Return the settings of a run that its store keeps, so that the run can be resumed.

    These are its options, and what was found out as it began: its directory, whether its clients
    are simulated, how many devices there are, what its progress is compared with, the names of
    the classes, and what the bounds of the user's own data do.
    """
    asked = asdict(options)
    # The data may have said how many records a device has at most. Then it holds for the run.
    if hasattr(learner.options, "records"):
        asked["learning"]["records"] = learner.options.records
    devices: int | None = clients.devices
    if options.schedule is not None:
        devices = None  # a served fleet may grow
    return {
        **asked,
        "directory": str(directory.resolve()),
        "simulated": kind.simulated,
        "devices": devices,
        "references": costs.references(learner, clients.devices),
        "class_names": list(learner.class_names),
        "data_findings": [each.summary() for each in _data_findings(options)],
    }


def _data_findings(options: RunOptions) -> list[Finding]:
    """Return what the bounds of the user's own data do, and what is worth a change."""
    learning = options.learning
    if not isinstance(learning, OwnerOptions):  # a learner of another package
        return []
    return findings.of_run(learning.data, learning.selection)


def _path_of_store(kind: Fleet, store: str | Path | None) -> Path | None:
    """Return the path of the store that the user named (`store`), or else of the fleet's own.

    Return None if the store is to be made in the directory of the run. Raises UsageError, also if
    the fleet is not set up yet.
    """
    # Read even if a store was named: it raises UsageError if something of the fleet is missing.
    default_store = kind.default_store
    if store is None:
        return default_store
    return store_path(store)


def _check_before_opening(options: RunOptions, kind: Fleet, path: Path | None) -> Learner | None:
    """Check the options of a run as far as possible before its store is opened or made.

    A run whose options make no sense thus leaves no files behind. To check the options, a learner
    is made (the algorithm with its options), which needs the number of devices. Return this
    learner, or None if the number of devices is only known from the store.

    kind: the fleet of the run. path: of the store; None: it is to be made in the directory of the
    run. Raises UsageError.
    """
    tern_makes_devices = kind.provisions or kind.simulated  # emulated boards, simulated clients
    store_is_new = path is None or not path.is_file()
    if store_is_new:
        check_skip(None, options.after_round)  # raises if the round number is impossible

    is_served = options.schedule is not None
    # A new store of a fleet with keys is still empty: the run would find no device in it.
    device_count_is_known = tern_makes_devices or (store_is_new and kind.has_keys)
    if device_count_is_known and not is_served:
        learner = make_learner(options, population(kind, schedule=None, store=None))
        _check_options(learner, kind, options, _first_round(options))
        return learner
    if path is None and not tern_makes_devices:
        raise UsageError("--store must name the store with the devices' keys")
    return None


def _first_round(options: RunOptions) -> int:
    """Return the number of a run's first round in a store that has no rounds yet."""
    if options.after_round is None:
        return 1
    return options.after_round + 1


def make_learner(options: RunOptions, clients: Population) -> Learner:
    """Return a learner: the algorithm that the options name, with its options and its clients.

    Raises TernError if the options do not suit the clients.
    """
    algorithm = ALGORITHMS.named(options.algorithm)
    return algorithm.suited(options.learning, clients)


@dataclass(frozen=True)
class Plan:
    """A run that could begin with these options, but has not begun.

    disclosures: what earlier rounds asked the devices to disclose. statement_parts: the sections
    that extensions add to the privacy statement of the run.
    """

    options: RunOptions
    learner: Learner
    disclosures: Disclosures
    statement_parts: Sequence[StatementPart] = ()


def plan_run(options: RunOptions, store: str | Path | None) -> Plan:
    """Check the options as `create_run` does, and return the run that would begin.

    Nothing is written, and no device is asked. store: the database with the devices' keys and
    earlier rounds, as a file or the directory that has it; None: the fleet's own store. Raises
    TernError where `create_run` would.
    """
    kind = fleet.parse(options.fleet)
    tern_makes_devices = kind.provisions or kind.simulated  # emulated boards, simulated clients
    path = kind.default_store
    if store is not None:
        path = store_path(store)
    first_round = _first_round(options)
    if path is None or not path.is_file():  # there is no store yet
        if not tern_makes_devices:
            raise UsageError("--store must name the store with the devices' keys")
        learner = make_learner(options, population(kind, options.schedule, store=None))
        _check_options(learner, kind, options, first_round)
        return Plan(options, learner, Disclosures())

    # beside=True: only to read, while another process may write the store.
    with Store(path, create=False, beside=True) as opened:
        clients = population(kind, options.schedule, opened)
        options, learner = _fit_to_fleet(options, None, kind, opened, clients)
        _check_options(learner, kind, options, first_round)
        disclosures = Disclosures()
        if not kind.provisions:  # boards made for the run are new, and have disclosed nothing
            disclosures = costs.asked_disclosures(opened, kind.simulated)
        parts = []  # of the privacy statement that a user may print of this plan
        for extension in EXTENSIONS.available():
            parts.append(extension.statement_part(opened, kind, options, learner))
    return Plan(options, learner, disclosures, parts)


def _fit_to_fleet(
    options: RunOptions, learner: Learner | None, kind: Fleet, store: Store, clients: Population
) -> tuple[RunOptions, Learner]:
    """Let extensions adapt a run's options to its fleet; return them and a learner for them.

    A learner is the algorithm with its options, and takes long to make. learner: for the options
    as they are, if there is one already; it is returned if no extension changes the options. kind:
    the fleet. clients: those whom the algorithm can ask. Raises TernError, for instance if an
    extension refuses the run.
    """
    if learner is None:
        learner = make_learner(options, clients)
    adapted = options
    for extension in EXTENSIONS.available():
        adapted = extension.fitted(adapted, learner, kind, store)
    if adapted is options:
        return options, learner
    return adapted, make_learner(adapted, clients)


def population(
    kind: Fleet, schedule: Schedule | None, store: Store | None, devices: int | None = None
) -> Population:
    """Describe the clients that an algorithm can ask for reports: how many there are, and more.

    kind: the fleet. schedule: when rounds begin, if the run serves the fleet without end; None: the
    run ends by itself. store: the store with the devices' keys; None: it does not exist yet.
    devices: how many devices there were when the run began; None: it begins now, and the devices
    with a key are counted.
    """
    tern_makes_devices = kind.provisions or kind.simulated  # emulated boards, simulated clients
    is_served = schedule is not None
    if devices is None:
        devices = 0
        # A served fleet that tern has made keeps its devices. For any other run tern makes new
        # ones, which have no key in the store yet.
        devices_have_keys = is_served or not tern_makes_devices
        if store is not None and devices_have_keys:
            devices = kind.device_count(store, is_served)
    if is_served and tern_makes_devices and devices == 0:  # its first start
        devices = _devices_to_make(kind)

    boards = 0
    if kind.provisions:
        boards = kind.count
    return Population(
        clients=kind.clients,
        most=kind.most_clients,
        schedule=schedule,
        devices=devices,
        knows_records=kind.knows_records,
        boards=boards,
    )


def _devices_to_make(kind: Fleet) -> int:
    """Return how many devices tern will make for a fleet.

    That is the number of clients that the fleet names, or else the most that it has room for.
    """
    if kind.clients:
        return kind.clients
    return kind.most_clients or 0


def made_clients(kind: Fleet, algorithm: Learner) -> int:
    """Return how many clients the emulated boards of a run have together.

    That is as many as the algorithm asks. If it asks all there are, it is all devices that the data
    set names, or else all to whom it gives records, up to the number that the fleet makes by default.
    """
    if algorithm.clients is not None:
        return algorithm.clients
    assert algorithm.holdings is not None
    with_records = algorithm.holdings.clients
    if not kind.most_clients or algorithm.holdings.names:
        return with_records
    return min(with_records, kind.most_clients)


def make_boards(
    store: Store, boards: Sequence[Path], algorithm: Learner, dealt: Devices, budget: int | None
) -> None:
    """Make or remake the emulated boards of a run, with the keys and records of their clients.

    boards: the directories of the boards. algorithm: decides which client has which records, and
    what reports may cost. dealt: the id of the device that each client of the run becomes. budget:
    the privacy budget that each device has for life, in millionths of epsilon; None: as much as the
    run costs.
    """
    # Remove what an interrupted start may have left.
    for board in boards:
        shutil.rmtree(board, ignore_errors=True)
    holdings = algorithm.holdings  # the clients' records
    assert holdings is not None
    devices = np.arange(1, len(dealt) + 1)
    clients = clients_of(dealt, devices)
    provision_fleet(
        store,
        directories=boards,
        rows=holdings.records[holdings.all_positions(clients)],
        policies=costs.policies(algorithm, devices, budget),
        each=holdings.counts(clients).tolist(),
        unit=algorithm.unit,  # how many of its records are protected together; 0: all
    )


def _check_options(algorithm: Learner, kind: Fleet, options: RunOptions, first_round: int) -> None:
    """Raise an error for options with which no run can begin.

    algorithm: made with these options. kind: the fleet. first_round: the number of the run's first
    round. Raises RefusedError for a run that costs more than the budget in the options, UsageError
    for any other reason.
    """
    costs.accounts(algorithm, options.budget_micro)  # called because it raises RefusedError
    if options.schedule is None:
        _check_cost(algorithm)
    elif algorithm.once and kind.simulated:
        name = algorithm.name
        text = f"{name} asks each device once, and to a simulated fleet no device is ever added"
        raise UsageError(text, hint=f"'tern train {name}' asks simulated ones once")
    if kind.provisions:  # emulated boards
        clients = made_clients(kind, algorithm)
        if kind.count > clients:
            text = f"{kind.count} boards for {counted(clients, 'client')} leave some boards without a client"
            hint = "use fewer boards, or more reports or clients"
            if algorithm.holdings is not None and algorithm.holdings.names:
                hint = f"use --fleet {kind.word}:{clients}, or fewer boards"
            raise UsageError(text, hint=hint)
    rounds = algorithm.rounds
    if rounds is not None and first_round + rounds - 1 > wire.MAX_ROUND:
        text = f"{rounds} rounds from {first_round} on would go beyond {wire.MAX_ROUND}"
        raise UsageError(text, hint="give a smaller --after-round, or larger groups")


def _check_cost(algorithm: Learner) -> None:
    """Raise UsageError if a run costs more than the largest budget that a ledger can hold."""
    cost = max(costs.costs(algorithm), default=0)
    if cost > ledger.MAX_BUDGET:
        epsilon = cost / MICRO
        text = f"a client would spend epsilon {epsilon:g}, and no budget for life is above 1000"
        raise UsageError(text, hint="use fewer --reports or --rounds, or a smaller --epsilon")


def store_path(text: str | Path) -> Path:
    """Return the file of the store that --store names: `text` itself, or the store in `text`.

    text: a file, or a directory. Raises UsageError if it is empty.
    """
    if not str(text):
        raise UsageError("--store must name a file", hint="such as my-fleet/store.sqlite")
    path = Path(text)
    if path.is_dir():
        return path / store_file.NAME
    return path


def abandon_or_refuse_unfinished(store: Store, anew: bool = False) -> None:
    """Make room for a new run in a store: abandon its unfinished runs, or refuse to.

    An unfinished run that has not asked any device yet is abandoned. Another one is abandoned only
    if `anew` is true, and then its open rounds are lost; otherwise this raises UsageError.
    """
    for run in store.runs():
        if not run.unfinished:
            continue
        # A run is marked as running a moment before its first round is opened.
        is_running_without_round = not run.state["rounds"] and not store.open_rounds()
        has_asked_nobody = run.status == PREPARING or is_running_without_round
        if not has_asked_nobody and not anew:
            resume = run_directory.resume_command(run, store.path)
            hint = f"resume it: {resume}; or abandon it with --anew"
            raise UsageError(
                f"{store.path} holds the run {run.name}, which has not finished", hint=hint
            )
        store.save_run(run.name, status=ABANDONED)
    for open_round in store.open_rounds():
        store.end_round(open_round.number, ABANDONED)


def remove_failed_run(store: Store, files: RunFiles, error: TernError) -> None:
    """Remove a run that failed with `error` before a round ended, and close its store.

    The run stays, with its open round, if resuming it makes sense: some device has reported, or a
    board failed (DeviceError) and may come back.
    """
    open_rounds = [round_.number for round_ in store.open_rounds() if round_.run == files.name]
    has_reports = any(store.report_count(number) for number in open_rounds)
    can_be_resumed = has_reports or isinstance(error, DeviceError)
    if open_rounds and can_be_resumed:
        return

    for number in open_rounds:
        store.end_round(number, ABANDONED)
    if isinstance(error, refusals.AllRefused) and refusals.nobody_will_report(error.result):
        store.forget_questions(files.name)
    store.forget_run(files.name)
    store.close()
    run_directory.remove(files.directory)


def moved_fleet(saved: str, named: str) -> str:
    """Return the fleet with which a run is resumed, after checking that it may replace the old one.

    saved: the fleet (`KIND:...`) with which the run began. named: the fleet that the user names
    now. Raises UsageError if they differ, and one of them is of boards that tern made for the run.
    """
    if named == saved:
        return named
    if not (fleet.parse(saved).may_move and fleet.parse(named).may_move):
        hint = "only boards that tern did not make may move"
        raise UsageError(f"a resumed run keeps its fleet, {saved}", hint=hint)
    return named
