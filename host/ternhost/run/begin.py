"""How a run begins: options that make no sense are refused first, and a refused run leaves nothing
behind.
"""

import shutil
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from tern import ledger, wire
from ternhost.count.disclosures import Disclosures
from ternhost.errors import DeviceError, TernError, UsageError
from ternhost.extensions import EXTENSIONS, StatementPart
from ternhost.learn.base import ALGORITHMS, Learner, Population
from ternhost.learn.devices import Devices, clients_of
from ternhost.learn.schedule import Schedule
from ternhost.privacy.base import MICRO
from ternhost.provision.boards import provision_fleet
from ternhost.reach import fleet, refusals
from ternhost.reach.fleet import Fleet
from ternhost.run import costs
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
    """Where a run is to be kept.

    name: of its directory in `parent`; None: the time. store: None for the fleet's own, or one in
    the run's directory. anew: give up a run of that store that has not finished.
    """

    name: str | None = None
    parent: Path = run_directory.RUNS
    store: str | Path | None = None
    anew: bool = False


def create_run(options: RunOptions, place: Place) -> tuple[Store, RunFiles, Learner]:
    """Check the options of a new run, make its directory, and write the run into its store.

    Return the open store, the files, and the learner that checked the options: designing its card
    may take a minute. After TernError no directory and no run are left.
    """
    kind = fleet.parse(options.fleet)
    path = _path_of_store(kind, place.store)
    run_directory.check_name(place.name)
    learner = _check_before_opening(options, kind, path)
    # Whatever fails below, `undo` closes the store and removes what was made so far.
    with ExitStack() as undo:
        store: Store | None = None
        names_in_use: list[str] = []
        if path is not None:
            store = undo.enter_context(Store(path))
            names_in_use = [run.name for run in store.runs()]
        directory = run_directory.new_directory(place.name, place.parent, names_in_use)
        undo.callback(run_directory.remove, directory)
        if store is None:
            store = undo.enter_context(Store(directory / store_file.NAME))
        require_no_run(store, place.anew)

        first_round = check_skip(store, options.after_round) + 1
        clients = population(kind, options.schedule, store)
        options, learner = _fit_to_fleet(options, learner, kind, store, clients)
        _check_options(learner, kind, options, first_round)

        settings = {
            **asdict(options),
            "directory": str(directory.resolve()),
            "simulated": kind.simulated,
            "devices": None if options.schedule else clients.devices,
            "references": costs.references(learner, clients.devices),
        }
        files = RunFiles(directory, store.path, directory.name)
        undo.callback(store.forget_run, files.name)
        skip(store, options.after_round)
        state = RunState(first_round).as_json()
        store.begin_run(
            StoredRun(files.name, began=time.time(), status=PREPARING, asked=settings, state=state)
        )
        files.write()
        undo.pop_all()  # all went well: the caller gets the store open
    return store, files, learner


def _path_of_store(kind: Fleet, store: str | Path | None) -> Path | None:
    """Return the path of the store that is named, or else of the fleet's own.

    None: the store is made in the directory of the run.
    """
    default_store = kind.default_store  # read in any case: it says what a fleet lacks
    return default_store if store is None else store_path(store)


def _check_before_opening(options: RunOptions, kind: Fleet, path: Path | None) -> Learner | None:
    """Check the options of a run before its store is opened, and return its learner.

    Return None if only the store tells how many devices there are. path: of the store; None: it
    is to be made in the directory of the run. Raises UsageError.
    """
    tern_makes_devices = kind.provisions or kind.simulated
    store_is_new = path is None or not path.is_file()
    if store_is_new:
        check_skip(None, options.after_round)

    is_served = options.schedule is not None
    device_count_is_known = tern_makes_devices or (store_is_new and kind.has_keys)
    if device_count_is_known and not is_served:
        learner = _make_learner(options, population(kind, schedule=None, store=None))
        _check_options(learner, kind, options, _first_round(options))
        return learner
    if path is None and not tern_makes_devices:
        raise UsageError("--store must name the store with the devices' keys")
    return None


def _first_round(options: RunOptions) -> int:
    """Return the number of the first round of a run in a store without rounds."""
    if options.after_round is None:
        return 1
    return options.after_round + 1


def _make_learner(options: RunOptions, clients: Population) -> Learner:
    """Make the learner of the algorithm that the options name. Raises TernError."""
    return ALGORITHMS.named(options.algorithm)(options.learning, clients)


@dataclass(frozen=True)
class Plan:
    """A run that is planned, and that nobody has begun.

    disclosures: what earlier rounds asked its devices to disclose. statement_parts: the sections
    that extensions add to the privacy statement.
    """

    options: RunOptions
    learner: Learner
    disclosures: Disclosures
    statement_parts: Sequence[StatementPart] = ()


def plan_run(options: RunOptions, store: str | Path | None) -> Plan:
    """Plan a run as `create_run` creates it, and write nothing. Raises TernError as that does."""
    kind = fleet.parse(options.fleet)
    path = kind.default_store if store is None else store_path(store)
    first_round = _first_round(options)
    if path is None or not path.is_file():
        if not (kind.provisions or kind.simulated):
            raise UsageError("--store must name the store with the devices' keys")
        learner = _make_learner(options, population(kind, options.schedule, None))
        _check_options(learner, kind, options, first_round)
        return Plan(options, learner, Disclosures())

    with Store(path, create=False, beside=True) as opened:
        clients = population(kind, options.schedule, opened)
        options, learner = _fit_to_fleet(options, None, kind, opened, clients)
        _check_options(learner, kind, options, first_round)
        disclosures = Disclosures()
        if not kind.provisions:  # boards made for the run are new, and have disclosed nothing
            disclosures = costs.asked_disclosures(opened, kind.simulated)
        parts = []
        for extension in EXTENSIONS.available():
            parts.append(extension.statement_part(opened, kind, options, learner))
    return Plan(options, learner, disclosures, parts)


def _fit_to_fleet(
    options: RunOptions, learner: Learner | None, kind: Fleet, store: Store, clients: Population
) -> tuple[RunOptions, Learner]:
    """Have extensions adapt the options to the fleet; return the options and their learner.

    learner: that of the options as they are; None: it is made here. Raises TernError.
    """
    if learner is None:
        learner = _make_learner(options, clients)
    adapted = options
    for extension in EXTENSIONS.available():
        adapted = extension.fitted(adapted, learner, kind, store)
    if adapted is options:
        return options, learner
    return adapted, _make_learner(adapted, clients)


def population(
    kind: Fleet, schedule: Schedule | None, store: Store | None, devices: int | None = None
) -> Population:
    """Return the clients that an algorithm can ask for reports.

    schedule: of a served fleet. store: with the devices' keys, if there is one. devices: how many
    there were when the run began. None: as many as have a key, if tern does not make the devices
    or they are served.
    """
    tern_makes_devices = kind.provisions or kind.simulated
    is_served = schedule is not None
    if devices is None:
        devices = 0
        if store is not None and (is_served or not tern_makes_devices):
            devices = kind.census(store, is_served)
    if is_served and tern_makes_devices and not devices:
        # No device has a key yet: there will be as many as the fleet is made with.
        devices = kind.clients or kind.most_clients or 0
    return Population(
        clients=kind.clients,
        most=kind.most_clients,
        schedule=schedule,
        devices=devices,
        knows_records=kind.knows_records,
        boards=kind.count if kind.provisions else 0,
    )


def made_clients(kind: Fleet, algorithm: Learner) -> int:
    """Return for how many clients tern makes emulated boards.

    As many as the algorithm asks; or else all that hold records, if the fleet has room for them.
    """
    if algorithm.clients is not None:
        return algorithm.clients
    assert algorithm.holdings is not None
    with_records = algorithm.holdings.clients
    return min(with_records, kind.most_clients or with_records)


def make_boards(
    store: Store, boards: Sequence[Path], algorithm: Learner, dealt: Devices, budget: int | None
) -> None:
    """Make or remake the emulated boards of a run, with the keys and records of their clients.

    boards: their directories. dealt: the device of each client. budget: the lifetime budget of a
    device, micro-epsilon; None: the cost of the run.
    """
    for board in boards:
        shutil.rmtree(board, ignore_errors=True)
    holdings = algorithm.holdings
    assert holdings is not None
    devices = np.arange(1, len(dealt) + 1)
    # Clients x records x width becomes one row a record, in the order of the devices.
    rows = holdings.rows(clients_of(dealt, devices)).reshape(-1, holdings.width)
    policies = costs.policies(algorithm, devices, budget)
    provision_fleet(store, boards, rows, policies, holdings.each, algorithm.unit)


def _check_options(algorithm: Learner, kind: Fleet, options: RunOptions, first_round: int) -> None:
    """Raise UsageError for options with which no run can begin."""
    costs.accounts(algorithm, options.budget_micro)  # refuses a run beyond the named budget
    if options.schedule is None:
        _check_cost(algorithm)
    elif algorithm.once and kind.simulated:
        name = algorithm.name
        text = f"{name} asks each device once, and to a simulated fleet no device is ever added"
        raise UsageError(text, hint=f"'tern train --algorithm {name}' asks simulated ones once")
    if kind.provisions:
        clients = made_clients(kind, algorithm)
        if kind.count > clients:
            text = f"{kind.count} boards for {counted(clients, 'client')} leave boards without one"
            raise UsageError(text, hint="ask for fewer boards, or more reports or clients")
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
        raise UsageError(text, hint="ask for fewer --reports or --rounds, or a smaller --epsilon")


def store_path(text: str | Path) -> Path:
    """Return the file that --store names: `text` itself, or the store in that directory.

    Raises UsageError if the text is empty.
    """
    if not str(text):
        raise UsageError("--store must name a file", hint="such as my-fleet/store.sqlite")
    path = Path(text)
    return path / store_file.NAME if path.is_dir() else path


def require_no_run(store: Store, anew: bool = False) -> None:
    """Make sure that no other run is under way in a store.

    A run that has asked no device yet is abandoned. anew: abandon any other, too, and lose its
    open rounds; otherwise that raises UsageError.
    """
    for run in store.runs():
        if not run.unfinished:
            continue
        has_asked_nobody = run.status == PREPARING
        if not run.state["rounds"] and not store.open_rounds():
            has_asked_nobody = True
        if not anew and not has_asked_nobody:
            hint = f"resume it: {run_directory.resume_command(run)}; or abandon it with --anew"
            raise UsageError(
                f"{store.path} holds the run {run.name}, which has not finished", hint=hint
            )
        store.save_run(run.name, status=ABANDONED)
    for open_round in store.open_rounds():
        store.end_round(open_round.number, ABANDONED)


def take_back(store: Store, files: RunFiles, error: TernError) -> None:
    """Forget a new run that failed with `error` before any device took part, and close its store.

    A run with an open round stays if it can be resumed: a device has reported, or a board failed
    and may come back.
    """
    open_rounds = [round_.number for round_ in store.open_rounds() if round_.run == files.name]
    has_reports = any(store.report_count(number) for number in open_rounds)
    may_go_on = isinstance(error, DeviceError) or has_reports
    if open_rounds and may_go_on:
        return
    for number in open_rounds:
        store.end_round(number, ABANDONED)
    if isinstance(error, refusals.AllRefused) and refusals.nobody_will_report(error.result):
        store.forget_questions(files.name)
    store.forget_run(files.name)
    store.close()
    run_directory.remove(files.directory)


def moved(saved: str, named: str) -> str:
    """Return the fleet of a run that is resumed, where its boards may be elsewhere by now.

    saved: the fleet that the run began with. named: the one of this start. Raises UsageError if
    the run cannot move from the one to the other.
    """
    if named == saved:
        return named
    if not (fleet.parse(saved).may_move and fleet.parse(named).may_move):
        hint = "only boards that tern did not make may move"
        raise UsageError(f"a resumed run keeps its fleet, {saved}", hint=hint)
    return named
