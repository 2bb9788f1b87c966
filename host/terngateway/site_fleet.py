"""The fleet of a gateway: its options, which gateway.json keeps, and how it is opened."""

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np

from tern import ledger, wire
from terngateway.bound import Bound
from terngateway.fleet import AtGateways
from terngateway.site import Gateway, GatewaySettings
from ternhost import datasets
from ternhost.datasets import Fixed, Holdings
from ternhost.errors import StorageError, UsageError
from ternhost.files import read_object, storage_errors, write_file
from ternhost.learn.schedule import Terms
from ternhost.options import names_of, option, require
from ternhost.privacy.accounting import Policy
from ternhost.privacy.base import parse_epsilon
from ternhost.provision.boards import (
    FLEET_NAME,
    BoardSettings,
    board_directories,
    new_keys,
    provision_board,
)
from ternhost.reach import fleet
from ternhost.reach.driver import Warn
from ternhost.reach.fleet import Fleet, RunContext, SimulatedClients
from ternhost.store import store_file
from ternhost.store.round_numbers import last_number
from ternhost.store.store import Store

FILE = "gateway.json"
_RUNS = "runs"  # the member with these options; others belong to the connection to the server
_CLIENTS = 1000  # on emulated boards, by default
_what = partial(option, group="what the gateway runs")
_made = partial(option, group="clients that tern makes: simulated, or on emulated boards")
_NEW = "new"  # directory of boards whose keys are in no store yet
_NAME = "gateway"  # stands for the run in a gateway's store
# Modules of the device library for emulated boards: all that a host may ask for.
_MODULES = ("inference", "local", "collect", "lhp", "softmax", "sums", "projection")


@dataclass(frozen=True)
class SiteFleet:
    """Options of a gateway. tern makes boards and clients at the first start, and keeps them later."""

    fleet: str = _what("", "the devices: see 'tern fleet kinds'", metavar="KIND:...", shown="")
    store: str | None = _what(
        None,
        "file with the devices' keys and rounds",
        metavar="FILE",
        shown="the fleet's own, or one beside it",
    )
    single_results: bool = _what(
        False,
        "send results of single devices, without their ids, if an inference asks for vectors",
        shown="no",
    )
    silence: float = _what(
        Terms.silence,
        "seconds without a message from a board, after which rounds continue without it",
        metavar="SECONDS",
    )
    dataset: str = _made("flights", "data set of the clients", metavar="NAME")
    classes: bool = _made(False, "labels are class numbers from 0, for softmax", shown="no")
    clients: int | None = _made(
        None, "number of clients", shown="1000, or as many as are simulated", metavar="N"
    )
    first_id: int = _made(
        1,
        "id of the first client; client i holds part i of the data set, and gateways must not share ids",
        metavar="ID",
    )
    records: int = _made(1, "records per client", metavar="N")
    seed: int = _made(
        1,
        "seed that assigns records, the same at every site; it also fixes the noise of simulated ones",
        metavar="S",
    )
    budget: str = _made("2", "lifetime epsilon of a client on emulated boards", metavar="E")
    largest: str | None = _made(
        None, "largest epsilon of one of their reports", metavar="E", shown="the budget"
    )

    def __post_init__(self) -> None:
        """Raise UsageError unless each option is in its range and they go together."""
        if not self.fleet:
            hint = f"a fleet is {fleet.forms()}"
            raise UsageError("--fleet must name the gateway's devices", hint=hint)
        kind = fleet.parse(self.fleet)
        if isinstance(kind, AtGateways):
            text = "a gateway asks its own devices, and no other gateways"
            raise UsageError(text, hint="such as port:a0")
        require(self.clients is None or self.clients >= 1, "clients", "1 or more", self.clients)
        largest_id = wire.FLEET - (self.count(kind) or 1)  # so that every client has an id
        require(1 <= self.first_id <= largest_id, "first_id", f"1 to {largest_id}", self.first_id)
        require(1 <= self.records <= 0xFFFF, "records", "1 to 65535", self.records)
        require(self.seed >= 0, "seed", "0 or more", self.seed)
        is_a_day_or_less = 0 < self.silence <= 86_400
        require(is_a_day_or_less, "silence", "above 0 and at most 86400 seconds", self.silence)
        _ = self.policy  # raises UsageError

    @property
    def policy(self) -> Policy:
        """The policy of each client on emulated boards. Raises UsageError."""
        budget = parse_epsilon(self.budget, ledger.MAX_BUDGET, "--budget")
        if self.largest is None:
            return Policy(budget, budget)
        return Policy(parse_epsilon(self.largest, ledger.MAX_BUDGET, "--largest"), budget)

    def count(self, kind: Fleet) -> int | None:
        """Return the number of clients that tern makes; None if it makes none."""
        if kind.simulated:
            return self.clients or kind.clients
        if kind.provisions:
            return self.clients or _CLIENTS
        return None

    def holdings(self) -> Holdings:
        """Return the records of the clients of all sites with this data set. Raises UsageError.

        They are in an order that follows from the seed, so that every site assigns them alike.
        """
        data = datasets.held(self.dataset, classes=self.classes)
        rows = data.records(data.training)
        enough_rows = self.records <= len(rows)
        require(enough_rows, "records", f"at most the data set's {len(rows)}", self.records)
        order = np.random.default_rng(self.seed).permutation(len(rows))
        return Holdings(rows, order, self.records)

    # In gateway.json

    @classmethod
    def of(cls, directory: Path, named: Mapping[str, Any]) -> Self:
        """Return the stored options of the directory, replaced by those that are named now.

        named: options of the command, by name. Raises UsageError if one of them changes an option
        that was settled at the first start.
        """
        saved = _read(directory).get(_RUNS)
        if saved is None:
            return cls(**named)._anywhere()

        stored = {name: value for name, value in saved.items() if name in names_of(cls)}
        options = cls(**{**stored, **named})._anywhere()
        for name in named.keys() & _SETTLED:
            new_value = getattr(options, name)
            old_value = stored.get(name)
            if new_value == old_value:
                continue
            flag = f"--{name.replace('_', '-')}"
            begun = f"without {flag}" if old_value is None else f"with {flag} {old_value}"
            hint = "its devices and their answers stay; for others write another directory"
            raise UsageError(f"{directory} was begun {begun}, not with {new_value}", hint)
        return options

    def _anywhere(self) -> Self:
        """Return these options with paths that are valid in any working directory."""
        store = self.store
        if store:
            store = os.path.abspath(Path(store).expanduser())
        return replace(self, fleet=fleet.parse(self.fleet).absolute_name, store=store)

    def save(self, directory: Path) -> None:
        """Write the options into gateway.json, whose other members stay. Raises StorageError."""
        members_before = _read(directory)
        members = {**members_before, _RUNS: asdict(self)}
        if members == members_before:
            return
        with storage_errors():
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_file(directory / FILE, json.dumps(members, indent=1).encode() + b"\n")


# Options that the first start settles, since the devices and their records follow from them.
_SETTLED = {"dataset", "classes", "clients", "first_id", "records", "seed", "store"}


def _read(directory: Path) -> dict[str, Any]:
    """Return the members of gateway.json; none if there is no such file."""
    path = directory / FILE
    return read_object(path) if path.exists() else {}


@contextmanager
def opened(
    directory: str | Path, runs: SiteFleet, warn: Warn = lambda message: None
) -> Iterator[Gateway]:
    """Open the gateway of a directory with its store, and close the store at the end.

    runs: the options; those that work are saved. Makes emulated boards and simulated clients at the
    first start. Raises TernError.
    """
    directory = Path(directory)
    bound = Bound.of_site(directory)
    kind = fleet.parse(runs.fleet)
    is_made = kind.provisions or kind.simulated
    path = Path(runs.store) if runs.store else kind.default_store
    if path is None and not is_made:
        raise UsageError("--store must name the store with the devices' keys")
    with storage_errors():
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)

    with Store(path or directory / store_file.NAME, create=is_made) as store:
        if kind.provisions:
            _provision(directory, kind, runs, store, warn)
        driver = kind.driver(_context(directory, kind, runs, store, warn))
        runs.save(directory)  # not before: wrong options can still be corrected
        settings = GatewaySettings(
            fleet=kind.word,
            single_results=runs.single_results,
            silence=runs.silence,
            bound=bound,
        )
        yield Gateway(store, driver, settings, warn)


def _context(directory: Path, kind: Fleet, runs: SiteFleet, store: Store, warn: Warn) -> RunContext:
    """Return the context from which the driver of a gateway's devices is made."""
    return RunContext(
        store=store,
        directory=directory,
        run=_NAME,
        terms=Terms(silence=runs.silence),
        warn=warn,
        clients=_simulated_clients(kind, runs, warn),
        modules=_MODULES,
        standing=True,
    )


def _simulated_clients(kind: Fleet, runs: SiteFleet, warn: Warn) -> SimulatedClients:
    """Return the simulated clients of a site; without records if its devices are not simulated."""
    holdings = _holdings(kind, runs, warn) if kind.simulated else None
    # The first id is part of the seed: clients of two gateways must not draw the same noise.
    seed = runs.seed + (runs.first_id << 32)
    return SimulatedClients(holdings, runs.count(kind), seed, runs.first_id)


def _holdings(kind: Fleet, runs: SiteFleet, warn: Warn) -> Holdings:
    """Return the records of all clients; warn if the data set has too few for those of this site."""
    holdings = runs.holdings()
    last_id = runs.first_id + (runs.count(kind) or 1) - 1
    if last_id > holdings.clients:
        first_repeated = max(runs.first_id, holdings.clients + 1)
        warn(
            f"--dataset {runs.dataset} has records for {holdings.clients:,} clients: those with ids "
            f"from {first_repeated:,} to {last_id:,} hold again what the ids from 1 on do"
        )
    return holdings


def _provision(directory: Path, kind: Fleet, runs: SiteFleet, store: Store, warn: Warn) -> None:
    """Make the boards of a first start, or complete an interrupted one.

    Boards are below `new` until the store has their keys. Raises StorageError, UsageError.
    """
    count = runs.count(kind)
    assert count is not None
    ids = range(runs.first_id, runs.first_id + count)
    fleet_directory = directory / FLEET_NAME
    new_fleet_directory = directory / _NEW / FLEET_NAME
    known_devices = store.keys()
    if ids.start in known_devices:  # not the first start, or that one was interrupted at its end
        if new_fleet_directory.exists():
            new_fleet_directory.rename(fleet_directory)
        return
    if fleet_directory.exists():
        text = f"{store.path} has no keys of the boards in {fleet_directory}"
        raise StorageError(text, "put that store back; if it is lost, write another directory")
    if kind.count > count:
        text = f"{kind.count} boards for {count} clients leave boards without one"
        raise UsageError(text, "ask for fewer boards")

    # clients x records x values; client i holds part i, and parts count from 0.
    rows = _holdings(kind, runs, warn).rows(np.arange(ids.start - 1, ids.stop - 1))
    runs.save(directory)  # before its devices exist
    # Left by an interrupted start: none of its boards ever ran.
    shutil.rmtree(directory / _NEW, ignore_errors=True)
    keys = new_keys(ids)
    _write_boards(board_directories(directory / _NEW, kind.count), keys, rows, runs, store)
    store.add_devices(keys)  # now that the boards are written
    new_fleet_directory.rename(fleet_directory)


def _write_boards(
    boards: Sequence[Path],
    keys: Mapping[int, bytes],
    rows: Fixed,
    runs: SiteFleet,
    store: Store,
) -> None:
    """Write the boards' directories, among which the clients are divided as equally as possible.

    keys: by device, in ascending order. rows: clients x records x values.
    """
    ids = list(keys)
    settings = BoardSettings(last_round=last_number(store))
    first_clients = [len(ids) * board // len(boards) for board in range(len(boards) + 1)]
    for board, (start, end) in zip(boards, pairwise(first_clients), strict=True):
        board_rows = rows[start:end].reshape(-1, rows.shape[2])
        board_keys = [keys[device] for device in ids[start:end]]
        provision_board(board, ids[start], board_keys, board_rows, runs.policy, settings)
