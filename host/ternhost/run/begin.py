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


def written(options: RunOptions, place: Place) -> tuple[Store, RunFiles, Learner]:
    """Make the directory of a run and write the run into its store.

    Return the open store, the files, and the learner that checked the options: designing its card
    may take a minute. After TernError no directory and no run are left.
    """
    kind = fleet.parse(options.fleet)
    path = _store_of(kind, place.store)
    run_directory.check_name(place.name)
    learner = _checked_early(options, kind, path)
    with ExitStack() as undo:
        opened = None if path is None else undo.enter_context(Store(path))
        taken = [] if opened is None else [run.name for run in opened.runs()]
        directory = run_directory.new_directory(place.name, place.parent, taken)
        undo.callback(run_directory.remove, directory)
        if opened is None:
            opened = undo.enter_context(Store(directory / store_file.NAME))
        require_no_run(opened, place.anew)

        first = check_skip(opened, options.after_round) + 1
        clients = population(kind, options.schedule, opened)
        options, learner = _fitted(options, learner, kind, opened, clients)
        _check(learner, kind, options, first)
        asked = {
            **asdict(options),
            "directory": str(directory.resolve()),
            "simulated": kind.simulated,
            "devices": None if options.schedule else clients.devices,
            "references": costs.references(learner, clients.devices),
        }
        files = RunFiles(directory, opened.path, directory.name)
        undo.callback(opened.forget_run, files.name)
        skip(opened, options.after_round)
        state = RunState(first_round=first).as_json()
        opened.begin_run(StoredRun(files.name, time.time(), PREPARING, asked, state))
        files.write()
        undo.pop_all()
    return opened, files, learner


def _store_of(kind: Fleet, store: str | Path | None) -> Path | None:
    """The store that is named, or that of the fleet; None for one in the directory of the run."""
    own = kind.default_store  # read in any case: it says what a fleet lacks
    return own if store is None else store_path(store)


def _checked_early(options: RunOptions, kind: Fleet, path: Path | None) -> Learner | None:
    """The learner, if its options can be checked before a store is opened or made.

    path: of the store. Raises UsageError.
    """
    made = kind.provisions or kind.simulated
    is_new = path is None or not path.is_file()
    if is_new:
        check_skip(None, options.after_round)
    if options.schedule is None and (made or (is_new and kind.has_keys)):
        learner = _learner(options, population(kind, None, None))
        _check(learner, kind, options, (options.after_round or 0) + 1)
        return learner
    if path is None and not made:
        raise UsageError("--store must name the store with the devices' keys")
    return None


def _learner(options: RunOptions, clients: Population) -> Learner:
    return ALGORITHMS.named(options.algorithm)(options.learning, clients)


@dataclass(frozen=True)
class Plan:
    """A run that nobody has begun.

    disclosures: what its devices were asked to tell before. statement_parts: of extensions.
    """

    options: RunOptions
    learner: Learner
    disclosures: Disclosures
    statement_parts: Sequence[StatementPart] = ()


def planned(options: RunOptions, store: str | Path | None) -> Plan:
    """Plan a run as `written` begins it, and write nothing. Raises TernError as that does."""
    kind = fleet.parse(options.fleet)
    path = kind.default_store if store is None else store_path(store)
    first = (options.after_round or 0) + 1
    if path is None or not path.is_file():
        if not (kind.provisions or kind.simulated):
            raise UsageError("--store must name the store with the devices' keys")
        learner = _learner(options, population(kind, options.schedule, None))
        _check(learner, kind, options, first)
        return Plan(options, learner, Disclosures())

    with Store(path, create=False, beside=True) as opened:
        clients = population(kind, options.schedule, opened)
        options, learner = _fitted(options, None, kind, opened, clients)
        _check(learner, kind, options, first)
        disclosures = Disclosures()
        if not kind.provisions:
            disclosures = costs.asked_of(opened, kind.simulated)
        parts = []
        for extension in EXTENSIONS.available():
            parts.append(extension.statement_part(opened, kind, options, learner))
    return Plan(options, learner, disclosures, parts)


def _fitted(
    options: RunOptions, learner: Learner | None, kind: Fleet, store: Store, clients: Population
) -> tuple[RunOptions, Learner]:
    """The options as extensions fit them to the fleet, and their learner. Raises TernError.

    learner: of the options as they are, if there is one.
    """
    if learner is None:
        learner = _learner(options, clients)
    fitted = options
    for extension in EXTENSIONS.available():
        fitted = extension.fitted(fitted, learner, kind, store)
    if fitted is options:
        return options, learner
    return fitted, _learner(fitted, clients)


def population(
    kind: Fleet, schedule: Schedule | None, store: Store | None, devices: int | None = None
) -> Population:
    """The clients that an algorithm can ask.

    devices: how many there were when the run began. None: as many as have a key, where tern does
    not make them or they are served.
    """
    made = kind.provisions or kind.simulated
    is_served = schedule is not None
    if devices is None:
        devices = 0
        if store is not None and (is_served or not made):
            devices = kind.census(store, is_served)
    if is_served and made:
        devices = devices or kind.clients or kind.most_clients or 0
    return Population(
        clients=kind.clients,
        most=kind.most_clients,
        schedule=schedule,
        devices=devices,
        knows_records=kind.knows_records,
        boards=kind.count if kind.provisions else 0,
    )


def made_clients(kind: Fleet, algorithm: Learner) -> int:
    """For how many clients boards are made."""
    if algorithm.clients is not None:
        return algorithm.clients
    assert algorithm.holdings is not None
    with_records = algorithm.holdings.clients
    return min(with_records, kind.most_clients or with_records)


def make_boards(
    store: Store, boards: Sequence[Path], algorithm: Learner, dealt: Devices, budget: int | None
) -> None:
    """Make or remake the emulated boards of a run.

    dealt: the device that each client is. budget: of a device for its life, micro-epsilon; None:
    the cost of the run.
    """
    for board in boards:
        shutil.rmtree(board, ignore_errors=True)
    holdings = algorithm.holdings
    assert holdings is not None
    devices = np.arange(1, len(dealt) + 1)
    rows = holdings.rows(clients_of(dealt, devices)).reshape(-1, holdings.width)
    policies = costs.policies(algorithm, devices, budget)
    provision_fleet(store, boards, rows, policies, holdings.each, algorithm.unit)


def _check(algorithm: Learner, kind: Fleet, options: RunOptions, first: int) -> None:
    """Raise UsageError for options that no run can have. first: the number of its first round."""
    costs.accounts(algorithm, options.budget_micro)
    cost = max(costs.costs(algorithm), default=0)
    if options.schedule is None and cost > ledger.MAX_BUDGET:
        text = (
            f"a client would spend epsilon {cost / MICRO:g}, and no budget for life is above 1000"
        )
        raise UsageError(text, hint="ask for fewer --reports or --rounds, or a smaller --epsilon")
    if options.schedule is not None and algorithm.once and kind.simulated:
        text = f"{algorithm.name} asks each device once, and to a simulated fleet no device is ever added"
        raise UsageError(
            text, hint=f"'tern train --algorithm {algorithm.name}' asks simulated ones once"
        )
    if kind.provisions:
        clients = made_clients(kind, algorithm)
        if kind.count > clients:
            text = f"{kind.count} boards for {counted(clients, 'client')} leave boards without one"
            raise UsageError(text, hint="ask for fewer boards, or more reports or clients")
    rounds = algorithm.rounds
    if rounds is not None and first + rounds - 1 > wire.MAX_ROUND:
        text = f"{rounds} rounds from {first} on would go beyond {wire.MAX_ROUND}"
        raise UsageError(text, hint="give a smaller --after-round, or larger groups")


def store_path(text: str | Path) -> Path:
    """The file that --store names: itself, or the one in a directory. Raises UsageError."""
    if not str(text):
        raise UsageError("--store must name a file", hint="such as my-fleet/store.sqlite")
    path = Path(text)
    return path / store_file.NAME if path.is_dir() else path


def require_no_run(store: Store, anew: bool = False) -> None:
    """Make sure that no other run is under way in a store; one that has asked nobody is forgotten.

    anew: end what is under way, and lose its open rounds. Raises UsageError.
    """
    for run in store.runs():
        if not run.unfinished:
            continue
        idle = run.status == PREPARING or (not run.state["rounds"] and not store.open_rounds())
        if not anew and not idle:
            hint = f"resume it: {run_directory.going_on(run)}; or abandon it with --anew"
            raise UsageError(
                f"{store.path} holds the run {run.name}, which has not finished", hint=hint
            )
        store.save_run(run.name, status=ABANDONED)
    for open_round in store.open_rounds():
        store.end_round(open_round.number, ABANDONED)


def take_back(store: Store, files: RunFiles, error: TernError) -> None:
    """Close the store, and forget a new run that no device took part in.

    A board that failed may come back to it.
    """
    numbers = [round_.number for round_ in store.open_rounds() if round_.run == files.name]
    may_go_on = isinstance(error, DeviceError) or any(map(store.report_count, numbers))
    if numbers and may_go_on:
        return
    for number in numbers:
        store.end_round(number, ABANDONED)
    if isinstance(error, refusals.AllRefused) and refusals.nobody_will_report(error.result):
        store.forget_questions(files.name)
    store.forget_run(files.name)
    store.close()
    run_directory.remove(files.directory)


def moved(saved: str, named: str) -> str:
    """The fleet of a run that is resumed; boards may be elsewhere by now. Raises UsageError."""
    if named != saved and not (fleet.parse(saved).may_move and fleet.parse(named).may_move):
        hint = "only boards that tern did not make may move"
        raise UsageError(f"a resumed run keeps its fleet, {saved}", hint=hint)
    return named
